"""The documents in a run's folder, as pages read them, and the weights that were saved in it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...core.errors import NotARunError
from ...core.files import exists, missing_file_error
from ...draw.number_format import count
from ...runs.run import Run
from ...training.callbacks import list_snapshots
from ...training.run_folder import Cell, read_evaluation, read_layers, read_metrics, read_run

INSIDE = "inspect.html"


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
        if not exists(folder):
            raise missing_file_error(folder, "run")
        raise NotARunError(f"{folder} is not a run: it has no run.json. Give a folder that `cutaway train` wrote.")
    return Documents(
        run=read_run(folder),
        metrics=read_metrics(folder / "metrics.csv"),
        evaluation=read_evaluation(folder),
        layers=read_layers(folder),
        folder=str(folder),
        inside=(folder / INSIDE).is_file(),
    )


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
