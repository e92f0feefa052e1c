"""Windows of a series: cut exactly, split by time, and no split sees what is after it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from cutaway.core.errors import DataError, SettingError
from cutaway.data.dataset_base import Batch
from cutaway.data.series.column_roles import ROW, Clock, ColumnRoles, Step
from cutaway.data.series.series_files import Series
from cutaway.data.series.transforms import (
    ForecastPreprocessing,
    WindowSplit,
    covered_steps,
    split_by_time,
    window_starts,
)
from cutaway.data.settings import DataSettings
from cutaway.data.splits import Rows


def series(length: int, seed: int = 0, missing: float = 0.0, known: bool = True) -> Series:
    """Two columns to forecast, one that is measured and one that is known in advance: every value tells its place."""
    columns = ColumnRoles(None, ROW, ("a", "b"), ("c",), ("d",) if known else ())
    values = np.arange(length)[:, None] + 10_000.0 * np.arange(len(columns.names))
    observed: np.ndarray = np.array(np.random.default_rng(seed).random(values.shape) >= missing)
    observed[[0, -1]] = True
    return Series("made.csv", columns, Clock(1, Step(ROW, 1), ROW), values, observed, length)


def whole(split: WindowSplit) -> Batch:
    (batch,) = split.batches([torch.arange(len(split))])
    return batch


def targets(split: WindowSplit) -> torch.Tensor:
    assert split.target is not None
    return split.target


def splits_of(found: Series, starts: dict[str, Rows], history: int, horizon: int) -> dict[str, WindowSplit]:
    fitted = ForecastPreprocessing.fitted(
        found, covered_steps(starts["train"], history, horizon), history, horizon, 1, "fill"
    )
    return fitted.splits(found, starts)


def places(split: WindowSplit, values: torch.Tensor, variable: int) -> Any:
    """The steps that these standardised values of a variable stand for."""
    step = split.values[1, variable].double() - split.values[0, variable].double()
    return ((values.double() - split.values[0, variable].double()) / step).round().long()


LENGTHS = {
    "length": st.integers(30, 160),
    "history": st.integers(1, 12),
    "horizon": st.integers(1, 9),
    "val": st.sampled_from([0.0, 0.2, 0.35]),
    "test": st.sampled_from([0.0, 0.15, 0.3]),
    "missing": st.sampled_from([0.0, 0.05, 0.3]),
    "seed": st.integers(0, 5),
}


@given(**LENGTHS)
@settings(max_examples=40, deadline=None)
def test_no_part_sees_or_learns_what_is_behind_it(
    length: int, history: int, horizon: int, val: float, test: float, missing: float, seed: int
) -> None:
    found = series(length, seed, missing)
    try:
        starts = split_by_time(found, history, horizon, DataSettings(val=val, test=test))
    except DataError:
        assume(False)
    splits = splits_of(found, starts, history, horizon)
    assert list(splits) == [p for p, fraction in (("train", 1), ("val", val), ("test", test)) if fraction]
    forecast: dict[str, set[int]] = {}
    seen: dict[str, set[int]] = {}
    for name, split in splits.items():
        (x, future), target = whole(split)
        assert x.shape == (len(split), history, 4)
        assert future.shape == (len(split), horizon, 1)
        assert target.shape == (len(split), 2 * horizon)
        assert torch.equal(target.isnan(), targets(split).isnan())
        start = torch.as_tensor(starts[name])[:, None]
        # Exactly the steps before each start, and from it on.
        for variable in range(4):
            assert torch.equal(places(split, x[:, :, variable], variable), start + torch.arange(-history, 0))
        assert torch.equal(places(split, future[:, :, 0], 3), start + torch.arange(horizon))
        ahead = target.view(-1, horizon, 2)
        for variable in range(2):
            there = ~ahead[:, :, variable].isnan()
            said = places(split, ahead[:, :, variable].nan_to_num(), variable)
            assert torch.equal(said[there], (start + torch.arange(horizon))[there])
            # What was filled in is never a target.
            filled = ~found.observed[(start + torch.arange(horizon)).numpy(), variable]
            assert torch.equal(there, ~torch.from_numpy(filled))
        assert there.any() or (~ahead[:, :, 0].isnan()).any()
        # No forecast begins after a value whose line leads into the target.
        assert found.observed[starts[name] - 1, :3].all()
        forecast[name] = set((start + torch.arange(horizon)).flatten().tolist())
        seen[name] = set((start + torch.arange(-history, 0)).flatten().tolist())
    order = list(splits)
    for i, early in enumerate(order):
        for late in order[i + 1 :]:
            assert max(forecast[early]) < min(forecast[late])
            assert max(seen[early]) < min(forecast[late])


def test_a_view_and_a_cut_are_the_same_targets() -> None:
    found = series(40, known=False)
    every = window_starts(found, 5, 3)
    some = every[[0, 1, 2, 7, 20]]
    splits = splits_of(found, {"train": every, "val": some}, 5, 3)
    assert torch.equal(whole(splits["train"]).target, targets(splits["train"]))
    assert torch.equal(whole(splits["val"]).target, targets(splits["val"]))
    assert torch.equal(targets(splits["train"])[[0, 1, 2, 7, 20]], targets(splits["val"]))


def test_windows_share_one_tensor() -> None:
    found = series(4000)
    splits = splits_of(found, split_by_time(found, 50, 20, DataSettings()), 50, 20)
    assert len({split.values.data_ptr() for split in splits.values()}) == 1
    assert len(splits["train"]) > 2000


def test_shares_are_of_the_time_that_can_be_a_target() -> None:
    starts = split_by_time(series(1010), 10, 5, DataSettings(val=0.2, test=0.1))
    assert [(int(s[0]), int(s[-1]) + 5) for s in starts.values()] == [(10, 710), (710, 910), (910, 1010)]
    fixed = split_by_time(series(1010), 10, 5, DataSettings(), borders=(500, 600, 800))
    assert [(int(s[0]), int(s[-1]) + 5) for s in fixed.values()] == [(10, 500), (500, 600), (600, 800)]


def test_limit_keeps_the_last_training_windows() -> None:
    all_of_it = split_by_time(series(200), 10, 5, DataSettings())
    limited = split_by_time(series(200), 10, 5, DataSettings(max_samples=7))
    assert limited["train"].tolist() == all_of_it["train"][-7:].tolist()
    assert limited["test"].tolist() == all_of_it["test"].tolist()
    assert covered_steps(limited["train"], 10, 5).tolist() == list(
        range(limited["train"][0] - 10, limited["train"][-1] + 5)
    )


def test_too_little_is_rejected_with_what_is_needed() -> None:
    with pytest.raises(DataError, match=r"has 30 steps, and 35 are needed: a history of 20, and a horizon of 5"):
        split_by_time(series(30), 20, 5, DataSettings())
    assert len(split_by_time(series(30), 20, 5, DataSettings(val=0.0, test=0.5))) == 2
    with pytest.raises(DataError, match=r"The test split gets no window: its 2 steps from row 39"):
        split_by_time(series(40), 4, 5, DataSettings(test=0.05))
    with pytest.raises(SettingError, match="leave nothing to train on"):
        split_by_time(series(40), 4, 5, DataSettings(val=0.5, test=0.5))
    gone = series(60)
    gone.observed[40:60] = False
    with pytest.raises(DataError, match="hold no horizon of 5 that was measured"):
        split_by_time(gone, 4, 5, DataSettings())
