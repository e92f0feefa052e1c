"""Every gate of a recurrent layer at every step, by computing the recurrence again beside the fused layer.

The fused layers give states alone. Here the same inputs, lengths and initial states go through the equations of
`nn/recurrent.py` once more, step after step, with the layer's own weights:

    RNN     state
    LSTM    input, forget, candidate, output, cell, state
    GRU     reset, update, candidate, state

Each is (N, T, hidden), for each layer and way as PyTorch names them: l0, l0_reverse, l1, … A backward layer's step t
is the one that reads x_t, having read what stands after it. Where a sequence has ended, all of them are 0. In training
with dropout between the layers the same numbers are dropped: those that the generator gave to the fused layer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from ..nn.recurrent import (
    State,
    as_state,
    begin,
    cuts_of,
    elman_step,
    gru_gates,
    lstm_gates,
    refuse_projections,
    weights_of,
)

Between = Callable[[Tensor], Tensor]  # what happens to (N, T, F) between two layers


@dataclass(frozen=True)
class Reading:
    """What a recurrent layer was given, batch first."""

    x: Tensor  # (N, T, F)
    lengths: Tensor | None  # (N,); None where all T steps are real
    state: State | None  # (layers · ways, N, hidden) each; None for zeros
    between: Between | None = None  # None: nothing is dropped between layers
    whole: bool = True  # False: what is dropped cannot be drawn again, and only the lowest layer can be followed

    def first(self, keep: int | None) -> Reading:
        """The first `keep` sequences. With dropout all stay: it was drawn for all of them together."""
        if keep is None or keep >= len(self.x) or self.between is not None:
            return self
        lengths = None if self.lengths is None else self.lengths[:keep]
        state = None if self.state is None else tuple(part[:, :keep] for part in self.state)
        return Reading(self.x[:keep], lengths, state, None, self.whole)


def read(layer: nn.RNNBase, args: tuple[Any, ...], kwargs: dict[str, Any], random: Tensor | None) -> Reading:
    """What a call of the layer says. `random` is the generator's state before it, where dropout drew from it."""
    x, state, lengths = _arguments(args, kwargs)
    packed = x if isinstance(x, PackedSequence) else None
    if packed is not None:
        x, lengths = pad_packed_sequence(packed, batch_first=True)
    elif x.ndim == 2:  # one sequence without a batch
        x = x[None]
        state = None if state is None else tuple(part[:, None] for part in as_state(state))
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
    given = None if state is None else as_state(state)
    return Reading(x, lengths, given, between, whole=not drops or between is not None)


def _arguments(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any, Tensor | None]:
    """Input, state and lengths, however they were named."""
    names = ("input", "state", "lengths")
    given = dict(zip(names, args)) | {{"x": "input", "hx": "state"}.get(k, k): v for k, v in kwargs.items()}
    return given["input"], given.get("state"), given.get("lengths")


def lengths_given(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
    """How many steps of each sequence are real, (N,); None where all of them are."""
    x, _, lengths = _arguments(args, kwargs)
    return pad_packed_sequence(x, batch_first=True)[1] if isinstance(x, PackedSequence) else lengths


# PyTorch's layers hold steps first, packed sequences in one row after the other, and `in_rectangles` the longest first:
# the same numbers are dropped where they are drawn in the same order.


def _over_steps(layer: nn.RNNBase) -> Between:
    def drop(x: Tensor) -> Tensor:
        return F.dropout(x.transpose(0, 1).contiguous(), layer.dropout, True).transpose(0, 1)

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
        cuts = cuts_of(lengths[order], x.shape[1], layer.hidden_size)
        order = order.to(x.device)
        x = x.index_select(0, order)
        if cuts == [x.shape[1]] and not layer.bidirectional:  # what the fused operation gave lies there as it gave it
            x = x.transpose(0, 1).contiguous().transpose(0, 1)
        return F.dropout(x, layer.dropout, True).index_select(0, order.argsort())

    return drop


@torch.no_grad()
def replay(layer: nn.RNNBase, reading: Reading) -> dict[str, Tensor]:
    """The gates of a layer by name, as l0.reset, each (N, T, hidden): 0 beyond a sequence's end.

    Raises ModelError for an LSTM with projections.
    """
    refuse_projections(layer)
    x = reading.x.detach()
    found: dict[str, Tensor] = {}
    state = begin(layer, x) if reading.state is None else tuple(part.detach() for part in reading.state)
    real = None
    if reading.lengths is not None:
        real = torch.arange(x.shape[1], device=x.device) < reading.lengths.to(x.device)[:, None]  # (N, T)
    ways = 2 if layer.bidirectional else 1
    for level in range(layer.num_layers if reading.whole else 1):
        outputs = []
        for way in range(ways):
            first = tuple(part[level * ways + way] for part in state)
            gates = _one_way(layer, x, real, first, weights_of(layer, level, way), way == 1)
            found |= {f"l{level}{'_reverse' * way}.{name}": gate for name, gate in gates.items()}
            outputs.append(gates["state"])
        x = torch.cat(outputs, dim=2)  # (N, T, ways · hidden)
        if reading.between is not None and level + 1 < layer.num_layers:
            x = reading.between(x)
    return found


def _one_way(
    layer: nn.RNNBase, x: Tensor, real: Tensor | None, state: State, weights: list[Tensor], backward: bool
) -> dict[str, Tensor]:
    """One layer in one direction: its gates, each (N, T, hidden)."""
    steps: list[dict[str, Tensor]] = [{} for _ in range(x.shape[1])]
    for t in reversed(range(x.shape[1])) if backward else range(x.shape[1]):
        gates = step(layer.mode, x[:, t], state, weights)
        after = (gates["state"], gates["cell"]) if "cell" in gates else (gates["state"],)
        if real is None:
            state, steps[t] = after, gates
        else:
            here = real[:, t, None]  # (N, 1)
            state = tuple(torch.where(here, new, old) for new, old in zip(after, state))
            steps[t] = {name: torch.where(here, gate, torch.zeros_like(gate)) for name, gate in gates.items()}
    return {name: torch.stack([gates[name] for gates in steps], dim=1) for name in steps[0]}


def step(mode: str, x: Tensor, state: State, weights: list[Tensor]) -> dict[str, Tensor]:
    """All that one step computes, each (N, hidden): x (N, inputs), of a layer of that mode (LSTM, GRU, RNN_TANH, …)."""
    if mode == "LSTM":
        return lstm_gates(x, state, weights)
    if mode == "GRU":
        return gru_gates(x, state, weights)
    return {"state": elman_step(x, state, weights, torch.relu if mode == "RNN_RELU" else torch.tanh)[0]}


@torch.no_grad()
def of_cell(cell: nn.RNNCellBase, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Tensor]:
    """The gates of one step of a cell, each (N, 1, hidden)."""
    x, state, _ = _arguments(args, kwargs)
    x = x.detach() if x.ndim == 2 else x.detach()[None]  # (N, inputs)
    mode = mode_of(cell)
    if state is None:
        zeros = x.new_zeros(len(x), cell.hidden_size)
        before: State = (zeros, zeros) if mode == "LSTM" else (zeros,)
    else:
        before = tuple(part.detach() if part.ndim == 2 else part.detach()[None] for part in as_state(state))
    return {name: gate[:, None] for name, gate in step(mode, x, before, weights_of_cell(cell)).items()}


def weights_of_cell(cell: nn.RNNCellBase) -> list[Tensor]:
    """W, U, and b and b' where there are biases."""
    return [cell.weight_ih, cell.weight_hh, *((cell.bias_ih, cell.bias_hh) if cell.bias else ())]


def mode_of(cell: nn.RNNCellBase) -> str:
    """What PyTorch's layers call the kind of the cell: LSTM, GRU, RNN_TANH or RNN_RELU."""
    if isinstance(cell, nn.LSTMCell):
        return "LSTM"
    return "GRU" if isinstance(cell, nn.GRUCell) else f"RNN_{str(cell.nonlinearity).upper()}"


def draws(layer: nn.RNNBase, x: Any) -> bool:
    """Whether a call of the layer drops numbers that can be drawn again: on a GPU they are cuDNN's own."""
    data = x.data if isinstance(x, PackedSequence) else x
    return layer.training and layer.dropout > 0 and layer.num_layers > 1 and data.device.type == "cpu"
