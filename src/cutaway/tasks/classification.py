"""One of several classes: outputs (N, K) are logits or scores, (N, 1) the one score of two classes."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..nn import losses
from ..spec import Classes
from .measures import Measure, mean, share


class Classification:
    """Cross-entropy (or the model's own criterion), accuracy, and figures for each class."""

    name = "classification"
    watch = "accuracy"
    higher_is_better = True
    LOSSES = ("cross_entropy", "perceptron", "map", "half_squared_error", "mse")

    def __init__(
        self,
        target: Classes,
        loss: str = "cross_entropy",
        label_smoothing: float = 0.0,
        class_weights: Tensor | None = None,
    ) -> None:
        self.target = target
        self.loss_name = loss
        self.label_smoothing = label_smoothing
        self.class_weights = class_weights

    def loss(self, outputs: Tensor, target: Tensor) -> Tensor:
        """The loss summed over the batch, (); targets are classes (N,) or shares of them (N, K)."""
        if self.loss_name == "cross_entropy":
            weights = self.class_weights.to(outputs) if self.class_weights is not None else None
            return losses.cross_entropy(
                outputs, target, label_smoothing=self.label_smoothing, class_weights=weights
            ).sum()
        return losses.LOSSES[self.loss_name](outputs, self._as_loss_wants(outputs, target)).sum()

    def count(self, target: Tensor) -> float:
        """The examples in the batch, or the sum of their classes' weights."""
        if self.class_weights is None:
            return len(target)
        return losses.counted(target, self.class_weights.to(target.device)).sum().item()

    def losses(self, outputs: Tensor, target: Tensor) -> Tensor:
        """Each example's loss, (N,)."""
        return losses.LOSSES[self.loss_name](outputs, self._as_loss_wants(outputs, target))

    def wrong_sides(self, outputs: Tensor, target: Tensor) -> int:
        """Examples with a score that is not above 0 for their class, or not below 0 for another."""
        score_is_for = torch.arange(outputs.shape[1], device=target.device) + (outputs.shape[1] == 1)  # (K,)
        margin = torch.where(target[:, None] == score_is_for, outputs, -outputs)  # (N, K)
        return int((margin <= 0).any(1).sum())

    def decide(self, outputs: Tensor) -> Tensor:
        """The class of each example, (N,): the largest output, or class 1 where the one output is above 0."""
        return (outputs[:, 0] > 0).long() if outputs.shape[1] == 1 else outputs.argmax(1)

    def probabilities(self, outputs: Tensor) -> Tensor | None:
        """(N, K) probabilities where the outputs are trained to be some; None for a perceptron's scores."""
        if self.loss_name not in ("cross_entropy", "map"):
            return None
        if outputs.shape[1] == 1:
            p = outputs[:, 0].double().sigmoid()
            return torch.stack([1 - p, p], dim=1)  # (N, 2)
        return outputs.double().softmax(1)

    def quick(self, outputs: Tensor, target: Tensor) -> dict[str, float]:
        """Accuracy."""
        return {"accuracy": (self.decide(outputs) == target).double().mean().item()}

    def measures(self, outputs: Tensor, target: Tensor) -> dict[str, Measure]:
        """Accuracy and, over classes, balanced accuracy and F1; loss. Intervals: Wilson, resampling, normal."""
        right = (self.decide(outputs) == target).sum().item()
        confusion = self._confusion(outputs, target)
        recall, f1 = _recall_and_f1(_resample(confusion))
        present = confusion.sum(1) > 0
        value_recall, value_f1 = _recall_and_f1(confusion[None])
        return {
            "accuracy": share(right, len(target)),
            "balanced_accuracy": _spread(value_recall[0, present].mean(), np.nanmean(recall[:, present], axis=1)),
            "macro_f1": _spread(value_f1[0, present].mean(), np.nanmean(f1[:, present], axis=1)),
            "loss": mean(self.losses(outputs, target).double().cpu().numpy()),
        }

    def details(self, outputs: Tensor, target: Tensor) -> dict[str, Any]:
        """Confusion (rows are what it was, columns what was said) and precision, recall and F1 for each class."""
        confusion = self._confusion(outputs, target)
        _, f1 = _recall_and_f1(_resample(confusion))
        _, value_f1 = _recall_and_f1(confusion[None])
        rows = []
        for k, name in enumerate(self.target.names):
            right, was, said = confusion[k, k], confusion[k].sum(), confusion[:, k].sum()
            rows.append(
                {
                    "name": name,
                    "count": int(was),
                    "precision": share(right, said).to_json(),
                    "recall": share(right, was).to_json(),
                    "f1": _spread(value_f1[0, k], f1[:, k]).to_json(),
                }
            )
        return {"classes": {"names": list(self.target.names), "confusion": confusion.tolist(), "per_class": rows}}

    def baseline(self, train_target: Tensor, target: Tensor) -> dict[str, Any]:
        """The accuracy of always saying the training part's commonest class."""
        commonest = train_target.mode().values
        name = f"always {self.target.names[int(commonest)]!r}, the commonest class"
        return {"name": name, "value": (target == commonest).double().mean().item()}

    def predictions(self, outputs: Tensor) -> list[dict[str, Any]]:
        """The class of each example, and the probability (or score) of every class."""
        decided = self.decide(outputs).tolist()
        probabilities = self.probabilities(outputs)
        scores = (probabilities if probabilities is not None else outputs.double()).tolist()
        word = "probability" if probabilities is not None else "score"
        names = self.target.names if len(scores[0]) == len(self.target.names) else self.target.names[1:]
        return [
            {
                self.target.column: self.target.names[k],
                **({"probability": row[k]} if probabilities is not None else {}),
                **{f"{word} {name}": p for name, p in zip(names, row)},
            }
            for k, row in zip(decided, scores)
        ]

    def mistakes(self, outputs: Tensor, target: Tensor) -> list[dict[str, Any]]:
        """What each example was and what was said of it."""
        decided = self.decide(outputs)
        probabilities = self.probabilities(outputs)
        sure = probabilities.gather(1, decided[:, None])[:, 0].tolist() if probabilities is not None else None
        rows = zip(decided.tolist(), target.tolist(), self.losses(outputs, target).tolist())
        return [
            {
                "actual": self.target.names[actual],
                "predicted": self.target.names[said],
                "confidence": sure[i] if sure else None,
                "loss": loss,
                "wrong": said != actual,
            }
            for i, (said, actual, loss) in enumerate(rows)
        ]

    def _as_loss_wants(self, outputs: Tensor, target: Tensor) -> Tensor:
        """Squared errors compare with one-hot rows; the other criteria take classes."""
        if self.loss_name in ("half_squared_error", "mse") and not target.is_floating_point():
            width = outputs.shape[1]
            if width == 1:
                return target[:, None].to(outputs.dtype)  # (N, 1)
            return torch.nn.functional.one_hot(target, width).to(outputs.dtype)  # (N, K)
        return target

    def _confusion(self, outputs: Tensor, target: Tensor) -> NDArray[np.int64]:
        size = len(self.target.names)
        cells = target.cpu() * size + self.decide(outputs).cpu()
        return cells.bincount(minlength=size * size).reshape(size, size).numpy()


def _resample(confusion: NDArray[np.int64], resamples: int = 1000) -> NDArray[np.int64]:
    """(B, K, K) confusion matrices of resampled examples: to resample examples is to draw the cells' counts anew."""
    total = confusion.sum()
    rng = np.random.default_rng(0)
    drawn = rng.multinomial(total, (confusion / total).ravel(), size=resamples)
    return drawn.reshape(resamples, *confusion.shape)


def _recall_and_f1(confusion: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Per class, (B, K) each: recall = right/was (NaN where nothing was), F1 = 2 right/(was + said)."""
    right = np.diagonal(confusion, axis1=1, axis2=2).astype(np.float64)
    was, said = confusion.sum(2), confusion.sum(1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return right / was, 2 * right / (was + said)


def _spread(value: float, resampled: NDArray[np.float64]) -> Measure:
    """A value with the middle 95 % of its resamples."""
    if np.isnan(resampled).all():
        return Measure(float(value), float("nan"), float("nan"))
    low, high = np.nanpercentile(resampled, [2.5, 97.5])
    return Measure(float(value), float(low), float(high))
