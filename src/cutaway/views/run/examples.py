"""Views of single answers: what a language model writes, and what sequences became."""

from __future__ import annotations

from typing import Any

from ...draw.description import Drawing, View, table
from ...draw.words import plural


def samples(found: list[dict[str, Any]], split: str) -> View:
    """What the model writes after beginnings out of the text, beside what stands there."""
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
    """What the model made of an even choice of the pairs, beside what is right."""
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


def _source(one: dict[str, Any]) -> str:
    row = one.get("row") or {}
    return str(row.get("source", next(iter(row.values()), one["name"])))
