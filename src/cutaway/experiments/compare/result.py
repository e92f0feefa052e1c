"""Result of a comparison, read from its folder."""

from __future__ import annotations

import functools
import html
from pathlib import Path
from typing import Any

from ...draw.html_page import render_iframe
from ...statistics.comparison import ranks
from ...statistics.intervals import Metric
from .storage import REPORT, read_about

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
