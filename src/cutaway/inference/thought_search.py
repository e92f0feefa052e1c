"""Search over thoughts: chains of steps, several chains, and trees with pruned branches.

- a chain, greedy or sampled: J. Wei et al., Chain-of-thought prompting, 2022 <https://arxiv.org/abs/2201.11903>;
- self-consistency, the majority answer of k chains: X. Wang et al., 2022 <https://arxiv.org/abs/2203.11171>;
- the best of k chains, by likelihood or by a verifier;
- a tree, breadth first: of the thoughts proposed at each depth, the b with the largest values are kept; or depth first,
  with backtracking where a value is below a threshold: S. Yao et al., Tree of thoughts, 2023
  <https://arxiv.org/abs/2305.10601>, algorithms 1 and 2.

A search needs a `Thinker` with three methods: it proposes next thoughts, values a thought, and returns the answer of a
final thought. Users can implement it for their own tasks; `language_model_thinker.py` does so with a language model.
Searches run for many problems in parallel: a thinker receives the thoughts of all of them at once. A problem is a
`Thought` without a parent, the root of its tree.
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
    """A step of a solution, linked to the step before it.

    Two thoughts are equal only if they are the same object.

    Args:
        text: Text of this step; of a root, the problem.
        parent: The step before it; None for a root.
        log_p: Natural logarithm of the probability of this step, given all steps before it; 0 if it is not known.
        value: The value that the thinker gave it; None if it was not valued. The search sets it.
        kept: Whether the search continued from it, or chose it as the answer. The search sets it.
        held: Anything that a thinker needs to continue from here. The search reads only `held.count`, if there is one:
            the number of tries that gave this chain, for the majority vote.

    Example:
        >>> root = Thought("4 6 = 24?")
        >>> first = Thought("4 × 6", root, log_p=-0.5)
        >>> last = Thought(" = 24", first, log_p=-0.1)
        >>> last.depth, last.solution(), round(last.likelihood(), 2)
        (2, '4 × 6 = 24', -0.6)
    """

    text: str
    parent: Thought | None = None
    log_p: float = 0.0
    value: float | None = None
    kept: bool = True
    held: Any = field(default=None, repr=False)

    @property
    def depth(self) -> int:
        """The number of steps since the root, whose depth is 0."""
        return 0 if self.parent is None else self.parent.depth + 1

    def path(self) -> list[Thought]:
        """Return all steps after the root, from the first to this one."""
        return [] if self.parent is None else [*self.parent.path(), self]

    def solution(self) -> str:
        """Return the concatenated texts of all steps, without that of the root."""
        return "".join(thought.text for thought in self.path())

    def likelihood(self) -> float:
        """Return the natural logarithm of the probability of all steps: the sum of their `log_p`."""
        return sum(thought.log_p for thought in self.path())


class Thinker(Protocol):
    """Protocol of a thinker. Thoughts of several problems are passed at once; results are in the same order.

    Example:
        >>> class DigitSum:  # find digits from 1 to 3 with the sum that the root asks for
        ...     def propose(self, thoughts, count, whole=False):
        ...         return [[Thought(digit, thought) for digit in "123"[:count]] for thought in thoughts]
        ...     def left(self, thought):
        ...         root = thought.path()[0].parent
        ...         return int(root.text) - sum(map(int, thought.solution()))
        ...     def value(self, thoughts):
        ...         return [1 / (1 + left) if left >= 0 else 0.0 for left in map(self.left, thoughts)]
        ...     def finish(self, thought):
        ...         return thought.solution() if thought.parent and self.left(thought) == 0 else None
        >>> results = search(DigitSum(), [Thought("4"), Thought("9")], Method("tree", breadth=3, depth=3))
        >>> [result.solution for result in results]
        ['31', '333']
    """

    def propose(self, thoughts: Sequence[Thought], count: int, whole: bool = False) -> list[list[Thought]]:
        """Propose distinct next thoughts.

        Args:
            thoughts: The thoughts to continue.
            count: Number of tries after each thought, at least 1.
            whole: Whether to propose all missing steps instead of the next one. The methods that choose among chains
                ask for this; those of trees do not.

        Returns:
            The proposals after each thought, at most `count`: fewer if several tries give the same thought, or if there
            is none. A proposal is linked to the thought by its `parent`, with `whole` possibly over several steps.
        """
        ...

    def value(self, thoughts: Sequence[Thought]) -> list[float]:
        """Return the value of each thought: the larger it is, the more likely the thought leads to a solution.

        Only trees call it, once for every proposal, finished or not.

        Args:
            thoughts: The thoughts, none of which is a root.

        Returns:
            One value for each thought.
        """
        ...

    def finish(self, thought: Thought) -> str | None:
        """Return the answer that a thought gives.

        Args:
            thought: A proposal or a root.

        Returns:
            The answer if this thought is the last of its solution, or None if steps are missing. Chains with equal
            answers vote for each other in `consistency`.
        """
        ...


@dataclass(frozen=True)
class Method:
    """Settings of a search.

    `form`, `temperature` and `seed` are read by the thinker of a language model. `search` itself does not use them.

    Args:
        method: "greedy" and "sample" take one chain. Of `samples` chains, "consistency" takes one with the most
            frequent answer, "likelihood" the likeliest, and "verifier" the first that is verified, or else the
            likeliest. "tree" searches breadth first, "depth-first" with backtracking.
        form: Form of the solutions, if a run was trained on several; None for its first.
        samples: Chains per problem, for consistency, likelihood and verifier.
        breadth: Thoughts kept at each depth, for tree.
        proposals: Tries after each thought, for tree and depth-first.
        depth: Depth of the tree, in steps, for tree and depth-first.
        threshold: A thought with a smaller value is not continued, for depth-first.
        budget: Largest number of thoughts that are continued per problem, for depth-first.
        temperature: Sampling temperature of the language model; greedy uses 0 instead.
        seed: Random seed of the language model.

    Raises:
        SettingError: If a value is not allowed. The message names the setting.

    Example:
        >>> Method("tree", breadth=3)
        Method(method='tree', form=None, samples=1, breadth=3, proposals=8, depth=3, threshold=0.1, budget=100,
        temperature=0.7, seed=0)
    """

    method: str = "greedy"
    form: str | None = None
    samples: int = 1
    breadth: int = 5
    proposals: int = 8
    depth: int = 3
    threshold: float = 0.1
    budget: int = 100
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
    """The result of a search for one problem.

    Attributes:
        root: The problem.
        best: The last thought of the solution; None without a finished solution.
        thoughts: All proposed thoughts, in the order of the search. `kept` tells which were continued or chosen.

    Example:
        >>> root = Thought("1 + 2")
        >>> last = Thought("3", root)
        >>> SearchResult(root, last, [last]).solution
        '3'
    """

    root: Thought
    best: Thought | None
    thoughts: list[Thought]

    @property
    def solution(self) -> str:
        """The concatenated texts of all steps; "" without a finished solution."""
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
        roots: The problems, one root each.
        method: The settings of the search.
        verify: Returns whether a finished chain, given by its last thought, is correct; needed for method=verifier, and
            not used by other methods.

    Returns:
        The result for each problem, in the same order.

    Raises:
        IncompatibleSettingError: If method=verifier has no `verify`.

    Example:
        >>> from types import SimpleNamespace
        >>> thinker = SimpleNamespace(  # three guesses with their log probabilities
        ...     propose=lambda roots, count, whole: [
        ...         [Thought(guess, root, p) for guess, p in {"3": -0.7, "4": -1.2, "5": -1.6}.items()]
        ...         for root in roots
        ...     ],
        ...     finish=lambda thought: thought.text,
        ... )
        >>> search(thinker, [Thought("2 + 2")], Method("likelihood", samples=3))[0].solution
        '3'
        >>> search(thinker, [Thought("2 + 2")], Method("verifier", samples=3), lambda t: t.text == "4")[0].solution
        '4'
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
    """Keep the `breadth` thoughts with the largest values at each depth.

    Finished thoughts are not continued, and compete with the new ones. The answer is the finished thought with the
    largest value among those kept at the end.

    Args:
        thinker: Proposes and values thoughts.
        roots: The problems, one root each.
        breadth: Thoughts kept at each depth.
        proposals: Tries after each thought.
        depth: Number of steps.

    Returns:
        The result for each problem, in the same order.

    Example:
        >>> from types import SimpleNamespace
        >>> thinker = SimpleNamespace(  # a number of two digits, the larger the better
        ...     propose=lambda thoughts, count: [[Thought(d, t) for d in "123"[:count]] for t in thoughts],
        ...     value=lambda thoughts: [float(t.solution()) for t in thoughts],
        ...     finish=lambda t: t.solution() if t.depth == 2 else None,
        ... )
        >>> (result,) = breadth_first(thinker, [Thought("?")], breadth=2, proposals=3, depth=2)
        >>> result.solution, [t.solution() for t in result.thoughts]
        ('33', ['1', '2', '3', '31', '32', '33', '21', '22', '23'])
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

    The answer is the first finished thought with at least that value; of several after the same thought, the one with
    the largest value.

    Args:
        thinker: Proposes and values thoughts.
        roots: The problems, one root each.
        proposals: Tries after each thought.
        depth: Largest number of steps.
        threshold: Smallest value of a thought that is continued.
        budget: Largest number of thoughts that are continued per problem.

    Returns:
        The result for each problem, in the same order.

    Example:
        >>> from types import SimpleNamespace
        >>> values = {"1": 0.5, "2": 0.9, "11": 0.2, "12": 0.8, "21": 0.0, "22": 0.0}  # 2 looks best, but leads nowhere
        >>> thinker = SimpleNamespace(
        ...     propose=lambda thoughts, count: [[Thought(d, t) for d in "12"[:count]] for t in thoughts],
        ...     value=lambda thoughts: [values[t.solution()] for t in thoughts],
        ...     finish=lambda t: t.solution() if t.depth == 2 else None,
        ... )
        >>> (result,) = depth_first(thinker, [Thought("?")], proposals=2, depth=2, threshold=0.1, budget=10)
        >>> result.solution, [t.solution() for t in result.thoughts]
        ('12', ['1', '2', '21', '22', '11', '12'])
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
