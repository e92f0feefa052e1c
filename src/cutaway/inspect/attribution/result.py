"""The result of an attribution: the map and its checks."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .target import Target

ALIKE = 0.7  # rank correlation from which on maps count as equal: they share half of their variance


@dataclass(frozen=True)
class Completeness:
    """The check that attributions sum to the change of the output: Σ a_i = F(x) − F(baseline)."""

    sum: Tensor  # (N,), sum of the attributions
    change: Tensor  # (N,), change of the output from the baseline to the input
    size: Tensor  # (N,), Σ |a_i|
    tolerance: float | None  # tolerated relative gap; None: the method does not guarantee a sum
    rounding: Tensor | float = 0.0  # (N,), rounding error of F(x) and F(baseline)

    @property
    def gap(self) -> float:
        """The largest |Σ a − change| of the examples, in units of the output."""
        return float((self.sum - self.change).abs().max())

    @property
    def relative(self) -> float:
        """The largest gap beyond rounding, relative to the change or to Σ |a|, whichever is larger.

        Attributions that cancel out are thus compared with their own size. The value is 0 if all are 0.
        """
        return float((((self.sum - self.change).abs() - self.rounding).clamp(min=0) / self._scale).max())

    @property
    def _scale(self) -> Tensor:
        return torch.maximum(self.change.abs(), self.size).clamp(min=1e-12)

    @property
    def passed(self) -> bool | None:
        """True if the gap is tolerated, None if the method does not guarantee a sum. NaN does not pass."""
        return None if self.tolerance is None else self.relative <= self.tolerance

    @property
    def says(self) -> str:
        """The finding as a sentence."""
        if self.tolerance is None:
            return "This method does not promise that its values add up to the change of the output."
        total, change = float(self.sum[0]), float(self.change[0])
        of = "the change" if bool((self.change.abs() >= self.size).all()) else "the sizes of all values together"
        found = f"The values add up to {_format_number(total)}; the output changes by {_format_number(change)}"
        found += f" (gap {100 * self.relative:.1f}\u202f% of {of})."
        if self.passed:
            return found
        return f"{found} They should be equal: the values miss a part of what happened."


@dataclass(frozen=True)
class Randomisation:
    """The check that the map changes when weights are randomized, layer by layer from the output down.

    After J. Adebayo, J. Gilmer, M. Muelly, I. Goodfellow, M. Hardt, B. Kim, Sanity checks for saliency maps, 2018,
    section 3. <https://arxiv.org/abs/1810.03292>
    """

    layers: tuple[str, ...]  # the last randomized layer at each stage; all layers above it are random too
    correlation: tuple[float, ...]  # Spearman's correlation of |map| with the first one at each stage
    draws: int  # number of random networks in the mean

    @property
    def last(self) -> float:
        """The correlation with all weights random."""
        return self.correlation[-1]

    @property
    def passed(self) -> bool:
        """True if the map with random weights differs."""
        return self.last < ALIKE

    @property
    def says(self) -> str:
        """The finding as a sentence."""
        found = f"With all weights random, the map keeps a rank correlation of {_format_number(self.last)} with itself."
        if self.passed:
            return found
        return f"{found} It shows the input and the architecture more than what was learned."


@dataclass(frozen=True)
class Attribution:
    """The attribution of one number of the output to the parts of the input."""

    method: str
    kind: str  # of the input: table, image, series, text, pairs, video, graph
    values: (
        Tensor  # (N, F), images (N, H, W), series (N, T, F), tokens (N, T), video (N, T, H, W), graphs (V, F) or (E,)
    )
    beside: Tensor | None  # for pairs, (N, S): the tokens of the target so far
    baseline: Tensor | None  # the neutral input, or its embedding; None if none is needed
    about: str  # description of the baseline
    target: Target
    output: Tensor  # (N,), the explained number
    completeness: Completeness
    randomisation: Randomisation | None = None
    why_not: str = ""  # the reason why the weights were not randomized
    layer: str | None = None  # for Grad-CAM
    steps: int | None = None  # points of the integral, or random samples

    def __repr__(self) -> str:
        return f"Attribution({self.method!r}, {self.kind}, values {tuple(self.values.shape)}, passed={self.passed})"

    @property
    def checks(self) -> tuple[Completeness | Randomisation, ...]:
        """All checks of the map."""
        return (self.completeness, self.randomisation) if self.randomisation else (self.completeness,)

    @property
    def passed(self) -> bool:
        """True if no check failed. A check that was not run, or does not apply, does not count; `says` has the
        details.
        """
        return all(check.passed is not False for check in self.checks)

    @property
    def says(self) -> str:
        """The findings of the checks as text."""
        return " ".join([*(check.says for check in self.checks), *([self.why_not] if self.why_not else [])])

    @property
    def warning(self) -> str | None:
        """The sentences of the checks that failed, which a picture must show, or None."""
        failed = [check.says for check in self.checks if check.passed is False]
        return " ".join(failed) or None


def _format_number(value: float) -> str:
    """Format with three digits and a minus sign."""
    return f"{value:.3g}".replace("-", "−")
