"""A saved preprocessing is read back by its kind, and rejected by name where it is not one."""

from __future__ import annotations

import json

import pytest

from cutaway.data.preprocessing import preprocessing_from_json
from cutaway.data.tables.encoders import Category, Numeric
from cutaway.data.tables.preprocessing import TablePreprocessing
from cutaway.errors import DataError
from cutaway.spec import Classes, TableSpec

ENCODERS = (
    Numeric("age", "number", "", fill=28.0, missing=True, mean=29.5, scale=14.25),
    Category("sex", ("female", "male"), missing=False, rare=0),
)
FEATURES = tuple(feature for encoder in ENCODERS for feature in encoder.features)
SAVED = TablePreprocessing(TableSpec(FEATURES, Classes(("no", "yes"), "survived")), ENCODERS, fill=True)


def test_a_table_is_read_back_equal() -> None:
    assert preprocessing_from_json(json.loads(json.dumps(SAVED.to_json()))) == SAVED


@pytest.mark.parametrize("missing", ["spec", "columns", "fill"])
def test_an_incomplete_document_is_rejected(missing: str) -> None:
    document = {key: value for key, value in SAVED.to_json().items() if key != missing}
    with pytest.raises(DataError, match="preprocessing of table data is not complete"):
        preprocessing_from_json(document)


def test_damaged_columns_and_foreign_specs_are_rejected() -> None:
    image = {"kind": "image", "channels": 1, "height": 2, "width": 2, "target": SAVED.to_json()["spec"]["target"]}
    for change in ({"columns": [{"kind": "number"}]}, {"columns": 3}, {"spec": image}, {"spec": None}):
        with pytest.raises(DataError, match="not complete"):
            preprocessing_from_json(SAVED.to_json() | change)


def test_an_unknown_kind_is_rejected() -> None:
    for document in ({"kind": "smell"}, {}, [], None):
        with pytest.raises(DataError, match="is not known here; the kinds are table, image, text, seq2seq"):
            preprocessing_from_json(document)  # type: ignore[arg-type]
