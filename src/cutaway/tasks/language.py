"""Language modelling: the next token, and masked tokens.

Next token: outputs (N, T, V) are logits, the target (N, T) is the token after each, IGNORED at padding. loss = −(1/n) Σ
ln p(token | those before it), in nats; perplexity = e^loss; bits = loss / ln 2

Masked tokens: outputs (N, T, V) are logits; the target (N, T) is the masked token, IGNORED elsewhere. J. Devlin et al.,
BERT, 2018, section 3.1, <https://arxiv.org/abs/1810.04805> loss = −(1/n) Σ ln p(token | the others), over the n chosen
tokens, in nats
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from ..core.spec import Masked, NextToken
from ..data.dataset_base import IGNORED
from ..statistics.intervals import Metric, ratio, share


class TokenLoss:
    """Base class for outputs (N, T, V), logits, and a target (N, T), the correct token at each position or IGNORED."""

    label_smoothing: float

    def loss(self, outputs: Tensor, target: Tensor) -> Tensor:
        """Return the loss summed over all tokens that are not IGNORED, (), in one fused call."""
        return F.cross_entropy(
            outputs.flatten(0, 1),  # (N·T, V)
            target.flatten(),
            ignore_index=IGNORED,
            reduction="sum",
            label_smoothing=self.label_smoothing,
        )

    def loss_denominator(self, target: Tensor) -> float:
        """Return the number of tokens that are not IGNORED."""
        return int((target != IGNORED).sum())


class Language(TokenLoss):
    """Cross-entropy of the next token, perplexity, bits per token, and accuracy."""

    NOUN = "the next token"
    name = "language modelling"
    default_monitor = "loss"
    monitors: tuple[str, ...] = ("loss", "perplexity", "bits_per_token", "accuracy")
    loss_name = "cross_entropy"
    LOSSES = ("cross_entropy",)
    OPTIONS = ("label_smoothing",)

    def __init__(self, target: NextToken | Masked, label_smoothing: float = 0.0) -> None:
        self.target = target
        self.label_smoothing = label_smoothing

    def summarize_outputs(self, outputs: Tensor, target: Tensor) -> Tensor:
        """Return what evaluation stores, (N, T, 2) float32: loss in nats without smoothing, and 1 for correct tokens.

        Padding is NaN.
        """
        loss = F.cross_entropy(outputs.flatten(0, 1), target.flatten(), ignore_index=IGNORED, reduction="none")
        right = outputs.argmax(2) == target
        kept = torch.stack([loss.view_as(target).float(), right.float()], dim=2)  # (N, T, 2)
        return kept.masked_fill((target == IGNORED)[..., None], torch.nan)

    def fast_metrics(self, kept: Tensor, target: Tensor) -> dict[str, float]:
        """Return the loss in nats per token, and the perplexity."""
        del target
        loss = kept[..., 0].double().nanmean().item()
        return {"loss": loss, "perplexity": _exp(loss)}

    def metrics(self, kept: Tensor, target: Tensor) -> dict[str, Metric]:
        """Return loss, perplexity, bits per token (for characters: per character) and accuracy.

        Confidence intervals treat windows as independent, not tokens, because nearby tokens are correlated. `kept` is
        from `summarize_outputs`.
        """
        del target
        losses, rights, counts = _sums(kept)
        loss = ratio(losses, counts, "window")
        return {
            "loss": loss,
            "perplexity": loss.map(_exp),
            "bits_per_token": loss.map(lambda x: x / math.log(2)),
            "accuracy": share(rights, counts, "window"),
        }

    def details(self, kept: Tensor, target: Tensor) -> dict[str, Any]:
        """Return nothing."""
        del kept, target
        return {}

    def baseline(self, train_target: Tensor, target: Tensor) -> dict[str, Any]:
        """Return the loss of the unigram frequencies of the training tokens.

        Add-one smoothing makes tokens that do not occur in training unlikely instead of impossible.
        """
        return self.baseline_from_counts(_real(train_target).bincount(minlength=self.target.vocab_size), target)

    def baseline_from_counts(self, counts: Tensor, target: Tensor) -> dict[str, Any]:
        """Return the same baseline from the count of each token as a target in training, (V,), or fewer if the last
        are 0.
        """
        return {"name": "unigram baseline", "value": self._unigram_losses(counts)[_real(target)].mean().item()}

    def paired_with_baseline(self, kept: Tensor, target: Tensor, train_target: Tensor) -> tuple[Tensor, Tensor]:
        """Return the summed loss of each window, (N,), of the model and of the unigram frequencies.

        `train_target` are the training targets, or the count of each token among them, (V,) float.
        """
        counts = train_target
        if not counts.is_floating_point():
            counts = _real(train_target).bincount(minlength=self.target.vocab_size).double()
        real = ~kept[..., 0].isnan()
        other = kept.new_zeros(real.shape, dtype=torch.float64)
        other[real] = self._unigram_losses(counts)[_real(target)].to(other.device)  # in the order of the windows
        return kept[..., 0].double().nansum(1), other.sum(1)

    def _unigram_losses(self, counts: Tensor) -> Tensor:
        """Return the loss of each token, (V,), by the training counts of the first tokens plus 1."""
        smoothed = torch.ones(self.target.vocab_size, dtype=torch.float64)
        smoothed[: len(counts)] += counts
        return -(smoothed / smoothed.sum()).log()

    def predictions(self, kept: Tensor) -> list[dict[str, Any]]:
        """Return loss in nats per token and perplexity of each text."""
        losses, _, counts = _sums(kept)
        return [{"loss": loss, "perplexity": _exp(loss)} for loss in (losses / counts).tolist()]

    def example_results(self, kept: Tensor, target: Tensor) -> list[dict[str, Any]]:
        """Return the loss of each text; confidence is the geometric mean of its token probabilities."""
        del target
        losses, rights, counts = _sums(kept)
        return [
            {
                "actual": f"{count:.0f} tokens",
                "predicted": f"{right:.0f} correct",
                "confidence": math.exp(-loss / count),
                "loss": loss / count,
                "wrong": True,
            }
            for loss, right, count in zip(losses.tolist(), rights.tolist(), counts.tolist())
        ]


def _sums(kept: Tensor) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return the summed loss, the number of correct tokens and of all tokens of each window, (N,) each."""
    real = ~kept[..., 0].isnan()
    found = (kept[..., 0].double().nansum(1), kept[..., 1].double().nansum(1), real.sum(1).double())
    losses, rights, counts = (x.cpu().numpy() for x in found)
    return losses, rights, counts


def _real(target: Tensor) -> Tensor:
    """Return the tokens without padding, (n,)."""
    return target[target != IGNORED]


def _exp(x: float) -> float:
    """Return eˣ, or infinity where it overflows."""
    return math.exp(x) if x < 700 else math.inf


class MaskedLanguage(Language):
    """Cross-entropy and accuracy of masked tokens."""

    NOUN = "masked tokens"
    name = "masked-language modelling"

    def __init__(self, target: Masked, label_smoothing: float = 0.0) -> None:
        super().__init__(target, label_smoothing)

    def baseline_from_counts(self, counts: Tensor, target: Tensor) -> dict[str, Any]:
        """Return the loss of the unigram frequencies of the training tokens, (V,)."""
        found = super().baseline_from_counts(counts, target)
        return {**found, "name": "unigram baseline"}
