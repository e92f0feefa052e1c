"""Gate activations of recurrent layers at every step, by recomputing the recurrence.

The fused layers return states only. Here the same inputs, lengths and initial states are passed through the equations
of `models/rnn.py`, `lstm.py` and `gru.py` step by step, with the layer's own weights:

    RNN     state
    LSTM    input, forget, candidate, output, cell, state
    GRU     reset, update, candidate, state

Each is (N, T, hidden), for each layer and direction with PyTorch's names: l0, l0_reverse, l1, … Step t of a backward
layer is the one that reads x_t, after all later steps. All values are 0 after the end of a sequence. In training with
dropout between the layers, the dropout masks are those of the fused layer, drawn from the same generator state. Layers
of other kinds define their step themselves (`nn.recurrent.Steps`).

Memory of a recurrent layer: the sensitivity ∂s_T/∂s_t of its state to earlier states, by the lag T − t.

s is the cell c of an LSTM, or the state h of other layers. By the chain rule

    ∂s_T/∂s_t = Π_{k=t+1}^{T} ∂s_k/∂s_{k−1}

It shrinks or grows by a factor at each step: gradients vanish or explode (Y. Bengio, P. Simard, P. Frasconi, 1994,
<https://doi.org/10.1109/72.279181>). For an LSTM the factor is the forget gate, apart from the path through h, and can
stay near 1 (S. Hochreiter, J. Schmidhuber, 1997, <https://doi.org/10.1162/neco.1997.9.8.1735>). For a GRU it is the
update gate, and for an Elman network diag(1 − h²) U, with the same matrix U at every step.

The result is ‖∂s_T/∂s_t‖_F / √hidden, 1 at lag 0, estimated with v ~ N(0, 1): E ‖vᵀ J‖² = ‖J‖_F² (M. F. Hutchinson,
1989).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from ..models.gru import gru_step
from ..models.lstm import lstm_step
from ..models.rnn import elman_step
from ..nn.recurrent import (
    State,
    Step,
    Steps,
    Weights,
    bucket_boundaries,
    layer_weights,
    reject_projections,
    to_state_tuple,
    zero_state,
)

STEP_OF: dict[str, Step] = {  # by the mode of PyTorch's layers
    "RNN_TANH": elman_step,
    "RNN_RELU": functools.partial(elman_step, activation=torch.relu),
    "LSTM": lstm_step,
    "GRU": gru_step,
}
Between = Callable[[Tensor], Tensor]  # applied to (N, T, F) between two layers


@dataclass(frozen=True)
class RecurrentCall:
    """The inputs of a recurrent layer, batch first."""

    x: Tensor  # (N, T, F)
    lengths: Tensor | None  # (N,); None where all T steps are real
    state: State | None  # (layers · ways, N, hidden) each; None for zeros
    between: Between | None = None  # None: no dropout between layers
    whole: bool = True  # False: dropout cannot be reproduced, and only the first layer can be recomputed

    def first(self, keep: int | None) -> RecurrentCall:
        """Return the first `keep` sequences; all of them with dropout, whose mask belongs to the whole batch."""
        if keep is None or keep >= len(self.x) or self.between is not None:
            return self
        lengths = None if self.lengths is None else self.lengths[:keep]
        state = None if self.state is None else tuple(part[:, :keep] for part in self.state)
        return RecurrentCall(self.x[:keep], lengths, state, None, self.whole)


def parse_call(
    layer: nn.RNNBase, args: tuple[Any, ...], kwargs: dict[str, Any], random: Tensor | None
) -> RecurrentCall:
    """Parse a call of the layer. `random` is the generator's state before a call with dropout."""
    x, state, lengths = _arguments(args, kwargs)
    packed = x if isinstance(x, PackedSequence) else None
    if packed is not None:
        x, lengths = pad_packed_sequence(packed, batch_first=True)
    elif x.ndim == 2:  # one sequence without a batch
        x = x[None]
        state = None if state is None else tuple(part[:, None] for part in to_state_tuple(state))
    elif not layer.batch_first:
        x = x.transpose(0, 1)
    drops = layer.training and layer.dropout > 0 and layer.num_layers > 1
    between: Between | None = None
    if drops and random is not None:
        if packed is not None:
            between = _over_packed(layer, packed)
        elif lengths is not None:
            between = _over_sorted(layer, lengths)
        else:
            between = _over_steps(layer)
    given = None if state is None else to_state_tuple(state)
    return RecurrentCall(x, lengths, given, between, whole=not drops or between is not None)


def _arguments(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any, Tensor | None]:
    """Return input, state and lengths from positional or keyword arguments."""
    names = ("input", "state", "lengths")
    given = dict(zip(names, args)) | {{"x": "input", "hx": "state"}.get(k, k): v for k, v in kwargs.items()}
    return given["input"], given.get("state"), given.get("lengths")


def sequence_lengths_argument(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
    """Return the lengths of the sequences in a call, (N,), or None if all steps are real."""
    x, _, lengths = _arguments(args, kwargs)
    return pad_packed_sequence(x, batch_first=True)[1] if isinstance(x, PackedSequence) else lengths


# PyTorch's layers are steps-first, packed sequences are flat, and `in_rectangles` sorts by length. The dropout masks
# are equal only if they are drawn in the same order.


def _over_steps(layer: nn.RNNBase) -> Between:
    def drop(x: Tensor) -> Tensor:
        return F.dropout(x.transpose(0, 1).contiguous(), layer.dropout, layer.training).transpose(0, 1)

    return drop


def _over_packed(layer: nn.RNNBase, bundle: PackedSequence) -> Between:
    def drop(x: Tensor) -> Tensor:
        _, lengths = pad_packed_sequence(bundle, batch_first=True)
        order, back = bundle.sorted_indices, bundle.unsorted_indices
        if order is not None and back is not None:
            x, lengths = x.index_select(0, order), lengths[order.cpu()]
        rows = pack_padded_sequence(x, lengths, batch_first=True)
        dropped = PackedSequence(F.dropout(rows.data, layer.dropout, True), rows.batch_sizes)
        x, _ = pad_packed_sequence(dropped, batch_first=True, total_length=x.shape[1])
        return x if back is None else x.index_select(0, back)

    return drop


def _over_sorted(layer: nn.RNNBase, lengths: Tensor) -> Between:
    def drop(x: Tensor) -> Tensor:
        order = lengths.argsort(descending=True, stable=True)
        cuts = bucket_boundaries(lengths[order], x.shape[1], layer.hidden_size)
        order = order.to(x.device)
        x = x.index_select(0, order)
        if cuts == [x.shape[1]] and not layer.bidirectional:  # the memory layout of the fused operation
            x = x.transpose(0, 1).contiguous().transpose(0, 1)
        return F.dropout(x, layer.dropout, True).index_select(0, order.argsort())

    return drop


def unroll(
    layer: nn.RNNBase,
    x: Tensor,
    mask: Tensor | None = None,
    state: State | None = None,
    step: Step | None = None,
    between: Between | None = None,
) -> tuple[Tensor, State, dict[str, Tensor]]:
    """Compute an `nn.RNN`, `nn.LSTM` or `nn.GRU` step by step on x (N, T, F), with the layer's own weights.

    The results are outputs (N, T, directions · hidden), the final state of each layer and direction, (layers ·
    directions, N, hidden), and its gates by name, such as l0.reset, each (N, T, hidden).

    `mask` (N, T) is True for real steps; outputs and gates are 0 elsewhere. x is batch first for any layer. `state` is
    the initial state, zeros by default. `step` replaces the layer's own step, for example by the published GRU's.
    `between` is applied between two layers in place of dropout. Raises ModelError for an LSTM with projections.
    """
    reject_projections(layer)
    step, between = step or step_function(layer), between or _over_steps(layer)
    state = zero_state(layer, x) if state is None else state
    found: dict[str, Tensor] = {}
    final: list[State] = []
    for level in range(layer.num_layers):
        outputs = []
        for way in range(2 if layer.bidirectional else 1):
            first = tuple(part[len(final)] for part in state)
            gates, last = _one_way(step, x, mask, first, layer_weights(layer, level, way), way == 1)
            found |= {f"l{level}{'_reverse' * way}.{name}": gate for name, gate in gates.items()}
            outputs.append(gates["state"])
            final.append(last)
        x = torch.cat(outputs, dim=2)  # (N, T, ways · hidden)
        if level + 1 < layer.num_layers:
            x = between(x)
    return x, tuple(torch.stack(part) for part in zip(*final)), found


def _one_way(
    step: Step, x: Tensor, mask: Tensor | None, state: State, weights: Weights, backward: bool
) -> tuple[dict[str, Tensor], State]:
    """Run one layer in one direction: its gates, each (N, T, hidden), and the last state."""
    steps: list[dict[str, Tensor]] = [{} for _ in range(x.shape[1])]
    for t in reversed(range(x.shape[1])) if backward else range(x.shape[1]):
        gates = step(x[:, t], state, weights)
        after = step_state(gates)
        if mask is None:
            state, steps[t] = after, gates
        else:
            real = mask[:, t, None]  # (N, 1)
            state = tuple(torch.where(real, new, old) for new, old in zip(after, state))
            steps[t] = {name: torch.where(real, gate, torch.zeros_like(gate)) for name, gate in gates.items()}
    return {name: torch.stack([gates[name] for gates in steps], dim=1) for name in steps[0]}, state


def step_state(gates: dict[str, Tensor]) -> State:
    """Return the state after a step: h, and c for an LSTM."""
    return (gates["state"], gates["cell"]) if "cell" in gates else (gates["state"],)


@torch.no_grad()
def replay(layer: nn.RNNBase, reading: RecurrentCall) -> dict[str, Tensor]:
    """Return the gates of a layer by name, such as l0.reset, each (N, T, hidden), 0 beyond a sequence's end.

    Raises ModelError for an LSTM with projections.
    """
    x = reading.x.detach()
    state = None if reading.state is None else tuple(part.detach() for part in reading.state)
    real = None
    if reading.lengths is not None:
        real = torch.arange(x.shape[1], device=x.device) < reading.lengths.to(x.device)[:, None]  # (N, T)
    found = unroll(layer, x, real, state, between=reading.between or (lambda x: x))[2]
    return found if reading.whole else {name: gate for name, gate in found.items() if name.startswith("l0")}


@torch.no_grad()
def cell_gates(cell: nn.RNNCellBase, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Tensor]:
    """Return the gates of one step of a cell, each (N, 1, hidden)."""
    x, state, _ = _arguments(args, kwargs)
    x = x.detach() if x.ndim == 2 else x.detach()[None]  # (N, inputs)
    if state is None:
        zeros = x.new_zeros(len(x), cell.hidden_size)
        before: State = (zeros, zeros) if isinstance(cell, nn.LSTMCell) else (zeros,)
    else:
        before = tuple(part.detach() if part.ndim == 2 else part.detach()[None] for part in to_state_tuple(state))
    return {name: gate[:, None] for name, gate in step_function(cell)(x, before, layer_weights(cell)).items()}


def step_function(layer: nn.RNNBase | nn.RNNCellBase) -> Step:
    """Return the step function of a layer or cell: its own, or that of PyTorch's class."""
    if isinstance(layer, Steps):
        return layer.step
    if isinstance(layer, nn.RNNBase):
        return STEP_OF[layer.mode]
    if isinstance(layer, nn.LSTMCell):
        return lstm_step
    return gru_step if isinstance(layer, nn.GRUCell) else STEP_OF[f"RNN_{str(layer.nonlinearity).upper()}"]


def draws(layer: nn.RNNBase, x: Any) -> bool:
    """Return whether a call uses dropout that can be reproduced; on a GPU it is internal to cuDNN."""
    data = x.data if isinstance(x, PackedSequence) else x
    return layer.training and layer.dropout > 0 and layer.num_layers > 1 and data.device.type == "cpu"


PROBES = 32  # random directions


@contextmanager
def record_recurrent_calls(model: nn.Module) -> Iterator[dict[str, list[RecurrentCall]]]:
    """Record the inputs of each recurrent layer within the context, one entry per call; for a cell one for all its
    steps.

    The model should be in evaluation mode, because dropout between layers is not recorded.
    """
    found: dict[str, list[RecurrentCall]] = {}
    handles = []

    def of_layer(name: str) -> Any:
        def hook(module: nn.RNNBase, args: Any, kwargs: Any, output: Any) -> None:
            found.setdefault(name, []).append(parse_call(module, args, kwargs, None))

        return hook

    def of_cell(name: str) -> Any:
        def hook(module: nn.RNNCellBase, args: Any, kwargs: Any, output: Any) -> None:
            given = {**dict(zip(("input", "hx"), args)), **kwargs}
            x, state = given["input"].detach(), given.get("hx")
            x = x[:, None] if x.ndim == 2 else x[None, None]  # (N, 1, inputs)
            before = found.setdefault(name, [])
            if before:
                before[0] = RecurrentCall(torch.cat([before[0].x, x], dim=1), None, before[0].state)
            else:
                own = (
                    None
                    if state is None
                    else tuple(part.detach().reshape(1, len(x), -1) for part in to_state_tuple(state))
                )
                before.append(RecurrentCall(x, None, own))

        return hook

    try:
        for name, module in model.named_modules():
            if isinstance(module, nn.RNNBase):
                handles.append(module.register_forward_hook(of_layer(name), with_kwargs=True))
            elif isinstance(module, nn.RNNCellBase):
                handles.append(module.register_forward_hook(of_cell(name), with_kwargs=True))
        yield found
    finally:
        for handle in handles:
            handle.remove()


def layer_inputs(
    layer: nn.Module, reading: RecurrentCall, example: int, level: int = 0, way: int = 0
) -> tuple[Tensor, State]:
    """Return the inputs of one layer and direction for one example, x (T, inputs) in reading order, and its initial
    state.

    The states are (hidden,) each. Padded steps are excluded.
    """
    long = reading.x.shape[1] if reading.lengths is None else int(reading.lengths[example])
    state = None if reading.state is None else tuple(part[:, example : example + 1] for part in reading.state)
    alone = RecurrentCall(reading.x[example : example + 1, :long], None, state)
    if isinstance(layer, nn.RNNCellBase):
        zeros = alone.x.new_zeros(layer.hidden_size)
        first: State = (zeros, zeros) if isinstance(layer, nn.LSTMCell) else (zeros,)
        return alone.x[0].detach(), first if state is None else tuple(part[0, 0] for part in state)
    assert isinstance(layer, nn.RNNBase)
    ways = 2 if layer.bidirectional else 1
    first = tuple(part[level * ways + way, 0] for part in (zero_state(layer, alone.x) if state is None else state))
    x = alone.x[0].detach()
    if level > 0:
        below = replay(layer, alone)
        x = torch.cat([below[f"l{level - 1}{'_reverse' * w}.state"] for w in range(ways)], dim=2)[
            0
        ]  # (T, ways · hidden)
    return x.flip(0) if way else x, first


def gradient_by_lag(layer: nn.Module, x: Tensor, first: State, level: int = 0, way: int = 0, seed: int = 0) -> Tensor:
    """Return ‖∂s_T/∂s_t‖_F / √hidden for the lags 0, 1, …, T − 1, (T,), for x (T, inputs) in reading order.

    All random directions run in parallel as equal examples; one backward pass gives all lags.
    """
    assert isinstance(layer, nn.RNNBase | nn.RNNCellBase)
    step, weights = step_function(layer), layer_weights(layer, level, way)
    carried: list[Tensor] = []
    with torch.enable_grad():
        state: State = tuple(part.detach().expand(PROBES, -1) for part in first)
        for row in x.detach():
            gates = step(row.expand(PROBES, -1), state, weights)
            memory = gates.get("cell", gates["state"])  # (PROBES, hidden)
            if not carried:  # no earlier tensor requires a gradient
                memory = memory.detach().requires_grad_()
            carried.append(memory)
            state = (gates["output"] * torch.tanh(memory), memory) if "cell" in gates else (memory,)
        directions = torch.randn(memory.shape, generator=torch.Generator().manual_seed(seed)).to(memory)
        found = torch.autograd.grad(memory, carried, directions)
    sizes = torch.stack([gradient.double().square().sum() for gradient in found])  # of s_1, …, s_T
    return (sizes / sizes[-1]).sqrt().flip(0)


def plain_network(inputs: int, hidden: int, like: Tensor) -> nn.RNN:
    """Return an Elman network of one layer, initialized with seed 0, in the dtype of `like`."""
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        return nn.RNN(inputs, hidden, batch_first=True).to(like.dtype)
