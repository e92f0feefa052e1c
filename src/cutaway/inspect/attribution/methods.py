"""Attribution methods by name, and the function that runs them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import torch
from torch import Tensor, nn

from ...core.errors import ModelError, SettingError, UnknownName
from ...models.base import EncoderDecoder, parse_forward_args
from ..ablation import Inputs, as_tuple
from ..example_inputs import reject_compiled
from .differentiable_input import Baseline, Entry, build_entry
from .gradient_methods import grad_cam, gradient, input_x_gradient, integrated_gradients, rollout
from .perturbation_methods import SETS, edges, gradient_shap, kernel_shap, occlusion
from .request import AttributionMap, MethodSettings, absolute_sum, isolated
from .result import Attribution, Completeness, randomization_check
from .target import Asked

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
    """Attribute one number of the model's output to the parts of its inputs, and check the result.

    The model is left unchanged, bit for bit.

    Args:
        model: The model.
        inputs: The arguments of `forward`.
        method: One of `METHODS`.
        target: The explained output (a class), or (position, output) for a model with outputs at many positions
            (tokens, nodes). Default: the model's own prediction: its class, the token after the last real one, its
            first forecast, the class of the first node.
        baseline: The neutral input: a number or a tensor like the first input, 0 by default. For tokens the index of a
            token; by default the mean embedding of the vocabulary.
        steps: Points of integrals, or random samples. Default: until convergence.
        layer: The layer for Grad-CAM.
        window: Side of the window for occlusion, in pixels.
        background: Examples for GradientShap, shape (B, …).
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
        raise ModelError("Pass the arguments of forward as one tuple of tensors: attribute(model, (src, tgt)).")
    if method not in METHODS:
        raise UnknownName("method of attribution", method, METHODS)
    given = as_tuple(inputs)
    if isinstance(model, EncoderDecoder) and len(given) > 1 and not given[0].is_floating_point():  # as in a batch
        source, mask, so_far = parse_forward_args(given[0], given[1], given[2] if len(given) > 2 else None)
        given = (source, torch.ones_like(source, dtype=torch.bool) if mask is None else mask, so_far)
    if not given or not len(given[0]):
        raise ModelError("The batch is empty: pass at least one example.")
    reject_compiled(model)
    if steps is not None and steps < 1:
        raise SettingError(f"Invalid steps={steps}: must be at least 1, or None to choose it automatically.")
    large = sum(p.numel() for p in model.parameters()) > LARGE
    ask = MethodSettings(steps or (FEW if large and method != "kernel_shap" else None), layer, window, background, seed)
    with isolated(model, seed):
        entry = build_entry(model, given, target, baseline)
        found = METHODS[method](entry, ask)
        result = _described(entry, method, found)
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
def _described(entry: Entry, method: str, found: AttributionMap) -> Attribution:
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
