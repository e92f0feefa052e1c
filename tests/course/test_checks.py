"""Each exercise: the solution on the page is right, and a common wrong answer is told what is wrong with it."""

from __future__ import annotations

import math
from importlib import import_module
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest

from cutaway.apps.course.exercises import CHAPTERS, NotYet, chapter, check_answer

from .pages import run
from .wrong import WRONG

ALL = [(one.number, exercise.name) for one in CHAPTERS for exercise in one.exercises]
for one in CHAPTERS:
    import_module(f"tests.course.wrong.chapter_{one.number:02}")


@pytest.fixture(scope="module", params=[one.number for one in CHAPTERS], ids=str)
def solutions(request: pytest.FixtureRequest) -> tuple[int, dict[str, Any]]:
    """A chapter and the functions that its page answers the exercises with: its imports and solutions alone are run."""
    mpl.use("agg")
    page = run.PAGES[f"{request.param:02}"]
    found = [cell.code for cell in run.cells(page) if cell.solution]
    names: dict[str, Any] = {"math": math, "np": np, "check": lambda *_: None}
    for code in found:
        exec(code, names)
    return request.param, names


def test_the_solutions_of_the_page_are_right(solutions: tuple[int, dict[str, Any]]) -> None:
    number, names = solutions
    for exercise in chapter(number).exercises:
        check_answer(exercise, names[exercise.name])


@pytest.mark.parametrize(("number", "name"), ALL, ids=[f"{number}-{name}" for number, name in ALL])
def test_what_gives_nothing_is_not_right(number: int, name: str) -> None:
    exercise = next(one for one in chapter(number).exercises if one.name == name)
    with pytest.raises(NotYet, match="None"):
        check_answer(exercise, lambda *given: None)
    assert 4 <= len(chapter(number).exercises) <= 8
    assert exercise.gives.endswith(".")


def test_every_exercise_has_a_wrong_answer() -> None:
    assert {(number, name) for number, name, *_ in WRONG} == set(ALL)


def test_a_wrong_answer_is_told_what_is_wrong() -> None:
    for number, name, answer, said in WRONG:
        exercise = next(one for one in chapter(number).exercises if one.name == name)
        with pytest.raises(NotYet) as raised:
            check_answer(exercise, answer)
        assert said in str(raised.value), (number, name)
