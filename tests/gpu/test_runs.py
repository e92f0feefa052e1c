"""Runs on a GPU, in bfloat16 as they are by default there, through the doors that people take."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from torch import nn

import cutaway
from cutaway.apps.cli import main
from cutaway.nn.losses import linear_cross_entropy
from cutaway.training.setup import setup_training

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

QUICK: dict[str, Any] = {"tensorboard": False, "seed": 0}


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> cutaway.Run:
    return cutaway.train("lenet5-modern", "digits", out=tmp_path_factory.mktemp("digits") / "run", **QUICK)


def text(folder: Path) -> str:
    path = folder / "text.txt"
    path.write_text("the cat sat on the mat and the dog ran after the cat . " * 150)
    return str(path)


def test_it_learns_there(digits: cutaway.Run) -> None:
    assert digits.about["machine"]["device"] == "cuda"
    assert setup_training("lenet5-modern", "digits", {}).place.autocast_dtype == torch.bfloat16
    assert digits.evaluate()["accuracy"].value > 0.9


def test_what_the_run_said_of_itself_is_said_again(digits: cutaway.Run) -> None:
    written = json.loads((digits.folder / "evaluation.json").read_text())["metrics"]
    for key, metric in digits.evaluate().items():
        assert metric.value == pytest.approx(written[key]["value"], rel=1e-5)


def test_it_is_looked_into_after_it_answered(digits: cutaway.Run) -> None:
    digits.evaluate()
    assert next(digits.model.parameters()).is_cuda
    assert cutaway.look(digits)["network"]["summary"]


@pytest.mark.parametrize("name", ["lstm", "gru", "rnn", "gpt2"])
def test_texts_are_learned_from_and_attributed(name: str, tmp_path: Path) -> None:
    shape = {"model.layers": 1, "model.heads": 2, "model.dim": 32} if name == "gpt2" else {"model.hidden_dim": 32}
    run = cutaway.train(name, text(tmp_path), out=tmp_path / "run", length=16, max_steps=60, lr=1e-2, **shape, **QUICK)
    assert run.evaluate()["perplexity"].value < 3
    assert main(["generate", str(run.folder), "--prompt", "the cat", "--count", "8"]) == 0
    assert cutaway.look(run, view="attribution")["attribution"]["summary"]


def test_a_recurrent_network_has_gradients_in_evaluation() -> None:
    model = cutaway.create_model("lstm", vocab_size=9, hidden_dim=8, num_classes=2).cuda().eval()
    tokens, mask = torch.randint(9, (3, 7), device="cuda"), torch.ones(3, 7, dtype=torch.bool, device="cuda")
    mask[0, 4:] = False
    for given in ((tokens,), (tokens, mask)):
        model.zero_grad()
        model(*given).sum().backward()
        assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in model.parameters())


@pytest.mark.parametrize("objective", ["maml", "prototypes"])
def test_classes_are_learned_from_few_examples(objective: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for k in range(8):
        (tmp_path / "shapes" / f"{k}").mkdir(parents=True)
        for i in range(8):
            pixels = rng.normal(0, 10, (16, 16)) + 200 * (np.arange(16)[:, None] // 2 == k)
            Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(tmp_path / "shapes" / f"{k}" / f"{i}.png")
    given = {"ways": 2, "queries": 2, "batch_size": 16, "max_steps": 20, "lr": 1e-2, "val": 0.25, "test": 0.25}
    given |= {"objective": objective, "model.width": 8}
    run = cutaway.train("conv4-strided", tmp_path / "shapes", out=tmp_path / "run", **given, **QUICK)
    assert run.evaluate()["accuracy"].value > 0.5


def test_a_module_of_ones_own_comes_home(tmp_path: Path) -> None:
    module = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3))
    run = cutaway.train(module, "iris", out=tmp_path / "run", epochs=40, **QUICK)
    assert next(module.parameters()).device.type == "cpu"
    assert run.evaluate()["accuracy"].value > 0.5
    assert cutaway.look(run)["network"]["summary"]


@pytest.mark.parametrize("given", [{}, {"method": "weight-only"}, {"method": "bfloat16"}], ids=str)
def test_a_run_is_made_smaller(digits: cutaway.Run, given: dict[str, Any], tmp_path: Path) -> None:
    small = cutaway.quantize(digits, tmp_path / "small", **given)
    assert small.evaluate()["accuracy"].value > digits.evaluate()["accuracy"].value - 0.05
    assert cutaway.look(small, view="quantization")["quantization"]["summary"]


def test_a_run_is_exported_after_it_answered(digits: cutaway.Run, tmp_path: Path) -> None:
    digits.evaluate()
    cutaway.export(digits, tmp_path / "digits.pt2")
    assert (tmp_path / "digits.pt2").is_file()


@pytest.mark.parametrize("classes", [50, 64])
@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_in_chunks_is_that_of_the_whole(classes: int, biased: bool, smoothing: float) -> None:
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64).cuda().requires_grad_()

    x, weight, bias = draw(33, 16), draw(classes, 16), draw(classes) if biased else None
    learn = [p for p in (x, weight, bias) if p is not None]
    target = torch.randint(classes, (33,), generator=generator).cuda()
    whole = F.cross_entropy(F.linear(x, weight, bias), target, reduction="sum", label_smoothing=smoothing)
    loss = linear_cross_entropy(x, weight, bias, target, label_smoothing=smoothing, chunk=10)
    torch.testing.assert_close(loss, whole, rtol=1e-12, atol=1e-12)
    expected, found = torch.autograd.grad(whole / 3, learn), torch.autograd.grad(loss / 3, learn)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)
