"""Kill a training again and again, and go on with another number of processes: python -m benchmarks.kills [ddp|fsdp …].

Each time some updates after a run was gone on with, one of its processes or all of them are killed (SIGKILL), and it is
gone on with by 1 to 4 processes, whose number is drawn. What every process learned from is logged by the processes
themselves: of each batch the number of each example and a checksum of what stood in it. Of all that, what a later
checkpoint rests on is held to the log of a run that nobody stopped: every example of every batch there, none twice; the
validation loss and the weights at the end as there; bit for bit, where all went on with as many processes.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zlib
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from cutaway.checkpoints.saving import read_tensors
from cutaway.data.dataset_base import Batch
from cutaway.runs import train, worker
from cutaway.training.callbacks import Progress
from cutaway.training.trainer import Trainer

MODEL, DATA = "gpt2", "tinyshakespeare"
GIVEN = {
    "max_samples": 480, "length": 32, "batch_size": 10, "epochs": 6, "lr": 1e-3, "seed": 5, "threads": 1,
    "save_minutes": 0, "tensorboard": False, "model.layers": 2, "model.heads": 2, "model.dim": 32,
    "model.dropout": 0.0,
}  # fmt: skip
SIZES = (1, 2, 3, 4)
LOG = "CUTAWAY_KILLS_LOG"  # the environment variable that says where a sitting's processes log
Order = dict[tuple[int, int], list[tuple[int, int]]]  # (epoch, batch) → number and checksum of each example


# --- the log ----------------------------------------------------------------------------------------------------------


def log_to(folder: Path) -> None:
    """From now on this process, of those that train together, writes a line for each batch that it learned from."""
    learn = Trainer.step
    folder.mkdir(parents=True, exist_ok=True)

    def step(self: Trainer, group: list[Batch], steps: int) -> None:
        if self.checkpoints == Path("unused"):  # a step that is looked at before training begins
            learn(self, group, steps)
            return
        state, place = self.state, self.place
        lines = []
        for at, batch in enumerate(group, state.batch):
            numbers = place.share(self.plan[at]).tolist()
            sums = [checksum(batch, i) for i in range(len(numbers))]
            lines.append({"epoch": state.epoch, "batch": at, "of": place.processes, "examples": [*zip(numbers, sums)]})
        learn(self, group, steps)
        with (folder / f"{place.rank}.jsonl").open("a") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)

    Trainer.step = step  # type: ignore[method-assign]


def checksum(batch: Batch, i: int) -> int:
    """Of the i-th example of a batch: what the network is given, and what it is to answer."""
    found = 0
    for tensor in (*batch.inputs, batch.target):
        found = zlib.crc32(tensor[i].contiguous().numpy().tobytes(), found)
    return found


def order_of(log: Path) -> Order:
    """The examples of every batch that the end of a run rests on: a sitting that began at some batch took the place of
    all that earlier ones did from there on. Raises AssertionError where a process's part of a batch is missing."""
    found: dict[tuple[int, int], list[dict[str, Any]]] = {}
    for sitting in sorted(log.iterdir()):
        lines = [json.loads(line) for file in sitting.iterdir() for line in file.read_text().splitlines()]
        if not lines:
            continue
        by_batch = defaultdict(list)
        for line in lines:
            by_batch[line["epoch"], line["batch"]].append(line)
        began = min(by_batch)
        found = {at: parts for at, parts in found.items() if at < began} | by_batch
    for at, parts in found.items():
        assert len(parts) == parts[0]["of"], f"batch {at}: {len(parts)} of {parts[0]['of']} processes have it"
    return {at: sorted(tuple(one) for part in parts for one in part["examples"]) for at, parts in found.items()}


def differences(order: Order, expected: Order) -> int:
    """How many examples were lost, or were learned from twice, or in another batch, or were not what they should be."""
    return sum(
        len(set(order.get(at, [])) ^ set(expected.get(at, [])))
        + abs(len(order.get(at, [])) - len(expected.get(at, [])))
        for at in {*order, *expected}
    )


def logged(log: Path) -> int:
    """How many lines a sitting's first process has written."""
    file = log / "0.jsonl"
    return file.read_bytes().count(b"\n") if file.exists() else 0


# --- sittings ---------------------------------------------------------------------------------------------------------


def sitting(run: Path, processes: int, given: Mapping[str, Any]) -> None:
    """Begin the run, or go on with it, with so many processes; as `cutaway train` does it."""
    log_to(Path(os.environ[LOG]))  # where there is one process, it is this one
    train.WORKER = "benchmarks.kills"
    begun = (run / "run.json").exists()
    given = {**({} if begun else GIVEN), **given, "processes": processes}
    train.train_model(
        None if begun else MODEL,
        None if begun else DATA,
        given,
        out=None if begun else run,
        resume=run if begun else None,
        progress=Progress(shown=False),
    )


def start(run: Path, log: Path, processes: int, parallel: str) -> subprocess.Popen[str]:
    """The sitting, at work."""
    given = {"parallel": parallel} if processes > 1 else {}
    asked = json.dumps({"run": str(run), "processes": processes, "given": given})
    return subprocess.Popen(
        [sys.executable, "-m", "benchmarks.kills", "sitting", asked],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", LOG: str(log)},
    )


def workers(agent: subprocess.Popen[str]) -> list[int]:
    """The processes that train: those that the agent started, or itself."""
    children = Path(f"/proc/{agent.pid}/task/{agent.pid}/children").read_text().split()
    started = [int(pid) for pid in children if "benchmarks.kills" in Path(f"/proc/{pid}/cmdline").read_text()]
    return started or [agent.pid]


def end(agent: subprocess.Popen[str], folder: Path) -> None:
    """Wait until the sitting is over. Raises RuntimeError where it went wrong."""
    _, said = agent.communicate()
    if agent.returncode:
        raise RuntimeError(f"a sitting of {folder} ended with {agent.returncode}: {said}")


def uninterrupted(folder: Path, processes: int, parallel: str) -> None:
    """The run that nobody stops, with its log."""
    end(start(folder / "run", folder / "log" / "000", processes, parallel), folder)


def killed(folder: Path, parallel: str, sizes: list[int], chance: random.Random) -> None:
    """The run that is killed before each of `sizes` but the first, in a sitting of so many processes each."""
    for number, processes in enumerate(sizes):
        log = folder / "log" / f"{number:03d}"
        agent = start(folder / "run", log, processes, parallel)
        if number == len(sizes) - 1:
            end(agent, folder)
            return
        enough = chance.randint(2, 9)
        while logged(log) < enough and agent.poll() is None:
            time.sleep(0.005)
        time.sleep(chance.uniform(0, 0.2))  # anywhere in an update, or while a checkpoint is written
        if agent.poll() is not None:
            raise RuntimeError(f"sitting {number} ended before it was killed: {agent.communicate()[1]}")
        there = workers(agent)
        for pid in {agent.pid, *there} if chance.random() < 0.5 else {chance.choice(there)}:
            os.kill(pid, signal.SIGKILL)  # all of them as a power cut ends them, with what started them
        agent.communicate()


def at_the_end(folder: Path) -> tuple[float, dict[str, torch.Tensor]]:
    """The validation loss of a run, and its weights."""
    rows = (folder / "run" / "metrics.csv").read_text().splitlines()
    last = dict(zip(rows[0].split(","), rows[-1].split(",")))
    return float(last["val_loss"]), read_tensors(folder / "run" / "model" / "model.safetensors")[0]


def main(strategies: list[str], kills: int = 20, seed: int = 0) -> int:
    """Print what was found for each strategy; 1 where an example was lost or the same size was not bit for bit."""
    failed = False
    for parallel in strategies:
        chance = random.Random(seed)
        with tempfile.TemporaryDirectory() as name:
            base = Path(name)
            uninterrupted(base / "whole", 2, parallel)
            expected, (loss, weights) = order_of(base / "whole" / "log"), at_the_end(base / "whole")
            sizes = [2, *(chance.choice(SIZES) for _ in range(kills))]
            for what, plan in (("sizes " + " ".join(map(str, sizes)), sizes), ("always 2", [2] * 6)):
                shutil.rmtree(base / "killed", ignore_errors=True)
                began = time.perf_counter()
                killed(base / "killed", parallel, plan, chance)
                wrong = differences(order_of(base / "killed" / "log"), expected)
                other_loss, other = at_the_end(base / "killed")
                same = all(other[key].equal(value) for key, value in weights.items())
                furthest = max(float((other[key] - value).abs().max()) for key, value in weights.items())
                print(
                    f"{parallel}, {len(plan) - 1} kills, {what}: {len(expected)} batches, "
                    f"{sum(map(len, expected.values()))} examples, {wrong} lost, twice or elsewhere; validation loss "
                    f"{other_loss:.6f} beside {loss:.6f} uninterrupted; weights {'bit for bit' if same else 'differ'}, "
                    f"at most by {furthest:.1e}; {time.perf_counter() - began:.0f} s",
                    flush=True,
                )
                failed |= wrong > 0 or abs(other_loss - loss) > 1e-3 or (what == "always 2" and not same)
    return int(failed)


if __name__ == "__main__":
    if sys.argv[1:2] == ["sitting"]:
        asked = json.loads(sys.argv[2])
        sitting(Path(asked["run"]), asked["processes"], asked["given"])
    elif len(sys.argv) == 2 and Path(sys.argv[1]).is_dir():  # one of several, as the agent starts it
        log_to(Path(os.environ[LOG]))
        sys.exit(worker.main(Path(sys.argv[1])))
    else:
        sys.exit(main(sys.argv[1:] or ["ddp", "fsdp"]))
