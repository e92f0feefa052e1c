"""What a comparison found: its folder, opened."""

from __future__ import annotations

import functools
import html
from pathlib import Path
from typing import Any

from ...draw.html_page import framed
from ...statistics.comparison import ranks
from ...statistics.intervals import Metric
from .storage import REPORT, read_about

Row = dict[str, Any]


class Comparison:
    """A comparison's folder.

    results[0]["models"] are rows, best first, with value, low, high, the score of each seed, seconds, parameters;
    results[0]["differences"] every pair, with whether it can be told apart.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.about: dict[str, Any] = read_about(folder)

    def __repr__(self) -> str:
        return f"Comparison({str(self.folder)!r})"

    @property
    def report(self) -> Path:
        """The page."""
        return self.folder / REPORT

    @property
    def results(self) -> list[dict[str, Any]]:
        """What was found on each data set."""
        return list(self.about["results"])

    @property
    def best(self) -> Row:
        """The model with the best score on the first data set; others may not be told apart from it."""
        return dict(self.results[0]["models"][0])

    def difference(self, a: str, b: str, result: dict[str, Any] | None = None) -> Row | None:
        """What is said of the pair, as a less b; None where they were not both compared."""
        for pair in (result or self.results[0])["differences"]:
            if (pair["a"], pair["b"]) == (a, b):
                return dict(pair)
            if (pair["a"], pair["b"]) == (b, a):
                low, high = (None if end is None else -end for end in (pair["high"], pair["low"]))
                turned = {"a": a, "b": b, "value": -pair["value"], "low": low, "high": high}
                return {**pair, **turned, "probability": 1 - pair["probability"]}
        return None

    def equals(self, result: dict[str, Any]) -> list[str]:
        """The best model of a result, and those that cannot be told apart from it."""
        names = [row["name"] for row in result["models"]]
        found = [self.difference(names[0], name, result) for name in names[1:]]
        return [names[0], *(name for name, pair in zip(names[1:], found) if pair and not pair["told_apart"])]

    @functools.cached_property
    def ranks(self) -> dict[str, Metric]:
        """The mean rank of each model over the data sets, 1 the best; empty where there is one data set."""
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
        """The page in a frame of its own, or its name where there is none yet."""
        if not self.report.is_file():
            return html.escape(repr(self))
        return framed(repr(self), self.report.read_text(encoding="utf-8"))
