"""What a kind of problem says of itself: how it is asked, how its solution is written, and whether one is right.

A problem is a line of text that a person can type. It is asked in a form, which says how its solution is to be written
(`answer`: without steps; `steps`: a chain of them), and the text that asks begins with the form's name, so that one
model can be trained on several. A solution is judged by computing, never by comparing with another solution.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Protocol, runtime_checkable


@dataclass(frozen=True)
class Verdict:
    """What is true of a written solution."""

    solved: bool  # whether every step is right and the answer too
    answer: str = ""  # what it says that the answer is; nothing where it says none
    right: bool = False  # whether that answer is right, however it was come by
    steps: int = 0  # how many steps are written
    wrong: int | None = None  # the number, from 1, of the first step that is wrong
    why: str = ""  # what is wrong, in words


@dataclass(frozen=True)
class Standing:
    """What is true of the steps so far, which need not be all of a solution."""

    wrong: int | None = None  # the number, from 1, of the first step that is wrong
    why: str = ""  # what is wrong, in words
    leads: bool = False  # whether all are right and others to a solution can follow, or the solution is reached
    last: str = ""  # what is wrong with the last step by itself, taking for true what those before it say


class Problem(Protocol):
    """A kind of problem."""

    name: str
    forms: tuple[str, ...]  # how a solution can be written, those that are trained on first
    usual: tuple[str, ...]  # the forms that are trained on unless others are asked for
    vocabulary: tuple[str, ...]  # all tokens that problems and solutions are written with

    def cut(self, text: str) -> list[str]:
        """The tokens of a text, those that are not of the vocabulary among them."""
        ...

    def join(self, tokens: list[str]) -> str:
        """The text of tokens, as a person writes it."""
        ...

    def read(self, text: str) -> str:
        """The problem that a person typed, in its own writing. Raises DataError where it is none."""
        ...

    def ask(self, problem: str, form: str) -> str:
        """The text that a model goes on from."""
        ...

    def example(self, problem: str, form: str, random: Random) -> tuple[str, str]:
        """What is learned: a text that asks, and a right solution in that form, one of all that there are."""
        ...

    def judge(self, problem: str, form: str, written: str) -> Verdict:
        """What is true of what was written."""
        ...


@runtime_checkable
class Branches(Protocol):
    """A kind of problem whose steps can be searched: a model can be asked what the steps so far are worth."""

    stepwise: tuple[str, ...]  # the forms that are written step by step
    tree: str  # the form in which any steps are proposed, and judged
    question: str  # the token that asks, in place of the end of a line
    sure: str  # the token that follows where the steps are right and a solution can follow them
    impossible: str  # and the one where not

    def ended(self, line: str) -> bool:
        """Whether no step can follow this one."""
        ...

    def so_far(self, problem: str, written: str) -> Standing:
        """What is true of the steps so far."""
        ...
