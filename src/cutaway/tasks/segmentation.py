"""A class for each pixel: outputs (N, K, H, W) are logits, targets (N, H, W) uint8 classes, or the value to ignore.

Evaluation keeps of each image what was taken for what, pixel by pixel, and neither logits nor masks. The intersection
over union of a class is that of all pixels of a split together, as PASCAL VOC counts it (M. Everingham et al., The
PASCAL visual object classes challenge: a retrospective, 2015, section 3.2); pixels of an image are alike, so that
intervals come from resampling images, not pixels.
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
from ..statistics.classes import LEAST_OF_CLASS, few_of
from ..statistics.intervals import Metric, fraction, jackknife, mean, share, without_interval

SURE, LOSS, SAID = range(3)  # what is kept of an image: mean probability, mean loss, and from there on pixels
SHOWN = 3  # confusions of an image that its row names

Counts = NDArray[np.float64]  # pixels, whole numbers


class Segmentation:
    """Cross-entropy of each pixel, or Dice; mean intersection over union, pixel accuracy."""

    NOUN = "masks"
    name = "semantic segmentation"
    watch = "mean_iou"
    monitors: tuple[str, ...] = ("mean_iou", "pixel_accuracy", "loss")
    LOSSES = ("cross_entropy", "dice")
    OPTIONS = ("loss",)

    def __init__(self, target: Mask, loss: str = "cross_entropy") -> None:
        self.target = target
        self.loss_name = loss
        self.size = len(target.names)

    def loss(self, outputs: Tensor, target: Tensor) -> Tensor:
        """The loss summed over the batch's labelled pixels, (). Dice is of the batch as a whole, and is weighed by its
        labelled pixels."""
        if self.loss_name == "dice":
            return dice(outputs, target.long(), self.target.ignored) * self.count(target)
        return F.cross_entropy(outputs, target.long(), ignore_index=self.target.ignored, reduction="sum")

    def count(self, target: Tensor) -> float:
        """The labelled pixels of the batch."""
        return (target != self.target.ignored).sum().item()

    def keep(self, outputs: Tensor, target: Tensor) -> Tensor:
        """What evaluation stores of each image, (N, 2 + K + K²) float32: the mean probability of what was said, the
        mean loss of labelled pixels, the pixels said to be of each class, and of labelled ones how many of each class
        (row) were taken for each (column). Without targets (N, 0) loss and pairs are NaN.

        Counts up to 2²⁴ are exact.
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

    def keep_target(self, target: Tensor) -> Tensor:
        """What evaluation stores of targets: the pixels of each class in each image, (N, K) int64; of no targets,
        (N, 0), these."""
        if target.ndim < 3:
            return target
        return torch.stack([torch.bincount(mask[mask != self.target.ignored], minlength=self.size) for mask in target])

    def quick(self, kept: Tensor, target: Tensor) -> dict[str, float]:
        """Mean intersection over union, pixel accuracy and loss."""
        counts = self._counts(kept)
        return {
            "mean_iou": _mean_iou(counts.sum(0)),
            "pixel_accuracy": _accuracy(counts.sum(0)),
            "loss": kept[:, LOSS].double().nanmean().item(),
        }

    def metrics(self, kept: Tensor, target: Tensor) -> dict[str, Metric]:
        """Mean intersection over union of the classes that occur, pixel accuracy, and the mean of the images' losses.
        The units of intervals are images."""
        counts = self._counts(kept)
        images = (counts.sum(2) > 0).sum(0).astype(np.float64)  # (K,), with pixels of each class
        mean_iou = jackknife(counts.reshape(len(counts), -1), self._mean_ious, fraction, "image")
        known = ~np.isnan(_iou(counts.sum(0)))
        names = [name for name, there in zip(self.target.names, known) if there]
        if reason := few_of(images[known], names, noun="images"):
            mean_iou = without_interval(mean_iou.value, reason)
        loss = kept[:, LOSS].double().cpu().numpy()
        return {
            "mean_iou": mean_iou,
            "pixel_accuracy": share(np.trace(counts, axis1=1, axis2=2), counts.sum((1, 2)), "image"),
            "loss": mean(loss[~np.isnan(loss)], noun="image"),
        }

    def details(self, kept: Tensor, target: Tensor) -> dict[str, Any]:
        """The pixels that were taken for each class, and intersection over union of each class with its interval."""
        counts = self._counts(kept)
        total, rows = counts.sum(0), []
        for k, name in enumerate(self.target.names):
            right, of, said = counts[:, k, k], counts[:, k].sum(1), counts[:, :, k].sum(1)  # (N,) each
            images = int((of > 0).sum())
            found = share(right, of + said - right, "image")
            if 0 < images < LEAST_OF_CLASS:
                found = without_interval(found.value, few_of(np.array([float(images)]), [name], noun="images"))
            rows.append({"name": name, "pixels": int(total[k].sum()), "images": images, "iou": found.to_json()})
        names = list(self.target.names)
        return {"masks": {"names": names, "confusion": total.astype(np.int64).tolist(), "per_class": rows}}

    def baseline(self, train_target: Tensor, target: Tensor) -> dict[str, Any]:
        """The mean intersection over union of saying everywhere that it is the ground; `target` are pixels of each
        class, (n, K)."""
        pixels = target.sum(0).double()  # (K,)
        occur = pixels.sign()
        occur[0] = 1.0  # which is said
        value = (pixels[0] / pixels.sum() / occur.sum()).item()
        return {"name": f"everywhere {self.target.names[0]!r}", "value": value}

    def answers(self, outputs: Tensor) -> list[Tensor]:
        """The mask that is said of each image, (H, W) uint8."""
        return list(outputs.argmax(1).to(torch.uint8).cpu())

    def predictions(self, kept: Tensor) -> list[dict[str, Any]]:
        """The fraction of each image that was said to be of each class, and the mean probability of what was said."""
        rows = []
        for of_image in kept.double():
            pixels = of_image[SAID : SAID + self.size]
            fractions = dict(zip(self.target.names, (pixels / pixels.sum()).tolist()))
            rows.append({**fractions, "mean probability": of_image[SURE].item()})
        return rows

    def mistakes(self, kept: Tensor, target: Tensor) -> list[dict[str, Any]]:
        """Which classes an image has, how many of its pixels are wrong and which, the mean probability, the mean loss.
        An image with any wrong pixel is not simply right."""
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
        """The mean intersection over union of each row of sums over images (R, K²)."""
        return np.array([_mean_iou(row) for row in sums.reshape(-1, self.size, self.size)])

    def _counts(self, kept: Tensor) -> Counts:
        """What was taken for what in each image, (N, K, K)."""
        pairs = kept[:, SAID + self.size :].double().cpu().numpy()
        return pairs.reshape(len(kept), self.size, self.size)


def _iou(counts: Counts) -> Counts:
    """Intersection over union of each class, (K,), of pixels (K, K); NaN for one that neither is nor is said."""
    right = counts.diagonal()
    with np.errstate(invalid="ignore"):
        found: Counts = right / (counts.sum(0) + counts.sum(1) - right)
    return found


def _mean_iou(counts: Counts) -> float:
    """The mean over the classes that occur; NaN where none does."""
    found = _iou(counts)
    known = found[~np.isnan(found)]
    return float(known.mean()) if len(known) else float("nan")


def _accuracy(counts: Counts) -> float:
    """The fraction of pixels that are right; NaN where none is labelled."""
    total = counts.sum()
    return float(counts.trace() / total) if total else float("nan")
