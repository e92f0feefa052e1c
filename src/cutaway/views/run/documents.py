"""The documents in a run's folder, as pages read them, and the weights that were saved in it."""

from __future__ import annotations

import csv
import io
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...core.errors import FileError, NotARunError, shorten, shorten_repr
from ...core.files import read_bytes
from ...draw.number_format import count
from ...runs.run import Run
from ...training.callbacks import list_snapshots
from ...training.run_folder import read_evaluation, read_layers, read_run

INSIDE = "inspect.html"
Cell = float | str | None


@dataclass(frozen=True)
class Documents:
    """The documents of a run; if it ended early, `evaluation` and `layers` are None and `metrics` is empty."""

    run: dict[str, Any]  # run.json: model, data and settings of the training
    metrics: list[dict[str, Cell]] = field(default_factory=list)  # metrics.csv: one row an epoch
    evaluation: dict[str, Any] | None = None  # evaluation.json: metrics, confusion or values, worst mistakes
    layers: dict[str, Any] | None = None  # layers.json: the layer table and the card
    folder: str = ""  # the run's folder, as the user gave it
    inside: bool = False  # whether the folder has a page of `cutaway inspect`


def read_documents(folder: Path) -> Documents:
    """Read the documents in a run's folder.

    Raises:
        FileError: If a document is damaged or run.json is missing.
    """
    if not (folder / "run.json").is_file():
        raise NotARunError(f"{folder} is not a run: it has no run.json. Give a folder that `cutaway train` wrote.")
    return Documents(
        run=read_run(folder),
        metrics=read_metrics(folder / "metrics.csv"),
        evaluation=read_evaluation(folder),
        layers=read_layers(folder),
        folder=str(folder),
        inside=(folder / INSIDE).is_file(),
    )


def read_metrics(path: Path) -> list[dict[str, Cell]]:
    """Read the rows of metrics.csv, with finite numbers as floats; return an empty list if there is no file yet.

    Raises:
        FileError: If a cell is not a number; the message has its line and column.
    """
    if not path.is_file():
        return []
    try:
        rows = list(csv.DictReader(io.StringIO(read_bytes(path).decode("utf-8-sig"), newline="")))
    except (ValueError, csv.Error) as error:
        raise FileError(f"{path} is not a valid CSV file ({shorten(error, 120)}). Restore it from a backup.") from error
    return [
        {name: _cell(text, f"{path}, line {line}, column {shorten(name)}") for name, text in row.items() if name}
        for line, row in enumerate(rows, 2)
    ]


def _cell(text: str | None, where: str) -> Cell:
    """Return a finite number as a float, other text unchanged (JSON has no infinity or NaN), and empty text as None."""
    if not text:
        return None
    try:
        number = float(text)
    except ValueError as error:
        raise FileError(f"{where}: {shorten_repr(text)} is not a number. Restore the file from a backup.") from error
    return number if math.isfinite(number) else text


@dataclass(frozen=True)
class Moment:
    """Weights that a run saved."""

    name: str  # for example: update 120, best
    path: Path


def saved_moments(run: Run) -> list[Moment]:
    """Return all saved weights of a run in order: its snapshots, and the best and the last checkpoints."""
    folder, about = run.folder, run.about
    found = {update: Moment(f"update {count(update)}", path) for update, path in list_snapshots(folder).items()}
    steps = {row.get("epoch"): row.get("step") for row in read_metrics(folder / "metrics.csv")}
    for name, epoch in (("last", about.get("epochs_done")), ("best", (about.get("best") or {}).get("epoch"))):
        path, step = folder / "checkpoints" / f"{name}.safetensors", steps.get(epoch)
        if path.is_file() and isinstance(step, float):
            found[int(step)] = Moment(f"update {count(step)}, {name}", path)
    return [moment for _, moment in sorted(found.items())]
