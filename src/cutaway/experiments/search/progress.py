"""Progress of a search: a line for each trial that ends, and a progress bar on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ...core.errors import printable, shorten
from ...core.metric_names import metric
from ...draw.number_format import count, number, percent
from ...tasks.task import HIGHER_IS_BETTER
from .result import best_row
from .trial import DIVERGED, FINISHED, PRUNED, REJECTED

if TYPE_CHECKING:
    import rich.progress

STYLES = {FINISHED: "", PRUNED: "dim", REJECTED: "dim", DIVERGED: "red"}


class SearchProgress:
    """Progress of one process of a search on standard error. Used as a context manager."""

    def __init__(self, shown: bool = True) -> None:
        self.shown = shown
        self._bar: rich.progress.Progress | None = None
        self._told = 0  # rows that were printed

    def __enter__(self) -> SearchProgress:
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
            self._task = self._bar.add_task("", total=1)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar:
            self._bar.stop()

    def begin(self, trials: int, metric_name: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Start a search with `trials` trials. `rows` have ended already."""
        self._trials, self._metric, self._told = trials, metric_name, len(rows)
        self._rows: Sequence[Mapping[str, Any]] = rows
        if rows:
            self.note(f"{count(sum(row['state'] != REJECTED for row in rows))} of {trials} trials are already done.")
        self._update("")

    def note(self, sentence: str) -> None:
        """Print a note."""
        self._line(f"note: {sentence}")

    def trial(self, number: int, given: Mapping[str, Any]) -> None:
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
        new, self._rows = rows[self._told :], rows
        self._told = len(rows)
        for row in new:
            self._line(self.said(row), STYLES[row["state"]])
        self._update("")

    def said(self, row: Mapping[str, Any]) -> str:
        """Return a trial as one line."""
        if row["state"] == REJECTED:
            return f"{row['trial']:>5}  rejected: {shorten(row['why'], 64)}"
        score = format_score(self._metric, row[self._metric]) if row[self._metric] is not None else ""
        if row["state"] != FINISHED:
            score = f"{row['state']} {score}".strip()
        told = ("trial", "state", self._metric, "epochs", "seconds", "macs", "parameters", "work", "why", "cell")
        drawn = " ".join(f"{key.removeprefix('model.')}={format_drawn(row[key])}" for key in row if key not in told)
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

    def _line(self, said: str, style: str = "") -> None:
        if self._bar:
            self._bar.console.print(printable(said), style=style or None, markup=False, highlight=False)
        elif self.shown:
            print(printable(said), file=sys.stderr, flush=True)


def format_score(name: str, value: float) -> str:
    """Format a score."""
    return percent(value) if metric(name)[1] == "fraction" else number(value)


def format_drawn(value: Any) -> str:
    """Format a drawn value in few characters."""
    if isinstance(value, float):
        return f"{value:.4g}"
    return shorten(value, 40)
