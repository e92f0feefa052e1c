"""A model that was made smaller beside the one that it was: its score, and what it costs to answer.

Times are medians of turns that the models take one after the other, so that a machine that grows slower does so for
each of them.
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
from ..tasks.task import headline_of
from ..training.pruning import sparsity_of
from ..training.timing import in_turns

SIZES = (1, 32)  # of the batches that are timed


@dataclass(frozen=True)
class Measured:
    """What one model scores and costs."""

    run: str
    metric: str  # the task's own
    score: Metric
    parameters: int
    sparsity: float  # the fraction of weights of linear, convolutional and recurrent layers that are 0
    bytes: int  # of the files of its weights
    milliseconds: dict[int, float]  # by the size of the batch: the median of several turns

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {**asdict(self), "score": self.score.to_json()}


def beside(runs: Sequence[Run]) -> list[Measured]:
    """What the model of each of these runs on the same data scores on its test split, and costs."""
    data = runs[0].data()
    split = data.splits.get("test") or data.splits.get("val") or data.splits["train"]
    models = [run.place.model(run.model, learns=False) for run in runs]
    times: list[dict[int, float]] = [{} for _ in runs]
    for size in SIZES:
        (batch,) = split.batches([torch.arange(min(size, len(split)))])
        inputs, _ = runs[0].place.batch(batch)
        with torch.inference_mode():
            medians = in_turns([partial(model, *inputs) for model in models])
        for of_model, median in zip(times, medians):
            of_model[size] = median
    watch = headline_of(runs[0].task)
    return [
        Measured(
            str(run.folder),
            watch,
            run.evaluate()[watch],
            run.about["parameters"],
            sparsity_of(model),
            sum(file.stat().st_size for file in Path(run.folder, "model").glob("*.safetensors")),
            milliseconds,
        )
        for run, model, milliseconds in zip(runs, models, times)
    ]
