"""`parallel=auto` is what a plan says fits: one estimate, and one room that it has."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import cutaway
from cutaway.core.errors import SettingError
from cutaway.experiments import planner
from cutaway.training import memory
from cutaway.training.device import DeviceContext
from cutaway.training.memory import memory_per_process, resolve_parallel
from cutaway.training.setup import TrainingSetup, setup_training

GIVEN: dict[str, Any] = {
    "model.layers": 3, "model.dim": 64, "model.heads": 2, "length": 64, "batch_size": 16, "memory_fraction": 0.5,
}  # fmt: skip


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A text to learn from; this process stands for two, whose memory is asked about in this one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(DeviceContext, "all_gather", lambda place, value: [value])
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    Path("text.txt").write_text("Return the sum of all that is given, or zero where nothing is.\n" * 1000)


def ready(**given: Any) -> TrainingSetup:
    """The training of the first of two processes."""
    found = setup_training("gpt2", "text.txt", {**GIVEN, **given})
    found.place = replace(found.place, processes=2)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("given", [{}, {"recompute": "full"}, {"ema": 0.9, "optimizer": "momentum"}], ids=str)
def test_auto_is_what_plan_says_fits(given: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    planned = cutaway.plan("gpt2", "text.txt", processes=2, **GIVEN, **given)["ddp"].memory.total
    first = ready(**given)
    assert memory_per_process(first, "ddp").total == planned
    weights = sum(x.nbytes for x in (*first.model.parameters(), *first.model.buffers()))
    for more, expected in ((1.001, "ddp"), (0.999, "fsdp")):
        # Half of what is free and of the weights, which are there, is for two processes.
        free = int(4 * planned * more - weights)
        monkeypatch.setattr(memory, "free_memory", lambda device, free=free: free)
        again = ready(**given)
        resolve_parallel(again)
        assert again.settings.parallel == expected
        fits = cutaway.plan("gpt2", "text.txt", processes=2, **GIVEN, **given)["ddp"].fits
        assert fits == (expected == "ddp")
        assert planner.available_bytes is memory.available_bytes


def test_what_is_asked_for_stays_and_what_cannot_be_in_parts_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "free_memory", lambda device: 1000)
    asked = ready()
    asked.settings = replace(asked.settings, parallel="ddp")
    resolve_parallel(asked)
    assert asked.settings.parallel == "ddp"
    with pytest.raises(SettingError, match="parallel=fsdp holds weights in parts, which compile=true does not know"):
        resolve_parallel(ready(compile=True))
