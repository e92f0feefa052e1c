"""What each of two processes takes when training begins, and what is said of a model that fits in parts alone."""

from __future__ import annotations

import gc
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from cutaway.apps.cli import main
from cutaway.core.errors import CutawayError
from cutaway.distributed.group import process_group, rank_and_size
from cutaway.runs.train import train_model
from cutaway.training import memory, setup
from cutaway.training.callbacks import Progress
from cutaway.training.parallel import select_strategy
from cutaway.training.setup import setup_training

from .ranks import together

pytestmark = pytest.mark.slow  # processes, or runs that are trained

TEXT = "Return the sum of all that is given, or zero where nothing is.\n" * 300
GIVEN = {"length": 16, "batch_size": 4, "threads": 1, "tensorboard": False, "device": "cpu", "processes": 2}
SMALL = {"model.layers": 2, "model.dim": 32, "model.heads": 2}
LARGE = {"model.layers": 6, "model.dim": 384, "model.heads": 6}  # 42 MiB, no tensor of more than 2
MIB = 2**20
FREE = 400 * MIB  # for two, of which 0.9: whole it takes some 213 MiB of each, in parts 171


def status(key: str) -> float:
    """MiB of resident memory, now (VmRSS) or at most so far (VmHWM)."""
    (line,) = (s for s in Path("/proc/self/status").read_text().splitlines() if s.startswith(key))
    return int(line.split()[1]) / 1024


def begin(base: Path) -> None:
    """Begin a training in parts, and leave what the model took."""
    for sizes in (SMALL, LARGE):  # the first has everything imported
        gc.collect()
        before = status("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")  # the peak is of what follows
        ready = setup_training("gpt2", str(base / "book.txt"), {**GIVEN, **sizes, "parallel": "fsdp"})
        kept: Any = select_strategy(ready.model, ready.place, ready.settings, ready.deferred)
    weights = [p.numel() * 4 / MIB for p in ready.model.parameters()]
    assert all(p.is_meta for p in ready.model.parameters())
    found = {"whole": sum(weights), "largest": max(weights), "most": status("VmHWM") - before}
    (base / f"{rank_and_size()[0]}.json").write_text(json.dumps(found))
    del kept


def train(base: Path) -> None:
    """Train in each way where little memory is free, and leave what a person would be told."""
    for module in (memory, setup):
        module.free_memory = lambda device: FREE
    for parallel in ("ddp", "fsdp"):
        try:
            given = {**GIVEN, **LARGE, "max_steps": 1, "parallel": parallel}
            train_model(
                "gpt2", str(base / "book.txt"), given, base / parallel, progress=Progress(shown=False), judged=False
            )
        except CutawayError as error:
            (base / f"{parallel}-{rank_and_size()[0]}.said").write_text(str(error))


def begin_and_train(base: Path) -> None:
    """Both, in one group."""
    with process_group():
        if sys.platform.startswith("linux"):
            begin(base)
        train(base)


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What two processes leave."""
    base = tmp_path_factory.mktemp("two")
    (base / "book.txt").write_text(TEXT)
    assert together(begin_and_train, base, count=2) == [0, 0]
    return base


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_no_process_has_more_than_its_part_and_a_little(left: Path) -> None:
    for rank in range(2):
        found = json.loads((left / f"{rank}.json").read_text())
        assert found["whole"] > 40
        assert found["most"] < found["whole"] / 2 + found["largest"] + 8, found  # whole it would be twice that


def test_what_fits_in_parts_alone_is_accepted_in_parts_and_else_told_of_them(
    left: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    told = {path.stem: path.read_text() for path in left.glob("*.said")}
    assert told.keys() == {"ddp-0", "ddp-1"}, told
    assert "Held in parts it takes" in told["ddp-0"]
    assert told["ddp-0"].endswith("on each, and fits: parallel=fsdp.")
    assert json.loads((left / "fsdp" / "run.json").read_text())["status"] == "finished"
    assert not (left / "ddp").exists()
    monkeypatch.setattr(setup, "free_memory", lambda device: 100 * MIB)
    words = [f"{key}={value}" for key, value in {**GIVEN, **LARGE, "processes": 1}.items()]
    assert main(["train", "gpt2", str(left / "book.txt"), *words, "--out", str(left / "one")]) == 2
    assert "several devices hold it in parts with parallel=fsdp" in " ".join(capsys.readouterr().err.split())
