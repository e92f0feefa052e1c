"""The rows of metrics.csv: how training went, point by point.

    epoch,step,lr,train_loss,val_loss,val_accuracy,seconds
    1,7,0.001,2.251,,,0.41          within epoch 1: the columns of validation are empty, or filled as at an end
    1,14,0.00098,1.873,1.702,0.53,0.8
    1,20,0.00096,1.544,1.498,0.61,1.2   the last row of an epoch is its end: it has been validated

`epoch` is the running epoch, counted from 1, so that the last row with a number is the end of that epoch; `step` the
optimizer steps that are done; `lr` the learning rate of the last of them; `train_loss` the mean loss of the steps since
the row before; `seconds` those of training, over all sittings. Every epoch ends with a row. Where that gives fewer than
20, there are rows within the epochs too: one for each twentieth of the training, by steps or by the time budget,
whichever is further. They are validated where that is cheap.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .checkpoint import State

POINTS = 20  # that curves have at least, where there are so many steps
CHEAP = 2  # training examples, for each one that is validated, that lie between two validations at least


def is_due(state: State, in_all: int, an_epoch: int, seconds: float) -> bool:
    """Whether there is to be a row within the epoch after the step that was just done, of `in_all`, of which `an_epoch`
    make an epoch; `seconds` are the time budget, 0 where there is none."""

    if in_all >= POINTS * an_epoch and not seconds:  # the ends of epochs are enough
        return False

    def twentieths(step: int, time: float) -> int:
        by_steps = step / in_all if in_all < POINTS * an_epoch else 0.0
        return int(POINTS * max(by_steps, time / seconds if seconds else 0.0))

    last = state.history[-1] if state.history else {}
    return twentieths(state.update, state.seconds) > twentieths(last.get("step", 0), last.get("seconds", 0.0))


def is_cheap(state: State, an_epoch: int, train: int, val: int) -> bool:
    """Whether so many of `train` examples were learned from since the last validation that to validate on `val` takes
    no time worth speaking of."""
    validated = (row["step"] for row in reversed(state.history) if any(key.startswith("val_") for key in row))
    return (state.update - next(validated, 0)) / an_epoch * train >= CHEAP * val


def add_row(state: State, scores: Mapping[str, float]) -> dict[str, Any]:
    """Add the row of where training stands, with the metrics on the validation split if there are any."""
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
