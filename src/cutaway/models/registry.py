"""The model registry: presets by name, their cards, and models built from them.

Every module of `cutaway.models` that has `PRESETS` is one architecture; nothing is registered by hand. Other packages
add architectures by entry points of the group `cutaway.models`, whose objects are such modules.
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
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import nn

from ..core.config import as_text, parse
from ..core.errors import IncompatibleSettingError, ModelError, SettingError, UnknownName, join, shorten
from ..core.memory_budget import FRACTION, reject_too_large
from ..core.plugins import add_plugins, reject_duplicates
from ..core.spec import Classes, Episodes, ImageSizes, ImageSpec, NextToken, Spec, Target, Unlabelled
from .base import BaseModel
from .card import Card, PresetCard

if TYPE_CHECKING:
    from ..core.typed_names import AnyName, PresetName

# Names of Config fields before 0.7, and their names now in the different families. An error for an old name states the
# new one, and models saved before 0.7 can be loaded. To be dropped at 1.0.
RENAMED_FIELDS = {
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
OUTPUT_FIELDS = ("num_classes", "target_vocab_size")  # fields with the size of the head's output
MAX_LISTED_PRESETS = 8  # presets that an error message lists
CLASSES_OF_TEXT = (
    " To learn classes of texts, give a table (text=COLUMN target=COLUMN), or a folder with one folder of .txt files "
    "for each class."
)
REMOVED_FIELDS = ("num_classes",)  # fields that some families dropped, because they always equal vocab_size


@dataclass(frozen=True)
class Preset:
    """A named model configuration.

    Example:
        >>> found = preset("resnet18")
        >>> found.takes, found.config.num_classes
        (('image',), 1000)
        >>> model = found.build(found.configure(settings={"num_classes": 10}))
        >>> model(torch.zeros(2, 3, 64, 64)).shape
        torch.Size([2, 10])
    """

    name: str  # such as vit-base/16
    module: ModuleType  # the module that defines it, with Config, Model, PRESETS and CARD
    config: Any  # the Config with the values of the preset

    @property
    def file_name(self) -> str:
        """The name for paths, with hyphens in place of slashes: vit-base-16."""
        return self.name.replace("/", "-")

    @property
    def card(self) -> PresetCard:
        """The card of this preset."""
        return PresetCard(self.name, self.module.CARD)

    @property
    def network(self) -> type[BaseModel]:
        """The class of its models."""
        network: type[BaseModel] = self.module.Model
        return network

    @property
    def takes(self) -> tuple[str, ...]:
        """The kinds of data that the model accepts: table, image, text, seq2seq, series, audio, video or graph."""
        return tuple(spec.kind for spec in self.network.takes)

    @property
    def targets(self) -> tuple[type[Target], ...]:
        """The target types that the model can learn, of `cutaway.core.spec`."""
        return self.network.targets

    @property
    def setting_names(self) -> tuple[str, ...]:
        """The names of the model settings, which are the fields of its Config."""
        return tuple(f.name for f in dataclasses.fields(self.config))

    def current_name(self, field: str) -> str:
        """Return the current name of a Config field that may have been renamed."""
        names = (field, *RENAMED_FIELDS.get(field, ()))
        return next((name for name in names if name in self.setting_names), field)

    def as_now(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields of a saved Config under their current names.

        Fields that no longer exist are left out if they are None or equal to `vocab_size`.
        """
        names = {field: self.current_name(field) for field in config}
        now = {field if names[field] in config else names[field]: value for field, value in config.items()}
        idle = (None, now.get("vocab_size"))
        gone = {field for field in REMOVED_FIELDS if field not in self.setting_names and now.get(field) in idle}
        return {field: value for field, value in now.items() if field not in gone}

    def parse(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the model's own settings, each parsed to its field's type. Raises UnknownName, SettingError."""
        hints = typing.get_type_hints(type(self.config))
        for key in given:
            if key not in hints and self.current_name(key) in hints:
                raise SettingError(
                    f"{key} is now {self.current_name(key)}: `cutaway show {self.name}` says what it takes.",
                    code="CUT-102",
                )
            if key not in hints:
                raise UnknownName(
                    f"setting of {self.name} named", key, hints, f"`cutaway show {self.name}` lists them."
                )
        return {key: parse(key, value, hints[key]) for key, value in given.items()}

    def reject_kind(self, kind: str, find_way_out: Callable[[], str] = str) -> None:
        """Raise ModelError if the model does not accept this modality.

        The message lists models that do.

        `find_way_out` returns a sentence with an alternative, or an empty string; it is called only for such an error.
        """
        if kind not in self.takes:
            way_out = find_way_out()
            accepted = join([_modality_name(k) for k in self.takes], "or")
            raise ModelError(
                f"{self.name} takes {accepted} data, and this is {_modality_name(kind)} "
                f"data. {f'{way_out} ' if way_out else ''}"
                f"These models take it{' as it is' if way_out else ''}: "
                f"{_format_presets([p for p in presets().values() if kind in p.takes], kind)}."
            )

    def configure(self, spec: Spec | None = None, settings: Mapping[str, Any] | None = None) -> Any:
        """Return the preset's Config, adapted to the data and with changed settings.

        Args:
            spec: Spec of the data, which determines the sizes of inputs and outputs. By default, those of the preset.
            settings: Values of Config fields by name; a string is parsed to the type of the field. By default, none.

        Returns:
            The Config.

        Raises:
            ModelError: If the model does not accept this kind of data, or cannot learn its target.
            UnknownName: If the model has no setting of that name.
            SettingError: If a setting cannot be parsed, or contradicts the data.
        """
        config = self.config
        if spec is not None:
            self.reject_kind(spec.kind)
            self._reject_target(spec)
        asked = self.parse(settings or {})
        if spec is not None and isinstance(spec.target, Classes) and asked.get("num_classes") == 1:
            if not spec.target.accepts_one_logit:
                count = spec.target.outputs
                raise IncompatibleSettingError(
                    f"Invalid model.num_classes=1: one logit is for two classes, and the data has {count} "
                    f"({spec.target.column}). Leave it out."
                )
            if getattr(config, "shares_output", False):
                del asked["num_classes"]  # two classes have one output already
        config = dataclasses.replace(config, **asked)
        if spec is not None:
            fitted = type(config).for_spec(config, spec)
            config = dataclasses.replace(fitted, **self._settings_beyond_data(asked, fitted, spec))
            self._reject_longer(config, spec)
        return config

    def _settings_beyond_data(self, asked: Mapping[str, Any], fitted: Any, spec: Spec) -> dict[str, Any]:
        """Return the settings that may differ from the config fitted to the data.

        These are longer contexts, larger vocabularies, and one logit for two classes. Raises SettingError for any other
        setting that the data determines.
        """
        beyond = {}
        for key, value in asked.items():
            own = getattr(fitted, key)
            if key in OUTPUT_FIELDS and value is not None:
                own = spec.target.outputs
            elif key == "image_size" and isinstance(spec, ImageSpec):
                own = max(spec.height, spec.width)
            if value == own or value in (None, "auto"):
                continue
            if key == "context_length" or (key == "vocab_size" and value > own > 0):
                beyond[key] = value
                continue
            if key == "num_classes" and value == 1 and isinstance(spec.target, Classes):
                beyond[key] = value
                continue
            what = f" ({spec.target.column})" if key in OUTPUT_FIELDS else ""
            raise IncompatibleSettingError(
                f"Invalid model.{key}={shorten(as_text(value))}: the data sets {key} to {as_text(own)}{what}. Leave it "
                "out, or give other data."
            )
        return beyond

    def _reject_target(self, spec: Spec) -> None:
        """Raise ModelError if the model cannot learn the target of the data. The message lists models that can."""
        # A classifier can also learn views, patches or the classes of an episode.
        alike = isinstance(spec.target, Unlabelled | Episodes) and Classes in self.targets
        if not isinstance(spec.target, self.targets) and not alike:
            kind = type(spec.target)  # or a subclass or superclass of it
            able = [p for p in presets().values() if spec.kind in p.takes]
            fit = [p for p in able if any(issubclass(kind, t) or issubclass(t, kind) for t in p.targets)]
            others = f"these models learn it: {_format_presets(fit, spec.kind)}" if fit else "no model here does"
            running = issubclass(kind, NextToken) and Classes in self.targets
            raise ModelError(
                f"{self.name} does not learn what this {spec.kind} data asks for, {spec.target.column}: {others}."
                f"{CLASSES_OF_TEXT if running else ''}"
            )

    def _reject_longer(self, config: Any, spec: Spec) -> None:
        """Raise ModelError if the data has longer texts than the model can read."""
        context, longest = getattr(config, "context_length", None), getattr(spec, "longest", 0)
        if context is not None and longest > context:
            raise ModelError(
                f"{self.name} reads at most {context:,} tokens (model.context_length), and the longest text has "
                f"{longest:,}: length={context} cuts texts there."
            )

    def image_sizes(self, config: Any) -> ImageSizes:
        """Return the image sizes that the model of `config` accepts.

        A Config with a `least_size` accepts every size from there on, in steps of its `size_step`. One with only an
        `image_size` accepts that size only.
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
        """Build a model with random weights, initialized from torch's random state.

        Args:
            config: A Config of this architecture, as `configure` returns it.
            memory_fraction: Largest fraction of the free memory that the weights may take. 0 disables the check.

        Returns:
            The model, in training mode.

        Raises:
            MemoryLimitError: If the weights would take more memory. This is checked before they are allocated.
        """
        made_of_numbers = torch.get_default_device().type != "meta"
        reject_too_large(self, config, fraction=memory_fraction if made_of_numbers else 0)
        model: nn.Module = self.network(config)
        return model

    def described(self, model: nn.Module) -> dict[str, Any]:
        """Return the entries of config.json for a model of this preset, from which the model can be rebuilt."""
        family = self.module.__name__.rpartition(".")[2]
        return {"preset": self.name, "family": family, "config": dataclasses.asdict(model.config)}  # type: ignore[call-overload]  # every Model has one


@functools.cache
def presets() -> dict[str, Preset]:
    """Return all presets by name: those of Cutaway, module by module, and then those of other packages.

    A module of another package that is incomplete, or has the name of an existing preset, is left out with a warning.

    Example:
        >>> "resnet18" in presets()
        True
    """
    found: dict[str, Preset] = {}
    for file in _model_files():
        for name, one in presets_in_module(file).items():
            if name in found:
                raise ValueError(
                    f"two files have a preset {name}: {found[name].module.__name__} and {one.module.__name__}"
                )
            found[name] = one

    def add(name: str, module: Any) -> None:
        own = _presets_of(module)
        if not own:
            raise ModelError(f"{name} needs PRESETS, a dictionary from names to configs.")
        for one in own.values():
            if not (one.takes and one.targets and one.card):  # read here, so that their errors are this plugin's
                raise ModelError(f"{one.name} needs takes, targets and a CARD.")
        reject_duplicates("model", own, found)
        found.update(own)

    add_plugins("cutaway.models", add)
    return found


def find(name: str) -> Preset | None:
    """Return the preset of a name, or None if there is none.

    Args:
        name: Name of the preset. Slashes may be written as hyphens: `vit-base-16`.

    Example:
        >>> find("vit-base-16").name
        'vit-base/16'
        >>> find("resnet-18") is None
        True
    """
    # A module whose name begins the preset's name is searched first, so that one model does not import all of them.
    likely = [file for file in _model_files() if _normalize_name(name).startswith(_normalize_name(file))]
    for file in sorted(likely, key=len, reverse=True):
        if own := _lookup(name, presets_in_module(file)):
            return own
    return _lookup(name, presets())


def _lookup(name: str, among: Mapping[str, Preset]) -> Preset | None:
    return among.get(name) or next((found for found in among.values() if found.file_name == name), None)


def _model_files() -> list[str]:
    """Return the names of the modules of this package."""
    return [info.name for info in pkgutil.iter_modules(importlib.import_module(__package__).__path__)]


@functools.cache
def presets_in_module(file: str) -> dict[str, Preset]:
    """Return the presets of one module; an empty dictionary if it is not a model file."""
    return _presets_of(importlib.import_module(f"{__package__}.{file}"))


def _presets_of(module: ModuleType) -> dict[str, Preset]:
    """Return the presets of a module, an empty dictionary if it has none. Raises ModelError if it is incomplete."""
    of_file = getattr(module, "PRESETS", {})
    missing = [part for part in ("Config", "Model", "CARD") if not hasattr(module, part)]
    if of_file and missing:
        raise ModelError(f"{module.__file__} has PRESETS and no {' and no '.join(missing)}: it needs all.")
    return {name: Preset(name, module, config) for name, config in of_file.items()}


def _normalize_name(name: str) -> str:
    """Return the letters and digits of a name, to compare file and preset names: bertbaseuncased."""
    return "".join(filter(str.isalnum, name))


def preset(name: str) -> Preset:
    """Return the preset of a name.

    Args:
        name: Name of the preset, as in `list_models()`. Slashes may be written as hyphens: `vit-base-16`.

    Raises:
        UnknownName: If there is no such preset. The message lists similar names.
        ModelError: If `name` is not a string.

    Example:
        >>> preset("mlp").configure(settings={"in_features": 4, "num_classes": 3}).hidden_dims
        (256, 256)
        >>> preset("resnet19")
        Traceback (most recent call last):
        cutaway.core.errors.UnknownName: There is no model 'resnet19'. Similar: ...
    """
    if not isinstance(name, str):
        raise ModelError(
            f"Invalid model of type {type(name).__name__}: must be a name that `cutaway list` shows, or a "
            "torch.nn.Module."
        )
    found = find(name)
    if found is None:
        raise UnknownName("model", name, presets(), "`cutaway list` shows them all.")
    return found


def _modality_name(kind: str) -> str:
    """Return the display name of a modality."""
    return "sequence-pair (seq2seq)" if kind == "seq2seq" else kind


def _format_presets(found: Sequence[Preset], kind: str) -> str:
    """Return the names of presets, separated by commas, at most SHOWN of them.

    A longer list is reduced to one preset of each architecture; classifiers of this modality and small models come
    first.
    """
    if len(found) <= MAX_LISTED_PRESETS:
        return ", ".join(p.name for p in found)
    first = {p.network: p for p in reversed(found)}.values()
    size = {p.name: p.card.published_parameters or math.inf for p in first}
    order = sorted(first, key=lambda p: (Classes not in p.targets, p.takes[0] != kind, size[p.name]))
    names = ", ".join(p.name for p in order[:MAX_LISTED_PRESETS])
    return f"{names}, … (`cutaway list --takes {kind}` lists all of this kind)"


def list_models(family: str | None = None, takes: str | None = None) -> list[PresetName]:
    """List the names of the presets.

    Args:
        family: Only models of this family, such as `dense`, `cnn` or `transformer`. By default, all.
        takes: Only models that accept this kind of data, such as `table`, `image` or `text`. By default, all.

    Returns:
        The names, sorted by module; those of other packages come last.

    Raises:
        UnknownName: If no model has that family or accepts that kind of data.
    """
    families = {p.card.card.family for p in presets().values()}
    kinds = {kind for p in presets().values() for kind in p.takes}
    for what, given, known in (("family of models", family, families), ("kind of data", takes, kinds)):
        if given is not None and given not in known:
            raise UnknownName(what, str(given), known)
    return [
        cast("PresetName", p.name)
        for p in presets().values()
        if (family is None or p.card.card.family == family) and (takes is None or takes in p.takes)
    ]


def create_model(name: PresetName | AnyName, **settings: Any) -> nn.Module:
    """Create a model with random weights: `create_model("resnet18", num_classes=10, in_channels=1)`.

    The weights are initialized from torch's random state; `torch.manual_seed` makes them reproducible.

    Args:
        name: Name of the preset, as in `list_models()`.
        **settings: Model settings to change, as listed by `cutaway show NAME`. Others have the values of the preset.

    Returns:
        The model, in training mode, on the CPU unless torch has another default device.

    Raises:
        UnknownName: If the preset or a setting does not exist.
        SettingError: If a value cannot be parsed.
        ModelError: If a value is invalid.
        MemoryLimitError: If the model would not fit into memory. It is also a ModelError.
    """
    found = preset(name)
    return found.build(found.configure(settings=settings))


def card(name: PresetName | AnyName) -> PresetCard:
    """Return the card of a preset: paper, parameter counts, reference implementation, divergences and settings.

    Args:
        name: Name of the preset, as in `list_models()`.

    Returns:
        The card of the preset, whose `card` is that of the architecture.

    Raises:
        UnknownName: If the preset does not exist.
    """
    return preset(name).card


__all__ = ["Card", "Preset", "PresetCard", "card", "create_model", "find", "list_models", "preset", "presets"]
