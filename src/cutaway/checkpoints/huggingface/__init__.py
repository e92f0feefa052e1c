"""Mapping of our networks to those of transformers: names of tensors and configs.

Each `Family` in a module of this package is one `model_type` of transformers. A new one needs no registration.
`to_transformers_names` converts our tensors to theirs and `from_transformers_names` theirs to ours.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Rule:
    """Names of one kind of tensor. If `theirs` are several, ours is their concatenation."""

    ours: str  # regular expression of our full name, with groups
    theirs: tuple[str, ...]  # their names without the prefix, with \\1 for a group
    transposed: bool = False  # their matrix is (in, out)
    outside: bool = False  # it has no prefix, as a head


@dataclass(frozen=True)
class Computed:
    """Tensor of theirs that is computed from config.json and is not one of our weights."""

    shape: Callable[[Mapping[str, Any]], tuple[int, ...]]  # config.json → its shape
    values: Callable[[tuple[int, ...]], Tensor]  # its shape → its values
    error: Callable[[tuple[int, ...]], Tensor]  # its shape → maximum rounding error of each value in float32

    def matches(self, tensor: Tensor, theirs: Mapping[str, Any]) -> bool:
        """Return whether a tensor of a file has these values, to the precision of its type."""
        shape = self.shape(theirs)
        if tensor.shape != shape or not tensor.is_floating_point():
            return False
        values = self.values(shape).double()
        bound = self.error(shape).double() + torch.finfo(tensor.dtype).eps * values.abs()
        return bool(((tensor.double() - values).abs() <= bound).all())


@dataclass(frozen=True)
class Family:
    """One `model_type` of transformers."""

    model_type: str  # as config.json has it
    presets: tuple[str, ...]  # our presets of this family
    prefix: str  # prefix of the backbone's names in a network with a head: "bert."
    rules: tuple[Rule, ...]
    settings: Callable[[Any], dict[str, Any]]  # our Config → arguments of transformers' config
    config: Callable[[Mapping[str, Any]], Any]  # config.json → our Config; raises ModelError naming the field
    architecture: Callable[[Any], str]  # our Config → the class in transformers: BertForMaskedLM
    # Alternative names of config.json fields → names that `config` reads.
    aliases: Mapping[str, str] = field(default_factory=dict)
    tokens: Mapping[str, Any] = field(default_factory=dict)  # default ids of special tokens
    # Patterns of their names that are ignored, because they are tied to another tensor or computed.
    ignored: tuple[str, ...] = field(default=())
    # Our tensors that transformers has under additional names if the output matrix is not the embedding. Otherwise they
    # are one tensor.
    untied_names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    # Rules of a head whose names depend on its outputs: our Config → rules.
    heads: Callable[[Any], tuple[Rule, ...]] = field(default=lambda config: ())
    # Their tensors that follow from config.json and have no counterpart: written, and compared when read.
    computed: Mapping[str, Computed] = field(default_factory=dict)
    # Additional names of the embedding. A file has at least one of them, all with the same values.
    embedding_names: tuple[str, ...] = ()
    # The field of config.json that says whether the output matrix is the embedding; None if there is none.
    tied_by: str | None = "tie_word_embeddings"
    # Optional tensors, computed from the others as in transformers: our Config, tensors → tensors.
    default_tensors: Callable[[Any, Mapping[str, Tensor]], Mapping[str, Tensor]] = lambda config, tensors: {}
    # Two names of the output layer's bias, usually of one tensor: the one that is added, and the one that is saved. If
    # a file has the first, it is used.
    output_bias: tuple[str, str] | None = None

    def with_head(self, config: Any) -> Family:
        """Return the family with the rules of the network's head."""
        return replace(self, rules=(*self.rules, *self.heads(config)), heads=lambda config: ())


def to_transformers_names(family: Family, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return our named tensors, weights or gradients, under transformers' names.

    Raises KeyError for one without a rule.
    """
    found: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        rule, names = transformers_names(family, name)
        parts = tensor.chunk(len(names)) if len(names) > 1 else (tensor,)
        for theirs, part in zip(names, parts):
            found[theirs] = part.t() if rule.transposed and part.ndim == 2 else part
    return found


def from_transformers_names(
    family: Family, ours: Iterable[str], tensors: Mapping[str, Tensor]
) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return transformers' tensors under our names and the key map, theirs → ours.

    Only those of `ours` that are complete are returned.
    """
    found: dict[str, Tensor] = {}
    key_map: dict[str, str] = {}
    for name in ours:
        rule, names = transformers_names(family, name)
        if all(theirs in tensors for theirs in names):
            parts = [tensors[theirs] for theirs in names]
            if rule.transposed:
                parts = [part.t() if part.ndim == 2 else part for part in parts]
            found[name] = torch.cat(parts) if len(parts) > 1 else parts[0]
            key_map |= dict.fromkeys(names, name)
    return found, key_map


def to_config_json(family: Family, config: Any) -> dict[str, Any]:
    """Return the config.json of one of our networks. Raises ModelError if the family has no such network."""
    return {"architectures": [family.architecture(config)], **family.settings(config)}


def find_family(preset: str) -> Family | None:
    """Return the family of a preset, or None if transformers has no such network."""
    return next((family for family in families().values() if preset in family.presets), None)


@functools.cache
def families() -> dict[str, Family]:
    """Return every family by its model_type, sorted."""
    modules = [importlib.import_module(f"{__name__}.{info.name}") for info in pkgutil.iter_modules(__path__)]
    found = [value for module in modules for value in vars(module).values() if isinstance(value, Family)]
    return {family.model_type: family for family in sorted(found, key=lambda family: family.model_type)}


def transformers_names(family: Family, name: str) -> tuple[Rule, list[str]]:
    """Return the rule of one of our names and its names in transformers. Raises KeyError if there is no rule."""
    for rule in family.rules:
        match = re.fullmatch(rule.ours, name)
        if match:
            prefix = "" if rule.outside else family.prefix
            return rule, [prefix + match.expand(theirs) for theirs in rule.theirs]
    raise KeyError(f"{name} has no name in transformers' {family.model_type}")
