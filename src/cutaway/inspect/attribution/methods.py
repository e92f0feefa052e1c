"""Attribution methods by name, the function that runs them, and estimates of their time.

Times are estimated from the operations of one forward pass instead of a clock, so that the settings chosen by them are
reproducible. A small or fast model gets every check. For a large one, integrals use fewer points, occlusion uses a
larger window, and the weights are not randomized.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from ...core.errors import InputShapeError, SettingError, UnknownName
from ...models.base import EncoderDecoder, parse_forward_args
from ..ablation import Inputs, as_tuple
from ..example_inputs import reject_compiled
from .explained_output import Asked, Baseline, Entry, build_entry, input_kind
from .gradient_methods import grad_cam, gradient, input_x_gradient, integrated_gradients, rollout
from .perturbation_methods import (
    ACROSS,
    FOR_EACH,
    OCCLUSION_PARTS,
    SETS,
    SHORT,
    edges,
    gradient_shap,
    kernel_shap,
    occlusion,
)
from .result import (
    LEAST_DRAWS,
    MOST_DRAWS,
    SPREAD,
    STAGES,
    Attribution,
    AttributionMap,
    Completeness,
    MethodSettings,
    absolute_sum,
    isolated,
    randomization_check,
)

METHODS: dict[str, Callable[[Entry, MethodSettings], AttributionMap]] = {
    "gradient": gradient,
    "input_x_gradient": input_x_gradient,
    "integrated_gradients": integrated_gradients,
    "gradient_shap": gradient_shap,
    "kernel_shap": kernel_shap,
    "occlusion": occlusion,
    "edges": edges,
    "grad_cam": grad_cam,
    "rollout": rollout,
}
LARGE = 20_000_000  # number of parameters from which on few steps are used and weights are not randomized by default
FEW = 16  # number of those steps
ROUNDING = 8  # tolerated rounding error of an output, in units in the last place
BRIEF = 8  # steps for maps with random weights, of which only ranks matter
LEAST_SETS = 48  # smallest number of KernelShap's samples for them


def attribute(
    model: nn.Module,
    inputs: Inputs,
    method: str = "integrated_gradients",
    target: Asked = None,
    *,
    baseline: Baseline = None,
    steps: int | None = None,
    layer: str | None = None,
    window: int | None = None,
    background: Tensor | None = None,
    randomise: bool | None = None,
    seed: int = 0,
) -> Attribution:
    """Attribute one output of a model to the parts of its inputs, and check the result.

    The model is left unchanged, bit for bit.

    Args:
        model: The model.
        inputs: The inputs, a tensor (N, …) or several arguments of `forward`.
        method: "gradient", "input_x_gradient", "integrated_gradients", "gradient_shap", "kernel_shap", "occlusion",
            "grad_cam", "rollout" for attention, or "edges" for graphs.
        target: The explained output (a class), or (position, output) for a model with outputs at many positions
            (tokens, nodes). Default: the model's own prediction: its class, the token after the last real one, its
            first forecast, the class of the first node.
        baseline: The neutral input: a number or a tensor like the first input, 0 by default. For tokens the index of a
            token; by default the mean embedding of the vocabulary.
        steps: Points of integrals, or random samples. Default: until convergence.
        layer: Name of the layer for Grad-CAM. By default, the method selects one.
        window: Side of the window for occlusion, in pixels. By default, the method selects one.
        background: Examples from which GradientShap draws its baselines, shape (B, …). By default, it uses `baseline`.
        randomise: Whether to run Adebayo's check with random weights, on a copy. Default: for models with at most 20
            million parameters.
        seed: Seed of random numbers.

    Returns:
        The attribution. Its values have one number for each part of the input: images (N, H, W), tables (N, F), series
        and sounds (N, T, F), texts (N, T), with `beside` (N, S) for the target of pairs, video (N, T, H, W), graphs (V,
        F), their edges (E,).

    Raises:
        UnknownName: If the method or the layer does not exist.
        SettingError: If a target, a baseline or another setting is invalid.
        ModelError: If the method does not suit the model.
    """
    if isinstance(method, Tensor):
        raise InputShapeError("Pass the arguments of forward as one tuple of tensors: attribute(model, (src, tgt)).")
    if method not in METHODS:
        raise UnknownName("method of attribution", method, METHODS)
    given = as_tuple(inputs)
    if isinstance(model, EncoderDecoder) and len(given) > 1 and not given[0].is_floating_point():  # as in a batch
        source, mask, so_far = parse_forward_args(given[0], given[1], given[2] if len(given) > 2 else None)
        given = (source, torch.ones_like(source, dtype=torch.bool) if mask is None else mask, so_far)
    if not given or not len(given[0]):
        raise InputShapeError("The batch is empty: pass at least one example.")
    reject_compiled(model)
    if steps is not None and steps < 1:
        raise SettingError(f"Invalid steps={steps}: must be at least 1, or None to choose it automatically.")
    large = sum(p.numel() for p in model.parameters()) > LARGE
    ask = MethodSettings(steps or (FEW if large and method != "kernel_shap" else None), layer, window, background, seed)
    with isolated(model, seed):
        entry = build_entry(model, given, target, baseline)
        found = METHODS[method](entry, ask)
        result = _build_attribution(entry, method, found)
        if randomise is False or (randomise is None and large):
            why = "The weights were not randomized, to save time." if large or randomise is False else ""
            return dataclasses.replace(result, why_not=why)
        brief = dataclasses.replace(ask, steps=min(found.steps, _brief(method, found.steps)) if found.steps else None)

        def again(other: Entry) -> tuple[Tensor, Tensor | None]:
            torch.manual_seed(seed)
            drawn = METHODS[method](other, dataclasses.replace(brief, layer=found.layer))
            return drawn.values, drawn.beside

        check = randomization_check(entry, found.values, found.beside, again, seed)
    why = "" if check else "The weights were not randomized: the map is constant."
    return dataclasses.replace(result, randomisation=check, why_not=why)


def _brief(method: str, steps: int) -> int:
    return BRIEF if method != "kernel_shap" else max(steps - SETS, LEAST_SETS)


@torch.no_grad()
def _build_attribution(entry: Entry, method: str, found: AttributionMap) -> Attribution:
    """Return the attribution of a method with its completeness check."""
    output = entry.score(entry.z, entry.rows)
    start = found.start if found.start is not None else entry.score(entry.baseline, entry.rows)
    size = absolute_sum(found.values, found.beside, examples=len(output))
    rounding = ROUNDING * torch.finfo(output.dtype).eps * torch.maximum(output.abs(), start.abs())
    return Attribution(
        method=method,
        kind=entry.kind,
        values=found.values,
        beside=found.beside,
        baseline=entry.baseline if found.based else None,
        about=(found.about or entry.about) if found.based else "none",
        target=entry.target,
        output=output,
        completeness=Completeness(found.total, output - start, size, found.tolerance, rounding),
        layer=found.layer,
        steps=found.steps,
    )


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
