"""What `check` says a step will take is what it takes: of many words for each token too, in chunks or whole."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from cutaway.core.spec import NextToken, TextSpec
from cutaway.data.dataset_base import DataSet
from cutaway.data.text.corpus_transforms import StreamSplit
from cutaway.models.registry import create_model
from cutaway.tasks.task import task_for
from cutaway.training import cost_estimate as estimate_module
from cutaway.training.callbacks import Progress
from cutaway.training.config import TrainSettings
from cutaway.training.cost_estimate import estimate_cost
from cutaway.training.device import select_device
from cutaway.training.trainer import Trainer

pytestmark = pytest.mark.slow  # processes, or runs that are trained

WORDS, LENGTH, BATCH = 50_257, 64, 8


def ready(chunk: int | None) -> SimpleNamespace:
    """A small gpt2 with its whole vocabulary, and three batches."""
    torch.manual_seed(0)
    split = StreamSplit([torch.randint(WORDS, (3 * BATCH * LENGTH + 1,))], LENGTH, False, str)
    spec = TextSpec(WORDS, LENGTH, NextToken(WORDS))
    data = DataSet("t", "t", spec, {"train": split}, preprocessing=None, fingerprint="", split_hash="")  # type: ignore[arg-type]
    model = create_model("gpt2", vocab_size=WORDS, context_length=LENGTH, dim=64, layers=2, heads=2, dropout=0.0)
    settings = TrainSettings(batch_size=BATCH, loss_chunk=chunk, epochs=1)
    place = select_device("cpu", "float32", None, model)
    task = task_for(spec)
    return SimpleNamespace(
        model=model, data=data, task=task, settings=settings, place=place, teacher=None, deferred=None
    )


def step_and_print_the_peak(chunk: int | None) -> None:
    """What the process beside the test does: bytes above what it had without model and batch."""
    torch.set_num_threads(1)
    given = ready(chunk)
    trainer = Trainer(
        given.model, given.data, given.task, given.settings, given.place, Path("unused"), Progress(shown=False)
    )

    def status(key: str) -> int:
        (line,) = (s for s in Path("/proc/self/status").read_text().splitlines() if s.startswith(key))
        return int(line.split()[1]) * 1024

    before = status("VmRSS") - sum(p.nbytes for p in given.model.parameters())
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
    for batch in trainer.train.batches(trainer.epoch_batches(0)):
        trainer.step([batch], steps=3)
    print(status("VmHWM") - before, flush=True)


@pytest.fixture(scope="module")
def taken() -> dict[int | None, float]:
    """What steps take in a process of their own each, forked from one that has everything imported."""
    code = (
        f"import os; from {__name__} import step_and_print_the_peak as f\n"
        "for chunk in (None, 0):\n"
        "    if not os.fork(): f(chunk); os._exit(0)\n"
        "    os.wait()"
    )
    root = Path(__file__).parents[2]  # from which the tests can be imported
    said = subprocess.run([sys.executable, "-c", code], cwd=root, check=True, capture_output=True, text=True).stdout
    return dict(zip((None, 0), map(float, said.split()), strict=True))


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="memory is read as Linux tells it")
@pytest.mark.parametrize("chunk", [None, 0], ids=["chunks", "whole"])
def test_the_memory_that_is_said_is_the_memory_that_is_taken(taken: dict[int | None, float], chunk: int | None) -> None:
    said = estimate_cost(ready(chunk)).memory  # type: ignore[arg-type]
    assert said == pytest.approx(taken[chunk], rel=0.15)


def test_chunks_are_counted_as_what_is_held_at_a_time() -> None:
    whole, chunks = estimate_cost(ready(0)), estimate_cost(ready(100))  # type: ignore[arg-type]
    assert chunks.outputs == 4 * 100 * WORDS
    assert whole.outputs == 3 * 4 * BATCH * LENGTH * WORDS
    assert whole.activations - chunks.activations > 4 * BATCH * LENGTH * WORDS * 0.8  # the logarithms
    assert chunks.memory < whole.memory / 4


def test_a_slow_step_is_timed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[object] = []
    step = Trainer.step
    monkeypatch.setattr(Trainer, "step", lambda *args, **given: (steps.append(args), step(*args, **given))[1])
    monkeypatch.setattr(estimate_module, "MOST_SECONDS", 0.0)
    assert estimate_cost(ready(None)).seconds_per_step > 0  # type: ignore[arg-type]
    assert len(steps) == 1
