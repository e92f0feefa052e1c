"""Configs of models: validated fields, and the values that follow from a data set.

An invalid value raises an error that names the field.

    @dataclass(frozen=True)
    class Config(ValidatedConfig):
        layers: int = positive(12)  # number of blocks
        ffn_dim: int | None = positive(None)  # None for 4 · dim
        dropout: float = fraction(0.1)  # dropout rate of the output of each layer
        head: str = choice("next", HEADS)  # output of the head

Constraints between fields go into a `__post_init__` that begins with `super().__post_init__()`.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from ..core.errors import ModelError, check_value
from ..core.spec import Classes, GraphSpec, Links, NextToken, TextSpec, Value

C = TypeVar("C")
NODE_TARGETS = (Classes, Value)  # targets of a node or a graph
LINK_TARGETS = (*NODE_TARGETS, Links)  # and targets of a pair of nodes


@dataclass(frozen=True)
class Rule:
    """The constraint on the values of a field."""

    holds: Callable[[Any], bool]
    allowed: str  # in words: "at least 1"


class ValidatedConfig:
    """A Config that validates its fields when it is created. None is accepted for fields whose default is None."""

    def __post_init__(self) -> None:
        """Validate all fields. Raises ModelError, with the field's name, for the first invalid value."""
        for field in dataclasses.fields(self):  # type: ignore[arg-type]  # a Config is a dataclass
            value, rule = getattr(self, field.name), field.metadata.get("rule")
            if rule is not None and not (value is None and field.default is None):
                check_value(rule.holds(value), field.name, value, rule.allowed)


def min_value(least: float, default: Any) -> Any:
    """Return a field for a number that is at least `least`."""
    return _field(default, lambda value: value >= least, f"at least {least}")


def positive(default: Any) -> Any:
    """Return a field for a count of at least 1; if the default is a tuple, for one or more such counts."""
    if isinstance(default, tuple):
        return counts(default, fewest=1)
    return min_value(1, default)


def counts(default: tuple[int, ...], fewest: int = 0) -> Any:
    """Return a field for a tuple of at least `fewest` counts, each at least 1."""
    words = "numbers of at least 1" if fewest == 0 else "one number or more, each at least 1"
    return _field(default, lambda value: len(value) >= fewest and all(n >= 1 for n in value), words)


def fraction(default: float | None) -> Any:
    """Return a field for a fraction, e.g. a dropout rate: at least 0 and below 1."""
    return _field(default, lambda value: 0 <= value < 1, "at least 0 and below 1")


def choice(default: str | None, choices: Iterable[str]) -> Any:
    """Return a field for one of the given strings."""
    known = tuple(choices)
    return _field(default, known.__contains__, (" or " if len(known) == 2 else ", ").join(known))


def _field(default: Any, holds: Callable[[Any], bool], allowed: str) -> Any:
    return dataclasses.field(default=default, metadata={"rule": Rule(holds, allowed)})


def field_descriptions(config: type) -> dict[str, str]:
    """Return the description of each field of a Config, read from its comment in the source."""
    source = "".join(inspect.getsource(c) for c in reversed(config.__mro__) if dataclasses.is_dataclass(c))
    comments = dict(re.findall(r"^    (\w+): .*?  # (.*)$", source, flags=re.MULTILINE))
    return {f.name: comments.get(f.name, "") for f in dataclasses.fields(config)}


def fit_language_model(preset: C, spec: TextSpec) -> C:
    """Return a decoder's config with the vocabulary, the length and the target of `spec`.

    The context of a language model is as long as the texts; that of a classifier is at least as long.
    """
    known: Any = preset
    if isinstance(spec.target, NextToken):
        known = dataclasses.replace(known, vocab_size=spec.vocab_size, context_length=spec.longest, head="next")
    else:
        known = dataclasses.replace(
            known,
            vocab_size=spec.vocab_size,
            context_length=max(known.context_length, spec.longest),
            head="classes",
            num_classes=spec.target.outputs,
        )
    fit: C = known
    return fit


def fit_graph_model(name: str, preset: C, spec: GraphSpec) -> C:
    """Return the preset's config with the features and outputs of `spec`.

    The targets are nodes, graphs or, if the config has a decoder, links. Raises ModelError for another target.
    """
    decodes, links = hasattr(preset, "decoder"), isinstance(spec.target, Links)
    if not isinstance(spec.target, LINK_TARGETS if decodes else NODE_TARGETS):
        raise ModelError(
            f"{name} learns a class or a number for each node or graph{', or links' if decodes else ''}, and "
            f"{spec.target.column} is {'none of them' if decodes else 'neither'}."
        )
    fits: Any = {"in_features": spec.features, "num_classes": spec.target.outputs, "graph_level": spec.graph_level}
    if decodes:
        asked = getattr(preset, "decoder")  # noqa: B009  # not every Config has this field
        fits["decoder"] = ("dot" if asked == "none" else asked) if links else "none"
    if hasattr(preset, "edge_features"):
        fits["edge_features"] = spec.edge_features
    return dataclasses.replace(preset, **fits)  # type: ignore[type-var]  # a Config is a dataclass


def validate_heads(graph_level: bool, decoder: str) -> None:
    """Raise ModelError for a network with both a graph-level head and a link decoder."""
    check_value(decoder == "none" or not graph_level, "decoder", decoder, "none with graph_level=true")
