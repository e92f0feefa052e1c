"""Boxes around objects: outputs (N, L, K + 8) say of each location of a feature pyramid what stands there, as FCOS's
do: K class logits, the distances l, t, r, b to the sides of its box in strides, the logit of its centerness, and the
location itself, x, y and stride. Targets are (N, M, 5): x1, y1, x2, y2 and the class, IGNORED where there is none.

The loss is that of Z. Tian et al., FCOS, 2019 <https://arxiv.org/abs/1904.01355>, as torchvision has it: focal loss
of the classes, 1 − GIoU of the boxes and cross-entropy of the centerness, the latter two where there is an object,
divided by the number of those locations in the batch. Evaluation keeps of each image the surest boxes, and not what
every location says.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ..core.spec import Boxes
from ..data.dataset_base import IGNORED, Split
from ..data.folders import NAMED_AT_MOST
from ..data.images.detection import BoxPreprocessing
from ..nn import boxes as bx
from ..nn.losses import focal
from ..statistics.intervals import Metric, ratio, without_interval
from . import precision

# What is kept of each box, in this order; the last two are of its image, and stand in each of its rows.
X1, Y1, X2, Y2, CLASS, SCORE, LOSS, POSITIVES = range(8)
KEPT = precision.MOST
LEAST_SCORE = 0.05  # of what counts in average precision
CANDIDATES = 1000  # of an image before suppression
SUPPRESSED = 0.6  # IoU from which on a surer box of the same class suppresses
SHOWN_SCORE = 0.5  # of what is said: predictions and pictures
RADIUS = 1.5  # strides from the middle of a box within which a location learns it (torchvision's center sampling)
REACH = (4.0, 8.0)  # strides to the farthest side of a box that a level is for; the first and the last have no such end
MATCHED = 0.5  # IoU of a box that is right, in pictures and words


class Detection:
    """Focal loss, GIoU and centerness; mean average precision."""

    NOUN = "boxes"
    name = "object detection"
    watch = "map"
    monitors: tuple[str, ...] = ("map", "map_50", "loss")
    LOSSES = ("fcos",)
    OPTIONS = ("shape",)
    loss_name = "fcos"

    def __init__(self, target: Boxes, shape: tuple[int, ...]) -> None:
        """`shape` is that of an image as the network sees it, (C, H, W): no box reaches beyond it."""
        self.target = target
        self.size = shape[1:]
        self.classes = len(target.names)

    def loss(self, outputs: Tensor, target: Tensor) -> Tensor:
        """The batch's loss by the locations that have an object, (), times its images."""
        losses, positives = self.parts(outputs, target)
        return losses.sum() / positives.sum().clamp(min=1) * len(target)

    def count(self, target: Tensor) -> float:
        """The images in the batch."""
        return float(len(target))

    def losses(self, outputs: Tensor, target: Tensor) -> Tensor:
        """Each image's loss, (N,), by its own locations that have an object."""
        losses, positives = self.parts(outputs, target)
        return losses.sum(1) / positives.clamp(min=1)

    def parts(self, outputs: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Of each image the three losses (N, 3), of classes, boxes and centerness, each summed over its locations; and
        how many of these have an object, (N,)."""
        logits, distances, middle, places = torch.split(outputs, [self.classes, 4, 1, 3], 2)
        at = places[0]  # (L, 3), the same for every image
        target = target.to(logits.dtype)
        chosen = assigned(at, target)  # (N, L)
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

    def keep(self, outputs: Tensor, target: Tensor) -> Tensor:
        """What evaluation stores, (N, 100, 8) float32: the surest boxes of each image with class and score, the image's
        loss and its locations with an object; NaN where there is no box, and without targets (N, 0)."""
        kept = outputs.new_full((len(outputs), KEPT, 8), torch.nan, dtype=torch.float32)
        for row, found in zip(kept, self.found(outputs)):
            row[: len(found), :6] = found
        if target.ndim == 3:
            losses, positives = self.parts(outputs, target)
            kept[:, :, LOSS] = losses.sum(1).float()[:, None]
            kept[:, :, POSITIVES] = positives.float()[:, None]
        return kept

    def found(self, outputs: Tensor) -> list[Tensor]:
        """The boxes of each image, (m, 6) with class and score, the surest first: √(σ(class) · σ(centerness)) above
        LEAST_SCORE, and none that a surer one of its class suppresses."""
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

    def quick(self, kept: Tensor, target: Tensor) -> dict[str, float]:
        """mAP@[.5:.95], mAP@.5 and the loss."""
        every, half, _ = precision.means(precision.table(self._matched(kept, target)))
        return {"map": float(every), "map_50": float(half), "loss": self._loss(kept, np.arange(len(kept)))}

    def metrics(self, kept: Tensor, target: Tensor) -> dict[str, Metric]:
        """mAP@[.5:.95], mAP@.5 and mAP@.75, by pycocotools, and the loss. The units of intervals are images."""
        found = precision.intervals(self._matched(kept, target), self.target.names)
        of_image = kept[:, 0].double().cpu().numpy()  # (N, 8)
        found["loss"] = ratio(of_image[:, LOSS], of_image[:, POSITIVES], "image")
        if of_image[:, POSITIVES].sum() < 1:
            found["loss"] = without_interval(self._loss(kept, np.arange(len(kept))), "no location has an object")
        return found

    def details(self, kept: Tensor, target: Tensor) -> dict[str, Any]:
        """The average precision of each class, and how many of it there are."""
        rows = []
        for name, found in zip(self.target.names, self._matched(kept, target)):
            of_class = precision.average_precision(found)
            every, half = (None if np.isnan(n) else float(n) for n in (of_class.mean(), of_class[0]))
            rows.append({"name": name, "count": int(found.actual.sum()), "map": every, "map_50": half})
        return {"boxes": {"per_class": rows}}

    def baseline(self, train_target: Tensor, target: Tensor) -> dict[str, Any]:
        """What whoever finds nothing reaches."""
        return {"name": "nothing found", "value": 0.0}

    def answers(self, outputs: Tensor) -> list[Tensor]:
        """The boxes that are said of each image, as `said` gives them."""
        return [self.said(rows) for rows in self.keep(outputs, outputs.new_empty(len(outputs), 0)).cpu()]

    def predictions(self, kept: Tensor) -> list[dict[str, Any]]:
        """What is in each image, in words: 2 × cat, dog. `said` has the boxes."""
        return [{self.target.column: self._words(self.said(rows)[:, CLASS])} for rows in kept]

    def rows(self, kept: Tensor, split: Split, preprocessing: BoxPreprocessing) -> list[dict[str, Any]]:
        """One row a box, in the pixels of the images as they are, the surest of each image first. Images in which
        nothing was found are warned of."""
        rows, without = [], []
        for i, own in enumerate(kept):
            said, image = self.said(own), split.image(i)
            assert image is not None, "a split of images has them"
            corners = preprocessing.original(said[:, :4], (image.height, image.width)).tolist()
            for (x1, y1, x2, y2), kind, score in zip(corners, said[:, CLASS].long().tolist(), said[:, SCORE].tolist()):
                box = {"x1": x1, "y1": y1, "x2": x2, "y2": y2}
                rows.append({"input": split.name(i), "class": self.target.names[kind], "score": score, **box})
            without += [] if len(said) else [split.name(i)]
        if without:
            some = ", ".join(without[:NAMED_AT_MOST]) + (", …" if len(without) > NAMED_AT_MOST else "")
            images = "1 image" if len(without) == 1 else f"{len(without):,} images"
            warnings.warn(f"Nothing was found in {images}: {some}.", stacklevel=3)
        return rows

    def said(self, rows: Tensor) -> Tensor:
        """The boxes that are said of an image, of its rows (100, 8): (m, 6), x1, y1, x2, y2 in the network's pixels,
        class and score, of at least SHOWN_SCORE, the surest first."""
        return rows[rows[:, SCORE] >= SHOWN_SCORE, : SCORE + 1]

    def mistakes(self, kept: Tensor, target: Tensor) -> list[dict[str, Any]]:
        """One row an image: the classes in it and those said, the score of the least sure box, the loss; and `boxes`,
        in the network's pixels: which were found, which are wrong, which were missed."""
        rows = []
        for own, there in zip(kept, target):
            said, actual = self.said(own), _actual(there)
            boxes = self._told(said, actual)
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

    def _told(self, said: Tensor, actual: Tensor) -> list[dict[str, Any]]:
        """Each box that was said, right or wrong, and each that was missed: the surest is matched first. What lies in a
        crowd of its class is not wrong."""
        names, found = self.target.names, []
        free = actual[actual[:, 4] >= 0]
        crowds = actual[actual[:, 4] < 0]
        for row in said:
            own, crowd = free[:, 4] == row[CLASS], crowds[-1 - crowds[:, 4] == row[CLASS]]
            overlap = bx.iou(row[:4], free[:, :4]).where(own, torch.zeros_like(own, dtype=row.dtype))
            hit = bool((overlap >= MATCHED).any())
            if hit:
                free = torch.cat([free[: int(overlap.argmax())], free[int(overlap.argmax()) + 1 :]])
            within = bx.shared(row[:4], crowd[:, :4]) >= MATCHED * bx.area(row[:4])
            kind = "right" if hit or bool(within.any()) else "wrong"
            found.append(_box(row, names, float(row[SCORE]), kind))
        return found + [_box(row, names, None, "missed") for row in free]

    def _words(self, classes: Tensor) -> str:
        """The classes by name, in the order of their numbers: 2 × cat, dog."""
        counts = torch.bincount(classes.long(), minlength=self.classes).tolist()
        said = [f"{n} × {name}" if n > 1 else name for name, n in zip(self.target.names, counts) if n]
        return ", ".join(said) or "nothing"

    def _matched(self, kept: Tensor, target: Tensor) -> list[precision.Found]:
        predicted = [rows[~rows[:, SCORE].isnan(), : SCORE + 1].double().cpu().numpy() for rows in kept]
        return precision.matched(predicted, [_actual(rows).double().cpu().numpy() for rows in target], self.classes)

    def _loss(self, kept: Tensor, rows: np.ndarray[Any, Any]) -> float:
        """The loss of these images as of one batch."""
        some = kept[torch.from_numpy(rows), 0].double()  # (n, 8)
        return float(some[:, LOSS].sum() / some[:, POSITIVES].sum().clamp(min=1))


def assigned(at: Tensor, target: Tensor) -> Tensor:
    """Which box of its image each location is to learn, (N, L); −1 where none. `at` (L, 3), `target` (N, M, 5).

    Of the boxes that a location is in, within RADIUS strides of the middle, and whose farthest side is as far as its
    level is for (4 to 8 strides; to the lowest level everything nearer belongs too, and to the highest everything
    farther): the smallest. Crowds are learned by none.
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
    """The boxes of an image's rows (M, 5), without padding."""
    return rows[rows[:, 0] != IGNORED]


def _box(row: Tensor, names: Sequence[str], score: float | None, kind: str) -> dict[str, Any]:
    return {"box": row[:4].tolist(), "name": names[int(row[CLASS])], "score": score, "kind": kind}
