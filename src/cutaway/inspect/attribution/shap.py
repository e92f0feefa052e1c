"""Shapley values: the contribution of each part, averaged over all orders in which parts can be added.

S. M. Lundberg, S.-I. Lee, A unified approach to interpreting model predictions, 2017.
<https://arxiv.org/abs/1705.07874>

    φ_i = Σ_{S ∌ i} |S|! (M − |S| − 1)! / M! · [F(x_{S ∪ i}) − F(x_S)]                                (equation 8)

x_S is x in the parts S and the baseline elsewhere. KernelShap estimates φ by a weighted regression on random sets of
parts (theorem 2); its values sum to F(x) − F(b). GradientShap (expected gradients: G. Erion et al., 2019,
<https://arxiv.org/abs/1906.10670>) averages gradients at random points between the input and random background
examples; its values sum to the change in expectation.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...core.errors import SettingError
from .differentiable_input import Entry
from .groups import groups
from .request import AttributionMap, MethodSettings, absolute_sum, copies_per_pass, doubled

PARTS = 64  # largest number of parts of an example, for KernelShap
SETS, FOR_EACH = 224, 5  # random sets of parts, and additional ones per part
FIRST, MOST = 32, 512  # samples of GradientShap
ENOUGH, TOLERANCE = 0.02, 0.1
EXACT = 0.02  # tolerated gap of KernelShap


@torch.no_grad()
def kernel_shap(entry: Entry, ask: MethodSettings) -> AttributionMap:
    """Estimate φ by regression, for at most 64 parts. The elements of a part share its value."""
    from captum.attr import KernelShap

    mask = groups(entry, PARTS).to(entry.z.device)
    parts = int(mask.max()) + 1
    draws = ask.steps or SETS + FOR_EACH * parts
    coefficients = []
    for row in torch.split(entry.rows, 1):
        if parts == 1:
            change = entry.score(entry.z[row], row) - entry.score(entry.baseline[row], row)
            coefficients.append(change)
            continue

        def score(z: Tensor, row: Tensor = row) -> Tensor:
            return entry.score(z, row.expand(len(z)))

        found = KernelShap(score).attribute(
            entry.z[row],
            baselines=entry.baseline[row],
            feature_mask=mask,
            n_samples=draws,
            perturbations_per_eval=1 if entry.kind == "graph" else min(copies_per_pass(entry) * len(entry.z), 64),
            return_input_shape=False,
        )
        coefficients.append(found.flatten().to(entry.z.dtype))
    phi = torch.stack(coefficients)  # (N, parts)
    count = torch.bincount(mask.flatten(), minlength=parts).to(phi.dtype)
    spread = (phi / count)[:, mask[0]]  # (N, …)
    values, beside = entry.laid(spread, "sum")
    return AttributionMap(values, phi.sum(1), beside, tolerance=EXACT, steps=draws)


def gradient_shap(entry: Entry, ask: MethodSettings) -> AttributionMap:
    """Compute expected gradients from the background, or from the baseline without one."""
    from captum.attr import GradientShap

    background = _background(entry, ask.background)  # per example, (B, …)
    rows = entry.rows
    with torch.no_grad():
        starts = [entry.score(b, row.expand(len(b))).mean() for b, row in zip(background, torch.split(rows, 1))]
        start = torch.stack(starts)  # (N,)
        change = entry.score(entry.z, rows) - start
    values, total, beside, done = entry.z, change, None, 0
    sums = torch.zeros_like(entry.z)
    chunk = min(FIRST, copies_per_pass(entry))
    for draws in (ask.steps,) if ask.steps else doubled(FIRST, MOST):
        while done < draws:
            now = min(chunk, draws - done)
            for k, row in enumerate(torch.split(rows, 1)):
                leaf = entry.z[row].detach().clone().requires_grad_()
                found = GradientShap(entry.score).attribute(
                    leaf, baselines=background[k], n_samples=now, stdevs=0.0, additional_forward_args=row
                )
                sums[row] += found.detach() * now
            done += now
        mean = sums / done
        values, beside = entry.laid(mean, "sum")
        total = mean.flatten(1).sum(1)
        scale = torch.maximum(change.abs(), absolute_sum(values, beside, examples=len(total))).clamp(min=1e-12)
        if bool(((total - change).abs() / scale <= ENOUGH).all()):
            break
    about = None if ask.background is None else f"{len(background[0])} examples of the data"
    return AttributionMap(values, total, beside, start, TOLERANCE, about, steps=done)


def _background(entry: Entry, given: Tensor | None) -> list[Tensor]:
    """Return the background of each example, (B, …)."""
    if given is None:
        return list(torch.split(entry.baseline, 1))
    if entry.calls or entry.kind == "graph" or given.shape[1:] != entry.z.shape[1:] or not len(given):
        raise SettingError(
            f"background of shape {tuple(given.shape)} cannot be: it is examples of numbers, like the first input "
            f"{tuple(entry.inputs[0].shape)}; texts and graphs have none."
        )
    return [given.to(entry.z)] * len(entry.z)
