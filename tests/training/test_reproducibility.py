"""A run that goes on elsewhere takes the threads that it began with, and says what will differ."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from cutaway.checkpoints.saving import read_tensors
from cutaway.core.files import read_json, write_json
from cutaway.runs.train import train_model
from cutaway.training.callbacks import Interrupted, Progress
from cutaway.training.trainer import Trainer

GIVEN = {"epochs": 2, "batch_size": 200, "tensorboard": False, "max_samples": 600, "seed": 3}


class Heard(Progress):
    """Keeps what is noted."""

    def __init__(self) -> None:
        super().__init__(shown=False)
        self.notes: list[str] = []

    def note(self, sentence: str) -> None:
        self.notes.append(sentence)


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    """The threads that other tests have, afterwards."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def stopped(folder: Path, monkeypatch: pytest.MonkeyPatch, given: dict[str, Any]) -> None:
    with monkeypatch.context() as patch:
        once = Trainer.step

        def step(self: Trainer, *args: Any) -> None:
            once(self, *args)
            self._stop.requested = self.state.update == 3

        patch.setattr(Trainer, "step", step)
        with pytest.raises(Interrupted):
            train_model("lenet5-modern", "digits", given, out=folder, progress=Heard())


@pytest.mark.slow
def test_the_recorded_threads_are_taken_and_given_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.set_num_threads(2)
    whole = train_model("lenet5-modern", "digits", GIVEN, out=tmp_path / "whole", progress=Heard())
    stopped(tmp_path / "run", monkeypatch, GIVEN)
    assert read_json(tmp_path / "run" / "run.json")["machine"]["threads"] == 2
    torch.set_num_threads(1)
    seen, once, progress = set(), Trainer.step, Heard()

    def step(self: Trainer, *args: Any) -> None:
        seen.add(torch.get_num_threads())
        once(self, *args)

    monkeypatch.setattr(Trainer, "step", step)
    run = train_model(None, None, {}, resume=tmp_path / "run", progress=progress)
    assert seen == {2}
    assert torch.get_num_threads() == 1
    (said,) = progress.notes
    assert said.startswith("The run goes on with 2 CPU threads, as it began, where this process would take 1")
    assert run.about["notes"] == progress.notes
    files = [folder / "model" / "model.safetensors" for folder in (whole.folder, run.folder)]
    ours, theirs = (read_tensors(path)[0] for path in files)
    assert all(torch.equal(ours[k], theirs[k]) for k in ours)


@pytest.mark.slow
def test_other_threads_another_pytorch_and_other_instructions_are_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped(tmp_path / "run", monkeypatch, {**GIVEN, "threads": 1})
    about = read_json(tmp_path / "run" / "run.json")
    here, then = about["machine"]["instructions"], torch.__version__
    assert about["machine"]["threads"] == 1
    about["versions"]["torch"], about["machine"]["instructions"] = "1.0.0", "ANCIENT"
    write_json(tmp_path / "run" / "run.json", about)
    progress = Heard()
    run = train_model(None, None, {"threads": 2}, resume=tmp_path / "run", progress=progress)
    assert progress.notes == [
        f"The run began with CPU threads 1 (now 2), CPU instructions ANCIENT (now {here}), PyTorch 1.0.0 (now {then}): "
        "it will not end bit for bit as if it had not stopped."
    ]
    assert run.about["machine"]["threads"] == 2
    again = Heard()
    train_model(None, None, {"epochs": 3}, resume=tmp_path / "run", progress=again)
    assert "threads" not in again.notes[0]


def test_nothing_is_said_where_nothing_differs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped(tmp_path / "run", monkeypatch, GIVEN)
    progress = Heard()
    train_model(None, None, {}, resume=tmp_path / "run", progress=progress)
    assert progress.notes == []
