"""Attributions from gradients: saliency, input × gradient, and integrated gradients.

    gradient                ∂F/∂x                                    K. Simonyan, A. Vedaldi, A. Zisserman, 2013,
                                                                     <https://arxiv.org/abs/1312.6034>
    input × gradient        x ∂F/∂x                                  A. Shrikumar et al., 2016,
                                                                     <https://arxiv.org/abs/1605.01713>
    integrated gradients    (x − b) ∫₀¹ ∂F/∂x (b + t (x − b)) dt     M. Sundararajan, A. Taly, Q. Yan, 2017, equation 1,
                                                                     <https://arxiv.org/abs/1703.01365>

Integrated gradients sum to F(x) − F(b) (proposition 1), up to the error of the numerical integral. The number of
Gauss–Legendre points is doubled until that error is small. The gradient of a pixel is that of the channel with the
largest absolute value. The gradient of a token is the norm of the gradient of its embedding, which has no sign.
"""

from __future__ import annotations

import torch

from .differentiable_input import Entry
from .request import AttributionMap, MethodSettings, absolute_sum, copies_per_pass, doubled

FIRST, MOST = 32, 256  # points of the integral
ENOUGH = 0.01  # relative gap at which the doubling stops
TOLERANCE = 0.05


def gradient(entry: Entry, ask: MethodSettings) -> AttributionMap:
    """Compute ∂F/∂x with its sign; for the tokens of a text, its norm."""
    from captum.attr import Saliency

    found = Saliency(entry.score).attribute(_leaf(entry), abs=False, additional_forward_args=entry.rows).detach()
    values, beside = entry.laid(found, "norm" if entry.calls else "largest")
    return AttributionMap(values, found.flatten(1).sum(1), beside, based=False)


def input_x_gradient(entry: Entry, ask: MethodSettings) -> AttributionMap:
    """Compute x ∂F/∂x, summed over channels and over the features of an embedding."""
    from captum.attr import InputXGradient

    found = InputXGradient(entry.score).attribute(_leaf(entry), additional_forward_args=entry.rows).detach()
    return AttributionMap(*_summed(entry, found), based=False)


def integrated_gradients(entry: Entry, ask: MethodSettings) -> AttributionMap:
    """Compute the mean gradient on the path from the baseline, times the difference to the baseline."""
    from captum.attr import IntegratedGradients

    method = IntegratedGradients(entry.score)
    with torch.no_grad():
        change = entry.score(entry.z, entry.rows) - entry.score(entry.baseline, entry.rows)
    values, total, beside, steps = entry.z, change, None, 0
    for steps in (ask.steps,) if ask.steps else doubled(FIRST, MOST):
        found = method.attribute(
            _leaf(entry),
            baselines=entry.baseline,
            additional_forward_args=entry.rows,
            n_steps=steps,
            internal_batch_size=max(1, copies_per_pass(entry)) * len(entry.z),
        ).detach()
        values, total, beside = _summed(entry, found)
        scale = torch.maximum(change.abs(), absolute_sum(values, beside, examples=len(total))).clamp(min=1e-12)
        if bool(((total - change).abs() / scale <= ENOUGH).all()):
            break
    return AttributionMap(values, total, beside, tolerance=TOLERANCE, steps=steps)


def _leaf(entry: Entry) -> torch.Tensor:
    """Return the input as a leaf for differentiation."""
    return entry.z.detach().clone().requires_grad_()


def _summed(entry: Entry, found: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    values, beside = entry.laid(found, "sum")
    return values, found.flatten(1).sum(1), beside
