"""What a search has found: its trials as rows, the best, the front, the winner's run."""

from __future__ import annotations

import functools
import html
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import optuna
from torch import nn

from ...checkpoints.factory import Made
from ...core.errors import FileError
from ...core.schema import naming
from ...data.in_memory.source import Given
from ...draw.html_page import framed
from ...runs.run import Run
from ...tasks.task import HIGHER_IS_BETTER
from .samplers import distributions, pruner_for
from .space import Space, space_of
from .spec import named
from .storage import ABOUT, BEST, CELL, OUTCOME, REPORT, open_study, read_about, read_trials
from .trial import FINISHED

Row = dict[str, Any]


class Search:
    """The folder of a search, opened. Nothing is read before it is asked for, and nothing is trained."""

    def __init__(self, folder: str | Path, given: Given | None = None, made: Made | None = None) -> None:
        """`given` is the data, where it was given in Python, and `made` what makes modules of one's own."""
        self.folder, self._given, self._made = Path(folder), given, made
        self.about = read_about(self.folder)

    def __repr__(self) -> str:
        return f"Search({str(self.folder)!r})"

    @property
    def metric(self) -> str:
        """What trials are compared by, on the validation split."""
        return str(self.about["metric"])

    @property
    def higher_is_better(self) -> bool:
        """Whether more of it is better."""
        return self.metric in HIGHER_IS_BETTER

    @property
    def report(self) -> Path:
        """The page."""
        return self.folder / REPORT

    @functools.cached_property
    def study(self) -> optuna.Study:
        """Optuna's study, for what stands in no row."""
        return open_study(self.folder, self.about["directions"], pruner_for("none", 1))

    @functools.cached_property
    def space(self) -> Space:
        """What is searched."""
        with naming(self.folder / ABOUT):
            return space_of(named(self.about), self.about["space"], {})

    @functools.cached_property
    def trials(self) -> list[Row]:
        """A row for each trial that ended, in their order: number, state (finished, pruned, rejected, diverged), the
        settings that were drawn, the metric, epochs, seconds, macs, parameters, work and why."""
        return rows_of(self.study, self.space, self.metric)

    @property
    def finished(self) -> list[Row]:
        """The trials that were trained to their end."""
        return [row for row in self.trials if row["state"] == FINISHED]

    @property
    def best(self) -> Row | None:
        """The finished trial with the best validation metric; of equal ones the one with fewer MACs, then the first."""
        return best_of(self.finished, self.metric, self.higher_is_better)

    @property
    def front(self) -> list[Row]:
        """The finished trials that no other beats in both metric and MACs, cheapest first."""
        return front_of(self.finished, self.metric, self.higher_is_better)

    @property
    def run(self) -> Run:
        """The winner, trained and tested. Raises FileError while there is none."""
        if not (self.folder / BEST / "run.json").is_file():
            raise FileError(f"{self.folder} has no winner yet: cutaway search --resume {self.folder}")
        run = Run(self.folder / BEST, self._module())
        return run if self._given is None else run.hand_over(self._given)

    def _module(self) -> nn.Module | None:
        """A new module of one's own by the settings of the winner, to hold its weights; none of a named model."""
        if self._made is None:
            return None
        row = next(row for row in self.trials if row["trial"] == read_about(self.folder)["tested"][-1])
        settings = {**self.about["fixed"], **{key: row[key] for key in self.space.texts()}}
        return self._made.new(settings)[0]

    def importances(self) -> dict[str, float]:
        """What fraction of the variance of the metric each searched setting explains by itself: fANOVA.

        F. Hutter, H. Hoos, K. Leyton-Brown, An efficient approach for assessing hyperparameter importance, ICML 2014.
        Of the finished trials, as Optuna computes it; empty where fewer than four finished, or all came out alike.
        """
        values = {row[self.metric] for row in self.finished}
        if len(self.finished) < 4 or len(values) < 2:
            return {}
        evaluator = optuna.importance.FanovaImportanceEvaluator(seed=0)
        found = optuna.importance.get_param_importances(
            self.study,
            evaluator=evaluator,
            params=list(distributions(self.space)),
            target=lambda trial: float(trial.values[0]),
        )
        return {name: float(value) for name, value in found.items()}

    def _repr_html_(self) -> str:
        """The page in a frame of its own, or its name where there is none yet."""
        if not self.report.is_file():
            return html.escape(repr(self))
        return framed(repr(self), self.report.read_text(encoding="utf-8"))


def rows_of(study: optuna.Study, space: Space, metric: str) -> list[Row]:
    """A row for each trial of a study that ended, and was not killed."""
    rows: list[Row] = []
    for trial in read_trials(study, distributions(space)):
        outcome = trial.user_attrs[OUTCOME]
        values = trial.values or []
        last = trial.intermediate_values[max(trial.intermediate_values)] if trial.intermediate_values else None
        row = {
            "trial": trial.number,
            "state": outcome["state"],
            **space.given(trial.params),
            metric: values[0] if values else last,
            **{key: outcome[key] for key in ("epochs", "seconds", "macs", "parameters", "work", "why")},
        }
        rows.append(row | ({CELL: trial.user_attrs[CELL]} if CELL in trial.user_attrs else {}))
    return rows


def best_of(rows: Sequence[Mapping[str, Any]], metric: str, higher: bool) -> Row | None:
    """The row with the best metric; of equal ones that with the fewest MACs, then the first."""
    sign = -1 if higher else 1
    ranked = sorted(rows, key=lambda row: (sign * row[metric], row["macs"] or 0, row["trial"]))
    return dict(ranked[0]) if ranked else None


def front_of(rows: Sequence[Mapping[str, Any]], metric: str, higher: bool) -> list[Row]:
    """The Pareto front: rows than which no other is as good in metric and MACs and better in one, cheapest first. Of
    rows that are equal in both the first is taken; those whose MACs are not known are left out."""
    sign = -1 if higher else 1
    known = [row for row in rows if row["macs"] is not None]
    front: list[Row] = []
    for row in sorted(known, key=lambda row: (row["macs"], sign * row[metric], row["trial"])):
        if not front or sign * row[metric] < sign * front[-1][metric]:
            front.append(dict(row))
    return front
