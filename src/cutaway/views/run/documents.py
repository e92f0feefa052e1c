"""The documents that a run leaves in its folder, as the report reads them."""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...errors import FileError
from ...files import read_json
from ...training.schemas import read_evaluation, read_run

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
        layers=_read_if_there(folder / "layers.json"),
        folder=str(folder),
        inside=(folder / INSIDE).is_file(),
    )


def read_metrics(path: Path) -> list[dict[str, Cell]]:
    """The rows of metrics.csv, cells that are numbers as numbers; none where there is no such file yet."""
    if not path.is_file():
        return []
    with path.open(encoding="utf-8", newline="") as lines:
        return [{name: _cell(text) for name, text in row.items() if name} for row in csv.DictReader(lines)]


def _read_if_there(path: Path) -> Any:
    return read_json(path) if path.is_file() else None


def _cell(text: str | None) -> Cell:
    """A number where the text is a finite one (JSON has no other), None where there is no text."""
    try:
        number = float(text or "")
    except ValueError:
        return text or None
    return number if math.isfinite(number) else text
