"""A series as a data set: fitted on the training time, described in words, saved, and given new files."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

import cutaway
from cutaway.core.errors import DataError, SettingError
from cutaway.core.spec import Horizon, SeriesSpec
from cutaway.data.dataset_base import Batch, DataSet
from cutaway.data.modalities import preprocessing_from_json
from cutaway.data.series.dataset import open_series
from cutaway.data.series.transforms import ForecastPreprocessing, WindowSplit
from cutaway.data.settings import DataSettings

LENGTH = 400


def values(seed: int = 0, length: int = LENGTH) -> np.ndarray:
    """Load and wind by the hour, and whether it is a holiday."""
    rng = np.random.default_rng(seed)
    hour = np.arange(length)
    holiday = (hour // 24 % 7 == 6).astype(float)
    load = 50 + 10 * np.sin(2 * np.pi * hour / 24) - 5 * holiday + rng.normal(size=length)
    return np.stack([load, 3 + rng.random(length), holiday], axis=1).round(4)


def write(path: Path, rows: np.ndarray, ahead: int = 0, start: str = "2024-01-01T00") -> Path:
    times = np.datetime64(start, "h") + np.arange(len(rows))
    lines = ["time,load,wind,holiday"]
    for i, (time, (load, wind, holiday)) in enumerate(zip(times, rows)):
        known = i < len(rows) - ahead
        lines.append(f"{str(time).replace('T', ' ')}:00,{load if known else ''},{wind if known else ''},{holiday:g}")
    path.write_text("\n".join(lines) + "\n")
    return path


def opened(path: Path, **settings: Any) -> DataSet:
    asked = {"forecast": ("load",), "known_future": ("holiday",), "horizon": 6, "lookback": 24, **settings}
    return open_series(path, DataSettings(**asked))


def windows(data: DataSet, name: str) -> WindowSplit:
    split = data.splits[name]
    assert isinstance(split, WindowSplit)
    return split


def whole(split: WindowSplit) -> Batch:
    (batch,) = split.batches([torch.arange(len(split))])
    return batch


def prepared(data: DataSet) -> ForecastPreprocessing:
    assert isinstance(data.preprocessing, ForecastPreprocessing)
    return data.preprocessing


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write(tmp_path / "load.csv", values())


def test_the_spec_says_what_is_forecast(file: Path) -> None:
    data = opened(file)
    assert isinstance(data.spec, SeriesSpec)
    assert (data.spec.shape, data.spec.known_future) == ((24, 3), 1)
    target = data.spec.target
    assert isinstance(target, Horizon)
    assert (target.steps, target.columns, target.season_length, target.outputs) == (6, ("load",), 24, 6)
    assert data.name == "load"
    assert windows(data, "test").name(0).startswith("from 2024-01-")
    assert windows(data, "test").row(0) == {
        "seen from": windows(data, "test").name(0).replace("from ", "").replace("2024-01-15", "2024-01-14"),
        "load before": f"{values()[int(windows(data, 'test').starts[0]) - 1, 0]:.6g}",
    }


def test_what_nobody_says_follows_from_the_horizon_and_the_calendar(file: Path) -> None:
    data = open_series(file, DataSettings(forecast=("load", "wind")))
    assert data.spec.shape == (96, 3)
    assert isinstance(data.spec.target, Horizon)
    assert (data.spec.target.steps, data.spec.target.columns) == (24, ("load", "wind"))
    assert opened(file, season_length=48).spec.target.season_length == 48  # type: ignore[union-attr]
    with pytest.raises(SettingError, match="season_length=300 is more than half of the training time"):
        opened(file, season_length=300)
    short = opened(write(file.with_name("short.csv"), values()[:60]), horizon=2, lookback=4)
    assert short.spec.target.season_length == 1  # type: ignore[union-attr]
    assert any("the calendar has is more than half of the training time" in note for note in short.notes)


def test_scaling_is_that_of_the_training_time_alone(file: Path, tmp_path: Path) -> None:
    data = opened(file)
    train = windows(data, "train")
    end = int(train.starts[-1]) + 6
    mean, std = values()[:end].mean(0), values()[:end].std(0)
    np.testing.assert_allclose(prepared(data).mean, mean)
    np.testing.assert_allclose(prepared(data).std, std)
    torch.testing.assert_close(train.values[:end].mean(0), torch.zeros(3), atol=1e-5, rtol=0)
    changed = values()
    changed[end:] = changed[end:] * 100 + 7
    other = opened(write(tmp_path / "load2.csv", changed))
    assert prepared(other) == prepared(data)
    assert torch.equal(whole(windows(other, "train")).inputs[0], whole(train).inputs[0])
    assert other.split_hash == data.split_hash
    assert other.fingerprint != data.fingerprint


def test_notes_say_what_was_done(file: Path, tmp_path: Path) -> None:
    said = " ".join(opened(file).notes)
    assert "Forecast: load. Seen up to the forecast as well: wind. Known in advance: holiday." in said
    assert "Time: column time, 2024-01-01 00:00 to 2024-01-17 15:00, one row every hour." in said
    counted = " ".join(opened(file, ignore=("time",)).notes)
    assert f"Time: no column of times: the rows are counted, row 1 to row {LENGTH}." in counted
    assert "Split by the time of the forecast" in said
    assert "max_samples=50 keeps the last windows" in " ".join(opened(file, max_samples=50).notes)
    gappy = values()
    gappy[100, 0] = np.nan
    path = write(tmp_path / "gappy.csv", gappy)
    path.write_text(path.read_text().replace("nan", ""))
    filled = opened(path, gaps="fill")
    assert any("1 missing value of column load filled in" in note for note in filled.notes)
    assert any("Left out: 1 window that" in note for note in filled.notes)
    still = values()
    still[:300, 1] = 4
    assert any("Constant in the training time" in n and "wind" in n for n in opened(write(path, still)).notes)


def test_columns_are_described(file: Path) -> None:
    rows = {row["name"]: row for row in opened(file).columns}
    assert [row["role"] for row in rows.values()] == ["time", "forecast", "seen up to the forecast", "known in advance"]
    assert rows["holiday"]["example"] == "0 … 1"
    assert rows["time"]["type"] == "date"


def test_what_was_saved_comes_back_equal(file: Path) -> None:
    ours = prepared(opened(file))
    assert preprocessing_from_json(json.loads(json.dumps(ours.to_json()))) == ours
    assert preprocessing_from_json({**ours.to_json(), "gaps": "refuse"}).to_json()["gaps"] == "error"  # before 0.7
    broken = {k: v for k, v in ours.to_json().items() if k != "step"}
    with pytest.raises(DataError, match=r"^preprocessing\.json: step is missing"):
        preprocessing_from_json(broken)
    broken = {**ours.to_json(), "step": {"unit": "moon", "size": 1}}
    with pytest.raises(DataError, match=r"cannot be used: a step of 1 moon\. Restore it"):
        preprocessing_from_json(broken)


def test_a_forecast_of_a_new_file_begins_behind_its_last_row(file: Path, tmp_path: Path) -> None:
    data = opened(file)
    test = windows(data, "test")
    k = len(test) - 1  # the last window: its horizon is the end of the file
    cut = write(tmp_path / "so_far.csv", values(), ahead=6)
    later = write(tmp_path / "later.csv", values(1, 100), ahead=8, start="2025-06-01T00")
    split = prepared(data).examples([cut, str(later)])
    assert len(split) == 2
    assert split.target is None
    (x, future), target = whole(split)
    (actual_x, actual_future), _ = whole(test)
    assert target.shape == (2, 0)
    assert torch.equal(x[0], actual_x[k])
    assert torch.equal(future[0], actual_future[k])
    assert split.name(0) == "so_far.csv, from 2024-01-17 10:00"
    assert split.name(1) == "later.csv, from 2025-06-04 20:00"
    assert torch.equal(x[1], prepared(data).prepare(values(1, 100))[92 - 24 : 92])


def test_files_that_cannot_be_forecast(file: Path, tmp_path: Path) -> None:
    ours = prepared(opened(file))
    with pytest.raises(DataError, match=r"has 4 rows after the last one that holds load, and the forecast needs 6"):
        ours.examples([write(tmp_path / "a.csv", values(), ahead=4)])
    with pytest.raises(DataError, match=r"has 14 steps, and a forecast is made from the last 24"):
        ours.examples([write(tmp_path / "b.csv", values()[:20], ahead=6)])
    with pytest.raises(DataError, match="No series was given"):
        ours.examples([])
    with pytest.raises(DataError, match="not from dict"):
        ours.examples([{"load": "3"}])
    daily = tmp_path / "daily.csv"
    daily.write_text("time,load,wind,holiday\n" + "".join(f"2024-01-{d:02} 00:00,1,2,0\n" for d in range(1, 31)))
    with pytest.raises(DataError, match="are 1 day apart, and the model was trained on a series with a step of 1 hour"):
        ours.labelled(daily)
    other = tmp_path / "other.csv"
    other.write_text(file.read_text().replace("wind", "breeze"))
    with pytest.raises(DataError, match="has no column 'wind'"):
        ours.labelled(other)


def test_every_window_of_another_file_can_be_evaluated(file: Path, tmp_path: Path) -> None:
    data = opened(file)
    split = prepared(data).labelled(file)
    assert len(split) == LENGTH - 24 - 6 + 1
    test = windows(data, "test")
    assert torch.equal(whole(split).target[-len(test) :], whole(test).target)
    with pytest.raises(DataError, match="has 29 steps, and 30 are needed"):
        prepared(data).labelled(write(tmp_path / "short.csv", values()[:29]))


def test_a_forecast_needs_its_last_step_in_full(file: Path, tmp_path: Path) -> None:
    ours = prepared(opened(file, gaps="fill"))
    lines = write(tmp_path / "so_far.csv", values()[:60], ahead=6).read_text().splitlines()
    load, wind = lines[54].split(",")[1:3]
    lines[54] = lines[54].replace(f",{load},{wind},", f",{load},,")
    path = tmp_path / "incomplete.csv"
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(DataError, match="line 55, column wind: the value is missing"):
        ours.examples([path])


def test_mixtures_of_what_is_known_in_advance_are_rejected(file: Path) -> None:
    with pytest.raises(SettingError, match="mixup blends measured values"):
        opened(file, mixup=0.2)
    assert opened(file, known_future=(), mixup=0.2).augment is not None


def test_skipped_gaps_are_skipped_in_new_files_and_frames_too(tmp_path: Path) -> None:
    days = [d for d in np.arange("2024-01-01", "2024-12-01", dtype="datetime64[D]") if np.is_busday(d)]
    del days[30], days[77]  # holidays
    close = np.round(100 + np.random.default_rng(0).normal(size=len(days)).cumsum(), 2)
    frame = pl.DataFrame({"day": [str(d) for d in days], "close": close})
    frame[::-1].write_csv(tmp_path / "t.csv")  # newest first
    asked = DataSettings(forecast=("close",), horizon=5, lookback=10, gaps="skip")
    data = open_series(tmp_path / "t.csv", asked)
    assert any("stand newest first" in note for note in data.notes)
    (batch,) = data.splits["train"].batches([torch.tensor([25])])
    scaled = (close - prepared(data).mean[0]) / prepared(data).std[0]
    assert batch.inputs[0][0, :, 0].tolist() == pytest.approx(scaled[25:35].tolist(), rel=1e-5)
    again = preprocessing_from_json(json.loads(json.dumps(data.preprocessing.to_json())))
    assert again == data.preprocessing
    for new in (frame, frame.sample(fraction=1, shuffle=True, seed=0), str(tmp_path / "t.csv")):
        split = again.examples([new])
        assert split.name(0).endswith("from 2024-12-02")  # the next working day, a Monday
        (batch,) = split.batches([torch.tensor([0])])
        assert batch.inputs[0][0, :, 0].tolist() == pytest.approx(scaled[-10:].tolist(), rel=1e-5)
    gaps = replace(asked, gaps="error")
    with pytest.raises(DataError, match="gaps=skip"):
        open_series(tmp_path / "t.csv", gaps)


@pytest.mark.parametrize("value", [7.5, -2e-6, 4e6])
def test_a_constant_is_forecast_as_itself_in_any_unit(tmp_path: Path, value: float) -> None:
    """Outputs of a barely trained network are some hundredths: with a scale of 1 they would be 10⁴ times 2e-6."""
    path = tmp_path / "constant.csv"
    path.write_text("load\n" + f"{value}\n" * 90)
    run = cutaway.train(
        "gru",
        path,
        forecast="load",
        horizon=3,
        lookback=8,
        max_steps=4,
        **{"model.hidden_dim": 4},
        out=tmp_path / "run",
    )
    (row,) = run.predict([path])
    assert [row[f"load +{k}"] for k in (1, 2, 3)] == pytest.approx([value] * 3, rel=0.01)
