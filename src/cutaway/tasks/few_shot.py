"""Few-shot learning: episodes of new classes, or of new functions, each learned from a few examples.

What is judged are the queries of an episode, after the network has learned from its support: by gradient descent where
the target has an `inner_lr` (MAML), else by prototypes (`nn.few_shot`). Metrics are means over episodes, and their
intervals those of further episodes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..core.spec import Episodes
from ..nn.few_shot import adapted_answers, nearness, prototypes
from ..statistics.intervals import Metric, mean, share


class FewShot:
    """Cross-entropy and accuracy of the queries' classes; squared error where a function is learned."""

    NOUN = "episodes"
    name = "few-shot learning"
    LOSSES: tuple[str, ...] = ("episodes",)
    OPTIONS: tuple[str, ...] = ("loss",)

    def __init__(self, target: Episodes, loss: str = "episodes") -> None:
        self.target = target
        self.loss_name = loss
        self.watch = "accuracy" if target.ways else "mse"
        self.monitors: tuple[str, ...] = (self.watch, "loss")

    def asked(self, model: nn.Module, x: Tensor, target: Tensor, first_order: bool = False) -> Tensor:
        """The model's outputs (E, Q, K) for the queries of E episodes, after it has learned from their support.

        x (E · n, …) holds the examples of one episode after another, and target (E, n), of which the part of the
        support is looked at alone, what each is: the support comes first.
        """
        episodes = x.reshape(len(target), self.target.size, *x.shape[1:])  # (E, n, …)
        support, queries = episodes[:, : self.target.support], episodes[:, self.target.support :]
        return self.told(model, support, target[:, : self.target.support], queries, first_order)

    def told(self, model: nn.Module, support: Tensor, y: Tensor, queries: Tensor, first_order: bool = False) -> Tensor:
        """The outputs (E, Q, K) for queries (E, Q, …), of a support (E, M, …) that y (E, M) says the classes or values
        of, however many of each."""
        told = self.target
        if told.inner_lr is not None:
            lr, steps = told.inner_lr, told.inner_steps
            return adapted_answers(model, support, y, queries, self.inner_loss, lr, steps, first_order)
        together = torch.cat([support, queries], 1)  # (E, n, …)
        h: Tensor = model.features(together.flatten(0, 1))  # type: ignore[operator]
        h = h.view(*together.shape[:2], -1)  # (E, n, D)
        return nearness(h[:, y.shape[1] :], prototypes(h[:, : y.shape[1]], y, told.ways))

    def inner_loss(self, outputs: Tensor, target: Tensor) -> Tensor:
        """The mean loss of outputs (M, K) of one episode's support, ()."""
        return F.cross_entropy(outputs, target) if self.target.ways else F.mse_loss(outputs[:, 0], target)

    def keep(self, outputs: Tensor, target: Tensor) -> Tensor:
        """What evaluation keeps: the outputs for the queries."""
        del target
        return outputs

    def keep_target(self, target: Tensor) -> Tensor:
        """What evaluation keeps of the targets (E, n): those of the queries, (E, Q)."""
        return target[:, self.target.support :]

    def count(self, target: Tensor) -> float:
        """The queries in a batch."""
        return len(target) * (self.target.size - self.target.support)

    def loss(self, outputs: Tensor, target: Tensor) -> Tensor:
        """The loss summed over the queries, (); of targets, (E, n) or (E, Q), the last are theirs."""
        return self.losses(outputs, target).sum() * outputs.shape[1]

    def losses(self, outputs: Tensor, target: Tensor) -> Tensor:
        """The mean loss of each episode, (E,)."""
        target = target[:, -outputs.shape[1] :]
        if not self.target.ways:
            return (outputs[..., 0] - target).square().mean(1)
        return F.cross_entropy(outputs.mT, target, reduction="none").mean(1)

    def right(self, outputs: Tensor, target: Tensor) -> Tensor:
        """The fraction of each episode's queries whose class was told right, (E,) float64."""
        return (outputs.argmax(2) == target).double().mean(1)

    def quick(self, outputs: Tensor, target: Tensor) -> dict[str, float]:
        """Accuracy or mean squared error, and the loss."""
        loss = self.losses(outputs, target).double().mean().item()
        if not self.target.ways:
            return {"mse": loss, "loss": loss}
        return {"accuracy": self.right(outputs, target).mean().item(), "loss": loss}

    def metrics(self, outputs: Tensor, target: Tensor) -> dict[str, Metric]:
        """Accuracy and loss, or the mean squared error, which is the loss: means over episodes."""
        loss = mean(self.losses(outputs, target).double().cpu().numpy(), noun="episode")
        if not self.target.ways:
            return {"mse": loss, "loss": loss}
        right = self.right(outputs, target).cpu().numpy()
        return {"accuracy": share(right, np.ones_like(right), "episode"), "loss": loss}

    def details(self, outputs: Tensor, target: Tensor) -> dict[str, Any]:
        """Nothing more: classes of episodes are others in each."""
        del outputs, target
        return {}

    def baseline(self, train_target: Tensor, target: Tensor) -> dict[str, Any]:
        """The accuracy of a guess; the squared error of always saying 0."""
        del train_target
        if self.target.ways:
            return {"name": "a guess", "value": 1 / self.target.ways}
        return {"name": "always 0", "value": target.double().square().mean().item()}

    def predictions(self, outputs: Tensor) -> list[dict[str, Any]]:
        """One row an episode: the answer to each of its queries."""
        answers = outputs.argmax(2) if self.target.ways else outputs[..., 0]
        return [{f"query {i}": said for i, said in enumerate(row)} for row in answers.tolist()]

    def mistakes(self, outputs: Tensor, target: Tensor) -> list[dict[str, Any]]:
        """One row an episode: how many of its queries were told right, or how far off they are."""
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
