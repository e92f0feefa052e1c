"""Columns that alone give the target are found; those that are merely good are not."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from cutaway.data.dataset_base import DataSet
from cutaway.data.open_data import open_data
from cutaway.data.settings import DataSettings
from cutaway.data.tables.column_roles import find_sentinels, find_similar_categories
from cutaway.data.tables.column_types import infer_type, strip_missing

ROWS = 240
RNG = np.random.default_rng(3)
KIND = RNG.choice(["a", "b", "c"], ROWS, p=[0.5, 0.3, 0.2])
SIZE = RNG.normal(0, 1, ROWS)
PRICE = RNG.normal(300, 50, ROWS).round(2)
WHO = np.repeat(np.arange(60), 4)  # each of them in four rows
OF_WHO = RNG.choice(["a", "b"], 60)[WHO]


def opened(tmp_path: Path, target: Sequence[object], **columns: Sequence[object]) -> DataSet:
    table = {"size": SIZE.tolist(), **columns, "target": list(target)}
    pl.DataFrame(table, strict=False).write_csv(tmp_path / "t.csv")
    return open_data(str(tmp_path / "t.csv"), DataSettings(target="target"))


def told(data: DataSet) -> list[str]:
    return [finding for finding in data.findings if "alone gives the target" in finding]


LEAKS = {
    "the target in other words": (KIND, [{"a": "x", "b": "y", "c": "z"}[k] for k in KIND]),
    "its number": (KIND, [{"a": 3, "b": 1, "c": 2}[k] for k in KIND]),
    "with gaps": (KIND, [None if i % 3 == 0 else k for i, k in enumerate(KIND)]),
    "yes and no": (KIND == "a", np.where(KIND == "a", "yes", "no")),
    "who it is about": (OF_WHO, [f"patient {i}" for i in WHO]),
    "a number that was cut": (np.where(PRICE > 300, "dear", "cheap"), PRICE),
    "another unit": (PRICE, (PRICE * 1.8 + 32).round(1)),
    "its logarithm": (PRICE, np.log(PRICE)),
    "what rises with it": (PRICE, np.sort(RNG.exponential(1, ROWS))[np.argsort(np.argsort(PRICE))]),
    "the negative": (PRICE, -PRICE),
}


@pytest.mark.parametrize("name", LEAKS)
def test_what_gives_the_target_away_is_found(tmp_path: Path, name: str) -> None:
    target, column = LEAKS[name]
    (finding,) = told(opened(tmp_path, list(target), it=list(column)))
    assert finding.startswith("Column it alone gives the target target in ")
    assert "ignore=it" in finding
    assert ("group=it" in finding) == (name == "who it is about")


NO_LEAKS = {
    "a good column": (KIND, [k if i % 40 else "a" for i, k in enumerate(KIND)]),
    "a rare class alone": (["rare", "rare", "rare", "rare", *KIND[4:]], ["y"] * 4 + ["x"] * (ROWS - 4)),
    "a good number": (PRICE, PRICE + RNG.normal(0, 5, ROWS)),
    "one of its own for each row": (KIND, [f"name {i} of it" for i in range(ROWS)]),
    "mostly missing": (KIND, [k if i % 4 == 0 else None for i, k in enumerate(KIND)]),
    "of a class nearly all rows have": (["a"] * (ROWS - 3) + ["b"] * 3, ["x"] * (ROWS - 3) + ["y"] * 3),
}  # fmt: skip


@pytest.mark.parametrize("name", NO_LEAKS)
def test_what_is_merely_good_is_not(tmp_path: Path, name: str) -> None:
    target, column = NO_LEAKS[name]
    assert told(opened(tmp_path, list(target), it=list(column))) == []


def test_a_column_that_is_all_there_is_is_no_finding(tmp_path: Path) -> None:
    pl.DataFrame({"it": SIZE, "target": SIZE * 2}).write_csv(tmp_path / "t.csv")
    assert open_data(str(tmp_path / "t.csv"), DataSettings(target="target")).findings == []


@pytest.mark.parametrize(
    ("target", "gives"),
    [("survived", ["alive"]), ("alive", ["survived"]), ("class", ["pclass"]), ("fare", []), ("age", []), ("sex", [])],
)
def test_of_the_titanic_the_right_columns_are_found(shared_data: Path, target: str, gives: list[str]) -> None:
    path = shared_data / "tabular_seaborn" / "titanic.csv"
    data = open_data(str(path), DataSettings(target=target, missing="drop"))
    assert [finding.split()[1] for finding in told(data)] == gives


@pytest.mark.parametrize("name", ["iris", "wine", "breast_cancer", "diabetes", "xor"])
def test_named_sets_have_no_findings(name: str) -> None:
    assert open_data(name, DataSettings()).findings == []


def doubts(columns: dict[str, Any]) -> list[str]:
    frame = pl.DataFrame(columns).cast(pl.String)
    cells = {name: strip_missing(frame[name]) for name in frame.columns}
    types = {name: infer_type(name, own, frame.height) for name, own in cells.items()}
    return [*find_sentinels(cells, types), *find_similar_categories(cells, types)]


def clean_columns(rng: np.random.Generator, n: int) -> dict[str, Any]:
    days = np.datetime64("1970-01-01") + rng.integers(0, 9000, n).astype("timedelta64[D]")
    return {
        "normal": rng.normal(0, 1, n),
        "temperature": rng.integers(-1, 50, n),
        "change": rng.poisson(3, n) - 1,
        "price": rng.lognormal(5, 2, n).round(1),
        "zeros": np.where(rng.random(n) < 0.6, 0, rng.integers(1, 200, n)),
        "heavy": (rng.pareto(1.1, n) * 10).round(),
        "capped": np.minimum(rng.lognormal(8, 1, n).round(), 9999),
        "age": rng.integers(18, 100, n),
        "day": days.astype(str),
        "colour": rng.choice(["red", "dark red", "Green"], n),
    }


@pytest.mark.parametrize("n", [60, 300, 3000])
def test_clean_columns_have_no_sentinels(n: int) -> None:
    assert [found for seed in range(10) for found in doubts(clean_columns(np.random.default_rng(seed), n))] == []


def test_sentinels_and_categories_that_differ_by_case_are_found() -> None:
    rng = np.random.default_rng(0)
    columns = clean_columns(rng, 300)
    at = rng.permutation(300)[:20]
    columns["age"] = columns["age"].astype(float)
    for name, value in (("normal", -999), ("age", 999), ("price", -1), ("day", "1900-01-01")):
        columns[name] = columns[name].copy().astype("U10" if name == "day" else float)
        columns[name][at] = value
    columns["colour"] = columns["colour"].copy().astype("U10")
    columns["colour"][at] = "Red"
    found = doubts(columns)
    for name, word in (("normal", "-999"), ("age", "999"), ("price", "-1"), ("day", "1900-01-01")):
        (told,) = (one for one in found if one.startswith(f"Column {name}: {word} may mean a missing cell (20 of 300 "))
        assert f"set missing_values=auto,{word}." in told
    assert any(one.startswith("Column colour: categories that differ only by") and "'Red' (20)" in one for one in found)
    assert len(found) == 5
