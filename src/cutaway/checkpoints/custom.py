"""Custom modules with the interface of a preset.

Any `nn.Module` is supported whose forward takes tensors and returns logits or values.

The module itself is trained. `called` returns the same module, with the same parameters, buffers, hooks and children,
under a class that differs only in its forward. That forward takes all tensors of a batch and passes on those that the
module's forward requests, contiguous unless channels_last=true is given. It returns outputs in the shape of the task:
values (N,) become (N, 1).

    data                            tensors of a batch, in this order
    table, image, series            x, (N, F), (N, C, H, W), (N, T, F)
    text                            tokens (N, T), mask (N, T), True where a token is real
    audio, video                    frames (N, T, …), mask (N, T)
    series with known_future        x, known_future (N, H, K)
    graph                           x (V, F), edge_index (2, E), rows (n,), batch (V,), edge_attr (E, D)

A parameter of forward gets the tensor of the same name. A required parameter with another name gets the next tensor. So
`forward(self, tokens)` and `forward(self, tokens, mask)` both work. A parameter with a default and another name, such
as the state of a recurrent layer, keeps its default. For one graph the outputs may be those of all nodes, (V, K).
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..core.errors import IncompatibleSettingError, ModelError
from ..core.memory_budget import FRACTION
from ..core.spec import (
    KINDS,
    Classes,
    GraphSpec,
    Horizon,
    ImageSizes,
    Mask,
    Masked,
    NextToken,
    PairSpec,
    SeriesSpec,
    Spec,
    TableSpec,
    Tags,
    Target,
    TextSpec,
    Tokens,
    Transcript,
    Value,
)
from ..models.base import BaseModel, SupportsDecoding
from ..models.card import Card, PresetCard
from ..models.registry import Preset, preset
from .deferred_init import copy_to_meta

# Tensors of a batch, with the parameter names that a forward may use for each.
MASK = ("mask", "attention_mask")
TOKENS = ("tokens", "input_ids")
BATCH_TENSORS: dict[str, tuple[tuple[str, ...], ...]] = {
    "table": (("x",),),
    "image": (("x", "images"), ("target_so_far",)),
    "text": (TOKENS, MASK),
    "seq2seq": (("source", "src"), ("source_mask", "src_mask"), ("target_so_far", "target", "tgt")),
    "series": (("x",), ("known_future",)),
    "audio": (("x",), MASK, ("target_so_far",)),
    "video": (("x",), MASK),
    "graph": (("x",), ("edge_index", "edges"), ("rows",), ("batch",), ("edge_attr",)),
}
Plan = tuple[list[int], dict[str, int]]  # indices of batch tensors that forward takes by position and by name
NOT_CONTIGUOUS = "view size is not compatible"  # in PyTorch's message of view()
ROWS = 2  # index of the requested nodes in a graph batch
SUPPORTED_TARGETS: tuple[type[Target], ...] = (Classes, Value, Tags, Mask, NextToken, Masked, Horizon, Transcript)
CARD = Card(
    title="a module of one's own",
    authors="",
    year=0,
    link="",
    family="dense",
    equation="",
    oracle="none: it is held to no other implementation",
    published={},
)


@dataclass
class Config:
    """Input of `Model`: the module and the data it learns from. It is not a description, and is not saved."""

    module: nn.Module
    spec: Spec | None = None
    channels_last: bool = False


def Model(config: Config) -> nn.Module:  # noqa: N802  # same name as in modules of model families
    """Return the module adapted to the data of `config.spec`. On the meta device it is a copy without values."""
    module = copy_to_meta(config.module) if torch.get_default_device().type == "meta" else config.module
    return adapt_module(module, config.spec, config.channels_last)


class CustomPreset(Preset):
    """Preset of a custom module."""

    def __init__(self, module: nn.Module) -> None:
        """Create the preset. Raises ModelError for a module whose forward is not that of its class."""
        module = unadapted(module)
        name = type(module).__name__
        if "forward" in vars(module) or isinstance(module, torch.jit.ScriptModule):
            raise ModelError(
                f"This {name} is a module that was compiled or scripted, or whose forward was replaced: give the "
                "module that it was made of. compile=true compiles it for training."
            )
        super().__init__(name, sys.modules[__name__], Config(module))

    @property
    def custom_module(self) -> nn.Module:
        """Return the module."""
        module: nn.Module = self.config.module
        return module

    @property
    def path(self) -> str:
        """Return the import path of the class, such as nets.Net. It is only reported and never imported."""
        return f"{type(self.custom_module).__module__}.{type(self.custom_module).__qualname__}"

    @property
    def card(self) -> PresetCard:
        """Return a card with the family of the module's layers."""
        return PresetCard(self.name, dataclasses.replace(CARD, title=f"{self.path}, {CARD.title}", family=self._family))

    @property
    def _family(self) -> str:
        kinds: dict[str, tuple[type[nn.Module], ...]] = {
            "transformer": (nn.MultiheadAttention, nn.TransformerEncoderLayer),
            "rnn": (nn.RNNBase, nn.RNNCellBase),
            "cnn": (nn.Conv1d, nn.Conv2d, nn.Conv3d),
        }
        if "edge_index" in inspect.signature(self.custom_module.forward).parameters:
            return "graph"
        found = [
            name for name, types in kinds.items() if any(isinstance(m, types) for m in self.custom_module.modules())
        ]
        return found[0] if found else "dense"

    @property
    def network(self) -> type[BaseModel]:
        """Return the class of the module if it is a Network, otherwise the class with defaults."""
        return type(self.custom_module) if isinstance(self.custom_module, BaseModel) else BaseModel

    @property
    def takes(self) -> tuple[str, ...]:
        """Return the supported kinds of data: all, unless the class defines them.

        Pairs of sequences need a module that generates token by token. A forward that takes tokens does not take rows
        and series.
        """
        if hasattr(self.network, "takes"):
            return super().takes
        other = () if isinstance(self.custom_module, SupportsDecoding) else (PairSpec.kind,)
        if set(TOKENS) & set(inspect.signature(self.custom_module.forward).parameters):
            other = (*other, TableSpec.kind, SeriesSpec.kind)  # so that arrays of whole numbers are token ids
        return tuple(kind for kind in KINDS if kind not in other)

    @property
    def targets(self) -> tuple[type[Target], ...]:
        """Return the supported targets: all with logits or values as outputs, unless the class defines them."""
        if isinstance(self.custom_module, BaseModel):
            return super().targets
        return (*SUPPORTED_TARGETS, Tokens) if isinstance(self.custom_module, SupportsDecoding) else SUPPORTED_TARGETS

    @property
    def setting_names(self) -> tuple[str, ...]:
        """Return no settings, because the module exists already."""
        return ()

    def parse(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return no settings. Raises SettingError if any are given."""
        if given:
            key = next(iter(given))
            raise IncompatibleSettingError(
                f"model.{key} cannot be set: {self.name} is a custom module, which was built before. Leave the "
                "setting out, and build the module with it."
            )
        return {}

    def configure(self, spec: Spec | None = None, settings: Mapping[str, Any] | None = None) -> Config:
        """Return the input of `build`. Raises ModelError for unsupported data, SettingError for settings."""
        self.parse(settings or {})
        if spec is not None:
            self.reject_kind(spec.kind)
            self._reject_target(spec)
        return Config(self.custom_module, spec)

    def image_sizes(self, config: Any) -> ImageSizes:
        """Allow images of any size. The module rejects those that it does not support."""
        return ImageSizes()

    def build(self, config: Any, memory_fraction: float = FRACTION) -> nn.Module:
        """Return the module of the config, which exists already."""
        return Model(config)

    def described(self, model: nn.Module) -> dict[str, Any]:
        """Return the entry of config.json: the import path of the class."""
        return {"own": self.path}


def preset_for(model: object) -> Preset:
    """Return the preset of a name, or of a custom module.

    Raises UnknownName with similar names, and ModelError for other types.
    """
    if isinstance(model, nn.Module):
        return CustomPreset(model)
    if isinstance(model, type) and issubclass(model, nn.Module):
        raise ModelError(f"{model.__name__} is a class: give a module that is made, {model.__name__}().")
    return preset(model)  # type: ignore[arg-type]  # other types are rejected there


def copy_custom_module(model: nn.Module | type[nn.Module]) -> nn.Module:
    """Return a new module from a class, or a copy of a module, to load the weights of a run into.

    Raises ModelError if it cannot be created.
    """
    name = model.__name__ if isinstance(model, type) else type(model).__name__
    try:
        return model() if isinstance(model, type) else copy.deepcopy(unadapted(model))
    except (TypeError, RuntimeError) as error:
        way = "made with its arguments" if isinstance(model, type) else "a new one, whose tensors are its own,"
        raise ModelError(f"No {name} can be made to hold the weights: {error}. Hand over a module {way}.") from error


# --- forward of custom modules ---------------------------------------------------------------------------------------


def adapt_module(module: nn.Module, spec: Spec | None, channels_last: bool = False) -> nn.Module:
    """Return the same module with a forward that takes batches of `spec` and returns task outputs.

    It shares all state with `module`. Without a spec the forward is unchanged. Inputs are made contiguous unless
    `channels_last` is set.
    """
    own: type[nn.Module] = type(module)
    plans: dict[int, Plan] = {}  # by the number of tensors of a batch

    def forward(self: nn.Module, *inputs: Any) -> Any:
        """Call the own forward with its arguments by name, and convert its outputs."""
        if spec is not None and spec.kind == TextSpec.kind and inputs[1:] in ((), (None,)):  # no padding
            inputs = inputs[0], torch.ones_like(inputs[0], dtype=torch.bool)
        if len(inputs) not in plans:
            plans[len(inputs)] = bind_arguments(own.forward, len(inputs), spec)
        args, named = plans[len(inputs)]
        if not channels_last:
            inputs = tuple(_to_contiguous(x) if isinstance(x, Tensor) else x for x in inputs)
        try:
            given = own.forward(self, *(inputs[i] for i in args), **{name: inputs[i] for name, i in named.items()})
        except RuntimeError as error:
            if NOT_CONTIGUOUS not in str(error):
                raise
            way_out = ", or give channels_last=false" if channels_last else ""
            raise ModelError(
                f"{own.__name__} calls view() on a tensor that is not contiguous: use reshape() or flatten(1) instead"
                f"{way_out}."
            ) from error
        return to_task_outputs(given, spec, inputs, asked_for=ROWS in args or ROWS in named.values())

    twin = type(own.__name__, (own,), {"forward": forward, "__module__": own.__module__, "own_class": own})
    made: nn.Module = object.__new__(twin)
    made.__dict__ = module.__dict__
    return made


def _to_contiguous(x: Tensor) -> Tensor:
    """Return a contiguous tensor whose strides are the default ones.

    Gray images in the channels-last format are contiguous already, but by their strides, convolutions return channels
    last.
    """
    x = x.contiguous()
    return x.flatten().view(x.shape) if x.ndim > 3 and x.shape[-3] == 1 else x


def is_adapted(module: nn.Module) -> bool:
    """Return whether a module was adapted by `called`."""
    return hasattr(type(module), "own_class")


def unadapted(module: nn.Module) -> nn.Module:
    """Return the module under its own class, if it was adapted by `called`."""
    if not is_adapted(module):
        return module
    made: nn.Module = object.__new__(type(module).own_class)  # type: ignore[attr-defined]
    made.__dict__ = module.__dict__
    return made


def bind_arguments(forward: Callable[..., Any], count: int, spec: Spec | None) -> Plan:
    """Return which of the `count` tensors of a batch a forward takes by position and by name."""
    left = list(range(count))
    if spec is None:
        return left, {}
    holds = BATCH_TENSORS[spec.kind]
    args: list[int] = []
    named: dict[str, int] = {}
    _, *parameters = inspect.signature(forward).parameters.values()  # the first is the module
    meant = {p.name: i for p in parameters for i, names in enumerate(holds) if p.name in names and i in left}
    by_place = True
    for p in parameters:
        if p.kind is p.VAR_POSITIONAL:
            args += left
            left = []
            continue
        free = [i for i in left if i not in meant.values()]
        i = meant.get(p.name, free[0] if free and p.default is p.empty and p.kind is not p.VAR_KEYWORD else None)
        if i is None:
            by_place = False  # it keeps its default, and later ones are passed by name
            continue
        left.remove(i)
        if by_place and p.kind is not p.KEYWORD_ONLY:
            args.append(i)
        else:
            named[p.name] = i
    return args, named


def to_task_outputs(given: Any, spec: Spec | None, inputs: tuple[Tensor, ...], asked_for: bool) -> Any:
    """Convert the outputs of a module to the shape of the task.

    For one graph the requested nodes are selected, unless the module received them (`asked_for`). Values (N,) become
    (N, 1). Steps and columns of a forecast are flattened. Outputs of other shapes are unchanged.
    """
    if spec is None or not isinstance(given, Tensor):
        return given
    if isinstance(spec, GraphSpec) and not spec.graph_level and len(inputs) > ROWS and not asked_for:
        given = given.index_select(0, inputs[ROWS]) if len(given) == len(inputs[0]) else given
    if isinstance(spec.target, Value | Classes) and given.ndim == 1:
        return given[:, None]
    if isinstance(spec.target, Horizon) and given.ndim == 3:
        return given.flatten(1)
    return given
