"""Comparison of a compressed model with the original: score and inference time.

Times are medians over rounds in which the models take turns, so that a slowdown of the machine affects all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from ..runs.run import Run
from ..statistics.intervals import Metric
from ..tasks.task import headline_metric
from ..training.pruning import measure_sparsity
from ..training.timing import time_calls

SIZES = (1, 32)  # batch sizes that are timed


@dataclass(frozen=True)
class ModelMeasurement:
    """Score and cost of one model."""

    run: str
    metric: str  # headline metric of the task
    score: Metric
    parameters: int
    sparsity: float  # fraction of zeros in the weights of linear, convolutional and recurrent layers
    bytes: int  # size of the weight files
    milliseconds: dict[int, float]  # by batch size: the median of several rounds

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {**asdict(self), "score": self.score.to_json()}


def compare_runs(runs: Sequence[Run]) -> list[ModelMeasurement]:
    """Evaluate and time the models of runs on the same data. The test split is used if there is one."""
    data = runs[0].data()
    split = data.splits.get("test") or data.splits.get("val") or data.splits["train"]
    models = [run.place.model(run.model, learns=False) for run in runs]
    times: list[dict[int, float]] = [{} for _ in runs]
    for size in SIZES:
        (batch,) = split.batches([torch.arange(min(size, len(split)))])
        inputs, _ = runs[0].place.batch(batch)
        with torch.inference_mode():
            medians = time_calls([partial(model, *inputs) for model in models])
        for of_model, median in zip(times, medians):
            of_model[size] = median
    watch = headline_metric(runs[0].task)
    return [
        ModelMeasurement(
            str(run.folder),
            watch,
            run.evaluate()[watch],
            run.about["parameters"],
            measure_sparsity(model),
            sum(file.stat().st_size for file in Path(run.folder, "model").glob("*.safetensors")),
            milliseconds,
        )
        for run, model, milliseconds in zip(runs, models, times)
    ]
