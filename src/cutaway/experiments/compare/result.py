"""Comparison of models: its folder, document, progress and result.

compare.json             the settings and results
DATA/MODEL/seed-0/       a run
DATA/MODEL/search/       earlier trials, with trials=N
report.html              the report
"""

from __future__ import annotations

import functools
import threading
from pathlib import Path
from typing import Any

from ...core.schema import COUNT, NUMBER, Between, validate_document, write_document
from ...statistics.comparison import ranks
from ...statistics.intervals import Metric
from ..experiment import Experiment, ExperimentProgress, Row, read_experiment


class Comparison(Experiment):
    """Result of a comparison.

    `results[0]["models"]` are rows, best first, with value, low, high, the score of each seed, seconds and parameters.
    `results[0]["differences"]` is every pair, with its significance.
    """

    def __init__(self, folder: str | Path) -> None:
        super().__init__(folder, read_comparison(folder))

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


class CompareProgress(ExperimentProgress):
    """Progress of one comparison on standard error."""

    def __init__(self, shown: bool = True) -> None:
        super().__init__(shown)
        self._turn = threading.Lock()
        self._done = self._of = 0

    def begin(self, of: int, done: int) -> None:
        """Start with `of` trainings, of which `done` are finished already."""
        self._done, self._of = done, of
        if done:
            self.note(f"{done} of {of} trainings are already done.")

    def trained(self, said: str) -> None:
        """Report that a training has ended."""
        with self._turn:
            self._done += 1
            self._line(f"{self._done:>4}/{self._of}  {said}")


DOCUMENT = "compare.json"

FIGURE = NUMBER | None  # null means infinite or unknown
INTERVAL_SCHEMA = {"value": NUMBER, "low": FIGURE, "high": FIGURE}
MODEL_SCHEMA = {
    "name": str,
    "simple": bool,
    "explanation": str,
    **INTERVAL_SCHEMA,
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
DIFFERENCE_SCHEMA = {
    "a": str, "b": str, **INTERVAL_SCHEMA, "probability": NUMBER, "p_value": NUMBER, "p_corrected": NUMBER,
    "told_apart": bool,
}  # fmt: skip
RESULT_SCHEMA = {
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
    "models": [MODEL_SCHEMA, ...],  # best first
    "differences": [DIFFERENCE_SCHEMA],
    "excluded": [{"model": str, "why": str}],
    "notes": [str],
    "own_settings": dict,  # of the data, by a model's card
    "chosen": dict,  # of training, by its trials
    "tells_joules": bool,
    "jobs": int,
    "done": bool,
}
DOCUMENT_SCHEMA = {
    "models": [str, ...],
    "own?": {...: str},  # models that are built in Python, and the functions that build them
    "data": [str, ...],
    "in_memory": [str],  # names of data that were given in Python
    "given": dict,
    "compare": {
        "seeds": Between(1, 2**31 - 1),
        "trials": COUNT,
        "macs": NUMBER | None,
        "jobs": int | None,
        "baselines": bool,
    },
    "threads": int,
    "status": str,
    "cutaway": str,
    "torch": str,
    "started": str,
    "results": [RESULT_SCHEMA],
}
# Output of `cutaway compare --json`. Several data sets also have ranks.
PRINTED_SCHEMA = {**DOCUMENT_SCHEMA, "comparison": str, "report": str, "ranks?": {...: INTERVAL_SCHEMA}}


def read_comparison(folder: str | Path) -> dict[str, Any]:
    """Read compare.json of a folder. Raises FileError if it is missing or invalid."""
    about = read_experiment(folder, "compare", DOCUMENT, ("models", "data"))
    validate_document(about, DOCUMENT_SCHEMA, Path(folder) / DOCUMENT, "Restore it from a backup, or compare again.")
    return about


def write_comparison(folder: Path, about: dict[str, Any]) -> None:
    """Write compare.json atomically."""
    write_document(folder / DOCUMENT, about, DOCUMENT_SCHEMA)
