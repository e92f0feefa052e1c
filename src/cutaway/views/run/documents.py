"""The documents that a run leaves in its folder, as the report reads them."""

from __future__ import annotations

import csv
import io
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...core.errors import FileError, brief, short
from ...core.files import read_bytes
from ...training.schemas import read_evaluation, read_layers, read_run

INSIDE = "inspect.html"
Cell = float | str | None


@dataclass(frozen=True)
class Documents:
    """What is known of a run. `evaluation` and `layers` are None, and `metrics` is empty, where a run ended early."""

    run: dict[str, Any]  # run.json: what was trained on what, and how
    metrics: list[dict[str, Cell]] = field(default_factory=list)  # metrics.csv: one row an epoch
    evaluation: dict[str, Any] | None = None  # evaluation.json: metrics, confusion or values, worst mistakes
    layers: dict[str, Any] | None = None  # layers.json: the layer table and the card
    folder: str = ""  # the run's folder, as it was named
    inside: bool = False  # whether `cutaway inspect` has left its page there


def read_documents(folder: Path) -> Documents:
    """The documents in a run's folder. Raises FileError where one is damaged, or run.json is not there."""
    if not (folder / "run.json").is_file():
        raise FileError(f"{folder} is no run: it has no run.json. Give the folder that `cutaway train` wrote.")
    return Documents(
        run=read_run(folder),
        metrics=read_metrics(folder / "metrics.csv"),
        evaluation=read_evaluation(folder),
        layers=read_layers(folder),
        folder=str(folder),
        inside=(folder / INSIDE).is_file(),
    )


def read_metrics(path: Path) -> list[dict[str, Cell]]:
    """The rows of metrics.csv, cells that are finite numbers as numbers; none where there is no such file yet. Raises
    FileError, by line and column, for what is no number."""
    if not path.is_file():
        return []
    try:
        rows = list(csv.DictReader(io.StringIO(read_bytes(path).decode("utf-8-sig"), newline="")))
    except (ValueError, csv.Error) as error:
        raise FileError(f"{path} is no CSV file ({short(error, 120)}). Take it from a copy.") from error
    return [
        {name: _cell(text, f"{path}, line {line}, column {short(name)}") for name, text in row.items() if name}
        for line, row in enumerate(rows, 2)
    ]


def _cell(text: str | None, where: str) -> Cell:
    """A number where the text is a finite one (JSON has no other), None where there is no text."""
    if not text:
        return None
    try:
        number = float(text)
    except ValueError as error:
        raise FileError(f"{where}: {brief(text)} is not a number. Take the file from a copy.") from error
    return number if math.isfinite(number) else text
