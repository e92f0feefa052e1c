"""Memory of a recurrent layer: the sensitivity ∂s_T/∂s_t of its state to earlier states, by the lag T − t.

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

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from ..nn.recurrent import State, layer_weights, to_state_tuple, zero_state
from .gates import RecurrentCall, parse_call, replay, step_function

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
    """Return a newly initialized Elman network of the same size, in the precision of `like`."""
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        return nn.RNN(inputs, hidden, batch_first=True).to(like.dtype)
