"""What a step will keep is told before the first one: from a few examples, as if the whole batch had been tried."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from cutaway.apps.cli import main
from cutaway.core.errors import SettingError
from cutaway.training import memory
from cutaway.training.cost_estimate import estimate_cost
from cutaway.training.memory import activation_bytes, reject_step_beyond_memory
from cutaway.training.setup import setup_training

TINY = {
    "model.layers": 1,
    "model.dim": 8,
    "model.heads": 2,
    "length": 8,
    "tokenizer": "characters",
    "max_samples": 2000,
}


@pytest.fixture
def book(tmp_path: Path) -> str:
    (tmp_path / "book.txt").write_text("the cat sat on the mat and the dog ran on. " * 60)
    return str(tmp_path / "book.txt")


@pytest.mark.parametrize(
    ("model", "source", "given"),
    [
        ("mlp", "iris", {"batch_size": 40}),
        ("lenet5-modern", "digits", {"max_samples": 60, "batch_size": 50}),
        ("resnet20", "digits", {"max_samples": 40, "batch_size": 30}),  # with statistics of batches
        ("gpt2", "book", {**TINY, "batch_size": 20}),
        (
            "gru",
            "book",
            {"length": 8, "tokenizer": "characters", "max_samples": 2000, "model.hidden_dim": 8, "batch_size": 20},
        ),
    ],
)
def test_what_is_foretold_is_what_a_step_keeps(model: str, source: str, given: dict[str, Any], book: str) -> None:
    ready = setup_training(model, book if source == "book" else source, given)
    before = {name: value.clone() for name, value in ready.model.state_dict().items()}
    state = torch.get_rng_state()
    foretold, examples = activation_bytes(ready)
    assert examples == given["batch_size"]
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(value, before[name]) for name, value in ready.model.state_dict().items())
    measured = estimate_cost(ready).activations
    assert 0.5 * measured < foretold < 2 * measured


def test_what_is_beyond_the_memory_is_rejected_before_a_step(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ready = setup_training("lenet5-modern", "digits", {"max_samples": 60, "batch_size": 50})
    kept = activation_bytes(ready)[0]
    monkeypatch.setattr(memory, "free_memory", lambda device: 100 * kept)
    assert reject_step_beyond_memory(ready) == []
    monkeypatch.setattr(memory, "free_memory", lambda device: 2 * kept)
    (said,) = reject_step_beyond_memory(ready)
    assert "for the backward pass of a batch of 50" in said
    monkeypatch.setattr(memory, "free_memory", lambda device: kept)
    with pytest.raises(SettingError, match=r"at most 90% may be used\. Use a smaller batch_size"):
        reject_step_beyond_memory(ready)
    few = setup_training("lenet5-modern", "digits", {"max_samples": 60, "batch_size": 50})
    monkeypatch.setattr(memory, "free_memory", lambda device: kept / 100)  # less than the few that are tried take
    with pytest.raises(SettingError, match="Training takes about"):
        reject_step_beyond_memory(few)
    insisting = setup_training("lenet5-modern", "digits", {"max_samples": 60, "batch_size": 50, "memory_fraction": 0})
    assert reject_step_beyond_memory(insisting) == []


def test_both_commands_reject_it_and_a_run_that_stands_there_stays(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["mlp", "xor", "epochs=1", "model.hidden_dims=3", "tensorboard=false"]
    run = tmp_path / "run"
    assert main(["train", *words, "--out", str(run)]) == 0
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    monkeypatch.setattr(memory, "activation_bytes", lambda ready, most: (10**15, 4))
    for command in (["check", *words], ["train", *words, "--out", str(run), "--overwrite"]):
        assert main(command) == 2
        assert "Training takes about 909 TiB of memory more than now" in " ".join(capsys.readouterr().err.split())
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before
