"""A corpus that is larger than memory: prepared, learned from, gone on with.

By hand, since it takes long, and 13 GB of disk: CUTAWAY_DATA=… python -m benchmarks.corpus FOLDER [BYTES]

Real books and articles are repeated, their paragraphs in another order each time and one letter in fifty another, by a
seed, until there are 6 GB. Then, each in a process of its own: `cutaway prepare`, killed half way and typed again;
`cutaway train`, for its peak of memory, beside the same training on a text that is small; steps on tokens in shards
beside steps on the same tokens in memory, in turn; and the first step of a run that goes on at 90 % of an epoch.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cutaway.data.dataset_base import DataSet
from cutaway.data.samplers import Permutation
from cutaway.data.streaming.shards import read_manifest
from cutaway.data.text.corpus_transforms import StreamSplit
from cutaway.training.callbacks import Progress
from cutaway.training.setup import TrainingSetup, setup_training
from cutaway.training.trainer import Trainer

SIZE = 6 * 10**9  # bytes
TEXTS = ("gutenberg/*.txt", "wikitext2_eval/*.txt", "tinyshakespeare/*.txt")
MODEL = {"model.layers": 4, "model.heads": 4, "model.dim": 128, "model.dropout": 0.0, "length": 64, "batch_size": 32}
SMALL = {**MODEL, "model.layers": 2, "model.heads": 2, "model.dim": 64}
IN_MEMORY = 200_000_000  # tokens that are held for comparison: 1.6 GB
PART = 256 * 2**20  # bytes that are cut into subwords, by byte-pair encoding with 30 000 of them
STEPS, RUNS = 8, 40  # steps of one run of a pair, and how many pairs


def make_corpus(path: Path, data: Path, size: int, seed: int = 0) -> None:
    """Write about `size` bytes of text, the same for the same seed."""
    files = sorted({file for pattern in TEXTS for file in data.glob(pattern) if file.name != "SOURCE.txt"})
    whole = "\n\n".join(file.read_text(encoding="utf-8-sig").replace("\r\n", "\n") for file in files)
    paragraphs = [part.encode() for part in whole.split("\n\n") if part.strip()]
    rng, letters = np.random.default_rng(seed), np.frombuffer(b"abcdefghijklmnopqrstuvwxyz", np.uint8)
    with path.open("wb") as file:
        while file.tell() < size:
            text = b"\n\n".join(paragraphs[i] for i in rng.permutation(len(paragraphs)))
            changed = np.frombuffer(text + b"\n\n", np.uint8).copy()
            at = rng.integers(0, len(changed), len(changed) // 50)
            at = at[(changed[at] >= ord("a")) & (changed[at] <= ord("z"))]
            changed[at] = rng.choice(letters, len(at))
            file.write(changed.tobytes())


def cutaway(*words: Any, kill_after: int | None = None, out: Path | None = None) -> tuple[float, int]:
    """Seconds that a command took, and the bytes that the largest of its processes had at most; it is killed once `out`
    holds so many shards."""
    began = time.perf_counter()
    command = subprocess.Popen([sys.executable, "-m", "cutaway", *map(str, words)], start_new_session=True)
    while kill_after is not None and len(list((out or Path()).glob("*.bin"))) < kill_after:
        time.sleep(0.2)
    if kill_after is not None:
        os.killpg(command.pid, 9)
    _, status, used = os.wait4(command.pid, 0)
    assert kill_after is not None or status == 0, words
    return time.perf_counter() - began, used.ru_maxrss * 1024


def typed(settings: dict[str, Any], **more: Any) -> list[str]:
    """Settings as they are typed."""
    return [f"{key}={value}" for key, value in {**settings, **more}.items()]


def ready_for(shards: Path, settings: dict[str, Any]) -> TrainingSetup:
    """gpt2 on prepared text."""
    return setup_training("gpt2", str(shards), {**settings, "seed": 0, "epochs": 1})


def trainer_of(ready: TrainingSetup, folder: Path) -> Trainer:
    """What learns."""
    return Trainer(
        ready.model, ready.data, ready.task, ready.settings, ready.place, folder / "checkpoints", Progress(shown=False)
    )


def steps_of(trainer: Trainer, seed: int) -> Iterator[None]:
    """Steps of training without end, epoch after epoch."""
    epoch = seed
    while True:
        trainer.plan = trainer.epoch_batches(epoch)
        trainer.state.batch = 0
        for batch in trainer.train.batches(trainer.plan, seed=epoch):
            trainer.step([batch], steps=1 << 30)
            yield None
        epoch += 1


def throughput(shards: Path, folder: Path) -> dict[str, Any]:
    """Steps on all of the corpus, in shards, beside steps on its first tokens in memory: seconds of the processor, as
    other work may stand beside. And how long a batch is waited for, with the 30 ms of a step between two of them: from
    memory, from shards that the system's cache holds, and from shards that it does not."""
    ready = {"shards": ready_for(shards, SMALL)}
    ready["memory"] = ready_for(shards, {**SMALL, "max_samples": IN_MEMORY // SMALL["length"]})
    few = ready["memory"].data.splits["train"]
    tokens = few.tokens  # type: ignore[attr-defined]
    held = torch.cat([tokens[at : at + (1 << 24)] for at in range(0, len(tokens), 1 << 24)])
    ready["memory"].data.splits["train"] = StreamSplit([held], SMALL["length"], False, few._decode)  # type: ignore[attr-defined]
    sides = {name: steps_of(trainer_of(one, folder), 0) for name, one in ready.items()}
    times: dict[str, list[float]] = {name: [] for name in sides}
    for k in range(2 * RUNS + 4):
        name = ("shards", "memory", "memory", "shards")[k % 4]  # each is the first of a pair as often as the other
        began = time.process_time()
        for _ in range(STEPS):
            next(sides[name])
        times[name].append(time.process_time() - began)
    ratios = sorted(a / b for a, b in zip(times["shards"][2:], times["memory"][2:]))
    low, ratio, high = statistics.quantiles(ratios, n=4)
    each = {name: statistics.median(taken) / STEPS for name, taken in times.items()}
    found: dict[str, Any] = {"seconds of a step": each, "shards / memory": ratio, "quartiles": [low, high]}
    for state in ("memory", "cached", "cold"):
        if state == "cold":
            forget(shards)
        split = ready["memory" if state == "memory" else "shards"].data.splits["train"]
        plan = split.plan(SMALL["batch_size"], torch.Generator().manual_seed(1))  # type: ignore[attr-defined]
        waited, used, source = [], [], split.batches(plan, seed=1)
        for _ in range(200):
            began, before = time.perf_counter(), time.process_time()
            next(source)
            waited.append(time.perf_counter() - began)
            used.append(time.process_time() - before)
            time.sleep(0.03)
        found[f"a batch, {state}"] = {"waited": statistics.median(waited), "of the processor": statistics.median(used)}
    return found


def forget(shards: Path) -> None:
    """Let the system's cache drop the shards."""
    for path in shards.glob("*.bin"):
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def resumed(shards: Path, folder: Path) -> dict[str, Any]:
    """How long a run that stands at 90 % of an epoch takes to its first batch, and to its first step, from the opening
    of its data on."""
    trainer = trainer_of(ready_for(shards, MODEL), folder)
    trainer.state.batch = trainer.state.update = len(trainer.epoch_batches(0)) * 9 // 10
    trainer.checkpoint_now()
    del trainer
    began = time.perf_counter()
    ready = ready_for(shards, MODEL)
    trainer = trainer_of(ready, folder)
    trainer.resume()
    trainer.plan = trainer.epoch_batches(0)
    (batch,) = trainer.train.batches([trainer.plan[trainer.state.batch]], seed=0)
    first = time.perf_counter() - began
    trainer.step([batch], steps=1 << 30)
    return {"first batch": first, "first step": time.perf_counter() - began, "batch": trainer.state.batch}


def shuffled(data: DataSet) -> dict[str, float]:
    """How well windows are mixed, beside an order that PyTorch draws: χ² of places and windows in 64 × 64 cells, which
    is 4 032 ± 90 at random, and the correlation of neighbours; and how long an index takes."""
    n = len(data.splits["train"])
    found = {"windows": float(n)}
    began = time.perf_counter()
    order = Permutation(n, 1)
    ours = order.part(0, 1 << 23)
    found["seconds for each index"] = (time.perf_counter() - began) / len(ours)
    theirs = torch.randperm(n, generator=torch.Generator().manual_seed(1))[: len(ours)]
    for name, drawn in (("ours", ours), ("drawn", theirs)):
        cells = np.histogram2d(np.arange(len(drawn)), drawn.numpy(), bins=64, range=[[0, len(drawn)], [0, n]])[0]
        expected = len(drawn) / cells.size
        found[f"{name}: chi squared"] = float(((cells - expected) ** 2 / expected).sum())
        found[f"{name}: correlation"] = float(np.corrcoef(drawn[:-1], drawn[1:])[0, 1])
    return found


def main(folder: Path, size: int) -> None:
    """Measure everything, and print it."""
    data, corpus, shards = Path(os.environ["CUTAWAY_DATA"]), folder / "corpus.txt", folder / "shards"
    if not corpus.exists():
        make_corpus(corpus, data, size)
    say("load", os.getloadavg())
    if not (shards / "manifest.json").exists():
        words = ("prepare", corpus, shards, "held_out=1", "workers=2")
        half = corpus.stat().st_size // (2 * 64 * 2**20)
        say("prepare, killed half way", cutaway(*words, kill_after=half, out=shards))
        say("prepare, typed again", cutaway(*words))
    small, part, subwords = folder / "small.txt", folder / "part.txt", folder / "subwords"
    with corpus.open("rb") as file:
        small.write_bytes(file.read(4 * 2**20))
        part.write_bytes(file.read(PART))
    if not subwords.exists():
        say("prepare subwords", cutaway("prepare", part, subwords, "tokenizer=bpe", "workers=2", "shard_size=16"))
        say("their tokens", {split: read_manifest(subwords).count(split) for split in read_manifest(subwords).splits})
    held_out = {"val": 0.25, "test": 0.25}  # as many characters as those of the corpus have: 2²⁰ each
    for name, words in (
        ("train on the corpus", [shards, *typed(SMALL, max_steps=300)]),
        ("train on 4 MiB", [small, *typed(SMALL, max_steps=300, **held_out)]),
    ):
        say(name, cutaway("train", "gpt2", *words, "--out", folder / name.replace(" ", "-"), "--overwrite"))
    for part in ("throughput", "resumed", "shuffled"):
        words = [sys.executable, "-m", "benchmarks.corpus", str(folder), part]
        say(part, json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout))
    say("load", os.getloadavg())


def say(what: str, found: Any) -> None:
    """Print one thing that was measured."""
    print(f"{what}: {json.dumps(found, indent=1)}", flush=True)


if __name__ == "__main__":
    place, *rest = sys.argv[1:]
    if rest and not rest[0].isdigit():
        parts: dict[str, Any] = {
            "throughput": lambda: throughput(Path(place) / "shards", Path(place)),
            "resumed": lambda: resumed(Path(place) / "shards", Path(place)),
            "shuffled": lambda: shuffled(ready_for(Path(place) / "shards", MODEL).data),
        }
        print(json.dumps(parts[rest[0]]()))
    else:
        main(Path(place), int(rest[0]) if rest else SIZE)
