"""Exact solver for making a number from others with + − × ÷, each used once, for `countdown` and `game24`.

A state is the remaining numbers, in ascending order. A step replaces two of them, a and b, by one result. With n
numbers, n − 1 steps leave one.

Every solution can be written without negative numbers, because a − (b − c) = a + (c − b). So the smaller number is
always subtracted from the larger. `solvable` computes with fractions and is complete: of the 1 820 ways to choose four
numbers from 1 to 13 it finds 1 362 that make 24, as in the published list. `reached` and `steps` use only whole numbers
up to `MOST`, in which solutions are written here: 1 335 of these.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from functools import cache
from itertools import combinations
from typing import NamedTuple

State = tuple[int, ...]
MOST = 100  # the largest number in a solution
SIGNS = ("+", "-", "*", "/")


class Step(NamedTuple):
    """A step that combines two numbers into one."""

    a: int
    sign: str
    b: int
    result: int
    left: State  # the numbers after the step, in ascending order

    def __str__(self) -> str:
        return f"{self.a} {self.sign} {self.b} = {self.result} (left: {' '.join(map(str, self.left))})"


def apply_operator(a: Fraction | int, sign: str, b: Fraction | int) -> Fraction | None:
    """Return a combined with b; None for a division by 0."""
    a, b = Fraction(a), Fraction(b)
    if sign == "/":
        return a / b if b else None
    return {"+": a + b, "-": a - b, "*": a * b}[sign]


@cache
def possible_steps(state: State) -> tuple[Step, ...]:
    """Return all steps from a state in whole numbers from 0 to MOST, with the larger number first."""
    found = []
    for i, j in _pairs(state):
        b, a = state[i], state[j]  # b ≤ a
        rest = [*state[:i], *state[i + 1 : j], *state[j + 1 :]]
        made = [("+", a + b), ("-", a - b), ("*", a * b)]
        if b and a % b == 0:
            made.append(("/", a // b))
        found += [Step(a, sign, b, c, tuple(sorted([*rest, c]))) for sign, c in made if c <= MOST]
    return tuple(found)


@cache
def reachable_numbers(state: State) -> frozenset[int]:
    """Return all numbers that `steps` can make from the state."""
    if len(state) == 1:
        return frozenset(state)
    return frozenset().union(*(reachable_numbers(step.left) for step in possible_steps(state)))


def is_solvable(numbers: State, target: int = 24) -> bool:
    """Return whether the target can be made from the numbers, with fractions as intermediate results."""
    state = tuple(sorted(numbers))
    return target in reachable_numbers(state) or Fraction(target) in _reachable_fractions(tuple(map(Fraction, state)))


@cache
def _reachable_fractions(state: tuple[Fraction, ...]) -> frozenset[Fraction]:
    if len(state) == 1:
        return frozenset(state)
    found: set[Fraction] = set()
    for i, j in _pairs(state):
        b, a = state[i], state[j]
        rest = [*state[:i], *state[i + 1 : j], *state[j + 1 :]]
        made = {a + b, a - b, a * b} | ({a / b} if b else set()) | ({b / a} if a else set())
        for c in made:
            found |= _reachable_fractions(tuple(sorted([*rest, c])))
    return frozenset(found)


def _pairs(state: tuple[object, ...]) -> Iterator[tuple[int, int]]:
    """Yield pairs of positions of a state, each pair of values once."""
    seen = set()
    for i, j in combinations(range(len(state)), 2):
        if (state[i], state[j]) not in seen:
            seen.add((state[i], state[j]))
            yield i, j
