"""Rows of metrics.csv, the log of training.

    epoch,step,lr,train_loss,val_loss,val_accuracy,seconds
    1,7,0.001,2.251,,,0.41          within epoch 1: the columns of validation are empty, or filled as at the end
    1,14,0.00098,1.873,1.702,0.53,0.8
    1,20,0.00096,1.544,1.498,0.61,1.2   the last row of an epoch, with validation

`epoch` is the current epoch, counted from 1; the last row of each epoch is its end. `step` is the number of optimizer
steps, `lr` the learning rate of the last one, `train_loss` the mean loss of the steps since the previous row, and
`seconds` the training time, over all sessions. Every epoch ends with a row. If that gives fewer than 20 rows, there are
rows within epochs too: one for each twentieth of the training, by steps or by the time budget, whichever has progressed
further. Validation is run for these rows if it is cheap.

TensorBoard logging.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..core.errors import FileError
from ..core.files import error_reason, is_unmoved
from .checkpoint import TrainingState

POINTS = 20  # smallest number of points on a curve, if there are that many steps
CHEAP = 2  # least training examples between two validations for each validation example


def is_due(state: TrainingState, in_all: int, an_epoch: int, seconds: float) -> bool:
    """Return whether a row within the epoch is due after the last step.

    `in_all` is the number of steps of the training, `an_epoch` that of an epoch, and `seconds` the time budget, 0 for
    none.
    """

    if in_all >= POINTS * an_epoch and not seconds:  # there are enough epochs
        return False

    def twentieths(step: int, time: float) -> int:
        by_steps = step / in_all if in_all < POINTS * an_epoch else 0.0
        return int(POINTS * max(by_steps, time / seconds if seconds else 0.0))

    last = state.history[-1] if state.history else {}
    return twentieths(state.update, state.seconds) > twentieths(last.get("step", 0), last.get("seconds", 0.0))


def is_cheap(state: TrainingState, an_epoch: int, train: int, val: int) -> bool:
    """Return whether validation on `val` examples is cheap compared with training since the last validation.

    `train` is the number of examples in an epoch.
    """
    validated = (row["step"] for row in reversed(state.history) if any(key.startswith("val_") for key in row))
    return (state.update - next(validated, 0)) / an_epoch * train >= CHEAP * val


def add_row(state: TrainingState, scores: Mapping[str, float]) -> dict[str, Any]:
    """Add a row for the current state, with the validation metrics if there are any."""
    counted = state.counted - state.row_counted
    row = {
        "epoch": state.epoch + 1,
        "step": state.update,
        "lr": state.lr,
        "train_loss": (state.loss_sum - state.row_loss_sum) / counted if counted else float("nan"),
        **{f"val_{key}": value for key, value in scores.items()},
        "seconds": round(state.seconds, 3),
    }
    state.row_loss_sum, state.row_counted = state.loss_sum, state.counted
    state.history.append(row)
    return row


class TensorBoardWriter:
    """Writer of TensorBoard's event file, which does nothing if it is not `wanted`."""

    def __init__(self, folder: Path, wanted: bool) -> None:
        self.folder = folder
        self.writer: Any = None
        self._new: Any = None
        if wanted:
            from torch.utils.tensorboard import SummaryWriter

            self._new = SummaryWriter

    def __enter__(self) -> TensorBoardWriter:
        return self

    def __exit__(self, *error: object) -> None:
        if self.writer is None:
            return
        try:
            self.writer.close()
        except OSError as failed:
            if error[0] is None:  # do not hide the original error
                raise self._unwritten(failed) from failed

    def write(self, row: Mapping[str, Any]) -> None:
        """Add one point to the curve of every number in the row.

        Points that an earlier session wrote for this step and later ones, before it was killed, are hidden. Raises
        FileError if the file cannot be written.
        """
        try:
            if self._new is not None and not is_unmoved(self.folder):  # TensorBoard would create it again
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
            if self._new is not None and self.writer is None:
                self.writer = self._new(self.folder, purge_step=row["step"])
            if self.writer is not None:
                for key, value in row.items():
                    if key not in ("epoch", "step"):
                        self.writer.add_scalar(key, value, row["step"], time.time())
        except OSError as failed:
            raise self._unwritten(failed) from failed

    def _unwritten(self, failed: OSError) -> FileError:
        return FileError(
            f"TensorBoard's file in {self.folder} could not be written: {error_reason(failed)}. Free some space, "
            "or leave that file out (tensorboard=false)."
        )
