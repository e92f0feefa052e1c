"""Predictions for several requests at once: one batch for the model, then each request gets its own rows.

The size of one request is bounded before decoding, by file headers and line counts. The size of a body says little
about the work that it causes: a PNG of 60 KB can hold 64 megapixels.
"""

from __future__ import annotations

import contextlib
import io
import math
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...core.errors import CutawayError, RequestError
from ...core.extras import require
from ...data.graphs.transforms import GraphPreprocessing
from ...data.images.image_files import read_header
from ...data.video.video_files import count_pixels
from ...runs.run import Run
from .inputs import PredictionRequest, RequestFiles
from .limits import SMALL, Bounds

PARTS = 8
Row = dict[str, Any]
Names = dict[str, str]  # from paths to the names that the client gave


@dataclass(frozen=True)
class Prediction:
    """The predictions for one request."""

    rows: list[Row]
    notes: list[str]


class LargeRequest(Exception):
    """Raised for a request that is too large to be computed among small ones."""


class Predictor:
    """A callable that answers prediction requests about one run."""

    def __init__(self, run: Run, files: Path) -> None:
        """Set up the predictor; `files` is the folder for the files of requests while they are read."""
        self.run, self.desk = run, RequestFiles(run.spec.kind, files)

    def __call__(
        self,
        asked: Sequence[PredictionRequest],
        bounds: Bounds = Bounds(),  # noqa: B008
        large: bool = True,
    ) -> list[Prediction | Exception]:
        """Return, in order, the answer to each request or the exception that it raised.

        A large request yields LargeRequest unless `large` is true. The requests are predicted together. An error or a
        note of one request does not affect the others: if it is not clear which request it belongs to, each half is
        predicted separately.
        """
        rejected = [self._rejected(given, bounds, large) for given in asked]
        taken = [given for given, error in zip(asked, rejected) if error is None]
        with contextlib.ExitStack() as stack:
            opened = [stack.enter_context(self.desk.open_sources(given)) for given in taken]
            answers = iter(self._answers(opened, taken) if taken else ())
            return [next(answers) if error is None else error for error in rejected]

    def _rejected(self, given: PredictionRequest, bounds: Bounds, large: bool) -> Exception | None:
        amount = request_size(given, self.run)
        try:
            reject_oversized(*amount, bounds)
        except CutawayError as error:
            return error
        return None if large or not is_large(*amount, bounds) else LargeRequest()

    def _answers(
        self, opened: Sequence[tuple[list[Any], Names]], asked: Sequence[PredictionRequest]
    ) -> list[Prediction | Exception]:
        if len(asked) == 1:
            return [self._predict_one(*opened[0], asked[0])]
        with contextlib.suppress(Exception):
            if (together := self._predict_together(opened, asked)) is not None:
                return list(together)
        half = len(asked) // 2
        return [*self._answers(opened[:half], asked[:half]), *self._answers(opened[half:], asked[half:])]

    def _predict_one(self, sources: list[Any], names: Names, given: PredictionRequest) -> Prediction | Exception:
        try:
            rows, notes = self._predicted(sources)
            named = bool(names) or len(rows) != len(sources)  # as for a long text, which has a row for each window
            json_row = [_to_json_row(row, names, named) for row in rows]
            return Prediction(json_row, [*given.notes, *(_restore_names(note, names) for note in notes)])
        except Exception as error:
            error.args = tuple(_restore_names(arg, names) if isinstance(arg, str) else arg for arg in error.args)
            return error

    def _predict_together(
        self, opened: Sequence[tuple[list[Any], Names]], asked: Sequence[PredictionRequest]
    ) -> list[Prediction] | None:
        """Predict all requests in one batch.

        Returns None unless each request has as many rows as sources, or files by which its rows can be assigned; and
        None if a note cannot be assigned to a request.
        """
        sources = [source for own, _ in opened for source in own]
        rows, notes = self._predicted(sources)
        rows_by_request = _rows_by_request(rows, opened, asked)
        if rows_by_request is None:
            return None
        own_notes: list[list[str]] = [[] for _ in asked]
        if notes:
            if set(notes) - set(self._notes(sources)):
                return None  # a note of the model or the task, and not of preprocessing
            self._assign_notes([own for own, _ in opened], own_notes)
        return [
            Prediction(
                [_to_json_row(row, names, bool(names)) for row in own],
                [*given.notes, *(_restore_names(note, names) for note in note_list)],
            )
            for own, (_, names), given, note_list in zip(rows_by_request, opened, asked, own_notes)
        ]

    def _predicted(self, sources: Sequence[Any]) -> tuple[list[Row], list[str]]:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("ignore")
            warnings.simplefilter("always", UserWarning)
            rows = self.run.predict(sources)
        return rows, [str(warning.message) for warning in caught]

    def _notes(self, sources: Sequence[Any]) -> list[str]:
        """Return the notes of preprocessing for these sources."""
        return list(getattr(self.run.preprocessing.examples(sources), "notes", ()))

    def _assign_notes(self, sources: Sequence[list[Any]], notes: Sequence[list[str]]) -> None:
        """Assign the notes of preprocessing to their requests, by parts, because most requests have none."""
        size = -(-len(sources) // PARTS)
        for begin in range(0, len(sources), size):
            part = sources[begin : begin + size]
            found = self._notes([source for own in part for source in own])
            if len(part) == 1:
                notes[begin].extend(found)
            elif found:
                self._assign_notes(part, notes[begin : begin + size])


def _rows_by_request(
    rows: list[Row], opened: Sequence[tuple[list[Any], Names]], asked: Sequence[PredictionRequest]
) -> list[list[Row]] | None:
    """Return the rows of each request, or None if they cannot be assigned."""
    if all(given.files for given in asked):
        owner = {path: k for k, (_, names) in enumerate(opened) for path in names}
        rows_by_request: list[list[Row]] = [[] for _ in asked]
        for row in rows:
            rows_by_request[owner[row["input"]]].append(row)
        return rows_by_request
    if len(rows) != sum(len(own) for own, _ in opened):
        return None
    left = iter(rows)
    return [[next(left) for _ in own] for own, _ in opened]


def _to_json_row(row: Row, names: Names, named: bool) -> Row:
    """Convert a row to JSON values. If `named`, it gets the client's name of its input; otherwise its position
    identifies it."""
    json_row = {key: None if isinstance(v, float) and not math.isfinite(v) else v for key, v in row.items()}
    name = json_row.pop("input", None)
    return {"input": _restore_names(str(name), names), **json_row} if named else json_row


def _restore_names(text: str, names: Names) -> str:
    """Replace paths in a message with the names that the client gave."""
    for path, name in names.items():
        text = text.replace(path, name)
    return text


def reject_oversized(what: str, count: int, bounds: Bounds) -> None:
    """Raise DataError if a request exceeds its bound; `what` and `count` come from `request_size`."""
    most: int = getattr(bounds, what)
    if count > most:
        words = what.replace("_", " ").replace("graph rows", "nodes and edges")
        raise RequestError(
            f"The request has {count:,} {words}: at most {most:,} are allowed in one request.",
            fix="Send several requests, or smaller files.",
        )


def is_large(what: str, count: int, bounds: Bounds) -> bool:
    """Return whether an amount is so large that small requests should not wait for it."""
    most: int = getattr(bounds, what)
    return count * SMALL > most


def request_size(given: PredictionRequest, run: Run) -> tuple[str, int]:
    """Return the unit in which requests about a run are measured, and the amount that one request holds.

    Content that cannot be read counts as zero; the error appears when it is decoded.
    """
    kind, files = run.spec.kind, given.files
    if kind in _FILE_UNITS:
        what, count = _FILE_UNITS[kind]
        found = 0
        for name, content in files:
            with contextlib.suppress(CutawayError):
                found += count(content, name)
        return what, found
    if kind == "graph":
        preprocessing = run.preprocessing
        if isinstance(preprocessing, GraphPreprocessing) and preprocessing.smiles:
            return "atoms", sum(len(re.findall(rb"[A-Za-z*]", content)) for _, content in files)
        return "graph_rows", sum(len(re.findall(rb"[\n\r]|<(?:node|edge)\b", content)) for _, content in files)
    if kind in ("text", "seq2seq"):
        return "characters", _characters(given.sources) + sum(len(content) for _, content in files)
    return "rows", _steps(given.sources) + sum(len(re.findall(rb"[\n\r]", content)) for _, content in files)


def _pixels(content: bytes, name: str) -> int:
    height, width = read_header(content, name).size
    return height * width


def _samples(content: bytes, name: str) -> int:
    soundfile = require("soundfile", "Reading recordings")
    try:
        found = soundfile.info(io.BytesIO(content))
    except soundfile.SoundFileError:
        return 0
    return int(found.frames * found.channels)


_FILE_UNITS: dict[str, tuple[str, Callable[[bytes, str], int]]] = {
    "image": ("pixels", _pixels), "audio": ("samples", _samples), "video": ("video_pixels", count_pixels),
}  # fmt: skip


def _characters(sources: Sequence[Any]) -> int:
    """Count the characters of texts or of the cells of rows."""
    return sum(
        sum(len(cell) for cell in source.values() if isinstance(cell, str))
        if isinstance(source, dict)
        else len(str(source))
        for source in sources
    )


def _steps(sources: Sequence[Any]) -> int:
    """Count the rows of a table or the steps of series."""
    return sum(len(source) if isinstance(source, list) else 1 for source in sources)
