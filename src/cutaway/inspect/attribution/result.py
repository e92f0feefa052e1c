"""What an attribution gives: the map, and what was held against it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .target import Target

ALIKE = 0.7  # rank correlation from which on maps are taken for the same: half of what varies in one is in the other


@dataclass(frozen=True)
class Completeness:
    """Whether the parts add up to the whole: Σ a_i = F(x) − F(baseline)."""

    sum: Tensor  # (N,), of the attributions
    change: Tensor  # (N,), of the output, from the baseline to the input
    size: Tensor  # (N,), Σ |a_i|
    tolerance: float | None  # the relative gap that is let pass; None: the method promises none
    rounding: Tensor | float = 0.0  # (N,), what F(x) and F(baseline) may be off by in their own precision

    @property
    def gap(self) -> float:
        """The largest |Σ a − change| of the examples, in units of the output."""
        return float((self.sum - self.change).abs().max())

    @property
    def relative(self) -> float:
        """The largest gap beyond rounding, as a share of the change or of Σ |a|, whichever is larger: attributions
        that cancel out are held to their own size. 0 where there is nothing at all."""
        return float((((self.sum - self.change).abs() - self.rounding).clamp(min=0) / self._scale).max())

    @property
    def _scale(self) -> Tensor:
        return torch.maximum(self.change.abs(), self.size).clamp(min=1e-12)

    @property
    def passed(self) -> bool | None:
        """None where the method promises no sum. What is not a number does not pass."""
        return None if self.tolerance is None else self.relative <= self.tolerance

    @property
    def says(self) -> str:
        """The finding as a sentence."""
        if self.tolerance is None:
            return "This method does not promise that its values add up to the change of the output."
        total, change = float(self.sum[0]), float(self.change[0])
        of = "the change" if bool((self.change.abs() >= self.size).all()) else "the sizes of all values together"
        found = f"The values add up to {_said(total)}; the output changes by {_said(change)}"
        found += f" (gap {100 * self.relative:.1f}\u202f% of {of})."
        if self.passed:
            return found
        return f"{found} They should be equal: the values miss a part of what happened."


@dataclass(frozen=True)
class Randomisation:
    """What becomes of the map when the weights are made random, layer by layer from the output down.

    After J. Adebayo, J. Gilmer, M. Muelly, I. Goodfellow, M. Hardt, B. Kim, Sanity checks for saliency maps, 2018,
    section 3. <https://arxiv.org/abs/1810.03292>
    """

    layers: tuple[str, ...]  # the last layer made random at each stage; all that stand above it are too
    correlation: tuple[float, ...]  # Spearman's, of |map| with the first one, at each stage
    draws: int  # random networks that this is the mean of

    @property
    def last(self) -> float:
        """The correlation where all weights are random."""
        return self.correlation[-1]

    @property
    def passed(self) -> bool:
        """Whether the map with random weights is another one."""
        return self.last < ALIKE

    @property
    def says(self) -> str:
        """The finding as a sentence."""
        found = f"With all weights random, the map keeps a rank correlation of {_said(self.last)} with itself."
        if self.passed:
            return found
        return f"{found} It shows the input and the architecture more than what was learned."


@dataclass(frozen=True)
class Attribution:
    """How much each part of the input did for one number of the output."""

    method: str
    kind: str  # of the input: table, image, series, text, pairs, video, graph
    values: (
        Tensor  # (N, F), images (N, H, W), series (N, T, F), tokens (N, T), video (N, T, H, W), graphs (V, F) or (E,)
    )
    beside: Tensor | None  # of pairs, (N, S): the tokens of the target so far
    baseline: Tensor | None  # what stands for nothing: as the input, or as its embedding; None where none is needed
    about: str  # what the baseline is, in words
    target: Target
    output: Tensor  # (N,), the number that is explained
    completeness: Completeness
    randomisation: Randomisation | None = None
    why_not: str = ""  # where the weights were not randomised: why
    layer: str | None = None  # Grad-CAM's
    steps: int | None = None  # of the integral, or random draws

    def __repr__(self) -> str:
        return f"Attribution({self.method!r}, {self.kind}, values {tuple(self.values.shape)}, passed={self.passed})"

    @property
    def checks(self) -> tuple[Completeness | Randomisation, ...]:
        """All that was held against the map."""
        return (self.completeness, self.randomisation) if self.randomisation else (self.completeness,)

    @property
    def passed(self) -> bool:
        """Whether no check speaks against the map. A check that was not made, or that the method promises nothing
        for, speaks neither way: `says` tells."""
        return all(check.passed is not False for check in self.checks)

    @property
    def says(self) -> str:
        """What the checks found, in words."""
        return " ".join([*(check.says for check in self.checks), *([self.why_not] if self.why_not else [])])

    @property
    def warning(self) -> str | None:
        """What must stand on the picture: the sentences of the checks that failed, or None."""
        failed = [check.says for check in self.checks if check.passed is False]
        return " ".join(failed) or None


def _said(value: float) -> str:
    """Three digits, and a proper minus."""
    return f"{value:.3g}".replace("-", "−")
