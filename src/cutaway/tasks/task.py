"""What is learned: a task turns raw outputs into a loss, into figures and into words."""

from __future__ import annotations

from typing import Any, Protocol

from torch import Tensor

from ..errors import SettingError
from ..spec import Classes, Spec
from .classification import Classification
from .measures import Measure
from .regression import Regression


class Task(Protocol):
    """The contract of all tasks. Outputs are what the model's forward gives, (N, outputs)."""

    name: str
    watch: str  # the validation figure that decides which weights are best
    higher_is_better: bool
    loss_name: str

    def loss(self, outputs: Tensor, target: Tensor) -> Tensor:
        """The loss summed over the batch: divide by `count` for the mean."""
        ...

    def count(self, target: Tensor) -> float:
        """What the summed loss is to be divided by: examples, or their weights' sum."""
        ...

    def losses(self, outputs: Tensor, target: Tensor) -> Tensor:
        """(N,) each example's loss, without weights and smoothing: what ranks the worst mistakes."""
        ...

    def wrong_sides(self, outputs: Tensor, target: Tensor) -> int:
        """How many examples the perceptron rule would correct: those with a score that is not on its right side."""
        ...

    def quick(self, outputs: Tensor, target: Tensor) -> dict[str, float]:
        """The figures to watch while training."""
        ...

    def measures(self, outputs: Tensor, target: Tensor) -> dict[str, Measure]:
        """The figures of record, each with its 95 % interval."""
        ...

    def details(self, outputs: Tensor, target: Tensor) -> dict[str, Any]:
        """What the report draws: confusion and per-class figures, or predicted and actual values."""
        ...

    def baseline(self, train_target: Tensor, target: Tensor) -> dict[str, Any]:
        """The score of the simplest guess: {"name", "value"}, on the scale of `watch`."""
        ...

    def predictions(self, outputs: Tensor) -> list[dict[str, Any]]:
        """One row an example, in words and units: what `predict` writes."""
        ...

    def mistakes(self, outputs: Tensor, target: Tensor) -> list[dict[str, Any]]:
        """One row an example: actual and predicted in words, confidence, loss and whether it is wrong."""
        ...


def task_for(
    spec: Spec,
    loss: str | None = None,
    label_smoothing: float = 0.0,
    class_weights: Tensor | None = None,
) -> Task:
    """The task that the target of `spec` asks for. Raises SettingError for a loss that it cannot have."""
    if isinstance(spec.target, Classes):
        loss = loss or "cross_entropy"
        if loss not in Classification.LOSSES:
            raise SettingError(f"loss={loss} is not for classes: choose from {', '.join(Classification.LOSSES)}.")
        return Classification(spec.target, loss, label_smoothing, class_weights)
    loss = loss or "mse"
    if loss not in Regression.LOSSES:
        raise SettingError(f"loss={loss} is not for numbers: choose from {', '.join(Regression.LOSSES)}.")
    if label_smoothing or class_weights is not None:
        raise SettingError(
            f"label_smoothing and class_weights are for classes, and {spec.target.column} is a number: leave them out."
        )
    return Regression(spec.target, loss)
