"""A thinker based on a language model: it proposes steps by generating them, and estimates their value.

No token is processed twice. The branches of a problem share one row of a cache (`nn.kv_cache.TreeCache`), in which each
branch attends to its own prefix. Tries after a thought that begin alike form one branch until they differ: of k tries,
m with the same next token continue as one branch with count m. The value of a step is requested after the step, at the
cost of one token. `TokenUsage` counts the tokens that the model processed for each problem, read and generated.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from ..core.errors import IncompatibleSettingError, ModelError
from ..data.text.puzzles import END, PuzzlePreprocessing, SearchablePuzzle, Verdict
from ..models.base import SupportsKVCache
from ..nn.kv_cache import Cache, Path, TreeCache, gather_paths
from ..nn.modules import eval_mode
from .thought_search import CHAINS, Method, SearchResult, Thought, search

LINE = "\n"
STRIDE = 0x9E3779B97F4A7C15  # an odd number that separates the seeds of problems


@dataclass
class TokenUsage:
    """The number of tokens that were processed for one problem."""

    read: int = 0  # tokens of the problem, and one for each requested value
    written: int = 0  # tokens of thoughts

    @property
    def tokens(self) -> int:
        """The total number of tokens."""
        return self.read + self.written


@dataclass(eq=False)
class ThoughtState:
    """The state from which a thought is continued."""

    spent: TokenUsage
    generator: torch.Generator
    question: str
    path: Path  # all tokens up to the end of this thought, except the last one
    last: int  # the next token to process
    ended: bool = False  # whether the model ended the solution here, or the context is full
    full: bool = False  # whether the context has no room for the last token
    count: int = 1  # number of tries with this thought


@dataclass(eq=False)
class _Branch:
    """A prefix of a thought that is being generated."""

    parent: int  # index of the thought that it continues
    at: int  # index of the branch that it continues
    count: int  # tries
    tokens: tuple[int, ...] = ()
    log_p: float = 0.0


class LanguageThinker:
    """Proposals and values of a language model with a key-value cache."""

    def __init__(
        self, model: nn.Module, preprocessing: PuzzlePreprocessing, *, temperature: float = 0.7, seed: int = 0
    ) -> None:
        if not isinstance(model, SupportsKVCache):
            raise ModelError(f"{type(model).__name__} has no shareable key-value cache: use gpt2.")
        self.model, self.preprocessing, self.kind = model, preprocessing, preprocessing.kind
        self.temperature, self.seed = temperature, seed
        self.device = next(model.parameters()).device
        self.never = preprocessing.never
        self.context: int = model.config.context_length  # type: ignore[union-attr, assignment]

    def roots(self, problems: Sequence[str]) -> list[Thought]:
        """Return the initial thought of each problem; its text is the problem."""
        ids, mask = (x.to(self.device) for x in self.preprocessing.encode_questions(problems))  # (N, T)
        lengths = mask.sum(1)
        before = mask & (torch.arange(ids.shape[1], device=self.device) < lengths[:, None] - 1)
        tree = TreeCache.from_cache(self._extend(ids[:, :-1], before[:, :-1])[1])
        last = ids.gather(1, lengths[:, None] - 1)[:, 0].tolist()
        found = []
        for k, problem in enumerate(problems):
            # Seeded by the problem's text, so that its solution does not depend on the batch.
            generator = torch.Generator().manual_seed((self.seed + zlib.crc32(problem.encode()) * STRIDE) % 2**63)
            path = Path(tree, k, tree.seen[k, 0])
            held = ThoughtState(TokenUsage(read=int(lengths[k])), generator, problem, path, last[k])
            found.append(Thought(problem, held=held))
        return found

    def propose(self, thoughts: Sequence[Thought], count: int, whole: bool = False) -> list[list[Thought]]:
        """Return the distinct next lines, or whole solutions, of `count` tries after each thought."""
        stops = {END} if whole else {END, self.preprocessing.ids.get(LINE, END)}
        found: list[list[Thought]] = [[] for _ in thoughts]
        if not thoughts:
            return found
        held: list[ThoughtState] = [thought.held for thought in thoughts]
        tree, rows, seen = gather_paths([one.path for one in held])
        branches = [_Branch(k, k, count) for k in range(len(thoughts))]
        tokens = [one.last for one in held]
        while branches:
            of = [rows[branch.parent] for branch in branches]
            logits, seen = self._read(tree, of, seen[[branch.at for branch in branches]], tokens)
            full = (seen.sum(1) >= self.context).tolist()
            going = []
            for branch in self._sample_branches(logits, branches, held):
                own, last = held[branch.parent], branch.tokens[-1]
                own.spent.written += 1
                if last not in stops and not full[branch.at]:
                    going.append(branch)
                    continue
                path = Path(tree, of[branch.at], seen[branch.at])
                after = ThoughtState(own.spent, own.generator, own.question, path, last, count=branch.count)
                after.full = full[branch.at]
                after.ended = last == END or last not in stops or after.full
                text = self.preprocessing.words(branch.tokens)
                found[branch.parent].append(Thought(text, thoughts[branch.parent], branch.log_p, held=after))
            branches, tokens = going, [branch.tokens[-1] for branch in going]
        return found

    def value(self, thoughts: Sequence[Thought]) -> list[float]:
        """Return the probability of `sure` against `impossible` after each thought, in place of the end of its line.

        It costs one token per thought. The value is 0 where the context has no room for it.
        """
        kind = self.kind
        if not isinstance(kind, SearchablePuzzle):
            raise IncompatibleSettingError(f"{kind.name} has no intermediate steps to value.")
        asked = [thought for thought in thoughts if not thought.held.full]
        if not asked:
            return [0.0] * len(thoughts)
        held: list[ThoughtState] = [thought.held for thought in asked]
        for one in held:
            one.spent.read += 1
        question, sure, impossible = (self.preprocessing.ids[t] for t in (kind.question, kind.sure, kind.impossible))
        likely: dict[int, float] = {}
        for tree in {one.path.cache: None for one in held}:
            own = [thought for thought in asked if thought.held.path.cache is tree]
            paths = [thought.held.path for thought in own]
            seen = pad_sequence([path.seen for path in paths], batch_first=True)
            logits, _ = self._read(tree, [path.row for path in paths], seen, [question] * len(own))
            likely |= zip(map(id, own), logits[:, [sure, impossible]].double().softmax(1)[:, 0].tolist())
        return [likely.get(id(thought), 0.0) for thought in thoughts]

    def finish(self, thought: Thought) -> str | None:
        """Return the solution's answer if the model ended it or no step can follow, else None."""
        if thought.parent is None or not (thought.held.ended or self._is_final(thought.text)):
            return None
        return self.kind.judge(thought.held.question, self.preprocessing.form, thought.solution()).answer

    def _is_final(self, line: str) -> bool:
        """Return whether this line is the last step of a solution, so that none can follow it in the search tree."""
        return (
            isinstance(self.kind, SearchablePuzzle)
            and self.preprocessing.form == self.kind.tree
            and self.kind.ended(line)
        )

    def _sample_branches(self, logits: Tensor, branches: list[_Branch], held: list[ThoughtState]) -> list[_Branch]:
        """Extend the branches by their logits (B, V): one branch for each distinct token that the tries of a branch
        sample.
        """
        log_p = next_token_log_probabilities(logits, self.preprocessing)  # (B, V)
        if self.temperature == 0:
            best = log_p.argmax(1).tolist()
            drawn = [Counter({token: branch.count}) for token, branch in zip(best, branches)]
        else:
            reached = (log_p / self.temperature).softmax(1).cumsum(1)
            most = max(b.count for b in branches)
            numbers = torch.zeros(len(branches), most, dtype=torch.float64)
            for k, branch in enumerate(branches):
                own = held[branch.parent].generator
                numbers[k, : branch.count] = torch.rand(branch.count, dtype=torch.float64, generator=own)
            places = torch.searchsorted(reached, numbers.to(reached.device) * reached[:, -1:], right=True).tolist()
            drawn = [Counter(row[: branch.count]) for row, branch in zip(places, branches)]
        return [
            _Branch(b.parent, k, count, (*b.tokens, token), b.log_p + log_p[k, token].item())
            for k, (b, tokens) in enumerate(zip(branches, drawn))
            for token, count in tokens.items()
        ]

    def _read(self, tree: TreeCache, rows: list[int], seen: Tensor, tokens: list[int]) -> tuple[Tensor, Tensor]:
        """Process one token after each of several texts in the given rows of the tree.

        `seen` (B, S) marks the tokens of each text. Returns the next logits (B, V), and the new mask (B, S').
        """
        counts = Counter[int]()
        columns = []  # index of each text among those of its row
        for row in rows:
            columns.append(counts[row])
            counts[row] += 1
        at = (torch.tensor(rows, device=self.device), torch.tensor(columns, device=self.device))
        shape = (len(tree), max(columns) + 1)
        before = torch.zeros(*shape, tree.length, dtype=torch.bool, device=self.device)
        before[(*at, slice(seen.shape[1]))] = seen
        ids = torch.zeros(shape, dtype=torch.int64, device=self.device)
        ids[at] = torch.tensor(tokens, device=self.device)
        real = torch.zeros(shape, dtype=torch.bool, device=self.device)
        real[at] = True
        tree.after(before)
        logits, _ = self._extend(ids, real, tree, every=True)
        return logits[at], tree.seen[at]

    @torch.no_grad()
    def _extend(
        self, tokens: Tensor, mask: Tensor | None, cache: Cache | None = None, every: bool = False
    ) -> tuple[Tensor, Cache]:
        with eval_mode(self.model):
            logits, cache = self.model.extend(tokens, mask, cache, every=every)
        return logits.float() if logits.dtype != torch.float64 else logits, cache


def next_token_log_probabilities(logits: Tensor, preprocessing: PuzzlePreprocessing) -> Tensor:
    """Return log p of the next token of a step, float64, without the tokens that are in no solution.

    In the form for trees, training texts have a question about the value where a step ends, and nothing after the last
    step: the probability of the question is added to that of the line end.

    Args:
        logits: Logits, shape (B, V).
        preprocessing: Preprocessing in the form of the solutions.
    """
    chosen = logits.double()
    kind, ids = preprocessing.kind, preprocessing.ids
    if isinstance(kind, SearchablePuzzle) and preprocessing.form == kind.tree:
        chosen[:, ids[LINE]] = chosen[:, [ids[LINE], ids[kind.question]]].logsumexp(1)
    chosen[:, preprocessing.never] = -torch.inf
    return chosen.log_softmax(1)


def thought_tokens(thought: Thought, preprocessing: PuzzlePreprocessing) -> list[int]:
    """Return the ids of a generated thought, including the token that ended the solution."""
    ids = preprocessing.encode(thought.text)
    return [*ids, END] if thought.held.last == END else ids


def solution_form(preprocessing: PuzzlePreprocessing, method: Method) -> str:
    """Return the form of solutions that a search with this method writes."""
    if method.method in CHAINS:
        return method.form or preprocessing.form
    return str(getattr(preprocessing.kind, "tree", method.form or preprocessing.form))


def think(
    model: nn.Module, preprocessing: PuzzlePreprocessing, problems: Sequence[str], method: Method
) -> list[SearchResult]:
    """Search for a solution of each problem."""
    preprocessing = preprocessing.in_form(solution_form(preprocessing, method))
    temperature = 0.0 if method.method == "greedy" else method.temperature
    thinker = LanguageThinker(model, preprocessing, temperature=temperature, seed=method.seed)

    def verified(thought: Thought) -> bool:
        return preprocessing.kind.judge(thought.held.question, preprocessing.form, thought.solution()).solved

    return search(thinker, thinker.roots(problems), method, verified)


def solve_problems(
    model: nn.Module, preprocessing: PuzzlePreprocessing, problems: Sequence[str], method: Method
) -> tuple[Tensor, Tensor, list[Verdict]]:
    """Return the solution of each problem, the tokens spent on it, and the verdicts.

    The solutions are ids (N, L), padded with −1, and the number of tokens is (N,).
    """
    found, form = think(model, preprocessing, problems, method), solution_form(preprocessing, method)
    verdicts = [preprocessing.kind.judge(problem, form, one.solution) for problem, one in zip(problems, found)]
    rows = [torch.tensor(preprocessing.encode(one.solution), dtype=torch.int64) for one in found]
    device = next(model.parameters()).device
    written = pad_sequence(rows, batch_first=True, padding_value=-1).to(device)
    spent = torch.tensor([one.root.held.spent.tokens for one in found], device=device)
    return written, spent, verdicts
