"""Recurrent layers: one step as its equations stand, all steps by PyTorch's fused layers, sequences of many lengths.

    Elman (1990)   h_t = tanh(W x_t + b + U h_{t−1} + b')                       <https://doi.org/10.1207/s15516709cog1402_1>
    LSTM (1997)    i, f, o = σ(W x_t + b + U h_{t−1} + b'),  g = tanh(the same)     <https://doi.org/10.1162/neco.1997.9.8.1735>
                   c_t = f ⊙ c_{t−1} + i ⊙ g,   h_t = o ⊙ tanh(c_t)
    GRU (2014)     r, z = σ(W x_t + b + U h_{t−1} + b')                                  <https://arxiv.org/abs/1406.1078>
                   n = tanh(W_n x_t + b_n + r ⊙ (U_n h_{t−1} + b'_n))      reset after the product, as PyTorch has it
                   n = tanh(W_n x_t + b_n + U_n (r ⊙ h_{t−1}) + b'_n)      reset before it, as the paper has it
                   h_t = (1 − z) ⊙ n + z ⊙ h_{t−1}

Each gate has its own rows of W, U, b and b'; they stand one below another in the order i, f, g, o and r, z, n, as in
PyTorch's layers. Two vectors of biases are one too many in all but n of the GRU; PyTorch has them for cuDNN's sake.

Three paths give the same numbers. `unroll` is the textbook's: step after step, through the functions above. `packed`
hands sequences of many lengths to the fused layer, which computes no padding: the way on CUDA. On a CPU packing costs
more than it saves, because the fused operation takes no packed sequences there; `in_rectangles` sorts the sequences and
runs rectangles, each with the sequences that have not ended. Sequences are padded on the right: a step that is not real
leaves states as they are, and what stands there in the outputs is 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from ..errors import ModelError, require
from .masks import after_padding, real_places

State = tuple[Tensor, ...]  # h, and c behind it for an LSTM; (N, hidden) in a step, (layers · ways, N, hidden) whole
Weights = Sequence[Tensor]  # W (gates · hidden, inputs), U (gates · hidden, hidden), and b and b' (gates · hidden,)

RECTANGLES = 8  # at most so many for a batch: more save less padding than they cost in calls
LEAST_SHARE = 0.1  # of padding in a batch that is worth leaving out
LEAST_WORK = 4096  # numbers in the states of a batch: below it a step costs the same however few sequences take it


# --- one step ---------------------------------------------------------------------------------------------------------


def _sums(x: Tensor, h: Tensor, weights: Weights) -> tuple[Tensor, Tensor]:
    """W x + b and U h + b'; the biases may be left out."""
    W, U, *biases = weights
    b, b_hidden = biases or (None, None)
    return F.linear(x, W, b), F.linear(h, U, b_hidden)


def elman_step(x: Tensor, state: State, weights: Weights, activation: Callable[[Tensor], Tensor] = torch.tanh) -> State:
    """One step of Elman's network: x (N, inputs) and h (N, hidden) to the next h."""
    from_input, from_state = _sums(x, state[0], weights)
    return (activation(from_input + from_state),)


def lstm_step(x: Tensor, state: State, weights: Weights) -> State:
    """One step of the LSTM with forget gates and without peepholes: x (N, inputs), h and c (N, hidden) to the next."""
    found = lstm_gates(x, state, weights)
    return found["state"], found["cell"]


def lstm_gates(x: Tensor, state: State, weights: Weights) -> dict[str, Tensor]:
    """All that a step of the LSTM computes: input, forget, candidate and output gate, the next cell and state."""
    h, c = state
    from_input, from_state = _sums(x, h, weights)
    i, f, g, o = (from_input + from_state).chunk(4, dim=1)  # each (N, hidden)
    i, f, g, o = torch.sigmoid(i), torch.sigmoid(f), torch.tanh(g), torch.sigmoid(o)
    c = f * c + i * g
    return {"input": i, "forget": f, "candidate": g, "output": o, "cell": c, "state": o * torch.tanh(c)}


def gru_step(x: Tensor, state: State, weights: Weights, reset: str = "after") -> State:
    """One step of the GRU: x (N, inputs) and h (N, hidden) to the next h.

    `reset` says where the reset gate stands: "after" the product with U_n, as in PyTorch and cuDNN, where r weighs what
    U_n makes of h; or "before" it, as published, where r chooses among the numbers of h. With the same weights these
    are two networks.
    """
    return (gru_gates(x, state, weights, reset)["state"],)


def gru_gates(x: Tensor, state: State, weights: Weights, reset: str = "after") -> dict[str, Tensor]:
    """All that a step of the GRU computes: reset and update gate, the candidate n and the next state."""
    require(reset in ("after", "before"), "reset", reset, "after or before")
    h = state[0]
    from_input, from_state = _sums(x, h, weights)
    r_x, z_x, n_x = from_input.chunk(3, dim=1)  # each (N, hidden)
    r_h, z_h, n_h = from_state.chunk(3, dim=1)
    r, z = torch.sigmoid(r_x + r_h), torch.sigmoid(z_x + z_h)
    if reset == "after":
        n = torch.tanh(n_x + r * n_h)
    else:
        own = [weight.chunk(3)[2] for weight in weights]  # W_n, U_n and their biases
        n = torch.tanh(n_x + _sums(x, r * h, own)[1])
    return {"reset": r, "update": z, "candidate": n, "state": (1 - z) * n + z * h}


# --- all steps, as the textbook has it --------------------------------------------------------------------------------


def unroll(
    layer: nn.RNNBase, x: Tensor, mask: Tensor | None = None, state: State | None = None, reset: str = "after"
) -> tuple[Tensor, State]:
    """What an `nn.RNN`, `nn.LSTM` or `nn.GRU` computes of x (N, T, F), step after step, with the layer's own weights.

    `mask` (N, T) is True where a step is real. Outputs (N, T, ways · hidden), 0 where it is not, and the final state:
    of each layer and way one behind the other, (layers · ways, N, hidden). `state` is what to begin with, likewise;
    zeros if there is none. x is batch-first, whatever the layer says. `reset="before"` computes the published GRU.
    Raises ModelError for an LSTM with projections.
    """
    refuse_projections(layer)
    ways = 2 if layer.bidirectional else 1
    state = begin(layer, x) if state is None else state
    final: list[State] = []
    for level in range(layer.num_layers):
        found = []
        for way in range(ways):
            first = tuple(part[len(final)] for part in state)
            weights = weights_of(layer, level, way)
            steps = range(x.shape[1]) if way == 0 else range(x.shape[1] - 1, -1, -1)
            outputs, last = _one_way(layer, x, mask, first, weights, steps, reset)
            found.append(outputs)
            final.append(last)
        x = torch.cat(found, dim=2)  # (N, T, ways · hidden)
        if level + 1 < layer.num_layers and layer.dropout:
            # PyTorch's layers hold steps first; in that order the same numbers are dropped.
            x = F.dropout(x.transpose(0, 1).contiguous(), layer.dropout, layer.training).transpose(0, 1)
    return x, tuple(torch.stack(part) for part in zip(*final))


def _one_way(
    layer: nn.RNNBase, x: Tensor, mask: Tensor | None, state: State, weights: Weights, steps: range, reset: str
) -> tuple[Tensor, State]:
    """One layer in one direction: outputs (N, T, hidden) and the last state."""
    outputs: list[Tensor] = [x.new_empty(0)] * x.shape[1]
    for t in steps:
        if layer.mode == "LSTM":
            after = lstm_step(x[:, t], state, weights)
        elif layer.mode == "GRU":
            after = gru_step(x[:, t], state, weights, reset)
        else:
            after = elman_step(x[:, t], state, weights, torch.relu if layer.mode == "RNN_RELU" else torch.tanh)
        if mask is None:
            state, outputs[t] = after, after[0]
        else:
            real = mask[:, t, None]  # (N, 1)
            state = tuple(torch.where(real, new, old) for new, old in zip(after, state))
            outputs[t] = torch.where(real, after[0], torch.zeros_like(after[0]))
    return torch.stack(outputs, dim=1), state


# --- sequences of many lengths ----------------------------------------------------------------------------------------


def lengths_of(mask: Tensor | None, steps: int) -> Tensor | None:
    """How many steps of each sequence are real, (N,) on the CPU; None where all `steps` of all of them are.

    A mask without numbers (on the meta device) counts as all real. Raises ModelError for what is no mask of so many
    steps, where padding is not on the right alone, or a sequence is nothing but padding.
    """
    mask = None if mask is None else real_places(mask, (len(mask), steps))
    if mask is None or mask.is_meta:
        return None
    lengths = mask.sum(1).masked_fill(after_padding(mask), -1).cpu()  # both answers in one transfer
    for i, length in enumerate(lengths.tolist()):
        if length < 1:
            wrong = "has no real step" if length == 0 else "has padding before a real step"
            raise ModelError(
                f"Sequence {i} of the batch {wrong}: a recurrent network reads from the left, so padding must stand "
                "behind the last real step, and at least one step must be real."
            )
    return None if bool((lengths == steps).all()) else lengths


class Ragged(nn.RNNBase):
    """What `RNN`, `LSTM` and `GRU` here add to PyTorch's own: sequences of many lengths, padded to one."""

    def forward(self, x: Any, state: Any = None, lengths: Tensor | None = None) -> Any:
        """As PyTorch's layer without `lengths`. With them, (N,) on the CPU as `lengths_of` gives them, for x (N, T, F):
        outputs (N, T, ways · hidden), 0 beyond each length, and the last h of each layer and way, (layers · ways, N,
        hidden), from a state of zeros, by whichever way is fast on the device."""
        if lengths is None:
            return super().forward(x, state)
        if x.is_cuda:
            outputs, after = packed(super().forward, x, lengths)
            return outputs, after[0]
        return in_rectangles(self, x, lengths)


class RNN(Ragged, nn.RNN):
    """Elman's layers: `nn.RNN` that takes lengths."""


class LSTM(Ragged, nn.LSTM):
    """`nn.LSTM` that takes lengths."""


class GRU(Ragged, nn.GRU):
    """`nn.GRU` that takes lengths."""


def packed(layer: Callable[..., Any], x: Tensor, lengths: Tensor, state: State | None = None) -> tuple[Tensor, State]:
    """Outputs and final state of the fused layer over packed sequences, as `unroll` gives them."""
    bundle = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    found, after = layer(bundle, as_given(state))
    outputs, _ = pad_packed_sequence(found, batch_first=True, total_length=x.shape[1])
    return outputs, as_state(after)


def in_rectangles(layer: nn.RNNBase, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Outputs and the last h, by the fused layer on the steps between one cut and the next, of those sequences that
    reach so far. Raises ModelError for an LSTM with projections."""
    refuse_projections(layer)
    order = lengths.argsort(descending=True, stable=True)
    lengths, on_device = lengths[order], order.to(x.device)
    x, steps = x.index_select(0, on_device), x.shape[1]
    cuts = cuts_of(lengths, steps, layer.hidden_size)

    step, own = torch.arange(steps, device=x.device), lengths.to(x.device)[:, None]
    mask = step < own  # (N, T)
    mirror = torch.where(mask, own - 1 - step, step)  # each sequence backwards, its padding where it was
    rows = torch.arange(len(x), device=x.device)
    last = []
    for level in range(layer.num_layers):
        found = []
        for way in range(2 if layer.bidirectional else 1):
            outputs = _rectangles(layer, weights_of(layer, level, way), _turned(x, mirror) if way else x, lengths, cuts)
            last.append(outputs[rows, own[:, 0] - 1])  # (N, hidden)
            found.append(_turned(outputs, mirror) if way else outputs)
        x = torch.cat(found, dim=2) if len(found) > 1 else found[0]  # (N, T, ways · hidden)
        if level + 1 < layer.num_layers:
            x = F.dropout(x, layer.dropout, layer.training)
    back = on_device.argsort()
    outputs = x.index_select(0, back).masked_fill_(~mask[back, :, None], 0)
    return outputs, torch.stack(last).index_select(1, back)


def cuts_of(lengths: Tensor, steps: int, hidden: int) -> list[int]:
    """The steps at which sequences that have ended are left out, the last of them the last step of all.

    `lengths` are in falling order. Between two cuts about one eighth of the sequences end.
    """
    enough = len(lengths) * hidden >= LEAST_WORK
    if not enough or int(lengths.sum()) > (1 - LEAST_SHARE) * steps * len(lengths):
        return [steps]
    each = -(-len(lengths) // RECTANGLES)
    return sorted({*lengths[::each].tolist(), int(lengths[0])})


def _rectangles(layer: nn.RNNBase, weights: list[Tensor], x: Tensor, lengths: Tensor, cuts: list[int]) -> Tensor:
    """One layer in one direction: outputs (N, T, hidden), of which those beyond a sequence's length mean nothing."""
    state = tuple(part[0] for part in begin(layer, x))
    found, start = [], 0
    for cut in cuts:
        going = int((lengths > start).sum())  # sequences that have not ended, the first so many
        state = tuple(part[:going] for part in state)
        outputs, state = _fused(layer, weights, x[:going, start:cut], state)
        found.append(F.pad(outputs, (0, 0, 0, 0, 0, len(x) - going)))  # (N, cut − start, hidden)
        start = cut
    if start < x.shape[1]:  # steps that no sequence reaches
        found.append(x.new_zeros(len(x), x.shape[1] - start, layer.hidden_size))
    return found[0] if len(found) == 1 else torch.cat(found, dim=1)


def _fused(layer: nn.RNNBase, weights: list[Tensor], x: Tensor, state: State) -> tuple[Tensor, State]:
    """PyTorch's fused operation for one layer in one direction; states are (N, hidden)."""
    settings = (layer.bias, 1, 0.0, layer.training, False, True)  # one layer, no dropout, one way, batch first
    if layer.mode == "LSTM":
        outputs, h, c = torch.lstm(x, [part[None] for part in state], weights, *settings)
        return outputs, (h[0], c[0])
    run = {"GRU": torch.gru, "RNN_TANH": torch.rnn_tanh, "RNN_RELU": torch.rnn_relu}[layer.mode]
    outputs, h = run(x, state[0][None], weights, *settings)
    return outputs, (h[0],)


def _turned(x: Tensor, mirror: Tensor) -> Tensor:
    """Each sequence of (N, T, F) backwards."""
    return x.gather(1, mirror[..., None].expand_as(x))


# --- what the paths share ---------------------------------------------------------------------------------------------


def weights_of(layer: nn.RNNBase, level: int, way: int) -> list[Tensor]:
    """W, U, and b and b' where there are biases, of one layer in one direction (0 forward, 1 backward)."""
    names = ("weight_ih", "weight_hh", *(("bias_ih", "bias_hh") if layer.bias else ()))
    return [getattr(layer, f"{name}_l{level}{'_reverse' * way}") for name in names]


def begin(layer: nn.RNNBase, x: Tensor) -> State:
    """The state of zeros for sequences x (N, …): (layers · ways, N, hidden), twice for an LSTM."""
    ways = 2 if layer.bidirectional else 1
    zeros = x.new_zeros(layer.num_layers * ways, len(x), layer.hidden_size)
    return (zeros, zeros) if layer.mode == "LSTM" else (zeros,)


def as_given(state: State | None) -> Tensor | State | None:
    """The state as PyTorch's layers take it: a tensor, or two for an LSTM."""
    return state[0] if state is not None and len(state) == 1 else state


def as_state(given: Tensor | State) -> State:
    """The state that PyTorch's layers gave, as a tuple."""
    return given if isinstance(given, tuple) else (given,)


def refuse_projections(layer: nn.RNNBase) -> None:
    """Raise ModelError for an LSTM whose states are projected, which is another network."""
    require(layer.proj_size == 0, "proj_size", layer.proj_size, "0: an LSTM without projections")
