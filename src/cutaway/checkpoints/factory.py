"""Functions and classes that build custom modules, for trainings that need a new module each time.

Their parameters are settings, as for a named model. `def net(width: int, dropout=0.1)` has model.width and
model.dropout, which a search can draw. A parameter of another type keeps its default.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import re
import typing
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import UnionType
from typing import Any

import torch
from torch import nn

from ..core.config import parse, split_model_settings
from ..core.errors import MissingSettingError, ModelError, UnknownName
from ..models.registry import Preset, find
from . import custom

NAME = re.compile(r"\w[\w.+-]*")
KINDS: dict[str, Any] = {
    "int": int, "float": float, "bool": bool, "str": str,
    "ints": tuple[int, ...], "floats": tuple[float, ...], "bools": tuple[bool, ...], "strs": tuple[str, ...],
}  # fmt: skip


@dataclass(frozen=True)
class ModuleBuilder(Preset):
    """Builder of custom modules with the interface of a preset."""

    make: Callable[..., object]
    path: str  # import path, such as nets.Net. It is only reported and never imported
    needed: tuple[str, ...] = ()  # parameters without a default
    _before: weakref.WeakSet[nn.Module] = field(default_factory=weakref.WeakSet, compare=False, repr=False)

    @property
    def kinds(self) -> dict[str, str]:
        """Return the type of each setting by name: int, or ints for several."""
        names = {kind: name for name, kind in KINDS.items()}
        return {name: names[kind] for name, kind in typing.get_type_hints(type(self.config)).items()}

    def parse(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Convert typed parameters to their types. Raises UnknownName or SettingError."""
        hints = typing.get_type_hints(type(self.config))
        for key in given:
            if key not in hints:
                raise UnknownName(
                    f"parameter of {self.path} named", key, hints, "Those with a number, a word or several can be set."
                )
        return {key: parse(key, value, hints[key]) for key, value in given.items()}

    def new(self, given: Mapping[str, Any]) -> tuple[nn.Module, dict[str, Any]]:
        """Build a module with the settings `model.KEY` and the given seed, and return it with all other settings.

        The random state of torch is not changed. Raises ModelError if no module can be built.
        """
        own, rest = split_model_settings(given)
        asked = self.parse(own)
        if missing := [name for name in self.needed if name not in asked]:
            raise MissingSettingError(
                f"{self.path} needs {', '.join(missing)}: give it a default, say it as in "
                f"{{'model.{missing[0]}': VALUE}} of a search, or name a function that says it, as in "
                f'("{self.name}", lambda: {self.path.rpartition(".")[2]}({missing[0]}=VALUE)).'
            )
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(rest.get("seed", 0)))
            try:
                found = self.make(**asked)
            except (TypeError, ValueError, RuntimeError) as error:
                said = ", ".join(f"{key}={value!r}" for key, value in asked.items())
                raise ModelError(f"{self.path}({said}) makes no module: {type(error).__name__}: {error}") from error
        if not isinstance(found, nn.Module):
            raise ModelError(f"{self.path} makes a {type(found).__name__}, and no torch.nn.Module.")
        if found in self._before:
            raise ModelError(
                f"{self.path} gave the same module twice, which has learned already: let it make a new one each time "
                "that it is called."
            )
        self._before.add(found)
        return found, rest


def to_builder(given: Any) -> ModuleBuilder:
    """Return the builder of a function or class without required arguments.

    A tuple of a name and such a function, ("mine", make), is accepted too. Raises ModelError, with a fix, for anything
    else.
    """
    named = isinstance(given, tuple) and len(given) == 2 and isinstance(given[0], str)
    name, make = given if named else ("", given)
    if isinstance(make, nn.Module):
        kind = type(make).__name__
        raise ModelError(
            f"This {kind} is an instance, but repeated training needs a new model each time: give its "
            f'class, or a name and a function that builds it, as in ("mine", lambda: {kind}(…)).'
        )
    if not callable(make):
        raise ModelError(
            f"{make!r} is not a model: give a name that `cutaway list` shows, a class of modules, or a name and the "
            'function that makes one, as in ("mine", make).'
        )
    name = name or getattr(make, "__name__", "")
    if not NAME.fullmatch(name):
        raise ModelError(
            f"The function that builds the module has no name that a folder can have: give one, as in "
            f'("mine", {"lambda: …" if name == "<lambda>" else "make"}).'
            if not named
            else f"{name!r} cannot be the name of a model: take letters, digits and . + - _ alone."
        )
    if find(name) is not None:
        raise ModelError(f'{name} is a model of `cutaway list`: give yours another name, as in ("my-{name}", make).')
    kinds, needed = _parameters(make)
    path = f"{getattr(make, '__module__', '')}.{getattr(make, '__qualname__', name)}".lstrip(".")
    return _new_builder(name, kinds, make, path, needed)


def new_model(found: Preset, settings: Mapping[str, Any]) -> tuple[str | nn.Module, dict[str, Any]]:
    """Return the model of a training and its settings.

    The model is the name of a preset, or a new custom module. The settings of the module are removed.
    """
    return found.new(settings) if isinstance(found, ModuleBuilder) else (found.name, {**settings})


def build_custom_module(found: Preset, settings: Mapping[str, Any]) -> nn.Module | None:
    """Build a custom module to load the weights of a run into. None for a named model."""
    return found.new(settings)[0] if isinstance(found, ModuleBuilder) else None


def builder_from_document(name: str, path: str, kinds: Mapping[str, str]) -> ModuleBuilder:
    """Return a builder from its document. It describes modules but cannot build them."""

    def make(**_: Any) -> object:
        raise ModelError(f"{path} is defined in a script and is not available here: pass it again from Python.")

    return _new_builder(name, {key: KINDS[kind] for key, kind in kinds.items()}, make, path, ())


def _new_builder(
    name: str, kinds: Mapping[str, Any], make: Callable[..., object], path: str, needed: tuple[str, ...]
) -> ModuleBuilder:
    """Return a builder with a config of its parameters."""
    config = dataclasses.make_dataclass("Config", [(key, kind, field(default=None)) for key, kind in kinds.items()])()
    return ModuleBuilder(name, custom, config, make, path, needed)


def _parameters(make: Callable[..., object]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the type of each settable parameter and the names without a default.

    Raises ModelError for a required parameter of unknown type.
    """
    hints: dict[str, Any] = {}
    with contextlib.suppress(NameError, TypeError):  # a name that is local to a function, or no annotations
        hints = typing.get_type_hints(make.__init__ if isinstance(make, type) else make)  # type: ignore[misc]
    try:
        parameters = inspect.signature(make).parameters.values()
    except (TypeError, ValueError):  # built-in functions have no signature
        parameters = {}.values()
    kinds, needed = {}, []
    for one in parameters:
        if one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD):
            continue
        kind = None if one.kind is one.POSITIONAL_ONLY else _kind(hints.get(one.name), one.default)
        if kind is not None:
            kinds[one.name] = kind
        if one.default is one.empty:
            if kind is None:
                raise ModelError(
                    f"{getattr(make, '__qualname__', make)} must be given {one.name}, and nothing says what that is: "
                    f"write its type, as in `{one.name}: int`, or give it a default."
                )
            needed.append(one.name)
    return kinds, tuple(needed)


def _kind(hint: Any, default: Any) -> Any:
    """Return the type of a parameter among KINDS, from its annotation or default; None for other types."""
    if isinstance(hint, UnionType) or typing.get_origin(hint) is typing.Union:
        hint = next((one for one in typing.get_args(hint) if one is not type(None)), None)
    if hint is None:
        values = default if isinstance(default, tuple | list) and default else (default,)
        hint = type(values[0])
        return KINDS.get(f"{hint.__name__}s" if values is default else hint.__name__)
    if typing.get_origin(hint) in (tuple, list):
        hint = tuple[typing.get_args(hint)[0], ...]  # type: ignore[misc]
    return next((kind for kind in KINDS.values() if kind == hint), None)
