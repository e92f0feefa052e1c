"""The registry of kinds of inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

from cutaway.core.errors import CutawayError


class Fault(Exception):
    """An input was answered wrongly, though no exception shows it: a message that names no file, for one."""


@dataclass(frozen=True)
class Case:
    """One input: what is hostile about it, and how it is given to the package."""

    name: str
    run: Callable[[], None]  # raises CutawayError where the input is rejected


@dataclass(frozen=True)
class Kind:
    """One kind of inputs."""

    name: str
    # Prepare what the inputs are made of, in a folder that all kinds share. Called in a process of its own.
    prepare: Callable[[Path], object]
    # The inputs, at random. The first folder is what `prepare` was given; the second is this kind's own, empty.
    cases: Callable[[Path, Path, Random], Iterator[Case]]
    seconds: float = 20.0  # that one input may compute
    quick: bool = False  # whether it is among the kinds that the test suite runs


def read_whole(read: Callable[[], object]) -> None:
    """Read an input that was not changed, and raise Fault where it is rejected: else nothing would be tried."""
    try:
        read()
    except CutawayError as error:
        raise Fault(f"the whole input was rejected: {error}") from error


KINDS: dict[str, Kind] = {}


def register(kinds: Iterable[Kind]) -> None:
    """Add kinds to the registry."""
    for kind in kinds:
        if kind.name in KINDS:
            raise ValueError(f"two kinds are called {kind.name}")
        KINDS[kind.name] = kind
