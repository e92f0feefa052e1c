"""The diagonal of the Fisher information, held to per-example gradients one by one and to what is known of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from cutaway.nn import losses
from cutaway.nn.losses import diagonal_fisher


def by_hand(model: nn.Module, examples: list[Tensor]) -> list[Tensor]:
    """Every example and every class by itself: p (∂ log p / ∂θ)², in plain loops."""
    sums = [torch.zeros_like(p) for p in model.parameters()]
    for x in examples:
        z = model(x)[0]
        p = torch.stack([(-z[0]).sigmoid(), z[0].sigmoid()]) if len(z) == 1 else z.softmax(0)
        for k in range(len(p)):
            model.zero_grad()
            q = model(x)[0]
            q = torch.stack([(-q[0]).sigmoid(), q[0].sigmoid()]) if len(q) == 1 else q.softmax(0)
            q[k].log().backward()  # type: ignore[no-untyped-call]
            for total, weight in zip(sums, model.parameters()):
                if weight.grad is not None:
                    total += p[k].detach() * weight.grad**2
    return [total / len(examples) for total in sums]


@pytest.mark.parametrize("outputs", [1, 2, 5])
@pytest.mark.parametrize("numbers", [1, 1 << 25])  # one class at a time, and all together
def test_it_is_the_mean_of_squared_gradients(outputs: int, numbers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(losses, "NUMBERS", numbers)
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(12, 7), nn.Tanh(), nn.Linear(7, outputs)
    )
    model = model.double()
    examples = [torch.randn(1, 1, 4, 4, dtype=torch.float64) for _ in range(6)]
    found = diagonal_fisher(model, list(model.parameters()), examples)
    assert any(float(F.max()) > 1e-3 for F in found)
    for ours, theirs in zip(found, by_hand(model, examples), strict=True):
        assert torch.allclose(ours, theirs, rtol=1e-10, atol=1e-14)


def test_it_is_minus_the_mean_curvature_of_log_p() -> None:
    """For a softmax over a linear map, F is −E ∂² log p exactly, whatever the label: the second definition of it."""
    torch.manual_seed(1)
    weight = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    x = torch.randn(1, 4, dtype=torch.float64)
    (found,) = diagonal_fisher(lambda x: x @ weight.T, [weight], [x])
    curvature = torch.autograd.functional.hessian(lambda w: -(x @ w.T).log_softmax(1)[0, 0], weight)
    expected = curvature.reshape(12, 12).diagonal().view(3, 4)  # type: ignore[union-attr]
    assert torch.allclose(found, expected, rtol=1e-10)


def test_weights_that_say_nothing_have_none() -> None:
    used, unused = torch.ones(2, 2, requires_grad=True), torch.ones(3, requires_grad=True)

    def examples() -> Iterator[Tensor]:
        yield torch.tensor([[1.0, -1.0]])

    found = diagonal_fisher(lambda x: x @ (used * torch.tensor([[1.0], [2.0]])).T, [used, unused], examples())
    assert torch.equal(found[1], torch.zeros(3))
    assert float(found[0].sum()) > 0
    assert diagonal_fisher(lambda x: x, [used], [])[0].sum() == 0
