"""Searches on a task of one's own: digits are chosen one by one, and a sum is to be reached."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from cutaway.core.errors import SettingError
from cutaway.inference.thought_search import Method, SearchResult, Thought, search

DEPTH = 3


class Digits:
    """Choose three digits out of 1, 2 and 3. `worth` values the digits so far."""

    def __init__(self, worth: dict[str, float], whole: Sequence[tuple[str, float]] = ()) -> None:
        self.worth, self.whole = worth, whole
        self.asked: list[str] = []

    def propose(self, thoughts: Sequence[Thought], count: int, whole: bool = False) -> list[list[Thought]]:
        """All digits, or the chains that are given."""
        if whole:
            return [[Thought(text, root, log_p) for text, log_p in self.whole[:count]] for root in thoughts]
        self.asked += [thought.solution() for thought in thoughts]
        return [[Thought(digit, thought) for digit in "123"[:count]] for thought in thoughts]

    def value(self, thoughts: Sequence[Thought]) -> list[float]:
        """As it is given; 0.5 else."""
        return [self.worth.get(thought.solution(), 0.5) for thought in thoughts]

    def finish(self, thought: Thought) -> str | None:
        """The digits, where there are three."""
        text = thought.solution()
        return str(sum(map(int, text))) if len(text) == DEPTH else None


def found(task: Digits, **method: Any) -> SearchResult:
    (one,) = search(task, [Thought("root")], Method(**method))
    return one


WORTH = {"1": 0.2, "2": 0.9, "3": 0.8, "21": 0.1, "22": 0.1, "23": 0.1, "31": 0.3, "32": 0.7, "33": 0.1, "321": 1.0}


def test_breadth_first_keeps_the_best_of_each_depth() -> None:
    assert found(Digits(WORTH), method="tree", breadth=1).solution[:1] == "2"  # the best first step leads nowhere
    wide = found(Digits(WORTH), method="tree", breadth=2)
    assert wide.solution == "321"
    assert [t.solution() for t in wide.thoughts if t.kept and t.depth == 1] == ["2", "3"]
    assert [t.solution() for t in wide.thoughts if t.kept and t.depth == 2] == ["31", "32"]
    assert len(wide.thoughts) == 3 + 6 + 6


def test_several_problems_are_searched_side_by_side_as_alone() -> None:
    several = search(Digits(WORTH), [Thought("a"), Thought("b")], Method("tree", breadth=2))
    assert [one.solution for one in several] == ["321", "321"]
    assert [one.root.text for one in several] == ["a", "b"]


def test_depth_first_goes_back_from_where_nothing_is_worth_it() -> None:
    task = Digits(WORTH)
    one = found(task, method="depth-first", threshold=0.25)
    assert one.solution == "321"
    assert task.asked == ["", "2", "3", "32"]  # 2 promised most, and was left
    assert found(Digits(WORTH), method="depth-first", threshold=0.25, budget=2).best is None
    assert found(Digits(WORTH), method="depth-first", threshold=0.95).best is None


CHAINS = (("111", -3.0), ("222", -1.5), ("123", -2.0), ("213", -2.5))


def test_self_consistency_takes_the_answer_of_most() -> None:
    one = found(Digits({}, CHAINS), method="consistency", samples=4)
    assert one.solution == "222"  # 222, 123 and 213 make 6; the likeliest of them
    assert found(Digits({}, (("111", -0.1), *CHAINS[2:])), method="consistency", samples=4).solution == "123"


def test_the_best_of_several_is_the_likeliest_or_the_one_that_is_verified() -> None:
    assert found(Digits({}, CHAINS), method="likelihood", samples=4).solution == "222"
    (one,) = search(
        Digits({}, CHAINS), [Thought("root")], Method("verifier", samples=4), lambda t: t.solution() == "213"
    )
    assert one.solution == "213"
    with pytest.raises(SettingError, match="needs a function that checks a chain"):
        found(Digits({}, CHAINS), method="verifier", samples=4)


def test_what_a_verifier_raises_is_not_hidden() -> None:
    def verify(thought: Thought) -> bool:
        raise RuntimeError("no idea")

    with pytest.raises(RuntimeError, match="no idea"):
        search(Digits({}, CHAINS), [Thought("root")], Method("verifier", samples=4), verify)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"method": "beam"}, "Invalid method=beam: must be one of greedy, sample"),
        ({"breadth": 0}, "Invalid breadth=0"),
        ({"samples": 0}, "Invalid samples=0"),
        ({"temperature": -1.0}, "temperature=-1"),
    ],
)
def test_methods_that_cannot_be_are_refused(settings: dict[str, Any], named: str) -> None:
    with pytest.raises(SettingError, match=named):
        Method(**settings)
