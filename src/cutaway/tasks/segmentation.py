"""Semantic segmentation: outputs (N, K, H, W) are logits, targets (N, H, W) uint8 classes or the value to ignore.

Evaluation stores the pixel confusion counts of each image, and neither logits nor masks. The intersection over union of
a class is that of all pixels of a split together, as in PASCAL VOC (M. Everingham et al., The PASCAL visual object
classes challenge: a retrospective, 2015, section 3.2). Pixels of an image are correlated, so intervals come from
resampling images, not pixels.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from ..core.spec import Mask
from ..nn.losses import dice
from ..statistics.classes import MIN_PER_CLASS, too_few_examples
from ..statistics.intervals import Metric, fraction, jackknife, mean, share, without_interval

SURE, LOSS, SAID = range(3)  # stored columns of an image: mean probability, mean loss, then pixel counts
SHOWN = 3  # largest number of confusions of an image in its row

Counts = NDArray[np.float64]  # pixel counts


class Segmentation:
    """Cross-entropy of each pixel, or Dice; mean intersection over union, pixel accuracy."""

    NOUN = "masks"
    name = "semantic segmentation"
    default_monitor = "mean_iou"
    monitors: tuple[str, ...] = ("mean_iou", "pixel_accuracy", "loss")
    LOSSES = ("cross_entropy", "dice")
    OPTIONS = ("loss",)

    def __init__(self, target: Mask, loss: str = "cross_entropy") -> None:
        self.target = target
        self.loss_name = loss
        self.size = len(target.names)

    def loss(self, outputs: Tensor, target: Tensor) -> Tensor:
        """Return the loss summed over the batch's labeled pixels, ().

        The Dice loss is defined for the whole batch and is multiplied by its number of labeled pixels.
        """
        if self.loss_name == "dice":
            return dice(outputs, target.long(), self.target.ignored) * self.loss_denominator(target)
        return F.cross_entropy(outputs, target.long(), ignore_index=self.target.ignored, reduction="sum")

    def loss_denominator(self, target: Tensor) -> float:
        """Return the number of labeled pixels in the batch."""
        return (target != self.target.ignored).sum().item()

    def summarize_outputs(self, outputs: Tensor, target: Tensor) -> Tensor:
        """Return what evaluation stores of each image, (N, 2 + K + K²) float32.

        The columns are the mean probability of the prediction, the mean loss of labeled pixels, the predicted pixels of
        each class, and the confusion counts of labeled pixels (actual rows, predicted columns). Without targets (N, 0),
        loss and confusion counts are NaN. Counts up to 2²⁴ are exact.
        """
        classes = self.size
        logs = outputs.float().log_softmax(1)  # (N, K, H, W)
        best, said = logs.max(1)  # (N, H, W)
        labelled = target.ndim == 3
        kept = logs.new_full((len(said), SAID + classes + classes**2), torch.nan)
        kept[:, SURE] = best.exp().flatten(1).mean(1)
        if labelled:
            real = target != self.target.ignored  # (N, H, W)
            true = target.long().where(real, 0)
            losses = -logs.gather(1, true[:, None])[:, 0] * real  # (N, H, W)
            kept[:, LOSS] = losses.flatten(1).sum(1) / real.flatten(1).sum(1)  # NaN where nothing is labelled
        for i in range(len(said)):
            kept[i, SAID : SAID + classes] = torch.bincount(said[i].flatten(), minlength=classes).to(kept)
            if labelled:
                pairs = (true[i] * classes + said[i])[real[i]]
                kept[i, SAID + classes :] = torch.bincount(pairs, minlength=classes**2).to(kept)
        return kept

    def summarize_target(self, target: Tensor) -> Tensor:
        """Return the stored targets: the pixels of each class in each image, (N, K) int64; empty targets (N, 0)
        unchanged.
        """
        if target.ndim < 3:
            return target
        return torch.stack([torch.bincount(mask[mask != self.target.ignored], minlength=self.size) for mask in target])

    def fast_metrics(self, kept: Tensor, target: Tensor) -> dict[str, float]:
        """Return mean intersection over union, pixel accuracy and loss."""
        counts = self._counts(kept)
        return {
            "mean_iou": _mean_iou(counts.sum(0)),
            "pixel_accuracy": _accuracy(counts.sum(0)),
            "loss": kept[:, LOSS].double().nanmean().item(),
        }

    def metrics(self, kept: Tensor, target: Tensor) -> dict[str, Metric]:
        """Return mean intersection over union of the classes that occur, pixel accuracy, and mean loss of the images.

        The units of intervals are images.
        """
        counts = self._counts(kept)
        images = (counts.sum(2) > 0).sum(0).astype(np.float64)  # (K,), with pixels of each class
        mean_iou = jackknife(counts.reshape(len(counts), -1), self._mean_ious, fraction, "image")
        known = ~np.isnan(_iou(counts.sum(0)))
        names = [name for name, there in zip(self.target.names, known) if there]
        if reason := too_few_examples(images[known], names, noun="images"):
            mean_iou = without_interval(mean_iou.value, reason)
        loss = kept[:, LOSS].double().cpu().numpy()
        return {
            "mean_iou": mean_iou,
            "pixel_accuracy": share(np.trace(counts, axis1=1, axis2=2), counts.sum((1, 2)), "image"),
            "loss": mean(loss[~np.isnan(loss)], noun="image"),
        }

    def details(self, kept: Tensor, target: Tensor) -> dict[str, Any]:
        """Return the confusion counts of pixels, and intersection over union of each class with its interval."""
        counts = self._counts(kept)
        total, rows = counts.sum(0), []
        for k, name in enumerate(self.target.names):
            right, of, said = counts[:, k, k], counts[:, k].sum(1), counts[:, :, k].sum(1)  # (N,) each
            images = int((of > 0).sum())
            found = share(right, of + said - right, "image")
            if 0 < images < MIN_PER_CLASS:
                found = without_interval(
                    found.value, too_few_examples(np.array([float(images)]), [name], noun="images")
                )
            rows.append({"name": name, "pixels": int(total[k].sum()), "images": images, "iou": found.to_json()})
        names = list(self.target.names)
        return {"masks": {"names": names, "confusion": total.astype(np.int64).tolist(), "per_class": rows}}

    def baseline(self, train_target: Tensor, target: Tensor) -> dict[str, Any]:
        """Return the mean intersection over union of predicting the background everywhere.

        `target` has the pixels of each class, (n, K).
        """
        pixels = target.sum(0).double()  # (K,)
        occur = pixels.sign()
        occur[0] = 1.0  # the predicted class
        value = (pixels[0] / pixels.sum() / occur.sum()).item()
        return {"name": f"constant baseline ({self.target.names[0]!r})", "value": value}

    def predicted_targets(self, outputs: Tensor) -> list[Tensor]:
        """Return the predicted mask of each image, (H, W) uint8."""
        return list(outputs.argmax(1).to(torch.uint8).cpu())

    def predictions(self, kept: Tensor) -> list[dict[str, Any]]:
        """Return the predicted fraction of each class in each image, and the mean probability of the prediction."""
        rows = []
        for of_image in kept.double():
            pixels = of_image[SAID : SAID + self.size]
            fractions = dict(zip(self.target.names, (pixels / pixels.sum()).tolist()))
            rows.append({**fractions, "mean probability": of_image[SURE].item()})
        return rows

    def example_results(self, kept: Tensor, target: Tensor) -> list[dict[str, Any]]:
        """Return classes, wrong pixels, mean probability and mean loss of each image.

        An image with any wrong pixel counts as wrong.
        """
        rows, names = [], self.target.names
        for of_image, counts in zip(kept.tolist(), self._counts(kept)):
            wrong = counts.copy()
            np.fill_diagonal(wrong, 0)
            labelled = counts.sum()
            order = np.argsort(-wrong, axis=None, kind="stable")[:SHOWN]
            pairs = [divmod(int(cell), self.size) for cell in order if wrong.flat[cell]]
            said = ", ".join(f"{names[said]} for {names[was]}" for was, said in pairs)
            share = wrong.sum() / labelled if labelled else 0.0
            rows.append(
                {
                    "actual": ", ".join(name for name, row in zip(names, counts) if row.sum()),
                    "predicted": f"{100 * share:.3g} % of its pixels wrong: {said}" if said else "no pixel wrong",
                    "confidence": of_image[SURE],
                    "loss": of_image[LOSS] if labelled else 0.0,
                    "wrong": bool(wrong.any()),
                }
            )
        return rows

    def _mean_ious(self, sums: Counts) -> Counts:
        """Return the mean intersection over union of each row of sums over images (R, K²)."""
        return np.array([_mean_iou(row) for row in sums.reshape(-1, self.size, self.size)])

    def _counts(self, kept: Tensor) -> Counts:
        """Return the confusion counts of each image, (N, K, K)."""
        pairs = kept[:, SAID + self.size :].double().cpu().numpy()
        return pairs.reshape(len(kept), self.size, self.size)


def _iou(counts: Counts) -> Counts:
    """Return intersection over union of each class, (K,), from pixels (K, K); NaN for a class that does not occur."""
    right = counts.diagonal()
    with np.errstate(invalid="ignore"):
        found: Counts = right / (counts.sum(0) + counts.sum(1) - right)
    return found


def _mean_iou(counts: Counts) -> float:
    """Return the mean over the classes that occur; NaN if none does."""
    found = _iou(counts)
    known = found[~np.isnan(found)]
    return float(known.mean()) if len(known) else float("nan")


def _accuracy(counts: Counts) -> float:
    """Return the fraction of correct pixels; NaN if none is labeled."""
    total = counts.sum()
    return float(counts.trace() / total) if total else float("nan")
