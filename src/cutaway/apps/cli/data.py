"""Commands on data: example files, named data sets, and shards of data that is larger than memory."""

from __future__ import annotations

import argparse
import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .arguments import parse_words

if TYPE_CHECKING:
    from ...data.streaming.shards import Manifest


DATA_EXAMPLES = """\
examples:
  cutaway data digits --show                 a grid of images with their labels
  cutaway data photos/ --show --count 12     of your own folder
  cutaway data wine.csv --show target=cultivar
"""


def add_data_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.usage = (
        "cutaway data [NAME] [--json]\n"
        "       cutaway data DATA --show [key=value ...] [--count N] [--seed N]\n"
        "                    [--out FILE.html] [--overwrite] [--open] [--json]"
    )
    parser.add_argument(
        "words",
        metavar="DATA [key=value ...]",
        nargs="*",
        help="data set to describe; with --show also a path, settings",
    )
    parser.add_argument("--show", action="store_true", help="write a page of random examples with their labels")
    parser.add_argument("--count", metavar="N", type=int, help="--show: examples of each class (default: 8)")
    parser.add_argument("--seed", metavar="N", type=int, help="--show: seed of the random choice (default: 0)")
    parser.add_argument("--out", metavar="FILE", help="--show: output page (default: examples-NAME.html)")
    parser.add_argument("--overwrite", action="store_true", help="--show: overwrite the page if it exists")
    parser.add_argument("--open", action="store_true", help="--show: open the page in the browser")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.epilog = DATA_EXAMPLES


def run_data(args: argparse.Namespace) -> int:
    """List the data sets or describe one; nothing is downloaded. With --show, write a page of examples."""
    from dataclasses import asdict

    from ...core.errors import IncompatibleSettingError, UnknownName
    from ...data.open_data import NAMED, where
    from .output import console, emit_json, note

    names, given = parse_words(args.words, names=1)
    name = names[0] if names else None
    if args.show:
        return _show_examples(name, given, args)
    asked = [
        f"--{key}" for key in ("count", "seed", "out", "overwrite", "open") if getattr(args, key) not in (None, False)
    ]
    if asked or given:
        raise IncompatibleSettingError(
            f"{(asked or [f'{key}=' for key in given])[0]} is for pages of examples: add --show."
        )
    if name and name not in NAMED:
        raise UnknownName(
            "data set",
            name,
            NAMED,
            "`cutaway data` lists them; for your own files, give their path to train, or add --show to see examples.",
        )
    found = [
        {"name": key, **asdict(about), "here": str(where(key) or "")}
        for key, about in NAMED.items()
        if name in (None, key)
    ]
    if args.json:
        emit_json(found[0] if name else found)
    elif name:
        for line in _describe_data(found[0]):
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


def _show_examples(source: str | None, given: dict[str, Any], args: argparse.Namespace) -> int:
    """Write a page of random examples of a data set or a path."""
    from ...api import is_page
    from ...core.config import build
    from ...core.errors import MissingSettingError, check_value
    from ...core.files import reject_overwriting, write_text
    from ...data.settings import DataSettings
    from ...draw.html_page import render_page
    from ...views.data_examples import PER_CLASS, examples_page, open_examples
    from .output import console, emit_json, note, open_page

    if source is None:
        raise MissingSettingError("Missing data: cutaway data DATA --show, e.g. cutaway data digits --show.")
    per_class = PER_CLASS if args.count is None else args.count
    seed = 0 if args.seed is None else args.seed
    check_value(per_class >= 1, "--count", per_class, "at least 1")
    check_value(seed >= 0, "--seed", seed, "at least 0")
    path = Path(args.out or f"examples-{Path(source).resolve().stem if Path(source).exists() else source}.html")
    writes = not args.json or args.out is not None or args.open
    if writes:
        reject_overwriting(path, [source], args.overwrite or is_page(path))  # before anything is read
    data = open_examples(source, build(DataSettings, given))
    page = examples_page(data, per_class, seed)
    if writes:
        write_text(path, render_page(page))
    for sentence in data.notes:
        note(f"note: {sentence}")
    if args.open:
        open_page(path)
    if args.json:
        emit_json(page)
    else:
        console().print(str(path), markup=False)
        console().print(page["views"][1]["summary"], markup=False)
    return 0


def _describe_data(found: dict[str, Any]) -> list[str]:
    """Return the facts about one data set, one line each."""
    facts = [
        f"{key:<10} {found[key]}" for key in ("name", "title", "kind", "task", "target", "sizes", "licence", "citation")
    ]
    facts.append(f"{'here':<10} {found['here'] or 'no: downloaded on first use'}")
    return facts + [f"{'file':<10} {file['url']}  sha256 {file['sha256']}" for file in found["files"]]


# A command to try with each. The README shows the results.
TRY = {
    "wine.csv": "train mlp wine.csv target=cultivar",
    "visits.csv": "train gru visits.csv forecast=visits known_future=sale,sunday lookback=24",
    "shops.csv": "train transformer-forecast shops.csv forecast=visits id=shop known_future=sale horizon=7",
    "scans/": "train resnet18 scans/ image_size=16 epochs=4",
    "docs.tsv": "train textcnn docs.tsv text=text target=library",
    "help.txt": "train lstm help.txt tokenizer=bpe vocab_size=2000 epochs=3",
    "days.txt": "train gru days.txt tokenizer=words epochs=3",
    "topics.tsv": "train textcnn topics.tsv text=text target=topic",
    "dates.tsv": "train seq2seq-gru dates.tsv pairs=true",
    "summaries.tsv": "train transformer-tiny summaries.tsv pairs=true tokenizer=bpe joint_vocab=true",
    "masks/": "train unet-small masks/",
    "captions/": "train show-attend-tell captions/ model.dropout=0",
    "shapes/": "train image-gpt shapes/ model.dim=64 model.layers=3 optimizer=muon lr=0.02 batch_size=16 epochs=8",
    "sounds/": "train gru sounds/",
    "spelled/": "train ctc-conv-gru spelled/",
    "scenes/": "train fcos-resnet18-small scenes/",
    "videos/": "train cnn-lstm videos/ image_size=24",
    "graph/": "train gcn graph/ target=club test=0.4",
    "novel/": "train gae novel/",
    "molecules.csv": "train gine molecules.csv smiles=smiles target=weight",
    "photographs/": "check resnet18 photographs/",
    "damaged/": "check resnet18 damaged/",
}


def add_examples_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "names", metavar="NAME", nargs="*", help="names of examples, e.g. wine.csv sounds (default: all)"
    )
    parser.add_argument("--out", metavar="DIR", default=".", help="output folder (default: current folder)")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run_examples(args: argparse.Namespace) -> int:
    """Write example files and print a command for each. Existing files are kept."""
    from ...core.errors import UnknownName
    from ...core.extras import MissingPackageError
    from ...data.synthetic import EXAMPLES, write_example
    from .output import emit_json, note, print_table

    known = {Path(name).stem: name for name in EXAMPLES}
    asked = [Path(name).stem for name in args.names] or list(known)
    for typed, name in zip(args.names, asked):
        if name not in known:
            way_out = "`cutaway examples` writes them all."
            if Path(typed).is_dir():
                way_out += f" --out {shlex.quote(typed)} writes them into this folder."
            raise UnknownName("example", typed, known, way_out)
    names = list(dict.fromkeys(known[name] for name in asked))
    folder = Path(args.out)
    written, missing = dict[str, bool](), list[str]()
    for name in names:
        try:
            written[name] = write_example(name, folder)
        except MissingPackageError as error:
            if args.names:
                raise
            missing.append(str(error))
    names = list(written)
    if args.json:
        about = [{"name": name, "what": EXAMPLES[name].what, "try": f"cutaway {TRY[name]}"} for name in names]
        emit_json([{**row, "written": written[row["name"]]} for row in about])
        return 0
    rows = [(name, EXAMPLES[name].what, f"cutaway {TRY[name]}") for name in names]
    print_table(("name", "what", "to try"), rows, yields="to try")
    left = [name for name in names if not written[name]]
    if left:
        note(f"Skipped, because it already exists: {', '.join(left)}.")
    for sentence in missing:
        note(sentence)
    return 0


NOTE_INTERVAL = 5.0  # seconds between progress notes


def add_prepare_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    from ...data.settings import ShardSettings
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


def run_prepare(args: argparse.Namespace) -> int:
    """Write shards, or resume writing; print a summary."""
    from ...api import prepare
    from ...core.errors import MissingSettingError
    from .output import console, emit_json, note

    names, given = parse_words(args.words, names=2)
    if len(names) < 2:
        raise MissingSettingError("Missing data or output folder: cutaway prepare DATA OUT.")
    last_note = time.monotonic()

    def progress(done: int, of: int) -> None:
        nonlocal last_note
        if time.monotonic() - last_note > NOTE_INTERVAL and done < of:
            last_note = time.monotonic()
            note(f"{done:,} of {of:,} shards written.")

    try:
        manifest = prepare(names[0], names[1], progress=progress, **given)
    except KeyboardInterrupt:
        note("\nFinished shards are kept: run the same command again to resume.")
        raise
    if args.json:
        emit_json(_manifest_document(manifest, names[1]))
        return 0
    for sentence in manifest.notes:
        note(f"note: {sentence}")
    for line in _shard_lines(manifest, names[1]):
        console().print(line, markup=False)
    return 0


def _manifest_document(manifest: Manifest, out: str) -> dict[str, Any]:
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


def _shard_lines(manifest: Manifest, out: str) -> list[str]:
    """Return the summary and the next command."""
    from ...draw.number_format import plural

    found = _manifest_document(manifest, out)
    unit = {"text": "token", "table": "row"}.get(manifest.kind, "example")
    splits = ", ".join(f"{split} {plural(count, unit)}" for split, count in found["splits"].items())
    return [
        f"{splits}; {plural(found['shards'], 'shard')} of {found['bytes'] / 2**20:,.1f} MiB in all",
        f"folder  {out}",
        f"train   cutaway train MODEL {out}{' target=COLUMN' if manifest.kind == 'table' else ''}",
    ]
