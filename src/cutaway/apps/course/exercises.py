"""An exercise: a function that the reader writes, and the check that says what is right in it and what not yet.

A check calls the reader's function with numbers that it knows the answer to, and raises `NotYet` at the first answer
that is another, in words for the one who wrote it. Answers may be numbers, lists, or arrays of NumPy or PyTorch.
"""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Answer = Callable[..., Any]
Check = Callable[[Answer], None]


class NotYet(Exception):
    """What an answer does not do yet."""


@dataclass(frozen=True)
class Exercise:
    """A function to write: its name, what it takes, what it gives, and how that is checked."""

    name: str
    takes: str  # as it is defined: (w, b, x)
    gives: str  # in a sentence or two, the docstring of the stub
    check: Check

    @property
    def signature(self) -> str:
        """As it is called: fires(w, b, x)."""
        return f"{self.name}{self.takes}"


class Exercises(list[Exercise]):
    """The exercises of a chapter, to which each check adds its own."""

    def __call__(self, signature: str, gives: str) -> Callable[[Check], Check]:
        """Beside a check: the function that it is of, and what that gives."""
        name, parenthesis, takes = signature.partition("(")

        def add(check: Check) -> Check:
            self.append(Exercise(name, parenthesis + takes, gives, check))
            return check

        return add


def settle(exercise: Exercise, answer: Answer) -> None:
    """Check one answer. Raises NotYet, in the reader's terms whatever the answer raised."""
    wants = [word for word in exercise.takes.strip("()").split(", ") if word]
    try:
        inspect.signature(answer).bind(*wants)
    except (TypeError, ValueError) as error:
        raise NotYet(f"it is to be called as {exercise.signature}, and yours cannot be: {error}.") from error
    try:
        exercise.check(answer)
    except NotYet:
        raise
    except Exception as error:
        line = innermost_line(error, lambda frame: frame.f_globals.get("__name__") in (READERS, "__main__"))
        where = f" (line {line})" if line else ""
        raise NotYet(f"it raises {type(error).__name__}: {error}{where}.") from error


def innermost_line(error: BaseException, of_reader: Callable[[FrameType], bool]) -> int | None:
    """Where in the reader's own code an error was raised, the innermost place; None where it was elsewhere."""
    frames = traceback.walk_tb(error.__traceback__)
    return next((line for frame, line in reversed([*frames]) if of_reader(frame)), None)


READERS = "answers"  # the name under which the reader's file runs


# --- what checks are written with ---------------------------------------------------------------------------------


def expect(truth: Any, words: str) -> None:
    """Raise NotYet with these words unless `truth`."""
    if not truth:
        raise NotYet(words)


def same(given: Any, right: Any, when: str, wrong: Sequence[tuple[Any, str]] = (), *, within: float = 1e-6) -> None:
    """Raise NotYet unless `given` is `right` in shape and, relative to its largest entry, in value. `when` says of what
    it was asked: "for x = (1, 2)". Of the `wrong` answers that have a name, the words of the one that was given."""
    wanted = np.asarray(right, dtype=float)
    found = as_array(given, when)
    for mistaken, words in wrong:
        other = np.asarray(mistaken, dtype=float)
        if _close(found, other, within) and not _close(other, wanted, within):
            raise NotYet(f"{when} it gives {said(found)}. {words}")
    if found.shape != wanted.shape:
        raise NotYet(f"{when} it gives {_shaped(found)}, and {_shaped(wanted)} was to come.")
    if not _close(found, wanted, within):
        raise NotYet(f"{when} it gives {said(found)}, and {said(wanted)} was to come.")


def pair(given: Any, names: Sequence[str], when: str) -> list[Any]:
    """The parts of an answer that has several: `pair(answer, ("w", "b"), …)`. Raises NotYet where it has not."""
    if given is None:
        raise NotYet(f"{when} it gives None: is there a `return`?")
    if not isinstance(given, tuple | list) or len(given) != len(names):
        raise NotYet(f"{when} it is to give {len(names)} things, ({', '.join(names)}), and gives {_kind(given)}.")
    return list(given)


def as_array(given: Any, when: str) -> Array:
    """An answer as an array of numbers, whatever it came as. Raises NotYet where it is none."""
    if given is None or given is Ellipsis:
        raise NotYet(f"{when} it gives None: is there a `return`?")
    if hasattr(given, "detach"):  # PyTorch's
        given = given.detach().cpu().numpy()
    try:
        return np.asarray(given, dtype=float)
    except (TypeError, ValueError) as error:
        raise NotYet(f"{when} it gives {_kind(given)}, and numbers were to come.") from error


def softmax(z: Array, axis: int = -1) -> Array:
    """e^z over the sum of them along an axis, of numbers of any size."""
    powers = np.exp(z - z.max(axis, keepdims=True))
    shares: Array = powers / powers.sum(axis, keepdims=True)
    return shares


def said(values: Any) -> str:
    """Numbers as a sentence has them: 0.5, (1, 2), ((1, 0), (0, 1)); of many, the first."""
    array = np.asarray(values, dtype=float)
    if array.ndim == 0:
        number = float(array)
        return str(int(number)) if number.is_integer() and abs(number) < 1e15 else f"{number:.4g}"
    most = 6
    words = ", ".join(said(value) for value in array[:most])
    return f"({words}{', …' if len(array) > most else ''})"


def _close(a: Array, b: Array, within: float) -> bool:
    if a.shape != b.shape:
        return False
    scale = float(np.abs(b).max(initial=0.0)) or 1.0
    return bool(np.allclose(a, b, rtol=0.0, atol=within * scale))


def _shaped(values: Array) -> str:
    if values.ndim == 0:
        return f"one number, {said(values)}"
    return f"an array of shape {tuple(values.shape)}" + (f", {said(values)}" if values.size <= 6 else "")


def _kind(given: Any) -> str:
    return f"{type(given).__name__} {str(given)[:60]!r}" if isinstance(given, str) else f"a {type(given).__name__}"
