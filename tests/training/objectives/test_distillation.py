"""Distillation: its loss against the formulas, a teacher of each form, and runs that cannot teach."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import cutaway
from cutaway.core.errors import FileError, SettingError
from cutaway.nn.losses import distillation
from cutaway.training.setup import setup_training

from ..conftest import stopping

QUIET: dict[str, Any] = {"tensorboard": False, "count": 60, "epochs": 2}


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A run that learned the moons."""
    folder = tmp_path_factory.mktemp("teacher") / "run"
    cutaway.train("mlp", "moons", out=folder, **QUIET)
    return str(folder)


def logits(seed: int, temperature: float = 1.0) -> tuple[Tensor, Tensor]:
    """Those of a student, which gradients are asked of, and of a teacher, (6, 4)."""
    generator = torch.Generator().manual_seed(seed)
    z, v = torch.randn(2, 6, 4, generator=generator, dtype=torch.float64) * 3
    return z.requires_grad_(), v


def test_the_loss_and_its_gradient_are_those_of_the_formulas() -> None:
    z, v = logits(0)
    temperature = 2.5
    p, q = (x.exp() / x.exp().sum(1, keepdim=True) for x in (v / temperature, z / temperature))
    loss = distillation(z, v, temperature)
    assert torch.allclose(loss, temperature**2 * (p * (p / q).log()).sum(1), rtol=0, atol=1e-12)
    (slope,) = torch.autograd.grad(loss.sum(), z)
    assert torch.allclose(slope, temperature * (q - p), rtol=0, atol=1e-12)
    assert distillation(v, v, temperature).abs().max() < 1e-12


def test_at_a_high_temperature_centred_logits_are_matched() -> None:
    z, v = logits(1)
    centred = [x - x.mean(1, keepdim=True) for x in (z, v)]
    error = [
        (distillation(z, v, t) - (centred[0] - centred[1]).square().sum(1) / 2 / z.shape[1]).abs().max().item()
        for t in (1e2, 1e3)
    ]
    assert error[0] < 1  # of losses of about 10
    assert error[1] == pytest.approx(error[0] / 10, rel=0.2)  # what is left falls as 1/T


def learned(out: Path, **given: Any) -> dict[str, Tensor]:
    """The weights of a small network after training on the moons."""
    run = cutaway.train("mlp", "moons", out=out, **{"model.hidden_dims": (3,), "optimizer": "sgd", **QUIET, **given})
    return run.model.state_dict()


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    """Whether all weights are equal to the last bit."""
    return all(torch.equal(one[key], other[key]) for key in one)


def test_without_weight_the_teacher_changes_nothing(tmp_path: Path, teacher: str) -> None:
    alone = learned(tmp_path / "alone")
    assert same(alone, learned(tmp_path / "unheard", teacher=teacher, teacher_weight=0))
    assert not same(alone, learned(tmp_path / "heard", teacher=teacher))


@pytest.mark.parametrize("scale", ["standard", "quantile"])
def test_a_teacher_is_asked_about_the_very_examples_in_its_own_form(teacher: str, scale: str) -> None:
    ready = setup_training("mlp", "moons", {**QUIET, "teacher": teacher, "scale": scale})
    asked = ready.teacher
    assert asked is not None
    assert asked.like_ours == (scale == "standard")
    asked.ready(ready.place)
    theirs = asked.run.data().splits["train"]
    index = torch.tensor([5, 0, 17])
    (mine,) = ready.data.splits["train"].batches([index])
    (own,) = theirs.batches([index])
    with torch.no_grad():
        expected = asked.run.model(*own.inputs)
    assert torch.allclose(asked.logits(mine.inputs, index), expected, rtol=0, atol=1e-6)


def test_a_run_with_a_teacher_that_was_stopped_ends_as_one_that_was_not(tmp_path: Path, teacher: str) -> None:
    given = {"teacher": teacher, "scale": "quantile"}
    whole = learned(tmp_path / "whole", **given)
    with stopping(1):
        learned(tmp_path / "run", **given)
    assert same(whole, cutaway.train(resume=tmp_path / "run").model.state_dict())
    weights = Path(teacher) / "model" / "model.safetensors"
    content = weights.read_bytes()
    try:
        cutaway.train("mlp", "moons", out=teacher, overwrite=True, **QUIET, seed=1)
        with pytest.raises(FileError, match=r"teacher .* has changed since this run began"):
            cutaway.train(resume=tmp_path / "run", epochs=4)
    finally:
        weights.write_bytes(content)


@pytest.mark.parametrize(
    ("model", "data", "given", "said"),
    [
        ("mlp", "xor", {}, "was trained on moons|learned"),
        ("mlp", "moons", {"count": 90}, "was trained on moons, or on another split .* val, test, split_seed"),
        ("mlp", "moons", {"split_seed": 1}, "or on another split"),
        ("perceptron", "moons", {}, "with loss=perceptron: leave it out"),
        ("mlp", "moons", {"mixup": 0.2, "scale": "quantile"}, "leave mixup out"),
    ],
)
def test_a_run_that_cannot_teach_is_rejected(teacher: str, model: str, data: str, given: Any, said: str) -> None:
    usual = {"count": 60} if data in ("moons", "xor") else {}
    with pytest.raises(SettingError, match=said):
        setup_training(model, data, {"teacher": teacher, **usual, **given})


def test_what_is_no_class_has_no_teacher(teacher: str, tmp_path: Path) -> None:
    numbers = tmp_path / "numbers.csv"
    numbers.write_text("x,y\n" + "".join(f"{k % 9},{2.5 * (k % 9) + k / 100}\n" for k in range(40)))
    with pytest.raises(SettingError, match="the target here is y with loss=mse"):
        setup_training("linear", numbers, {"target": "y", "teacher": teacher})


def test_settings_of_distillation_want_a_teacher() -> None:
    with pytest.raises(SettingError, match=r"temperature=3 would change nothing: .*teacher=RUN"):
        setup_training("mlp", "moons", {"temperature": 3})
