"""Captured results of a model, and the sites at which interventions change them.

A site is a module and a part of its result:

    (nothing)            the whole output
    channel=3            of maps (N, C, H, W), and of the output of a convolution over time, (N, C, T)
    unit=3               of numbers (N, F), of tokens or steps (N, T, F), of nodes (V, F)
    position=3           of tokens or steps; (row, column) of maps
    row=3                of the batch: an example, or a node of a graph
    head=3               of an attention: its part of the input of the output projection; of graph attention, its edges
    edge=(0, 4)          of a graph layer: the message from node 0 to node 4

Each can be one index or a list. Several together select their intersection: channel=3, row=0 is that channel of the
first example. `name#2` is only the module's second run within a call of the model.

For a recurrent layer the outputs and the last state are changed consistently; the states within the recurrence are
unchanged.

`Captures` holds the results of a capture by kind and name, from the model's last recorded call.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from ..core.errors import ModelError, SettingError, UnknownName, check_value
from ..nn.attention import Attention
from ..nn.graphs import CSRPattern, MessagePassing
from ..nn.recurrent import to_state_tuple
from .example_inputs import first_tensor
from .gates import sequence_lengths_argument

Undo = Callable[[], None]
One = int | tuple[int, int]
Chosen = int | Sequence[int] | None
Pairs = tuple[int, int] | Sequence[tuple[int, int]] | None  # edges, or positions in maps
# Maps the value, the mask of the part (None: all), the run in a call, and the first head of a group to the new value.
Change = Callable[[Tensor, Tensor | None, int, int], Tensor]

OVER_TIME = (nn.Conv1d, nn.BatchNorm1d, nn.MaxPool1d, nn.AvgPool1d, nn.AdaptiveAvgPool1d, nn.AdaptiveMaxPool1d)
PARTS = ("channel", "unit", "position", "row", "head", "edge")


@dataclass(frozen=True)
class Site:
    """A part of a module's result. Each field is one index or a list; None selects all."""

    module: str
    channel: Chosen = None
    unit: Chosen = None
    position: Chosen | Pairs = None
    row: Chosen = None
    head: Chosen = None
    edge: Pairs = None

    @property
    def name(self) -> str:
        """The module's name without the run number."""
        return self.module.partition("#")[0]

    @property
    def run(self) -> int | None:
        """The run within a call of the model; None for every run."""
        after = self.module.partition("#")[2]
        if after and not (after.isdecimal() and int(after) >= 1):
            raise SettingError(f"Invalid module={self.module!r}: after # must be the number of a call, e.g. name#2.")
        return int(after) if after else None

    def find(self, model: nn.Module) -> nn.Module:
        """Return the module. Raises UnknownName, or ModelError if it has no heads or edges."""
        modules: dict[str, nn.Module] = dict(model.named_modules(remove_duplicate=False))
        if self.name not in modules:
            raise UnknownName("module", self.name, [k for k in modules if k])
        module = modules[self.name]
        if self.head is not None and not num_heads(module):
            raise ModelError(f"{self.name} is a {type(module).__name__}, which has no attention heads.")
        if self.edge is not None and not isinstance(module, MessagePassing):
            raise ModelError(f"{self.name} is a {type(module).__name__}, which passes no messages along edges.")
        return module

    def attach(self, model: nn.Module, change: Change, runs: Runs) -> Iterator[Undo]:
        """Register `change`, which maps each value at the site to its replacement; yield functions that remove it."""
        module = self.find(model)
        if self.head is None and self.edge is None:
            yield from self._hook_output(module, change, runs)
        elif isinstance(module, MessagePassing):
            yield self._hook_edges(module, change, runs)
        elif isinstance(module, Attention):
            yield self._hook_heads(module, change, runs)

    def _applies(self, run: int) -> bool:
        return self.run is None or self.run == run

    def _hook_output(self, module: nn.Module, change: Change, runs: Runs) -> Iterator[Undo]:
        def hook(module: nn.Module, args: Any, kwargs: Any, output: Any) -> Any:
            run = runs.next(self)
            before = first_tensor(module, output)
            if before is None or not self._applies(run):
                return None
            after = change(before, self._selected(module, before), run, 0)
            return None if after is before else _replace_first(module, args, kwargs, output, after)

        yield module.register_forward_hook(hook, with_kwargs=True).remove

    def _hook_heads(self, module: Attention, change: Change, runs: Runs) -> Undo:
        def before_projection(out: nn.Module, args: Any) -> Any:
            run = runs.next(self)
            if not self._applies(run):
                return None
            joined = args[0]  # (N, T, heads · d_v)
            heads = joined.unflatten(2, (module.heads, -1))  # (N, T, heads, d_v)
            where = self._all([(2, "head", self.head), (1, "position", self.position), (0, "row", self.row)], heads)
            after = change(heads, where, run, 0)
            return None if after is heads else (after.flatten(2), *args[1:])

        return module.out.register_forward_pre_hook(before_projection).remove

    def _hook_edges(self, module: MessagePassing, change: Change, runs: Runs) -> Undo:
        def hook(coefficients: Tensor, pattern: CSRPattern, first: int) -> Tensor:
            run = runs.next(self) if first == 0 else runs.now(self)
            if not self._applies(run):
                return coefficients
            whole = coefficients.new_empty(max(1, module.heads), coefficients.shape[1])
            where = self._all([(0, "head", self.head)], whole)[first : first + len(coefficients)]
            where = where.expand(coefficients.shape) & self._these(pattern)
            return change(coefficients, where, run, first)

        return module.register_edge_hook(hook)

    def _these(self, pattern: CSRPattern) -> Tensor:
        """Return which entries of a pattern are the selected edges, (E,)."""
        found = torch.zeros(len(pattern.columns), dtype=torch.bool, device=pattern.columns.device)
        if self.edge is None:
            return ~found
        for source, target in pairs_in(self.edge):
            same = (pattern.pairs[0] == source) & (pattern.pairs[1] == target)
            if not bool(same.any()):
                raise SettingError(f"Invalid edge={(source, target)}: the graph has no edge from {source} to {target}.")
            found |= same
        return found

    def _selected(self, module: nn.Module, x: Tensor) -> Tensor | None:
        """Return a boolean mask of the selected part of a module's output, which broadcasts; None for all of it."""
        maps = x.ndim >= 4 or (x.ndim == 3 and isinstance(module, OVER_TIME))
        if maps and self.unit is not None:
            raise SettingError(f"Invalid unit={self.unit}: the output of {self.name} is a feature map; use channel.")
        if not maps and self.channel is not None:
            raise SettingError(
                f"Invalid channel={self.channel}: the output of {self.name} is not a feature map; use unit."
            )
        chosen: list[tuple[int, str, Any]] = [(0, "row", self.row), (1, "channel", self.channel)]
        chosen.append((x.ndim - 1, "unit", self.unit))
        if self.position is None:
            return self._all(chosen, x) if any(part is not None for _, _, part in chosen) else None
        if maps and x.ndim == 4:
            return self._all(chosen, x) & self._in_map(x)
        if x.ndim != 3:
            raise SettingError(
                f"Invalid position={self.position}: the output of {self.name}, {tuple(x.shape)}, has no positions."
            )
        return self._all([*chosen, (2 if maps else 1, "position", self.position)], x)

    def _in_map(self, x: Tensor) -> Tensor:
        """Return the mask of the positions in maps (N, C, H, W), (1, 1, H, W)."""
        found = torch.zeros(1, 1, *x.shape[2:], dtype=torch.bool, device=x.device)
        for row, column in pairs_in(self.position):
            if not (0 <= row < x.shape[2] and 0 <= column < x.shape[3]):
                raise SettingError(
                    f"Invalid position={(row, column)}: the feature maps of {self.name} are {x.shape[2]}×{x.shape[3]}."
                )
            found[0, 0, row, column] = True
        return found

    def _all(self, chosen: Sequence[tuple[int, str, Any]], x: Tensor) -> Tensor:
        """Return the intersection of several selections, each an axis, its name and indices."""
        where = torch.ones((1,) * x.ndim, dtype=torch.bool, device=x.device)
        for axis, what, which in chosen:
            if which is None:
                continue
            size = x.shape[axis]
            one = torch.zeros(size, dtype=torch.bool, device=x.device)
            for i in [which] if isinstance(which, int) else which:
                if not (isinstance(i, int) and 0 <= i < size):
                    raise SettingError(f"Invalid {what}={i!r}: must be from 0 to {size - 1} for {self.name}.")
                one[i] = True
            shape = [1] * x.ndim
            shape[axis] = size
            where = where & one.view(shape)
        return where


class Runs:
    """The number of runs of each site in the current call of the model."""

    def __init__(self) -> None:
        self._inside = False
        self._times: dict[int, int] = {}

    def begin(self) -> None:
        """Start a call of the model."""
        self._inside, self._times = True, {}

    def end(self) -> None:
        """End the call; outside a call every run is the first."""
        self._inside, self._times = False, {}

    def next(self, place: Site) -> int:
        """Return the number of the run that starts."""
        self._times[id(place)] = self._times.get(id(place), 0) + 1 if self._inside else 1
        return self._times[id(place)]

    def now(self, place: Site) -> int:
        """Return the number of the current run."""
        return self._times[id(place)]


def num_heads(module: nn.Module) -> int:
    """Return the number of a module's heads, or 0."""
    return module.heads if isinstance(module, Attention | MessagePassing) else 0


def pairs_in(given: Any) -> list[tuple[int, int]]:
    """Return one pair, or a list of pairs, as a list. Raises SettingError for other values."""
    whole = [given] if len(given) == 2 and all(isinstance(i, int) for i in given) else list(given)
    for pair in whole:
        if not (isinstance(pair, Sequence) and len(pair) == 2):
            raise SettingError(f"Invalid {pair!r}: must be a pair of numbers or a list of pairs.")
    return [(int(a), int(b)) for a, b in whole]


def _replace_first(module: nn.Module, args: Any, kwargs: Any, output: Any, after: Tensor) -> Any:
    """Return the module's output with `after` in place of its first tensor."""
    if isinstance(output, Tensor):
        return after
    first = output if isinstance(output, PackedSequence) else output[0]
    own: Any = _packed(module, first, after) if isinstance(first, PackedSequence) else after
    if isinstance(output, PackedSequence):
        return own
    if not isinstance(module, nn.RNNBase):
        return (own, *output[1:])
    h, *rest = to_state_tuple(output[1])
    h = _with_ends(module, h, after, sequence_lengths_argument(args, kwargs))
    return own, (h, *rest) if isinstance(output[1], tuple) else h


def _packed(module: nn.Module, like: PackedSequence, x: Tensor) -> PackedSequence:
    """Pack padded x, (N, T, F) or in the module's layout, like `like`."""
    _, lengths = pad_packed_sequence(like)
    first = getattr(module, "batch_first", True)
    if like.sorted_indices is not None:
        x, lengths = x.index_select(0 if first else 1, like.sorted_indices), lengths[like.sorted_indices.cpu()]
    return like._replace(data=pack_padded_sequence(x, lengths, batch_first=first).data)


def _with_ends(layer: nn.RNNBase, h: Tensor, outputs: Tensor, lengths: Tensor | None) -> Tensor:
    """Return the last states h, (layers · directions, N, hidden), those of the top layer from the outputs."""
    if outputs.ndim == 2:  # one sequence without a batch
        return _with_ends(layer, h[:, None], outputs[None] if layer.batch_first else outputs[:, None], None)[:, 0]
    steps = outputs if layer.batch_first else outputs.transpose(0, 1)  # (N, T, ways · hidden)
    rows = torch.arange(len(steps), device=steps.device)
    ends = rows.new_full((len(steps),), steps.shape[1]) if lengths is None else lengths.to(steps.device)
    last = steps[rows, ends - 1]  # (N, ways · hidden)
    hidden = h.shape[2]
    if not layer.bidirectional:
        return torch.cat([h[:-1], last[None]])
    return torch.cat([h[:-2], last[None, :, :hidden], steps[None, :, 0, hidden:]])


Value = Tensor | Callable[[], Tensor]  # a tensor, or a function that computes it on demand


class CapturedTensors(Mapping[str, Tensor]):
    """Tensors of one kind, by name. Expensive ones are computed on each access."""

    def __init__(self, capture: Captures, kind: str) -> None:
        self._capture, self._kind = capture, kind

    def _values(self) -> dict[str, Value]:
        return self._capture.results.get(self._kind, {})

    def __getitem__(self, name: str) -> Tensor:
        """Return a tensor. Raises UnknownName if it was not captured, or not yet."""
        values = self._values()
        if name not in values:
            waits = "No gradient has reached it" if self._capture.results else "The model has not been called"
            way_out = "" if values else f"{waits} in the block yet."
            raise UnknownName(f"captured {self._kind}", name, values, way_out)
        value = values[name]
        if isinstance(value, Tensor):
            return value
        with torch.no_grad():
            return value()

    def __contains__(self, name: object) -> bool:
        return name in self._values()

    def get(self, name: str, default: Tensor | None = None) -> Tensor | None:  # type: ignore[override]
        """Return the tensor with that name, or `default`."""
        if name not in self:
            return default
        return self[name]

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._values()))

    def __len__(self) -> int:
        return len(self._values())


class Captures(Mapping[str, CapturedTensors]):
    """Captured tensors, `seen[kind][name]`: those of the last call, also after the block ends."""

    def __init__(self, kinds: Sequence[str], keep: int | None, every: int) -> None:
        check_value(keep is None or keep >= 1, "keep", keep, "at least 1, or None for all", SettingError)
        check_value(every >= 1, "every", every, "at least 1", SettingError)
        self.kinds, self.keep, self.every = tuple(kinds), keep, every
        self.results: dict[str, dict[str, Value]] = {}
        self.calls = 0  # calls of the model within the block
        self.inside = False  # whether a call of the model is running
        self.looking = True  # whether the current call is recorded
        self._times: Counter[tuple[str, str]] = Counter()
        self._parts: dict[tuple[str, str], tuple[str, list[Tensor]]] = {}
        self._open = True

    def __getitem__(self, kind: str) -> CapturedTensors:
        if kind not in self.kinds:
            raise UnknownName("captured kind", kind, self.kinds)
        return CapturedTensors(self, kind)

    def __iter__(self) -> Iterator[str]:
        return iter(self.kinds)

    def __len__(self) -> int:
        return len(self.kinds)

    def __repr__(self) -> str:
        return f"Captures({', '.join(f'{kind}: {len(self[kind])}' for kind in self.kinds)})"

    def begin(self) -> None:
        """Start a call of the model, and drop the results of the call before if this one is recorded."""
        self.inside = True
        self.looking = self.calls % self.every == 0
        self.calls += 1
        if self.looking:
            self.results, self._parts = {}, {}
            self._times.clear()

    def end(self) -> None:
        """End the call. Results outside a call are recorded too."""
        self.inside = False

    def close(self) -> None:
        """End the block: nothing more is recorded."""
        self.looking, self._open = False, False

    @property
    def on(self) -> bool:
        """True if current results are recorded."""
        return self._open and (self.looking or not self.inside)

    def rows(self, x: Tensor) -> Tensor:
        """Return a detached copy of x, or of its first `keep` rows."""
        return (x if self.keep is None or x.ndim == 0 else x[: self.keep]).detach().clone()

    def name(self, kind: str, module: str) -> str:
        """Return the name of a module's next result: the module's name, followed by #2 for the second in a call."""
        if not self.inside:  # each result replaces the one before
            return module
        self._times[kind, module] += 1
        times = self._times[kind, module]
        return module if times == 1 else f"{module}#{times}"

    def put(self, kind: str, name: str, value: Value) -> None:
        """Store a result."""
        self.results.setdefault(kind, {})[name] = value

    def join(self, kind: str, module: str, x: Tensor, dim: int, *, goes_on: bool = True) -> str:
        """Append x along `dim` to the module's result before, for steps of one sequence, and return its name."""
        name, parts = self._parts.get((kind, module), ("", []))
        if not parts or not self.inside or not goes_on or not _alike(parts[0], x, dim):
            name, parts = self.name(kind, module), []
            self._parts[kind, module] = (name, parts)
            self.put(kind, name, lambda: parts[0] if len(parts) == 1 else torch.cat(parts, dim))
        parts.append(x)
        return name


def _alike(a: Tensor, b: Tensor, dim: int) -> bool:
    """Return whether the shapes are equal except along `dim`."""
    return a.ndim == b.ndim and all(i == dim or m == n for i, (m, n) in enumerate(zip(a.shape, b.shape)))
