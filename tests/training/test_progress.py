"""Where there is no terminal there is a line now and then, on standard error."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cutaway.runs.train import train_model
from cutaway.training import callbacks as progress_module
from cutaway.training.callbacks import Progress
from cutaway.training.checkpoint import TrainingState

GIVEN = {"tensorboard": False, "batch_size": 0}


@pytest.mark.parametrize(("epochs", "said"), [(3, ["1/3", "2/3", "3/3"]), (40, [f"{2 * k}/40" for k in range(1, 21)])])
def test_epochs_have_about_twenty_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, epochs: int, said: list[str]
) -> None:
    monkeypatch.setattr(progress_module, "SILENCE", 1e9)  # however slow the machine is
    train_model("softmax", "iris", {**GIVEN, "epochs": epochs}, out=tmp_path / "run")
    captured = capsys.readouterr()
    lines = [line for line in captured.err.splitlines() if "epoch" in line]
    assert [line.split()[1] for line in lines] == said
    assert re.search(r"train loss [\d.]+  val loss [\d.]+  val accuracy [\d.]+", lines[-1])
    assert captured.out == ""


def test_a_long_epoch_is_not_silent(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 1000, 4))  # seconds
    monkeypatch.setattr(progress_module.time, "perf_counter", lambda: next(clock))
    with Progress() as progress:
        progress.epoch(0, 2, batches=100, done=0)
        for batch in range(1, 13):
            progress.step(TrainingState(batch=batch), 0.5)
    lines = capsys.readouterr().err.splitlines()
    assert 3 <= len(lines) <= 5
    assert re.fullmatch(r" *epoch 1/2  step \d+/100  loss 0\.5000  [\d.]+ steps/s", lines[0])


def test_nothing_is_shown_where_nobody_looks(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    quiet = Progress(shown=False)
    quiet.note("unheard")
    train_model("softmax", "iris", {**GIVEN, "epochs": 1}, out=tmp_path / "run", progress=quiet)
    assert capsys.readouterr().err == ""
