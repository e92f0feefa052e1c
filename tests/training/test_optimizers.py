"""Optimizers: fused and textbook updates are the same, and decay is where it belongs."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from cutaway.core.config import build
from cutaway.core.errors import SettingError
from cutaway.models.base import BaseModel
from cutaway.training.config import OPTIMIZERS, TrainSettings
from cutaway.training.optim import build_optimizers


def steps(
    name: str, weight_decay: float = 0.01, count: int = 5, **given: object
) -> tuple[nn.Sequential, list[list[Tensor]]]:
    """A small network after a few steps on a fixed loss, and the gradients it saw."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 3)).double()
    x = torch.randn(10, 4, dtype=torch.float64)
    optimizers = build_optimizers(
        model, build(TrainSettings, {"optimizer": name, "lr": 0.05, "weight_decay": weight_decay, **given})
    )
    gradients = []
    for _ in range(count):
        model.zero_grad()
        model(x).square().mean().backward()
        gradients.append([p.grad.clone() for p in model.parameters()])  # type: ignore[union-attr]
        for optimizer in optimizers:
            optimizer.step()
    return model, gradients


def start() -> list[Tensor]:
    return [p.detach() for p in steps("sgd", count=0)[0].parameters()]


def textbook(name: str, p: Tensor, gradients: list[Tensor], lr: float = 0.05, decay: float = 0.0) -> Tensor:
    """The update rules as their papers give them."""
    m, v, b1, b2 = torch.zeros_like(p), torch.zeros_like(p), 0.9, 0.999
    for t, g in enumerate(gradients, 1):
        if name in ("sgd", "momentum", "nesterov", "adagrad", "rmsprop", "adadelta", "adam"):
            g = g + decay * p if name in ("sgd", "momentum", "nesterov", "adadelta", "adam") else g
        if name == "sgd":
            p = p - lr * g
        elif name == "momentum":
            m = 0.9 * m + g
            p = p - lr * m
        elif name == "nesterov":
            m = 0.9 * m + g
            p = p - lr * (g + 0.9 * m)
        elif name == "adagrad":
            v = v + g**2
            p = p - lr * g / (v.sqrt() + 1e-10)
        elif name == "rmsprop":
            v = 0.99 * v + 0.01 * g**2
            p = p - lr * g / (v.sqrt() + 1e-8)
        elif name == "adadelta":
            v = 0.95 * v + 0.05 * g**2
            step = (m + 1e-6).sqrt() / (v + 1e-6).sqrt() * g
            m = 0.95 * m + 0.05 * step**2
            p = p - lr * step
        else:
            p = p * (1 - lr * decay) if name == "adamw" else p
            m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g**2
            p = p - lr * (m / (1 - b1**t)) / ((v / (1 - b2**t)).sqrt() + 1e-8)
    return p


@pytest.mark.parametrize("name", [n for n in OPTIMIZERS if n != "muon"])
def test_the_update_is_the_papers(name: str) -> None:
    decay = 0.0 if name in ("adagrad", "rmsprop") else 0.01
    model, gradients = steps(name, weight_decay=decay)
    for i, (p, p0) in enumerate(zip(model.parameters(), start())):
        expected = textbook(name, p0, [g[i] for g in gradients], decay=decay if p.ndim > 1 else 0.0)
        assert torch.allclose(p, expected, rtol=1e-10, atol=1e-12)


def test_the_constants_are_those_that_are_given() -> None:
    model, gradients = steps("adam", 0.0, betas=(0.5, 0.6), eps=0.1)
    for i, (p, p0) in enumerate(zip(model.parameters(), start())):
        m = v = torch.zeros_like(p)
        for t, g in enumerate((each[i] for each in gradients), 1):
            m, v = 0.5 * m + 0.5 * g, 0.6 * v + 0.4 * g**2
            p0 = p0 - 0.05 * (m / (1 - 0.5**t)) / ((v / (1 - 0.6**t)).sqrt() + 0.1)
        assert torch.allclose(p, p0, rtol=1e-10, atol=1e-12)
    model, gradients = steps("rmsprop", 0.0, alpha=0.5)
    for i, (p, p0) in enumerate(zip(model.parameters(), start())):
        v = torch.zeros_like(p)
        for g in (each[i] for each in gradients):
            v = 0.5 * v + 0.5 * g**2
            p0 = p0 - 0.05 * g / (v.sqrt() + 1e-8)
        assert torch.allclose(p, p0, rtol=1e-10, atol=1e-12)
    with pytest.raises(SettingError, match=r"Invalid betas=0\.9: must be two decay rates"):
        steps("adam", betas=(0.9,))


def test_muon_takes_the_hidden_matrices_and_adamw_the_rest() -> None:
    model, _ = steps("muon", count=0)
    muon, rest = build_optimizers(model, build(TrainSettings, {"optimizer": "muon"}))
    assert [id(p) for g in muon.param_groups for p in g["params"]] == [id(model[2].weight)]
    assert sum(len(g["params"]) for g in rest.param_groups) == 5
    moved, _ = steps("muon")
    assert all(not torch.equal(p, q) for p, q in zip(moved.parameters(), start()))


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_biases_and_norms_do_not_decay(name: str) -> None:
    if name in ("adagrad", "rmsprop"):
        pytest.skip("their decay goes through the adaptive scale, which makes one step of any gradient as long")
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 8), nn.Linear(8, 2))
    before = [p.detach().clone() for p in model.parameters()]
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    for optimizer in build_optimizers(model, build(TrainSettings, {"optimizer": name, "lr": 0.1, "weight_decay": 0.5})):
        optimizer.step()
    for p, old in zip(model.parameters(), before):
        if p.ndim < 2:
            assert torch.equal(p, old)
        else:
            assert p.norm() < old.norm()


def test_what_is_frozen_is_left_alone() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 2))
    model[0].requires_grad_(False)
    (optimizer,) = build_optimizers(model, TrainSettings())
    assert sum(len(g["params"]) for g in optimizer.param_groups) == 2


def test_a_model_may_say_which_of_its_weights_decay() -> None:
    class Decaying(BaseModel):
        """Only its first layer."""

        decayed = ("first.*",)

        def __init__(self) -> None:
            super().__init__()
            self.first, self.head = nn.Linear(4, 8), nn.Linear(8, 3)

    model = Decaying()
    (optimizer,) = build_optimizers(model, build(TrainSettings, {"weight_decay": 0.1}))
    decaying = {id(p) for group in optimizer.param_groups if group["weight_decay"] for p in group["params"]}
    assert decaying == {id(model.first.weight)}


def test_rows_that_alone_have_gradients_are_updated_alone() -> None:
    model = nn.Sequential(nn.Embedding(5, 3, sparse=True))
    before = model[0].weight.detach().clone()
    (optimizer,) = build_optimizers(model, build(TrainSettings, {"optimizer": "sgd", "lr": 0.5, "weight_decay": 0}))
    model(torch.tensor([1, 1, 4])).sum().backward()
    optimizer.step()
    moved = (model[0].weight.detach() - before)[:, 0]
    assert torch.allclose(moved, torch.tensor([0.0, -1.0, 0.0, 0.0, -0.5]))
    for given in (
        {"optimizer": "adam"},
        {"optimizer": "sgd", "weight_decay": 0.1},
        {"optimizer": "sgd", "grad_clip": 1.0},
    ):
        with pytest.raises(SettingError, match="needs optimizer=sgd or adagrad"):
            build_optimizers(model, build(TrainSettings, {"weight_decay": 0.0, **given}))
