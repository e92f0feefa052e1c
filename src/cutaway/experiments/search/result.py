"""Result of a search: trials, the best trial, the Pareto front and the winner's run."""

from __future__ import annotations

import functools
import html
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import optuna
from torch import nn

from ...checkpoints.factory import ModuleBuilder
from ...core.errors import FileError
from ...core.schema import name_document_in_errors
from ...data.in_memory.source import InMemorySource
from ...draw.html_page import render_iframe
from ...runs.run import Run
from ...tasks.task import HIGHER_IS_BETTER
from .samplers import distributions, pruner_for
from .space import Space, parse_space
from .spec import model_from_document
from .storage import ABOUT, BEST, CELL, OUTCOME, REPORT, open_study, read_about, read_trials
from .trial import FINISHED

Row = dict[str, Any]


class Search:
    """Opened folder of a search. Nothing is read before it is needed, and nothing is trained."""

    def __init__(
        self, folder: str | Path, given: InMemorySource | None = None, made: ModuleBuilder | None = None
    ) -> None:
        """Open a folder. `given` is data that was given in Python, and `made` the maker of custom modules."""
        self.folder, self._given, self._made = Path(folder), given, made
        self.about = read_about(self.folder)

    def __repr__(self) -> str:
        return f"Search({str(self.folder)!r})"

    @property
    def metric(self) -> str:
        """Return the metric on the validation split by which trials are compared."""
        return str(self.about["metric"])

    @property
    def higher_is_better(self) -> bool:
        """Return whether a higher metric is better."""
        return self.metric in HIGHER_IS_BETTER

    @property
    def report(self) -> Path:
        """Return the path of the report."""
        return self.folder / REPORT

    @functools.cached_property
    def study(self) -> optuna.Study:
        """Return the Optuna study."""
        return open_study(self.folder, self.about["directions"], pruner_for("none", 1))

    @functools.cached_property
    def space(self) -> Space:
        """Return the search space."""
        with name_document_in_errors(self.folder / ABOUT):
            return parse_space(model_from_document(self.about), self.about["space"], {})

    @functools.cached_property
    def trials(self) -> list[Row]:
        """Return a row for each ended trial, in order.

        Keys are number, state (finished, pruned, rejected, diverged), the drawn settings, the metric, epochs, seconds,
        macs, parameters, work and why.
        """
        return trial_rows(self.study, self.space, self.metric)

    @property
    def finished(self) -> list[Row]:
        """Return the trials that were trained completely."""
        return [row for row in self.trials if row["state"] == FINISHED]

    @property
    def best(self) -> Row | None:
        """Return the finished trial with the best validation metric, then that with fewer MACs, then the first."""
        return best_row(self.finished, self.metric, self.higher_is_better)

    @property
    def front(self) -> list[Row]:
        """Return the Pareto front of metric and MACs among finished trials, cheapest first."""
        return pareto_front(self.finished, self.metric, self.higher_is_better)

    @property
    def run(self) -> Run:
        """Return the trained and tested winner. Raises FileError if the search has no winner yet."""
        if not (self.folder / BEST / "run.json").is_file():
            raise FileError(f"{self.folder} has no best run yet. Finish it: cutaway search --resume {self.folder}")
        run = Run(self.folder / BEST, self._module())
        return run if self._given is None else run.hand_over(self._given)

    def _module(self) -> nn.Module | None:
        """Build a custom module with the settings of the winner, to load its weights. None for a named model."""
        if self._made is None:
            return None
        row = next(row for row in self.trials if row["trial"] == read_about(self.folder)["tested"][-1])
        settings = {**self.about["fixed"], **{key: row[key] for key in self.space.texts()}}
        return self._made.new(settings)[0]

    def importances(self) -> dict[str, float]:
        """Return the fraction of the metric's variance that each searched setting explains alone: fANOVA.

        F. Hutter, H. Hoos, K. Leyton-Brown, An efficient approach for assessing hyperparameter importance, ICML 2014.
        Optuna computes it from the finished trials. Empty if fewer than four finished, or all have the same metric.
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
        """Return the report in a frame, or the repr if there is no report yet."""
        if not self.report.is_file():
            return html.escape(repr(self))
        return render_iframe(repr(self), self.report.read_text(encoding="utf-8"))


def trial_rows(study: optuna.Study, space: Space, metric: str) -> list[Row]:
    """Return a row for each trial of a study that ended and was not killed."""
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


def best_row(rows: Sequence[Mapping[str, Any]], metric: str, higher: bool) -> Row | None:
    """Return the row with the best metric, then that with the fewest MACs, then the first."""
    sign = -1 if higher else 1
    ranked = sorted(rows, key=lambda row: (sign * row[metric], row["macs"] or 0, row["trial"]))
    return dict(ranked[0]) if ranked else None


def pareto_front(rows: Sequence[Mapping[str, Any]], metric: str, higher: bool) -> list[Row]:
    """Return the Pareto front of metric and MACs, cheapest first.

    Of rows that are equal in both the first is kept. Rows with unknown MACs are left out.
    """
    sign = -1 if higher else 1
    known = [row for row in rows if row["macs"] is not None]
    front: list[Row] = []
    for row in sorted(known, key=lambda row: (row["macs"], sign * row[metric], row["trial"])):
        if not front or sign * row[metric] < sign * front[-1][metric]:
            front.append(dict(row))
    return front
