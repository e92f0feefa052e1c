"""What a run says of several requests at once: one batch for the model, and to each request its own rows."""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..training.run import Run
from .inputs import Given, laid_out

Row = dict[str, Any]


@dataclass(frozen=True)
class Said:
    """The answer to one request."""

    rows: list[Row]
    notes: list[str]


def predict(run: Run, asked: Sequence[Given]) -> list[Said | Exception]:
    """The answers to requests, in their order; or what is wrong with one.

    They are asked together. Where one cannot be read, or there is something to note, each is asked alone: what is wrong
    with one request, or is said of it, is nobody else's matter.
    """
    if len(asked) > 1:
        with contextlib.suppress(Exception):
            if (together := _together(run, asked)) is not None:
                return list(together)
    return [_alone(run, given) for given in asked]


def _alone(run: Run, given: Given) -> Said | Exception:
    try:
        with laid_out(given, run.spec.kind) as (sources, names):
            rows, notes = _asked(run, sources)
            told = [_renamed(note, names) for note in notes]
            return Said([_shown(row, names) for row in rows], [*given.notes, *told])
    except Exception as error:
        error.args = tuple(_renamed(a, names) if isinstance(a, str) else a for a in error.args)
        return error


def _together(run: Run, asked: Sequence[Given]) -> list[Said] | None:
    """The answers, where every request has as many rows as it has sources, or files by which to tell them apart; None
    where that is not so, or something is to be noted."""
    with contextlib.ExitStack() as stack:
        laid = [stack.enter_context(laid_out(given, run.spec.kind)) for given in asked]
        sources = [source for own, _ in laid for source in own]
        rows, notes = _asked(run, sources)
        if notes:
            return None
        if all(given.files for given in asked):
            owner = {path: k for k, (_, names) in enumerate(laid) for path in names}
            of_each: list[list[Row]] = [[] for _ in asked]
            for row in rows:
                of_each[owner[row["input"]]].append(row)
        elif len(rows) == len(sources):
            left = iter(rows)
            of_each = [[next(left) for _ in own] for own, _ in laid]
        else:
            return None
        return [
            Said([_shown(row, names) for row in own], given.notes)
            for own, (_, names), given in zip(of_each, laid, asked)
        ]


def _asked(run: Run, sources: Sequence[Any]) -> tuple[list[Row], list[str]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", UserWarning)
        rows = run.predict(sources)
    return rows, [str(warning.message) for warning in caught]


def _shown(row: Row, names: dict[str, str]) -> Row:
    """A row as JSON takes it, with the client's names; what was no file has none, and is known by its place."""
    shown = {key: None if isinstance(v, float) and not math.isfinite(v) else v for key, v in row.items()}
    name = shown.pop("input", None)
    return {"input": _renamed(str(name), names), **shown} if names else shown


def _renamed(text: str, names: dict[str, str]) -> str:
    """Words about files, by the names that the client gave them."""
    for path, name in names.items():
        text = text.replace(path, name)
    return text
