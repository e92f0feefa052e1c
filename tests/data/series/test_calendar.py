"""The calendar as what is known in advance: parts of the day, the week and the year, at every step to come too."""

from __future__ import annotations

import datetime
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cutaway.core.errors import DataError, SettingError, UnknownName
from cutaway.data.dataset_base import DataSet
from cutaway.data.modalities import preprocessing_from_json
from cutaway.data.series.column_roles import FORMATS, Clock, Step, calendar_features
from cutaway.data.series.dataset import open_series
from cutaway.data.series.transforms import ForecastPreprocessing, WindowSplit
from cutaway.data.settings import DataSettings

HOUR = 3_600_000_000


def write(path: Path, rows: int, skip: int = -1, column: str = "time") -> Path:
    times = np.datetime64("2024-02-27T20", "h") + np.arange(rows)
    kept = [f"{str(t).replace('T', ' ')}:00,{k % 5},{k % 2}" for k, t in enumerate(times) if k != skip]
    path.write_text("\n".join([f"{column},load,holiday", *kept]) + "\n")
    return path


def opened(path: Path, **settings: Any) -> DataSet:
    asked = {"forecast": ("load",), "ignore": ("holiday",), "calendar": ("hour", "weekday"), "horizon": 6}
    return open_series(path, DataSettings(**{**asked, "lookback": 24, **settings}))


@given(st.datetimes(datetime.datetime(1900, 1, 1), datetime.datetime(2200, 1, 1)))
def test_parts_are_those_of_pythons_calendar(when: datetime.datetime) -> None:
    first = round((when - datetime.datetime(1970, 1, 1)) / datetime.timedelta(microseconds=1))
    clock = Clock(first, Step("span", HOUR), next(iter(FORMATS)))
    found = calendar_features(clock, np.array([0, 5]), ("hour", "weekday", "month"))
    for step, row in zip((0, 5), found):
        then = when + datetime.timedelta(hours=step)
        day = datetime.timedelta(
            hours=then.hour, minutes=then.minute, seconds=then.second, microseconds=then.microsecond
        )
        parts = (day / datetime.timedelta(days=1), then.weekday() / 7, (then.month - 1) / 12)
        expected = [wave(2 * math.pi * part) for part in parts for wave in (math.sin, math.cos)]
        np.testing.assert_allclose(row, expected, atol=1e-9)


def test_a_forecast_sees_the_calendar_of_the_steps_to_come(tmp_path: Path) -> None:
    data = opened(write(tmp_path / "hours.csv", 300))
    assert (data.spec.features, data.spec.known_future) == (5, 4)  # type: ignore[union-attr]  # of a series
    assert any("Known in advance: hour (sin), hour (cos), weekday (sin), weekday (cos)." in note for note in data.notes)
    prep, split = data.preprocessing, data.splits["train"]
    assert isinstance(prep, ForecastPreprocessing)
    assert isinstance(split, WindowSplit)
    (batch,) = split.batches([torch.tensor([0, 7])])
    seen, ahead = (part.double() * torch.tensor(prep.std)[-4:] + torch.tensor(prep.mean)[-4:]
                   for part in (batch.inputs[0][..., 1:], batch.inputs[1]))  # fmt: skip
    hours = torch.cat([seen, ahead], dim=1)[:, :, :2]
    since = torch.arange(30)[None] + torch.tensor([[0], [7]]) + 20
    angle = 2 * math.pi * since / 24
    torch.testing.assert_close(hours, torch.stack([angle.sin(), angle.cos()], 2).double(), atol=1e-5, rtol=0)
    assert preprocessing_from_json(json.loads(json.dumps(prep.to_json()))) == prep


def test_a_new_file_needs_no_rows_of_the_future(tmp_path: Path) -> None:
    path = write(tmp_path / "hours.csv", 300)
    prep = opened(path).preprocessing
    inputs = next(prep.examples([write(tmp_path / "new.csv", 30)]).batches([torch.tensor([0])])).inputs
    whole = next(prep.labelled(write(tmp_path / "more.csv", 36)).batches([torch.tensor([6])])).inputs
    torch.testing.assert_close(inputs[0], whole[0])
    torch.testing.assert_close(inputs[1], whole[1])


def test_beside_columns_that_are_known_in_advance_their_rows_are_needed(tmp_path: Path) -> None:
    path = write(tmp_path / "hours.csv", 300)
    prep = opened(path, ignore=(), known_future=("holiday",)).preprocessing
    with pytest.raises(DataError, match="holiday must be known for every step of it"):
        prep.examples([path])


def test_the_calendar_goes_on_where_a_step_is_filled_in(tmp_path: Path) -> None:
    filled = opened(write(tmp_path / "hours.csv", 300, skip=50), gaps="fill").splits["train"]
    there = opened(write(tmp_path / "all.csv", 300)).splits["train"]
    assert isinstance(filled, WindowSplit)
    assert isinstance(there, WindowSplit)
    torch.testing.assert_close(filled.values[:, -4:], there.values[:, -4:], atol=2e-3, rtol=0)


def test_what_cannot_be_is_said(tmp_path: Path) -> None:
    path = write(tmp_path / "hours.csv", 300)
    with pytest.raises(UnknownName, match="weekdy"):
        opened(path, calendar=("weekdy",))
    with pytest.raises(SettingError, match="calendar=hour is told from times"):
        opened(path, calendar=("hour",), ignore=("holiday", "time"))
