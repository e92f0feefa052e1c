"""Few-shot learning: episodes of new classes or functions, each learned from a few examples.

The queries of an episode are evaluated after adaptation to its support set: by gradient descent where the target has an
`inner_lr` (MAML), else by prototypes (`nn.few_shot`). Metrics are means over episodes, and intervals are those for new
episodes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..core.spec import Episodes
from ..nn.few_shot import maml_outputs, negative_squared_distances, prototypes
from ..statistics.intervals import Metric, mean, share


class FewShot:
    """Cross-entropy and accuracy of the queries' classes, or squared error of function values."""

    NOUN = "episodes"
    name = "few-shot learning"
    LOSSES: tuple[str, ...] = ("episodes",)
    OPTIONS: tuple[str, ...] = ("loss",)

    def __init__(self, target: Episodes, loss: str = "episodes") -> None:
        self.target = target
        self.loss_name = loss
        self.default_monitor = "accuracy" if target.ways else "mse"
        self.monitors: tuple[str, ...] = (self.default_monitor, "loss")

    def run_model(self, model: nn.Module, x: Tensor, target: Tensor, first_order: bool = False) -> Tensor:
        """Return the model's outputs (E, Q, K) for the queries of E episodes, after adaptation to their support sets.

        x (E · n, …) has the examples of one episode after another, with the support set first. target (E, n) has their
        classes or values, of which only those of the support set are used.
        """
        episodes = x.reshape(len(target), self.target.size, *x.shape[1:])  # (E, n, …)
        support, queries = episodes[:, : self.target.support], episodes[:, self.target.support :]
        return self.adapt_and_predict(model, support, target[:, : self.target.support], queries, first_order)

    def adapt_and_predict(
        self, model: nn.Module, support: Tensor, y: Tensor, queries: Tensor, first_order: bool = False
    ) -> Tensor:
        """Return the outputs (E, Q, K) for queries (E, Q, …), given a support set (E, M, …) with classes or values y
        (E, M).

        The number of examples per class is arbitrary.
        """
        told = self.target
        if told.inner_lr is not None:
            lr, steps = told.inner_lr, told.inner_steps
            return maml_outputs(model, support, y, queries, self.inner_loss, lr, steps, first_order)
        together = torch.cat([support, queries], 1)  # (E, n, …)
        h: Tensor = model.features(together.flatten(0, 1))  # type: ignore[operator]
        h = h.view(*together.shape[:2], -1)  # (E, n, D)
        return negative_squared_distances(h[:, y.shape[1] :], prototypes(h[:, : y.shape[1]], y, told.ways))

    def inner_loss(self, outputs: Tensor, target: Tensor) -> Tensor:
        """Return the mean loss of outputs (M, K) on one episode's support set, ()."""
        return F.cross_entropy(outputs, target) if self.target.ways else F.mse_loss(outputs[:, 0], target)

    def summarize_outputs(self, outputs: Tensor, target: Tensor) -> Tensor:
        """Return what evaluation stores: the outputs for the queries."""
        del target
        return outputs

    def summarize_target(self, target: Tensor) -> Tensor:
        """Return the targets that evaluation stores of (E, n): those of the queries, (E, Q)."""
        return target[:, self.target.support :]

    def loss_denominator(self, target: Tensor) -> float:
        """Return the number of queries in a batch."""
        return len(target) * (self.target.size - self.target.support)

    def loss(self, outputs: Tensor, target: Tensor) -> Tensor:
        """Return the loss summed over the queries, (); the last columns of the targets (E, n) or (E, Q) belong to
        them.
        """
        return self.losses(outputs, target).sum() * outputs.shape[1]

    def losses(self, outputs: Tensor, target: Tensor) -> Tensor:
        """Return the mean loss of each episode, (E,)."""
        target = target[:, -outputs.shape[1] :]
        if not self.target.ways:
            return (outputs[..., 0] - target).square().mean(1)
        return F.cross_entropy(outputs.mT, target, reduction="none").mean(1)

    def right(self, outputs: Tensor, target: Tensor) -> Tensor:
        """Return the accuracy of each episode's queries, (E,) float64."""
        return (outputs.argmax(2) == target).double().mean(1)

    def fast_metrics(self, outputs: Tensor, target: Tensor) -> dict[str, float]:
        """Return accuracy or mean squared error, and the loss."""
        loss = self.losses(outputs, target).double().mean().item()
        if not self.target.ways:
            return {"mse": loss, "loss": loss}
        return {"accuracy": self.right(outputs, target).mean().item(), "loss": loss}

    def metrics(self, outputs: Tensor, target: Tensor) -> dict[str, Metric]:
        """Return accuracy and loss, or the mean squared error, which is the loss: means over episodes."""
        loss = mean(self.losses(outputs, target).double().cpu().numpy(), noun="episode")
        if not self.target.ways:
            return {"mse": loss, "loss": loss}
        right = self.right(outputs, target).cpu().numpy()
        return {"accuracy": share(right, np.ones_like(right), "episode"), "loss": loss}

    def details(self, outputs: Tensor, target: Tensor) -> dict[str, Any]:
        """Return nothing: episodes have different classes."""
        del outputs, target
        return {}

    def baseline(self, train_target: Tensor, target: Tensor) -> dict[str, Any]:
        """Return the accuracy of a random guess, or the squared error of always predicting 0."""
        del train_target
        if self.target.ways:
            return {"name": "a guess", "value": 1 / self.target.ways}
        return {"name": "always 0", "value": target.double().square().mean().item()}

    def predictions(self, outputs: Tensor) -> list[dict[str, Any]]:
        """Return one row per episode, with the prediction of each query."""
        answers = outputs.argmax(2) if self.target.ways else outputs[..., 0]
        return [{f"query {i}": said for i, said in enumerate(row)} for row in answers.tolist()]

    def example_results(self, outputs: Tensor, target: Tensor) -> list[dict[str, Any]]:
        """Return one row per episode: its number of correct queries, or its error."""
        losses, queries = self.losses(outputs, target).tolist(), outputs.shape[1]
        if not self.target.ways:
            said = [(f"{queries} points", f"a squared error of {loss:.4g}", True) for loss in losses]
        else:
            counts = (self.right(outputs, target) * queries).round().int().tolist()
            said = [(f"{queries} queries", f"{right} right", right < queries) for right in counts]
        return [
            {"actual": actual, "predicted": predicted, "confidence": None, "loss": loss, "wrong": wrong}
            for (actual, predicted, wrong), loss in zip(said, losses)
        ]
