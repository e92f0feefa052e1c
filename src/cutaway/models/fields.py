"""The fields of a Config, each with the values that it may take: what cannot be is rejected by the field's name.

    @dataclass(frozen=True)
    class Config(Checked):
        layers: int = positive(12)  # blocks
        ffn_dim: int | None = positive(None)  # none for 4 · dim
        dropout: float = fraction(0.1)  # of what each layer adds
        head: str = one_of("next", HEADS)  # what the head gives

What two fields must be to each other is said in a `__post_init__` that begins with `super().__post_init__()`.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from ..core.errors import require


@dataclass(frozen=True)
class Rule:
    """What the values of a field may be."""

    holds: Callable[[Any], bool]
    allowed: str  # in words: "at least 1"


class Checked:
    """A Config whose fields are held to their rules as soon as it is made. None is for fields that begin as None."""

    def __post_init__(self) -> None:
        """Raise ModelError, by the field's name, for the first value that cannot be."""
        for field in dataclasses.fields(self):  # type: ignore[arg-type]  # a Config is a dataclass
            value, rule = getattr(self, field.name), field.metadata.get("rule")
            if rule is not None and not (value is None and field.default is None):
                require(rule.holds(value), field.name, value, rule.allowed)


def at_least(least: float, default: Any) -> Any:
    """A field that is a number from `least` on."""
    return _field(default, lambda value: value >= least, f"at least {least}")


def positive(default: Any) -> Any:
    """A field that is a number of things, at least 1; of a tuple each is, and there is one."""
    if isinstance(default, tuple):
        return several(default, fewest=1)
    return at_least(1, default)


def several(default: tuple[int, ...], fewest: int = 0) -> Any:
    """A field that is a tuple of numbers of things, each at least 1, `fewest` of them at least."""
    words = "numbers of at least 1" if fewest == 0 else "one number or more, each at least 1"
    return _field(default, lambda value: len(value) >= fewest and all(n >= 1 for n in value), words)


def fraction(default: float | None) -> Any:
    """A field that is a part of a whole, a dropout for one: at least 0 and below 1."""
    return _field(default, lambda value: 0 <= value < 1, "at least 0 and below 1")


def one_of(default: str | None, choices: Iterable[str]) -> Any:
    """A field that is one of these words."""
    known = tuple(choices)
    return _field(default, known.__contains__, (" or " if len(known) == 2 else ", ").join(known))


def _field(default: Any, holds: Callable[[Any], bool], allowed: str) -> Any:
    return dataclasses.field(default=default, metadata={"rule": Rule(holds, allowed)})


def sentences_of(config: type) -> dict[str, str]:
    """What each field of a Config is: the comment beside it in the source, which every model file has."""
    source = "".join(inspect.getsource(c) for c in reversed(config.__mro__) if dataclasses.is_dataclass(c))
    said = dict(re.findall(r"^    (\w+): .*?  # (.*)$", source, flags=re.MULTILINE))
    return {f.name: said.get(f.name, "") for f in dataclasses.fields(config)}
