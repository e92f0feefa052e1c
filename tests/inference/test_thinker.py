"""A language model that thinks: branches share what stands before them, and are what they would be without that."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from cutaway.core.errors import ModelError
from cutaway.core.spec import Solution, TextSpec
from cutaway.data.dataset_base import IGNORED
from cutaway.data.text.puzzles import END, FIRST, Countdown, PuzzlePreprocessing, PuzzleSplit
from cutaway.inference.language_model_thinker import LanguageThinker, think
from cutaway.inference.text import NONE, generate
from cutaway.inference.thought_search import Method, Thought
from cutaway.models.registry import create_model
from cutaway.nn.kv_cache import Cache

SIZE = len(Countdown.vocabulary) + FIRST
PREPROCESSING = PuzzlePreprocessing(TextSpec(SIZE, 60, Solution(SIZE, problem="countdown", forms=("steps", "tree"))))
PROBLEMS = ["4 9 10 13 => 24", "3 8 => 24", "1 2 3 4 => 24"]
NEVER = PREPROCESSING.never
TREE = Method("tree", breadth=3, proposals=6)


class Counting(torch.nn.Module):
    """A model that notes every real token it reads after which others."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.inner, self.config = model, model.config
        self.read = 0

    def extend(
        self, tokens: Tensor, mask: Tensor | None = None, cache: Cache | None = None, *, every: bool = False
    ) -> tuple[Tensor, Cache]:
        """Logits (N, V) or (N, T, V), and the cache."""
        self.read += int(torch.ones_like(tokens).sum() if mask is None else mask.sum())
        found: tuple[Tensor, Cache] = self.inner.extend(tokens, mask, cache, every=every)
        return found


@pytest.fixture(scope="module")
def model() -> Any:
    """One that was trained for seconds, on these problems alone: it writes lines that look like steps."""
    torch.manual_seed(0)
    made: Any = create_model("gpt2", vocab_size=SIZE, context_length=60, dim=32, layers=2, heads=2, dropout=0.0)
    optimizer = torch.optim.AdamW(made.parameters(), lr=1e-2)
    split = PuzzleSplit(PREPROCESSING, PROBLEMS, ("steps", "tree"))
    for seed in range(150):
        (batch,) = split.batches([torch.arange(len(split))], seed=seed)
        loss = F.cross_entropy(made(*batch.inputs).flatten(0, 1), batch.target.flatten(), ignore_index=IGNORED)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return made.double().eval()


def whole_logits(model: Any, ids: list[int]) -> Tensor:
    """Logits after each token, (T, V), of the whole text read at once."""
    with torch.no_grad():
        found: Tensor = model(torch.tensor([ids]))[0]
    return found


def test_probabilities_are_those_of_the_whole_text_read_at_once(model: Any) -> None:
    counted = 0
    for one in think(model, PREPROCESSING, PROBLEMS, TREE):
        counted += len(one.thoughts)
        asked = PREPROCESSING.encode(PREPROCESSING.kind.ask(one.root.text, "tree"))
        for thought in one.thoughts:
            before = [i for t in thought.path()[:-1] for i in tokens_of(t)]
            own = tokens_of(thought)
            logits = whole_logits(model, [*asked, *before, *own])
            ends = [PREPROCESSING.ids["\n"], PREPROCESSING.ids["?"]]  # a question stands in place of a line end
            logits[:, ends[0]] = logits[:, ends].logsumexp(1)
            logits[:, NEVER] = -torch.inf
            log_p = logits.log_softmax(1)
            start = len(asked) + len(before)
            expected = sum(float(log_p[start - 1 + k, token]) for k, token in enumerate(own))
            assert thought.log_p == pytest.approx(expected, rel=1e-9)
    assert counted > 12


def tokens_of(thought: Thought) -> list[int]:
    """All tokens of a thought, with the one that ended it."""
    ids = PREPROCESSING.encode(thought.text)
    return [*ids, END] if thought.held.last == END else ids


def test_values_are_those_of_the_whole_text_read_at_once(model: Any) -> None:
    sure, impossible = (PREPROCESSING.ids[token] for token in ("sure", "impossible"))
    for one in think(model, PREPROCESSING, PROBLEMS, TREE):
        asked = PREPROCESSING.encode(PREPROCESSING.kind.ask(one.root.text, "tree"))
        for thought in one.thoughts:
            ids = [*asked, *(i for t in thought.path() for i in tokens_of(t))][:-1]  # without the end of the line
            logits = whole_logits(model, [*ids, PREPROCESSING.ids["?"]])[-1]
            assert thought.value == pytest.approx(float(logits[[sure, impossible]].softmax(0)[0]), rel=1e-9)


@pytest.mark.parametrize("method", [TREE, Method("depth-first", proposals=3, budget=6, threshold=0.0)])
def test_no_token_is_read_twice_and_every_one_is_counted(model: Any, method: Method) -> None:
    counting = Counting(model)
    (one,) = think(counting, PREPROCESSING, PROBLEMS[:1], method)
    # The different beginnings of all that was read: of the question, and of every thought that was gone on from.
    asked = PREPROCESSING.encode(PREPROCESSING.kind.ask(one.root.text, "tree"))
    beginnings = {tuple(asked[:n]) for n in range(1, len(asked) + 1)}
    parents = {id(t.parent) for t in one.thoughts}
    for thought in one.thoughts:
        ids = [*asked, *(i for t in thought.path() for i in tokens_of(t))]
        end = len(ids) if id(thought) in parents else len(ids) - 1  # the last token is read when it is gone on from
        beginnings |= {tuple(ids[:n]) for n in range(1, end + 1)}
    spent = one.root.held.spent
    assert counting.read == len(beginnings) + len(one.thoughts)  # and a question after each
    assert spent.read == len(asked) + len(one.thoughts)
    texts = {
        tuple(i for t in thought.path() for i in tokens_of(t))[:n]
        for thought in one.thoughts
        for n in range(1, sum(len(tokens_of(t)) for t in thought.path()) + 1)
    }
    assert spent.written == len(texts)


def test_a_search_is_the_same_alone_and_beside_others(model: Any) -> None:
    together = think(model, PREPROCESSING, PROBLEMS, TREE)
    for problem, beside in zip(PROBLEMS, together):
        (alone,) = think(model, PREPROCESSING, [problem], TREE)
        assert [t.solution() for t in alone.thoughts] == [t.solution() for t in beside.thoughts]
        assert alone.root.held.spent.tokens == beside.root.held.spent.tokens
    again = think(model, PREPROCESSING, PROBLEMS, TREE)
    assert [t.solution() for one in again for t in one.thoughts] == [
        t.solution() for one in together for t in one.thoughts
    ]
    other = think(model, PREPROCESSING, PROBLEMS[:1], Method("tree", breadth=3, proposals=6, seed=9))
    assert [t.solution() for t in other[0].thoughts] != [t.solution() for t in together[0].thoughts]


def test_a_greedy_chain_is_what_greedy_generation_writes(model: Any) -> None:
    for problem in PROBLEMS:
        (one,) = think(model, PREPROCESSING, [problem], Method("greedy"))
        asked = torch.tensor([PREPROCESSING.encode(PREPROCESSING.kind.ask(problem, "steps"))])
        room = 60 - asked.shape[1]
        drawn = generate(model, asked, room, temperature=0.0, never=NEVER, ends=(END,))[0]
        ids = [i for i in drawn.tolist() if i not in (NONE, END)]
        (chain,) = one.thoughts
        assert PREPROCESSING.encode(chain.text)[: len(ids)] == ids


def test_tries_that_draw_the_same_are_one_thought_that_counts_them(model: Any) -> None:
    thinker = LanguageThinker(model, PREPROCESSING, temperature=0.7)
    (proposed,) = thinker.propose(thinker.roots(PROBLEMS[:1]), 40)
    texts = [t.text for t in proposed]
    assert len(set(texts)) == len(texts)
    assert sum(t.held.count for t in proposed) == 40
    assert max(t.held.count for t in proposed) > 1


def test_tries_are_drawn_as_likely_as_the_model_says(model: Any) -> None:
    tries = 2_000
    thinker = LanguageThinker(model, PREPROCESSING, temperature=1.0)
    (proposed,) = thinker.propose(thinker.roots(PROBLEMS[:1]), tries)
    asked = PREPROCESSING.encode(PREPROCESSING.kind.ask(PROBLEMS[0], "steps"))
    p = whole_logits(model, asked)[-1].index_fill(0, torch.tensor(NEVER), -torch.inf).softmax(0)
    first = Counter[int]()
    for thought in proposed:
        first[tokens_of(thought)[0]] += thought.held.count
    token = int(p.argmax())
    assert 0.1 < p[token] < 0.99
    error = float((p[token] * (1 - p[token]) / tries).sqrt())
    assert abs(first[token] / tries - float(p[token])) < 5 * error


def test_a_model_without_a_cache_is_refused() -> None:
    with pytest.raises(ModelError, match="LSTM has no shareable key-value cache: use gpt2"):
        LanguageThinker(create_model("lstm", vocab_size=SIZE, embedding_dim=8, hidden_dim=8), PREPROCESSING)


class Breaking(Counting):
    """A model that ends every third line."""

    def extend(
        self, tokens: Tensor, mask: Tensor | None = None, cache: Cache | None = None, *, every: bool = False
    ) -> tuple[Tensor, Cache]:
        """Logits (N, V) or (N, T, V), and the cache."""
        logits, cache = super().extend(tokens, mask, cache, every=every)
        logits[..., PREPROCESSING.ids["\n"]] = logits.logsumexp(-1) - 0.7
        return logits, cache


@pytest.mark.parametrize("context", [14, 20, 33])
def test_where_the_context_ends_a_thought_ends_and_is_worth_nothing(context: int) -> None:
    torch.manual_seed(0)
    inner: Any = create_model("gpt2", vocab_size=SIZE, context_length=context, dim=8, layers=1, heads=1)
    lines = 0
    for seed in range(4):
        method = Method("tree", breadth=1, proposals=12, depth=40, temperature=1.0, seed=seed)
        (one,) = think(Breaking(inner.double().eval()), PREPROCESSING, PROBLEMS[1:2], method)
        asked = len(PREPROCESSING.encode(PREPROCESSING.kind.ask(one.root.text, "steps")))
        lengths = [asked + sum(len(tokens_of(t)) for t in thought.path()) for thought in one.thoughts]
        assert max(lengths) == context + 1
        for length, thought in zip(lengths, one.thoughts):
            assert (thought.value == 0.0) is (length == context + 1)
            assert thought.held.ended or length <= context
            lines += length == context + 1 and thought.text.endswith("\n")
    assert lines, "a line can end where the context does"
