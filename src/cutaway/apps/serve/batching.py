"""What a run says of several requests at once: one batch for the model, and to each request its own rows."""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...core.errors import CutawayError
from ...runs.run import Run
from .inputs import Desk, Given
from .limits import Bounds
from .request_bounds import amount_of, is_large, reject_too_much

PARTS = 8
Row = dict[str, Any]
Names = dict[str, str]  # what a client calls a path


@dataclass(frozen=True)
class Said:
    """The answer to one request."""

    rows: list[Row]
    notes: list[str]


class LargeRequest(Exception):
    """A request that is too large to be computed among small ones."""


class Predictor:
    """Answers to requests about one run."""

    def __init__(self, run: Run, files: Path) -> None:
        """`files` is the folder in which the files of requests are while they are read."""
        self.run, self.desk = run, Desk(run.spec.kind, files)

    def __call__(
        self,
        asked: Sequence[Given],
        bounds: Bounds = Bounds(),  # noqa: B008
        large: bool = True,
    ) -> list[Said | Exception]:
        """The answers to requests, in their order; or what is wrong with one, LargeRequest among it unless `large` ones
        are taken.

        They are asked together. What is wrong with one, or is said of it, is nobody else's matter: where it cannot be
        told whose that is, each half of them is asked apart.
        """
        rejected = [self._rejected(given, bounds, large) for given in asked]
        taken = [given for given, error in zip(asked, rejected) if error is None]
        with contextlib.ExitStack() as stack:
            laid = [stack.enter_context(self.desk.laid(given)) for given in taken]
            answers = iter(self._answers(laid, taken) if taken else ())
            return [next(answers) if error is None else error for error in rejected]

    def _rejected(self, given: Given, bounds: Bounds, large: bool) -> Exception | None:
        amount = amount_of(given, self.run)
        try:
            reject_too_much(*amount, bounds)
        except CutawayError as error:
            return error
        return None if large or not is_large(*amount, bounds) else LargeRequest()

    def _answers(self, laid: Sequence[tuple[list[Any], Names]], asked: Sequence[Given]) -> list[Said | Exception]:
        if len(asked) == 1:
            return [self._alone(*laid[0], asked[0])]
        with contextlib.suppress(Exception):
            if (together := self._together(laid, asked)) is not None:
                return list(together)
        half = len(asked) // 2
        return [*self._answers(laid[:half], asked[:half]), *self._answers(laid[half:], asked[half:])]

    def _alone(self, sources: list[Any], names: Names, given: Given) -> Said | Exception:
        try:
            rows, notes = self._predicted(sources)
            named = bool(names) or len(rows) != len(sources)  # as of a long text, which has a row a stretch
            shown = [_shown(row, names, named) for row in rows]
            return Said(shown, [*given.notes, *(_renamed(note, names) for note in notes)])
        except Exception as error:
            error.args = tuple(_renamed(arg, names) if isinstance(arg, str) else arg for arg in error.args)
            return error

    def _together(self, laid: Sequence[tuple[list[Any], Names]], asked: Sequence[Given]) -> list[Said] | None:
        """The answers, where every request has as many rows as it has sources, or files by which to tell them apart;
        None where that is not so, or it cannot be told whose a note is."""
        sources = [source for own, _ in laid for source in own]
        rows, notes = self._predicted(sources)
        of_each = _of_each(rows, laid, asked)
        if of_each is None:
            return None
        own_notes: list[list[str]] = [[] for _ in asked]
        if notes:
            if set(notes) - set(self._notes(sources)):
                return None  # the model had something to say, or the task
            self._tell([own for own, _ in laid], own_notes)
        return [
            Said(
                [_shown(row, names, bool(names)) for row in own],
                [*given.notes, *(_renamed(note, names) for note in told)],
            )
            for own, (_, names), given, told in zip(of_each, laid, asked, own_notes)
        ]

    def _predicted(self, sources: Sequence[Any]) -> tuple[list[Row], list[str]]:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("ignore")
            warnings.simplefilter("always", UserWarning)
            rows = self.run.predict(sources)
        return rows, [str(warning.message) for warning in caught]

    def _notes(self, sources: Sequence[Any]) -> list[str]:
        """What preparing these has to note."""
        return list(getattr(self.run.preprocessing.examples(sources), "notes", ()))

    def _tell(self, sources: Sequence[list[Any]], notes: Sequence[list[str]]) -> None:
        """Find out whose notes are whose, where together they have some: by parts, since most have none."""
        size = -(-len(sources) // PARTS)
        for begin in range(0, len(sources), size):
            part = sources[begin : begin + size]
            found = self._notes([source for own in part for source in own])
            if len(part) == 1:
                notes[begin].extend(found)
            elif found:
                self._tell(part, notes[begin : begin + size])


def _of_each(
    rows: list[Row], laid: Sequence[tuple[list[Any], Names]], asked: Sequence[Given]
) -> list[list[Row]] | None:
    """The rows of each request."""
    if all(given.files for given in asked):
        owner = {path: k for k, (_, names) in enumerate(laid) for path in names}
        of_each: list[list[Row]] = [[] for _ in asked]
        for row in rows:
            of_each[owner[row["input"]]].append(row)
        return of_each
    if len(rows) != sum(len(own) for own, _ in laid):
        return None
    left = iter(rows)
    return [[next(left) for _ in own] for own, _ in laid]


def _shown(row: Row, names: Names, named: bool) -> Row:
    """A row as JSON takes it, with the client's names where it is `named`; else it is known by its place."""
    shown = {key: None if isinstance(v, float) and not math.isfinite(v) else v for key, v in row.items()}
    name = shown.pop("input", None)
    return {"input": _renamed(str(name), names), **shown} if named else shown


def _renamed(text: str, names: Names) -> str:
    """Words about files, by the names that the client gave them."""
    for path, name in names.items():
        text = text.replace(path, name)
    return text
