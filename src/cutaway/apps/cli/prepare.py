"""cutaway prepare: conversion of data larger than memory to shards."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING, Any

from .arguments import parse_words

if TYPE_CHECKING:
    from ...data.streaming.shards import Manifest

SUMMARY = "convert data larger than memory to shards for training"
EVERY = 5.0  # seconds between progress notes


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    from ...data.streaming.shards import ShardSettings
    from .settings_help import format_group

    parser.usage = "cutaway prepare DATA OUT [key=value ...] [--json]"
    parser.add_argument("words", nargs="*", metavar="DATA OUT [key=value ...]", help="data, a folder for the shards")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.epilog = (
        "  cutaway prepare corpus/ shards/ tokenizer=bpe  a folder of .txt files\n"
        "  cutaway train gpt2 shards/                     train on the shards\n"
        "  cutaway prepare sorted.parquet shuffled/       rows of a table in random order\n\n"
        "If interrupted, run the same command again to resume: finished shards are kept.\n"
        "`cutaway check MODEL OUT` verifies their checksums.\n"
        + format_group(ShardSettings, "\nsettings of the shards")
        + "\n\n  Data settings that are fixed by prepare (tokenizer, vocab_size, val, …) are\n"
        "  those of `cutaway train --help text` and its other topics."
    )


def run(args: argparse.Namespace) -> int:
    """Write shards, or resume writing; print a summary."""
    from ...api import prepare
    from ...core.errors import SettingError
    from .output import console, emit_json, note

    names, given = parse_words(args.words, names=2)
    if len(names) < 2:
        raise SettingError("Missing data or output folder: cutaway prepare DATA OUT.")
    last_note = time.monotonic()

    def progress(done: int, of: int) -> None:
        nonlocal last_note
        if time.monotonic() - last_note > EVERY and done < of:
            last_note = time.monotonic()
            note(f"{done:,} of {of:,} shards written.")

    try:
        manifest = prepare(names[0], names[1], progress=progress, **given)
    except KeyboardInterrupt:
        note("\nFinished shards are kept: run the same command again to resume.")
        raise
    if args.json:
        emit_json(_document(manifest, names[1]))
        return 0
    for sentence in manifest.notes:
        note(f"note: {sentence}")
    for line in _lines(manifest, names[1]):
        console().print(line, markup=False)
    return 0


def _document(manifest: Manifest, out: str) -> dict[str, Any]:
    """Return the manifest as JSON values."""
    return {
        "folder": out,
        "kind": manifest.kind,
        "fingerprint": manifest.fingerprint,
        "splits": {split: manifest.count(split) for split in manifest.splits},
        "shards": sum(1 for _ in manifest.shards),
        "bytes": sum(shard.bytes for shard in manifest.shards),
        "notes": [*manifest.notes],
    }


def _lines(manifest: Manifest, out: str) -> list[str]:
    """Return the summary and the next command."""
    from ...draw.number_format import plural

    found = _document(manifest, out)
    unit = {"text": "token", "table": "row"}.get(manifest.kind, "example")
    splits = ", ".join(f"{split} {plural(count, unit)}" for split, count in found["splits"].items())
    return [
        f"{splits}; {plural(found['shards'], 'shard')} of {found['bytes'] / 2**20:,.1f} MiB in all",
        f"folder  {out}",
        f"train   cutaway train MODEL {out}{' target=COLUMN' if manifest.kind == 'table' else ''}",
    ]
