"""Interface of a kind of problem: its prompts, its solutions, and how they are checked.

A problem is a line of text that a user can type. A prompt has a form, which defines the notation of the solution
(`answer`: without steps; `steps`: a chain of them). The prompt begins with the form's name, so that one model can be
trained on several forms. A solution is checked by computation, never by comparison with another solution.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Protocol, runtime_checkable


@dataclass(frozen=True)
class Verdict:
    """The result of checking a written solution."""

    solved: bool  # whether every step is right and the answer too
    answer: str = ""  # the given answer; empty if there is none
    right: bool = False  # whether that answer is right, even if steps are wrong
    steps: int = 0  # number of written steps
    wrong: int | None = None  # the number, from 1, of the first step that is wrong
    why: str = ""  # what is wrong, in words


@dataclass(frozen=True)
class PartialVerdict:
    """The result of checking the steps so far, which may be an incomplete solution."""

    wrong: int | None = None  # the number, from 1, of the first step that is wrong
    why: str = ""  # what is wrong, in words
    leads: bool = False  # whether all steps are right and a solution can follow or is reached
    last: str = ""  # what is wrong with the last step, assuming that the previous lines are right


class Problem(Protocol):
    """A kind of problem."""

    name: str
    forms: tuple[str, ...]  # how a solution can be written, those that are trained on first
    usual: tuple[str, ...]  # the forms that are trained on unless others are asked for
    vocabulary: tuple[str, ...]  # all tokens that problems and solutions are written with

    def cut(self, text: str) -> list[str]:
        """Split a text into tokens, including those outside the vocabulary."""
        ...

    def join(self, tokens: list[str]) -> str:
        """Join tokens into text as a user would write it."""
        ...

    def read(self, text: str) -> str:
        """Parse a typed problem into its canonical form. Raises DataError if it is invalid."""
        ...

    def ask(self, problem: str, form: str) -> str:
        """Return the prompt that a model continues."""
        ...

    def example(self, problem: str, form: str, random: Random) -> tuple[str, str]:
        """Return a prompt and a correct solution in that form, drawn from all solutions."""
        ...

    def judge(self, problem: str, form: str, written: str) -> Verdict:
        """Check a written solution."""
        ...


@runtime_checkable
class SearchableProblem(Protocol):
    """A kind of problem whose steps can be searched, because a model can rate the steps so far."""

    stepwise: tuple[str, ...]  # the forms that are written step by step
    tree: str  # the form in which any steps are proposed, and judged
    question: str  # the token that asks, in place of the end of a line
    sure: str  # the token that follows where the steps are right and a solution can follow them
    impossible: str  # and the one where not

    def ended(self, line: str) -> bool:
        """Return whether no step can follow this line."""
        ...

    def so_far(self, problem: str, written: str) -> PartialVerdict:
        """Check the steps so far."""
        ...
