"""A run's folder is one process's at a time, is replaced only where that was asked for, and keeps no leftovers."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from cutaway.apps.cli import main
from cutaway.checkpoints.saving import write_tensors
from cutaway.core.errors import FileError, SettingError
from cutaway.core.files import atomic_write, read_json
from cutaway.runs.train import train_model
from cutaway.training.callbacks import Progress, TensorBoardWriter
from cutaway.training.checkpoint import TrainingState, load_weights
from cutaway.training.run_folder import LOCK, RunInUse, atomic_run, clear_leftovers, create_run_folder, lock_run

GIVEN = {"epochs": 1, "tensorboard": False}
QUIET: dict[str, Any] = {"progress": Progress(shown=False)}
# A process that holds the run, and has a child that would hold it on.
HOLDER = """
import os, sys, time
from pathlib import Path
from cutaway.training.run_folder import lock_run
with lock_run(Path(sys.argv[1])):
    child = os.fork()
    if child == 0:
        print(os.getpid(), flush=True)  # from here on it holds nothing
        os.close(1)
        time.sleep(60)
        os._exit(0)
    time.sleep(60)
"""


def test_a_run_is_whole_or_not_there(tmp_path: Path) -> None:
    def fill(folder: Path, fails: bool) -> None:
        with atomic_run(folder, "run") as made:
            assert (made / LOCK).exists()
            (made / "model").mkdir()
            (made / "model" / "config.json").touch()
            if fails:
                raise KeyboardInterrupt

    (tmp_path / "mine").mkdir()
    for name in ("mine", "new"):
        with pytest.raises(KeyboardInterrupt):
            fill(tmp_path / name, fails=True)
    assert [*tmp_path.rglob("*")] == [tmp_path / "mine"]  # which was there before
    fill(tmp_path / "new", fails=False)
    assert [entry.name for entry in (tmp_path / "new").rglob("*")] == ["model", "config.json"]
    with pytest.raises(FileError, match="nothing in it is overwritten"):
        fill(tmp_path / "new", fails=False)
    with lock_run(tmp_path / "mine"), pytest.raises(RunInUse):
        fill(tmp_path / "mine", fails=False)


def test_a_lock_dies_with_its_process_and_says_who_holds_it(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", HOLDER, tmp_path], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    child = int(process.stdout.readline())
    try:
        with pytest.raises(RunInUse, match=rf"in use: process {process.pid} on .*, since 20.* UTC, works on it"):
            lock_run(tmp_path).__enter__()
        process.send_signal(signal.SIGKILL)
        process.wait()
        os.kill(child, 0)  # it lives, and holds nothing
        with lock_run(tmp_path):
            assert str(os.getpid()) in (tmp_path / LOCK).read_text()
        assert not list(tmp_path.iterdir())
    finally:
        process.kill()
        os.kill(child, signal.SIGKILL)
        process.stdout.close()
        process.wait()


def test_one_holds_it_at_a_time_and_the_next_can(tmp_path: Path) -> None:
    for _ in range(2):
        with lock_run(tmp_path), pytest.raises(RunInUse):
            lock_run(tmp_path).__enter__()
    (tmp_path / LOCK).write_text("process 1 on a machine that was switched off,")  # nobody holds it
    with lock_run(tmp_path):
        (tmp_path / LOCK).unlink()  # somebody tidied up, and somebody else came
        (tmp_path / LOCK).write_text("another's")
    assert (tmp_path / LOCK).read_text() == "another's"


def full(*given: object) -> None:
    """A write to a full disk."""
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_on_a_full_disk_a_run_is_held_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "pwrite", full)
    with lock_run(tmp_path), pytest.raises(RunInUse, match="in use: another process works on it"):
        lock_run(tmp_path).__enter__()
    with lock_run(tmp_path):
        pass


def test_a_curve_that_finds_no_room_is_told_unless_another_file_was(tmp_path: Path) -> None:
    def close(error: Exception | None) -> None:
        with TensorBoardWriter(tmp_path, wanted=False) as board:
            board.writer = SimpleNamespace(add_scalar=full, close=full)
            if error is not None:
                raise error
            board.write({"step": 1, "epoch": 1, "train_loss": 0.5})

    with pytest.raises(FileError, match=r"TensorBoard's file in .* could not be written: No space left on device\."):
        close(None)
    with pytest.raises(SettingError, match="the first"):
        close(SettingError("the first"))


def test_a_full_disk_and_another_runs_checkpoint_lose_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "run"
    with monkeypatch.context() as once:
        once.setattr("cutaway.checkpoints.saving.save_file", full)
        with pytest.raises(FileError, match=r"No space left.*Then go on with the run: cutaway train --resume .*run$"):
            train_model("mlp", "iris", GIVEN, out=folder, **QUIET)
    assert train_model(None, None, {}, resume=folder, **QUIET).about["status"] == "finished"
    other = train_model("mlp", "iris", {**GIVEN, "seed": 1}, out=tmp_path / "other", **QUIET)
    shutil.copy(other.folder / "checkpoints" / "last.safetensors", folder / "checkpoints")
    before = (folder / "run.json").read_bytes()
    with pytest.raises(FileError, match=r"last\.safetensors is the checkpoint of another run"):
        train_model(None, None, {"epochs": 2}, resume=folder, **QUIET)
    assert (folder / "run.json").read_bytes() == before
    with pytest.raises(FileError, match=r"last\.safetensors is the checkpoint of another model: 4 of .* are missing"):
        load_weights(folder / "checkpoints" / "last.safetensors", torch.nn.LSTM(1, 1))


def test_a_run_that_is_trained_is_neither_resumed_nor_replaced_and_its_files_stay(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = train_model("mlp", "iris", GIVEN, out=tmp_path / "run", **QUIET)
    partial = run.folder / "checkpoints" / ".last.safetensors.4711.part"
    partial.mkdir()
    before = {p: p.read_bytes() for p in run.folder.rglob("*") if p.is_file()}
    with lock_run(run.folder):
        for given in ({"resume": run.folder}, {"out": run.folder, "overwrite": True}):
            named = (None, None, {}) if "resume" in given else ("mlp", "iris", GIVEN)
            with pytest.raises(RunInUse, match=f"process {os.getpid()} on"):
                train_model(*named, **given, **QUIET)
        assert {p: p.read_bytes() for p in run.folder.rglob("*") if p.is_file() and p.name != LOCK} == before
        assert partial.is_dir()
        assert main(["report", str(run.folder)]) == 0  # whoever wants to see how it goes can
        assert f"note: process {os.getpid()} on" in capsys.readouterr().err
        assert partial.is_dir()
    assert main(["report", str(run.folder)]) == 0
    assert not partial.exists()


@pytest.mark.parametrize("library", [False, True])
def test_whatever_stands_half_written_is_known_and_cleared(tmp_path: Path, library: bool) -> None:
    """A library that writes safely makes temporary files of its own beside the one that it was told."""
    path = tmp_path / "checkpoints" / "last.safetensors"

    def interrupted() -> None:
        with atomic_write(path) as temporary:
            temporary.write_bytes(b"half")
            (temporary.parent / ".tmpA1b2C3").write_bytes(b"half")
            assert all(p.name.endswith(".part") for p in path.parent.iterdir())
            if library:  # as a kill leaves it
                os.rename(temporary.parent, path.parent / ".last.safetensors.4711.part")
                (path.parent / ".tmpZ9y8X7").write_bytes(b"of an earlier version")
            raise InterruptedError

    with pytest.raises(FileError):
        interrupted()
    kept = [tmp_path / ".notes.part", tmp_path / ".tmpabcdef", tmp_path / "checkpoints" / ".tmp-mine"]
    for one in kept:
        one.write_text("a person's own")
    clear_leftovers(tmp_path)
    assert sorted(p for p in tmp_path.rglob("*") if p.is_file()) == sorted(kept)


def test_tensors_are_never_written_outside_the_folder_that_is_cleared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cutaway.checkpoints import saving

    seen = []

    def save(tensors: Any, path: Path, meta: Any) -> None:
        seen.append(path)
        once(tensors, path, meta)

    once = saving.save_file
    monkeypatch.setattr(saving, "save_file", save)
    write_tensors(tmp_path / "x.safetensors", {"a": torch.zeros(3)}, {})
    assert seen[0].parent.name == f".x.safetensors.{os.getpid()}.part"
    assert [p.name for p in tmp_path.iterdir()] == ["x.safetensors"]


def test_overwrite_replaces_a_runs_files_and_nothing_else(tmp_path: Path) -> None:
    run = train_model("mlp", "iris", {**GIVEN, "snapshots": 2}, out=tmp_path / "run", **QUIET)
    (run.folder / "notes.txt").write_text("a person's own")
    with pytest.raises(
        FileError, match=r"Give another folder, or go on with the run: `cutaway train --resume .*run`\.$"
    ):
        train_model("linear", "diabetes", GIVEN, out=run.folder, **QUIET)
    assert run.about["model"] == "mlp"
    train_model("linear", "diabetes", GIVEN, out=run.folder, overwrite=True, **QUIET)
    assert read_json(run.folder / "run.json")["model"] == "linear"
    assert not (run.folder / "snapshots").exists()
    assert (run.folder / "notes.txt").read_text() == "a person's own"


def test_overwrite_replaces_nothing_that_is_no_run(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years")
    with pytest.raises(FileError, match="is not a run"):
        create_run_folder(tmp_path, "n", True, [])
    with pytest.raises(FileError, match="is not a run"):
        create_run_folder(tmp_path / "thesis.tex", "n", True, [])
    assert (tmp_path / "thesis.tex").read_text() == "years"


def test_a_run_that_is_read_is_not_replaced(tmp_path: Path) -> None:
    run = train_model("mlp", "iris", GIVEN, out=tmp_path / "run", **QUIET)
    with pytest.raises(FileError, match=r"Cannot overwrite .*: this run reads"):
        train_model("mlp", "iris", {**GIVEN, "weights": str(run.folder)}, out=run.folder, overwrite=True, **QUIET)
    (run.folder / "t.csv").write_text("x,y\n" + "1,a\n2,b\n" * 30)
    given = {**GIVEN, "target": "y"}
    with pytest.raises(FileError, match=r"Cannot overwrite .*: this run reads"):
        train_model("mlp", str(run.folder / "t.csv"), given, out=run.folder, overwrite=True, **QUIET)
    assert json.loads((run.folder / "run.json").read_text())["status"] == "finished"


def test_a_resumed_run_stands_where_it_stood(tmp_path: Path) -> None:
    run = train_model("mlp", "iris", GIVEN, out=tmp_path / "run", **QUIET)
    with pytest.raises(SettingError, match=r"--out .*other names another folder"):
        train_model(None, None, {"epochs": 2}, resume=run.folder, out=tmp_path / "other", **QUIET)
    with pytest.raises(SettingError, match="--overwrite replaces one"):
        train_model(None, None, {"epochs": 2}, resume=run.folder, overwrite=True, **QUIET)
    assert not (tmp_path / "other").exists()
    train_model(None, None, {"epochs": 2}, resume=run.folder, out=tmp_path / "." / "run", **QUIET)
    assert read_json(run.folder / "run.json")["epochs_done"] == 2


def test_names_that_were_taken_a_moment_ago_are_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert [create_run_folder(None, "mlp-iris", False, []).name for _ in range(3)] == [
        f"mlp-iris-{n}" for n in (1, 2, 3)
    ]


def test_a_run_that_was_deleted_is_not_offered_to_be_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from cutaway.checkpoints import saving

    once = saving.save_file

    def save(tensors: Any, path: Path, meta: Any) -> None:
        if (tmp_path / "run").exists():  # and so the place that is written to
            shutil.rmtree(tmp_path / "run")
        once(tensors, path, meta)

    monkeypatch.setattr(saving, "save_file", save)
    with pytest.raises(FileError, match=r"run, the folder of this run, was deleted or renamed while") as raised:
        train_model("mlp", "iris", GIVEN, out=tmp_path / "run", **QUIET)
    assert "--resume" not in str(raised.value)


class Moment(Progress):
    """Something that happens between two writes of a training: at the end of an epoch, or after an update of it."""

    def __init__(self, epoch: int, update: int | None, happen: Callable[[], object]) -> None:
        super().__init__(shown=False)
        self.at, self.happen = (epoch, update), happen

    def epoch_done(self, row: Any) -> None:
        if self.at == (row["epoch"], None):
            self.happen()
        super().epoch_done(row)

    def step(self, state: TrainingState, loss: float) -> None:
        if self.at == (state.epoch + 1, state.update):
            self.happen()
        super().step(state, loss)


def replaced(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.mkdir()


@pytest.mark.parametrize(
    ("happens", "board"),
    [
        (shutil.rmtree, False),
        (shutil.rmtree, True),
        (lambda folder: folder.rename(folder.with_name("other")), False),
        (lambda folder: folder.rename(folder.with_name("other")), True),
        (replaced, False),  # TensorBoard would write its own file there, and nothing else
    ],
)
@pytest.mark.parametrize(("epoch", "update"), [(1, 1), (1, None), (2, 4), (2, None), (3, 8), (3, None)])
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # of TensorBoard, if it writes then
def test_a_run_that_is_deleted_between_two_writes_is_not_made_again(
    tmp_path: Path, epoch: int, update: int | None, board: bool, happens: Callable[[Path], object]
) -> None:
    run = tmp_path / "run"
    given = {"epochs": 3, "batch_size": 45, "save_minutes": 0, "average_epochs": 2, "tensorboard": board}
    with pytest.raises(FileError, match=r"run, the folder of this run, was deleted or renamed while") as raised:
        train_model("mlp", "iris", given, out=run, progress=Moment(epoch, update, lambda: happens(run)))
    assert "--resume" not in str(raised.value)
    assert not run.exists() or not [*run.iterdir()]
    with pytest.raises(FileError, match=r"is not a run|There is no run"):
        train_model(None, None, {}, resume=run, **QUIET)
    train_model("mlp", "iris", given, out=run, **QUIET)  # "Train again"
    assert read_json(run / "run.json")["status"] == "finished"


def test_a_run_that_is_deleted_as_it_is_interrupted_is_not_made_again(tmp_path: Path) -> None:
    def happen() -> None:
        shutil.rmtree(tmp_path / "run")
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(FileError, match=r"run, the folder of this run, was deleted or renamed while"):
        train_model("mlp", "iris", {"epochs": 3}, out=tmp_path / "run", progress=Moment(2, None, happen))
    assert not (tmp_path / "run").exists()
