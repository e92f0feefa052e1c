"""Classification: outputs (N, K) are logits or scores, (N, 1) the single score of two classes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..core.spec import Classes
from ..nn import losses
from ..statistics.intervals import Metric, mean, proportion
from .calibration import calibration_error
from .confusion import Confusion

CELLS = 1 << 22  # outputs whose losses are computed at a time, to limit memory


class Classification:
    """Cross-entropy or the model's own criterion, accuracy, and metrics of each class."""

    NOUN = "classes"
    name = "classification"
    watch = "accuracy"
    monitors: tuple[str, ...] = ("accuracy", "balanced_accuracy", "macro_f1", "loss")
    TOP = 5  # k of top-k accuracy, computed for more than k classes
    LOSSES: tuple[str, ...] = ("cross_entropy", "perceptron", "map", "half_squared_error", "mse")
    OPTIONS: tuple[str, ...] = ("loss", "label_smoothing", "class_weights")

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
        """Return the loss summed over the batch, (); targets are classes (N,) or class probabilities (N, K)."""
        if outputs.requires_grad and self.loss_name == "cross_entropy":
            return self._cross_entropy(outputs, target, reduction="sum")
        return _some_at_a_time(self._to_learn, outputs, target).sum()

    def count(self, target: Tensor) -> float:
        """Return the number of examples in the batch, or the sum of their class weights."""
        if self.class_weights is None:
            return len(target)
        return losses.example_weights(target, self.class_weights.to(target.device)).sum().item()

    def losses(self, outputs: Tensor, target: Tensor) -> Tensor:
        """Return the loss of each example, (N,)."""
        return _some_at_a_time(self._plain, outputs, target)

    def wrong_sides(self, outputs: Tensor, target: Tensor) -> int:
        """Return the number of examples with a score ≤ 0 for their class, or ≥ 0 for another."""
        score_is_for = torch.arange(outputs.shape[1], device=target.device) + (outputs.shape[1] == 1)  # (K,)
        margin = torch.where(target[:, None] == score_is_for, outputs, -outputs)  # (N, K)
        return int((margin <= 0).any(1).sum())

    def decide(self, outputs: Tensor) -> Tensor:
        """Return the predicted class of each example, (N,): the largest output, or class 1 where the single output is
        above 0.
        """
        return (outputs[:, 0] > 0).long() if outputs.shape[1] == 1 else outputs.argmax(1)

    def probabilities(self, outputs: Tensor) -> Tensor | None:
        """Return probabilities (N, K) if the outputs are trained as such, or None for a perceptron's scores."""
        if self.loss_name not in ("cross_entropy", "map"):
            return None
        if outputs.shape[1] == 1:
            p = outputs[:, 0].double().sigmoid()
            return torch.stack([1 - p, p], dim=1)  # (N, 2)
        return outputs.double().softmax(1)

    def quick(self, outputs: Tensor, target: Tensor) -> dict[str, float]:
        """Return the accuracy."""
        return {"accuracy": (self.decide(outputs) == target).double().mean().item()}

    def metrics(self, outputs: Tensor, target: Tensor) -> dict[str, Metric]:
        """Return accuracy, balanced accuracy, macro F1, top-5 accuracy, calibration error and loss.

        Top-5 accuracy needs more than five classes, calibration error needs probabilities. docs/statistics.md describes
        the intervals.
        """
        top, likely = {}, self.probabilities(outputs[:1]) is not None
        if outputs.shape[1] > self.TOP:
            among = (outputs.topk(self.TOP, 1).indices == target[:, None]).any(1)  # (N,)
            top = {"top5_accuracy": proportion(int(among.sum()), len(target))}
        return {
            **self._confusion(outputs, target).metrics(self.target.names),
            **top,
            **(
                {"calibration_error": calibration_error(self.probabilities, outputs, target)}
                if likely and len(target)
                else {}
            ),
            "loss": mean(self.losses(outputs, target).double().cpu().numpy()),
        }

    def details(self, outputs: Tensor, target: Tensor) -> dict[str, Any]:
        """Return the confusion matrix, and precision, recall and F1 of each class: `Confusion.details`."""
        return {"classes": self._confusion(outputs, target).details(self.target.names)}

    def baseline(self, train_target: Tensor, target: Tensor) -> dict[str, Any]:
        """Return the accuracy of the majority class of the training split."""
        commonest = train_target.mode().values
        name = f"always {self.target.names[int(commonest)]!r}, the commonest class"
        return {"name": name, "value": (target == commonest).double().mean().item()}

    def predictions(self, outputs: Tensor) -> list[dict[str, Any]]:
        """Return the predicted class of each example, and the probability or score of every class."""
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
        """Return the actual and the predicted class of each example."""
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

    def _plain(self, outputs: Tensor, target: Tensor) -> Tensor:
        """Return the reported loss of each example, (N,): neither smoothed nor weighted."""
        return losses.LOSSES[self.loss_name](outputs, self._as_loss_wants(outputs, target))

    def _to_learn(self, outputs: Tensor, target: Tensor) -> Tensor:
        """Return the training loss of each example, (N,)."""
        if self.loss_name != "cross_entropy":
            return self._plain(outputs, target)
        return self._cross_entropy(outputs, target)

    def _cross_entropy(self, outputs: Tensor, target: Tensor, reduction: str = "none") -> Tensor:
        weights = self.class_weights.to(outputs) if self.class_weights is not None else None
        return losses.cross_entropy(
            outputs, target, label_smoothing=self.label_smoothing, class_weights=weights, reduction=reduction
        )

    def _as_loss_wants(self, outputs: Tensor, target: Tensor) -> Tensor:
        """Return one-hot targets for squared errors, and classes for other criteria."""
        if self.loss_name in ("half_squared_error", "mse") and not target.is_floating_point():
            width = outputs.shape[1]
            if width == 1:
                return target[:, None].to(outputs.dtype)  # (N, 1)
            return torch.nn.functional.one_hot(target, width).to(outputs.dtype)  # (N, K)
        return target

    def _confusion(self, outputs: Tensor, target: Tensor) -> Confusion:
        return Confusion(target.cpu().numpy(), self.decide(outputs).cpu().numpy(), len(self.target.names))


def _some_at_a_time(each: Callable[[Tensor, Tensor], Tensor], outputs: Tensor, target: Tensor) -> Tensor:
    """Apply `each` to the examples, (N,): all at once in training, else in chunks.

    In evaluation the outputs can be those of a whole split with very many classes.
    """
    rows = max(1, CELLS // outputs.shape[1])
    if outputs.requires_grad or len(outputs) <= rows:
        return each(outputs, target)
    found = outputs.new_empty(len(outputs))  # preallocated, to avoid fragmentation by many small results
    for start in range(0, len(outputs), rows):
        some = slice(start, start + rows)
        found[some] = each(outputs[some], target[some])
    return found
