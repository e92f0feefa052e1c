"""Learning without labels, judged by neighbours: what examples have been learned to be like.

A network that learned to tell views of images apart, or masked patches from the others (`training/objectives/simclr.py`
and `mae.py`), answers no question by itself. Whether what its head sees (its features) tells classes apart is shown by
the k training images that are nearest, as in Z. Wu, Y. Xiong, S. X. Yu, D. Lin, Unsupervised feature learning via
non-parametric instance discrimination, 2018, section 3.4 <https://arxiv.org/abs/1805.01978>:

    w_c = Σ_{i among the k nearest of class c} exp(s_i / τ),   s the cosine similarity, τ = 0.07

The class with the largest w_c is the answer. Classes are used for this alone.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from ..core.spec import Classes, Unlabelled
from ..statistics.intervals import Metric
from .classification import Classification

K, TEMPERATURE = 20, 0.07
AT_ONCE = 1 << 24  # similarities that are held


class Contrastive(Classification):
    """The classes of the nearest training images, and metrics of them."""

    NOUN = "views"
    name = "contrastive learning"
    headline = "knn_accuracy"
    watch = "loss"
    monitors = ("loss",)
    LOSSES: tuple[str, ...] = ("nt_xent",)
    OPTIONS: tuple[str, ...] = ("loss",)
    of_features = True  # what is kept is made of what the head sees

    def __init__(self, target: Unlabelled, loss: str = "nt_xent") -> None:
        super().__init__(Classes(target.names, "class"), "cross_entropy")
        self.loss_name = loss
        self._known: tuple[Tensor, Tensor] | None = None

    @property
    def remembers(self) -> bool:
        """Whether it knows the training images."""
        return self._known is not None

    def remember(self, features: Tensor, target: Tensor) -> None:
        """The training images, among which neighbours are looked for: features (n, D) and classes (n,)."""
        self._known = F.normalize(features.float(), dim=1), target

    def keep(self, features: Tensor, target: Tensor) -> Tensor:
        """What evaluation keeps of a batch's features (N, D): log fractions of w, (N, K); until training images are
        remembered, the features."""
        if self._known is None:
            return features
        known, classes = (x.to(features.device) for x in self._known)
        x = F.normalize(features.float(), dim=1)
        votes = x.new_zeros(len(x), len(self.target.names))
        rows = max(1, AT_ONCE // len(known))
        for start in range(0, len(x), rows):
            some = slice(start, start + rows)
            with torch.autocast(x.device.type, enabled=False):  # bfloat16 has too few digits to tell who is nearer
                near, which = (x[some] @ known.T).topk(min(K, len(known)), 1)  # (n, k)
            votes[some].scatter_add_(1, classes[which], ((near - 1) / TEMPERATURE).exp())
        return (votes / votes.sum(1, keepdim=True)).clamp(min=1e-6).log()

    def probabilities(self, outputs: Tensor) -> Tensor | None:
        """(N, K) fractions of w."""
        return outputs.double().softmax(1)

    def metrics(self, outputs: Tensor, target: Tensor) -> dict[str, Metric]:
        """Accuracy of the neighbours' class, and what follows from it."""
        found = super().metrics(outputs, target)
        own = {k: v for k, v in found.items() if k not in ("accuracy", "calibration_error", "loss")}
        return {"knn_accuracy": found["accuracy"], **own}

    def _plain(self, outputs: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(outputs, target, reduction="none")


class MaskedPatches(Contrastive):
    """The same of a network that learned to tell masked patches from the others."""

    NOUN = "masked patches"
    name = "masked autoencoding"
    LOSSES: tuple[str, ...] = ("mse",)
