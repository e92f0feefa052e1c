"""Weights that are kept along the way: when, which, and that they change nothing of the training."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import cutaway
from cutaway.checkpoints.saving import load_model
from cutaway.training.callbacks import list_snapshots, snapshot_updates
from cutaway.training.checkpoint import load_weights
from cutaway.training.trainer import Trainer

from .conftest import fitted

SETTINGS = {"epochs": 3, "batch_size": 50, "tensorboard": False, "snapshots": 5}


@given(updates=st.integers(0, 10_000), count=st.integers(2, 40))
def test_moments_go_from_the_beginning_to_the_end_and_are_closer_at_first(updates: int, count: int) -> None:
    at = sorted(snapshot_updates(updates, count))
    assert at[0] == 0
    assert at[-1] == updates
    assert len(at) <= count
    gaps = [b - a for a, b in itertools.pairwise(at)]
    assert all(later >= gap - 1 for gap, later in itertools.pairwise(gaps))


def test_none_are_kept_unless_asked_for(tmp_path: Path) -> None:
    assert snapshot_updates(100, 0) == frozenset()
    assert snapshot_updates(100, 1) == {0}
    cutaway.train("softmax", "iris", epochs=1, tensorboard=False, out=tmp_path / "run")
    assert not (tmp_path / "run" / "snapshots").exists()
    assert list_snapshots(tmp_path / "run") == {}


def test_weights_are_those_of_the_moment_and_training_is_what_it_is_without(tmp_path: Path) -> None:
    run = cutaway.train("mlp", "iris", **SETTINGS, out=tmp_path / "run")
    plain = cutaway.train("mlp", "iris", **{**SETTINGS, "snapshots": 0}, out=tmp_path / "plain")
    files = list_snapshots(run.folder)
    (*_, row) = (run.folder / "metrics.csv").read_text().splitlines()
    assert list(files) == sorted(snapshot_updates(int(row.split(",")[1]), 5))
    ours, theirs = load_model(run.folder / "model")[0], load_model(plain.folder / "model")[0]
    assert all(torch.equal(a, b) for a, b in zip(ours.state_dict().values(), theirs.state_dict().values()))
    checkpoints = [folder / "checkpoints" / "last.safetensors" for folder in (run.folder, plain.folder)]
    assert all(torch.equal(x, y) for x, y in zip(*(load_weights(path).values() for path in checkpoints), strict=True))
    ended, first = load_weights(files[max(files)]), load_weights(files[0])
    assert all(torch.equal(ended[k], x) for k, x in load_weights(checkpoints[0]).items())
    assert not all(torch.equal(ended[k], x) for k, x in first.items())


@pytest.mark.parametrize("stop_at", [1, 4, 6, 9])
@pytest.mark.parametrize("given", [{}, {"ema": 0.9}, {"max_steps": 11, "epochs": 2}], ids=["plain", "ema", "steps"])
def test_a_run_that_is_stopped_and_taken_up_again_keeps_the_same_bytes(
    make_trainer: Callable[..., Trainer], tmp_path: Path, stop_at: int, given: dict[str, Any]
) -> None:
    given = {"dropout": 0.3, "snapshots": 6, **given}
    whole = fitted(lambda: make_trainer(folder=tmp_path / "whole", **given))
    fitted(lambda: make_trainer(folder=tmp_path / "again", **given), stop_at)
    ours, theirs = list_snapshots(tmp_path / "again"), list_snapshots(tmp_path / "whole")
    assert list(ours) == list(theirs) == sorted(snapshot_updates(whole.state.update, 6))
    for update, path in theirs.items():
        assert ours[update].read_bytes() == path.read_bytes(), update
    kept_last = load_weights(theirs[whole.state.update])
    assert all(torch.equal(kept_last[k], x) for k, x in whole.weights().items())
