"""What a JSON document holds: its schema, as types within dictionaries and lists, and a check that a file keeps to it.

A document that does not match is rejected by file and key at fault, before anything is done with it, and a document
is checked against the same schema before it is written. A schema is written as what it describes:

    {"name": str, "epochs": int, "best?": {"value": NUMBER | None}, "splits": {...: int}, "notes": [str]}

`"best?"` may be missing, null or empty; under `...` stands one key or more, of any name; `[str]` is a list of any
length, and `[str, ...]` one of at least one. What a schema does not name may be there, and is not looked at.
"""

from __future__ import annotations

import math
import types
from pathlib import Path
from typing import Any

from .errors import FileError
from .files import write_json

NUMBER = int | float
WORDS = {
    str: "a text", int: "a whole number", float: "a number", bool: "true or false",
    dict: "an object", list: "a list", type(None): "null",
}  # fmt: skip


def reject_unlike(document: Any, schema: Any, path: Path, fix: str) -> None:
    """Raise FileError, naming `path` and the key, where `document` is not as `schema` says."""
    found = _fault(document, schema, "")
    if found:
        raise FileError(f"{path}: {found}. {fix}")


def write_document(path: Path, document: dict[str, Any], schema: Any) -> None:
    """Write a document as JSON, checked against the schema that it is read with; NaN and infinity become null.

    Raises TypeError where the document does not match: an error in the code that made it.
    """
    document = finite(document)
    if found := _fault(document, schema, ""):
        raise TypeError(f"{path} is not written: {found}")
    write_json(path, document)


def finite(value: Any) -> Any:
    """Return the same plain value with None in place of NaN and infinity, which JSON does not have."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: finite(within) for key, within in value.items()}
    return [finite(within) for within in value] if isinstance(value, list | tuple) else value


def _fault(value: Any, schema: Any, at: str) -> str:
    """The first place where `value` departs from `schema`, in words; empty where there is none."""
    kind: Any = schema if isinstance(schema, type | types.UnionType) else type(schema)
    if not _is(value, kind):
        allowed = getattr(kind, "__args__", (kind,))
        whole = float in allowed  # that a number may be whole needs no word
        said = " or ".join(WORDS[one] for one in allowed if not (whole and one is int))
        return f"{at or 'the document'} is {WORDS[type(value)]}, and must be {said}"
    if isinstance(schema, list):
        if len(schema) > 1 and not value:
            return f"{at} is empty"
        parts = [(f"{at}[{i}]", one, schema[0]) for i, one in enumerate(value)]
    elif isinstance(schema, dict):
        before = f"{at}." if at else ""
        parts = []
        for key, within in schema.items():
            if key is ...:
                if not value:
                    return f"{at} is empty"
                parts += [(f"{before}{name}", one, within) for name, one in value.items()]
            elif key in value:
                parts.append((f"{before}{key}", value[key], within))
            elif not key.endswith("?"):
                return f"{before}{key} is missing"
            elif value.get(name := key.removesuffix("?")) not in (None, {} if isinstance(within, dict) else None):
                parts.append((f"{before}{name}", value[name], within))
    else:
        return ""
    return next((fault for place, one, within in parts if (fault := _fault(one, within, place))), "")


def _is(value: object, kind: Any) -> bool:
    """Whether it is of that kind; true and false are no numbers, as they are in Python."""
    return isinstance(value, kind) and (kind is bool or not isinstance(value, bool))


def json_schema(schema: Any, title: str = "") -> dict[str, Any]:
    """The same as a JSON Schema (draft 2020-12), for programs that read such documents. It says no less than
    `reject_unlike` holds a document to, but that a whole number may be written 3.0 there."""
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title} if title else {}
    return head | _as_json_schema(schema)


NAMES = {
    str: "string", int: "integer", float: "number", bool: "boolean", dict: "object", list: "array", type(None): "null",
}  # fmt: skip


def _as_json_schema(schema: Any) -> dict[str, Any]:
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
