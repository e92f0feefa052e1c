"""What a person sees while a model learns: a bar on the terminal, nothing where standard error is none."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import rich.progress

    from .checkpoint import State

DRAW_EVERY = 0.1  # seconds: often enough to look alive, too seldom to slow a step


class Progress:
    """The bar of one run. Used as a context; every call is cheap."""

    def __init__(self, shown: bool | None = None) -> None:
        self._shown = sys.stderr.isatty() if shown is None else shown
        self._bar: rich.progress.Progress | None = None
        self._drawn = 0.0
        self._epoch = ""

    def __enter__(self) -> Progress:
        if self._shown:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
            from rich.progress import Progress as Bar

            self._bar = Bar(
                TextColumn("{task.description}"),
                BarColumn(bar_width=None),
                MofNCompleteColumn(),
                TextColumn("{task.fields[rate]}"),
                TimeRemainingColumn(compact=True),
                console=Console(stderr=True),
            )
            self._bar.start()
            self._task = self._bar.add_task("", total=1, rate="")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar:
            self._bar.stop()

    def epoch(self, epoch: int, epochs: int, batches: int, done: int) -> None:
        """An epoch of so many batches begins, with `done` of them behind it."""
        self._epoch = f"epoch {epoch + 1}/{epochs}"
        self._began, self._first, self._batches = time.perf_counter(), done, batches
        self._offset, self._total = epoch * batches, epochs * batches

    def step(self, state: State, loss: float) -> None:
        """A step is done."""
        if self._bar is None:
            return
        now = time.perf_counter()
        if now - self._drawn < DRAW_EVERY:
            return
        self._drawn = now
        rate = (state.batch - self._first) / max(now - self._began, 1e-9)
        self._bar.update(
            self._task,
            description=f"{self._epoch}  loss {loss:.4f}",
            completed=self._offset + state.batch,
            total=self._total,
            rate=f"{rate:.1f} steps/s",
        )

    def epoch_done(self, row: dict[str, Any]) -> None:
        """An epoch is done: its line stays above the bar."""
        if self._bar is None:
            return
        figures = [f"{k.replace('_', ' ')} {v:.5g}" for k, v in row.items() if k.startswith(("train_", "val_"))]
        self._bar.console.print(f"[dim]{self._epoch:>12}[/]  {'  '.join(figures)}", highlight=False)
        self._bar.update(self._task, completed=self._offset + self._batches, total=self._total)
