"""Adversarial examples: captum's, within their bounds, and never to the model's advantage."""

from __future__ import annotations

import torch
from captum.robust import FGSM, PGD
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from cutaway.nn.adversarial import Bounds, fgsm, pgd

EPS, LOW, HIGH = 0.1, -0.5, 0.6


def case(seed: int = 0) -> tuple[nn.Module, Tensor, Tensor, Bounds]:
    """A network, inputs (5, 4) between −0.5 and 0.6, their classes and how far they may move."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)).double()
    x = (torch.rand(5, 4, dtype=torch.float64) * (HIGH - LOW) + LOW).requires_grad_()
    return (
        model,
        x.detach(),
        torch.randint(3, (5,)),
        Bounds(*(torch.tensor(v, dtype=x.dtype) for v in (EPS, LOW, HIGH))),
    )


def test_fgsm_is_captums() -> None:
    model, x, y, bounds = case()
    theirs = FGSM(model, lambda outputs, target: F.cross_entropy(outputs, target, reduction="none"), LOW, HIGH)
    expected = theirs.perturb(x.clone(), EPS, y)
    found = fgsm(lambda inputs: F.cross_entropy(model(inputs), y, reduction="sum"), x, bounds)
    assert torch.allclose(found, expected, rtol=0, atol=1e-12)


def test_pgd_without_chance_is_captums() -> None:
    model, x, y, bounds = case(1)
    theirs = PGD(model, lambda outputs, target: F.cross_entropy(outputs, target, reduction="none"), LOW, HIGH)
    expected = theirs.perturb(x.clone(), EPS, 2.5 / 6 * EPS, 6, y, norm="Linf")

    moved = x
    for _ in range(6):  # the same steps from x itself
        step = Bounds(bounds.eps * 2.5 / 6, bounds.low, bounds.high)
        moved = bounds.within(fgsm(lambda z: F.cross_entropy(model(z), y, reduction="sum"), moved, step), x)
    assert torch.allclose(moved, expected, rtol=0, atol=1e-12)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 1000), steps=st.integers(1, 8))
def test_nothing_moves_too_far_and_the_loss_rises(seed: int, steps: int) -> None:
    model, x, y, bounds = case(seed)

    def loss(inputs: Tensor) -> Tensor:
        return F.cross_entropy(model(inputs), y, reduction="sum")

    generator = torch.Generator().manual_seed(seed)
    for moved in (fgsm(loss, x, bounds), pgd(loss, x, bounds, steps, generator)):
        assert (moved - x).abs().max() <= EPS + 1e-12
        assert moved.min() >= LOW - 1e-12
        assert moved.max() <= HIGH + 1e-12
        assert not moved.requires_grad
    assert loss(pgd(loss, x, bounds, 8, generator)) > loss(x)
