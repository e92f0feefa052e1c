"""Limits on the size of one request after decoding, computed from file headers and line counts before decoding.

The size of a body says little about the work that it causes: a PNG of 60 KB can hold 64 megapixels.
"""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Callable, Sequence
from typing import Any

import soundfile

from ...core.errors import CutawayError, DataError
from ...data.graphs.transforms import GraphPreprocessing
from ...data.images.image_files import read_header
from ...data.video.video_files import count_pixels
from ...runs.run import Run
from .inputs import PredictionRequest
from .limits import SMALL, Bounds


def reject_oversized(what: str, count: int, bounds: Bounds) -> None:
    """Raise DataError if a request exceeds its bound; `what` and `count` come from `request_size`."""
    most: int = getattr(bounds, what)
    if count > most:
        words = what.replace("_", " ").replace("graph rows", "nodes and edges")
        raise DataError(
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
            with contextlib.suppress(CutawayError, soundfile.SoundFileError):
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
    found = soundfile.info(io.BytesIO(content))
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
