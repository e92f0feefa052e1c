"""Search over thoughts: chains of steps, several chains, and trees with pruned branches.

- a chain, greedy or sampled: J. Wei et al., Chain-of-thought prompting, 2022 <https://arxiv.org/abs/2201.11903>;
- self-consistency, the majority answer of k chains: X. Wang et al., 2022 <https://arxiv.org/abs/2203.11171>;
- the best of k chains, by likelihood or by a verifier;
- a tree, breadth first: of the thoughts proposed at each depth, the b with the largest values are kept; or depth first,
  with backtracking where a value is below a threshold: S. Yao et al., Tree of thoughts, 2023
  <https://arxiv.org/abs/2305.10601>, algorithms 1 and 2.

A search needs a `Thinker` with three methods: it proposes next thoughts, values a thought, and returns the answer of a
final thought. Users can implement it for their own tasks; `language_model_thinker.py` does so with a language model.
Searches run for many problems in parallel: a thinker receives the thoughts of all of them at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from ..core.errors import IncompatibleSettingError, SettingError, check_value

METHODS = ("greedy", "sample", "consistency", "likelihood", "verifier", "tree", "depth-first")
CHAINS = METHODS[:5]


@dataclass(eq=False)
class Thought:
    """A step of a solution, linked to the step before it."""

    text: str  # text of this step; of the root, the question
    parent: Thought | None = None
    log_p: float = 0.0  # log probability of this step's tokens, given all before them
    value: float | None = None  # its value, if it was computed
    kept: bool = True  # whether it was continued or is the answer
    held: Any = field(default=None, repr=False)  # state with which a thinker continues from here

    @property
    def depth(self) -> int:
        """The number of steps since the root."""
        return 0 if self.parent is None else self.parent.depth + 1

    def path(self) -> list[Thought]:
        """Return all steps after the root, in order."""
        return [] if self.parent is None else [*self.parent.path(), self]

    def solution(self) -> str:
        """Return the text of all steps."""
        return "".join(thought.text for thought in self.path())

    def likelihood(self) -> float:
        """Return log p of all steps."""
        return sum(thought.log_p for thought in self.path())


class Thinker(Protocol):
    """Protocol of a thinker. Thoughts of several problems are passed at once; results are in the same order."""

    def propose(self, thoughts: Sequence[Thought], count: int, whole: bool = False) -> list[list[Thought]]:
        """Propose distinct next thoughts.

        Args:
            thoughts: The thoughts to continue.
            count: Number of tries for each.
            whole: Whether to propose all missing steps instead of the next one.

        Returns:
            The proposals after each thought.
        """
        ...

    def value(self, thoughts: Sequence[Thought]) -> list[float]:
        """Return the value of each thought: larger values lead to a solution more likely."""
        ...

    def finish(self, thought: Thought) -> str | None:
        """Return the answer if this thought is the last, or None if steps are missing."""
        ...


@dataclass(frozen=True)
class Method:
    """Settings of a search. Raises SettingError, with the name of the setting, for invalid values."""

    method: str = "greedy"
    form: str | None = None  # form of solutions, where a run learned several; the first by default
    samples: int = 1  # chains per problem
    breadth: int = 5  # thoughts kept at each depth of a tree
    proposals: int = 8  # tries after each thought
    depth: int = 3  # depth of a tree, in steps
    threshold: float = 0.1  # depth first: a thought with a smaller value is not continued
    budget: int = 100  # depth first: largest number of thoughts that are continued
    temperature: float = 0.7
    seed: int = 0

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise SettingError(f"Invalid method={self.method}: must be one of {', '.join(METHODS)}.")
        for name in ("samples", "breadth", "proposals", "depth", "budget"):
            check_value(getattr(self, name) >= 1, name, getattr(self, name), "at least 1", SettingError)
        check_value(self.temperature >= 0, "temperature", self.temperature, "at least 0", SettingError)


GREEDY = Method()


@dataclass(frozen=True)
class SearchResult:
    """The result of a search for one problem."""

    root: Thought
    best: Thought | None  # the last thought of the solution; None without a finished solution
    thoughts: list[Thought]  # all proposed thoughts, in order

    @property
    def solution(self) -> str:
        """The text of all steps; "" without a finished solution."""
        return self.best.solution() if self.best is not None else ""


def search(
    thinker: Thinker,
    roots: Sequence[Thought],
    method: Method,
    verify: Callable[[Thought], bool] | None = None,
) -> list[SearchResult]:
    """Search for a solution of each problem.

    Args:
        thinker: Proposes and values thoughts.
        roots: The problems.
        method: The settings of the search.
        verify: Returns whether a finished chain is correct, for method=verifier.

    Returns:
        The result for each problem.

    Raises:
        SettingError: If method=verifier has no `verify`.
    """
    if method.method == "tree":
        return breadth_first(thinker, roots, method.breadth, method.proposals, method.depth)
    if method.method == "depth-first":
        return depth_first(thinker, roots, method.proposals, method.depth, method.threshold, method.budget)
    count = 1 if method.method in ("greedy", "sample") else method.samples
    chains = thinker.propose(roots, count, whole=True)
    return [_choose_chain(thinker, root, own, method.method, verify) for root, own in zip(roots, chains)]


def breadth_first(
    thinker: Thinker, roots: Sequence[Thought], breadth: int, proposals: int, depth: int
) -> list[SearchResult]:
    """Keep the `breadth` best thoughts at each depth; the best of the last depth is the answer.

    Args:
        thinker: Proposes and values thoughts.
        roots: The problems.
        breadth: Thoughts kept at each depth.
        proposals: Tries after each thought.
        depth: Number of steps.

    Returns:
        The result for each problem.
    """
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
    return [SearchResult(root, next(iter(own), None), all_) for root, own, all_ in zip(roots, finished, seen)]


def depth_first(
    thinker: Thinker, roots: Sequence[Thought], proposals: int, depth: int, threshold: float, budget: int
) -> list[SearchResult]:
    """Follow the best thought, and backtrack where no next thought has a value of at least `threshold`.

    The first finished thought with at least that value is the answer.

    Args:
        thinker: Proposes and values thoughts.
        roots: The problems.
        proposals: Tries after each thought.
        depth: Largest number of steps.
        threshold: Smallest value of a thought that is continued.
        budget: Largest number of thoughts that are continued.

    Returns:
        The result for each problem.
    """
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
    return [SearchResult(root, best, own) for root, best, own in zip(roots, found, seen)]


def _choose_chain(
    thinker: Thinker, root: Thought, chains: list[Thought], method: str, verify: Callable[[Thought], bool] | None
) -> SearchResult:
    """Choose a chain: by majority of answers, by likelihood, or the first that is verified.

    A chain that was sampled several times is one thought, with the count in its `held`.
    """
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
            raise IncompatibleSettingError("method=verifier needs a function that checks a chain: pass `verify`.")
        best = next((t for t in finished if verify(t)), best)
    for thought in chains:
        thought.kept = thought is best
    return SearchResult(root, best, chains)


def _proposed(thinker: Thinker, groups: list[list[Thought]], count: int) -> list[list[Thought]]:
    """Return proposals with their values after the thoughts of each problem, in one call for all problems."""
    proposed = iter(thinker.propose([t for own in groups for t in own], count))
    found = [[t for _ in own for t in next(proposed)] for own in groups]
    new = [t for own in found for t in own]
    for thought, value in zip(new, thinker.value(new), strict=True):
        thought.value = value
    return found
