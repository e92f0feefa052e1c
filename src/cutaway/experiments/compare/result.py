"""Comparison of models: its settings, progress, folder and result.

Settings of training and data are given in addition and apply to all models. The folder holds

    compare.json             the settings and results
    DATA/MODEL/seed-0/       a run
    DATA/MODEL/search/       earlier trials, with trials=N
    report.html              the report
"""

from __future__ import annotations

import functools
import html
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...core.config import setting
from ...core.errors import printable
from ...core.schema import NUMBER, validate_document, write_document
from ...draw.html_page import render_iframe
from ...statistics.comparison import ranks
from ...statistics.intervals import Metric
from ...training.run_folder import create_group_folder, read_group_document

Row = dict[str, Any]


class Comparison:
    """Result of a comparison.

    `results[0]["models"]` are rows, best first, with value, low, high, the score of each seed, seconds and parameters.
    `results[0]["differences"]` is every pair, with its significance.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.about: dict[str, Any] = read_about(folder)

    def __repr__(self) -> str:
        return f"Comparison({str(self.folder)!r})"

    @property
    def report(self) -> Path:
        """Return the path of the report."""
        return self.folder / REPORT

    @property
    def results(self) -> list[dict[str, Any]]:
        """Return the result for each data set."""
        return list(self.about["results"])

    @property
    def best(self) -> Row:
        """Return the model with the best score on the first data set.

        The difference from others may not be significant.
        """
        return dict(self.results[0]["models"][0])

    def difference(self, a: str, b: str, result: dict[str, Any] | None = None) -> Row | None:
        """Return the difference of a pair, a minus b, or None if they were not both compared."""
        for pair in (result or self.results[0])["differences"]:
            if (pair["a"], pair["b"]) == (a, b):
                return dict(pair)
            if (pair["a"], pair["b"]) == (b, a):
                low, high = (None if end is None else -end for end in (pair["high"], pair["low"]))
                turned = {"a": a, "b": b, "value": -pair["value"], "low": low, "high": high}
                return {**pair, **turned, "probability": 1 - pair["probability"]}
        return None

    def equals(self, result: dict[str, Any]) -> list[str]:
        """Return the best model of a result and those that do not differ significantly from it."""
        names = [row["name"] for row in result["models"]]
        found = [self.difference(names[0], name, result) for name in names[1:]]
        return [names[0], *(name for name, pair in zip(names[1:], found) if pair and not pair["told_apart"])]

    @functools.cached_property
    def ranks(self) -> dict[str, Metric]:
        """Return the mean rank of each model over the data sets. Rank 1 is the best. Empty with one data set."""
        if len(self.results) < 2:
            return {}
        sign = [1 if result["higher_is_better"] else -1 for result in self.results]
        scores = {
            result["data"]: {row["name"]: s * row["value"] for row in result["models"]}
            for s, result in zip(sign, self.results)
        }
        everywhere = set.intersection(*(set(of) for of in scores.values()))
        kept = {data: {name: v for name, v in of.items() if name in everywhere} for data, of in scores.items()}
        return ranks(kept, higher_is_better=True)

    def _repr_html_(self) -> str:
        """Return the report in a frame, or the repr if there is no report yet."""
        if not self.report.is_file():
            return html.escape(repr(self))
        return render_iframe(repr(self), self.report.read_text(encoding="utf-8"))


class CompareProgress:
    """Progress of one comparison on standard error."""

    def __init__(self, shown: bool = True) -> None:
        self.shown = shown
        self._turn = threading.Lock()
        self._done = self._of = 0

    def begin(self, of: int, done: int) -> None:
        """Start with `of` trainings, of which `done` are finished already."""
        self._done, self._of = done, of
        if done:
            self.note(f"{done} of {of} trainings are already done.")

    def note(self, sentence: str) -> None:
        """Print a note."""
        self._line(f"note: {sentence}")

    def trained(self, said: str) -> None:
        """Report that a training has ended."""
        with self._turn:
            self._done += 1
            self._line(f"{self._done:>4}/{self._of}  {said}")

    def _line(self, said: str) -> None:
        if self.shown:
            print(printable(said), file=sys.stderr, flush=True)


@dataclass(frozen=True)
class CompareSettings:
    """Settings of a comparison."""

    seeds: int = setting(
        3, "trainings of each model, with seeds 0, 1, 2, …; 1 does not measure the variance between trainings", low=1
    )
    trials: int = setting(
        0,
        "hyperparameter trials for each model before the comparison (lr, weight decay, dropout), on the validation "
        "split",
        low=0,
    )
    macs: float | None = setting(
        None, "budget: multiply-adds of all forward passes of a training, converted to a number of steps", low=1.0
    )
    jobs: int | None = setting(
        None, "parallel trainings; auto: 2 if memory and processors allow it. Scores do not depend on it", low=1
    )
    baselines: bool = setting(True, "include baseline models of scikit-learn")


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
    """Return the folder of a comparison, as defined by `create_group_folder`."""
    return create_group_folder(out, "compare", name, ABOUT)


def read_about(folder: str | Path) -> dict[str, Any]:
    """Read compare.json of a folder. Raises FileError if it is missing or invalid."""
    about = read_group_document(folder, "compare", ABOUT, ("models", "data"))
    validate_document(about, COMPARISON, Path(folder) / ABOUT, "Restore it from a backup, or compare again.")
    return about


def write_about(folder: Path, about: dict[str, Any]) -> None:
    """Write compare.json atomically."""
    write_document(folder / ABOUT, about, COMPARISON)
