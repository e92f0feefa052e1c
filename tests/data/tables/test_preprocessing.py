"""A trained table's preprocessing takes new rows as it took the training rows, from wherever they come."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cutaway.core.errors import DataError
from cutaway.data.build import DataSource
from cutaway.data.dataset_base import DataSet
from cutaway.data.settings import DataSettings
from cutaway.data.tables.dataset import table_dataset
from cutaway.data.tables.table_files import frame_table
from cutaway.data.tables.transforms import TablePreprocessing

ROWS = 60


def made(**settings: Any) -> DataSet:
    """A table with one column of each type, a few cells of each missing."""
    rng = np.random.default_rng(0)
    days = np.datetime64("2020-01-01") + rng.integers(0, 900, ROWS)
    columns = {
        "size": rng.normal(90, 20, ROWS).round(1).astype(str),
        "kind": rng.choice(["flat", "house", "hut"], ROWS),
        "sold on": days.astype(str),
        "garden": rng.choice(["yes", "no"], ROWS),
        "price": rng.normal(300, 50, ROWS).round(2).astype(str),
    }
    for column in ("size", "kind", "sold on"):
        columns[column][rng.choice(ROWS, 8, replace=False)] = "NA"
    frame = pl.DataFrame({name: cells.tolist() for name, cells in columns.items()})
    return table_dataset(
        frame_table(frame, "homes"), DataSource("homes", "homes", "0"), DataSettings(target="price", **settings)
    )


def preprocessing_of(data: DataSet) -> TablePreprocessing:
    assert isinstance(data.preprocessing, TablePreprocessing)
    return data.preprocessing


HOMES = made()
HOME = {"size": "80.5", "kind": "flat", "sold on": "2021-05-05", "garden": "no"}

homes = st.fixed_dictionaries(
    {
        "size": st.one_of(st.none(), st.floats(-1e9, 1e9), st.integers(-1000, 1000), st.just("?")),
        "kind": st.one_of(st.none(), st.sampled_from(["flat", " hut ", "castle", "Ångström", ""])),
        "sold on": st.one_of(st.none(), st.dates().filter(lambda day: day.year > 999)),
        "garden": st.sampled_from(["yes", "NO", None]),
    }
)


@settings(max_examples=60, deadline=None)
@given(rows=st.lists(homes, min_size=1, max_size=12), scale=st.sampled_from(["standard", "quantile", "none"]))
def test_json_gives_bit_equal_tensors_and_a_row_alone_is_as_among_others(
    rows: list[dict[str, Any]], scale: str
) -> None:
    fitted = preprocessing_of(SCALED[scale])
    again = TablePreprocessing.from_json(json.loads(json.dumps(fitted.to_json(), allow_nan=False)))
    assert again == fitted
    together = fitted.examples(rows)
    assert together.inputs.dtype == torch.float32
    assert together.inputs.shape == (len(rows), len(fitted.spec.columns))
    assert torch.equal(again.examples(rows).inputs, together.inputs)
    for i, row in enumerate(rows):
        assert torch.equal(fitted.examples([row]).inputs[0], together.inputs[i])


SCALED = {scale: made(scale=scale) for scale in ("standard", "quantile", "none")}


def test_every_source_of_the_same_rows_gives_the_same_tensors(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    fitted = preprocessing_of(HOMES)
    columns = {
        "sold on": ["2021-05-05", None],
        "kind": ["hut", "flat"],
        "garden": ["yes", "no"],
        "size": [80.5, float("nan")],
        "price": [1.0, 2.0],  # the target may be there
        "colour": ["red", "blue"],  # and what training did not have
    }
    frame = pl.DataFrame(columns)
    frame.write_csv(tmp_path / "new.csv")
    frame.write_csv(tmp_path / "new.tsv", separator="\t")
    frame.write_parquet(tmp_path / "new.parquet")
    sources: list[Any] = [
        tmp_path / "new.csv",
        str(tmp_path / "new.csv"),
        tmp_path / "new.tsv",
        tmp_path / "new.parquet",
        frame,
        pandas.DataFrame(columns),
        frame.to_arrow(),
    ]
    expected = fitted.examples(frame.to_dicts()).inputs
    for source in sources:
        assert torch.equal(fitted.examples(source).inputs, expected)
        assert torch.equal(fitted.examples([source]).inputs, expected)
    assert torch.equal(fitted.examples(frame.to_dicts()[0]).inputs, expected[:1])
    many = fitted.examples([tmp_path / "new.csv", *frame.to_dicts(), frame])
    assert torch.equal(many.inputs, expected.repeat(3, 1))
    assert [many.name(i) for i in (0, 1, 2, 5)] == ["line 2 of new.csv", "line 3 of new.csv", "row 1", "row 2"]
    assert many.row(1) == {
        "sold on": "",
        "kind": "flat",
        "garden": "no",
        "size": "NaN",
        "price": "2.0",
        "colour": "blue",
    }
    assert many.target is None


def test_the_training_part_is_prepared_by_the_same_way() -> None:
    for split in HOMES.splits.values():
        rows = [split.row(i) for i in range(len(split))]
        assert torch.equal(preprocessing_of(HOMES).examples(rows).inputs, split.inputs)  # type: ignore[attr-defined]


def test_missing_columns_are_named_with_those_that_are_there() -> None:
    with pytest.raises(DataError) as rejected:
        preprocessing_of(HOMES).examples([{"Size": 80, "kind": "hut", "garden": "no"}])
    assert "lacks: 'size', 'sold on'" in str(rejected.value)
    assert "It has: 'Size', 'kind', 'garden'" in str(rejected.value)


def test_unknown_categories_are_counted() -> None:
    split = preprocessing_of(HOMES).examples([HOME | {"kind": kind} for kind in ("castle", "flat", "cave", "")])
    assert split.notes == [
        "Column kind: cells without a category known from training count as unknown (2 cells of these rows)."
    ]
    slot = HOMES.spec.columns.index("kind=(unknown)")  # type: ignore[union-attr]
    assert split.inputs[:, slot].tolist() == [1, 0, 1, 0]


def test_unreadable_cells_are_rejected_or_filled_as_in_training() -> None:
    rows = [HOME, HOME | {"size": "big", "garden": "perhaps"}, HOME | {"sold on": "yesterday"}]
    with pytest.raises(DataError, match="3 cells of the table cannot be read") as rejected:
        preprocessing_of(HOMES).examples(rows)
    assert [p.where for p in rejected.value.problems] == [
        "row 2, column size",
        "row 2, column garden",
        "row 3, column sold on",
    ]
    filling = preprocessing_of(made(missing="fill"))
    split = filling.examples(rows)
    assert torch.equal(split.inputs[1], filling.examples([HOME | {"size": None, "garden": None}]).inputs[0])
    assert "3 cells" in split.notes[0]


def test_a_number_that_overflows_is_rejected_by_its_column() -> None:
    fitted = preprocessing_of(HOMES)
    narrow = dataclasses.replace(fitted.encoders[0], scale=1e-9)
    with pytest.raises(DataError, match="Column 'size' holds a number too far from those of training"):
        TablePreprocessing(fitted.spec, (narrow,)).examples([{"size": "1e38"}])


@pytest.mark.parametrize("sources", [[], 3, [3], [None]])
def test_what_holds_no_rows_is_rejected(sources: Any) -> None:
    with pytest.raises(DataError):
        preprocessing_of(HOMES).examples(sources)


def test_labelled_tables_have_targets(tmp_path: Path) -> None:
    fitted = preprocessing_of(HOMES)
    path = tmp_path / "more.csv"
    pl.DataFrame([HOME | {"price": price} for price in ("300", "350.5")]).write_csv(path)
    split = fitted.labelled(path)
    target = HOMES.spec.target
    assert split.target is not None
    expected = (np.array([300, 350.5]) - target.mean) / target.scale  # type: ignore[union-attr]
    np.testing.assert_allclose(split.target.numpy(), expected, rtol=1e-6)
    assert split.name(1) == "line 3 of more.csv"
    pl.DataFrame([HOME | {"price": price} for price in ("300", "much", None)]).write_csv(path)
    with pytest.raises(DataError, match=r"2 rows of more\.csv cannot be compared") as rejected:
        fitted.labelled(path)
    assert [p.where for p in rejected.value.problems] == [f"more.csv, line {k}, column price" for k in (3, 4)]
    pl.DataFrame([HOME]).write_csv(path)
    with pytest.raises(DataError, match="lacks: 'price'"):
        fitted.labelled(path)
