"""Parsing of prediction requests, from the body of a request to the input of a run's preprocessing.

Nothing that a client sends is used as a path. Rows are dictionaries and texts are {"text": …}. The content of a file is
kept in memory or written to the server's own folder under a sanitized name.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import csv
import io
import math
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...core.errors import RequestError, join, shorten, shorten_repr
from ...core.spec import Context, Masked, Solution
from ...data.graphs.transforms import GraphPreprocessing
from ...data.series.transforms import ForecastPreprocessing
from ...data.streaming.file_index import UploadedFile
from ...data.tables.transforms import TablePreprocessing
from ...data.text.corpus_transforms import GAP
from ...data.text.transforms import TextPreprocessing
from ...runs.run import Run
from ..networking import JSON, parse_json_object
from .limits import EXAMPLES, NAME

SUFFIXES = {  # of a file whose name has none, by media type
    "image/jpeg": ".jpg", "image/png": ".png", "image/gif": ".gif", "image/webp": ".webp", "image/bmp": ".bmp",
    "image/tiff": ".tif", "audio/wav": ".wav", "audio/x-wav": ".wav", "audio/wave": ".wav", "audio/vnd.wave": ".wav",
    "audio/flac": ".flac", "audio/x-flac": ".flac", "audio/ogg": ".ogg", "audio/mpeg": ".mp3",
    "video/mp4": ".mp4", "video/webm": ".webm", "video/x-msvideo": ".avi", "video/quicktime": ".mov",
    "text/csv": ".csv", "text/tab-separated-values": ".tsv",
    "application/graphml+xml": ".graphml",
}  # fmt: skip
BINARY = "application/octet-stream"
TEXT = "text/plain"
FORMS = {  # keys of a JSON document, by the kind of the run's training data; the first is the default
    "table": ("rows", "files"),
    "text": ("texts", "files"),
    "seq2seq": ("texts", "files"),
    "image": ("files",),
    "audio": ("files",),
    "video": ("files",),
    "series": ("series", "files"),
    "graph": ("files",),
}
USUAL = {"audio": ".wav", "text": ".txt", "seq2seq": ".txt", "series": ".txt"}  # of a file without a type
ONE_BY_ONE = ("image", "audio", "video")  # kinds where each file is one example, and the answer names it
# Signatures of video files. FFmpeg gets no others: playlists, for example, would make it open more files.
VIDEOS = re.compile(
    rb"....(ftyp|moov|mdat|free|skip|wide)|RIFF....AVI |\x1aE\xdf\xa3|GIF8|G|\0\0\x01[\xb3\xba]|FLV|OggS|0&\xb2u",
    re.DOTALL,
)


@dataclass
class PredictionRequest:
    """The content of one prediction request."""

    sources: list[Any] = field(default_factory=list)  # rows, texts or series; empty if files are given
    files: list[tuple[str, bytes]] = field(default_factory=list)  # the client's name and the content of each file
    suffix: str = ""  # of files whose names have none
    notes: list[str] = field(default_factory=list)
    alone: bool = False  # whether the request must be a batch of its own
    lines: int = 0  # lines of files where each line is one example

    @property
    def examples(self) -> int:
        """Number of examples that the request counts as in a batch."""
        return max(1, len(self.sources) + len(self.files), self.lines)


class Inputs:
    """The parser of prediction requests about one run."""

    def __init__(self, run: Run) -> None:
        self.spec = run.spec
        self.kind = self.spec.kind
        preprocessing = run.preprocessing
        self.forms = FORMS[self.kind]
        self.columns: tuple[str, ...] = ()  # that a row must have
        if isinstance(preprocessing, TablePreprocessing):
            self.columns = tuple(encoder.name for encoder in preprocessing.encoders)
        elif isinstance(preprocessing, TextPreprocessing):
            self.columns, self.forms = (preprocessing.column,), ("texts", "rows", "files")
        elif isinstance(preprocessing, ForecastPreprocessing) or self._molecules(preprocessing):
            self.forms = ("rows", "files")  # rows as the table of a file
        if isinstance(self.spec.target, Context | Solution):  # words or problems
            self.forms = ("texts",)

    @staticmethod
    def _molecules(preprocessing: Any) -> bool:
        return isinstance(preprocessing, GraphPreprocessing) and bool(preprocessing.smiles)

    def read(self, body: bytes, media: str, name: str | None) -> PredictionRequest:
        """Parse a body of the given media type. Raises HTTPException 400 for invalid JSON, otherwise DataError."""
        if media == JSON:
            return self.of_document(parse_json_object(body))
        if media == TEXT and "texts" in self.forms:
            return self._texts([_decode_text(body)])
        return self._files([(name or f"file{SUFFIXES.get(media, '')}", body)])

    def takes(self, media: str) -> bool:
        """Return whether this run accepts bodies of a media type."""
        if media == JSON or (media == TEXT and "texts" in self.forms):
            return True
        return "files" in self.forms and (media == BINARY or media in SUFFIXES)

    def of_document(self, document: Mapping[str, Any]) -> PredictionRequest:
        """Parse a JSON document. Raises DataError, which names the key."""
        reject_keys(document, self.forms, "the predict request")
        given = [form for form in self.forms if form in document]
        if len(given) != 1:
            raise RequestError(
                f"Give {join([repr(form) for form in self.forms], 'or')}" + (", one of them." if given else ".")
            )
        form = given[0]
        values = document[form]
        if not isinstance(values, list) or not values:
            raise RequestError(f"Invalid {form!r}: must be a list with at least one item.")
        if len(values) > EXAMPLES:
            raise RequestError(f"{form!r} has {len(values):,} items: at most {EXAMPLES:,} are allowed in one request.")
        read: dict[str, Callable[[list[Any]], PredictionRequest]] = {
            "rows": self._rows, "texts": self._texts, "series": self._series, "files": self._files_in,
        }  # fmt: skip
        return read[form](values)

    def _rows(self, rows: list[Any]) -> PredictionRequest:
        """Read rows of a table: objects that map columns to cells."""
        for i, row in enumerate(rows, 1):
            if not isinstance(row, dict) or not row:
                raise RequestError(f"Invalid row {i}: must be an object that maps columns to cells.")
            for column, cell in row.items():
                _reject_cell(cell, f"row {i}, column {shorten(column)}")
                _reject_surrogates(column, f"row {i}")
        if not self.columns:  # data that can only be read from a file
            return PredictionRequest(files=[("rows.csv", _as_csv(rows))], alone=True)
        for i, row in enumerate(rows, 1):
            if absent := [column for column in self.columns if column not in row]:
                raise RequestError(
                    f"Row {i} has no columns {join([repr(a) for a in absent[:10]], 'and')}."
                    if len(absent) > 1
                    else f"Row {i} has no column {absent[0]!r}.",
                    fix="Use null for a missing cell.",
                )
        known = {*self.columns, self.spec.target.column}
        unknown = [column for column in dict.fromkeys(c for row in rows for c in row) if column not in known]
        notes = []
        if unknown:
            notes = [
                f"Columns that are not in the training data are ignored: {', '.join(map(shorten_repr, unknown[:10]))}."
            ]
        return PredictionRequest([{column: row[column] for column in self.columns} for row in rows], notes=notes)

    def _texts(self, texts: list[Any]) -> PredictionRequest:
        for i, text in enumerate(texts, 1):
            if not isinstance(text, str):
                raise RequestError(f"Invalid text {i}: must be a string.")
            if not text.strip():
                raise RequestError(f"Text {i} is empty.")
            _reject_surrogates(text, f"text {i}")
        target = self.spec.target
        # Words to look up, problems and texts with gaps are never read as paths.
        plain = isinstance(target, Context | Solution) or (
            isinstance(target, Masked) and any(GAP in text for text in texts)
        )
        return PredictionRequest([text if plain else {"text": text} for text in texts], alone=plain)

    def _series(self, series: list[Any]) -> PredictionRequest:
        for i, values in enumerate(series, 1):
            if not isinstance(values, list) or not values:
                raise RequestError(f"Invalid series {i}: must be a list of numbers.")
            flat = [v for step in values for v in (step if isinstance(step, list) else [step])]
            if not all(type(v) in (int, float) and abs(v) < 1e300 for v in flat):
                raise RequestError(f"Invalid series {i}: all values must be finite numbers.")
            if len({len(step) if isinstance(step, list) else -1 for step in values}) > 1:
                raise RequestError(f"Series {i} has steps of different lengths.")
        return PredictionRequest(list(series))

    def _files_in(self, files: list[Any]) -> PredictionRequest:
        """Read files that are given as Base64."""
        found = []
        for i, file in enumerate(files, 1):
            if not isinstance(file, dict) or not isinstance(file.get("data"), str):
                raise RequestError(f'Invalid file {i}: must be {{"name": …, "data": …}} with Base64 data.')
            reject_keys(file, ("name", "data"), f"file {i}")
            name = file.get("name", f"file-{i}")
            if not isinstance(name, str) or not name:
                raise RequestError(f"Invalid name of file {i}: must be a string of at least one character.")
            try:
                content = base64.b64decode(file["data"], validate=True)
            except (binascii.Error, ValueError):
                raise RequestError(f"The data of file {i} is not Base64.") from None
            found.append((name, content))
        return self._files(found)

    def _files(self, files: Sequence[tuple[str, bytes]]) -> PredictionRequest:
        for name, content in files:
            _reject_surrogates(name, "a file's name")
            if not content:
                raise RequestError(f"{shorten(name)} is empty.")
            self._reject_unpacking(shorten(name), content)
        named = [(name[-NAME:], content) for name, content in files]
        lines = sum(content.count(b"\n") for _, content in files) if self.kind == "seq2seq" else 0
        return PredictionRequest(
            files=named, suffix=USUAL.get(self.kind, ""), alone=self.kind not in ONE_BY_ONE, lines=lines
        )

    def _reject_unpacking(self, name: str, content: bytes) -> None:
        """Raise DataError for a file type that could expand to a thousand times its size or refer to other files."""
        if self.kind == "video" and not VIDEOS.match(content):
            raise RequestError(f"{name} is not a supported video file.")
        if content.startswith(b"PAR1") or name.lower().endswith(".parquet"):
            raise RequestError(
                f"{name} is a Parquet file, which is not accepted because it can expand to gigabytes. "
                "Send rows, CSV or TSV."
            )


class RequestFiles:
    """A temporary store for the files of requests: in memory, or if that is impossible, in a folder of the server."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind, self.folder, self.number = kind, folder, 0

    @contextlib.contextmanager
    def open_sources(self, given: PredictionRequest) -> Iterator[tuple[list[Any], dict[str, str]]]:
        """Yield the sources of a request, with its files for as long as the context lasts, and a map from the names
        that occur in messages to the client's names."""
        if self.kind in ONE_BY_ONE:
            sent = [UploadedFile(self._unique_name(name, given.suffix), content) for name, content in given.files]
            yield [*given.sources, *sent], {one.name: name for one, (name, _) in zip(sent, given.files)}
            return
        paths: list[Path] = []
        try:
            for name, content in given.files:
                path = self.folder / self._unique_name(name, given.suffix)
                paths.append(path)
                path.write_bytes(content)
            if self.kind == "graph" and given.files and not paths[0].name.endswith(".graphml"):
                with self._graph_folder(given) as sources:
                    yield sources, {str(source): "the graph" for source in sources}
                return
            named = list(zip(paths, (name for name, _ in given.files)))
            yield [*given.sources, *paths], {str(p): n for p, n in named} | {p.name: n for p, n in named}
        finally:
            for path in paths:
                path.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _graph_folder(self, given: PredictionRequest) -> Iterator[list[Any]]:
        """Yield the folder or file of a graph, whose files keep their own names."""
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            for name, content in given.files:
                (Path(folder) / plain_name(name, given.suffix)).write_bytes(content)
            files = sorted(Path(folder).iterdir())
            tables = {"edges.csv", "nodes.csv"} & {file.name for file in files}
            yield [Path(folder)] if tables or len(files) > 1 else files

    def _unique_name(self, name: str, suffix: str) -> str:
        """Return a sanitized name that no other file has."""
        self.number += 1
        return f"{self.number}-{plain_name(name, suffix)}"


def plain_name(name: str, suffix: str = "") -> str:
    """Return a file's name without folders, in letters, digits, - and _, with its own suffix or else `suffix`."""
    stem, dot, own = re.split(r"[/\\]", name)[-1].rpartition(".")
    stem, own = (stem, f".{own}") if dot and re.fullmatch(r"[A-Za-z0-9]{1,8}", own) else (f"{stem}{dot}{own}", suffix)
    return (re.sub(r"[^A-Za-z0-9_-]+", "-", stem)[:60].strip("-") or "file") + own.lower()


def reject_keys(document: Mapping[str, Any], known: Sequence[str], what: str) -> None:
    """Raise DataError for the first key of a request that is not in `known`."""
    for key in document:
        if key not in known:
            raise RequestError(f"Unknown key {shorten_repr(key)} in {what}: must be one of {', '.join(known)}.")


def _decode_text(body: bytes) -> str:
    try:
        return body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise RequestError(f"The text is not valid UTF-8 at byte {error.start}.") from None


def _reject_cell(cell: Any, where: str) -> None:
    if isinstance(cell, str):
        _reject_surrogates(cell, where)
    elif isinstance(cell, float) and not math.isfinite(cell):
        raise RequestError(f"Invalid number in {where}: must be finite.")
    elif cell is not None and not isinstance(cell, bool | int | float):
        raise RequestError(
            f"Invalid cell {shorten_repr(cell)} in {where}: must be a string, a number, true, false or null."
        )


def _reject_surrogates(text: str, where: str) -> None:
    """Raise DataError for a lone surrogate, which JSON can encode and UTF-8 cannot."""
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise RequestError(f"Invalid text in {where}: it contains a lone surrogate.") from None


def _as_csv(rows: Sequence[Mapping[str, Any]]) -> bytes:
    """Write rows as a CSV file."""
    columns = list(dict.fromkeys(column for row in rows for column in row))
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, columns)
    writer.writeheader()
    writer.writerows({key: "" if cell is None else cell for key, cell in row.items()} for row in rows)
    return text.getvalue().encode()
