"""A module of a person's own, asked and answered as a preset is: any `nn.Module` whose forward takes tensors and gives
logits or values.

What learns is the module itself: `called` gives the same module, with the same parameters, buffers, hooks and children,
under a class that differs in its forward alone. That one takes all that a batch of the data holds, hands on what the
module's forward asks for, contiguous unless channels_last=true was given, and gives answers of the shape that the task
has: values (N,) as (N, 1).

    examples                        a batch holds, in this order
    table, image, series            x, (N, F), (N, C, H, W), (N, T, F)
    text                            tokens (N, T), mask (N, T), True where a token is real
    audio, video                    frames (N, T, …), mask (N, T)
    series with known_future        x, known_future (N, H, K)
    graph                           x (V, F), edge_index (2, E), rows (n,), batch (V,), edge_attr (E, D)

A parameter of forward is given what has its name; one that must be given, under whatever name, what comes next. So
`forward(self, tokens)` and `forward(self, tokens, mask)` both do; a parameter with a default and another name, as the
state of a recurrent layer, keeps its default. Of one graph the answers may be for all nodes, (V, K).
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

from ..core.errors import ModelError, SettingError
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
from ..models.base import Decodes, Network
from ..models.card import Card, PresetCard
from ..models.registry import Preset, preset
from .deferred_init import without_numbers

# What a batch holds, by the names that a forward may have for it.
MASK = ("mask", "attention_mask")
TOKENS = ("tokens", "input_ids")
HOLDS: dict[str, tuple[tuple[str, ...], ...]] = {
    "table": (("x",),),
    "image": (("x", "images"), ("target_so_far",)),
    "text": (TOKENS, MASK),
    "seq2seq": (("source", "src"), ("source_mask", "src_mask"), ("target_so_far", "target", "tgt")),
    "series": (("x",), ("known_future",)),
    "audio": (("x",), MASK, ("target_so_far",)),
    "video": (("x",), MASK),
    "graph": (("x",), ("edge_index", "edges"), ("rows",), ("batch",), ("edge_attr",)),
}
Plan = tuple[list[int], dict[str, int]]  # which tensors of a batch go to forward, by place and by name
NOT_CONTIGUOUS = "view size is not compatible"  # in PyTorch's message of view()
ROWS = 2  # of what a graph's batch holds: the nodes that are asked for
LEARNED: tuple[type[Target], ...] = (Classes, Value, Tags, Mask, NextToken, Masked, Horizon, Transcript)
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
    """What is asked of `Model`: the module, and what it is to learn from. It is no description, and is not written."""

    module: nn.Module
    spec: Spec | None = None
    channels_last: bool = False


def Model(config: Config) -> nn.Module:  # noqa: N802  # where a family of models has its class
    """The module, called as the data of `config.spec` has it; on the meta device a copy with shapes and no numbers."""
    module = without_numbers(config.module) if torch.get_default_device().type == "meta" else config.module
    return called(module, config.spec, config.channels_last)


class Own(Preset):
    """A module of one's own where a preset is asked for."""

    def __init__(self, module: nn.Module) -> None:
        """Raises ModelError for a module that is not called by a forward of its class."""
        module = bare(module)
        name = type(module).__name__
        if "forward" in vars(module) or isinstance(module, torch.jit.ScriptModule):
            raise ModelError(
                f"This {name} is a module that was compiled or scripted, or whose forward was replaced: give the "
                "module that it was made of. compile=true compiles it for training."
            )
        super().__init__(name, sys.modules[__name__], Config(module))

    @property
    def given(self) -> nn.Module:
        """The module itself."""
        module: nn.Module = self.config.module
        return module

    @property
    def path(self) -> str:
        """Where its class stands: nets.Net. It is said, and never imported."""
        return f"{type(self.given).__module__}.{type(self.given).__qualname__}"

    @property
    def card(self) -> PresetCard:
        """What is known of it: the family that its layers are of."""
        return PresetCard(self.name, dataclasses.replace(CARD, title=f"{self.path}, {CARD.title}", family=self._family))

    @property
    def _family(self) -> str:
        kinds: dict[str, tuple[type[nn.Module], ...]] = {
            "transformer": (nn.MultiheadAttention, nn.TransformerEncoderLayer),
            "rnn": (nn.RNNBase, nn.RNNCellBase),
            "cnn": (nn.Conv1d, nn.Conv2d, nn.Conv3d),
        }
        if "edge_index" in inspect.signature(self.given.forward).parameters:
            return "graph"
        found = [name for name, types in kinds.items() if any(isinstance(m, types) for m in self.given.modules())]
        return found[0] if found else "dense"

    @property
    def network(self) -> type[Network]:
        """Its class, where that says what a Network says; else that of defaults."""
        return type(self.given) if isinstance(self.given, Network) else Network

    @property
    def takes(self) -> tuple[str, ...]:
        """Every kind of data, unless its class says which: pairs of sequences where it writes token by token, rows and
        series where its forward does not say that it takes tokens."""
        if hasattr(self.network, "takes"):
            return super().takes
        other = () if isinstance(self.given, Decodes) else (PairSpec.kind,)
        if set(TOKENS) & set(inspect.signature(self.given.forward).parameters):
            other = (*other, TableSpec.kind, SeriesSpec.kind)  # so that arrays of whole numbers are token ids
        return tuple(kind for kind in KINDS if kind not in other)

    @property
    def targets(self) -> tuple[type[Target], ...]:
        """What has logits or values for answers, unless its class says otherwise."""
        if isinstance(self.given, Network):
            return super().targets
        return (*LEARNED, Tokens) if isinstance(self.given, Decodes) else LEARNED

    @property
    def setting_names(self) -> tuple[str, ...]:
        """None: the module is made."""
        return ()

    def parse(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """No settings. Raises SettingError for one."""
        if given:
            key = next(iter(given))
            raise SettingError(
                f"model.{key} cannot be set: {self.name} is a module of one's own, and is what it was made as. Leave "
                "it out, and make the module otherwise."
            )
        return {}

    def configure(self, spec: Spec | None = None, settings: Mapping[str, Any] | None = None) -> Config:
        """What `build` takes. Raises ModelError where the module cannot take that kind of data, SettingError for
        settings."""
        self.parse(settings or {})
        if spec is not None:
            self.reject_kind(spec.kind)
            self._reject_target(spec)
        return Config(self.given, spec)

    def image_sizes(self, config: Any) -> ImageSizes:
        """Images of any size are tried: what the module cannot take it rejects."""
        return ImageSizes()

    def build(self, config: Any, memory_fraction: float = FRACTION) -> nn.Module:
        """The module of the config, which is made already."""
        return Model(config)

    def described(self, model: nn.Module) -> dict[str, Any]:
        """What config.json says of it: where its class stands."""
        return {"own": self.path}


def preset_for(model: object) -> Preset:
    """The preset of that name, or the module of one's own as one. Raises UnknownName with the nearest names, ModelError
    for what is neither."""
    if isinstance(model, nn.Module):
        return Own(model)
    if isinstance(model, type) and issubclass(model, nn.Module):
        raise ModelError(f"{model.__name__} is a class: give a module that is made, {model.__name__}().")
    return preset(model)  # type: ignore[arg-type]  # what is no name is rejected there


def handed_over(model: nn.Module | type[nn.Module]) -> nn.Module:
    """A module that may be changed, of the class or of the module that a person hands over to open a run with. Raises
    ModelError where none can be made of it."""
    name = model.__name__ if isinstance(model, type) else type(model).__name__
    try:
        return model() if isinstance(model, type) else copy.deepcopy(bare(model))
    except (TypeError, RuntimeError) as error:
        way = "made with its arguments" if isinstance(model, type) else "a new one, whose tensors are its own,"
        raise ModelError(f"No {name} can be made to hold the weights: {error}. Hand over a module {way}.") from error


# --- the module, called with a batch ---------------------------------------------------------------------------------


def called(module: nn.Module, spec: Spec | None, channels_last: bool = False) -> nn.Module:
    """The same module, which shares all that it holds with `module`, called with what a batch of `spec` holds and
    answering as its task has it. Without a spec it is called as it is. Inputs are made contiguous, unless the module
    was asked for with `channels_last`."""
    own: type[nn.Module] = type(module)
    plans: dict[int, Plan] = {}  # by how much a batch holds

    def forward(self: nn.Module, *inputs: Any) -> Any:
        if spec is not None and spec.kind == TextSpec.kind and inputs[1:] in ((), (None,)):  # nothing is padding
            inputs = inputs[0], torch.ones_like(inputs[0], dtype=torch.bool)
        if len(inputs) not in plans:
            plans[len(inputs)] = handed_on(own.forward, len(inputs), spec)
        args, named = plans[len(inputs)]
        if not channels_last:
            inputs = tuple(x.contiguous() if isinstance(x, Tensor) else x for x in inputs)
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
        return answers(given, spec, inputs, asked_for=ROWS in args or ROWS in named.values())

    twin = type(own.__name__, (own,), {"forward": forward, "__module__": own.__module__, "own_class": own})
    made: nn.Module = object.__new__(twin)
    made.__dict__ = module.__dict__
    return made


def is_own(module: nn.Module) -> bool:
    """Return whether this is a module of one's own, as `called` gives it."""
    return hasattr(type(module), "own_class")


def bare(module: nn.Module) -> nn.Module:
    """The module under its own class, where it is one that is `called`; else as it is."""
    if not is_own(module):
        return module
    made: nn.Module = object.__new__(type(module).own_class)  # type: ignore[attr-defined]
    made.__dict__ = module.__dict__
    return made


def handed_on(forward: Callable[..., Any], count: int, spec: Spec | None) -> Plan:
    """Which of the `count` tensors of a batch a forward asks for, by place and by name."""
    left = list(range(count))
    if spec is None:
        return left, {}
    holds = HOLDS[spec.kind]
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
            by_place = False  # it keeps its default, and what follows goes by name
            continue
        left.remove(i)
        if by_place and p.kind is not p.KEYWORD_ONLY:
            args.append(i)
        else:
            named[p.name] = i
    return args, named


def answers(given: Any, spec: Spec | None, inputs: tuple[Tensor, ...], asked_for: bool) -> Any:
    """What a module gave, as the task has it: of one graph the nodes that are asked for, unless the module was told
    which they are (`asked_for`), values (N,) as (N, 1), steps and columns of a forecast in one row. What is of no such
    shape stays as it is."""
    if spec is None or not isinstance(given, Tensor):
        return given
    if isinstance(spec, GraphSpec) and not spec.graph_level and len(inputs) > ROWS and not asked_for:
        given = given.index_select(0, inputs[ROWS]) if len(given) == len(inputs[0]) else given
    if isinstance(spec.target, Value | Classes) and given.ndim == 1:
        return given[:, None]
    if isinstance(spec.target, Horizon) and given.ndim == 3:
        return given.flatten(1)
    return given
