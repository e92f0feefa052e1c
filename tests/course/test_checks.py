"""Each exercise: the solution on the page is right, and a common wrong answer is told what is wrong with it."""

from __future__ import annotations

import math
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
    names: dict[str, Any] = {"math": math, "np": np, "check": lambda *_: None}
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


# --- chapter 4 ----------------------------------------------------------------------------------------------------


@wrong(4, "up to twice as much still comes nearer")
def largest_rate(H: Any) -> Any:
    return 1 / np.linalg.eigvalsh(H)[-1]


@wrong(4, "times 1 - beta it would be an average")
def momentum_step(w: Any, v: Any, g: Any, rate: Any, beta: Any) -> Any:
    v = beta * v + (1 - beta) * g
    return w - rate * v, v


@wrong(4, "divide m by 1 - beta1^t")
def adam_step(w: Any, m: Any, v: Any, g: Any, t: Any, rate: Any, beta1: Any, beta2: Any, eps: Any) -> Any:
    m, v = beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g**2
    return w - rate * m / (np.sqrt(v) + eps), m, v


@wrong(4, "multiplied by the rate too")
def decayed_step(w: Any, step: Any, rate: Any, decay: Any) -> Any:
    return w - rate * step - decay * w


@wrong(4, "one norm for all")
def clip(gradients: Any, most: Any) -> Any:
    return [g * min(1.0, most / np.linalg.norm(g)) for g in gradients]


@wrong(4, "the step is lost")
def warmup_cosine(step: Any, steps: Any, warmup: Any) -> Any:
    return step / warmup if step < warmup else (1 + np.cos(np.pi * (step - warmup) / (steps - warmup))) / 2


# --- chapter 5 ----------------------------------------------------------------------------------------------------


@wrong(5, "laid on as it is")
def correlate(x: Any, w: Any) -> Any:
    return np.convolve(x, w, "valid")


@wrong(5, "turn it round")
def convolve(x: Any, w: Any) -> Any:
    return np.correlate(x, w, "full")


@wrong(5, "round down")
def output_size(n: Any, k: Any, s: Any, p: Any, d: Any) -> Any:
    return (n + 2 * p - d * (k - 1) - 1) / s + 1


@wrong(5, "rows are outputs")
def toeplitz(w: Any, n: Any) -> Any:
    return np.array([np.roll([*w, *[0.0] * (n - len(w))], i) for i in range(n - len(w) + 1)]).T


@wrong(5, "share the same weights")
def layer_cost(c_in: Any, c_out: Any, k: Any, height: Any, width: Any) -> Any:
    weights = c_in * c_out * k * k
    return (weights + c_out) * height * width, weights * height * width


@wrong(5, "k - 1 times the strides before")
def receptive_field(layers: Any) -> Any:
    return 1 + sum(k - 1 for k, _ in layers)


@wrong(5, "the first of each block")
def max_pool(x: Any) -> Any:
    return x[::2, ::2]


# --- chapter 6 ----------------------------------------------------------------------------------------------------


@wrong(6, "lets every map see all")
def table_parameters(table: Any, k: Any) -> Any:
    return len(table) * (max(map(len, table)) * k * k + 1)


@wrong(6, "Fields overlap")
def stack(k: Any, layers: Any, channels: Any) -> Any:
    return k * layers, layers * k * k * channels**2


@wrong(6, "for one pixel")
def bottleneck(channels: Any, width: Any, side: Any) -> Any:
    return 2 * channels * width + 9 * width**2


@wrong(6, "the shortcut brings g itself")
def through_block(J: Any, g: Any) -> Any:
    return J.T @ g


@wrong(6, "say how many have each length")
def paths(blocks: Any) -> Any:
    return 2**blocks


@wrong(6, "the first sees what came in")
def seen(channels: Any, growth: Any, layers: Any) -> Any:
    return [channels + growth * (i + 1) for i in range(layers)]
