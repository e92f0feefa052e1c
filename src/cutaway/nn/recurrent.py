"""Recurrent layers: PyTorch's fused layers with support for sequences of different lengths.

The equations of one step are in the models' files, `models/rnn.py`, `lstm.py` and `gru.py`. `inspect/gates.py` computes
the steps one by one, and tests compare these layers with it. Each gate has its own rows of W, U, b and b', stacked in
the order i, f, g, o and r, z, n, as in PyTorch's layers. One of the two bias vectors is redundant, except for n of the
GRU. PyTorch has both for compatibility with cuDNN.

`run_packed` passes packed sequences to the fused layer, which computes no padding. This is used on CUDA. On a CPU
packing costs more than it saves, because the fused operation does not support packed sequences. There, `run_bucketed`
sorts the sequences by length and runs rectangular blocks of those that have not ended. Sequences are padded on the
right. A padded step leaves the state unchanged, and its output is 0.

A `State` is a tuple of tensors: h, and then c for an LSTM. Each is (N, hidden) in a single step, and (layers ·
directions, N, hidden) for a whole layer. `Weights` are W (gates · hidden, inputs), U (gates · hidden, hidden), and the
biases b and b' (gates · hidden,) or None.
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

State = tuple[Tensor, ...]
Weights = tuple[Tensor, Tensor, Tensor | None, Tensor | None]
# One step: maps x (N, inputs), the state and the weights to all results by name, each (N, hidden): h as "state", c of
# an LSTM as "cell", and the gates.
Step = Callable[[Tensor, State, Weights], dict[str, Tensor]]

RECTANGLES = 8  # largest number of blocks of a batch: more would cost more calls than they save in padding
LEAST_SHARE = 0.1  # smallest fraction of padding in a batch that is worth skipping
LEAST_WORK = 4096  # elements in the states of a batch: below it a step costs the same for any number of sequences


@runtime_checkable
class Steps(Protocol):
    """Protocol of a subclass of `nn.RNNBase` or `nn.RNNCellBase` that computes steps by its own equations.

    `cutaway.inspect` calls `step` to capture and show gates. PyTorch's own layers do not need it.

    Example:
        >>> class LeakyCell(nn.RNNCellBase):  # h ← (h + tanh(W x + U h)) / 2
        ...     def step(self, x, state, weights):
        ...         candidate = torch.tanh(x @ weights[0].t() + state[0] @ weights[1].t())
        ...         return {"candidate": candidate, "state": (state[0] + candidate) / 2}
        >>> cell = LeakyCell(3, 4, bias=False, num_chunks=1)
        >>> cell.step(torch.zeros(2, 3), (torch.ones(2, 4),), layer_weights(cell))["state"].shape
        torch.Size([2, 4])
        >>> isinstance(cell, Steps)
        True
    """

    def step(self, x: Tensor, state: State, weights: Weights) -> dict[str, Tensor]:
        """Compute one step.

        Args:
            x: Inputs of the step, shape (N, F).
            state: State after the step before, h and possibly c, each of shape (N, H).
            weights: W, U, b and b' of the layer, as from `layer_weights`.

        Returns:
            All results by name, each of shape (N, H): h as "state", c of an LSTM as "cell", and the gates under names
            of their own.
        """


# --- sequences of different lengths -----------------------------------------------------------------------------------


def sequence_lengths(mask: Tensor | None, steps: int) -> Tensor | None:
    """Return the number of real steps of each sequence.

    A mask on the meta device, which has no values, counts as all real.

    Args:
        mask: Padding mask, shape (N, T), True (or 1) where a step is real; None if all are.
        steps: Number of steps T.

    Returns:
        Lengths, shape (N,), int64, on the CPU; None if all steps are real.

    Raises:
        InputShapeError: If the mask has another number of steps or values other than 0 and 1, if padding is not on the
            right only, or if a sequence has no real step.

    Example:
        >>> sequence_lengths(torch.tensor([[1, 1, 1], [1, 0, 0]]), steps=3)
        tensor([3, 1])
        >>> sequence_lengths(torch.ones(2, 3), steps=3) is None
        True
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
    """Base class of `RNN`, `LSTM` and `GRU`, which adds support for padded sequences of different lengths.

    Parameters and their names are those of PyTorch's layer, so that state dicts are interchangeable.

    Args:
        mode: "RNN_TANH", "RNN_RELU", "LSTM" or "GRU". `RNN`, `LSTM` and `GRU` set it themselves.
        input_size: Features F of the inputs.
        hidden_size: Size of the state.
        num_layers: Number of stacked layers.
        bias: Whether the layers have biases.
        batch_first: Whether inputs are (N, T, F), and not (T, N, F), the default, as in PyTorch. The functions of this
            module expect True. Inputs with `lengths` are always (N, T, F).
        dropout: Dropout probability between layers, in training only.
        bidirectional: Whether a second layer reads each sequence backwards.
        proj_size: Size of projected states of an LSTM; 0 for none. Sequences with `lengths` support only 0.
        device: Device of the parameters; None for PyTorch's default device.
        dtype: Type of the parameters; None for PyTorch's default type.

    Example:
        >>> layer = LSTM(input_size=3, hidden_size=4, batch_first=True)
        >>> isinstance(layer, VariableLengthRNN), isinstance(layer, nn.LSTM)
        (True, True)
        >>> outputs, last = layer(torch.ones(2, 5, 3), lengths=torch.tensor([5, 2]))
        >>> outputs.shape, last.shape, outputs[1, 2:].any().item()
        (torch.Size([2, 5, 4]), torch.Size([1, 2, 4]), False)
    """

    def forward(self, x: Any, state: Any = None, lengths: Tensor | None = None) -> Any:
        """Run the layer; without `lengths` as PyTorch's layer.

        With `lengths` the initial state is 0 and `state` is not used: `run_packed` continues from a state.

        Args:
            x: Inputs, shape (N, T, F) with `batch_first` or with `lengths`.
            state: Initial state as PyTorch takes it: h, shape (layers · directions, N, hidden), or (h, c) for an LSTM;
                None for zeros. Only without `lengths`.
            lengths: Lengths from `sequence_lengths`, shape (N,), on the CPU; None if all steps are real.

        Returns:
            Without `lengths` the outputs and the state, as PyTorch returns them. With `lengths` the outputs, (N, T,
            directions · hidden), 0 beyond each length, and h of each layer and direction after the last step that it
            reads, (layers · directions, N, hidden).

        Raises:
            ConfigError: If `lengths` are given to an LSTM with projections, and the inputs are not on CUDA.
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
    """Elman's recurrent layers, h_t = tanh(W x_t + b + U h_{t−1} + b'): `nn.RNN` with support for lengths.

    Args:
        *args: Arguments of `nn.RNN` by position: `input_size`, `hidden_size`, `num_layers`, `nonlinearity`, ….
        **kwargs: The same by name. `batch_first` should be True; `nonlinearity` is "tanh", the default, or "relu".

    Example:
        >>> layer = RNN(3, 4, batch_first=True, bidirectional=True)
        >>> outputs, last = layer(torch.ones(2, 5, 3), lengths=torch.tensor([5, 2]))
        >>> outputs.shape, last.shape
        (torch.Size([2, 5, 8]), torch.Size([2, 2, 4]))
    """


class LSTM(VariableLengthRNN, nn.LSTM):
    """Long short-term memory: `nn.LSTM` with support for lengths.

    Args:
        *args: Arguments of `nn.LSTM` by position: `input_size`, `hidden_size`, `num_layers`, `bias`, ….
        **kwargs: The same by name. `batch_first` should be True.

    Example:
        >>> layer = LSTM(3, 4, batch_first=True)
        >>> outputs, (h, c) = layer(torch.ones(2, 5, 3))  # without lengths as nn.LSTM
        >>> outputs.shape, h.shape, c.shape
        (torch.Size([2, 5, 4]), torch.Size([1, 2, 4]), torch.Size([1, 2, 4]))
    """


class GRU(VariableLengthRNN, nn.GRU):
    """Gated recurrent units: `nn.GRU` with support for lengths.

    Args:
        *args: Arguments of `nn.GRU` by position: `input_size`, `hidden_size`, `num_layers`, `bias`, ….
        **kwargs: The same by name. `batch_first` should be True.

    Example:
        >>> layer = GRU(3, 4, batch_first=True)
        >>> x = torch.ones(2, 5, 3)  # the second sequence has two real steps
        >>> outputs, last = layer(x, lengths=torch.tensor([5, 2]))
        >>> torch.allclose(last[0, 1], layer(x[1:, :2])[1][0, 0], atol=1e-6)
        True
    """


def run_layers(layer: VariableLengthRNN, x: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Run the layers of a network from a state of zeros.

    Unlike the layers themselves, it returns the same two tensors for each kind of layer, with and without `lengths`.

    Args:
        layer: The layers, with `batch_first=True`.
        x: Inputs, shape (N, T, F).
        lengths: Lengths from `sequence_lengths`, shape (N,), on the CPU; None if all steps are real.

    Returns:
        The states h of the last layer at each step, (N, T, D · hidden), 0 beyond each length, and the last h of each
        layer and direction, (layers · D, N, hidden). D is 2 for bidirectional layers, else 1.

    Raises:
        ConfigError: If `lengths` are given for an LSTM with projections, and the inputs are not on CUDA.

    Example:
        >>> layer = LSTM(3, 4, num_layers=2, batch_first=True)
        >>> states, last = run_layers(layer, torch.ones(2, 5, 3), torch.tensor([5, 2]))
        >>> states.shape, last.shape
        (torch.Size([2, 5, 4]), torch.Size([2, 2, 4]))
        >>> torch.allclose(states[1, 1], last[-1, 1])  # the last real step of the second sequence
        True
    """
    if lengths is None:
        states, after = layer(x)
        return states, to_state_tuple(after)[0]
    states, last = layer(x, lengths=lengths)
    return states, last


def run_packed(
    layer: Callable[..., Any], x: Tensor, lengths: Tensor, state: State | None = None
) -> tuple[Tensor, State]:
    """Run the fused layer on packed sequences, optionally from a given state.

    Args:
        layer: A recurrent layer of PyTorch or of this module, or its `forward`.
        x: Inputs, shape (N, T, F).
        lengths: Lengths from `sequence_lengths`, shape (N,), on the CPU.
        state: Initial state, each part of shape (layers · directions, N, hidden); None for zeros.

    Returns:
        Outputs (N, T, directions · hidden), 0 beyond each length, and the state after the last real step, each part of
        shape (layers · directions, N, hidden).

    Example:
        >>> layer, x = LSTM(3, 4, batch_first=True), torch.ones(2, 5, 3)
        >>> outputs, state = run_packed(layer, x, torch.tensor([5, 2]))
        >>> outputs.shape, [part.shape for part in state]  # h and c
        (torch.Size([2, 5, 4]), [torch.Size([1, 2, 4]), torch.Size([1, 2, 4])])
        >>> outputs, state = run_packed(layer, x, torch.tensor([1, 3]), state)  # continue
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
        ConfigError: For an LSTM with projections.
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

    It is a loop over the steps, which stays a loop of any number of steps when a model is exported.

    Args:
        step: Maps a state and the inputs of a step, (N, F), to the next state and a tuple of outputs, each (N, …).
            Every state has the same shapes and types.
        state: Initial state, a tuple of tensors (N, …).
        inputs: Inputs, shape (N, S, F).

    Returns:
        The outputs, each of shape (N, S, …); an empty tuple for S = 0.

    Example:
        >>> def step(state, x):  # running sum
        ...     total = state[0] + x
        ...     return (total,), (total,)
        >>> (sums,) = scan_steps(step, (torch.zeros(1, 1),), torch.ones(1, 4, 1))
        >>> sums.flatten().tolist()
        [1.0, 2.0, 3.0, 4.0]
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
        ConfigError: For an LSTM with projections.
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
        layer: A recurrent layer or cell of PyTorch or of this module.
        level: Index of the layer in a stack, 0 for the first; not used for a cell.
        way: Direction: 0 forward, 1 backward; not used for a cell.

    Returns:
        The parameters W (gates · hidden, inputs) and U (gates · hidden, hidden), and b and b', (gates · hidden,), or
        None without biases. Rows are in the order of PyTorch: i, f, g, o of an LSTM, r, z, n of a GRU.

    Example:
        >>> W, U, b, b_state = layer_weights(LSTM(3, 4, num_layers=2), level=1)
        >>> W.shape, U.shape, b.shape
        (torch.Size([16, 4]), torch.Size([16, 4]), torch.Size([16]))
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
    """Pool the states of each sequence to the input of a head.

    Args:
        states: States at each step, shape (N, T, D · hidden), 0 beyond the lengths, as from `run_layers`.
        last: Last h of each layer and direction, shape (layers · D, N, hidden), as from `run_layers`.
        lengths: Lengths from `sequence_lengths`, shape (N,); None if all steps are real.
        pooling: "last" (the last h of each direction of the last layer), "mean" or "max" over the real steps, "flat"
            (all steps concatenated), or "every" (the states unchanged, for an output at each step).
        directions: D, 2 for bidirectional layers, else 1.
        steps: Number of steps T that "flat" expects; not used otherwise.

    Returns:
        The pooled states, shape (N, D · hidden); (N, T · D · hidden) for "flat", (N, T, D · hidden) for "every".

    Raises:
        ConfigError: If `pooling` is another word.
        InputShapeError: If "flat" is given padded sequences, or another number of steps.

    Example:
        >>> lengths = torch.tensor([5, 2])
        >>> states, last = run_layers(GRU(3, 4, batch_first=True), torch.ones(2, 5, 3), lengths)
        >>> pool_states(states, last, lengths, "mean").shape
        torch.Size([2, 4])
        >>> torch.equal(pool_states(states, last, lengths, "last"), last[-1])
        True
    """
    known = ("last", "mean", "max", "flat", "every")
    check_value(pooling in known, "pooling", pooling, "last, mean, max, flat or every")
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
    """Raise ConfigError for an LSTM with projected states, which is a different network."""
    check_value(layer.proj_size == 0, "proj_size", layer.proj_size, "0: an LSTM without projections")
