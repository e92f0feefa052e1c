"""Runtime estimates of attribution methods, from the operations of one forward pass instead of a clock, so
reproducible.

A small or fast model gets every check. For a large one, integrals use fewer points, occlusion uses a larger window, and
the weights are not randomized.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from .perturbation_methods import ACROSS, FOR_EACH, OCCLUSION_PARTS, SETS, SHORT
from .request import isolated
from .result import LEAST_DRAWS, MOST_DRAWS, SPREAD, STAGES
from .target import input_kind

RATE = 5e10  # operations per second of two cores
CALL = 2e-5  # seconds per call of a module
SPARSE = 20  # number of calls for which a graph layer counts, because its sums are sparse
TOGETHER = 16  # examples in one pass, which share its calls
BACKWARD = 2.5  # cost of a pass with gradient, in forward passes
POINTS, LEAST = 40, 4  # points of an integral, including repeated ones, and their minimum
SECONDS = 0.8  # for each map, and the same for its check


@dataclass(frozen=True)
class Plan:
    """Settings with which a method runs."""

    steps: int | None  # None: until convergence
    window: int | None
    randomise: bool
    brief: bool  # whether the computation is reduced


def seconds(model: nn.Module, inputs: tuple[Tensor, ...]) -> float:
    """Estimate the time of a forward pass for one example."""
    one = inputs if input_kind(inputs) == "graph" else tuple(x[:1] for x in inputs)
    counter = FlopCounterMode(display=False)
    with isolated(model, 0), torch.no_grad(), counter:
        model(*one)
    weights = sum(p.numel() for p in model.parameters())
    sums = max(counter.get_total_flops(), 2 * weights)  # recurrent layers are not counted: each weight at least once
    kind = input_kind(inputs)
    steps = one[0].shape[1] if kind in ("text", "seq2seq", "series", "video") else 0
    recurrent = sum(isinstance(m, nn.RNNBase | nn.RNNCellBase) for m in model.modules())
    calls = sum(1 for _ in model.modules()) * (SPARSE if kind == "graph" else 1) + steps * recurrent
    return sums / RATE + CALL * calls / (1 if kind == "graph" else TOGETHER)


def plan(method: str, inputs: tuple[Tensor, ...], one: float, near: Tensor | None = None) -> Plan | None:
    """Return the settings of a method for an example that costs `one` seconds per pass; None if it would take too
    long.

    For a graph, `near` are the nodes within reach.
    """
    kind, first = input_kind(inputs), inputs[0]
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
    usual = {"image": (2 * ACROSS - 1) ** 2, "video": SHORT**3, "graph": min(len(near), OCCLUSION_PARTS // 2)}
    passes = usual.get(kind, min(size, OCCLUSION_PARTS))
    if method == "kernel_shap":
        passes = SETS + FOR_EACH * min(size, OCCLUSION_PARTS)
    elif method == "edges":
        passes = min(int(torch.isin(inputs[1], near).all(0).sum()), OCCLUSION_PARTS)
    if method != "kernel_shap" and passes * one > SECONDS:
        across = int(math.sqrt(SECONDS / one) / 2)  # number of windows along a side, which overlap by half
        if kind != "image" or method != "occlusion" or across < 3:
            return None
        window, passes = -(-min(first.shape[-2:]) // across), (2 * across - 1) ** 2
    return Plan(None, window, again * passes * one <= SECONDS, window is not None)
