"""Wrong answers to the exercises of chapter 18."""

from __future__ import annotations

from typing import Any

from . import wrong


@wrong(18, "did not end have no vote")
def consistent(answers: Any, likelihoods: Any) -> Any:
    return max(answers, key=answers.count)


@wrong(18, "one right chain")
def vote(p: Any, k: Any) -> Any:
    return 1 - (1 - p) ** k


@wrong(18, "with replacement")
def pass_at(n: Any, c: Any, k: Any) -> Any:
    return 1 - (1 - c / n) ** k


@wrong(18, "not of each thought")
def next_level(thoughts: Any, propose: Any, value: Any, breadth: Any) -> Any:
    found = [max(propose(thought), key=value) for thought in thoughts if propose(thought)]
    return sorted(found, key=value, reverse=True)
