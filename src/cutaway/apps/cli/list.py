"""cutaway list: the models, by family."""

from __future__ import annotations

import argparse
from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ...models.registry import Preset

SUMMARY = "list the models by family: name, parameters, source"
# The families in the order of their first papers, with their titles.
FAMILIES = {
    "dense": "Dense networks",
    "rnn": "Recurrent networks",
    "cnn": "Convolutional networks",
    "words": "Word vectors and sentences",
    "graph": "Graph networks",
    "transformer": "Transformers",
    "generative": "Generative models of images",
}


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("word", metavar="WORD", nargs="?", help="part of a name, a family, or a kind of data")
    parser.add_argument("--family", metavar="F", help="only this family: dense, cnn, …")
    parser.add_argument(
        "--takes", metavar="KIND", help="only models for this kind of data: table, image, text, audio, seq2seq, …"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run(args: argparse.Namespace) -> int:
    """Print the models, one line each, and their number."""
    from ...core.errors import UnknownName
    from ...models.registry import list_models, preset, presets
    from .output import emit_json, print_table, say

    families = {p.card.card.family for p in presets().values()}
    kinds = {kind for p in presets().values() for kind in p.takes}
    if args.family not in (None, *families):
        raise UnknownName("family", args.family, families)
    if args.takes not in (None, *kinds):
        raise UnknownName("kind of data", args.takes, kinds)

    rows = [_row(preset(name)) for name in list_models(args.family, args.takes)]
    if args.word is not None:
        word = args.word.lower()
        rows = [row for row in rows if word in row["name"] or word in (row["family"], *row["takes"])]
        if not rows:
            raise UnknownName("model, family or kind of data", args.word, presets(), "`cutaway list` shows them all.")
    if args.json:
        emit_json(rows)
        return 0
    rows.sort(key=lambda row: list(FAMILIES).index(row["family"]))
    headings = [f"{FAMILIES[row['family']]} (--family {row['family']})" for row in rows]
    titles = ("name", "parameters", "takes", "source")
    print_table(titles, [_line(row) for row in rows], right=["parameters"], yields="source", groups=headings)
    counts = Counter(row["family"] for row in rows)
    said = ", ".join(f"{counts[family]} {family}" for family in FAMILIES if counts[family])
    total = f"{len(rows)} model{'s' * (len(rows) != 1)}"
    say(f"\n{total}: {said}." if len(counts) > 1 else f"\n{total}.")
    return 0


def _line(row: dict[str, Any]) -> tuple[str, ...]:
    """Return the table row of one model."""
    from ...draw.number_format import count

    first_author = row["authors"].split(",")[0].removesuffix(" et al.").split()[-1]
    return (
        row["name"],
        count(row["parameters"]),
        ", ".join(row["takes"]),
        f"{first_author} {row['year']}: {row['title']}",
    )


def _row(found: Preset) -> dict[str, Any]:
    """Return one model as JSON values. Its parameters are counted only if its card does not state them."""
    from ...inspect.layers import on_meta

    facts, parameters = found.card.card.to_json(), found.card.published_parameters
    if parameters is None:
        parameters = sum(p.numel() for p in on_meta(found, found.config).parameters())
    return {
        "name": found.name,
        "parameters": parameters,
        "takes": list(found.takes),
        **{fact: facts[fact] for fact in ("family", "title", "authors", "year", "link")},
    }
