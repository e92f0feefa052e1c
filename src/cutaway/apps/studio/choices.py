"""Choices in the studio: data, models with their settings, training settings, views."""

from __future__ import annotations

import dataclasses
import functools
import typing
from typing import Any

from ...core.config import as_text
from ...data.datasets.toy_data import TOYS
from ...data.open_data import NAMED, where
from ...data.settings import DataSettings
from ...models.config import field_descriptions
from ...models.registry import Preset, presets
from ...nn.activations import ACTIVATIONS
from ...training.config import TrainSettings
from ...views.registry import VIEWS
from .state import ALSO, LEARNS, default_state, small_settings
from .trainer import DRAWN, LIVE

TRAINING = (
    *("lr", "batch_size", "optimizer", "weight_decay", "momentum", "grad_clip", "schedule", "epochs", "warmup", "seed"),
    *("label_smoothing", "class_weights", "sampling", "loss"),
)
DATA = (
    "noise",
    "count",
    "target",
    "text",
    "forecast",
    "horizon",
    "max_samples",
    "scale",
    "missing",
    "length",
    "tokenizer",
    "val",
    "test",
)
# Set by the data.
FITTED = (
    "in_features",
    "in_channels",
    "num_classes",
    "vocab_size",
    "target_vocab_size",
    "image_size",
    "graph_level",
    "horizon",
    "known_future",
    "token_types",
)
ALWAYS_LIVE = ("activation", "dropout")  # model settings that change no weights
SPEED = {
    "key": "speed",
    "type": "float",
    "default": "60",
    "says": "maximum steps per second; 0: no limit",
    "choices": None,
    "low": 0,
    "high": 1e6,
    "live": True,
}


def choices(run: str | None = None) -> dict[str, Any]:
    """Return all choices as JSON values; `run` is the name of the opened run, if any."""
    return {
        "data": [*([_of_run(run)] if run else []), *(_data(name) for name in NAMED)],
        "models": _models(),
        "settings": [*_settings(TrainSettings, TRAINING), *_settings(DataSettings, DATA), SPEED],
        "views": [{"name": name, "says": view.says, "options": dict(view.options)} for name, view in VIEWS.items()],
    }


def _data(name: str) -> dict[str, Any]:
    named = NAMED[name]
    here, toy = where(name) is not None, name in TOYS
    return describe_data(name, named.kind, named.title, named.task, here, toy)


def describe_data(name: str, kind: str, title: str, task: str, here: bool = True, toy: bool = False) -> dict[str, Any]:
    """Describe data to choose: its kind, its possible targets, and the default state to open it with."""
    return {
        "name": name, "kind": kind, "title": title, "task": task, "here": here, "toy": toy,
        "learns": [*LEARNS.get(task, ()), *ALSO.get(name, ())], "begins": default_state(name, kind, task),
    }  # fmt: skip


def _of_run(run: str) -> dict[str, Any]:
    return describe_data("run", "run", f"The data of {run}", "")


@functools.cache
def _models() -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "family": found.card.card.family,
            "takes": list(found.takes),
            "learns": [target.__name__ for target in found.targets],
            "small": small_settings(found),
            "settings": _of_model(found),
        }
        for name, found in presets().items()
    ]


def _of_model(found: Preset) -> list[dict[str, Any]]:
    """Return the model's own settings, without those that the data sets."""
    sentences, hints = field_descriptions(type(found.config)), typing.get_type_hints(type(found.config))
    return [
        {
            "key": f"model.{field.name}",
            "type": _type(hints[field.name]),
            "default": as_text(getattr(found.config, field.name)),
            "says": sentences[field.name],
            "choices": _choices(found, field.name),
            "live": field.name in ALWAYS_LIVE,
        }
        for field in dataclasses.fields(found.config)
        if field.name not in FITTED
    ]


def _choices(found: Preset, name: str) -> list[str] | None:
    """Return the values of a categorical setting: the list under its name in the model's module (`norm`: NORMS)."""
    value = getattr(found.config, name)
    if name == "activation" and value in ACTIVATIONS:
        return list(ACTIVATIONS)
    listed = next(
        (getattr(found.module, n, None) for n in (f"{name.upper()}S", name.upper(), f"{name.upper()}ES")), None
    )
    return [str(word) for word in listed] if isinstance(value, str) and listed and value in listed else None


def _settings(group: type, names: tuple[str, ...]) -> list[dict[str, Any]]:
    """Describe settings of a group, from the metadata of its fields."""
    found, hints = {f.name: f for f in dataclasses.fields(group)}, typing.get_type_hints(group)
    return [
        {
            "key": name,
            "type": _type(hints[name]),
            "default": as_text(found[name].default),
            "says": found[name].metadata["help"],
            "choices": list(found[name].metadata["choices"]) or None,
            "low": found[name].metadata["low"],
            "high": found[name].metadata["high"],
            "live": name in (*LIVE, *DRAWN),
        }
        for name in names
    ]


def _type(hint: Any) -> str:
    """Return the name of a type: int, float, bool or str; ints, floats or strs for tuples of them."""
    kinds = [kind for kind in typing.get_args(hint) if kind is not type(None)] or [hint]
    if typing.get_origin(hint) is tuple or typing.get_origin(kinds[0]) is tuple:
        inner = typing.get_args(hint if typing.get_origin(hint) is tuple else kinds[0])[0]
        return f"{inner.__name__}s"
    return str(kinds[0].__name__)
