"""Finding the architectures: every module of this package that has `PRESETS` is one family.

A new family is one new file beside this one; nothing is registered by hand.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import math
import pkgutil
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch
from torch import nn

from ..core.config import as_text, parse
from ..core.errors import ModelError, SettingError, UnknownName, listed, short
from ..core.memory_budget import FRACTION, reject_too_large
from ..core.spec import Classes, Episodes, ImageSizes, ImageSpec, NextToken, Spec, Target, Unlabelled
from .base import Network
from .card import Card, PresetCard

# What fields of a Config were called before 0.7, and what they are called now, in one family or another: whoever types
# an old name is told the new one, and models of that time are read. To be dropped at 1.0.
RENAMED = {
    "blocks": ("layers",),
    "buckets": ("num_buckets",),
    "attention": ("attention_dim",),
    "context": ("context_length",),
    "depth": ("layers",),
    "drops_tags_as_body": ("drops_tags_as_backbone",),
    "embedding": ("embedding_dim",),
    "furthest": ("max_distance",),
    "growth": ("growth_rate",),
    "hidden": ("ffn_dim", "hidden_dim", "hidden_dims"),
    "hidden_dropout": ("activation_dropout",),
    "key_dim": ("head_dim",),
    "known": ("known_future",),
    "many": ("graph_level",),
    "maps": ("feature_maps",),
    "mlp_dim": ("ffn_dim",),
    "num_classes": ("target_vocab_size",),
    "patch": ("patch_size",),
    "pool": ("pooling",),
    "pooled": ("pooler_activation",),
    "read": ("pooling",),
    "readout": ("readout_dim", "pooling"),
    "shared": ("share_layers", "joint_vocab"),
    "slope": ("negative_slope",),
    "tied": ("tie_weights",),
    "types": ("token_types",),
    "vocabulary": ("vocab_size",),
    "windows": ("kernel_sizes",),
}
OUTPUTS = ("num_classes", "target_vocab_size")  # fields that say how many values the head gives
SHOWN = 8  # presets that an error names
CLASSES_OF_TEXT = (
    " To learn classes of texts, give a table (text=COLUMN target=COLUMN), or a folder with one folder of .txt files "
    "for each class."
)
GONE = ("num_classes",)  # fields that some family dropped, as they said no more than vocab_size


@dataclass(frozen=True)
class Preset:
    """One name that a person can ask for: where it stands and the config it means."""

    name: str
    module: ModuleType  # the file: Config, Model, PRESETS, CARD
    config: Any

    @property
    def file_name(self) -> str:
        """The name as it can stand in a path: vit-base-16."""
        return self.name.replace("/", "-")

    @property
    def card(self) -> PresetCard:
        """The facts that this preset is held to."""
        return PresetCard(self.name, self.module.CARD)

    @property
    def network(self) -> type[Network]:
        """The class of its models."""
        network: type[Network] = self.module.Model
        return network

    @property
    def takes(self) -> tuple[str, ...]:
        """The kinds of data that the model accepts: table, image, series."""
        return tuple(spec.kind for spec in self.network.takes)

    @property
    def targets(self) -> tuple[type[Target], ...]:
        """What the model can learn: classes or a value, unless it says otherwise."""
        return self.network.targets

    @property
    def setting_names(self) -> tuple[str, ...]:
        """The model's own settings: the fields of its Config."""
        return tuple(f.name for f in dataclasses.fields(self.config))

    def name_now(self, field: str) -> str:
        """What a field of the Config is called now that may have had another name."""
        names = (field, *RENAMED.get(field, ()))
        return next((name for name in names if name in self.setting_names), field)

    def as_now(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """The fields of a Config that was written before, as they are called now, less those that are gone where they
        say nothing of their own: None, or what `vocab_size` says."""
        names = {field: self.name_now(field) for field in config}
        now = {field if names[field] in config else names[field]: value for field, value in config.items()}
        idle = (None, now.get("vocab_size"))
        gone = {field for field in GONE if field not in self.setting_names and now.get(field) in idle}
        return {field: value for field, value in now.items() if field not in gone}

    def parse(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The model's own settings as typed, each turned into its field's type. Raises UnknownName, SettingError."""
        hints = typing.get_type_hints(type(self.config))
        for key in given:
            if key not in hints and self.name_now(key) in hints:
                raise SettingError(f"{key} is now {self.name_now(key)}: `cutaway show {self.name}` says what it takes.")
            if key not in hints:
                raise UnknownName(
                    f"setting of {self.name} named", key, hints, f"`cutaway show {self.name}` lists them."
                )
        return {key: parse(key, value, hints[key]) for key, value in given.items()}

    def reject_kind(self, kind: str, find_way_out: Callable[[], str] = str) -> None:
        """Raise ModelError, naming the models that can, where the model cannot take this kind of data.

        `find_way_out` returns a sentence on what else can be done, or nothing; it is called only for such an error.
        """
        if kind not in self.takes:
            way_out = find_way_out()
            raise ModelError(
                f"{self.name} takes {listed([_called(k) for k in self.takes], 'or')} data, and this is {_called(kind)} "
                f"data. {f'{way_out} ' if way_out else ''}"
                f"These models take it{' as it is' if way_out else ''}: "
                f"{_some([p for p in presets().values() if kind in p.takes], kind)}."
            )

    def configure(self, spec: Spec | None = None, settings: Mapping[str, Any] | None = None) -> Any:
        """The preset's config, fitted to `spec` where one is given, then changed by `settings`.

        Raises ModelError where the model cannot take that kind of data, UnknownName for a setting it has not.
        """
        config = self.config
        if spec is not None:
            self.reject_kind(spec.kind)
            self._reject_target(spec)
        asked = self.parse(settings or {})
        config = dataclasses.replace(config, **asked)
        if spec is not None:
            fitted = type(config).for_spec(config, spec)
            config = dataclasses.replace(fitted, **self._beyond_the_data(asked, fitted, spec))
            self._reject_longer(config, spec)
        return config

    def _beyond_the_data(self, asked: Mapping[str, Any], fitted: Any, spec: Spec) -> dict[str, Any]:
        """What was asked for that the config has not which is fitted to the data: room for longer texts, or for more
        tokens than there are. Raises SettingError where it is anything else: the data decides that."""
        beyond = {}
        for key, value in asked.items():
            own = getattr(fitted, key)
            if key in OUTPUTS and value is not None:
                own = spec.target.outputs
            elif key == "image_size" and isinstance(spec, ImageSpec):
                own = max(spec.height, spec.width)
            if value == own or value in (None, "auto"):
                continue
            if key == "context_length" or (key == "vocab_size" and value > own > 0):
                beyond[key] = value
                continue
            what = f" ({spec.target.column})" if key in OUTPUTS else ""
            raise SettingError(
                f"model.{key}={short(as_text(value))} cannot be: the data decides {key}, and here it is "
                f"{as_text(own)}{what}. Leave it out, or give other data."
            )
        return beyond

    def _reject_target(self, spec: Spec) -> None:
        """Raise ModelError, naming the models that can, where the model cannot learn what the data asks for."""
        # What tells classes apart can tell views, patches or the classes of an episode.
        alike = isinstance(spec.target, Unlabelled | Episodes) and Classes in self.targets
        if not isinstance(spec.target, self.targets) and not alike:
            kind = type(spec.target)  # or a form of it, which the data takes for a model that learns that
            able = [p for p in presets().values() if spec.kind in p.takes]
            fit = [p for p in able if any(issubclass(kind, t) or issubclass(t, kind) for t in p.targets)]
            others = f"these models learn it: {_some(fit, spec.kind)}" if fit else "no model here does"
            running = issubclass(kind, NextToken) and Classes in self.targets
            raise ModelError(
                f"{self.name} does not learn what this {spec.kind} data asks for, {spec.target.column}: {others}."
                f"{CLASSES_OF_TEXT if running else ''}"
            )

    def _reject_longer(self, config: Any, spec: Spec) -> None:
        """Raise ModelError where the data has longer texts than the model can read."""
        context, longest = getattr(config, "context_length", None), getattr(spec, "longest", 0)
        if context is not None and longest > context:
            raise ModelError(
                f"{self.name} reads at most {context:,} tokens (model.context_length), and the longest text has "
                f"{longest:,}: length={context} cuts texts there."
            )

    def image_sizes(self, config: Any) -> ImageSizes:
        """The sizes of images that the model of `config` takes.

        A Config with a `least_size` takes every size from there on, in steps of its `size_step`; one with an
        `image_size` alone takes that size alone.
        """
        at = self.card.published.at
        least: int | None = getattr(config, "least_size", None)
        return ImageSizes(
            only=getattr(config, "image_size", None) if least is None else None,
            least=least or 1,
            step=getattr(config, "size_step", 1),
            usual=at[-1] if len(at) in (3, 4) else ImageSizes.usual,
        )

    def build(self, config: Any, memory_fraction: float = FRACTION) -> nn.Module:
        """The model of that config, freshly initialized from torch's random state.

        Raises ModelError, before anything is made, where it would take more than that fraction of the memory that is
        free; 0 builds it all the same.
        """
        made_of_numbers = torch.get_default_device().type != "meta"
        reject_too_large(self, config, fraction=memory_fraction if made_of_numbers else 0)
        model: nn.Module = self.network(config)
        return model

    def described(self, model: nn.Module) -> dict[str, Any]:
        """What config.json says of a model of this preset: by it the model is built again."""
        family = self.module.__name__.rpartition(".")[2]
        return {"preset": self.name, "family": family, "config": dataclasses.asdict(model.config)}  # type: ignore[call-overload]  # every Model has one


@functools.cache
def presets() -> dict[str, Preset]:
    """Every preset by name, in the order of the files and of their PRESETS."""
    found: dict[str, Preset] = {}
    for file in _files():
        for name, one in presets_of(file).items():
            if name in found:
                raise ValueError(
                    f"two files have a preset {name}: {found[name].module.__name__} and {one.module.__name__}"
                )
            found[name] = one
    return found


def find(name: str) -> Preset | None:
    """The preset of that name, `vit-base-16` for `vit-base/16` too; None where there is none.

    Files whose name the preset's begins with (resnet.py for resnet18) are asked first: who works with one model need
    not wait until all are imported.
    """
    likely = [file for file in _files() if _letters(name).startswith(_letters(file))]
    for file in sorted(likely, key=len, reverse=True):
        if own := _named(name, presets_of(file)):
            return own
    return _named(name, presets())


def _named(name: str, among: Mapping[str, Preset]) -> Preset | None:
    return among.get(name) or next((found for found in among.values() if found.file_name == name), None)


def _files() -> list[str]:
    """The modules of this package, by name."""
    return [info.name for info in pkgutil.iter_modules(importlib.import_module(__package__).__path__)]


@functools.cache
def presets_of(file: str) -> dict[str, Preset]:
    """The presets of one module; none where it is no architecture."""
    module = importlib.import_module(f"{__package__}.{file}")
    of_file = getattr(module, "PRESETS", {})
    missing = [part for part in ("Config", "Model", "CARD") if not hasattr(module, part)]
    if of_file and missing:
        raise ModelError(f"{module.__file__} has PRESETS and no {' and no '.join(missing)}: it needs all.")
    return {name: Preset(name, module, config) for name, config in of_file.items()}


def _letters(name: str) -> str:
    """A name as files and presets have it in common: bertbaseuncased."""
    return "".join(filter(str.isalnum, name))


def preset(name: str) -> Preset:
    """The preset of that name; `vit-base-16` is `vit-base/16` too. Raises UnknownName with the nearest names."""
    if not isinstance(name, str):
        raise ModelError(
            f"A model is named, as `cutaway list` names them, or is a torch.nn.Module, and this is a "
            f"{type(name).__name__}."
        )
    found = find(name)
    if found is None:
        raise UnknownName("model", name, presets(), "`cutaway list` shows them all.")
    return found


def _called(kind: str) -> str:
    """Return the name of a kind of data as a sentence has it."""
    return "sequence-pair (seq2seq)" if kind == "seq2seq" else kind


def _some(found: Sequence[Preset], kind: str) -> str:
    """Return the names of presets; of more than SHOWN some: one of each architecture, classifiers of this kind of data
    and small ones first."""
    if len(found) <= SHOWN:
        return ", ".join(p.name for p in found)
    first = {p.network: p for p in reversed(found)}.values()
    size = {p.name: p.card.published_parameters or math.inf for p in first}
    order = sorted(first, key=lambda p: (Classes not in p.targets, p.takes[0] != kind, size[p.name]))
    names = ", ".join(p.name for p in order[:SHOWN])
    return f"{names}, … (`cutaway list --takes {kind}` lists all of this kind)"


def list_models(family: str | None = None, takes: str | None = None) -> list[str]:
    """The presets' names, of one family (`dense`, `cnn`, …) or for one kind of data (`table`, `image`, …).

    Raises UnknownName for a family or a kind of data that no model has.
    """
    families = {p.card.card.family for p in presets().values()}
    kinds = {kind for p in presets().values() for kind in p.takes}
    for what, given, known in (("family of models", family, families), ("kind of data", takes, kinds)):
        if given is not None and given not in known:
            raise UnknownName(what, str(given), known)
    return [
        p.name
        for p in presets().values()
        if (family is None or p.card.card.family == family) and (takes is None or takes in p.takes)
    ]


def create_model(name: str, **settings: Any) -> nn.Module:
    """Build a preset, changed by keywords: `create_model("resnet18", num_classes=10, in_channels=1)`.

    Weights are freshly initialized from torch's random state (`torch.manual_seed` makes them repeatable).
    Raises UnknownName for a name or keyword that does not exist, ModelError for a value that cannot be.
    """
    found = preset(name)
    return found.build(found.configure(settings=settings))


def card(name: str) -> PresetCard:
    """The facts that a preset is held to: source, counts, oracle, divergences."""
    return preset(name).card


__all__ = ["Card", "Preset", "PresetCard", "card", "create_model", "find", "list_models", "preset", "presets"]
