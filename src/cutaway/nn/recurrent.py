"""Recurrent layers: PyTorch's fused ones, which run all steps at once, and sequences of many lengths.

What one step computes is in the files of the networks, `models/rnn.py`, `lstm.py` and `gru.py`; `inspect/gates.py`
takes one such step after the other, and these layers are held to that. Each gate has its own rows of W, U, b and b';
they stand one below another in the order i, f, g, o and r, z, n, as in PyTorch's layers. Two vectors of biases are one
too many in all but n of the GRU; PyTorch has them for cuDNN's sake.

`packed` hands sequences of many lengths to the fused layer, which computes no padding: the way on CUDA. On a CPU
packing costs more than it saves, because the fused operation takes no packed sequences there; `in_rectangles` sorts the
sequences and runs rectangles, each with the sequences that have not ended. Sequences are padded on the right: a step
that is not real leaves states as they are, and what stands there in the outputs is 0.
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

from ..core.errors import ModelError, require
from .masks import after_padding, real_places

State = tuple[Tensor, ...]  # h, and c after it for an LSTM; (N, hidden) in a step, (layers · ways, N, hidden) whole
# W (gates · hidden, inputs), U (gates · hidden, hidden), and b and b' (gates · hidden,), where there are biases
Weights = tuple[Tensor, Tensor, Tensor | None, Tensor | None]
# One step: x (N, inputs), the state and the weights to all that it computes by name, each (N, hidden): h as "state",
# where the state has a c too that as "cell", and the gates.
Step = Callable[[Tensor, State, Weights], dict[str, Tensor]]

RECTANGLES = 8  # at most so many for a batch: more save less padding than they cost in calls
LEAST_SHARE = 0.1  # of padding in a batch that is worth leaving out
LEAST_WORK = 4096  # numbers in the states of a batch: below it a step costs the same however few sequences take it


@runtime_checkable
class Steps(Protocol):
    """A layer or a cell, derived from `nn.RNNBase` or `nn.RNNCellBase`, that says what a step of its own computes: its
    gates can be seen by that (`cutaway.inspect`). Those of PyTorch need not say it."""

    def step(self, x: Tensor, state: State, weights: Weights) -> dict[str, Tensor]:
        """What it computes of x, (N, F), and the state, each (N, H), by name."""


# --- sequences of many lengths ----------------------------------------------------------------------------------------


def lengths_of(mask: Tensor | None, steps: int) -> Tensor | None:
    """How many steps of each sequence are real, (N,) on the CPU; None where all `steps` of all of them are.

    A mask without numbers (on the meta device) counts as all real. Raises ModelError for what is no mask of so many
    steps, where padding is not on the right alone, or a sequence is nothing but padding.
    """
    mask = None if mask is None else real_places(mask, (mask.shape[0], steps))
    if mask is None or mask.is_meta:
        return None
    if torch.compiler.is_exporting():  # no value is known
        return mask.sum(1)
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
        if torch.compiler.is_exporting():
            outputs, after = scanned(self, x, lengths, None if state is None else as_state(state))
            return outputs, as_given(after) if lengths is None else after[0]
        if lengths is not None and not x.is_cuda:
            return in_rectangles(self, x, lengths)
        with goes_back(self, x):
            if lengths is None:
                return super().forward(x, state)
            outputs, after = packed(super().forward, x, lengths)
            return outputs, after[0]


def goes_back(layer: nn.Module, x: Tensor) -> contextlib.AbstractContextManager[object]:
    """Within it a layer that is given x (N, T, F) on a GPU has gradients in evaluation too, as attributions take them:
    cuDNN keeps what those need in training alone, and stays out then."""
    if x.is_cuda and torch.is_grad_enabled() and not layer.training:
        return torch.backends.cudnn.flags(enabled=False)
    return contextlib.nullcontext()


class RNN(Ragged, nn.RNN):
    """Elman's layers: `nn.RNN` that takes lengths."""


class LSTM(Ragged, nn.LSTM):
    """`nn.LSTM` that takes lengths."""


class GRU(Ragged, nn.GRU):
    """`nn.GRU` that takes lengths."""


def packed(layer: Callable[..., Any], x: Tensor, lengths: Tensor, state: State | None = None) -> tuple[Tensor, State]:
    """Outputs (N, T, ways · hidden), 0 beyond each length, and the final state of the fused layer, packed."""
    if torch.compiler.is_exporting() and isinstance(layer, nn.RNNBase):
        return scanned(layer, x, lengths, state)
    bundle = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    found, after = layer(bundle, as_given(state))
    outputs, _ = pad_packed_sequence(found, batch_first=True, total_length=x.shape[1])
    return outputs, as_state(after)


def in_rectangles(layer: nn.RNNBase, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Outputs, (N, T, H), and the last h, (N, H), of x, (N, T, F), by the fused layer on the steps between one cut and
    the next, of those sequences that reach so far. Raises ModelError for an LSTM with projections."""
    reject_projections(layer)
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

    `lengths`, (N,), are in falling order. Between two cuts about one eighth of the sequences end.
    """
    enough = len(lengths) * hidden >= LEAST_WORK
    if not enough or int(lengths.sum()) > (1 - LEAST_SHARE) * steps * len(lengths):
        return [steps]
    each = -(-len(lengths) // RECTANGLES)
    return sorted({*lengths[::each].tolist(), int(lengths[0])})


def _rectangles(layer: nn.RNNBase, weights: Weights, x: Tensor, lengths: Tensor, cuts: list[int]) -> Tensor:
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


def _fused(layer: nn.RNNBase, weights: Weights, x: Tensor, state: State) -> tuple[Tensor, State]:
    """PyTorch's fused operation for one layer in one direction; states are (N, hidden)."""
    flat = [weight for weight in weights if weight is not None]
    settings = (layer.bias, 1, 0.0, layer.training, False, True)  # one layer, no dropout, one way, batch first
    if layer.mode == "LSTM":
        outputs, h, c = torch.lstm(x, [part[None] for part in state], flat, *settings)
        return outputs, (h[0], c[0])
    run = {"GRU": torch.gru, "RNN_TANH": torch.rnn_tanh, "RNN_RELU": torch.rnn_relu}[layer.mode]
    outputs, h = run(x, state[0][None], flat, *settings)
    return outputs, (h[0],)


def _turned(x: Tensor, mirror: Tensor) -> Tensor:
    """Each sequence of (N, T, F) backwards."""
    return x.gather(1, mirror[..., None].expand_as(x))


def over_steps(
    step: Callable[[State, Tensor], tuple[State, State]], state: State, inputs: Tensor
) -> tuple[Tensor, ...]:
    """What a step gives at each of the steps of `inputs` (N, S, F), stacked, (N, S, …) each. `step` takes a state and
    (N, F) and gives the state after it, and what it gives."""
    if torch.compiler.is_exporting():  # a loop would fix S

        def scanned_step(state: list[Tensor], x: Tensor) -> tuple[list[Tensor], list[Tensor]]:
            after, given = step(tuple(state), x)
            return list(after), [part.clone() for part in given]  # the operator takes no tensor twice

        _, given = _scan(scanned_step, list(state), inputs.transpose(0, 1))
        return tuple(part.transpose(0, 1) for part in given)
    found = []
    for x in inputs.unbind(1):
        state, given = step(state, x)
        found.append(given)
    return tuple(torch.stack(parts, 1) for parts in zip(*found))


# --- in a graph that is exported --------------------------------------------------------------------------------------


def scanned(layer: nn.RNNBase, x: Tensor, lengths: Tensor | None, state: State | None = None) -> tuple[Tensor, State]:
    """What `packed` gives of x, (N, T, F), by one step that is scanned over time: in a graph that is exported it leaves
    the length free, where torch.export unrolls the fused layers at the length of its example. Raises ModelError as
    `in_rectangles` does."""
    reject_projections(layer)
    real = torch.ones_like(x[..., 0], dtype=torch.bool)  # (N, T)
    if lengths is not None:
        real = real.cumsum(1) <= lengths[:, None]
    before = begin(layer, x) if state is None else state
    after: list[State] = []
    for level in range(layer.num_layers):
        found = []
        for way in range(2 if layer.bidirectional else 1):
            own = tuple(part[len(after)] for part in before)
            outputs, last = _layer_scanned(layer, weights_of(layer, level, way), x, real, own, backwards=way == 1)
            found.append(outputs)
            after.append(last)
        x = torch.cat(found, dim=2) if len(found) > 1 else found[0]  # (N, T, ways · hidden)
    return x, tuple(torch.stack(parts) for parts in zip(*after))


def _layer_scanned(
    layer: nn.RNNBase, weights: Weights, x: Tensor, real: Tensor, state: State, backwards: bool
) -> tuple[Tensor, State]:
    """One layer in one direction: outputs (N, T, hidden), 0 where a step is not real, and the state after the last real
    one."""
    W, U, b, b_state = weights
    inputs = F.linear(x, W, b).transpose(0, 1)  # (T, N, gates · hidden): all that does not wait for a state

    def step(state: list[Tensor], at: list[Tensor]) -> tuple[list[Tensor], Tensor]:
        own, there = at[0], at[1][:, None]
        new = _step(layer.mode, own, F.linear(state[0], U, b_state), state)
        kept = [torch.where(there, part, old) for part, old in zip(new, state)]
        return kept, torch.where(there, new[0], torch.zeros_like(new[0]))

    last, outputs = _scan(step, [part.clone() for part in state], [inputs, real.t()], reverse=backwards)
    return outputs.transpose(0, 1), tuple(last)


def _scan(step: Callable[[list[Tensor], Any], Any], state: list[Tensor], inputs: Any, reverse: bool = False) -> Any:
    """The last state, and what each step gave, (S, …), over inputs (S, …): PyTorch's operator, a prototype in 2.13 that
    is on no public path yet."""
    scan = importlib.import_module("torch._higher_order_ops.scan").scan
    return scan(step, state, inputs, reverse=reverse)


def _step(mode: str, ours: Tensor, theirs: Tensor, state: list[Tensor]) -> list[Tensor]:
    """The state after a step, from W x + b and U h + b', each (N, gates · hidden)."""
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


# --- what the paths share ---------------------------------------------------------------------------------------------


def weights_of(layer: nn.RNNBase | nn.RNNCellBase, level: int = 0, way: int = 0) -> Weights:
    """W, U, b and b' of one layer in one direction (0 forward, 1 backward), or of a cell."""
    end = "" if isinstance(layer, nn.RNNCellBase) else f"_l{level}{'_reverse' * way}"
    biases = (getattr(layer, f"bias_ih{end}"), getattr(layer, f"bias_hh{end}")) if layer.bias else (None, None)
    return getattr(layer, f"weight_ih{end}"), getattr(layer, f"weight_hh{end}"), *biases


def begin(layer: nn.RNNBase, x: Tensor) -> State:
    """The state of zeros for sequences x (N, …): (layers · ways, N, hidden), twice for an LSTM."""
    ways = 2 if layer.bidirectional else 1
    zeros = x.new_zeros(layer.num_layers * ways, x.shape[0], layer.hidden_size)  # len would fix it in an export
    return (zeros, zeros) if layer.mode == "LSTM" else (zeros,)


def as_given(state: State | None) -> Tensor | State | None:
    """The state as PyTorch's layers take it: a tensor, (layers, N, H), or two for an LSTM."""
    return state[0] if state is not None and len(state) == 1 else state


def as_state(given: Tensor | State) -> State:
    """The state that PyTorch's layers gave, (layers, N, H) each, as a tuple."""
    return given if isinstance(given, tuple) else (given,)


def reject_projections(layer: nn.RNNBase) -> None:
    """Raise ModelError for an LSTM whose states are projected, which is another network."""
    require(layer.proj_size == 0, "proj_size", layer.proj_size, "0: an LSTM without projections")
