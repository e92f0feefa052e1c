"""The layer table: output shape, parameters, cost and receptive field of each layer.

A model is run once in evaluation mode, and every PyTorch operation is assigned to the layer that calls it. Costs are in
`costs.py`, receptive fields in `receptive_field.py`.
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

from ..core.memory_budget import build_on_meta
from ..models.registry import Preset
from ..nn.modules import eval_mode
from .costs import multiply_adds, op_name
from .example_inputs import example_inputs
from .receptive_field import ReceptiveFields, tensors_in


@dataclass(frozen=True)
class Row:
    """One layer: a module without submodules, a module with own weights, or an operation in between."""

    name: str  # as in the state dict: layer1.0.conv1; `max_pool2d()` for an operation in a module's forward
    type: str  # the module's class
    shape: tuple[int, ...]  # of its output, with the batch first; () if the model did not call it
    parameters: int  # shared ones count at their first occurrence
    multiply_adds: int | None  # of convolutions and matrix products, for the whole batch; None: not known
    receptive_field: int | None  # input pixels along a side; None without a field
    unknown: tuple[str, ...] = ()  # the operations whose multiply-adds are not known
    frames: int | None = None  # receptive field in frames of a video; None without a field over time


@dataclass(frozen=True)
class LayerTable:
    """The layers of a model in the order of execution."""

    rows: tuple[Row, ...]
    blocks: Mapping[str, Row]  # every called module as a whole, by name; "" is the model
    input: tuple[int, ...]  # the shape of the first input, with the batch first

    @property
    def parameters(self) -> int:
        """The number of parameters of the model."""
        return sum(row.parameters for row in self.rows)

    @property
    def multiply_adds(self) -> int:
        """The sum of known multiply-adds: a lower bound, exact if `complete`."""
        return sum(row.multiply_adds or 0 for row in self.rows)

    @property
    def complete(self) -> bool:
        """True if every operation's multiply-adds are known."""
        return not any(row.unknown for row in self.rows)

    @property
    def depth(self) -> int:
        """The nesting depth of the deepest layer: 3 for layer1.0.conv1."""
        return max((row.name.count(".") + 1 for row in self.rows), default=1)

    def at(self, depth: int) -> tuple[Row, ...]:
        """Return the rows, with deeper layers merged into their block."""
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
        """Return the table as JSON values, with shapes without the batch: the document layers.json of a run."""
        return {
            "input": list(self.input[1:]),
            "rows": [dataclasses.asdict(row) | {"shape": list(row.shape[1:])} for row in self.rows],
            "parameters": self.parameters,
            "multiply_adds": self.multiply_adds,
            "complete": self.complete,
        }


def layer_table(model: nn.Module, *inputs: Tensor) -> LayerTable:
    """Run `model` once on `inputs` and return its layer table.

    The counts are for the given batch; use one example for the usual figures. The model runs in evaluation mode without
    gradients and is left unchanged. On the meta device this takes neither time nor memory.
    """
    watch = _Watch(model, inputs)
    handles = []
    try:
        for name, module in model.named_modules():
            handles.append(module.register_forward_pre_hook(watch.entering(name)))
            handles.append(module.register_forward_hook(watch.leaving(name)))
        with eval_mode(model), torch.no_grad(), watch:
            model(*inputs)
    finally:
        for handle in handles:
            handle.remove()
    return LayerTable(tuple(watch.rows()), watch.blocks(), tuple(inputs[0].shape))


Group = tuple[str, list[Row]]  # a layer, or a block of a list with its layers: blocks.0


def group_equal_blocks(rows: Iterable[Row]) -> list[list[Group]]:
    """Group the rows by layer and block, and successive blocks of a list with equal contents.

    Contents are equal if types, shapes, parameters, multiply-adds and receptive fields are.
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


def block_range_name(groups: Sequence[Group]) -> str:
    """Return the common name of equal blocks: blocks.1 to 11."""
    first, last = groups[0][0], groups[-1][0]
    return first if len(groups) == 1 else f"{first} to {last.rpartition('.')[2]}"


def preset_layer_table(preset: Preset, config: Any, shape: tuple[int, ...] | None = None) -> LayerTable:
    """Return the layer table of a preset's model, for one example of `shape` or of the default shape.

    Nothing is computed, except by models that depend on values, such as edges or lengths. Raises the model's errors for
    an unsupported shape.
    """
    try:
        return layer_table(build_on_meta(preset, config), *example_inputs(preset, config, shape, device="meta"))
    except RuntimeError:
        return layer_table(preset.build(config), *example_inputs(preset, config, shape))


@dataclass
class _Call:
    """The results of one layer, summed over its calls."""

    shape: tuple[int, ...] = ()
    receptive_field: int | None = None
    frames: int | None = None
    cost: int = 0
    unknown: dict[str, None] = field(default_factory=dict)  # an ordered set

    def gave(self, result: Any, fields: ReceptiveFields) -> None:
        """Record the first tensor of the output."""
        first = next(tensors_in([result]), None)
        if first is not None:
            self.shape = tuple(first.shape)
            self.receptive_field, self.frames = fields.of(first), fields.frames(first)


class _Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]  # PyTorch's class has no types
    """Intercepts every operation, and tracks the module whose forward is running."""

    def __init__(self, model: nn.Module, inputs: Sequence[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.modules = dict(model.named_modules())
        self.own = _own_parameters(model)
        self.fields = ReceptiveFields(inputs)
        self.inside: list[str] = []  # the modules whose forward is running, outermost first
        self.called: dict[str, _Call] = {}  # modules
        self.layers: dict[str, _Call] = {}  # the later rows
        self.repeats: Counter[str] = Counter()

    def entering(self, name: str) -> Any:
        """Return a hook for the start of a module's forward."""

        def hook(module: nn.Module, args: Any) -> None:
            self.inside.append(name)

        return hook

    def leaving(self, name: str) -> Any:
        """Return a hook for the end of a module's forward."""

        def hook(module: nn.Module, args: Any, result: Any) -> None:
            self.inside.pop()
            self.called.setdefault(name, _Call()).gave(result, self.fields)

        return hook

    def __torch_dispatch__(self, op: OpOverload, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operation, and assign it to its layer."""
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
                call.unknown[op_name(op)] = None
        return result

    def _layer(self, op: OpOverload, cost: int | None) -> str | None:
        """Return the row of an operation. A container's own operation is a row if it costs or pools."""
        name = self.inside[-1] if self.inside else ""
        module = self.modules[name]
        if self.own[name] or not any(module.children()):
            return name
        what = op_name(op).removesuffix("_with_indices").lstrip("_")
        if what.startswith("scaled_dot_product"):  # each device has its own kernel name
            what = "scaled_dot_product_attention"
        if cost == 0 and "pool" not in what:
            return None
        row = f"{name}.{what}()".lstrip(".")
        self.repeats[row] += 1
        return row if self.repeats[row] == 1 else f"{row} {self.repeats[row]}"

    def rows(self) -> list[Row]:
        """Return the layers that ran, in order, then those with parameters that did not."""
        idle = [name for name, count in self.own.items() if count and name not in self.layers]
        return [self._row(name, call) for name, call in self.layers.items()] + [
            self._row(name, _Call()) for name in idle
        ]

    def _row(self, name: str, call: _Call) -> Row:
        """Return the row of one layer."""
        module = self.modules.get(name)
        whole = self.called.get(name, call)  # a module's output is that of its forward, not of its last operation
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
        """Return every called module, without counts."""
        return {name: self._row(name, call) for name, call in self.called.items()}


def _normalized(op: OpOverload, args: Sequence[Any]) -> tuple[Tensor, ...] | None:
    """Return the result of batch normalization on the meta device, where PyTorch needs forty Python calls."""
    if op is not torch.ops.aten.native_batch_norm.default or not args[0].is_meta:
        return None
    return torch.empty_like(args[0]), args[0].new_empty(0), args[0].new_empty(0)


def _own_parameters(model: nn.Module) -> dict[str, int]:
    """Return the number of each module's own parameters by name; shared ones count at their first occurrence."""
    seen: set[nn.Parameter] = set()
    own: dict[str, int] = {}
    for name, module in model.named_modules():
        new = [p for p in module.parameters(recurse=False) if p not in seen]
        seen.update(new)
        own[name] = sum(p.numel() for p in new)
    return own
