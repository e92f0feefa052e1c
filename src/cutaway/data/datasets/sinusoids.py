"""Sinusoid regression for meta-learning: each task is a function known at a few points.

After C. Finn, P. Abbeel, S. Levine, Model-agnostic meta-learning for fast adaptation of deep networks, 2017, section
5.1 <https://arxiv.org/abs/1703.03400>:

    y = A sin(x − φ),   A uniform in [0.1, 5], φ in [0, π], x in [−5, 5]

In an episode all points belong to one sinusoid. Without episodes each point belongs to another one, and a model learns
the mean over all of them.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from ...core.spec import Episodes, TableSpec, Value
from ..build import DataSource, build_dataset
from ..dataset_base import Batch, DataSet, Split
from ..episodes import COUNTS, SingleExamples
from ..modalities import reject_changed
from ..settings import DataSettings
from ..tables.column_types import Numeric
from ..tables.transforms import TablePreprocessing
from ..text.masking import uniform
from .catalog import NamedSet, Request

AMPLITUDES, PHASES, INPUTS = (0.1, 5.0), (0.0, math.pi), (-5.0, 5.0)
ROWS = {"train": 10_000, "val": 2_000, "test": 10_000}  # without episodes
NOT_THESE = ("val", "test", "fold", "split_seed", "max_samples", "ways", "ignore", "types", "group", "missing", "scale")

NAMED = {
    "sinusoids": NamedSet(
        title="Sinusoids: functions of one number, each learned from a few points",
        kind="table",
        task="regression",
        sizes="as many sinusoids as are asked for, 1 column",
        licence="none needed: it is computed here",
        citation="C. Finn, P. Abbeel, S. Levine, Model-agnostic meta-learning, 2017",
        target="y",
    )
}


class SinusoidSplit(Split):
    """A split of sinusoids, each with `points` points.

    Example i depends on the seed and i, or on `as_read` without a seed.

    A batch of E has inputs (E · points, 1) and targets (E, points), or (E,) if `row` is set, with one point for each.
    """

    def __init__(
        self, count: int, points: int, as_read: int, row: bool = False, target: Episodes | None = None
    ) -> None:
        self.count, self.points, self.as_read, self.rows, self.episodes = count, points, as_read, row, target
        self.target = self._points(torch.arange(count), as_read)[1]

    def __len__(self) -> int:
        return self.count

    def again(self, target: Episodes) -> SinusoidSplit:
        """Return the same number of episodes with another form."""
        return SinusoidSplit(self.count, target.size, self.as_read, target=target)

    def alone(self) -> Split:
        """Return a split of single points."""
        return SingleExamples(SinusoidSplit(self.count, 1, self.as_read, row=True))

    def batches(self, order: Iterable[Tensor], seed: int | None = None) -> Iterator[Batch]:
        """Yield the batches of these examples, generated from the seed."""
        for index in order:
            x, y = self._points(index, self.as_read if seed is None else seed)
            yield Batch((x.view(-1, 1),), y)

    def name(self, i: int) -> str:
        """Return the number of the sinusoid and its formula."""
        amplitude, phase = (float(v[0]) for v in self.functions(torch.tensor([i])))
        return f"sinusoid {i}: {amplitude:.2f} sin(x − {phase:.2f})"

    def row(self, i: int) -> dict[str, str] | None:
        """Return the point of a single-point example, otherwise None."""
        if not self.rows:
            return None
        x, y = self._points(torch.tensor([i]), self.as_read)
        return {"x": f"{x.item():.6g}", "y": f"{y.item():.6g}"}

    def functions(self, index: Tensor, seed: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Return amplitude and phase of these examples, (E,) each."""
        seed, places = self.as_read if seed is None else seed, index.cpu().numpy()
        return tuple(  # type: ignore[return-value]
            low + (high - low) * uniform(seed, places, draw) for draw, (low, high) in enumerate((AMPLITUDES, PHASES))
        )

    def _points(self, index: Tensor, seed: int) -> tuple[Tensor, Tensor]:
        """Generate the points x (E, points) of these examples, and y."""
        amplitude, phase = (v[:, None] for v in self.functions(index, seed))
        places = index.cpu().numpy()[:, None] * self.points + np.arange(self.points)
        x = INPUTS[0] + (INPUTS[1] - INPUTS[0]) * uniform(seed, places, 2)
        y = amplitude * np.sin(x - phase)
        found = (torch.from_numpy(v).float() for v in (x, y[:, 0] if self.rows else y))
        return tuple(found)  # type: ignore[return-value]


def open_sinusoids(request: Request) -> DataSet:
    """Load sinusoids, in episodes if the model learns from these."""
    settings, episodic = request.settings, Episodes in request.targets
    reject_changed(settings, NOT_THESE, "would change nothing: sinusoids are drawn as they are needed")
    reject_changed(replace(settings, target=None if settings.target == "y" else settings.target), ("target",),
                   "is no number to predict of sinusoids, whose y is")  # fmt: skip
    target: Value | Episodes = Episodes(0, settings.shots, settings.queries, column="value of a sinusoid")
    if not episodic:
        target = Value("y")
    counts, points = (COUNTS, target.size) if isinstance(target, Episodes) else (ROWS, 1)
    numeric = Numeric("x", "number", "", fill=0.0, missing=False, mean=0.0, scale=1.0)
    splits: dict[str, Split] = {
        name: SinusoidSplit(count, points, k, not episodic, target if isinstance(target, Episodes) else None)
        for k, (name, count) in enumerate(counts.items())
    }
    notes = ["Sinusoids are drawn anew in every epoch of training; those of validation and test are always the same."]
    preprocessing = TablePreprocessing(TableSpec(("x",), target), (numeric,))
    # The digest covers the generation parameters, because values may differ in the last bit between machines.
    parameters = f"sinusoids {AMPLITUDES} {PHASES} {INPUTS} {counts} {points}"
    digest = hashlib.sha256(parameters.encode()).hexdigest()
    return build_dataset(
        DataSource(request.name, request.name, digest, notes), DataSettings(), digest, preprocessing, splits
    )


OPENERS = {"sinusoids": open_sinusoids}
