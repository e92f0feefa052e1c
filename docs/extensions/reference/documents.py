"""The JSON documents: what each holds, from the schema that reading holds it to, and the same as JSON Schema files."""

from __future__ import annotations

import json
import types
from pathlib import Path
from typing import Any

from cutaway.core.schema import WORDS, json_schema
from cutaway.data.streaming.manifest import SCHEMA as SHARDS
from cutaway.training.run_folder import EVALUATION_SCHEMA, RUN_SCHEMA

DOCUMENTS = {
    "run": (
        "run.json",
        RUN_SCHEMA,
        "Everything that is needed to repeat a run: model, data, split, settings, seed, versions.",
    ),
    "evaluation": (
        "evaluation.json",
        EVALUATION_SCHEMA,
        "What was measured on the test split, each metric with its interval.",
    ),
    "shards": ("manifest.json", SHARDS, "What a folder of `cutaway prepare` holds, each shard with its SHA-256."),
}
HEAD = """# JSON documents

A document is held to this when it is read: a file that departs from it is rejected by file and key. What is not named
here may be there too. A key that *may be absent* is missing, null or empty where there is nothing to say.
`null` in place of a number stands for infinity and for no number.
"""


def pages() -> dict[str, str]:
    """One page."""
    parts = [HEAD]
    for name, (file, schema, what) in DOCUMENTS.items():
        parts.append(
            f"## {file}\n\n{what} As JSON Schema: `schemas/{name}.json` in this site.\n\n| key | holds |\n| --- | --- |"
        )
        parts += [f"| `{key}` | {said} |" for key, said in rows(schema)]
        parts.append("")
    return {"reference/documents.md": "\n".join(parts)}


def rows(schema: Any, at: str = "") -> list[tuple[str, str]]:
    """Every key, however deep, with what it holds in words."""
    found = []
    for key, within in schema.items():
        name = "NAME" if key is ... else key.removesuffix("?")
        place = f"{at}.{name}" if at else name
        absent = ", may be absent" if key is not ... and key.endswith("?") else ""
        brackets = ""
        while isinstance(within, list):
            brackets, within = brackets + "[]", within[0]
        if isinstance(within, dict):
            found.append((place + brackets, f"{'list of objects' if brackets else 'an object'}{absent}"))
            found += rows(within, place + brackets)
        else:
            kinds = within.__args__ if isinstance(within, types.UnionType) else (within,)
            words = [WORDS[kind] for kind in kinds if not (kind is int and float in kinds)]
            found.append((place + brackets, f"{'list; each ' if brackets else ''}{' or '.join(words)}{absent}"))
    return found


def publish(app: Any, error: Exception | None) -> None:
    """Write the JSON Schema files into the site."""
    if error is None and app.builder.name == "html":
        folder = Path(app.outdir, "schemas")
        folder.mkdir(exist_ok=True)
        for name, (file, schema, _) in DOCUMENTS.items():
            text = json.dumps(json_schema(schema, file), indent=1)
            (folder / f"{name}.json").write_text(text + "\n", encoding="utf-8")
