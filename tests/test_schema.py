"""A JSON document is held to its schema, and rejected by the key at fault."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cutaway.errors import FileError
from cutaway.files import read_json
from cutaway.schema import NUMBER, json_schema, reject_unlike, write_document

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
    reject_unlike({**GOOD, **change}, SCHEMA, Path("a.json"), "")
    reject_unlike({k: v for k, v in GOOD.items() if k != "best"}, SCHEMA, Path("a.json"), "")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"name": None}, "name is null, and must be a text."),
        ({"name": ["x"]}, "name is a list, and must be a text."),
        ({"rate": True}, "rate is true or false, and must be a number or null."),
        ({"best": {"era": 1}}, "best.epoch is missing."),
        ({"best": {"epoch": 1.5}}, "best.epoch is a number, and must be a whole number."),
        ({"splits": {"train": 2, "val": {}}}, "splits.val is an object, and must be a whole number."),
        ({"splits": [2]}, "splits is a list, and must be an object."),
        ({"notes": ["a", 3]}, "notes[1] is a whole number, and must be a text."),
    ],
)
def test_what_does_not_is_rejected_by_its_key(change: dict[str, Any], said: str) -> None:
    with pytest.raises(FileError) as rejection:
        reject_unlike({**GOOD, **change}, SCHEMA, Path("a.json"), "Take a copy.")
    assert str(rejection.value).startswith(f"a.json: {said}")
    assert str(rejection.value).endswith("Take a copy.")


def test_a_document_of_another_kind_is_rejected() -> None:
    with pytest.raises(FileError, match="the document is a list, and must be an object"):
        reject_unlike([], SCHEMA, Path("a.json"), "")


@pytest.mark.parametrize(
    "change",
    [{}, {"rate": 1}, {"best": None}, {"best": {}}, {"name": None}, {"rate": True}, {"best": {"era": 1}},
     {"splits": {"train": 2, "val": {}}}, {"splits": [2]}, {"notes": ["a", 3]}, {"splits": {}}, {"notes": "a"}],
)  # fmt: skip
def test_json_schema_says_the_same(change: dict[str, Any]) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    document = {**GOOD, **change}
    try:
        reject_unlike(document, SCHEMA, Path("a.json"), "")
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
