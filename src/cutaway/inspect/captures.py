"""Capture of intermediate results with temporary hooks that change nothing, and the sites of interventions.

with cutaway.inspect.capture(model, "attention") as seen:
    model(x)
seen["attention"]["blocks.0.attention"]        # (N, heads, T, S)

    kind        seen[kind][name], for each module that supports the kind
    features    a copy of the module's output
    attention   weights (N, heads, T, S) before dropout, from the queries and keys of the fused kernel
    gates       rnn.l0.forget etc., (N, T, hidden) each, recomputed step by step (`gates.py`)
    messages    the coefficient of each edge, (E, heads); also seen["edges"], (2, E), sources in the first row
    gradients   ∂L/∂output of the module, of a backward pass within the block; also seen["weights"], ∂L/∂weight

The rules, the same for all kinds:
- A call is a call of the model, `model(x)`. The results are those of the last call. `every=10` records the first call,
  the eleventh and so on, and costs the others nothing.
- A module with several runs in a call has its first result under its name and the others under name#2, name#3: the
  shared block of ALBERT is `blocks.0.attention`, `blocks.0.attention#2`, … Steps of one sequence are concatenated
  instead: a cell's gates and the attention of a decoder that processes one token at a time have all steps along T.
- Runs outside a call of the whole model, as in `model.step(…)`, are recorded too; each result replaces the one before.
- `keep=8` stores the first eight rows of each tensor: examples, or what the first axis holds otherwise (nodes, frames,
  positions). Messages and ∂L/∂weight have no examples and are stored whole. Memory is thus limited to `keep` rows of
  each for one call, for any number of calls.

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
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from ..core.errors import IncompatibleSettingError, ModelError, SettingError, UnknownName, check_value
from ..nn.attention import AnyRecord, Attention, AttentionRecord, StepRecord
from ..nn.graphs import CSRPattern, MessagePassing
from ..nn.recurrent import reject_projections, to_state_tuple
from .example_inputs import first_tensor, output_carriers, reject_compiled
from .gates import cell_gates, draws, parse_call, replay, sequence_lengths_argument

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
                raise IncompatibleSettingError(
                    f"Invalid edge={(source, target)}: the graph has no edge from {source} to {target}."
                )
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
            raise IncompatibleSettingError(
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


Probe = Callable[[Captures, str, nn.Module], Iterator[Undo]]

# The modules that support each kind; every module has features and gradients.
OF: dict[str, tuple[type[nn.Module], ...]] = {
    "features": (nn.Module,),
    "attention": (Attention,),
    "gates": (nn.RNNBase, nn.RNNCellBase),
    "messages": (MessagePassing,),
    "gradients": (nn.Module,),
}
KINDS = tuple(OF)
ATTENTION = (
    " Attention weights are recorded by cutaway.nn.attention.MultiHeadAttention and other subclasses of Attention: "
    "build the model with it. torch.nn.MultiheadAttention returns weights itself if called with need_weights=True and "
    "average_attn_weights=False; F.scaled_dot_product_attention returns none."
)
BESIDE = {"messages": "edges", "gradients": "weights"}  # additional results of a kind


def capturable_kinds(model: nn.Module) -> tuple[str, ...]:
    """Return the kinds that can be captured in a model."""
    inside = [module for name, module in model.named_modules() if name]
    return tuple(kind for kind in KINDS if any(isinstance(module, OF[kind]) for module in inside))


@contextmanager
def capture(
    model: nn.Module,
    kind: str | Sequence[str] = "features",
    *names: str,
    keep: int | None = None,
    every: int = 1,
) -> Iterator[Captures]:
    """Record intermediate results of a model within a `with` block.

    The outputs and gradients of the model are unchanged, bit for bit. All hooks are removed afterwards, also if the
    block raises an error. Captures can be nested.

        features    the output of each module
        attention   the attention weights, (N, heads, T, S), before dropout
        gates       the gates of recurrent layers, (N, T, hidden) each, such as rnn.l0.forget
        messages    the coefficient of each edge of graph layers, (E, heads); also seen["edges"], (2, E)
        gradients   ∂L/∂output of each module in a backward pass within the block; also seen["weights"], ∂L/∂weight

    Args:
        model: The model.
        kind: Kind of results: features, attention, gates, messages or gradients; or a list of kinds.
        *names: Names of modules or patterns, such as "layer1" or "layer*.conv1". By default, all modules that support
            the kind.
        keep: Number of rows to store of each tensor, the first ones. By default, all.
        every: Interval between recorded calls of the model. 1 records every call, 10 the first, the eleventh and so on.

    Yields:
        The results of the last recorded call: `seen[kind][name]` is a tensor.

    Raises:
        UnknownName: If a kind or a module does not exist.
        ModelError: If the model does not support the kind, or is compiled.
        SettingError: If `keep` or `every` is below 1.
    """
    reject_compiled(model)
    kinds = (kind,) if isinstance(kind, str) else tuple(kind)
    chosen = {k: _select_modules(model, k, names, kinds) for k in kinds}
    seen = Captures((*kinds, *(BESIDE[k] for k in kinds if k in BESIDE)), keep, every)
    with ExitStack() as undo:
        undo.callback(seen.close)
        undo.callback(model.register_forward_pre_hook(lambda module, args: seen.begin()).remove)
        for k, modules in chosen.items():
            for name, module in modules:
                for step in PROBES[k](seen, name, module):
                    undo.callback(step)
            if k == "gradients":
                for step in _weights(seen, model, [module for _, module in modules] if names else [model]):
                    undo.callback(step)
        undo.callback(model.register_forward_hook(lambda *_: seen.end(), always_call=True).remove)
        yield seen


def _select_modules(
    model: nn.Module, kind: str, names: tuple[str, ...], kinds: tuple[str, ...]
) -> list[tuple[str, nn.Module]]:
    """Return the modules that support the kind and match a name."""
    if kind not in KINDS:
        raise UnknownName("kind of capture", kind, KINDS)
    if kind not in capturable_kinds(model):
        raise ModelError(
            f"{type(model).__name__} has no {kind} to capture. Kinds that it has:"
            f" {', '.join(capturable_kinds(model))}.{ATTENTION if kind == 'attention' else ''}"
        )
    every = [(k, m) for k, m in model.named_modules(remove_duplicate=False) if k]
    for wanted in names:
        # With several kinds, a name may apply to only one of them.
        known = [k for k, m in every if any(isinstance(m, OF.get(other, ())) for other in kinds)]
        if not any(fnmatchcase(k, wanted) for k in known):
            raise UnknownName("module" if "features" in kinds else f"module with {' or '.join(kinds)}", wanted, known)
    once = dict(model.named_modules())
    return [
        (k, m)
        for k, m in every
        if isinstance(m, OF[kind]) and (any(fnmatchcase(k, wanted) for wanted in names) if names else k in once)
    ]


# --- hooks of each kind, and their removal ---------------------------------------------------------------------------


def _features(seen: Captures, name: str, module: nn.Module) -> Iterator[Undo]:
    def hook(module: nn.Module, args: Any, output: Any) -> None:
        first = first_tensor(module, output) if seen.on else None
        if first is not None:
            seen.put("features", seen.name("features", name), seen.rows(first))

    yield module.register_forward_hook(hook).remove


def _attention(seen: Captures, name: str, module: nn.Module) -> Iterator[Undo]:
    assert isinstance(module, Attention)
    before = module.seen
    module.seen = _Listener(lambda used: _attended(seen, name, used), before)
    yield lambda: setattr(module, "seen", before)


def _attended(seen: Captures, name: str, used: AnyRecord) -> None:
    """Store queries and keys; the weights are computed on demand."""
    if not seen.on:
        return
    if isinstance(used, StepRecord):
        seen.join("attention", name, seen.rows(used.weights), dim=2)
        return
    mask = None if used.mask is None else used.mask.detach()
    q, k = used.q, used.k
    if seen.keep is not None:
        q, k = seen.rows(q), seen.rows(k)
        mask = mask[: seen.keep] if mask is not None and len(mask) > 1 else mask
    kept = AttentionRecord(q, k, mask, used.causal, used.scale)
    seen.put("attention", seen.name("attention", name), lambda: kept.weights)


class _Listener(list[AnyRecord]):
    """A list in place of an attention's records, which reports each record and passes it on to an outer listener."""

    def __init__(self, tell: Callable[[AnyRecord], None], before: list[AnyRecord] | None) -> None:
        super().__init__()
        self._tell, self._before = tell, before

    def append(self, used: AnyRecord) -> None:
        self._tell(used)
        if self._before is not None:
            self._before.append(used)


def _gates(seen: Captures, name: str, module: nn.Module) -> Iterator[Undo]:
    """Hook a recurrent module to record its gates, recomputed from its inputs."""
    if isinstance(module, nn.RNNCellBase):

        def after_cell(module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
            if seen.on:
                for gate, values in cell_gates(module, args, kwargs).items():  # type: ignore[arg-type]  # it is a cell
                    seen.join("gates", f"{name}.l0.{gate}", seen.rows(values), dim=1)

        yield module.register_forward_hook(after_cell, with_kwargs=True).remove
        return
    assert isinstance(module, nn.RNNBase)
    reject_projections(module)
    random: list[Tensor] = []

    def before_layer(layer: nn.Module, args: Any, kwargs: Any) -> None:
        random.clear()
        given = args[0] if args else kwargs.get("x", kwargs.get("input"))
        if seen.on and draws(layer, given):  # type: ignore[arg-type]  # it is a layer
            random.append(torch.get_rng_state())

    def after_layer(layer: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        if not seen.on:
            return
        assert isinstance(layer, nn.RNNBase)
        reading = parse_call(layer, args, kwargs, random[0] if random else None).first(seen.keep)
        with torch.random.fork_rng(devices=[], enabled=bool(random)):
            if random:
                torch.set_rng_state(random.pop())
            found = replay(layer, reading)
        for gate, values in found.items():
            seen.join("gates", f"{name}.{gate}", seen.rows(values), 1, goes_on=reading.state is not None)

    yield module.register_forward_pre_hook(before_layer, with_kwargs=True).remove
    yield module.register_forward_hook(after_layer, with_kwargs=True).remove


def _messages(seen: Captures, name: str, module: nn.Module) -> Iterator[Undo]:
    assert isinstance(module, MessagePassing)

    def hook(coefficients: Tensor, pattern: CSRPattern, first: int) -> Tensor:
        if seen.on:
            own = seen.join("messages", name, coefficients.detach().t().clone(), 1, goes_on=first > 0)  # (E, heads)
            seen.put("edges", own, pattern.pairs)
        return coefficients

    yield module.register_edge_hook(hook)


def _gradients(seen: Captures, name: str, module: nn.Module) -> Iterator[Undo]:
    """Hook a module to record the gradients of its output and its weights."""
    handles: list[Any] = []

    def hook(module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        if not seen.on:
            return
        of_this_call = seen.results.setdefault("gradients", {})
        _release(handles, of=of_this_call if seen.inside else None)  # gradients of earlier calls are no longer needed
        key = seen.name("gradients", name)
        parts: dict[int, Tensor] = {}  # the latest gradient of each part

        def keep(gradient: Tensor, part: int) -> None:
            parts[part] = seen.rows(gradient)
            of_this_call[key] = parts[part] if len(parts) == 1 else lambda: torch.stack([*parts.values()]).sum(0)

        for i, (part, as_output) in enumerate(output_carriers(module, args, kwargs, output)):
            if part.requires_grad:
                hooked = part.register_hook(lambda g, i=i, whole=as_output: keep(whole(g), i))  # type: ignore[no-untyped-call]
                handles.append((of_this_call, hooked))

    yield module.register_forward_hook(hook, with_kwargs=True).remove
    yield lambda: _release(handles)


def _weights(seen: Captures, model: nn.Module, modules: list[nn.Module]) -> Iterator[Undo]:
    """Hook ∂L/∂weight of these modules and their submodules."""
    inside = {parameter for module in modules for parameter in module.parameters()}
    for name, parameter in model.named_parameters():
        if parameter in inside and parameter.requires_grad:
            yield parameter.register_hook(_of_weight(seen, name)).remove  # type: ignore[no-untyped-call]


def _of_weight(seen: Captures, name: str) -> Callable[[Tensor], None]:
    def backward(gradient: Tensor) -> None:
        if seen.looking:
            own = gradient.detach().clone()
            seen.put("weights", name, own.to_dense if own.is_sparse else own)

    return backward


def _release(handles: list[Any], of: Any = None) -> None:
    """Remove the hooks, except those of one call."""
    for call, handle in handles:
        if call is not of:
            handle.remove()
    handles[:] = [entry for entry in handles if entry[0] is of]


PROBES: Mapping[str, Probe] = {
    "features": _features,
    "attention": _attention,
    "gates": _gates,
    "messages": _messages,
    "gradients": _gradients,
}


__all__ = ["KINDS", "CapturedTensors", "Captures", "capturable_kinds", "capture"]
