"""Self-supervised learning, evaluated by k-nearest-neighbor classification of features.

A network that is trained on views of images or on masked patches (`training/objectives/simclr.py` and `mae.py`) has no
predictions of its own. Its features, the input of its head, are evaluated by the k nearest training images, as in
Z. Wu, Y. Xiong, S. X. Yu, D. Lin, Unsupervised feature learning via non-parametric instance discrimination, 2018,
section 3.4 <https://arxiv.org/abs/1805.01978>:

    w_c = Σ_{i among the k nearest of class c} exp(s_i / τ),   s the cosine similarity, τ = 0.07

The class with the largest w_c is the prediction. Classes are used for this evaluation only.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from ..core.spec import Classes, Unlabelled
from ..statistics.intervals import Metric
from .classification import Classification

K, TEMPERATURE = 20, 0.07
AT_ONCE = 1 << 24  # largest number of similarities in memory


class Contrastive(Classification):
    """k-nearest-neighbor classification among the training images, and its metrics."""

    NOUN = "views"
    name = "contrastive learning"
    headline = "knn_accuracy"
    default_monitor = "loss"
    monitors = ("loss",)
    LOSSES: tuple[str, ...] = ("nt_xent",)
    OPTIONS: tuple[str, ...] = ("loss",)
    of_features = True  # `summarize_outputs` takes features, the input of the head

    def __init__(self, target: Unlabelled, loss: str = "nt_xent") -> None:
        super().__init__(Classes(target.names, "class"), "cross_entropy")
        self.loss_name = loss
        self._known: tuple[Tensor, Tensor] | None = None

    @property
    def remembers(self) -> bool:
        """True if the training images are stored."""
        return self._known is not None

    def remember(self, features: Tensor, target: Tensor) -> None:
        """Store the training images, among which neighbors are searched: features (n, D) and classes (n,)."""
        self._known = F.normalize(features.float(), dim=1), target

    def summarize_outputs(self, features: Tensor, target: Tensor) -> Tensor:
        """Return log fractions of w, (N, K), for a batch's features (N, D); the features until training images are
        stored.
        """
        if self._known is None:
            return features
        known, classes = (x.to(features.device) for x in self._known)
        x = F.normalize(features.float(), dim=1)
        votes = x.new_zeros(len(x), len(self.target.names))
        rows = max(1, AT_ONCE // len(known))
        for start in range(0, len(x), rows):
            some = slice(start, start + rows)
            with torch.autocast(x.device.type, enabled=False):  # bfloat16 has too few digits to rank neighbors
                near, which = (x[some] @ known.T).topk(min(K, len(known)), 1)  # (n, k)
            votes[some].scatter_add_(1, classes[which], ((near - 1) / TEMPERATURE).exp())
        return (votes / votes.sum(1, keepdim=True)).clamp(min=1e-6).log()

    def probabilities(self, outputs: Tensor) -> Tensor | None:
        """Return the fractions of w, (N, K)."""
        return outputs.double().softmax(1)

    def metrics(self, outputs: Tensor, target: Tensor) -> dict[str, Metric]:
        """Return the k-NN accuracy and the metrics that follow from it."""
        found = super().metrics(outputs, target)
        own = {k: v for k, v in found.items() if k not in ("accuracy", "calibration_error", "loss")}
        return {"knn_accuracy": found["accuracy"], **own}

    def _reported_losses(self, outputs: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(outputs, target, reduction="none")


class MaskedPatches(Contrastive):
    """k-nearest-neighbor classification for a network that is trained on masked patches."""

    NOUN = "masked patches"
    name = "masked autoencoding"
    LOSSES: tuple[str, ...] = ("mse",)
