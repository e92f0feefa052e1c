"""Exercises: functions for the reader to write, and helpers for the checks of their answers."""

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
    """Raised for an answer that is not correct yet."""


@dataclass(frozen=True)
class Exercise:
    """A function to write: its name, its parameters, its result, and its check."""

    name: str
    takes: str  # parameters in parentheses: (w, b, x)
    gives: str  # the result in one or two sentences, as docstring of the stub
    check: Check

    @property
    def signature(self) -> str:
        """Call of the function: fires(w, b, x)."""
        return f"{self.name}{self.takes}"


class Exercises(list[Exercise]):
    """The exercises of a chapter, to which a decorator adds each check."""

    def __call__(self, signature: str, gives: str) -> Callable[[Check], Check]:
        """Return a decorator that adds a check for the function with this signature; `gives` describes its result."""
        name, parenthesis, takes = signature.partition("(")

        def add(check: Check) -> Check:
            self.append(Exercise(name, parenthesis + takes, gives, check))
            return check

        return add


def check_answer(exercise: Exercise, answer: Answer) -> None:
    """Check one answer. Raises NotYet with a message for the reader, also for other exceptions of the answer."""
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
    """Return the innermost line of the reader's code in the traceback, or None if there is no such line."""
    frames = traceback.walk_tb(error.__traceback__)
    return next((line for frame, line in reversed([*frames]) if of_reader(frame)), None)


READERS = "answers"  # __name__ of the reader's file


# --- helpers for checks -------------------------------------------------------------------------------------------


def expect(truth: Any, words: str) -> None:
    """Raise NotYet with `words` unless `truth`."""
    if not truth:
        raise NotYet(words)


def same(given: Any, right: Any, when: str, wrong: Sequence[tuple[Any, str]] = (), *, within: float = 1e-6) -> None:
    """Raise NotYet unless `given` equals `right` in shape and, relative to its largest entry, in value.

    `when` names the input, such as "for x = (1, 2)". `wrong` holds known wrong answers, each with its own message.
    """
    wanted = np.asarray(right, dtype=float)
    found = as_array(given, when)
    for mistaken, words in wrong:
        other = np.asarray(mistaken, dtype=float)
        if _close(found, other, within) and not _close(other, wanted, within):
            raise NotYet(f"{when} it gives {format_numbers(found)}. {words}")
    if found.shape != wanted.shape:
        raise NotYet(f"{when} it gives {_shaped(found)}, and {_shaped(wanted)} was to come.")
    if not _close(found, wanted, within):
        raise NotYet(f"{when} it gives {format_numbers(found)}, and {format_numbers(wanted)} was to come.")


def pair(given: Any, names: Sequence[str], when: str) -> list[Any]:
    """Return the parts of an answer with several parts: `pair(answer, ("w", "b"), …)`. Raises NotYet for another
    number."""
    if given is None:
        raise NotYet(f"{when} it gives None: is there a `return`?")
    if not isinstance(given, tuple | list) or len(given) != len(names):
        raise NotYet(f"{when} it is to give {len(names)} things, ({', '.join(names)}), and gives {_kind(given)}.")
    return list(given)


def as_array(given: Any, when: str) -> Array:
    """Convert an answer to an array of numbers. Raises NotYet if that is impossible."""
    if given is None or given is Ellipsis:
        raise NotYet(f"{when} it gives None: is there a `return`?")
    if hasattr(given, "detach"):  # a PyTorch tensor
        given = given.detach().cpu().numpy()
    try:
        return np.asarray(given, dtype=float)
    except (TypeError, ValueError) as error:
        raise NotYet(f"{when} it gives {_kind(given)}, and numbers were to come.") from error


def softmax(z: Array, axis: int = -1) -> Array:
    """Compute the softmax along an axis, without overflow."""
    powers = np.exp(z - z.max(axis, keepdims=True))
    shares: Array = powers / powers.sum(axis, keepdims=True)
    return shares


def format_numbers(values: Any) -> str:
    """Format numbers for a message: 0.5, (1, 2), ((1, 0), (0, 1)); of long arrays, only the first numbers."""
    array = np.asarray(values, dtype=float)
    if array.ndim == 0:
        number = float(array)
        return str(int(number)) if number.is_integer() and abs(number) < 1e15 else f"{number:.4g}"
    most = 6
    words = ", ".join(format_numbers(value) for value in array[:most])
    return f"({words}{', …' if len(array) > most else ''})"


def _close(a: Array, b: Array, within: float) -> bool:
    if a.shape != b.shape:
        return False
    scale = float(np.abs(b).max(initial=0.0)) or 1.0
    return bool(np.allclose(a, b, rtol=0.0, atol=within * scale))


def _shaped(values: Array) -> str:
    if values.ndim == 0:
        return f"one number, {format_numbers(values)}"
    return f"an array of shape {tuple(values.shape)}" + (f", {format_numbers(values)}" if values.size <= 6 else "")


def _kind(given: Any) -> str:
    return f"{type(given).__name__} {str(given)[:60]!r}" if isinstance(given, str) else f"a {type(given).__name__}"
