"""Object detection with the outputs and the loss of FCOS.

Outputs (N, L, K + 8) have for each location of a feature pyramid K class logits, the distances l, t, r, b to the sides
of its box in strides, the centerness logit, and the location itself, x, y and stride. Targets are (N, M, 5): x1, y1,
x2, y2 and the class, padded with IGNORED.

The loss is that of Z. Tian et al., FCOS, 2019 <https://arxiv.org/abs/1904.01355>, as in torchvision: focal loss of the
classes, 1 − GIoU of the boxes and cross-entropy of the centerness, the latter two at locations with an object, divided
by the number of those locations in the batch. Evaluation stores the boxes with the highest scores of each image, not
the outputs of all locations.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ..core.errors import CutawayWarning
from ..core.spec import Boxes
from ..data.dataset_base import IGNORED, Split
from ..data.folders import NAMED_AT_MOST
from ..data.images.detection import BoxPreprocessing
from ..nn import boxes as bx
from ..nn.losses import focal
from ..statistics.intervals import Metric, ratio, without_interval
from . import precision

# Stored columns of each box; the last two belong to its image and are repeated in each row.
X1, Y1, X2, Y2, CLASS, SCORE, LOSS, POSITIVES = range(8)
KEPT = precision.MOST
LEAST_SCORE = 0.05  # smallest score that counts in average precision
CANDIDATES = 1000  # boxes of an image before suppression
SUPPRESSED = 0.6  # IoU above which a box of the same class with a higher score suppresses another
SHOWN_SCORE = 0.5  # smallest score in predictions and pictures
RADIUS = 1.5  # strides from the center of a box within which locations are positive (torchvision's center sampling)
REACH = (4.0, 8.0)  # range of a level, in strides to the farthest side of a box; open at the first and the last level
MATCHED = 0.5  # IoU of a correct box, in pictures and texts


class Detection:
    """Focal loss, GIoU and centerness; mean average precision."""

    NOUN = "boxes"
    name = "object detection"
    default_monitor = "map"
    monitors: tuple[str, ...] = ("map", "map_50", "loss")
    LOSSES = ("fcos",)
    OPTIONS = ("shape",)
    loss_name = "fcos"
    LIBRARIES = (("pycocotools", "Mean average precision"),)

    def __init__(self, target: Boxes, shape: tuple[int, ...]) -> None:
        """Create the task.

        Args:
            target: The target.
            shape: Shape of an image as the network's input, (C, H, W); boxes are clipped to it.
        """
        self.target = target
        self.size = shape[1:]
        self.classes = len(target.names)

    def loss(self, outputs: Tensor, target: Tensor) -> Tensor:
        """Return the batch's loss per location with an object, (), times the number of images."""
        losses, positives = self.parts(outputs, target)
        return losses.sum() / positives.sum().clamp(min=1) * len(target)

    def loss_denominator(self, target: Tensor) -> float:
        """Return the number of images in the batch."""
        return float(len(target))

    def losses(self, outputs: Tensor, target: Tensor) -> Tensor:
        """Return the loss of each image, (N,), normalized by its own locations with an object."""
        losses, positives = self.parts(outputs, target)
        return losses.sum(1) / positives.clamp(min=1)

    def parts(self, outputs: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Return the three losses of each image (N, 3) and its number of locations with an object, (N,).

        The losses are those of classes, boxes and centerness, each summed over the locations.
        """
        logits, distances, middle, places = torch.split(outputs, [self.classes, 4, 1, 3], 2)
        at = places[0]  # (L, 3), the same for every image
        target = target.to(logits.dtype)
        chosen = assign_boxes(at, target)  # (N, L)
        there = chosen >= 0
        own = target.gather(1, chosen.clamp(min=0)[:, :, None].expand(-1, -1, 5))  # (N, L, 5)
        wanted = torch.zeros_like(logits)  # (N, L, K)
        wanted[there] = F.one_hot(own[there][:, 4].long(), self.classes).to(logits.dtype)
        image, where = there.nonzero(as_tuple=True)
        actual = own[there][:, :4]  # (P, 4)
        of_boxes = 1 - bx.giou(bx.decode(distances[there], at[where]), actual)  # (P,)
        centre = bx.centerness(bx.encode(actual, at[where]))
        of_centre = F.binary_cross_entropy_with_logits(middle[there][:, 0], centre, reduction="none")
        zeros = logits.new_zeros(len(target))
        summed = [zeros.index_add(0, image, losses) for losses in (of_boxes, of_centre)]
        return torch.stack([focal(logits, wanted).sum((1, 2)), *summed], 1), there.sum(1)

    def summarize_outputs(self, outputs: Tensor, target: Tensor) -> Tensor:
        """Return what evaluation stores, (N, 100, 8) float32: boxes with class and score, loss and locations with an
        object.

        The boxes are those with the highest scores of each image, padded with NaN. The loss and the number of locations
        are those of the image, NaN without targets (N, 0).
        """
        kept = outputs.new_full((len(outputs), KEPT, 8), torch.nan, dtype=torch.float32)
        for row, found in zip(kept, self.detect(outputs)):
            row[: len(found), :6] = found
        if target.ndim == 3:
            losses, positives = self.parts(outputs, target)
            kept[:, :, LOSS] = losses.sum(1).float()[:, None]
            kept[:, :, POSITIVES] = positives.float()[:, None]
        return kept

    def detect(self, outputs: Tensor) -> list[Tensor]:
        """Return the boxes of each image, (m, 6) with class and score, highest score first, after suppression.

        The score √(σ(class) · σ(centerness)) is above LEAST_SCORE.
        """
        logits, distances, middle, places = torch.split(outputs.float(), [self.classes, 4, 1, 3], 2)
        scores = (logits.sigmoid() * middle.sigmoid()).sqrt()  # (N, L, K)
        decoded = bx.clip(bx.decode(distances, places), *self.size)  # (N, L, 4)
        results = []
        for own, boxes in zip(scores, decoded):
            score, order = own.flatten().sort(descending=True, stable=True)
            order = order[: min(CANDIDATES, int((score > LEAST_SCORE).sum()))]
            at, kind = order // self.classes, order % self.classes
            kept = bx.nms(boxes[at], own[at, kind], kind, SUPPRESSED)[:KEPT]
            columns = (kind[kept, None].float(), own[at, kind][kept, None])
            results.append(torch.cat([boxes[at][kept], *columns], 1))  # (m, 6)
        return results

    def fast_metrics(self, kept: Tensor, target: Tensor) -> dict[str, float]:
        """Return mAP@[.5:.95], mAP@.5 and the loss."""
        every, half, _ = precision.means(precision.table(self._matched(kept, target)))
        return {"map": float(every), "map_50": float(half), "loss": self._loss(kept, np.arange(len(kept)))}

    def metrics(self, kept: Tensor, target: Tensor) -> dict[str, Metric]:
        """Return mAP@[.5:.95], mAP@.5 and mAP@.75, by pycocotools, and the loss. The units of intervals are images."""
        found = precision.intervals(self._matched(kept, target), self.target.names)
        of_image = kept[:, 0].double().cpu().numpy()  # (N, 8)
        found["loss"] = ratio(of_image[:, LOSS], of_image[:, POSITIVES], "image")
        if of_image[:, POSITIVES].sum() < 1:
            found["loss"] = without_interval(self._loss(kept, np.arange(len(kept))), "no location has an object")
        return found

    def details(self, kept: Tensor, target: Tensor) -> dict[str, Any]:
        """Return the average precision and the number of objects of each class."""
        rows = []
        for name, found in zip(self.target.names, self._matched(kept, target)):
            of_class = precision.average_precision(found)
            every, half = (None if np.isnan(n) else float(n) for n in (of_class.mean(), of_class[0]))
            rows.append({"name": name, "count": int(found.actual.sum()), "map": every, "map_50": half})
        return {"boxes": {"per_class": rows}}

    def baseline(self, train_target: Tensor, target: Tensor) -> dict[str, Any]:
        """Return the score without any detection."""
        return {"name": "no detections", "value": 0.0}

    def predicted_targets(self, outputs: Tensor) -> list[Tensor]:
        """Return the predicted boxes of each image, as `confident_boxes` does."""
        return [
            self.confident_boxes(rows)
            for rows in self.summarize_outputs(outputs, outputs.new_empty(len(outputs), 0)).cpu()
        ]

    def predictions(self, kept: Tensor) -> list[dict[str, Any]]:
        """Return the contents of each image as text, such as "2 × cat, dog". `confident_boxes` returns the boxes."""
        return [{self.target.column: self._words(self.confident_boxes(rows)[:, CLASS])} for rows in kept]

    def prediction_rows(self, kept: Tensor, split: Split, preprocessing: BoxPreprocessing) -> list[dict[str, Any]]:
        """Return one row per box, in pixels of the original images, highest score first in each image.

        A warning lists images without a detection.
        """
        rows, without = [], []
        for i, own in enumerate(kept):
            said, image = self.confident_boxes(own), split.image(i)
            assert image is not None, "a split of images has them"
            corners = preprocessing.original(said[:, :4], (image.height, image.width)).tolist()
            for (x1, y1, x2, y2), kind, score in zip(corners, said[:, CLASS].long().tolist(), said[:, SCORE].tolist()):
                box = {"x1": x1, "y1": y1, "x2": x2, "y2": y2}
                rows.append({"input": split.name(i), "class": self.target.names[kind], "score": score, **box})
            without += [] if len(said) else [split.name(i)]
        if without:
            some = ", ".join(without[:NAMED_AT_MOST]) + (", …" if len(without) > NAMED_AT_MOST else "")
            images = "1 image" if len(without) == 1 else f"{len(without):,} images"
            warnings.warn(f"No objects were detected in {images}: {some}.", CutawayWarning, stacklevel=3)
        return rows

    def confident_boxes(self, rows: Tensor) -> Tensor:
        """Return the predicted boxes of an image from its rows (100, 8): (m, 6), highest score first.

        The columns are x1, y1, x2, y2 in the network's pixels, class and score. Scores are at least SHOWN_SCORE.
        """
        return rows[rows[:, SCORE] >= SHOWN_SCORE, : SCORE + 1]

    def example_results(self, kept: Tensor, target: Tensor) -> list[dict[str, Any]]:
        """Return one row per image: its actual and predicted classes, the lowest score, the loss, and `boxes`.

        `boxes` has the boxes in the network's pixels, with their kind: right, wrong or missed.
        """
        rows = []
        for own, there in zip(kept, target):
            said, actual = self.confident_boxes(own), _actual(there)
            boxes = self._match_for_display(said, actual)
            wrong = any(box["kind"] != "right" for box in boxes)
            rows.append(
                {
                    "actual": self._words(actual[actual[:, 4] >= 0, 4]),
                    "predicted": self._words(said[:, CLASS]),
                    "confidence": float(said[:, SCORE].min()) if len(said) else None,
                    "loss": float(own[0, LOSS] / own[0, POSITIVES].clamp(min=1)),
                    "wrong": wrong,
                    "boxes": boxes,
                }
            )
        return rows

    def _match_for_display(self, said: Tensor, actual: Tensor) -> list[dict[str, Any]]:
        """Return each predicted box as right or wrong, and each missed one; boxes are matched in the order of scores.

        A box within a crowd of its class is not wrong.
        """
        names, found = self.target.names, []
        free = actual[actual[:, 4] >= 0]
        crowds = actual[actual[:, 4] < 0]
        for row in said:
            own, crowd = free[:, 4] == row[CLASS], crowds[-1 - crowds[:, 4] == row[CLASS]]
            overlap = bx.iou(row[:4], free[:, :4]).where(own, torch.zeros_like(own, dtype=row.dtype))
            hit = bool((overlap >= MATCHED).any())
            if hit:
                free = torch.cat([free[: int(overlap.argmax())], free[int(overlap.argmax()) + 1 :]])
            within = bx.intersection_area(row[:4], crowd[:, :4]) >= MATCHED * bx.area(row[:4])
            kind = "right" if hit or bool(within.any()) else "wrong"
            found.append(_box(row, names, float(row[SCORE]), kind))
        return found + [_box(row, names, None, "missed") for row in free]

    def _words(self, classes: Tensor) -> str:
        """Return the classes by name, in the order of their indices, such as "2 × cat, dog"."""
        counts = torch.bincount(classes.long(), minlength=self.classes).tolist()
        said = [f"{n} × {name}" if n > 1 else name for name, n in zip(self.target.names, counts) if n]
        return ", ".join(said) or "nothing"

    def _matched(self, kept: Tensor, target: Tensor) -> list[precision.MatchedBoxes]:
        predicted = [rows[~rows[:, SCORE].isnan(), : SCORE + 1].double().cpu().numpy() for rows in kept]
        return precision.match_boxes(predicted, [_actual(rows).double().cpu().numpy() for rows in target], self.classes)

    def _loss(self, kept: Tensor, rows: np.ndarray[Any, Any]) -> float:
        """Return the loss of these images as one batch."""
        some = kept[torch.from_numpy(rows), 0].double()  # (n, 8)
        return float(some[:, LOSS].sum() / some[:, POSITIVES].sum().clamp(min=1))


def assign_boxes(at: Tensor, target: Tensor) -> Tensor:
    """Return the index of the box that each location learns, (N, L), or −1. `at` is (L, 3), `target` (N, M, 5).

    A box is a candidate if the location is inside it, within RADIUS strides of its center, and if the distance to its
    farthest side is in the range of the location's level (4 to 8 strides; the lowest level also takes all smaller
    distances, the highest all larger ones). The smallest candidate is chosen. Crowds are never chosen.
    """
    centre, stride = at[:, None, :2], at[:, None, 2]  # (L, 1, 2), (L, 1)
    box = target[:, None, :, :4]  # (N, 1, M, 4)
    real = (target[:, None, :, 0] != IGNORED) & (target[:, None, :, 4] >= 0)  # (N, 1, M)
    sides = torch.cat([centre - box[..., :2], box[..., 2:] - centre], 3)  # (N, L, M, 4)
    middle = (box[..., :2] + box[..., 2:]) / 2
    near = (centre - middle).abs().amax(3) < RADIUS * stride  # (N, L, M)
    lower, upper = (end * at[:, 2] for end in REACH)
    lower = lower.where(at[:, 2] > at[:, 2].min(), torch.zeros_like(lower))
    upper = upper.where(at[:, 2] < at[:, 2].max(), torch.full_like(upper, torch.inf))
    farthest = sides.amax(3)
    fits = (farthest > lower[:, None]) & (farthest < upper[:, None])
    candidate = real & near & fits & (sides.amin(3) > 0)
    area = bx.area(box).expand(candidate.shape).masked_fill(~candidate, torch.inf)
    smallest, which = area.min(2)
    return which.where(smallest < torch.inf, torch.full_like(which, -1))


def _actual(rows: Tensor) -> Tensor:
    """Return the boxes of an image's rows (M, 5), without padding."""
    return rows[rows[:, 0] != IGNORED]


def _box(row: Tensor, names: Sequence[str], score: float | None, kind: str) -> dict[str, Any]:
    return {"box": row[:4].tolist(), "name": names[int(row[CLASS])], "score": score, "kind": kind}
