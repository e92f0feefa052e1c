"""Search over thoughts: chains of steps, many chains, and trees of which the best branches are kept.

- a chain, greedy or drawn: J. Wei et al., Chain-of-thought prompting, 2022 <https://arxiv.org/abs/2201.11903>;
- self-consistency, the answer that most of k chains give: X. Wang et al., 2022 <https://arxiv.org/abs/2203.11171>;
- the best of k chains, by their likelihood or by who can verify them;
- a tree, breadth first: of the states that are proposed at each depth the b with the largest values are kept; or depth
  first, going back where a value falls below a threshold: S. Yao et al., Tree of thoughts, 2023
  <https://arxiv.org/abs/2305.10601>, algorithms 1 and 2.

What is searched is told by three questions, those of `Thinker`: which thoughts could come next, what a thought is
worth, and what it answers if it is the last. Anybody's own task can answer them; `thinker.py` asks a language model.
Searches run for many problems side by side: a thinker is given the thoughts of all of them at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from ..core.errors import SettingError, require

METHODS = ("greedy", "sample", "consistency", "likelihood", "verifier", "tree", "depth-first")
CHAINS = METHODS[:5]


@dataclass(eq=False)
class Thought:
    """A step of a solution, after all those before it."""

    text: str  # of this step; of the root the question
    parent: Thought | None = None
    log_p: float = 0.0  # of this step's tokens, given all before them
    value: float | None = None  # what it was found to be worth, where somebody asked
    kept: bool = True  # whether it was gone on from, or is the answer
    held: Any = field(default=None, repr=False)  # what a thinker keeps to go on from here

    @property
    def depth(self) -> int:
        """Steps since the root."""
        return 0 if self.parent is None else self.parent.depth + 1

    def path(self) -> list[Thought]:
        """All steps from the first one on, the root left out."""
        return [] if self.parent is None else [*self.parent.path(), self]

    def solution(self) -> str:
        """The text of all steps."""
        return "".join(thought.text for thought in self.path())

    def likelihood(self) -> float:
        """log p of all steps."""
        return sum(thought.log_p for thought in self.path())


class Thinker(Protocol):
    """The three questions of a search. Thoughts of several problems are given at once; answers are in their order."""

    def propose(self, thoughts: Sequence[Thought], count: int, whole: bool = False) -> list[list[Thought]]:
        """Different thoughts that could come next, out of `count` tries for each; with `whole` not the next step but
        all that are missing."""
        ...

    def value(self, thoughts: Sequence[Thought]) -> list[float]:
        """What each is worth: larger leads likelier to a solution."""
        ...

    def finish(self, thought: Thought) -> str | None:
        """The answer, where this thought is the last; None where steps are missing."""
        ...


@dataclass(frozen=True)
class Method:
    """How a solution is looked for. Raises SettingError, by name, for what cannot be."""

    method: str = "greedy"
    form: str | None = None  # how solutions are written, where a run learned several; the first of them unless given
    samples: int = 1  # chains of each problem
    breadth: int = 5  # thoughts that are kept at each depth of a tree
    proposals: int = 8  # tries for thoughts after each
    depth: int = 3  # steps of a tree
    threshold: float = 0.1  # depth first: a thought of less value is not gone on from
    budget: int = 100  # depth first: thoughts that are gone on from, at most
    temperature: float = 0.7
    seed: int = 0

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise SettingError(f"method={self.method} cannot be: choose from {', '.join(METHODS)}.")
        for name in ("samples", "breadth", "proposals", "depth", "budget"):
            require(getattr(self, name) >= 1, name, getattr(self, name), "at least 1", SettingError)
        require(self.temperature >= 0, "temperature", self.temperature, "at least 0", SettingError)


GREEDY = Method()


@dataclass(frozen=True)
class Found:
    """What came of a search for one problem."""

    root: Thought
    best: Thought | None  # the last thought of the solution; None where no solution was finished
    thoughts: list[Thought]  # all that were proposed, in their order

    @property
    def solution(self) -> str:
        """The text of all steps; nothing where no solution was finished."""
        return self.best.solution() if self.best is not None else ""


def search(
    thinker: Thinker,
    roots: Sequence[Thought],
    method: Method,
    verify: Callable[[Thought], bool] | None = None,
) -> list[Found]:
    """Look for a solution of each problem. `verify` tells whether a finished chain is right, for method=verifier."""
    if method.method == "tree":
        return breadth_first(thinker, roots, method.breadth, method.proposals, method.depth)
    if method.method == "depth-first":
        return depth_first(thinker, roots, method.proposals, method.depth, method.threshold, method.budget)
    count = 1 if method.method in ("greedy", "sample") else method.samples
    chains = thinker.propose(roots, count, whole=True)
    return [_chosen(thinker, root, own, method.method, verify) for root, own in zip(roots, chains)]


def breadth_first(thinker: Thinker, roots: Sequence[Thought], breadth: int, proposals: int, depth: int) -> list[Found]:
    """Keep the `breadth` best thoughts of each depth; the best of the last depth is the answer."""
    kept: list[list[Thought]] = [[root] for root in roots]
    seen: list[list[Thought]] = [[] for _ in roots]
    for _ in range(depth):
        open_ = [[t for t in own if thinker.finish(t) is None] for own in kept]
        for k, new in enumerate(_proposed(thinker, open_, proposals)):
            seen[k] += new
            done = [t for t in kept[k] if t not in open_[k]]
            best = sorted([*done, *new], key=lambda t: -(t.value or 0.0))[:breadth]
            for thought in new:
                thought.kept = thought in best
            kept[k] = best or kept[k]
    finished = ([t for t in own if thinker.finish(t) is not None] for own in kept)
    return [Found(root, next(iter(own), None), all_) for root, own, all_ in zip(roots, finished, seen)]


def depth_first(
    thinker: Thinker, roots: Sequence[Thought], proposals: int, depth: int, threshold: float, budget: int
) -> list[Found]:
    """Follow the best thought, and go back where none after it is worth `threshold`; a finished thought that is worth
    it is the answer. At most `budget` thoughts are gone on from."""
    stacks: list[list[Thought]] = [[root] for root in roots]
    found: list[Thought | None] = [None] * len(roots)
    seen: list[list[Thought]] = [[] for _ in roots]
    for _ in range(budget):
        going = [k for k, stack in enumerate(stacks) if stack and found[k] is None]
        if not going:
            break
        tops = [[stacks[k].pop()] for k in going]
        for k, own in zip(going, _proposed(thinker, tops, proposals)):
            for thought in own:
                thought.kept = (thought.value or 0.0) >= threshold
            seen[k] += own
            for thought in sorted((t for t in own if t.kept), key=lambda t: t.value or 0.0):
                if thinker.finish(thought) is not None:
                    found[k] = thought
                elif thought.depth < depth:
                    stacks[k].append(thought)
    return [Found(root, best, own) for root, best, own in zip(roots, found, seen)]


def _chosen(
    thinker: Thinker, root: Thought, chains: list[Thought], method: str, verify: Callable[[Thought], bool] | None
) -> Found:
    """One of several chains: by the majority of answers, by likelihood, or the first that is verified. Chains that were
    drawn several times are one thought, whose `held` counts them."""
    finished = [t for t in chains if thinker.finish(t) is not None]
    best = max(finished, key=Thought.likelihood, default=None)
    if method == "consistency" and finished:
        votes: dict[str, int] = {}
        for thought in finished:
            answer = thinker.finish(thought) or ""
            votes[answer] = votes.get(answer, 0) + getattr(thought.held, "count", 1)
        most = max(votes, key=lambda answer: votes[answer])
        best = max((t for t in finished if thinker.finish(t) == most), key=Thought.likelihood)
    if method == "verifier":
        if verify is None:
            raise SettingError("method=verifier needs somebody who can tell whether a chain is right: give `verify`.")
        best = next((t for t in finished if verify(t)), best)
    for thought in chains:
        thought.kept = thought is best
    return Found(root, best, chains)


def _proposed(thinker: Thinker, groups: list[list[Thought]], count: int) -> list[list[Thought]]:
    """What is proposed after the thoughts of each problem, with its value: all problems are asked about at once."""
    proposed = iter(thinker.propose([t for own in groups for t in own], count))
    found = [[t for _ in own for t in next(proposed)] for own in groups]
    new = [t for own in found for t in own]
    for thought, value in zip(new, thinker.value(new), strict=True):
        thought.value = value
    return found
