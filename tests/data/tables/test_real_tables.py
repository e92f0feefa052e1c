"""Real tables open as they are: what is in them is told, and their splits are what the files hold."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cutaway.core.spec import Classes, TableSpec, Value
from cutaway.data.settings import DataSettings
from cutaway.data.tables.dataset import open_table
from cutaway.data.tables.transforms import TableSplit


def test_california_housing(shared_data: Path) -> None:
    path = shared_data / "california_housing" / "housing.csv"
    data = open_table(path, DataSettings(target="median_house_value"))
    assert isinstance(data.spec, TableSpec)
    assert isinstance(data.spec.target, Value)
    assert {name: len(split) for name, split in data.splits.items()} == {"train": 14448, "val": 3096, "test": 3096}
    assert len(data.spec.columns) == 15  # 8 numbers, 1 for their missing cells, 5 categories and unknown
    assert {c["name"]: c["missing"] for c in data.columns}["total_bedrooms"] == "207 (1.0%)"
    train = data.splits["train"]
    assert isinstance(train, TableSplit)
    rows = [train.row(i) for i in range(len(train))]
    values = np.array([float(row["median_house_value"]) for row in rows])
    incomes = np.array([float(row["median_income"]) for row in rows])
    assert data.spec.target.mean == pytest.approx(values.mean())
    assert data.spec.target.scale == pytest.approx(values.std())
    learned = train.inputs[:, data.spec.columns.index("median_income")].numpy()
    np.testing.assert_allclose(learned, (incomes - incomes.mean()) / incomes.std(), rtol=1e-4, atol=1e-5)
    # The 207 missing counts of bedrooms are the ones that have an input of their own set.
    flags = [split.inputs[:, data.spec.columns.index("total_bedrooms missing")] for split in data.splits.values()]  # type: ignore[attr-defined]
    assert sum(int(flag.sum()) for flag in flags) == 207


def test_titanic(shared_data: Path) -> None:
    data = open_table(shared_data / "tabular_seaborn" / "titanic.csv", DataSettings(target="survived"))
    assert data.spec.target == Classes(("0", "1"), "survived")
    types = {c["name"]: (c["type"], c["missing"]) for c in data.columns}
    assert types["age"] == ("number", "177 (19.9%)")
    assert types["deck"] == ("category", "688 (77.2%)")
    assert types["alone"] == ("yes/no", "0")
    assert any("Possible leakage by duplicates across splits" in note for note in data.notes)
    fractions = [split.target.float().mean().item() for split in data.splits.values()]  # type: ignore[union-attr]
    assert fractions == pytest.approx([342 / 891] * 3, abs=0.006)  # 342 of 891 survived


@pytest.mark.parametrize(
    ("file", "target", "kind", "rows", "inputs"),
    [
        ("penguins", "species", Classes, 344, 16),
        ("diamonds", "price", Value, 53940, 29),
        ("mpg", "mpg", Value, 398, 11),
        ("iris", "species", Classes, 150, 4),
    ],
)
def test_other_tables(shared_data: Path, file: str, target: str, kind: type, rows: int, inputs: int) -> None:
    data = open_table(shared_data / "tabular_seaborn" / f"{file}.csv", DataSettings(target=target))
    assert isinstance(data.spec, TableSpec)
    assert isinstance(data.spec.target, kind)
    assert sum(len(split) for split in data.splits.values()) == rows
    assert len(data.spec.columns) == inputs


def test_names_of_cars_are_text_and_left_out(shared_data: Path) -> None:
    data = open_table(shared_data / "tabular_seaborn" / "mpg.csv", DataSettings(target="mpg"))
    assert {c["name"]: c["type"] for c in data.columns}["name"] == "text"
    assert any(note.startswith("Column name is left out: nearly every cell differs") for note in data.notes)
