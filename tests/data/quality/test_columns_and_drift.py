"""Columns that are filled in after the event, and splits that are not like training, in real tables."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
import torch
from scipy.stats import ks_2samp
from sklearn.datasets import load_diabetes, load_wine

from cutaway.data.in_memory.source import InMemorySource
from cutaway.data.open_data import open_validated
from cutaway.data.quality.validation import _inputs
from cutaway.data.settings import DataSettings

WINE, DIABETES = load_wine(), load_diabetes()
KINDS = pl.DataFrame(WINE.data[:, :6], schema=[f"x{k}" for k in range(6)]).with_columns(
    y=pl.Series(WINE.target_names[WINE.target])
)
NUMBERS = pl.DataFrame(DIABETES.data, schema=[f"x{k}" for k in range(10)]).with_columns(y=pl.Series(DIABETES.target))


def findings(train: pl.DataFrame, test: pl.DataFrame | None = None) -> list[str]:
    return open_validated(InMemorySource(train, test=test), DataSettings(target="y")).findings


@pytest.mark.parametrize(
    ("table", "event", "said"),
    [
        (KINDS, KINDS["y"] == "class_1", "is filled in where y is 'class_1', and not elsewhere"),
        (NUMBERS, NUMBERS["y"] > 200, "is filled in where y is high, and not elsewhere"),
        (NUMBERS, NUMBERS["y"] < 100, "is filled in where y is low, and not elsewhere"),
    ],
)
def test_a_column_that_the_event_fills_in(table: pl.DataFrame, event: pl.Series, said: str) -> None:
    told = np.random.default_rng(0).integers(0, 50, len(table))
    (finding,) = findings(table.with_columns(after=pl.when(event).then(pl.Series(told))))
    assert finding.startswith(f"Column after {said}")
    assert finding.endswith("ignore=after.")


def test_a_rare_class_does_not_hide_the_column() -> None:
    after = pl.when(KINDS["y"] == "class_1").then(pl.Series(np.random.default_rng(0).integers(0, 50, len(KINDS))))
    table = KINDS.with_columns(after=after)
    rare = table.filter(pl.col("y") == "class_0").head(4).with_columns(pl.all().exclude("y") + 0.5, y=pl.lit("rare"))
    found = findings(pl.concat([table, rare], how="vertical_relaxed"))
    assert any(finding.startswith("Column after is filled in where y is 'class_1'") for finding in found)


def test_gaps_by_chance_are_none() -> None:
    there = np.random.default_rng(0).random(len(KINDS)) < 0.5
    assert findings(KINDS.with_columns(x0=pl.when(pl.Series(there)).then(pl.col("x0")))) == []


def test_inputs_that_drift() -> None:
    order = np.random.default_rng(0).permutation(len(NUMBERS))
    train, test = NUMBERS[order[:300].tolist()], NUMBERS[order[300:].tolist()]
    assert findings(train, test) == []
    (finding,) = findings(train, test.with_columns(x3=pl.col("x3") + float(NUMBERS["x3"].std())))  # type: ignore[arg-type]
    assert finding.startswith("The test split is not like training: x3 (distance 0.")


def test_targets_that_drift() -> None:
    order = np.random.default_rng(0).permutation(len(NUMBERS))
    train, test = NUMBERS[order[:300].tolist()], NUMBERS[order[300:].tolist()]
    (finding,) = [f for f in findings(train, test.filter(pl.col("y") > 150)) if "its targets" in f]
    assert finding.startswith("The test split is not like training")
    order = np.random.default_rng(0).permutation(len(KINDS))
    train, test = KINDS[order[:90].tolist()], KINDS[order[90:].tolist()]
    (finding,) = [f for f in findings(train, test.filter(pl.col("y") != "class_1")) if "χ²" in f]
    assert "'class_1' is 0% of it" in finding


def test_a_distance_that_one_of_ten_columns_has_by_chance_is_no_drift() -> None:
    """p = 0.0004 is below the level for one column alone, and above it where nine others were held too."""
    train = torch.arange(200)[:, None] / 200
    own = train + 0.2
    assert 2e-4 < ks_2samp(train[:, 0], own[:, 0], method="asymp").pvalue < 9e-4
    assert _inputs(train, own, ("x",)).startswith("x (distance 0.2")
    same = train.repeat(1, 9)
    names = tuple(f"x{k}" for k in range(10))
    assert _inputs(torch.cat([train, same], 1), torch.cat([own, same], 1), names) == ""
    far = torch.cat([train + 0.3, same], 1)
    assert _inputs(torch.cat([train, same], 1), far, names).startswith("x0 (distance 0.3")


def test_few_examples_of_training_say_nothing_of_drift() -> None:
    """Fewer than 30 of either side: the test split is held to nothing, however far it lies from them."""
    far = NUMBERS.with_columns(x3=pl.col("x3") + 5.0)
    told = findings(NUMBERS[:29], far[100:200])
    assert not [finding for finding in told if "not like training" in finding]
    told = findings(NUMBERS[:60], far[100:200])
    assert [finding for finding in told if "not like training: x3" in finding]


def test_small_distances_and_categories_that_training_lacks_are_no_drift() -> None:
    train = torch.arange(3000)[:, None] / 3000
    assert ks_2samp(train[:, 0], train[:, 0] + 0.08, method="asymp").pvalue < 1e-6
    assert _inputs(train, train + 0.08, ("x",)) == ""
    assert _inputs(train, train + 0.5, ("colour=(unknown)",)) == ""
    assert _inputs(train, train + 0.5, ("colour=red",)).startswith("colour=red (distance 0.5")
