"""Masked-language modelling: outputs (N, T, V) are logits; the target (N, T) is the token that was hidden, IGNORED
where none was.

J. Devlin et al., BERT, 2018, section 3.1, <https://arxiv.org/abs/1810.04805>

loss = −(1/n) Σ ln p(token | the others), over the n tokens that were chosen, in nats
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ..spec import Masked
from .language import Language


class MaskedLanguage(Language):
    """Cross-entropy of the tokens that were hidden, and how often the likeliest token is the right one."""

    NOUN = "masked tokens"
    name = "masked-language modelling"

    def __init__(self, target: Masked, label_smoothing: float = 0.0) -> None:
        super().__init__(target, label_smoothing)

    def baseline_of(self, counts: Tensor, target: Tensor) -> dict[str, Any]:
        """The loss of predicting each token by how often it occurs in training, (V,), whatever stands around it."""
        found = super().baseline_of(counts, target)
        return {**found, "name": "each token as likely as it is in training, whatever stands around it"}
