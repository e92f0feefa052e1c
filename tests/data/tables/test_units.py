"""Numbers with a unit are read without it; columns in several units, or in others than training, are rejected."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from cutaway.core.errors import DataError
from cutaway.data.in_memory.source import InMemorySource
from cutaway.data.open_data import open_data
from cutaway.data.settings import DataSettings
from cutaway.data.tables.table_files import frame_table, read_table
from cutaway.data.tables.transforms import TablePreprocessing


@pytest.mark.parametrize(
    ("cells", "read", "unit"),
    [
        (["$4,331.55", "$900", "$ 12.5"], ["4331.55", "900", "12.5"], "$"),
        (["4.331,55 €", "900,5 €"], ["4331.55", "900.5"], "€"),
        (["EUR 5", "7 EUR"], ["5", "7"], "EUR"),
        (["US$5", "-US$7"], ["5", "-7"], "US$"),
        (["$5", "7"], ["5", "7"], "$"),
        (["(1,200.00)", "3,432.50", "(0.5)"], ["-1200.00", "3432.50", "-0.5"], ""),
        (["($1,200.00)", "$3"], ["-1200.00", "3"], "$"),
        (["42.3%", "-7 %", "0 %"], ["42.3", "-7", "0"], "%"),
        (["5.5 kg", "7kg", ""], ["5.5", "7", ""], "kg"),
        (["1.2k", "950", "3M"], ["1.2e3", "950", "3e6"], ""),
        (["$1.2k", "$950"], ["1.2e3", "950"], "$"),
        (["3 stone", "12 stone"], ["3", "12"], "stone"),  # one word after a space
        (["−5 °C", "12 °C"], ["-5", "12"], "°C"),
    ],
)
@pytest.mark.parametrize("of", ["file", "frame", "parquet"])
def test_units_are_taken_from_numbers(tmp_path: Path, cells: list[str], read: list[str], unit: str, of: str) -> None:
    frame = pl.DataFrame({"v": cells, "w": ["x"] * len(cells)})
    frame.write_csv(tmp_path / "t.csv")
    frame.write_parquet(tmp_path / "t.parquet")
    tables = {"file": lambda: read_table(tmp_path / "t.csv"), "frame": lambda: frame_table(frame)}
    table = tables.get(of, lambda: read_table(tmp_path / "t.parquet"))()
    assert table.frame["v"].fill_null("").to_list() == read
    assert table.form.units == ({"v": unit} if unit else {})
    assert table.unit_problems == {}
    assert any("v" in note for note in table.notes)


@pytest.mark.parametrize(
    "cells",
    [
        ["A1", "A2", "A3"],
        ["5A", "5B", "6A"],
        ["101A", "102A"],
        ["1st", "2nd", "3rd"],
        ["3 apples", "2 pears"],
        ["2020-12-31", "2021-01-05"],
        ["12:30", "13:45"],
        ["(1)", "(2)"],
        ["1.5", "2"],
        ["10-20", "20-30"],
    ],
)
def test_what_has_no_unit_stays_as_it_is(cells: list[str]) -> None:
    table = frame_table(pl.DataFrame({"v": cells}))
    assert table.frame["v"].to_list() == cells
    assert (table.form.units, table.unit_problems, table.notes) == ({}, {}, ())


def rows(price: list[str], count: int = 60) -> pl.DataFrame:
    rng = np.random.default_rng(0)
    return pl.DataFrame(
        {"price": np.resize(price, count), "x": rng.normal(size=count), "y": np.resize(["lo", "hi", "lo"], count)}
    )


def opened(frame: pl.DataFrame, tmp_path: Path, of: str, **settings: Any) -> Any:
    frame.write_csv(tmp_path / "t.csv")
    return open_data(
        tmp_path / "t.csv" if of == "file" else InMemorySource(frame), DataSettings(target="y", **settings)
    )


@pytest.mark.parametrize("of", ["file", "frame"])
@pytest.mark.parametrize(
    ("cells", "words"),
    [
        (["$5", "€7", "$9"], ["'$'", "€"]),
        (["5 kg", "900 g"], ["kg (30 cells)", "g (30 cells)"]),
        (["42%", "0.4", "7%"], ["% (40 cells)", "none (20 cells)"]),
    ],
)
def test_several_units_in_a_column_are_rejected_once(
    tmp_path: Path, of: str, cells: list[str], words: list[str]
) -> None:
    with pytest.raises(DataError) as rejected:
        opened(rows(cells), tmp_path, of)
    (problem,) = rejected.value.problems
    assert problem.where == "column price"
    assert all(word.strip("'") in problem.what for word in words)
    assert "ignore=COLUMN" in str(rejected.value)
    assert opened(rows(cells), tmp_path, of, ignore=("price",)).spec.columns == ("x",)
    assert len(opened(rows(cells), tmp_path, of, types=("price:category",)).spec.columns) > 2


@pytest.mark.parametrize("of", ["file", "frame"])
def test_new_tables_are_read_in_the_units_of_training(tmp_path: Path, of: str) -> None:
    data = opened(rows(["$5", "$7.5", "$1,000"]), tmp_path, of)
    preprocessing = TablePreprocessing.from_json(json.loads(json.dumps(data.preprocessing.to_json())))
    assert preprocessing == data.preprocessing
    plain = preprocessing.examples([{"price": 1000, "x": 0}]).inputs
    for price in ("$1,000", "1,000", "$1k"):
        pl.DataFrame({"price": [price], "x": [0.0]}).write_csv(tmp_path / "new.csv")
        for new in (
            [{"price": price, "x": "0"}],
            pl.DataFrame({"price": [price], "x": [0.0]}),
            str(tmp_path / "new.csv"),
        ):
            assert preprocessing.examples(new).inputs.tolist() == plain.tolist()
    for other in (pl.DataFrame({"price": ["€5"], "x": [0.0]}), [{"price": "5 kg", "x": "0"}]):
        with pytest.raises(DataError, match=r"column price: its unit is '.+', and training had numbers '\$'"):
            preprocessing.examples(other)
    without = opened(rows(["5", "7.5", "1000"]), tmp_path, of).preprocessing
    with pytest.raises(DataError, match="training had numbers without a unit"):
        without.examples([{"price": "5%", "x": "0"}])


def test_splits_of_ones_own_have_the_units_of_train() -> None:
    train, val = rows(["$5", "$7.5", "$9"]), rows(["€5", "€7.5", "€9"])
    with pytest.raises(DataError, match="its unit is '€'"):
        open_data(InMemorySource(train, val), DataSettings(target="y"))
