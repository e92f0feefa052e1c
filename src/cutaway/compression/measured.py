"""A model that was made smaller beside the one that it was: its score, and what it costs to answer.

Times are medians of turns that the models take one after the other, so that a machine that grows slower does so for
each of them.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..tasks.metrics import Metric
from ..tasks.task import headline_of
from ..training.pruning import sparsity_of
from ..training.run import Run

SIZES = (1, 32)  # of the batches that are timed
SECONDS, TURNS = 1.0, 50  # that a size of batch is measured for at most


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
        for of_model, median in zip(times, in_turns(models, inputs)):
            of_model[size] = median
    watch = headline_of(runs[0].task)
    return [
        Measured(
            str(run.folder),
            watch,
            run.evaluate()[watch],
            sum(p.numel() for p in model.parameters()),
            sparsity_of(model),
            sum(file.stat().st_size for file in Path(run.folder, "model").glob("*.safetensors")),
            milliseconds,
        )
        for run, model, milliseconds in zip(runs, models, times)
    ]


@torch.inference_mode()
def in_turns(models: Sequence[nn.Module], inputs: tuple[Tensor, ...]) -> list[float]:
    """The median milliseconds that each model takes for this batch."""
    spent: list[list[float]] = [[] for _ in models]
    for model in models:
        model(*inputs)  # what is made once is made now
    end = time.perf_counter() + SECONDS
    while len(spent[0]) < 3 or (len(spent[0]) < TURNS and time.perf_counter() < end):
        for model, times in zip(models, spent):
            began = time.perf_counter()
            model(*inputs)
            times.append(1000 * (time.perf_counter() - began))
    return [statistics.median(times) for times in spent]
