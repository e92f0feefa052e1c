"""Result and progress of a search: trials, the best trial, the Pareto front and the winner's run."""

from __future__ import annotations

import contextlib
import functools
import logging
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import optuna
from torch import nn

from ...checkpoints.factory import ModuleBuilder
from ...core.errors import NotARunError, shorten
from ...core.log import redirect
from ...core.metric_names import metric
from ...core.schema import name_document_in_errors
from ...data.in_memory.source import InMemorySource
from ...draw.number_format import count, number, percent
from ...runs.run import Run
from ...tasks.task import HIGHER_IS_BETTER
from ..experiment import Experiment, ExperimentProgress, Row, pareto_front
from .samplers import distributions, pruner_for
from .space import Space, parse_space
from .storage import (
    BEST,
    CELL,
    DIVERGED,
    DOCUMENT,
    FINISHED,
    OUTCOME,
    PRUNED,
    REJECTED,
    model_from_document,
    open_study,
    read_search,
    read_trials,
)

if TYPE_CHECKING:
    import rich.progress


class Search(Experiment):
    """Opened folder of a search. Nothing is read before it is needed, and nothing is trained."""

    def __init__(
        self, folder: str | Path, given: InMemorySource | None = None, made: ModuleBuilder | None = None
    ) -> None:
        """Open a folder. `given` is data that was given in Python, and `made` the maker of custom modules."""
        super().__init__(folder, read_search(folder))
        self._given, self._made = given, made

    @property
    def metric(self) -> str:
        """Return the metric on the validation split by which trials are compared."""
        return str(self.about["metric"])

    @property
    def higher_is_better(self) -> bool:
        """Return whether a higher metric is better."""
        return self.metric in HIGHER_IS_BETTER

    @functools.cached_property
    def study(self) -> optuna.Study:
        """Return the Optuna study."""
        return open_study(self.folder, self.about["directions"], pruner_for("none", 1))

    @functools.cached_property
    def space(self) -> Space:
        """Return the search space."""
        with name_document_in_errors(self.folder / DOCUMENT):
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
        return pareto_front(self.finished, "macs", self.metric, self.higher_is_better)

    @property
    def run(self) -> Run:
        """Return the trained and tested winner. Raises FileError if the search has no winner yet."""
        if not (self.folder / BEST / "run.json").is_file():
            raise NotARunError(f"{self.folder} has no best run yet. Finish it: cutaway search --resume {self.folder}")
        run = Run(self.folder / BEST, self._module())
        return run if self._given is None else run.set_data(self._given)

    def _module(self) -> nn.Module | None:
        """Build a custom module with the settings of the winner, to load its weights. None for a named model."""
        if self._made is None:
            return None
        row = next(row for row in self.trials if row["trial"] == read_search(self.folder)["tested"][-1])
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
            **space.to_settings(trial.params),
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


STYLES = {FINISHED: "", PRUNED: "dim", REJECTED: "dim", DIVERGED: "red"}


class SearchProgress(ExperimentProgress):
    """Progress of one process of a search on standard error. Used as a context manager."""

    def __init__(self, shown: bool = True) -> None:
        super().__init__(shown)
        self._bar: rich.progress.Progress | None = None
        self._redirected = contextlib.ExitStack()
        self._printed = 0  # rows that were printed

    def __enter__(self) -> SearchProgress:
        """Show a progress bar if standard error is a terminal."""
        if self.shown and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
            from rich.progress import Progress as Bar

            self._bar = Bar(
                MofNCompleteColumn(),
                BarColumn(bar_width=18),
                TextColumn("{task.description}", markup=False),
                TimeElapsedColumn(),
                console=Console(stderr=True),
            )
            self._bar.start()
            self._redirected.enter_context(redirect(self._print_above_bar))
            self._task = self._bar.add_task("", total=1)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._redirected.close()
        if self._bar:
            self._bar.stop()

    def begin(self, trials: int, metric_name: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Start a search with `trials` trials. `rows` have ended already."""
        self._trials, self._metric, self._printed = trials, metric_name, len(rows)
        self._rows: Sequence[Mapping[str, Any]] = rows
        if rows:
            self.note(f"{count(sum(row['state'] != REJECTED for row in rows))} of {trials} trials are already done.")
        self._update("")

    def trial(self, number: int) -> None:
        """Report that a trial begins."""
        self._update(f"trial {number}")

    def supernet(self, done: int, of: int) -> None:
        """Report a finished epoch of the supernet."""
        self._update(f"supernet, epoch {done}/{of}")

    def epoch(self, number: int, epoch: int, score: float) -> None:
        """Report a finished epoch of a trial."""
        self._update(f"trial {number}, epoch {epoch}: {format_score(self._metric, score)}")

    def trial_done(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Report that a trial ended. `rows` are all ended trials, including those of other processes."""
        new, self._rows = rows[self._printed :], rows
        self._printed = len(rows)
        for row in new:
            self._line(self.format_row(row), STYLES[row["state"]])
        self._update("")

    def format_row(self, row: Mapping[str, Any]) -> str:
        """Return a trial as one line."""
        if row["state"] == REJECTED:
            return f"{row['trial']:>5}  rejected: {shorten(row['why'], 64)}"
        score = format_score(self._metric, row[self._metric]) if row[self._metric] is not None else ""
        if row["state"] != FINISHED:
            score = f"{row['state']} {score}".strip()
        told = ("trial", "state", self._metric, "epochs", "seconds", "macs", "parameters", "work", "why", "cell")
        drawn = " ".join(f"{key.removeprefix('model.')}={format_sampled(row[key])}" for key in row if key not in told)
        why = f" ({shorten(row['why'], 60)})" if row["state"] == DIVERGED else ""
        best = " *" if row["trial"] == self._best_number() else ""
        return f"{row['trial']:>5}  {score + best:<10}  {drawn}{why}"

    def _best_number(self) -> int | None:
        finished = [row for row in self._rows if row["state"] == FINISHED]
        best = best_row(finished, self._metric, self._metric in HIGHER_IS_BETTER)
        return best["trial"] if best else None

    def _update(self, doing: str) -> None:
        if not self._bar:
            return
        done = sum(row["state"] != REJECTED for row in self._rows)
        number = self._best_number()
        best = next((row[self._metric] for row in self._rows if row["trial"] == number), None)
        said = f"best {metric(self._metric)[0]} {format_score(self._metric, best)}  " if best is not None else ""
        self._bar.update(self._task, completed=done, total=self._trials, description=said + doing)

    def _print_above_bar(self, record: logging.LogRecord) -> None:
        """Print a message above the bar."""
        assert self._bar is not None
        style = getattr(record, "shown", {}).get("style")
        self._bar.console.print(record.getMessage(), style=style or None, markup=False, highlight=False)


def format_score(name: str, value: float) -> str:
    """Format a score."""
    return percent(value) if metric(name)[1] == "fraction" else number(value)


def format_sampled(value: Any) -> str:
    """Format a sampled value in few characters."""
    if isinstance(value, float):
        return f"{value:.4g}"
    return shorten(value, 40)
