"""Which numbers can be made of others with + − × ÷, each used once: the exact oracle behind `countdown` and `game24`.

A state is the numbers that are left, in rising order. A step takes two of them, a and b, and puts one result in their
place; with n numbers n − 1 steps lead to one.

Every solution can be written without a negative number, as a − (b − c) = a + (c − b): so only the smaller is taken from
the larger. `solvable` counts in fractions, and is the whole truth: of the 1 820 ways to take four numbers from 1 to 13
it finds 1 362 that make 24, those of the published list. `reached` and `steps` keep to whole numbers up to `MOST`,
which is what solutions are written with here: 1 335 of these.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from functools import cache
from itertools import combinations
from typing import NamedTuple

State = tuple[int, ...]
MOST = 100  # the largest number that is written
SIGNS = ("+", "-", "*", "/")


class Step(NamedTuple):
    """Two numbers that become one."""

    a: int
    sign: str
    b: int
    result: int
    left: State  # all numbers after it, in rising order

    def __str__(self) -> str:
        return f"{self.a} {self.sign} {self.b} = {self.result} (left: {' '.join(map(str, self.left))})"


def result(a: Fraction | int, sign: str, b: Fraction | int) -> Fraction | None:
    """What a and b make; None where that is nothing: a division by 0."""
    a, b = Fraction(a), Fraction(b)
    if sign == "/":
        return a / b if b else None
    return {"+": a + b, "-": a - b, "*": a * b}[sign]


@cache
def steps(state: State) -> tuple[Step, ...]:
    """All steps from a state in whole numbers from 0 to MOST, the larger number first."""
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
def reached(state: State) -> frozenset[int]:
    """All numbers that can be made of the state by `steps`."""
    if len(state) == 1:
        return frozenset(state)
    return frozenset().union(*(reached(step.left) for step in steps(state)))


def solvable(numbers: State, target: int = 24) -> bool:
    """Whether the target can be made of the numbers, by any fractions on the way."""
    state = tuple(sorted(numbers))
    return target in reached(state) or Fraction(target) in _made(tuple(map(Fraction, state)))


@cache
def _made(state: tuple[Fraction, ...]) -> frozenset[Fraction]:
    if len(state) == 1:
        return frozenset(state)
    found: set[Fraction] = set()
    for i, j in _pairs(state):
        b, a = state[i], state[j]
        rest = [*state[:i], *state[i + 1 : j], *state[j + 1 :]]
        made = {a + b, a - b, a * b} | ({a / b} if b else set()) | ({b / a} if a else set())
        for c in made:
            found |= _made(tuple(sorted([*rest, c])))
    return frozenset(found)


def _pairs(state: tuple[object, ...]) -> Iterator[tuple[int, int]]:
    """Two places of a state, without those that hold the same two numbers again."""
    seen = set()
    for i, j in combinations(range(len(state)), 2):
        if (state[i], state[j]) not in seen:
            seen.add((state[i], state[j]))
            yield i, j
