"""Views of transcripts: confused words, and the worst transcripts next to their references."""

from __future__ import annotations

from typing import Any

from ...draw import charts
from ...draw.description import Drawing, View, table
from ...draw.number_format import plural
from ...tasks.transcription import ABSENT, align_words

SHOWN = 12  # most transcripts in the comparison


def words(found: dict[str, Any], worst: list[dict[str, Any]], split: str) -> View:
    """Return the confused words of the evaluation's `words`, and its `worst` transcripts, aligned."""
    confusions = found["confusions"]
    drawings: list[Drawing] = []
    if confusions:
        rows = [
            {"label": _pair(one), "cells": [{"value": one["count"]}], "tip": [_pair(one), plural(one["count"], "time")]}
            for one in confusions
        ]
        drawings.append(charts.rows("What was said → what was written", [charts.bar("times")], rows))
    if worst:
        heads = {"right": "text", "the model writes": "text"}
        lines = [list(_mark_differences(one["actual"], one["predicted"])) for one in worst[:SHOWN]]
        drawings.append(
            {"kind": "prose", "title": "The worst, word beside word", "table": table(heads, lines)},
        )
    said = "No word is wrong."
    if confusions:
        wrong = plural(found["mistakes"], "mistake")
        said = f"{wrong} in words, most often {_pair(confusions[0])}."
    return View(
        id="words",
        title="Words taken for others",
        says=f"Transcripts of the {split} split and what was written instead, with as few changes as possible between "
        f"them; {ABSENT} stands for a word that was left out, or that nobody said.",
        summary=said,
        table=table(
            {"said": "text", "written": "text", "times": "count"},
            [[one["actual"], one["predicted"], one["count"]] for one in confusions],
        ),
        drawings=drawings,
    )


def _pair(one: dict[str, Any]) -> str:
    return f"{one['actual']} → {one['predicted']}"


def _mark_differences(actual: str, predicted: str) -> tuple[str, str]:
    """Return both texts with the different words in brackets."""
    pairs = align_words(actual.split(), predicted.split())
    right, written = (" ".join(p[side] if p[0] == p[1] else f"[{p[side]}]" for p in pairs) for side in (0, 1))
    return right, written
