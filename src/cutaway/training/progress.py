"""Display of training progress: a progress bar on a terminal, occasional lines in a notebook, a log or a pipe."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ..core.metric_names import column_name

if TYPE_CHECKING:
    import rich.progress

    from .checkpoint import TrainingState

DRAW_EVERY = 0.1  # seconds between updates of the bar
LINES = 20  # approximate number of lines for epochs, without a bar
SILENCE = 10.0  # seconds after which a line is printed in any case


class Progress:
    """Progress display of one run on standard error. It is a context manager, and every call is cheap."""

    def __init__(self, shown: bool = True) -> None:
        self.shown = shown
        self._bar: rich.progress.Progress | None = None
        self._said = time.perf_counter()  # time of the last update or line
        self._epoch = ""

    def __enter__(self) -> Progress:
        self._said = time.perf_counter()
        if self.shown and sys.stderr.isatty():
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

    def note(self, sentence: str) -> None:
        """Print a note at the start of training."""
        if self._bar:
            self._bar.console.print(f"note: {sentence}", markup=False, highlight=False)
        elif self.shown:
            print(f"note: {sentence}", file=sys.stderr, flush=True)

    def epoch(self, epoch: int, epochs: int, batches: int, done: int) -> None:
        """Start an epoch of `batches` batches, `done` of which are done."""
        self._epoch = f"epoch {epoch + 1}/{epochs}"
        self._began, self._first, self._batches = time.perf_counter(), done, batches
        self._offset, self._total = epoch * batches, epochs * batches
        self._is_due = (epoch + 1) * LINES // epochs > epoch * LINES // epochs

    def step(self, state: TrainingState, loss: float) -> None:
        """Report a finished step."""
        now = time.perf_counter()
        if not self.shown or now - self._said < (DRAW_EVERY if self._bar else SILENCE):
            return
        self._said = now
        rate = f"{(state.batch - self._first) / max(now - self._began, 1e-9):.1f} steps/s"
        if self._bar:
            self._bar.update(
                self._task,
                description=f"{self._epoch}  loss {loss:.4f}",
                completed=self._offset + state.batch,
                total=self._total,
                rate=rate,
            )
        else:
            self._line(f"step {state.batch}/{self._batches}  loss {loss:.4f}  {rate}")

    def epoch_done(self, row: dict[str, Any]) -> None:
        """Report a finished epoch. Its line remains above the bar."""
        metrics = [f"{column_name(k)} {v:.5g}" for k, v in row.items() if k.startswith(("train_", "val_"))]
        if self._bar:
            from rich.markup import escape

            self._bar.console.print(f"[dim]{self._epoch:>12}[/]  {escape('  '.join(metrics))}", highlight=False)
            self._bar.update(self._task, completed=self._offset + self._batches, total=self._total)
        elif self.shown and (self._is_due or time.perf_counter() - self._said >= SILENCE):
            self._said = time.perf_counter()
            self._line("  ".join(metrics))

    def _line(self, said: str) -> None:
        print(f"{self._epoch:>12}  {said}", file=sys.stderr, flush=True)
