"""The named series: as published, with their own settings and splits."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from cutaway.core.errors import DataError
from cutaway.core.spec import Horizon
from cutaway.data.dataset_base import DataSet
from cutaway.data.datasets.published import SERIES_OPENERS
from cutaway.data.open_data import NAMED, open_named, where
from cutaway.data.settings import DataSettings


@pytest.fixture(params=["ett", "airline", "sunspots", "temperatures"])
def name(request: pytest.FixtureRequest) -> str:
    """A series; the test is skipped by name where it is not here."""
    if where(request.param) is None:
        pytest.skip(f"needs the data set {request.param}")
    return str(request.param)


def horizon(data: DataSet) -> Horizon:
    assert isinstance(data.spec.target, Horizon)
    return data.spec.target


PARTS = {  # windows of train, val and test, the steps of history and horizon, and the season
    "ett": (8521, 2857, 2857, 96, 24, 24),
    "airline": (61, 13, 13, 24, 12, 12),
    "sunspots": (1929, 405, 405, 48, 12, 1),
    "temperatures": (2529, 537, 538, 28, 7, 1),
}


def test_they_are_as_published(name: str) -> None:
    data = open_named(name, DataSettings())
    sizes = tuple(len(data.splits[split]) for split in ("train", "val", "test"))
    assert (*sizes, data.spec.shape[0], horizon(data).steps, horizon(data).season_length) == PARTS[name]
    assert horizon(data).columns == (NAMED[name].target,)
    assert not any("is not the published file" in note for note in data.notes)
    assert (data.name, data.licence) == (name, NAMED[name].licence)


def test_the_split_of_ett_is_the_papers() -> None:
    place = where("ett")
    if place is None:
        pytest.skip("needs the data set ett")
    data = open_named("ett", DataSettings())
    with (place / "ETTh1.csv").open(newline="") as file:
        times = [row["date"] for row in csv.DictReader(file)]
    test = data.splits["test"]
    assert test.name(0) == f"from {times[11_520][:16]}"
    assert test.name(len(test) - 1) == f"from {times[14_400 - 24][:16]}"
    assert any("Informer paper" in note for note in data.notes)


def test_what_a_person_asks_for_is_taken() -> None:
    if where("ett") is None:
        pytest.skip("needs the data set ett")
    data = open_named("ett", DataSettings(forecast=("HUFL", "OT"), horizon=48, lookback=60))
    assert (horizon(data).columns, horizon(data).steps, data.spec.shape) == (("HUFL", "OT"), 48, (60, 7))


def test_little_airline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is not the published one is told; one that was cut short is rejected."""
    monkeypatch.setenv("CUTAWAY_DATA", str(tmp_path))
    folder = tmp_path / "timeseries"
    folder.mkdir()
    rows = [f'"{1949 + m // 12}-{m % 12 + 1:02}",{100 + m + 10 * (m % 12 == 6)}' for m in range(144)]
    file = folder / "airline-passengers.csv"
    file.write_text('"Month","Passengers"\n' + "\n".join(rows) + "\n")
    data = open_named("airline", DataSettings())
    assert data.splits["test"].name(0) == "from 1959-01"
    assert data.splits["val"].name(0) == "from 1957-01"
    assert any("is not the published file" in note for note in data.notes)
    file.write_text('"Month","Passengers"\n' + "\n".join(rows[:100]) + "\n")
    with pytest.raises(DataError, match="has 100 rows, and 144 are needed"):
        open_named("airline", DataSettings())


def test_every_series_has_an_opener() -> None:
    assert set(SERIES_OPENERS) == set(PARTS)
    assert all(NAMED[name].kind == "series" for name in SERIES_OPENERS)
