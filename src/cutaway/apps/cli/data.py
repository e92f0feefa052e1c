"""cutaway data: the built-in and downloadable data sets."""

from __future__ import annotations

import argparse
from typing import Any

SUMMARY = "list the named data sets, or describe one"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("name", metavar="NAME", nargs="?", help="data set to describe")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run(args: argparse.Namespace) -> int:
    """List the data sets or describe one; nothing is downloaded."""
    from dataclasses import asdict

    from ...core.errors import UnknownName
    from ...data.open_data import NAMED, where
    from .output import console, emit_json, note

    if args.name and args.name not in NAMED:
        raise UnknownName(
            "data set", args.name, NAMED, "`cutaway data` lists them; for your own files, give their path."
        )
    found = [
        {"name": name, **asdict(about), "here": str(where(name) or "")}
        for name, about in NAMED.items()
        if args.name in (None, name)
    ]
    if args.json:
        emit_json(found[0] if args.name else found)
    elif args.name:
        for line in _described(found[0]):
            console().print(line, markup=False)
    else:
        from rich.table import Table

        table = Table(box=None, pad_edge=False, header_style="dim")
        for title in ("name", "kind", "what", "here"):
            table.add_column(title, overflow="fold")
        for row in found:
            table.add_row(row["name"], row["kind"], row["title"], "yes" if row["here"] else "no")
        console().print(table)
        note(
            "Missing data sets are downloaded to a cache when they are used by name, and their checksums are verified."
        )
    return 0


def _described(found: dict[str, Any]) -> list[str]:
    """Return the facts about one data set, one line each."""
    facts = [
        f"{key:<10} {found[key]}" for key in ("name", "title", "kind", "task", "target", "sizes", "licence", "citation")
    ]
    facts.append(f"{'here':<10} {found['here'] or 'no: downloaded on first use'}")
    return facts + [f"{'file':<10} {file['url']}  sha256 {file['sha256']}" for file in found["files"]]
