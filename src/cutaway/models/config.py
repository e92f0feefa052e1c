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
from typing import Any, Self, TypeVar

from ..core.errors import ModelError, check_value
from ..core.spec import AudioSpec, Classes, GraphSpec, Horizon, Links, NextToken, SeriesSpec, Tags, TextSpec, Value

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


POOLING = ("auto", "last", "mean", "max", "flat", "every")


@dataclass(frozen=True)
class RecurrentConfig(ValidatedConfig):
    """Configuration of a recurrent network."""

    vocab_size: int = min_value(0, 0)  # size of the vocabulary; 0 for numeric input
    in_features: int = positive(1)  # F, features at each step of numeric input
    embedding_dim: int = min_value(0, 0)  # dimension of the embedding; 0 for `hidden_dim`
    hidden_dim: int = positive(128)  # dimension of the hidden state
    layers: int = positive(1)  # number of stacked layers
    bidirectional: bool = False  # also read backwards and concatenate both states
    dropout: float = fraction(0.0)  # dropout rate between layers and before the head
    pooling: str = choice("auto", POOLING)  # input of the head: last, mean, max, flat (all), every (each); auto fits
    steps: int = min_value(0, 0)  # T, for pooling=flat; otherwise sequences may have any length
    tie_weights: bool = False  # use the embedding of a language model as its output matrix
    num_classes: int = positive(10)  # size of the output: classes, tags, tokens, or horizon times columns
    horizon: int = min_value(0, 0)  # H, number of steps to forecast; 0 for no forecast
    known_future: int = min_value(0, 0)  # K, number of variables that are known for the steps to forecast
    recursive: bool = False  # forecast one step at a time and feed each forecast back as input
    relative: bool | None = None  # read and forecast differences from the last observed value; auto does

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.tie_weights:
            allowed = f"0 or hidden_dim={self.hidden_dim} with tie_weights, which shares one matrix"
            check_value(self.embedding_dim in (0, self.hidden_dim), "embedding_dim", self.embedding_dim, allowed)
        for setting in ("tie_weights", "recursive"):
            allowed = f"false with {setting}: a network that reads backwards sees the steps that it predicts"
            check_value(not (getattr(self, setting) and self.bidirectional), "bidirectional", True, allowed)

    @classmethod
    def for_spec(cls, preset: Self, spec: TextSpec | SeriesSpec | AudioSpec) -> Self:
        """Return the preset fitted to `spec`. Raises ModelError if it cannot learn the target."""
        target = spec.target
        fitted: dict[str, Any] = {"vocab_size": 0, "num_classes": target.outputs}
        fitted["horizon"] = target.steps if isinstance(target, Horizon) else 0
        fitted["known_future"] = spec.known_future if fitted["horizon"] and isinstance(spec, SeriesSpec) else 0
        if isinstance(spec, TextSpec):
            fitted["vocab_size"] = spec.vocab_size
        else:
            fitted["in_features"] = spec.features if isinstance(spec, SeriesSpec) else spec.n_mels
        if isinstance(target, Tags | NextToken):
            fitted["pooling"] = "every"
            allowed = "every or auto: each token has a target"
            check_value(preset.pooling in ("auto", "every"), "pooling", preset.pooling, allowed)
            allowed = "false in a language model: a network that reads backwards sees the token that it predicts"
            check_value(not (isinstance(target, NextToken) and preset.bidirectional), "bidirectional", True, allowed)
        elif not isinstance(target, Classes | Value | Horizon):
            raise ModelError(
                f"Recurrent networks cannot learn the {target.column} of a token. They predict a class or a value of a "
                "sequence, tags, the next token or a forecast. `cutaway list` shows what other models take."
            )
        if preset.pooling == "flat":
            check_value(isinstance(spec, SeriesSpec), "pooling", "flat", "last, mean or max where lengths differ")
            fitted["steps"] = spec.steps if isinstance(spec, SeriesSpec) else 0
        config = dataclasses.replace(preset, **fitted)
        config.check()
        return config

    def check(self) -> None:
        """Raise ModelError if settings contradict each other. This cannot be checked before the data is known."""
        if self.tie_weights:
            predicts = self.pooling == "every" and self.vocab_size == self.num_classes
            check_value(predicts, "tie_weights", True, "false in all but a language model")
        allowed = "the length of a sequence, for pooling=flat"
        check_value(self.pooling != "flat" or self.steps >= 1, "steps", self.steps, allowed)
        if not self.horizon:
            for name in ("recursive", "relative", "known_future"):
                check_value(not getattr(self, name), name, getattr(self, name), "left out: nothing is forecast")
            return
        check_value(self.pooling != "every", "pooling", self.pooling, "last, mean, max or flat for a forecast")
        check_value(not self.vocab_size, "vocab_size", self.vocab_size, "0 in a forecaster, which takes numbers")
        allowed = f"a multiple of the {self.horizon} steps of horizon"
        check_value(self.num_classes % self.horizon == 0, "num_classes", self.num_classes, allowed)
        allowed = f"at most horizon times in_features, {self.horizon} · {self.in_features}"
        check_value(self.columns <= self.in_features, "num_classes", self.num_classes, allowed)
        if self.forecasts_step_by_step:
            allowed = "its default: step-by-step forecasts continue from the last state"
            check_value(not self.bidirectional, "bidirectional", True, allowed)
            check_value(self.pooling in ("auto", "last"), "pooling", self.pooling, allowed)
        if self.recursive:
            allowed = (
                f"false here: a recursive forecast needs every variable of the next step, and of {self.in_features}, "
                f"{self.columns} are forecast and {self.known_future} known in advance"
            )
            check_value(self.in_features == self.columns + self.known_future, "recursive", True, allowed)

    @property
    def input_dim(self) -> int:
        """The input size of the first recurrent layer."""
        return (self.embedding_dim or self.hidden_dim) if self.vocab_size else self.in_features

    @property
    def columns(self) -> int:
        """C, the number of variables to forecast."""
        return self.num_classes // max(self.horizon, 1)

    @property
    def forecasts_step_by_step(self) -> bool:
        """True if a forecast is made step by step, with C outputs at each."""
        return bool(self.horizon and (self.known_future or self.recursive))
