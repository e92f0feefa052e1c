"""A JSON document is held to its schema, and rejected by the key at fault."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cutaway.core.errors import FileError, SettingError
from cutaway.core.files import read_json
from cutaway.core.schema import (
    COUNT,
    NUMBER,
    Between,
    Choice,
    Tagged,
    dataclass_schema,
    find_mismatch,
    from_document,
    json_schema,
    name_document_in_errors,
    validate_document,
    write_document,
)

SCHEMA = {
    "name": str,
    "rate": NUMBER | None,
    "best?": {"epoch": int},
    "splits": {"train": int, ...: int},
    "notes": [str],
}
GOOD: dict[str, Any] = {
    "name": "x",
    "rate": None,
    "best": {"epoch": 3},
    "splits": {"train": 2, "val": 1},
    "notes": ["a"],
}


@pytest.mark.parametrize(
    "change", [{}, {"rate": 1}, {"rate": 0.5}, {"best": None}, {"best": {}}, {"notes": []}, {"more": object()}]
)  # fmt: skip
def test_what_keeps_to_it_passes(change: dict[str, Any]) -> None:
    validate_document({**GOOD, **change}, SCHEMA, Path("a.json"), "")
    validate_document({k: v for k, v in GOOD.items() if k != "best"}, SCHEMA, Path("a.json"), "")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"name": None}, "name is null, and must be a string."),
        ({"name": ["x"]}, "name is a list, and must be a string."),
        ({"rate": True}, "rate is true or false, and must be a number or null."),
        ({"best": {"era": 1}}, "best.epoch is missing."),
        ({"best": {"epoch": 1.5}}, "best.epoch is a number, and must be an integer."),
        ({"splits": {"train": 2, "val": {}}}, "splits.val is an object, and must be an integer."),
        ({"splits": [2]}, "splits is a list, and must be an object."),
        ({"notes": ["a", 3]}, "notes[1] is an integer, and must be a string."),
    ],
)
def test_what_does_not_is_rejected_by_its_key(change: dict[str, Any], said: str) -> None:
    with pytest.raises(FileError) as rejection:
        validate_document({**GOOD, **change}, SCHEMA, Path("a.json"), "Take a copy.")
    assert str(rejection.value).startswith(f"a.json: {said}")
    assert str(rejection.value).endswith("Take a copy.")


def test_a_document_of_another_kind_is_rejected() -> None:
    with pytest.raises(FileError, match="the document is a list, and must be an object"):
        validate_document([], SCHEMA, Path("a.json"), "")


@pytest.mark.parametrize(
    "change",
    [{}, {"rate": 1}, {"best": None}, {"best": {}}, {"name": None}, {"rate": True}, {"best": {"era": 1}},
     {"splits": {"train": 2, "val": {}}}, {"splits": [2]}, {"notes": ["a", 3]}, {"splits": {}}, {"notes": "a"}],
)  # fmt: skip
def test_json_schema_says_the_same(change: dict[str, Any]) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    document = {**GOOD, **change}
    try:
        validate_document(document, SCHEMA, Path("a.json"), "")
        holds = True
    except FileError:
        holds = False
    schema = json_schema(SCHEMA, "a.json")
    jsonschema.Draft202012Validator.check_schema(schema)
    assert jsonschema.Draft202012Validator(schema).is_valid(document) is holds


def test_a_document_is_written_by_the_schema_that_it_is_read_with(tmp_path: Path) -> None:
    path = tmp_path / "document.json"
    write_document(path, GOOD | {"rate": float("nan")}, SCHEMA)
    assert read_json(path) == GOOD | {"rate": None}
    write_document(path, GOOD | {"more": [{"deep": (1.5, float("inf"))}]}, SCHEMA)
    assert read_json(path) == GOOD | {"more": [{"deep": [1.5, None]}]}
    with pytest.raises(TypeError, match=r"document\.json is not written: best\.epoch is null"):
        write_document(path, GOOD | {"best": {"epoch": float("nan")}}, SCHEMA)
    assert read_json(path)["rate"] is None


FORMS: dict[str, Any] = {
    "side": Between(1, 64),
    "mode": Choice(("crop", "pad")),
    "target": Tagged("kind", {"value": {"mean": NUMBER}, "classes": {"names": [str, ...]}}),
}
FORM: dict[str, Any] = {"side": 8, "mode": "pad", "target": {"kind": "classes", "names": ["a"]}}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"side": 65}, "side is 65, and must be an integer from 1 to 64"),
        ({"side": 10**30}, "side is 1000000000000000000000000000000, and must be an integer from 1 to 64"),
        ({"mode": "stretch"}, "mode is 'stretch', and must be one of 'crop', 'pad'"),
        ({"mode": ["crop"]}, "mode is a list, and must be a string"),
        ({"target": {"names": ["a"]}}, "target.kind is missing, and must be one of 'value', 'classes'"),
        ({"target": {"kind": ["value"]}}, "target.kind is ['value'], and must be one of 'value', 'classes'"),
        ({"target": {"kind": "value", "names": ["a"]}}, "target.mean is missing"),
        ({"target": {"kind": "value", "mean": float("nan")}}, "target.mean is nan, and must be a finite number"),
        (
            {"target": {"kind": "value", "mean": 2**63}},
            "target.mean is 9223372036854775808, and must be an integer",
        ),
        ({"target": {"kind": "classes", "names": []}}, "target.names is empty"),
    ],
)
def test_ranges_choices_and_forms_are_held_to(change: dict[str, Any], said: str) -> None:
    assert find_mismatch(FORM, FORMS) == ""
    assert find_mismatch({**FORM, **change}, FORMS).startswith(said)


@pytest.mark.parametrize(
    "change",
    [{}, {"side": 65}, {"mode": "stretch"}, {"mode": ["crop"]}, {"target": {"names": ["a"]}},
     {"target": {"kind": "value", "names": ["a"]}}, {"target": {"kind": "classes", "names": []}}],
)  # fmt: skip
def test_json_schema_says_the_same_of_ranges_choices_and_forms(change: dict[str, Any]) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    schema = json_schema(FORMS, "a.json")
    jsonschema.Draft202012Validator.check_schema(schema)
    document = {**FORM, **change}
    assert jsonschema.Draft202012Validator(schema).is_valid(document) is (find_mismatch(document, FORMS) == "")


@dataclass(frozen=True)
class Fitted:
    """As those that are written with a model."""

    name: str
    points: tuple[tuple[float, float], ...]
    width: int = 3
    unit: str = "px"
    end: int | None = 7
    head: bool | None = None


def test_a_dataclass_comes_back_from_its_document() -> None:
    schema = dataclass_schema(Fitted)
    assert schema == {
        "name": str,
        "points": [[NUMBER]],
        "width?": COUNT,
        "unit?": str,
        "end?": int | None,
        "head?": bool | None,
    }
    document = {"name": "a", "points": [[0, 1.5], [2, 3]], "width": None, "end": None}
    assert find_mismatch(document, schema) == ""
    assert from_document(Fitted, document) == Fitted("a", ((0, 1.5), (2, 3)), 3, "px", None)
    assert from_document(Fitted, {"name": "a", "points": []}) == Fitted("a", ())
    assert [find_mismatch({**document, "head": head}, schema) for head in (True, False, None)] == ["", "", ""]
    assert find_mismatch({**document, "head": 1}, schema) == "head is an integer, and must be true or false or null"
    assert find_mismatch({**document, "end": True}, schema) == "end is true or false, and must be an integer or null"
    assert find_mismatch({**document, "width": -1}, schema).startswith("width is -1")
    assert find_mismatch({**document, "points": [[0, "1"]]}, schema) == "points[0][1] is a string, and must be a number"
    assert dataclass_schema(Fitted, width=Between(1, 4))["width?"] == Between(1, 4)


def test_what_is_rejected_of_a_value_names_its_document() -> None:
    with (
        pytest.raises(FileError, match=r"^run\.json: lr=-1 cannot be\. Restore it from a backup\.$"),
        name_document_in_errors(Path("run.json")),
    ):
        raise SettingError("lr=-1 cannot be.")
    with pytest.raises(FileError, match=r"^gone$"), name_document_in_errors(Path("run.json")):
        raise FileError("gone")


def test_a_place_of_any_length_is_named_in_a_line() -> None:
    assert len(find_mismatch({"x" * 100_000: 1}, {...: str})) < 120
