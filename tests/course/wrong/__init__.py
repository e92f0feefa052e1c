"""Common wrong answers to the exercises, a file for each chapter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

WRONG: list[tuple[int, str, Callable[..., Any], str]] = []


def wrong(number: int, said: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A wrong answer to an exercise of that chapter, by its name, and words that its reader is told."""

    def add(answer: Callable[..., Any]) -> Callable[..., Any]:
        WRONG.append((number, answer.__name__, answer, said))
        return answer

    return add
