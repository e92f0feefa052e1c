"""Runs that are killed at random moments and resumed end bit for bit where the uninterrupted one ends."""

from __future__ import annotations

import csv
import multiprocessing
import os
import random
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from cutaway.checkpoints.saving import read_tensors
from cutaway.core.files import read_json
from cutaway.data.synthetic.examples import spelled
from cutaway.runs.train import train_model
from cutaway.training.callbacks import Progress

GIVEN = {
    "epochs": 3, "max_samples": 300, "batch_size": 32, "crop": 2, "mixup": 0.2, "ema": 0.9, "grad_clip": 1.0,
    "save_minutes": 0, "tensorboard": False, "threads": 1, "seed": 7,
}  # fmt: skip


PROCESSES = multiprocessing.get_context("forkserver")
# Children begin with everything imported, so that they spend their time training; nothing has run in their parent.
PROCESSES.set_forkserver_preload(
    ["tests.training.test_kills", "sklearn.calibration", "sklearn.datasets", "torch._dynamo"]
)


def in_a_child(
    work: Callable[[Path], None], folder: Path, kill_after: float | None = None, after: Path | None = None
) -> int | None:
    """Run `work` in a process of its own, kill it after so many seconds if it still runs; its exit status. The seconds
    are counted from its start, or from when the file `after` is there."""
    child = PROCESSES.Process(target=work, args=(folder,))
    child.start()
    while after is not None and not after.exists() and child.is_alive():
        time.sleep(0.002)
    child.join(kill_after or 120)
    child.kill()
    child.join()
    return child.exitcode


# The mean of the last epochs instead of the moving average, of a run that is to have so many updates.
MEAN = {**GIVEN, "ema": 0.0, "average_epochs": 2, "max_steps": 50}


def train(folder: Path, given: Mapping[str, Any] = GIVEN) -> None:
    train_model("lenet5-modern", "digits", given, out=folder, progress=Progress(shown=False))


def train_to_a_mean(folder: Path) -> None:
    train(folder, {k: v for k, v in MEAN.items() if k != "epochs"})


# Speech by connectionist temporal classification; `spelled` stands beside the runs, made by the first of them.
HEARD = {
    "epochs": 3, "batch_size": 8, "n_mels": 16, "model.channels": "16,16", "model.hidden_dim": 16,
    "save_minutes": 0, "tensorboard": False, "threads": 1, "seed": 7,
}  # fmt: skip


def train_to_hear(folder: Path) -> None:
    data = folder.parent / "spelled"
    if not data.exists():
        spelled(data, count=60)
    train_model("ctc-conv-gru", data, HEARD, out=folder, progress=Progress(shown=False))


def resume(folder: Path, train: Callable[[Path], None] = train) -> None:
    """What a person does: take the run up, or begin again where the kill came before there was one."""
    if (folder / "run.json").exists():
        train_model(None, None, {}, resume=folder, progress=Progress(shown=False))
    else:
        train(folder)


def resume_to_a_mean(folder: Path) -> None:
    resume(folder, train_to_a_mean)


def resume_to_hear(folder: Path) -> None:
    resume(folder, train_to_hear)


def left(folder: Path) -> dict[str, Any]:
    """Everything that a run leaves, less times and counts of sittings."""
    tensors, meta = read_tensors(folder / "checkpoints" / "last.safetensors")
    state = {k: v for k, v in meta["state"].items() if k not in ("seconds", "resumed", "history")}
    with (folder / "metrics.csv").open() as file:
        rows = [{k: v for k, v in row.items() if k != "seconds"} for row in csv.DictReader(file)]
    model = read_tensors(folder / "model" / "model.safetensors")[0]
    return {
        "last": tensors,
        "model": model,
        "state": state,
        "rows": rows,
        "evaluation": read_json(folder / "evaluation.json"),
        "average": read_json(folder / "run.json")["average"],
    }


def test_a_kill_before_the_first_file_leaves_a_folder_that_can_be_used(tmp_path: Path) -> None:
    leftover = tmp_path / ".run.json.4711.part"
    leftover.write_text('{"model": "le')
    train_model("mlp", "iris", {"epochs": 1, "tensorboard": False}, out=tmp_path, progress=Progress(shown=False))
    (tmp_path / "checkpoints" / ".last.safetensors.4711.part").write_bytes(b"half")
    kept = tmp_path / ".notes.part"
    kept.write_text("a person's own")
    train_model(None, None, {"epochs": 2}, resume=tmp_path, progress=Progress(shown=False))
    assert [p.name for p in tmp_path.rglob(".*")] == [kept.name]


@pytest.fixture
def quick(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory, where there is one: a process that is killed loses nothing there that it would not lose on a
    disk, and the hundreds of checkpoints, each flushed, wait for none."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else tmp_path) as folder:
        yield Path(folder)


@pytest.mark.slow
@pytest.mark.waits
@pytest.mark.parametrize(
    ("train", "resume", "kills"),
    [(train, resume, 8), (train_to_a_mean, resume_to_a_mean, 4), (train_to_hear, resume_to_hear, 2)],
    ids=["moving average", "mean of the last epochs", "speech to text"],
)
def test_many_kills_many_equal_ends(
    quick: Path, train: Callable[[Path], None], resume: Callable[[Path], None], kills: int
) -> None:
    assert in_a_child(train, quick / "first") == 0  # starts the server that the others are forked from
    began = time.perf_counter()
    assert in_a_child(train, quick / "whole") == 0
    duration = time.perf_counter() - began
    whole = left(quick / "whole")
    chance = random.Random(0)
    mid_run = 0
    for i in range(kills):
        folder = quick / str(i)
        checkpoint = folder / "checkpoints" / "last.safetensors"
        if i % 2:  # however slow the machine is, these fall into the training
            status = in_a_child(train, folder, kill_after=chance.uniform(0, 0.2) * duration, after=checkpoint)
        else:
            status = in_a_child(train, folder, kill_after=chance.uniform(0.1, 0.95) * duration)
        mid_run += status == -signal.SIGKILL and checkpoint.exists()
        assert in_a_child(resume, folder) == 0, i
        again = left(folder)
        for which in ("last", "model"):
            assert whole[which].keys() == again[which].keys()
            different = [k for k, v in whole[which].items() if not torch.equal(v, again[which][k])]
            assert not different, (i, which, different[:3])
        documents = ("state", "rows", "evaluation", "average")
        assert {k: whole[k] for k in documents} == {k: again[k] for k in documents}, i
    assert mid_run >= kills // 2, "too few kills fell into the training itself to show anything"
