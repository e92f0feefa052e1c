"""Images in tar shards beside the same images in memory: steps of training, and memory.

By hand: CUTAWAY_DATA=… python -m benchmarks.tars FOLDER [COUNT]

Images of CIFAR-10 are written as PNG in class folders, and prepared into shards. Steps on shards that are read anew
(`memory=0 workers=0`: all decoding counts) beside steps on the same images in memory, in turn, in seconds of the
process; where the time of a batch goes; and the peak of `cutaway train`, each in a process of its own.
"""

from __future__ import annotations

import cProfile
import io
import os
import pstats
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

import cutaway
from cutaway.training.callbacks import Progress
from cutaway.training.setup import setup_training
from cutaway.training.trainer import Trainer

from .corpus import say
from .pairs import race

COUNT, STEPS, RUNS, BATCH = 10_000, 4, 15, 64
MODELS = ("lenet5-modern", "resnet20")
ASKED = {"shards": {"memory": 0, "workers": 0}, "memory": {"memory": 4096, "workers": 0}}
SIZE = 3 * 32 * 32  # bytes of an image


def write_images(folder: Path, data: Path, count: int) -> None:
    """The first `count` images of CIFAR-10's first training batches as PNG, in a folder for each class."""
    number = 0
    for part in sorted((data / "cifar10/cifar-10-batches-bin").glob("data_batch_*.bin")):
        rows = np.fromfile(part, np.uint8).reshape(-1, 1 + SIZE)[: count - number]
        for row in rows:
            path = folder / str(row[0]) / f"{number:05}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(row[1:].reshape(3, 32, 32).transpose(1, 2, 0)).save(path)
            number += 1


def steps_of(model: str, shards: Path, folder: Path, asked: dict[str, int]) -> Callable[[], object]:
    """Some steps of training, each time it is called, on batches that are drawn anew."""
    ready = setup_training(model, str(shards), {**asked, "seed": 0, "batch_size": BATCH, "epochs": 1})
    trainer = Trainer(
        ready.model, ready.data, ready.task, ready.settings, ready.place, folder / "checkpoints", Progress(shown=False)
    )
    epoch = 0

    def learn() -> None:
        nonlocal epoch
        trainer.plan, trainer.state.batch = trainer.epoch_batches(epoch)[:STEPS], 0
        for batch in trainer.train.batches(trainer.plan, seed=epoch):
            trainer.step([batch], steps=1 << 30)
        epoch += 1

    return learn


def throughput(model: str, shards: Path, folder: Path) -> dict[str, Any]:
    """Seconds of the process for a step from shards and from memory, and their ratio with its quartiles."""
    sides = {name: steps_of(model, shards, folder, asked) for name, asked in ASKED.items()}
    pair = race(model, sides["shards"], sides["memory"], RUNS, clock=time.process_time)
    return {
        "ms of a step": {"shards": 1000 * pair.ours / STEPS, "memory": 1000 * pair.peer / STEPS},
        "shards / memory": pair.ratio,
        "quartiles": [pair.low, pair.high],
    }


def reading(shards: Path, batches: int = 20) -> dict[str, Any]:
    """Milliseconds of the process for an image from a shard, and the functions in which most of them go."""
    ready = setup_training(MODELS[0], str(shards), {**ASKED["shards"], "seed": 0, "batch_size": BATCH})
    split = ready.data.splits["train"]
    order = torch.randperm(len(split), generator=torch.Generator().manual_seed(0)).split(BATCH)[:batches]
    began = time.process_time()
    for _ in split.batches(order):
        pass
    taken = time.process_time() - began
    profile = cProfile.Profile()
    profile.runcall(lambda: [None for _ in split.batches(order)])
    text = io.StringIO()
    pstats.Stats(profile, stream=text).sort_stats("tottime").print_stats(12)
    lines = [line.strip() for line in text.getvalue().splitlines() if "{" in line or ".py:" in line]
    return {"ms of an image": 1000 * taken / (BATCH * batches), "profile": lines}


def peak(shards: Path, folder: Path, memory: int) -> int:
    """Bytes of resident memory that `cutaway train` has at most."""
    words = ["train", MODELS[0], str(shards), f"memory={memory}", "workers=0", "epochs=1", "tensorboard=false"]
    out = folder / f"run-{memory}"
    command = [sys.executable, "-m", "cutaway", *words, "--out", str(out), "--overwrite"]
    _, status, used = os.wait4(subprocess.Popen(command).pid, 0)
    assert status == 0, words
    return used.ru_maxrss * 1024


def main(folder: Path, count: int) -> None:
    """Measure everything, and print it."""
    photos, shards = folder / "photos", folder / "shards"
    if not photos.exists():
        write_images(photos, Path(os.environ["CUTAWAY_DATA"]), count)
    say("load", os.getloadavg())
    began = time.process_time()
    cutaway.prepare(photos, shards, workers=0)
    say("seconds of the process to prepare", time.process_time() - began)
    for model in MODELS:
        say(model, throughput(model, shards, folder))
    say("reading", reading(shards))
    for name, asked in ASKED.items():
        say(f"peak of training from {name}", peak(shards, folder, asked["memory"]))
    say("load", os.getloadavg())


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]), int(sys.argv[2]) if sys.argv[2:] else COUNT)
