"""Activation checkpointing: the same numbers, from less that is kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from cutaway.core.errors import SettingError
from cutaway.training.callbacks import Progress
from cutaway.training.memory import activation_bytes, measure_activations, measure_recomputed_activations
from cutaway.training.setup import setup_training
from cutaway.training.trainer import Trainer

# With dropout, which is to draw again what it drew, and with running statistics, which are to see a batch once.
GPT2 = {"model.dim": 32, "model.layers": 4, "model.heads": 4, "model.dropout": 0.2, "length": 24, "batch_size": 12}
RESNET = {"max_samples": 40, "batch_size": 16, "crop": 2, "flip": True}
ALWAYS = {"precision": "float64", "threads": 1, "max_steps": 3, "tensorboard": False}


@pytest.fixture
def book(tmp_path: Path) -> str:
    (tmp_path / "book.txt").write_text("the cat sat on the mat and the dog ran on. " * 60)
    return str(tmp_path / "book.txt")


def learned(folder: Path, model: str, source: str, given: dict[str, Any]) -> dict[str, Tensor]:
    """Weights, buffers and the last gradients after three updates."""
    ready = setup_training(model, source, {**ALWAYS, **given})
    trainer = Trainer(
        ready.model, ready.data, ready.task, ready.settings, ready.place, folder, Progress(shown=False)
    )  # fmt: skip
    trainer.begin()
    trainer.fit()
    gradients = {f"gradient.{name}": p.grad for name, p in trainer.model.named_parameters() if p.grad is not None}
    assert gradients
    assert not any("forward" in vars(module) for module in trainer.model.modules())
    return {**trainer.model.state_dict(), **gradients}


@pytest.mark.parametrize("model", ["gpt2", "resnet20"])
def test_what_is_learned_is_the_same_bit_for_bit(model: str, book: str, tmp_path: Path) -> None:
    source, given = (book, GPT2) if model == "gpt2" else ("digits", RESNET)
    expected = learned(tmp_path, model, source, given)
    for how in ("selective", "full"):
        found = learned(tmp_path, model, source, {**given, "recompute": how})
        assert all(torch.equal(found[name], value) for name, value in expected.items())


def test_the_less_is_kept_the_more_is_computed_again(book: str) -> None:
    ready = {how: setup_training("gpt2", book, {**GPT2, "recompute": how}) for how in ("none", "selective", "full")}
    kept = {how: activation_bytes(one)[0] for how, one in ready.items()}
    # Attention with dropout is written out, and most of what is kept: selectively it is computed again.
    assert kept["full"] < 0.5 * kept["selective"] < 0.4 * kept["none"]
    inputs = (torch.zeros(3, 24, dtype=torch.long),)
    none, place = ready["none"].model, ready["none"].place
    counted = measure_recomputed_activations(none, inputs, place, "none")  # and as much as one block of four keeps
    assert 1.1 < counted / measure_activations(none, inputs, place) < 1.3


def test_what_cannot_be_computed_again_is_refused_by_name(book: str) -> None:
    with pytest.raises(SettingError, match="recompute=full computes blocks again, and LSTM has none"):
        setup_training("lstm", book, {"recompute": "full"})
    with pytest.raises(
        SettingError, match="recompute=full and compile=true both decide which activations are stored: give only one"
    ):
        setup_training("gpt2", book, {"recompute": "full", "compile": True})
