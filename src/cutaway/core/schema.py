"""Schemas of JSON documents, and a check that a document matches its schema.

A document that does not match is rejected before it is used, by file and key. It is checked against the same schema
before it is written. A schema looks like the document that it describes:

    {"name": str, "epochs": int, "best?": {"value": NUMBER | None}, "splits": {...: int}, "notes": [str]}

`"best?"` may be missing, null or empty. `...` matches one or more keys of any name. `[str]` is a list of any length,
and `[str, ...]` a list with at least one item. Keys that the schema does not name are allowed and not checked.

A number is finite, and a whole number has at most 64 bits. `Between(low, high)` is a whole number in a range,
`OneOf(("a", "b"))` one of these texts, and `Tagged("kind", {"a": {...}, "b": {...}})` an object whose schema is
selected by its `kind`. `dataclass_schema` derives the schema of a dataclass.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from .errors import CutawayError, FileError, shorten, shorten_repr
from .files import write_json

Group = TypeVar("Group")
NUMBER = int | float
LONGEST = 60  # maximum characters of a key path in a message
WORDS = {
    str: "a string", int: "an integer", float: "a number", bool: "true or false",
    dict: "an object", list: "a list", tuple: "a list", type(None): "null",
}  # fmt: skip


@dataclass(frozen=True)
class Between:
    """A whole number from `low` to `high`."""

    low: int
    high: int


@dataclass(frozen=True)
class Choice:
    """One of several texts."""

    words: tuple[str, ...]


@dataclass(frozen=True)
class Tagged:
    """An object of one of several forms, selected by the text under `key`."""

    key: str
    forms: Mapping[str, Any]


COUNT = Between(0, 2**31 - 1)  # a count or an index


def dataclass_schema(kind: type, **other: Any) -> dict[str, Any]:
    """Return the schema of a dataclass as `dataclasses.asdict` and JSON write it.

    A field that has a default may be missing. `other` holds the schemas of fields whose type does not say enough.
    """
    hints, schema = typing.get_type_hints(kind), {}
    for field in dataclasses.fields(kind):
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        schema[field.name if required else f"{field.name}?"] = other.get(field.name) or _hint_schema(hints[field.name])
    return schema


def _hint_schema(hint: Any) -> Any:
    if typing.get_origin(hint) is tuple:
        return [_hint_schema(typing.get_args(hint)[0])]
    if typing.get_origin(hint) in (dict, Mapping):
        return dict
    if hint in (int, float):
        return COUNT if hint is int else NUMBER
    parts = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    if not all(one in WORDS for one in parts):
        return object  # anything
    return hint | int if float in parts else hint


def from_document(kind: type[Group], document: Mapping[str, Any]) -> Group:
    """Build the dataclass from a document described by `dataclass_schema(kind)`.

    Lists become tuples. A field that is null takes its default, unless null is one of its values.
    """
    hints, given = typing.get_type_hints(kind), {}
    for field in dataclasses.fields(kind):  # type: ignore[arg-type]
        value = document.get(field.name)
        if field.name in document and (value is not None or type(None) in typing.get_args(hints[field.name])):
            given[field.name] = as_tuples(value)
    return kind(**given)


def as_tuples(value: Any) -> Any:
    """Return the value with tuples in place of JSON's lists."""
    return tuple(map(as_tuples, value)) if isinstance(value, list | tuple) else value


def validate_document(document: Any, schema: Any, path: Path, fix: str) -> None:
    """Raise FileError, naming `path` and the key, if `document` does not match `schema`."""
    found = _fault(document, schema, "")
    if found:
        raise FileError(f"{path}: {found}. {fix}")


def write_document(path: Path, document: dict[str, Any], schema: Any) -> None:
    """Write a document as JSON after checking it against the schema that reads it; NaN and infinity become null.

    Raises TypeError if the document does not match, which is an error in the calling code.
    """
    document = replace_nonfinite(document)
    if found := _fault(document, schema, ""):
        raise TypeError(f"{path} is not written: {found}")
    write_json(path, document)


def replace_nonfinite(value: Any) -> Any:
    """Return the same plain value with None in place of NaN and infinity, which JSON does not have."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: replace_nonfinite(within) for key, within in value.items()}
    return [replace_nonfinite(within) for within in value] if isinstance(value, list | tuple) else value


@contextlib.contextmanager
def name_document_in_errors(path: Path, fix: str = "Restore it from a backup.") -> Iterator[None]:
    """Turn a CutawayError about a value in the document at `path` into a FileError that names the document."""
    try:
        yield
    except FileError:
        raise
    except CutawayError as error:
        raise FileError(f"{path}: {shorten(error, 300)} {fix}") from error


def find_mismatch(document: Any, schema: Any) -> str:
    """Return the first place where `document` does not match `schema`, as text; empty if it matches."""
    return _fault(document, schema, "")


def _fault(value: Any, schema: Any, at: str) -> str:
    """Return the first place where `value` differs from `schema`, as text; empty if it matches."""
    kind: Any = schema if isinstance(schema, type | types.UnionType) else type(schema)
    kind = {Between: int, Choice: str, Tagged: dict, list: list | tuple}.get(
        kind, kind
    )  # a tuple becomes a list in JSON
    if not _has_type(value, kind):
        allowed = getattr(kind, "__args__", (kind,))
        whole = float in allowed  # "a number" includes whole numbers
        said = " or ".join(dict.fromkeys(WORDS[one] for one in allowed if not (whole and one is int)))
        return f"{shorten(at, LONGEST) or 'the document'} is {WORDS[type(value)]}, and must be {said}"
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _number_fault(value, schema, at)
    if isinstance(schema, Choice) and value not in schema.words:
        return (
            f"{shorten(at, LONGEST)} is {shorten_repr(value)}, and must be one of {', '.join(map(repr, schema.words))}"
        )
    if isinstance(schema, Tagged):
        tag = value.get(schema.key)
        place = f"{at}.{schema.key}" if at else schema.key
        if not isinstance(tag, str) or tag not in schema.forms:
            said = f"is {shorten_repr(tag)}" if schema.key in value else "is missing"
            return f"{shorten(place, LONGEST)} {said}, and must be one of {', '.join(map(repr, schema.forms))}"
        return _fault(value, schema.forms[tag], at)
    if isinstance(schema, list):
        if len(schema) > 1 and not value:
            return f"{shorten(at, LONGEST)} is empty"
        return next((fault for i, one in enumerate(value) if (fault := _fault(one, schema[0], f"{at}[{i}]"))), "")
    elif isinstance(schema, dict):
        before = f"{at}." if at else ""
        parts = []
        for key, within in schema.items():
            if key is ...:
                if not value:
                    return f"{shorten(at, LONGEST)} is empty"
                parts += [(f"{before}{name}", one, within) for name, one in value.items()]
            elif key in value:
                parts.append((f"{before}{key}", value[key], within))
            elif not key.endswith("?"):
                return f"{shorten(f'{before}{key}', LONGEST)} is missing"
            elif value.get(name := key.removesuffix("?")) not in (None, {} if isinstance(within, dict) else None):
                parts.append((f"{before}{name}", value[name], within))
    else:
        return ""
    return next((fault for place, one, within in parts if (fault := _fault(one, within, place))), "")


def _number_fault(value: float, schema: Any, at: str) -> str:
    if not isinstance(value, int):
        return "" if math.isfinite(value) else f"{shorten(at, LONGEST)} is {value}, and must be a finite number"
    low, high = (schema.low, schema.high) if isinstance(schema, Between) else (-(2**63), 2**63 - 1)
    if low <= value <= high:
        return ""
    return f"{shorten(at, LONGEST)} is {shorten(value)}, and must be an integer from {low} to {high}"


def _has_type(value: object, kind: Any) -> bool:
    """Return whether a value is of this kind; unlike in Python, true and false are not numbers."""
    kinds = getattr(kind, "__args__", (kind,))
    return isinstance(value, kind) and (not isinstance(value, bool) or bool in kinds or object in kinds)


def json_schema(schema: Any, title: str = "") -> dict[str, Any]:
    """Return the schema as a JSON Schema (draft 2020-12), for other programs that read such documents.

    It is as strict as `validate_document`, except that it accepts a whole number written as 3.0.
    """
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title} if title else {}
    return head | _as_json_schema(schema)


NAMES = {
    str: "string", int: "integer", float: "number", bool: "boolean", dict: "object", list: "array", type(None): "null",
}  # fmt: skip


def _as_json_schema(schema: Any) -> dict[str, Any]:
    """Convert the schema, without its root, to a JSON Schema."""
    if isinstance(schema, Between):
        return {"type": "integer", "minimum": schema.low, "maximum": schema.high}
    if isinstance(schema, Choice):
        return {"enum": [*schema.words]}
    if isinstance(schema, Tagged):
        one_of = [
            {"allOf": [_as_json_schema(form), {"properties": {schema.key: {"const": tag}}}]}
            for tag, form in schema.forms.items()
        ]
        return {"type": "object", "required": [schema.key], "anyOf": one_of}
    if isinstance(schema, types.UnionType):
        names = [NAMES[one] for one in schema.__args__]
        return {"type": [one for one in names if not (one == "integer" and "number" in names)]}
    if isinstance(schema, type):
        return {"type": NAMES[schema]}
    if isinstance(schema, list):
        return {"type": "array", "items": _as_json_schema(schema[0])} | ({"minItems": 1} if len(schema) > 1 else {})
    found: dict[str, Any] = {}
    required: list[str] = []
    for key, within in schema.items():
        inner = _as_json_schema(within)
        if key is not ... and key.endswith("?"):
            nothing = [
                {"type": "null"},
                *([{"type": "object", "maxProperties": 0}] if isinstance(within, dict) else []),
            ]
            inner = {"anyOf": [inner, *nothing]}
        elif key is not ...:
            required.append(key)
        if key is not ...:
            found[key.removesuffix("?")] = inner
    more = {"additionalProperties": _as_json_schema(schema[...]), "minProperties": 1} if ... in schema else {}
    return (
        {"type": "object"}
        | ({"properties": found} if found else {})
        | ({"required": required} if required else {})
        | more
    )
