"""Hugging Face's models: which of our networks is which of transformers', under which names, with which config.

Each module beside this one that has a `FAMILY` is one `model_type` of transformers. A new one is one new file here;
nothing is registered by hand. `renamed` turns our tensors into theirs and `taken` theirs into ours.
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
    """One kind of tensor under its two names. Where `theirs` are several, ours is theirs one above another."""

    ours: str  # regular expression of our whole name, with groups
    theirs: tuple[str, ...]  # their names without the prefix, with \\1 for what a group matched
    transposed: bool = False  # they have the matrix as (in, out)
    outside: bool = False  # it stands beside what the prefix is put before: a head


@dataclass(frozen=True)
class Computed:
    """A tensor of theirs that follows from config.json, and is no weight of ours."""

    shape: Callable[[Mapping[str, Any]], tuple[int, ...]]  # config.json → its shape
    values: Callable[[tuple[int, ...]], Tensor]  # its shape → its numbers
    error: Callable[[tuple[int, ...]], Tensor]  # its shape → the largest rounding error of each number in float32

    def matches(self, tensor: Tensor, theirs: Mapping[str, Any]) -> bool:
        """Return whether a tensor of a file holds these numbers, to the precision of its type."""
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
    presets: tuple[str, ...]  # ours that have this form
    prefix: str  # what a network with a head puts before the names of its body: "bert."
    rules: tuple[Rule, ...]
    settings: Callable[[Any], dict[str, Any]]  # our Config → what transformers' config of that type is built with
    config: Callable[[Mapping[str, Any]], Any]  # config.json → our Config; raises ModelError naming the field
    architecture: Callable[[Any], str]  # our Config → the class in transformers: BertForMaskedLM
    # Other names of fields of config.json, to those that `config` reads: transformers takes either.
    aliases: Mapping[str, str] = field(default_factory=dict)
    tokens: Mapping[str, Any] = field(default_factory=dict)  # ids of special tokens where config.json is silent
    # Names of theirs that hold nothing of their own, as patterns: tied to another tensor, or made anew.
    left: tuple[str, ...] = field(default=())
    # Of a network with an output matrix of its own: our tensors that transformers has by further names, which are one
    # tensor where that matrix is the embedding.
    again: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    # Rules of a head that has other names there by what it answers with: our Config → these.
    heads: Callable[[Any], tuple[Rule, ...]] = field(default=lambda config: ())
    # Their tensors that no weight of ours is, which follow from config.json: written, and compared when read.
    computed: Mapping[str, Computed] = field(default_factory=dict)
    # Further names of the embedding. A file has one of them at least, and the same numbers under all that it has.
    tied: tuple[str, ...] = ()
    # The field of config.json that says whether the output matrix is the embedding; None where none does.
    tied_by: str | None = "tie_word_embeddings"
    # Tensors that a file may lack, computed from those that it has as transformers does: our Config, tensors → tensors.
    absent: Callable[[Any, Mapping[str, Tensor]], Mapping[str, Tensor]] = lambda config, tensors: {}
    # Two names of the output layer's bias, usually of one tensor: that which its product adds, and that which it is
    # saved by. Where a file has the first, that is what counts there.
    output_bias: tuple[str, str] | None = None

    def of(self, config: Any) -> Family:
        """The family with the rules of that network's head."""
        return replace(self, rules=(*self.rules, *self.heads(config)), heads=lambda config: ())


def renamed(family: Family, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Our named tensors, weights or gradients, under transformers' names. Raises KeyError for one without a rule."""
    found: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        rule, names = names_of(family, name)
        parts = tensor.chunk(len(names)) if len(names) > 1 else (tensor,)
        for theirs, part in zip(names, parts):
            found[theirs] = part.t() if rule.transposed and part.ndim == 2 else part
    return found


def taken(
    family: Family, ours: Iterable[str], tensors: Mapping[str, Tensor]
) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Transformers' tensors under our names, those of `ours` that are there whole; and the key map, theirs → ours."""
    found: dict[str, Tensor] = {}
    key_map: dict[str, str] = {}
    for name in ours:
        rule, names = names_of(family, name)
        if all(theirs in tensors for theirs in names):
            parts = [tensors[theirs] for theirs in names]
            if rule.transposed:
                parts = [part.t() if part.ndim == 2 else part for part in parts]
            found[name] = torch.cat(parts) if len(parts) > 1 else parts[0]
            key_map |= dict.fromkeys(names, name)
    return found, key_map


def written_of(family: Family, config: Any) -> dict[str, Any]:
    """What config.json says of a network of ours. Raises ModelError where that family has no such network."""
    return {"architectures": [family.architecture(config)], **family.settings(config)}


def family_of(preset: str) -> Family | None:
    """The family of a preset; None where transformers has no such network."""
    return next((family for family in families().values() if preset in family.presets), None)


@functools.cache
def families() -> dict[str, Family]:
    """Every family by its model_type."""
    modules = [importlib.import_module(f"{__name__}.{info.name}") for info in pkgutil.iter_modules(__path__)]
    return {module.FAMILY.model_type: module.FAMILY for module in modules if hasattr(module, "FAMILY")}


def names_of(family: Family, name: str) -> tuple[Rule, list[str]]:
    """The rule of one of our names, and what transformers calls it. Raises KeyError where no rule has it."""
    for rule in family.rules:
        match = re.fullmatch(rule.ours, name)
        if match:
            prefix = "" if rule.outside else family.prefix
            return rule, [prefix + match.expand(theirs) for theirs in rule.theirs]
    raise KeyError(f"{name} has no name in transformers' {family.model_type}")
