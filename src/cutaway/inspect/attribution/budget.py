"""How long a method will take, told from the sums in one forward pass and not from a clock: the same every time.

A model that is small or quick gets every check; of a large one fewer points of an integral are taken, a larger window
slides, and its weights are not made random.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from .checks import LEAST_DRAWS, MOST_DRAWS, SPREAD, STAGES
from .occlusion import ACROSS, PARTS, SHORT
from .request import undisturbed
from .shap import FOR_EACH, SETS
from .target import kind_of

RATE = 5e10  # operations in a second, of two cores
CALL = 2e-5  # seconds for a module, however small
SPARSE = 20  # as many for a layer of a graph, whose sums are sparse
TOGETHER = 16  # examples in one pass, among which the calls are shared
BACKWARD = 2.5  # a pass with its gradient, in forward passes
POINTS, LEAST = 40, 4  # of an integral, with those that are taken twice; fewer than 4 are none
SECONDS = 0.8  # for each map, and again for its check


@dataclass(frozen=True)
class Plan:
    """How a method is asked."""

    steps: int | None  # None: as many as it takes
    window: int | None
    randomise: bool
    brief: bool  # whether something was left out


def seconds(model: nn.Module, inputs: tuple[Tensor, ...]) -> float:
    """What one example costs in a forward pass, about."""
    one = inputs if kind_of(inputs) == "graph" else tuple(x[:1] for x in inputs)
    counter = FlopCounterMode(display=False)
    with undisturbed(model, 0), torch.no_grad(), counter:
        model(*one)
    weights = sum(p.numel() for p in model.parameters())
    sums = max(counter.get_total_flops(), 2 * weights)  # recurrent layers are not counted: each weight at least once
    kind = kind_of(inputs)
    steps = one[0].shape[1] if kind in ("text", "seq2seq", "series", "video") else 0
    recurrent = sum(isinstance(m, nn.RNNBase | nn.RNNCellBase) for m in model.modules())
    calls = sum(1 for _ in model.modules()) * (SPARSE if kind == "graph" else 1) + steps * recurrent
    return sums / RATE + CALL * calls / (1 if kind == "graph" else TOGETHER)


def plan(method: str, inputs: tuple[Tensor, ...], one: float, near: Tensor | None = None) -> Plan | None:
    """How the method can be asked of one example that costs `one` second a pass; None where it would take too long.
    Of a graph, `near` are the nodes within reach."""
    kind, first = kind_of(inputs), inputs[0]
    sizes = {"text": first.shape[-1], "seq2seq": 2 * first.shape[-1], "graph": len(first if near is None else near)}
    size = sizes.get(kind, math.prod(first.shape[1:]))
    draws = min(MOST_DRAWS, max(LEAST_DRAWS, math.ceil(1 / (SPREAD**2 * max(1, size - 1)))))
    again = draws * STAGES
    gradient = one * BACKWARD
    if method in ("integrated_gradients", "gradient_shap"):
        if gradient * LEAST > 2 * SECONDS:
            return None
        steps = None if gradient * POINTS <= 2 * SECONDS else max(LEAST, int(SECONDS / gradient))
        return Plan(steps, None, again * gradient * 8 <= SECONDS, steps is not None)
    if method in ("gradient", "input_x_gradient", "grad_cam", "rollout"):
        return Plan(None, None, again * gradient <= SECONDS, False)
    window = None
    near = torch.arange(len(first)) if near is None else near
    usual = {"image": (2 * ACROSS - 1) ** 2, "video": SHORT**3, "graph": min(len(near), PARTS // 2)}
    passes = usual.get(kind, min(size, PARTS))
    if method == "kernel_shap":
        passes = SETS + FOR_EACH * min(size, PARTS)
    elif method == "edges":
        passes = min(int(torch.isin(inputs[1], near).all(0).sum()), PARTS)
    if method != "kernel_shap" and passes * one > SECONDS:
        across = int(math.sqrt(SECONDS / one) / 2)  # windows side by side, which overlap by half
        if kind != "image" or method != "occlusion" or across < 3:
            return None
        window, passes = -(-min(first.shape[-2:]) // across), (2 * across - 1) ** 2
    return Plan(None, window, again * passes * one <= SECONDS, window is not None)
