"""Views of single outputs: samples of a language model, translations, and captions."""

from __future__ import annotations

from typing import Any

from ...draw.description import Drawing, View, table
from ...draw.number_format import percent, plural


def samples(found: list[dict[str, Any]], split: str) -> View:
    """Return the model's continuations of prompts from the text, with the actual continuations."""
    heads = {"where": "text", "given": "text", "the model writes": "text", "the text goes on": "text"}
    drawings: list[Drawing] = [
        {
            "kind": "prose",
            "title": f"After {sample['name']}",
            "verbatim": True,
            "facts": [
                ["given", sample["prompt"]],
                ["the model writes", sample["written"]],
                *([["the text goes on", sample["actual"]]] if sample["actual"] else []),
            ],
        }
        for sample in found
    ]
    return View(
        id="samples",
        title="Samples",
        says=f"What the model writes after {plural(len(found), 'beginning')} out of the {split} split, each token "
        "drawn at temperature 0.8, and how the text itself goes on. A good sample need not be the text: it should read "
        "like it.",
        summary="`cutaway generate RUN --prompt TEXT` writes more, after a beginning of your own.",
        table=table(heads, [[s["name"], s["prompt"], s["written"], s["actual"]] for s in found]),
        drawings=drawings,
    )


def translations(found: list[dict[str, Any]], split: str) -> View:
    """Return the model's outputs for an even selection of pairs, with the references."""
    if all(one["picture"] for one in found):
        return captions(found, split)
    heads = {"source": "text", "right": "text", "the model says": "text"}
    right = sum(one["actual"] == one["predicted"] for one in found)
    rows = [[_source(one), one["actual"], one["predicted"] or "(nothing)"] for one in found]
    return View(
        id="translations",
        title="What became of some",
        says=f"{plural(len(found), 'pair')} of the {split} split, an even choice, good or bad: the source, the "
        "reference, and what the model says by itself.",
        summary=f"{right} of {len(found)} are the reference word for word; other words can be right too.",
        table=table(
            {"example": "text", **heads, "loss a token": "number"},
            [[one["name"], *row, one["loss"]] for one, row in zip(found, rows)],
        ),
        drawings=[{"kind": "prose", "title": "Source, reference and answer", "table": table(heads, rows)}],
    )


def captions(found: list[dict[str, Any]], split: str) -> View:
    """Return the model's captions for an even selection of images, with the references."""
    right = sum(one["actual"] == one["predicted"] for one in found)
    items = [
        {
            "name": one["name"],
            "image": one["picture"],
            "words": one["predicted"] or "(nothing)",
            "note": f"{percent(one['confidence'])} sure" if one["confidence"] is not None else "",
            "lines": ["right" if one["actual"] == one["predicted"] else f"right is: {one['actual']}"],
        }
        for one in found
    ]
    heads = {"image": "text", "right": "text", "the model says": "text", "probability": "fraction"}
    return View(
        id="translations",
        title="What it wrote of some",
        says=f"{plural(len(found), 'image')} of the {split} split, an even choice, good or bad, and the caption "
        "that the model writes of each by itself. Where that is one of the right captions it says so, else one of them "
        "stands below.",
        summary=f"{right} of {len(found)} are word for word a right caption; other words can be right too.",
        table=table(heads, [[one["name"], one["actual"], one["predicted"], one["confidence"]] for one in found]),
        drawings=[{"kind": "gallery", "title": "What the model writes", "items": items}],
    )


def _source(one: dict[str, Any]) -> str:
    row = one.get("row") or {}
    return str(row.get("source", next(iter(row.values()), one["name"])))
