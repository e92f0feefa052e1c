"""A saved preprocessing is read back by its kind, and rejected by name where it is not one."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from cutaway.core import spec as specs
from cutaway.core.errors import DataError
from cutaway.core.spec import Classes, TableSpec
from cutaway.data.modalities import preprocessing_from_json
from cutaway.data.tables.column_types import Category, Numeric
from cutaway.data.tables.transforms import TablePreprocessing

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
    with pytest.raises(DataError, match=rf"^preprocessing\.json: {missing} is missing\. Restore it from a copy"):
        preprocessing_from_json(document)


def test_damaged_columns_and_foreign_specs_are_rejected() -> None:
    image = {"kind": "image", "channels": 1, "height": 2, "width": 2, "target": SAVED.to_json()["spec"]["target"]}
    age = SAVED.to_json()["columns"][0]
    for change, said in (
        ({"columns": [{"kind": "number"}]}, "columns[0].name is missing"),
        ({"columns": 3}, "columns is an integer, and must be a list"),
        ({"columns": [age]}, "its columns give 2 inputs, and its spec names 5 others"),
        ({"columns": [age | {"mean": float("nan")}]}, "columns[0].mean is nan, and must be a finite number"),
        ({"columns": [age | {"scale": 0.0}]}, "the column age has a scale of 0"),
        ({"columns": [age | {"kind": "yes/no"}]}, "the column age has cells written as ''"),
        ({"columns": [age | {"kind": "yes/no", "written": "a/b/c"}]}, "the column age has cells written as 'a/b/c'"),
        ({"columns": [age | {"kind": "date", "written": "%d"}]}, "the column age has cells written as '%d'"),
        (
            {"columns": [age | {"kind": "colour"}]},
            "columns[0].kind is 'colour', and must be one of 'category', 'number'",
        ),
        ({"spec": image}, "a spec of kind image"),
        ({"spec": None}, "spec is null, and must be an object"),
        ({"width": 10**12}, "width is 1000000000000, and must be an integer from 0 to 2147483647"),
        ({"read": {"encoding": "klingon"}}, "encoding=klingon"),
        ({"read": {"quoting": "odd"}}, "Invalid quoting=odd: must be one of auto, standard, none. Restore it"),
        ({"read": {"units": ["kg"]}}, "read.units is a list, and must be an object or null"),
        ({"read": {"units": {"age": 5}}}, "cannot be used: a unit is no text. Restore it from a copy"),
    ):
        with pytest.raises(DataError, match=re.escape(said)) as rejection:
            preprocessing_from_json(SAVED.to_json() | change, Path("model/preprocessing.json"))
        assert str(rejection.value).startswith("model/preprocessing.json")


def test_a_field_that_is_null_takes_its_default() -> None:
    document = SAVED.to_json()
    document["spec"]["target"]["column"] = None
    document["columns"][0]["curve"] = None
    read = preprocessing_from_json(document)
    assert (read.spec.target.column, read.encoders[0].curve) == ("class", ())


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"kind": "image", "channels": 3, "height": 10**9, "width": 4}, "has more than"),
        ({"kind": "series", "steps": 0, "features": 2}, "an example of shape (0, 2), which is empty"),
        ({"kind": "image", "channels": -1, "height": 4, "width": 4}, "channels is -1"),
        ({"kind": "image", "channels": True, "height": 4, "width": 4}, "channels is true or false"),
        ({"kind": "video", "frames": 2, "channels": 3, "height": 4}, "width is missing"),
        ({"kind": ["image"]}, "kind is ['image'], and must be one of 'table', 'image'"),
    ],
)
def test_a_spec_is_held_to_its_schema(spec: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        specs.from_json({**spec, "target": {"kind": "classes", "names": ["a", "b"]}})


@pytest.mark.parametrize(("steps", "columns"), [(0, ["y"]), (3, [])])
def test_a_target_has_outputs(steps: int, columns: list[str]) -> None:
    horizon = {"kind": "horizon", "steps": steps, "columns": columns, "mean": [0.0], "scale": [1.0]}
    with pytest.raises(ValueError, match=r"^a target of kind horizon without outputs$"):
        specs.from_json({"kind": "series", "steps": 4, "features": 1, "target": horizon})


@pytest.mark.parametrize(
    ("changes", "target", "said"),
    [
        ({"begin": -1}, {"mask": 4}, "begin=-1: must be a token id, from 0 to 49"),
        ({"begin": 2, "end": 50}, {"mask": 4}, "end=50: must be a token id, from 0 to 49"),
        ({}, {"mask": 50}, "target.mask=50: must be a token id, from 0 to 49"),
    ],
)
def test_special_tokens_of_a_spec_are_in_its_vocabulary(
    changes: dict[str, object], target: dict[str, object], said: str
) -> None:
    document = {"kind": "text", "vocab_size": 50, "longest": 8, **changes}
    with pytest.raises(ValueError, match=re.escape(said)):
        specs.from_json({**document, "target": {"kind": "masked", "vocab_size": 50, **target}})


def test_an_unknown_kind_is_rejected() -> None:
    for document in ({"kind": "smell"}, {}, [], None):
        with pytest.raises(DataError, match="is not known here; the kinds are table, image, text, seq2seq"):
            preprocessing_from_json(document)  # type: ignore[arg-type]
