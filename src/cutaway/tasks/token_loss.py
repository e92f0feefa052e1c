"""The cross-entropy of tokens that are predicted one after another, whatever they are of."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from ..data.sets import IGNORED


class TokenLoss:
    """Outputs (N, T, V) are logits, the target (N, T) is the right token at each place, IGNORED where there is none."""

    label_smoothing: float

    def loss(self, outputs: Tensor, target: Tensor) -> Tensor:
        """The loss summed over all tokens that are not IGNORED, (), in one fused call."""
        return F.cross_entropy(
            outputs.flatten(0, 1),  # (N·T, V)
            target.flatten(),
            ignore_index=IGNORED,
            reduction="sum",
            label_smoothing=self.label_smoothing,
        )

    def count(self, target: Tensor) -> float:
        """The tokens that are not IGNORED."""
        return int((target != IGNORED).sum())
