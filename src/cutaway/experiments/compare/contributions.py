"""Contribution of each test example to the metric by which models are compared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ...core.errors import SettingError
from ...statistics.intervals import MAX_BLOCKS, MIN_BLOCKS, block_sums
from ...tasks.classification import Classification
from ...tasks.forecasting import Forecasting
from ...tasks.language import Language
from ...tasks.regression import Regression
from ...tasks.task import Task

Values = NDArray[np.float64]
Finish = Callable[[Values], Values]


@dataclass(frozen=True)
class ComparisonMetric:
    """Metric of a comparison: f(mean over examples of their contributions)."""

    key: str  # key of the metric
    higher_is_better: bool
    finish: Finish | None
    of: Callable[[Tensor, Tensor], Values]  # outputs and targets to contributions, (n,)
    note: str = ""  # note on the examples
    overlap: int = 1  # windows that begin within one horizon


def metric_for_task(task: Task) -> ComparisonMetric:
    """Return the metric for models of a task. Raises SettingError if its metric is not a mean over examples."""
    if type(task) is Classification:
        return ComparisonMetric(
            "accuracy", True, None, lambda outputs, target: _to_numpy(task.decide(outputs) == target)
        )
    if isinstance(task, Regression):

        def squared(outputs: Tensor, target: Tensor) -> Values:
            return _to_numpy(task.values(outputs) - task.in_units(target)) ** 2

        return ComparisonMetric("rmse", False, np.sqrt, squared)
    if isinstance(task, Forecasting):

        def of_blocks(outputs: Tensor, target: Tensor) -> Values:
            error = _to_numpy(outputs.double() - target.double()) * task.unit
            error = error.reshape(len(error), -1)
            squares, count = np.nansum(error**2, axis=1), (~np.isnan(error)).sum(1)
            sums = block_sums(np.stack([squares, count], 1), task.overlap)
            if len(sums) < MIN_BLOCKS:
                sums = sums.sum(0, keepdims=True)
            return np.asarray(sums[:, 0] * len(sums) / sums[:, 1].sum())

        note = (
            f"Windows overlap: {MIN_BLOCKS} to {MAX_BLOCKS} blocks of neighbors count as examples, as in "
            "`cutaway evaluate`."
        )
        return ComparisonMetric("rmse", False, np.sqrt, of_blocks, note, task.overlap)
    if type(task) is Language:
        return ComparisonMetric(
            "perplexity", False, np.exp, lambda kept, target: np.nanmean(_to_numpy(kept[..., 0]), axis=1)
        )
    raise SettingError(
        "compare supports classification, regression, forecasting and language modelling, and the task of this data "
        f"is {task.name}: train each model, and compare the intervals of `cutaway evaluate`."
    )


def _to_numpy(values: Tensor) -> Values:
    found: Values = values.double().cpu().numpy()
    return found
