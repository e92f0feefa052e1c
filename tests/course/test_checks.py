"""Each exercise: the solution on the page is right, and a common wrong answer is told what is wrong with it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest

from cutaway.course.chapters import CHAPTERS, chapter
from cutaway.course.exercises import NotYet, settle

from .pages import run

ALL = [(one.number, exercise.name) for one in CHAPTERS for exercise in one.exercises]
WRONG: list[tuple[int, str, Callable[..., Any], str]] = []


def wrong(number: int, said: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A wrong answer to an exercise of that chapter, by its name, and words that its reader is told."""

    def add(answer: Callable[..., Any]) -> Callable[..., Any]:
        WRONG.append((number, answer.__name__, answer, said))
        return answer

    return add


@pytest.fixture(scope="module", params=[one.number for one in CHAPTERS], ids=str)
def solutions(request: pytest.FixtureRequest) -> tuple[int, dict[str, Any]]:
    """A chapter and the functions that its page answers the exercises with: its imports and solutions alone are run."""
    mpl.use("agg")
    page = run.PAGES[f"{request.param:02}"]
    found = [cell.code for cell in run.cells(page) if cell.solution]
    names: dict[str, Any] = {"np": np, "check": lambda *_: None}
    for code in found:
        exec(code, names)
    return request.param, names


def test_the_solutions_of_the_page_are_right(solutions: tuple[int, dict[str, Any]]) -> None:
    number, names = solutions
    for exercise in chapter(number).exercises:
        settle(exercise, names[exercise.name])


@pytest.mark.parametrize(("number", "name"), ALL, ids=[f"{number}-{name}" for number, name in ALL])
def test_what_gives_nothing_is_not_right(number: int, name: str) -> None:
    exercise = next(one for one in chapter(number).exercises if one.name == name)
    with pytest.raises(NotYet, match="None"):
        settle(exercise, lambda *given: None)
    assert 4 <= len(chapter(number).exercises) <= 8
    assert exercise.gives.endswith(".")


def test_every_exercise_has_a_wrong_answer() -> None:
    assert {(number, name) for number, name, *_ in WRONG} == set(ALL)


def test_a_wrong_answer_is_told_what_is_wrong() -> None:
    for number, name, answer, said in WRONG:
        exercise = next(one for one in chapter(number).exercises if one.name == name)
        with pytest.raises(NotYet) as raised:
            settle(exercise, answer)
        assert said in str(raised.value), (number, name)


# --- chapter 1 ----------------------------------------------------------------------------------------------------


@wrong(1, "fires above its threshold, not at it")
def fires(w: Any, b: Any, x: Any) -> Any:
    return int(w @ x + b >= 0)


@wrong(1, "divide by the length of w")
def distance(w: Any, b: Any, x: Any) -> Any:
    return w @ x + b


@wrong(1, "the other way round")
def correct(w: Any, b: Any, x: Any, t: Any) -> Any:
    y = int(w @ x + b > 0)
    return w + (y - t) * x, b + (y - t)


@wrong(1, "after one pass")
def train(xs: Any, ts: Any, passes: Any) -> Any:
    w, b, mistakes = np.zeros(2), 0, 0
    for x, t in zip(xs, ts):
        error = t - int(w @ x + b > 0)
        w, b, mistakes = w + error * x, b + error, mistakes + abs(error)
    return w, b, mistakes


@wrong(1, "leaves the bias out")
def novikoff(xs: Any, ts: Any, w: Any, b: Any) -> Any:
    gamma = ((2 * ts - 1) * (xs @ w + b)).min() / np.linalg.norm(w)
    return (np.linalg.norm(xs, axis=1).max() / gamma) ** 2


@wrong(1, "XOR is 0 there")
def xor_network() -> Any:
    return np.ones((2, 2)), np.array([-0.5, -0.5]), np.ones(2), -0.5


# --- chapter 2 ----------------------------------------------------------------------------------------------------


@wrong(2, "without the biases")
def dense(W: Any, b: Any, A: Any) -> Any:
    return A @ W.T


@wrong(2, "stands on the right: W2 @ W1")
def collapse(W1: Any, b1: Any, W2: Any, b2: Any) -> Any:
    return W1 @ W2, W2 @ b1 + b2


@wrong(2, "of which each neuron has one")
def parameters(widths: Any) -> Any:
    return sum(a * b for a, b in pairwise(widths))


@wrong(2, "Take the largest z off first")
def softmax(Z: Any) -> Any:
    return np.exp(Z) / np.exp(Z).sum(-1, keepdims=True)


@wrong(2, "the product rule has a second term")
def silu_derivative(z: Any) -> Any:
    return 1 / (1 + np.exp(-z))


@wrong(2, "by how much the slope changes")
def through(xs: Any, ys: Any) -> Any:
    return xs[:-1], np.diff(ys) / np.diff(xs), ys[0]


# --- chapter 3 ----------------------------------------------------------------------------------------------------


@wrong(3, "the sum over the examples")
def cross_entropy(Z: Any, t: Any) -> Any:
    Z = Z - Z.max(1, keepdims=True)
    return (np.log(np.exp(Z).sum(1)) - Z[np.arange(len(t)), t]).sum()


@wrong(3, "the loss is the mean over N examples")
def output_delta(Z: Any, t: Any) -> Any:
    P = np.exp(Z) / np.exp(Z).sum(1, keepdims=True)
    P[np.arange(len(t)), t] -= 1
    return P


@wrong(3, "over the K outputs as well")
def mse_delta(Y: Any, T: Any) -> Any:
    return 2 * (Y - T) / len(Y)


@wrong(3, "the shape of its weights")
def weight_gradient(delta: Any, A: Any) -> Any:
    return A.T @ delta, delta.sum(0)


@wrong(3, "times its slope at Z")
def back(delta: Any, W: Any, Z: Any) -> Any:
    return delta @ W


@wrong(3, "looks ahead only")
def numeric_gradient(f: Any, w: Any, h: Any) -> Any:
    found = np.zeros_like(w)
    for at in np.ndindex(w.shape):
        up = w.copy()
        up[at] += h
        found[at] = (f(up) - f(w)) / h
    return found
