"""Folder of a comparison: compare.json and the runs of each data set and model.

compare.json             the settings and results DATA/MODEL/seed-0/       a run DATA/MODEL/search/       earlier
trials, with trials=N report.html              the report
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ...core.schema import NUMBER, validate_document, write_document
from ...training.run_folder import create_group_folder, read_group_document

ABOUT, REPORT = "compare.json", "report.html"

FIGURE = NUMBER | None  # null means infinite or unknown
INTERVAL = {"value": NUMBER, "low": FIGURE, "high": FIGURE}
MODEL = {
    "name": str,
    "simple": bool,
    "explanation": str,
    **INTERVAL,
    "scores": [NUMBER, ...],  # of each seed
    "seconds": NUMBER,  # of a training
    "parameters": int | None,
    "macs": int | None,
    "milliseconds": FIGURE,  # for one example
    "joules": FIGURE,
    "memory": int | None,  # bytes
    "epochs?": [int],
    "runs?": [str],
}
DIFFERENCE = {
    "a": str, "b": str, **INTERVAL, "probability": NUMBER, "p_value": NUMBER, "p_corrected": NUMBER, "told_apart": bool,
}  # fmt: skip
RESULT = {
    "data": str,
    "data_name": str,
    "task": str,
    "metric": str,
    "higher_is_better": bool,
    "split": str,
    "count": int,
    "splits": {"train": int, ...: int},
    "fingerprint": str,
    "split_hash": str,
    "budget": str,
    "models": [MODEL, ...],  # best first
    "differences": [DIFFERENCE],
    "excluded": [{"model": str, "why": str}],
    "notes": [str],
    "own_settings": dict,  # of the data, by a model's card
    "chosen": dict,  # of training, by its trials
    "tells_joules": bool,
    "jobs": int,
    "done": bool,
}
COMPARISON = {
    "models": [str, ...],
    "own?": {...: str},  # models that are built in Python, and the functions that build them
    "data": [str, ...],
    "in_memory": [str],  # names of data that were given in Python
    "given": dict,
    "compare": dict,
    "threads": int,
    "status": str,
    "cutaway": str,
    "torch": str,
    "started": str,
    "results": [RESULT],
}
# Output of `cutaway compare --json`. Several data sets also have ranks.
PRINTED = {**COMPARISON, "comparison": str, "report": str, "ranks?": {...: INTERVAL}}


def comparison_folder(out: str | Path | None, name: str) -> Path:
    """Return the folder of a comparison, as defined by `folder_of_several`."""
    return create_group_folder(out, "compare", name, ABOUT)


def read_about(folder: str | Path) -> dict[str, Any]:
    """Read compare.json of a folder. Raises FileError if it is missing or invalid."""
    about = read_group_document(folder, "compare", ABOUT, ("models", "data"))
    validate_document(about, COMPARISON, Path(folder) / ABOUT, "Restore it from a copy, or compare again.")
    return about


def write_about(folder: Path, about: dict[str, Any]) -> None:
    """Write compare.json atomically."""
    write_document(folder / ABOUT, about, COMPARISON)
