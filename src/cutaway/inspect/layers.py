"""The layer table: what each layer gives, has, costs and sees.

A model is run once, in eval mode, and every operation that PyTorch carries out is laid to the layer that asked for it.
What it costs is in `costs.py`, what it sees in `fields.py`.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

from ..core.memory_budget import shaped
from ..models.registry import Preset
from .costs import multiply_adds, name_of
from .example_inputs import example_inputs
from .receptive_field import ReceptiveFields, tensors_in


@dataclass(frozen=True)
class Row:
    """One layer: a module without modules inside, one with weights of its own, or an operation in between."""

    name: str  # as in the state dict: layer1.0.conv1; `max_pool2d()` for an operation in a module's forward
    type: str  # the module's class
    shape: tuple[int, ...]  # of what it gives, with the batch first; () where the model did not call it
    parameters: int  # shared ones count where they come first
    multiply_adds: int | None  # of convolutions and matrix products, for the whole batch; None: not known
    receptive_field: int | None  # pixels of the input, across; None where there is none
    unknown: tuple[str, ...] = ()  # the operations whose multiply-adds are not known
    frames: int | None = None  # of a video that it sees; None where there is no field over time


@dataclass(frozen=True)
class LayerTable:
    """The layers of a model in the order in which they ran."""

    rows: tuple[Row, ...]
    blocks: Mapping[str, Row]  # every module that was called, whole, by its name; "" is the model
    input: tuple[int, ...]  # the shape of the first input, with the batch first

    @property
    def parameters(self) -> int:
        """All parameters of the model."""
        return sum(row.parameters for row in self.rows)

    @property
    def multiply_adds(self) -> int:
        """The multiply-adds that are known: at least so many, and all of them where `complete`."""
        return sum(row.multiply_adds or 0 for row in self.rows)

    @property
    def complete(self) -> bool:
        """Whether every operation's multiply-adds are known."""
        return not any(row.unknown for row in self.rows)

    @property
    def depth(self) -> int:
        """How deep the deepest layer is inside: 3 for layer1.0.conv1."""
        return max((row.name.count(".") + 1 for row in self.rows), default=1)

    def at(self, depth: int) -> tuple[Row, ...]:
        """The rows with what is deeper inside put together as the block it is in."""
        groups: dict[str, list[Row]] = {}
        for row in self.rows:
            groups.setdefault(".".join(row.name.split(".")[:depth]), []).append(row)
        return tuple(self._block(name, rows) for name, rows in groups.items())

    def _block(self, name: str, rows: list[Row]) -> Row:
        if len(rows) == 1 and rows[0].name == name:
            return rows[0]
        whole = self.blocks.get(name, dataclasses.replace(rows[-1], name=name, type="ModuleList"))
        unknown = tuple(dict.fromkeys(op for row in rows for op in row.unknown))
        cost = sum(row.multiply_adds or 0 for row in rows)
        return dataclasses.replace(
            whole,
            parameters=sum(row.parameters for row in rows),
            multiply_adds=None if unknown else cost,
            unknown=unknown,
        )

    def to_json(self) -> dict[str, Any]:
        """The table as JSON values, shapes without the batch: the document layers.json of a run."""
        return {
            "input": list(self.input[1:]),
            "rows": [dataclasses.asdict(row) | {"shape": list(row.shape[1:])} for row in self.rows],
            "parameters": self.parameters,
            "multiply_adds": self.multiply_adds,
            "complete": self.complete,
        }


def layer_table(model: nn.Module, *inputs: Tensor) -> LayerTable:
    """Run `model` once on `inputs` and say what every layer gives, has, costs and sees.

    The counts are for the batch as given: give one example for the usual figures. The model runs in eval mode without
    gradients and is left as it was. It may stand on the meta device, where it costs neither time nor memory.
    """
    watch = _Watch(model, inputs)
    training = {module: module.training for module in model.modules()}
    handles = []
    try:
        for name, module in model.named_modules():
            handles.append(module.register_forward_pre_hook(watch.entering(name)))
            handles.append(module.register_forward_hook(watch.leaving(name)))
        model.eval()
        with torch.no_grad(), watch:
            model(*inputs)
    finally:
        for handle in handles:
            handle.remove()
        for module, was in training.items():
            module.training = was
    return LayerTable(tuple(watch.rows()), watch.blocks(), tuple(inputs[0].shape))


def on_meta(preset: Preset, config: Any) -> nn.Module:
    """A preset's model with shapes and no numbers: as large as it may be, it takes no memory."""
    return shaped(preset, config)


Group = tuple[str, list[Row]]  # a layer, or a block of a list with what stands within it: blocks.0


def alike(rows: Iterable[Row]) -> list[list[Group]]:
    """The rows by layer and by block; blocks that follow each other in a list and have the same inside stand together.

    What is the same: types, shapes, parameters, multiply-adds, and how far a layer sees.
    """
    groups: list[Group] = []
    for row in rows:
        name = match[0] if (match := re.match(r".*?\.\d+(?=\.|$)", row.name)) else row.name
        if groups and groups[-1][0] == name:
            groups[-1][1].append(row)
        else:
            groups.append((name, [row]))

    def likeness(group: Group) -> tuple[Any, ...]:
        name, inside = group
        rest = [(r.name.removeprefix(name), r.type, r.shape, r.parameters, r.multiply_adds) for r in inside]
        seen = [(r.receptive_field, r.frames) for r in inside]
        return (name.rpartition(".")[0] if name[-1].isdigit() else name, rest, seen)

    return [list(same) for _, same in itertools.groupby(groups, key=likeness)]


def names_of(groups: Sequence[Group]) -> str:
    """What blocks that are alike are called: blocks.1 to 11."""
    first, last = groups[0][0], groups[-1][0]
    return first if len(groups) == 1 else f"{first} to {last.rpartition('.')[2]}"


def table_of(preset: Preset, config: Any, shape: tuple[int, ...] | None = None) -> LayerTable:
    """The layer table of a preset's model, for one example of `shape` or of the usual one. Nothing is computed, except
    by models that must see numbers: where edges are, or how long a sequence is. Raises what they raise for a shape that
    they cannot take."""
    try:
        return layer_table(on_meta(preset, config), *example_inputs(preset, config, shape, device="meta"))
    except RuntimeError:
        return layer_table(preset.build(config), *example_inputs(preset, config, shape))


@dataclass
class _Call:
    """What one layer did, summed over its calls."""

    shape: tuple[int, ...] = ()
    receptive_field: int | None = None
    frames: int | None = None
    cost: int = 0
    unknown: dict[str, None] = field(default_factory=dict)  # an ordered set

    def gave(self, result: Any, fields: ReceptiveFields) -> None:
        """Note the first tensor of what came out."""
        first = next(tensors_in([result]), None)
        if first is not None:
            self.shape = tuple(first.shape)
            self.receptive_field, self.frames = fields.of(first), fields.frames(first)


class _Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]  # PyTorch's class has no types
    """Sees every operation, and knows in which module's forward it happens."""

    def __init__(self, model: nn.Module, inputs: Sequence[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.modules = dict(model.named_modules())
        self.own = _own_parameters(model)
        self.fields = ReceptiveFields(inputs)
        self.inside: list[str] = []  # the modules whose forward is running, outermost first
        self.called: dict[str, _Call] = {}  # modules
        self.layers: dict[str, _Call] = {}  # the rows to be
        self.repeats: Counter[str] = Counter()

    def entering(self, name: str) -> Any:
        """A hook for before a module's forward."""

        def hook(module: nn.Module, args: Any) -> None:
            self.inside.append(name)

        return hook

    def leaving(self, name: str) -> Any:
        """A hook for after a module's forward."""

        def hook(module: nn.Module, args: Any, result: Any) -> None:
            self.inside.pop()
            self.called.setdefault(name, _Call()).gave(result, self.fields)

        return hook

    def __torch_dispatch__(self, op: OpOverload, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Carry the operation out, and lay it to the layer that it belongs to."""
        kwargs = kwargs or {}
        result = _normalized(op, args) or op(*args, **kwargs)
        cost = multiply_adds(op, args, result)
        self.fields.follow(op, args, kwargs, result)
        layer = self._layer(op, cost)
        if layer is not None:
            call = self.layers.setdefault(layer, _Call())
            call.gave(result, self.fields)
            call.cost += cost or 0
            if cost is None:
                call.unknown[name_of(op)] = None
        return result

    def _layer(self, op: OpOverload, cost: int | None) -> str | None:
        """The row that an operation belongs to. What a container does itself is a row if it costs or pools."""
        name = self.inside[-1] if self.inside else ""
        module = self.modules[name]
        if self.own[name] or not any(module.children()):
            return name
        what = name_of(op).removesuffix("_with_indices").lstrip("_")
        if what.startswith("scaled_dot_product"):  # each device has its own kernel, by its own name
            what = "scaled_dot_product_attention"
        if cost == 0 and "pool" not in what:
            return None
        row = f"{name}.{what}()".lstrip(".")
        self.repeats[row] += 1
        return row if self.repeats[row] == 1 else f"{row} {self.repeats[row]}"

    def rows(self) -> list[Row]:
        """The layers that ran, in order, and then those with parameters that did not."""
        idle = [name for name, count in self.own.items() if count and name not in self.layers]
        return [self._row(name, call) for name, call in self.layers.items()] + [
            self._row(name, _Call()) for name in idle
        ]

    def _row(self, name: str, call: _Call) -> Row:
        module = self.modules.get(name)
        whole = self.called.get(name, call)  # a module gives what its forward returned, not its last operation
        return Row(
            name=name or "(model)",
            type=type(module).__name__ if module is not None else "operation",
            shape=whole.shape,
            parameters=self.own.get(name, 0),
            multiply_adds=None if call.unknown else call.cost,
            receptive_field=whole.receptive_field,
            frames=whole.frames,
            unknown=tuple(call.unknown),
        )

    def blocks(self) -> dict[str, Row]:
        """Every module that was called, with no counts."""
        return {name: self._row(name, call) for name, call in self.called.items()}


def _normalized(op: OpOverload, args: Sequence[Any]) -> tuple[Tensor, ...] | None:
    """What batch normalization gives on the meta device, in evaluation: PyTorch finds out in forty calls of Python."""
    if op is not torch.ops.aten.native_batch_norm.default or not args[0].is_meta:
        return None
    return torch.empty_like(args[0]), args[0].new_empty(0), args[0].new_empty(0)


def _own_parameters(model: nn.Module) -> dict[str, int]:
    """How many parameters each module has itself, by name; one that is shared counts where it comes first."""
    seen: set[nn.Parameter] = set()
    own: dict[str, int] = {}
    for name, module in model.named_modules():
        new = [p for p in module.parameters(recurse=False) if p not in seen]
        seen.update(new)
        own[name] = sum(p.numel() for p in new)
    return own
