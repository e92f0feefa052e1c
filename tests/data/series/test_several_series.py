"""Many series in one file: each is read, split and scaled by itself, and none is seen by another."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cutaway.core.errors import DataError, SettingError
from cutaway.core.spec import Horizon
from cutaway.data.dataset_base import DataSet
from cutaway.data.modalities import preprocessing_from_json
from cutaway.data.series.dataset import open_series
from cutaway.data.series.transforms import ForecastPreprocessing, WindowSplit
from cutaway.data.settings import DataSettings
from cutaway.tasks.forecasting import Forecasting, seasonal_naive

DAYS = {"north": 60, "south": 80, "new": 40}


def rows_of(name: str, days: int, begin: str = "2024-01-01", level: float = 0.0) -> list[str]:
    """Sales that tell series and day: level + day, a flag, and a weekday that is known in advance."""
    times = np.datetime64(begin) + np.arange(days)
    return [f"{name},{time},{level + day:g},{day % 2},{day % 7}" for day, time in enumerate(times)]


def write(path: Path, *series: list[str]) -> Path:
    path.write_text("\n".join(["shop,day,sales,open,weekday", *(row for one in series for row in one)]) + "\n")
    return path


@pytest.fixture
def file(tmp_path: Path) -> Path:
    levels = {"north": 1000.0, "south": 100_000.0, "new": 10.0}
    begins = {"north": "2024-01-01", "south": "2024-01-01", "new": "2024-02-10"}
    return write(tmp_path / "shops.csv", *(rows_of(n, d, begins[n], levels[n]) for n, d in DAYS.items()))


def opened(path: Path, **settings: Any) -> DataSet:
    asked = {"forecast": ("sales",), "id": "shop", "known_future": ("weekday",), "horizon": 3, "lookback": 7}
    return open_series(path, DataSettings(**{**asked, **settings}))


def windows(data: DataSet, name: str) -> WindowSplit:
    split = data.splits[name]
    assert isinstance(split, WindowSplit)
    assert split.several is not None
    return split


def prepared(data: DataSet) -> ForecastPreprocessing:
    assert isinstance(data.preprocessing, ForecastPreprocessing)
    return data.preprocessing


def in_sales(split: WindowSplit) -> tuple[torch.Tensor, torch.Tensor]:
    """What each window sees of the sales and is to forecast, in sales."""
    (batch,) = split.batches([torch.arange(len(split))])
    return split.inverse_transform(batch.inputs[0][:, :, 0]), split.inverse_transform(batch.target)


def test_the_steps_of_series_are_a_number_or_a_range(tmp_path: Path, file: Path) -> None:
    alike = write(tmp_path / "alike.csv", *(rows_of(name, 60, "2024-01-01", 10.0) for name in ("b", "a")))
    assert any("2 series, named by column shop, of 60 steps, one every day" in note for note in opened(alike).notes)
    days = sorted(DAYS.values())
    assert any(f"of {days[0]} to {days[-1]} steps, one every day" in note for note in opened(file).notes)


def test_no_window_reaches_from_one_series_into_another(file: Path) -> None:
    data = opened(file)
    levels = torch.tensor([1000.0, 100_000.0, 10.0])
    for name in ("train", "val", "test"):
        split = windows(data, name)
        assert split.several is not None
        seen, ahead = in_sales(split)
        days = torch.cat([seen, ahead], dim=1) - levels[split.several.which][:, None]
        torch.testing.assert_close(days.diff(dim=1), torch.ones(len(split), 9, dtype=days.dtype), atol=0.02, rtol=0)
        assert days.min() > -0.5
        assert sorted(split.several.which.unique().tolist()) == [0, 1, 2]


def test_each_series_is_split_by_its_own_time(file: Path) -> None:
    data = opened(file, val=0.2, test=0.2)
    for k, days in enumerate(DAYS.values()):
        last = [-1.0]
        for name in ("train", "val", "test"):
            split = windows(data, name)
            assert split.several is not None
            own = split.several.which == k
            first_day = in_sales(split)[1][own][:, 0] - torch.tensor([1000.0, 100_000.0, 10.0])[k]
            assert first_day.min() > last[-1] + 2 * (name != "train")  # no target is in two splits
            last.append(float(first_day.max()))
        assert round(last[-1]) == days - 3


def test_windows_stand_in_the_order_of_time(file: Path) -> None:
    split = windows(opened(file), "train")
    times = [split.name(i).rpartition(" ")[2] for i in range(len(split))]
    assert times == sorted(times)
    assert split.name(0) == "north, from 2024-01-08"
    kept = windows(opened(file, max_samples=5), "train")
    assert [kept.name(i) for i in range(5)] == [split.name(i) for i in range(len(split) - 5, len(split))]


def test_each_series_has_its_own_scale_and_what_is_known_in_advance_has_one(file: Path) -> None:
    data = opened(file)
    prep = prepared(data)
    assert prep.horizon.series == tuple(DAYS)
    assert (prep.horizon.mean, prep.horizon.scale) == ((0.0,), (1.0,))
    split = windows(data, "train")
    assert split.several is not None
    for k, name in enumerate(DAYS):
        own = split.several.which == k
        seen = split.values[(split.starts[own][:, None] + torch.arange(-7, 3)).unique()]
        assert abs(float(seen[:, 0].mean())) < 1e-3
        assert abs(float(seen[:, 0].std(correction=0)) - 1) < 1e-3
        assert prep.scales[name][0][2] == prep.scales["north"][0][2]  # of the weekday
    assert prep.scales["north"][0][0] != prep.scales["south"][0][0]


def test_a_series_is_prepared_as_it_would_be_alone(file: Path, tmp_path: Path) -> None:
    alone = write(tmp_path / "north.csv", rows_of("north", 60, level=1000.0))
    one = open_series(
        alone, DataSettings(forecast=("sales",), ignore=("shop", "weekday"), horizon=3, lookback=7)
    ).splits["test"]
    assert isinstance(one, WindowSplit)
    several = windows(opened(file, known_future=(), ignore=("weekday",)), "test")
    assert several.several is not None
    own = (several.several.which == 0).nonzero()[:, 0]
    (a,), (b,) = one.batches([torch.arange(len(one))]), several.batches([own])
    torch.testing.assert_close(a.inputs[0], b.inputs[0])
    torch.testing.assert_close(a.target, b.target)


def test_the_naive_forecast_repeats_the_series_itself(file: Path) -> None:
    split = windows(opened(file, lookback=2, season_length=5), "train")
    assert split.several is not None
    said = split.inverse_transform(seasonal_naive(split, 1, 5))
    _, ahead = in_sales(split)
    before = split.num_previous_steps.clamp(max=5)[:, None]
    expected = ahead[:, :1] - before + torch.arange(3) % before
    torch.testing.assert_close(said, expected, atol=0.02, rtol=0)
    assert bool((split.num_previous_steps < 5).any())


def test_the_report_has_the_error_of_each_series(file: Path) -> None:
    data = opened(file)
    train, test = windows(data, "train"), windows(data, "test")
    assert test.several is not None
    assert isinstance(data.spec.target, Horizon)
    assert test.target is not None
    task = Forecasting(data.spec.target)
    outputs = test.target + torch.tensor([0.1, 0.7, 0.3])[test.several.which][:, None]
    found = task.beside(outputs, train, test)["forecast"]
    assert [one["name"] for one in found["series"]] == ["south", "new", "north"]
    assert [one["rmse"]["model"] for one in found["series"]] == pytest.approx([0.7, 0.3, 0.1], rel=1e-4)
    assert sum(one["count"] for one in found["series"]) == len(test)
    assert found["unit"] == "standard deviations of the training time of each series"
    assert min(v for window in found["examples"] for v in window["seen"]) > 9  # in sales
    every = torch.cat([torch.full((one["count"],), one["rmse"]["model"] ** 2) for one in found["series"]])
    assert task.metrics(outputs, test.target)["rmse"].value == pytest.approx(float(every.mean().sqrt()), rel=1e-4)


def test_what_was_saved_comes_back_equal(file: Path) -> None:
    for missing in ("error", "drop"):
        prep = prepared(opened(file, missing=missing))
        assert preprocessing_from_json(json.loads(json.dumps(prep.to_json()))) == prep


def test_a_file_with_several_series_is_forecast_one_by_one(file: Path, tmp_path: Path) -> None:
    prep = prepared(opened(file, known_future=(), ignore=("weekday",)))
    north, new = rows_of("north", 65, level=1000.0), rows_of("unheard-of", 9, level=70.0)
    split = prep.examples([write(tmp_path / "more.csv", north, new)])
    assert [split.name(i) for i in range(2)] == [
        "more.csv (shop north), from 2024-03-06",
        "more.csv (shop unheard-of), from 2024-01-10",
    ]
    assert any("Not among the training series" in note and "unheard-of" in note for note in split.notes)
    (batch,) = split.batches([torch.arange(2)])
    seen = split.inverse_transform(batch.inputs[0][:, :, 0])
    torch.testing.assert_close(seen, torch.tensor([[1058.0], [72.0]]) + torch.arange(7.0).double(), atol=0.01, rtol=0)
    labelled = prep.labelled(write(tmp_path / "later.csv", rows_of("south", 30, level=100_000.0), rows_of("new", 4)))
    assert len(labelled) == 30 - 7 - 3 + 1
    assert any("Too short for a window: new" in note for note in labelled.notes)


def problems(caught: pytest.ExceptionInfo[DataError]) -> list[str]:
    return [str(problem) for problem in caught.value.problems]


def test_series_that_are_too_short_are_named_or_left_out(file: Path, tmp_path: Path) -> None:
    path = write(tmp_path / "short.csv", rows_of("a", 50), rows_of("b", 15), rows_of("c", 3))
    with pytest.raises(
        DataError, match=r"2 of the 3 series of short.csv have fewer than 16 steps: a lookback"
    ) as caught:
        opened(path)
    assert [p.split(",")[0] for p in problems(caught)] == ["b: 15 steps", "c: 3 steps"]
    assert problems(caught)[1] == "c: 3 steps, 2024-01-01 to 2024-01-03"
    data = opened(path, missing="drop")
    assert prepared(data).horizon.series == ("a",)
    assert any("Left out: b and c, 2 of 3 series: fewer than 16 steps." in note for note in data.notes)
    with pytest.raises(DataError, match="3 of the 3 series"):
        opened(path, lookback=60, missing="drop")


def broken(rows: list[str], day: int) -> list[str]:
    """The rows of a series whose sales on that day are no number."""
    shop, time, _, *rest = rows[day].split(",")
    return [*rows[:day], ",".join([shop, time, "n/a?", *rest]), *rows[day + 1 :]]


def test_a_run_that_dropped_series_leaves_them_out_of_predictions_too(file: Path, tmp_path: Path) -> None:
    strict, drops = (prepared(opened(file, missing=missing)) for missing in ("error", "drop"))
    north, south, new = rows_of("north", 65, level=1000.0), rows_of("south", 47), rows_of("new", 52, level=10.0)
    # What is known in advance: the last three rows of each have no sales.
    ahead = [[*rows[:-3], *(",".join([*r.split(",")[:2], "", "", r.split(",")[4]]) for r in rows[-3:])]
             for rows in (north, south, new)]  # fmt: skip
    good = write(tmp_path / "good.csv", ahead[0], ahead[2])
    bad = write(tmp_path / "bad.csv", ahead[0], broken(ahead[1], 30), ahead[2])
    with pytest.raises(DataError, match=r"line 97, column sales.*n/a\?.* In training missing=drop leaves this series"):
        strict.examples([bad])
    expected, found = drops.examples([good]), drops.examples([bad])
    (note,) = found.notes
    assert note.startswith("missing=drop left out 1 of 3 series of bad.csv (33.3%): shop south: ")
    assert "line 97, column sales" in note
    assert [found.name(i) for i in range(len(found))] == [
        "bad.csv (shop north), from 2024-03-03",
        "bad.csv (shop new), from 2024-02-19",
    ]
    (a,), (b,) = (split.batches([torch.arange(2)]) for split in (expected, found))
    torch.testing.assert_close(b.inputs[0], a.inputs[0], rtol=0, atol=0)
    outputs = torch.arange(6.0).view(2, 3)
    torch.testing.assert_close(found.inverse_transform(outputs), expected.inverse_transform(outputs), rtol=0, atol=0)
    alone = write(tmp_path / "alone.csv", broken(ahead[1], 30))
    with pytest.raises(DataError, match=r"missing=drop would leave nothing: 1 of 1 series of alone\.csv"):
        drops.examples([good, alone])


@pytest.mark.parametrize(
    ("south", "said"),
    [
        (rows_of("south", 5), r"more.csv \(shop south\) has 5 steps, and a forecast is made from the last 7"),
        (broken(rows_of("south", 30), 29), "line 96, column sales"),
        ([*rows_of("south", 30)[:-1], "south,2024-01-30,,1,1"], "line 96, column sales: the value is missing"),
        (rows_of("south", 30)[::2], "rows of .* are 2 days apart, and the model was trained .* 1 day"),
    ],
    ids=["short", "text", "unfinished", "step"],
)
def test_series_that_cannot_be_forecast_are_left_out_of_predictions(
    file: Path, tmp_path: Path, south: list[str], said: str
) -> None:
    more = write(tmp_path / "more.csv", rows_of("north", 65, level=1000.0), south, rows_of("new", 9, level=10.0))
    without = {"known_future": (), "ignore": ("weekday",), "gaps": "fill"}
    with pytest.raises(DataError, match=f"{said}.* In training missing=drop leaves this series out"):
        prepared(opened(file, **without)).examples([more])
    split = prepared(opened(file, missing="drop", **without)).examples([more])
    (note,) = split.notes
    assert re.search(f"left out 1 of 3 series of more.csv \\(33.3%\\): shop south: .*{said}", note)
    assert [split.name(i).partition(",")[0] for i in range(len(split))] == [
        "more.csv (shop north)",
        "more.csv (shop new)",
    ]


def test_a_preprocessing_saved_before_it_had_missing_rejects_every_series(file: Path, tmp_path: Path) -> None:
    document = prepared(opened(file, missing="drop", known_future=(), ignore=("weekday",))).to_json()
    assert document.pop("missing") == "drop"
    before = preprocessing_from_json(document)
    bad = write(tmp_path / "bad.csv", rows_of("north", 65), broken(rows_of("south", 30), 9))
    with pytest.raises(DataError, match=r"line 76, column sales"):
        before.examples([bad])
    with pytest.raises(DataError, match="missing=fail"):
        preprocessing_from_json({**document, "missing": "fail"})


def test_bad_rows_are_named_with_their_series(tmp_path: Path) -> None:
    a, b = rows_of("a", 30), rows_of("b", 30)
    with pytest.raises(DataError, match=r"bad.csv \(shop b\) has several rows of one time") as caught:
        opened(write(tmp_path / "bad.csv", a, [*b[:12], b[11], *b[12:]]))
    assert "line 44" in problems(caught)[0]
    with pytest.raises(DataError, match=r"bad.csv \(shop b\) has gaps"):
        opened(write(tmp_path / "bad.csv", a, [*b[:12], *b[13:]]))
    filled = opened(write(tmp_path / "bad.csv", a, [*b[:12], *b[13:]]), gaps="fill")
    assert any("1 missing step of bad.csv (shop b)" in note for note in filled.notes)
    with pytest.raises(DataError, match="do not say what series they are of") as caught:
        opened(write(tmp_path / "bad.csv", a, [f",{b[0].partition(',')[2]}"]))
    assert "line 32, column shop" in problems(caught)[0]
    weeks = [f"w,{np.datetime64('2024-01-01') + 7 * k},{k},0,0" for k in range(30)]
    with pytest.raises(DataError, match="are of different steps: the rows of a are 1 day apart, those of w 1 week"):
        opened(write(tmp_path / "bad.csv", a, weeks))
    with pytest.raises(DataError, match="id=shop"):
        opened(write(tmp_path / "bad.csv", a, b), id=None, ignore=("shop",))


def test_settings_that_cannot_be(file: Path) -> None:
    with pytest.raises(SettingError, match=r"named in forecast= and in id="):
        opened(file, id="sales")
    with pytest.raises(SettingError, match="season_length=30 is more than half of the training time of some series"):
        opened(file, season_length=30)
    with pytest.raises(SettingError, match="missing=drop is for several series"):
        opened(file, id=None, ignore=("shop",), missing="drop")
