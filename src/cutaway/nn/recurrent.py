"""Recurrent layers: PyTorch's fused layers with support for sequences of different lengths.

The equations of one step are in the models' files, `models/rnn.py`, `lstm.py` and `gru.py`. `inspect/gates.py` computes
the steps one by one, and tests compare these layers with it. Each gate has its own rows of W, U, b and b', stacked in
the order i, f, g, o and r, z, n, as in PyTorch's layers. One of the two bias vectors is redundant, except for n of the
GRU. PyTorch has both for compatibility with cuDNN.

`run_packed` passes packed sequences to the fused layer, which computes no padding. This is used on CUDA. On a CPU
packing costs more than it saves, because the fused operation does not support packed sequences. There, `run_bucketed`
sorts the sequences by length and runs rectangular blocks of those that have not ended. Sequences are padded on the
right. A padded step leaves the state unchanged, and its output is 0.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from ..core.errors import InputShapeError, check_value
from .masks import normalize_padding_mask, rows_not_right_padded

State = tuple[
    Tensor, ...
]  # h, then c for an LSTM; (N, hidden) in a step, (layers · directions, N, hidden) for a whole layer
# W (gates · hidden, inputs), U (gates · hidden, hidden), and b and b' (gates · hidden,) or None
Weights = tuple[Tensor, Tensor, Tensor | None, Tensor | None]
# One step: maps x (N, inputs), the state and the weights to all results by name, each (N, hidden): h as "state", c of
# an LSTM as "cell", and the gates.
Step = Callable[[Tensor, State, Weights], dict[str, Tensor]]

RECTANGLES = 8  # largest number of blocks of a batch: more would cost more calls than they save in padding
LEAST_SHARE = 0.1  # smallest fraction of padding in a batch that is worth skipping
LEAST_WORK = 4096  # elements in the states of a batch: below it a step costs the same for any number of sequences


@runtime_checkable
class Steps(Protocol):
    """Protocol of a subclass of `nn.RNNBase` or `nn.RNNCellBase` that defines its own step.

    `cutaway.inspect` uses it to show the gates. PyTorch's own layers need not implement it.
    """

    def step(self, x: Tensor, state: State, weights: Weights) -> dict[str, Tensor]:
        """Compute one step.

        Args:
            x: Inputs, shape (N, F).
            state: States, each of shape (N, H).
            weights: W, U, b and b'.

        Returns:
            All results by name, each of shape (N, H).
        """


# --- sequences of different lengths -----------------------------------------------------------------------------------


def sequence_lengths(mask: Tensor | None, steps: int) -> Tensor | None:
    """Return the number of real steps of each sequence.

    A mask without values (on the meta device) counts as all real.

    Args:
        mask: Padding mask, shape (N, T), or None.
        steps: Number of steps T.

    Returns:
        Lengths, shape (N,), on the CPU; None if all steps are real.

    Raises:
        ModelError: If the mask has another number of steps, if padding is not on the right only, or if a sequence has
            no real step.
    """
    mask = None if mask is None else normalize_padding_mask(mask, (mask.shape[0], steps))
    if mask is None or mask.is_meta:
        return None
    if torch.compiler.is_exporting():  # values are unknown
        return mask.sum(1)
    lengths = mask.sum(1).masked_fill(rows_not_right_padded(mask), -1).cpu()  # one transfer for both checks
    for i, length in enumerate(lengths.tolist()):
        if length < 1:
            wrong = "has no real step" if length == 0 else "has padding before a real step"
            raise InputShapeError(
                f"Sequence {i} of the batch {wrong}: a recurrent network reads from the left, so padding must stand "
                "behind the last real step, and at least one step must be real."
            )
    return None if bool((lengths == steps).all()) else lengths


class VariableLengthRNN(nn.RNNBase):
    """Base class of `RNN`, `LSTM` and `GRU`, which adds support for padded sequences of different lengths."""

    def forward(self, x: Any, state: Any = None, lengths: Tensor | None = None) -> Any:
        """Run the layer; without `lengths` as PyTorch's layer.

        With lengths, the state starts at zero, and the fastest implementation of the device is used.

        Args:
            x: Inputs, shape (N, T, F).
            state: Initial state, without lengths only.
            lengths: Lengths from `sequence_lengths`, shape (N,), on the CPU.

        Returns:
            Outputs (N, T, directions · hidden), 0 beyond each length, and the last h of each layer and direction,
            (layers · directions, N, hidden). Without lengths the state as PyTorch returns it.
        """
        if torch.compiler.is_exporting():
            outputs, after = run_scan(self, x, lengths, None if state is None else to_state_tuple(state))
            return outputs, to_torch_state(after) if lengths is None else after[0]
        if lengths is not None and not x.is_cuda:
            return run_bucketed(self, x, lengths)
        with cudnn_backward_guard(self, x):
            if lengths is None:
                return super().forward(x, state)
            outputs, after = run_packed(super().forward, x, lengths)
            return outputs, after[0]


def cudnn_backward_guard(layer: nn.Module, x: Tensor) -> contextlib.AbstractContextManager[object]:
    """Return a context in which the layer has gradients in evaluation mode on a GPU, as attributions need them.

    cuDNN stores what gradients need in training mode only, and is therefore disabled in evaluation mode.

    Args:
        layer: The recurrent layer.
        x: Its inputs, shape (N, T, F).

    Returns:
        The context manager.
    """
    if x.is_cuda and torch.is_grad_enabled() and not layer.training:
        return torch.backends.cudnn.flags(enabled=False)
    return contextlib.nullcontext()


class RNN(VariableLengthRNN, nn.RNN):
    """Elman's recurrent layers: `nn.RNN` with support for lengths."""


class LSTM(VariableLengthRNN, nn.LSTM):
    """`nn.LSTM` with support for lengths."""


class GRU(VariableLengthRNN, nn.GRU):
    """`nn.GRU` with support for lengths."""


def run_layers(layer: VariableLengthRNN, x: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Run the layers of a network from a state of zeros.

    Args:
        layer: The layers.
        x: Inputs, shape (N, T, F).
        lengths: Lengths, shape (N,), on the CPU; None if all steps are real.

    Returns:
        The states of the last layer at each step, (N, T, D · hidden), and the last h of each layer and direction,
        (layers · D, N, hidden).
    """
    if lengths is None:
        states, after = layer(x)
        return states, to_state_tuple(after)[0]
    states, last = layer(x, lengths=lengths)
    return states, last


def run_packed(
    layer: Callable[..., Any], x: Tensor, lengths: Tensor, state: State | None = None
) -> tuple[Tensor, State]:
    """Run the fused layer on packed sequences.

    Args:
        layer: The layer.
        x: Inputs, shape (N, T, F).
        lengths: Lengths, shape (N,), on the CPU.
        state: Initial state. Default: zeros.

    Returns:
        Outputs (N, T, directions · hidden), 0 beyond each length, and the final state.
    """
    if torch.compiler.is_exporting() and isinstance(layer, nn.RNNBase):
        return run_scan(layer, x, lengths, state)
    bundle = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    found, after = layer(bundle, to_torch_state(state))
    outputs, _ = pad_packed_sequence(found, batch_first=True, total_length=x.shape[1])
    return outputs, to_state_tuple(after)


def run_bucketed(layer: nn.RNNBase, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Run the fused layer on rectangular blocks of the sequences that have not ended.

    Args:
        layer: The layer.
        x: Inputs, shape (N, T, F).
        lengths: Lengths, shape (N,), on the CPU.

    Returns:
        Outputs (N, T, directions · hidden), 0 beyond each length, and the last h of each layer and direction, (layers ·
        directions, N, hidden).

    Raises:
        ModelError: For an LSTM with projections.
    """
    reject_projections(layer)
    order = lengths.argsort(descending=True, stable=True)
    lengths, on_device = lengths[order], order.to(x.device)
    x, steps = x.index_select(0, on_device), x.shape[1]
    cuts = bucket_boundaries(lengths, steps, layer.hidden_size)

    step, own = torch.arange(steps, device=x.device), lengths.to(x.device)[:, None]
    mask = step < own  # (N, T)
    mirror = torch.where(mask, own - 1 - step, step)  # each sequence reversed, with its padding in place
    rows = torch.arange(len(x), device=x.device)
    last = []
    for level in range(layer.num_layers):
        found = []
        for way in range(2 if layer.bidirectional else 1):
            outputs = _rectangles(
                layer, layer_weights(layer, level, way), _turned(x, mirror) if way else x, lengths, cuts
            )
            last.append(outputs[rows, own[:, 0] - 1])  # (N, hidden)
            found.append(_turned(outputs, mirror) if way else outputs)
        x = torch.cat(found, dim=2) if len(found) > 1 else found[0]  # (N, T, ways · hidden)
        if level + 1 < layer.num_layers:
            x = F.dropout(x, layer.dropout, layer.training)
    back = on_device.argsort()
    outputs = x.index_select(0, back).masked_fill_(~mask[back, :, None], 0)
    return outputs, torch.stack(last).index_select(1, back)


def bucket_boundaries(lengths: Tensor, steps: int, hidden: int) -> list[int]:
    """Return the steps between two blocks, at which ended sequences are dropped.

    About one eighth of the sequences end between two cuts.

    Args:
        lengths: Lengths in falling order, shape (N,).
        steps: Number of steps T.
        hidden: Size of the state.

    Returns:
        The cuts in rising order; the last is the end of the longest sequence.
    """
    enough = len(lengths) * hidden >= LEAST_WORK
    if not enough or int(lengths.sum()) > (1 - LEAST_SHARE) * steps * len(lengths):
        return [steps]
    each = -(-len(lengths) // RECTANGLES)
    return sorted({*lengths[::each].tolist(), int(lengths[0])})


def _rectangles(layer: nn.RNNBase, weights: Weights, x: Tensor, lengths: Tensor, cuts: list[int]) -> Tensor:
    """Run one layer in one direction: outputs (N, T, hidden), undefined beyond a sequence's length."""
    state = tuple(part[0] for part in zero_state(layer, x))
    found, start = [], 0
    for cut in cuts:
        going = int((lengths > start).sum())  # number of sequences that have not ended, which come first
        state = tuple(part[:going] for part in state)
        outputs, state = _fused(layer, weights, x[:going, start:cut], state)
        found.append(F.pad(outputs, (0, 0, 0, 0, 0, len(x) - going)))  # (N, cut − start, hidden)
        start = cut
    if start < x.shape[1]:  # steps that no sequence reaches
        found.append(x.new_zeros(len(x), x.shape[1] - start, layer.hidden_size))
    return found[0] if len(found) == 1 else torch.cat(found, dim=1)


def _fused(layer: nn.RNNBase, weights: Weights, x: Tensor, state: State) -> tuple[Tensor, State]:
    """Run PyTorch's fused operation for one layer in one direction; states are (N, hidden)."""
    flat = [weight for weight in weights if weight is not None]
    settings = (layer.bias, 1, 0.0, layer.training, False, True)  # one layer, no dropout, one way, batch first
    if layer.mode == "LSTM":
        outputs, h, c = torch.lstm(x, [part[None] for part in state], flat, *settings)
        return outputs, (h[0], c[0])
    run = {"GRU": torch.gru, "RNN_TANH": torch.rnn_tanh, "RNN_RELU": torch.rnn_relu}[layer.mode]
    outputs, h = run(x, state[0][None], flat, *settings)
    return outputs, (h[0],)


def _turned(x: Tensor, mirror: Tensor) -> Tensor:
    """Reverse each sequence of (N, T, F)."""
    return x.gather(1, mirror[..., None].expand_as(x))


def scan_steps(
    step: Callable[[State, Tensor], tuple[State, State]], state: State, inputs: Tensor
) -> tuple[Tensor, ...]:
    """Apply a step function to each step of the inputs and stack its outputs.

    Args:
        step: Maps a state and inputs (N, F) to the next state and the outputs.
        state: Initial state.
        inputs: Inputs, shape (N, S, F).

    Returns:
        The outputs, each of shape (N, S, …).
    """
    if torch.compiler.is_exporting():  # a loop would fix S

        def scanned_step(state: list[Tensor], x: Tensor) -> tuple[list[Tensor], list[Tensor]]:
            after, given = step(tuple(state), x)
            return list(after), [part.clone() for part in given]  # the operator rejects aliased tensors

        _, given = _scan(scanned_step, list(state), inputs.transpose(0, 1))
        return tuple(part.transpose(0, 1) for part in given)
    found = []
    for x in inputs.unbind(1):
        state, given = step(state, x)
        found.append(given)
    return tuple(torch.stack(parts, 1) for parts in zip(*found))


# --- export -----------------------------------------------------------------------------------------------------------


def run_scan(layer: nn.RNNBase, x: Tensor, lengths: Tensor | None, state: State | None = None) -> tuple[Tensor, State]:
    """Compute `run_packed` by a scan of single steps over time, for export.

    The exported graph keeps the length dynamic, whereas torch.export unrolls the fused layers at the example's length.

    Args:
        layer: The layer.
        x: Inputs, shape (N, T, F).
        lengths: Lengths, shape (N,), or None.
        state: Initial state. Default: zeros.

    Returns:
        Outputs (N, T, directions · hidden) and the final state.

    Raises:
        ModelError: For an LSTM with projections.
    """
    reject_projections(layer)
    real = torch.ones_like(x[..., 0], dtype=torch.bool)  # (N, T)
    if lengths is not None:
        real = real.cumsum(1) <= lengths[:, None]
    before = zero_state(layer, x) if state is None else state
    after: list[State] = []
    for level in range(layer.num_layers):
        found = []
        for way in range(2 if layer.bidirectional else 1):
            own = tuple(part[len(after)] for part in before)
            outputs, last = _layer_scanned(layer, layer_weights(layer, level, way), x, real, own, backwards=way == 1)
            found.append(outputs)
            after.append(last)
        x = torch.cat(found, dim=2) if len(found) > 1 else found[0]  # (N, T, ways · hidden)
    return x, tuple(torch.stack(parts) for parts in zip(*after))


def _layer_scanned(
    layer: nn.RNNBase, weights: Weights, x: Tensor, real: Tensor, state: State, backwards: bool
) -> tuple[Tensor, State]:
    """Run one layer in one direction.

    Outputs are (N, T, hidden), 0 at padded steps. The state is the one after the last real step.
    """
    W, U, b, b_state = weights
    inputs = F.linear(x, W, b).transpose(0, 1)  # (T, N, gates · hidden): the part that does not depend on the state

    def step(state: list[Tensor], at: list[Tensor]) -> tuple[list[Tensor], Tensor]:
        own, there = at[0], at[1][:, None]
        new = _step(layer.mode, own, F.linear(state[0], U, b_state), state)
        kept = [torch.where(there, part, old) for part, old in zip(new, state)]
        return kept, torch.where(there, new[0], torch.zeros_like(new[0]))

    last, outputs = _scan(step, [part.clone() for part in state], [inputs, real.t()], reverse=backwards)
    return outputs.transpose(0, 1), tuple(last)


def _scan(step: Callable[[list[Tensor], Any], Any], state: list[Tensor], inputs: Any, reverse: bool = False) -> Any:
    """Return the last state and the stacked outputs (S, …) over inputs (S, …).

    PyTorch's operator is a prototype in 2.13 without a public path.
    """
    scan = importlib.import_module("torch._higher_order_ops.scan").scan
    return scan(step, state, inputs, reverse=reverse)


def _step(mode: str, ours: Tensor, theirs: Tensor, state: list[Tensor]) -> list[Tensor]:
    """Return the state after a step, from W x + b and U h + b', each (N, gates · hidden)."""
    if mode == "LSTM":
        i, f, g, o = (ours + theirs).chunk(4, 1)
        c = f.sigmoid() * state[1] + i.sigmoid() * g.tanh()
        return [o.sigmoid() * c.tanh(), c]
    if mode == "GRU":
        (r, z, n), (of_r, of_z, of_n) = ours.chunk(3, 1), theirs.chunk(3, 1)
        z = (z + of_z).sigmoid()
        n = (n + (r + of_r).sigmoid() * of_n).tanh()
        return [n + z * (state[0] - n)]
    return [(ours + theirs).tanh() if mode == "RNN_TANH" else (ours + theirs).relu()]


# --- shared helpers ---------------------------------------------------------------------------------------------------


def layer_weights(layer: nn.RNNBase | nn.RNNCellBase, level: int = 0, way: int = 0) -> Weights:
    """Return W, U, b and b' of one layer in one direction, or of a cell.

    Args:
        layer: A recurrent layer or cell.
        level: Index of the layer.
        way: Direction: 0 forward, 1 backward.

    Returns:
        W, U, b and b'.
    """
    end = "" if isinstance(layer, nn.RNNCellBase) else f"_l{level}{'_reverse' * way}"
    biases = (getattr(layer, f"bias_ih{end}"), getattr(layer, f"bias_hh{end}")) if layer.bias else (None, None)
    return getattr(layer, f"weight_ih{end}"), getattr(layer, f"weight_hh{end}"), *biases


def zero_state(layer: nn.RNNBase, x: Tensor) -> State:
    """Return the zero state for sequences x.

    Args:
        layer: The layer.
        x: Inputs, shape (N, …).

    Returns:
        Zeros (layers · directions, N, hidden), twice for an LSTM.
    """
    ways = 2 if layer.bidirectional else 1
    zeros = x.new_zeros(layer.num_layers * ways, x.shape[0], layer.hidden_size)  # len() is static in an export
    return (zeros, zeros) if layer.mode == "LSTM" else (zeros,)


def pool_states(
    states: Tensor, last: Tensor, lengths: Tensor | None, pooling: str, *, directions: int = 1, steps: int = 0
) -> Tensor:
    """Return the read-out r of each sequence.

    Args:
        states: States at each step, shape (N, T, D · hidden), 0 beyond the lengths.
        last: State of each layer and direction after the last real step, shape (layers · D, N, hidden).
        lengths: Lengths, shape (N,); None if all steps are real.
        pooling: last, mean or max over the real steps, flat (all steps concatenated), or every (one output per step).
        directions: D.
        steps: Number of steps that flat expects.

    Returns:
        r, shape (N, D · hidden); (N, T · D · hidden) for flat, (N, T, D · hidden) for every.

    Raises:
        ModelError: If flat is given sequences with another number of steps.
    """
    if pooling == "every":
        return states
    if pooling == "last":
        return last[-directions:].transpose(0, 1).flatten(1)
    if pooling == "flat":
        if lengths is not None or states.shape[1] != steps:
            raise InputShapeError(
                f"pooling=flat has weights for each of {steps} steps, and these sequences have others: "
                "cut or resample them, or choose pooling=last, mean or max."
            )
        return states.flatten(1)
    if lengths is None:
        return states.mean(1) if pooling == "mean" else states.amax(1)
    own = lengths.to(states.device)[:, None]  # (N, 1)
    if pooling == "mean":
        return states.sum(1) / own
    real = torch.arange(states.shape[1], device=states.device) < own  # (N, T)
    return states.masked_fill(~real[..., None], -torch.inf).amax(1)


def to_torch_state(state: State | None) -> Tensor | State | None:
    """Return the state in the form that PyTorch's layers accept: a tensor (layers, N, H), or two for an LSTM."""
    return state[0] if state is not None and len(state) == 1 else state


def to_state_tuple(given: Tensor | State) -> State:
    """Return the state of PyTorch's layers, (layers, N, H) each, as a tuple."""
    return given if isinstance(given, tuple) else (given,)


def reject_projections(layer: nn.RNNBase) -> None:
    """Raise ModelError for an LSTM with projected states, which is a different network."""
    check_value(layer.proj_size == 0, "proj_size", layer.proj_size, "0: an LSTM without projections")
