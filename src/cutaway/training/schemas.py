"""Schemas of a run's documents: run.json, evaluation.json and layers.json are validated when they are read.

Entries that every run has are required. Entries that only some runs have, or that earlier versions did not write, are
optional.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..core.config import build, pick, upgrade_settings
from ..core.errors import DataError, FileError
from ..core.files import read_json
from ..core.schema import NUMBER, name_document_in_errors, validate_document, write_document
from ..core.spec import TASKS_BEFORE, current_kind
from ..data.dataset_base import IN_MEMORY
from ..data.settings import DataSettings
from ..models.registry import find
from .config import TrainSettings

TEXT, FIGURE = str | None, NUMBER | None  # FIGURE: null for infinity and NaN
METRIC = {"value": FIGURE, "low": FIGURE, "high": FIGURE, "note?": str}  # note: reason for a missing interval
SURE = {"value": NUMBER, "low": NUMBER, "high": NUMBER}

COLUMN = {"name": str, "role": str, "type": str, "missing": str, "example": str}
DISTRIBUTION = {
    "name": str, "type": str, "missing": int, "counts": [int], "ends?": [str], "labels?": [str], "different?": int,
}  # fmt: skip
RUN = {
    "model": str,
    "own?": str,  # for your own module: the path of its class
    "data": {
        "source": str,
        "path?": str,
        "name": str,
        "kind": str,
        "fingerprint": str,
        "split_hash": str,
        "splits": {"train": int, ...: int},
        "image_sizes?": {"least": int, "usual": int, "step": int, "only?": int},
        "notes?": [str],
        "findings?": [str],
        "evidence?": [{"finding": str, "examples": [[str]]}],
        "columns?": [COLUMN],
        "distributions?": [DISTRIBUTION],
        "licence?": str,
        "example?": str,
    },
    "task": str,
    "loss": str,
    "settings": dict,
    "model_settings": dict,
    "weights?": {"path": str, "sha256": str, "notes": [str], "new?": [str], "tensors?": int},
    "quantized?": {"method": str, "bits": int, "group": int, "calibration": int, "from": str, "qat?": int},
    "seed": int,
    "command": str,
    "parameters": int,
    "versions": {...: str},
    "machine": {"device": str, "threads?": int, "cores?": int, ...: str | int | None},
    "notes?": [str],
    "status": str,
    "started": str,
    "finished?": str,
    "resumed?": int,
    "cutaway?": str,
    # After the end of training:
    "epochs_done?": int,
    "seconds?": NUMBER,
    "stopped?": str,
    "best?": {"epoch": int, "metric": str, "value": FIGURE},
    "average?": {"first": int, "last": int, "score": FIGURE},
    "summary?": str,
}

EXAMPLE = {
    "name": str, "actual": str, "predicted": str, "loss": FIGURE, "confidence": FIGURE, "picture": TEXT,
    "row?": {...: TEXT}, "boxes?": [{"box": [NUMBER], "name": str, "score": FIGURE, "kind": str}],
}  # fmt: skip
SAMPLE = {"name": str, "prompt": str, "written": str, "actual": str}
OPERATING = {"threshold": NUMBER, "recall": NUMBER, "precision": FIGURE, "false_positives": NUMBER}
AREA = {"value": NUMBER, "low": FIGURE, "high": FIGURE, "note?": str}
CURVE = {
    "name": str, "examples": int, "fraction": FIGURE, "auc": AREA, "average_precision": AREA,
    "roc?": [NUMBER], "precision?": [NUMBER], "operating?": OPERATING,
}  # fmt: skip
BIN = {"bin": int, "count": int, "said": NUMBER, "was": NUMBER}
CLASS = {"name": str, "count": int, "precision": METRIC, "recall": METRIC, "f1": METRIC}
OF_MASKS = {"name": str, "pixels": int, "images": int, "iou": METRIC}
EVALUATION = {
    "split": str,
    "count": int,
    "watch": str,
    "metrics": {...: METRIC},
    "baseline?": {"name": str, "value": FIGURE},
    "simple?": {"metric": str, "models": [{"name": str, "explanation": str, **METRIC}, ...], "left_out": [str]},
    "worst": [EXAMPLE],
    "right?": [EXAMPLE],
    "translations?": [EXAMPLE],
    "samples?": [SAMPLE],
    "signatures?": {...: str},
    "classes?": {"names": [str], "per_class": [CLASS], "confusion?": [[int]], "cells?": [[str | int]]},
    "masks?": {"names": [str], "confusion": [[int]], "per_class": [OF_MASKS]},
    "discrimination?": {"of": int, "examples": int, "score": str, "classes": [CURVE, ...]},
    "calibration?": {
        "of?": str, "examples": int, "brier": NUMBER, "error": METRIC,
        "counts": [int], "edges": [NUMBER], "bins": [BIN, ...],
        "scaled?": {"temperature": NUMBER, "brier": NUMBER, "error": METRIC, "bins": [BIN, ...]},
    },
    "importance?": {
        "metric": str, "rows": int, "repeats": int, "columns": [{"name": str, **SURE}],
    },
    "tasks?": {"names": [str], "accuracy": [[FIGURE]]},
    "boxes?": {"per_class": [{"name": str, "count": int, "map": FIGURE, "map_50": FIGURE}]},
    "values?": {"column": str, "actual": [NUMBER], "predicted": [NUMBER]},
    "baselines?": [{"key": str, "name": str, "difference": METRIC, "mae": METRIC, "rmse": METRIC, "mase?": METRIC}],
    "forecast?": {
        "best": str, "columns": [str, ...], "horizon": int, "season": int, "unit": str,
        "steps": [{"key": str, "name": str, "rmse": [FIGURE]}, ...],
        "series?": [{"name": str, "count": int, "rmse": {...: FIGURE}}, ...],
        "examples": [{"name": str, "seen": [FIGURE, ...], "actual": [FIGURE], "model": [FIGURE], "best": [FIGURE]}],
    },
}  # fmt: skip

# Keys before 0.7 and their current names, for reading old runs. To be removed in 1.0.
MOVED = {
    "data.parts": "splits",
    "part": "split",
    "measures": "metrics",
    "verdict": "summary",
    "discrimination.classes.share": "fraction",
}


GIVEN_AGAIN = "Give it again, as in run.set_data(DATA).evaluate(); or other data, as in run.evaluate((X, y))."


DIVERGENCE = {"what?": str, "paper?": str, "here?": str, "common?": str}
CARD = {
    "title": str, "authors": str, "year": int, "link": str, "equation": str, "divergences?": [DIVERGENCE],
}  # fmt: skip
LAYER = {
    "name": str, "type": str, "shape": [int], "parameters": int, "multiply_adds": int | None,
    "receptive_field?": int, "frames?": int,
}  # fmt: skip
LAYERS = {
    "input": [int],
    "rows": [LAYER, ...],
    "parameters": int,
    "multiply_adds": int,
    "complete?": bool,
    "tree?": dict,
    "card?": CARD,
    "config?": dict,
}


def read_layers(folder: Path) -> dict[str, Any] | None:
    """Read layers.json of a run's folder; None if it does not exist. Raises FileError as `read_run` does."""
    path = folder / "layers.json"
    return _read(path, LAYERS, "`cutaway report RUN` writes it again.") if path.is_file() else None


def read_run(folder: Path) -> dict[str, Any]:
    """Read run.json of a run's folder. Raises FileError with file and key if it does not match the schema."""
    about = _read(folder / "run.json", RUN, "Restore it from a copy, or train again.")
    about["data"]["kind"] = current_kind(about["data"]["kind"])
    about["task"] = TASKS_BEFORE.get(about["task"], about["task"])
    own, found = about["model_settings"], find(about["model"])
    with name_document_in_errors(folder / "run.json"):
        for group in (TrainSettings, DataSettings):
            build(group, pick(upgrade_settings(about["settings"]), group))
    return about | {
        "settings": upgrade_settings(about["settings"]),
        "model_settings": found.as_now(own) if found else own,
    }


def data_source(data: Mapping[str, Any]) -> str:
    """Return the source from which the data of a run is opened again: its absolute path if there is one, else its name.

    `data` is that part of run.json. Raises DataError if the data was passed in Python.
    """
    if data["source"] == IN_MEMORY:
        raise DataError("This run's data was given in Python, and is not at hand.", fix=GIVEN_AGAIN)
    return str(data.get("path") or data["source"])


def read_evaluation(folder: Path) -> dict[str, Any] | None:
    """Read evaluation.json of a run's folder; None if the run has none. Raises FileError as `read_run` does."""
    path = folder / "evaluation.json"
    fix = "Restore it from a copy, or train again; `cutaway evaluate RUN` computes the metrics and prints them."
    if not path.is_file():
        return None
    found = _read(path, EVALUATION, fix)
    for name, *places in EQUAL_LENGTHS:
        part = found.get(name) or {}
        lengths = {place: len(part[place]) for place in places if part.get(place) is not None}
        if len({*lengths.values()}) > 1 or (lengths and not any(lengths.values())):
            said = " and ".join(f"{name}.{place} has {count:,}" for place, count in lengths.items())
            raise FileError(f"{path}: {said} entries: all must have the same number. {fix}")
    for name in ("classes", "masks"):
        part = found.get(name) or {}
        if any(len(row) != len(part["names"]) for row in part.get("confusion") or ()):
            raise FileError(f"{path}: {name}.confusion is no square. {fix}")
    return found


# Lists in a part of evaluation.json that must have equal lengths.
EQUAL_LENGTHS = (
    ("values", "actual", "predicted"),
    ("classes", "names", "per_class", "confusion"),
    ("masks", "names", "per_class", "confusion"),
)


def write_evaluation(folder: Path, document: dict[str, Any]) -> None:
    """Write evaluation.json of a run's folder. Undefined values (NaN, infinity) become null."""
    write_document(folder / "evaluation.json", document, EVALUATION)


def _read(path: Path, schema: dict[Any, Any], fix: str) -> dict[str, Any]:
    document: dict[str, Any] = read_json(path)
    for place, now in MOVED.items():
        *within, before = place.split(".")
        found: list[Any] = [document]
        for key in within:
            inner = [one[key] for one in found if isinstance(one, dict) and key in one]
            found = [each for one in inner for each in (one if isinstance(one, list) else [one])]
        for one in found:
            if isinstance(one, dict) and before in one:
                one.setdefault(now, one.pop(before))
    validate_document(document, schema, path, fix)
    return document
