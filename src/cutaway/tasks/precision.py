"""Average precision of boxes by COCO's rules: pycocotools matches the boxes once, and all means follow from that.

T.-Y. Lin et al., Microsoft COCO: common objects in context, 2014 <https://arxiv.org/abs/1405.0312>. In the order of
their scores, boxes are matched to actual boxes of their class with an IoU of at least t. The precision is averaged over
101 levels of recall, each with the best precision at that recall or higher. mAP@[.5:.95] is the mean over ten
thresholds t and over the classes that occur.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..core.extras import require
from ..statistics.classes import too_few_examples
from ..statistics.intervals import MAX_UNITS, Metric, fraction, group_units, interval_without_each, without_interval

Array = npt.NDArray[np.float64]

THRESHOLDS = np.linspace(0.5, 0.95, 10)  # of IoU
RECALLS = np.linspace(0, 1, 101)
MOST = 100  # largest number of boxes of an image that count, those with the highest scores
# Below which there is no interval: precision at a recall is the best one at that recall or higher, and the best of few
# images is too high. With 30 and 50 images mAP@[.5:.95] is too high by more than 0.4 standard errors.
LEAST_IMAGES = 100
FEWEST, WORK = 100, 4e8  # smallest number of groups of images for intervals, and largest number of summed elements


@dataclass(frozen=True)
class MatchedBoxes:
    """The matched boxes of one class in all images, highest score first."""

    images: npt.NDArray[np.int64]  # (D,): image of each box
    right: npt.NDArray[np.bool_]  # (T, D): whether it matches an actual box, for each IoU threshold
    wrong: npt.NDArray[np.bool_]  # (T, D): whether it matches none; boxes within a crowd are neither right nor wrong
    actual: npt.NDArray[np.int64]  # (n,): number of actual boxes in each image, without crowds


def match_boxes(predicted: list[Array], actual: list[Array], classes: int) -> list[MatchedBoxes]:
    """Match the boxes of each class.

    `predicted` has for each image (m, 6): x1, y1, x2, y2, class and score. `actual` has (m, 5): x1, y1, x2, y2 and the
    class, −1 − k for a crowd of class k.
    """
    judge = require("pycocotools.cocoeval", "Mean average precision").COCOeval(iouType="bbox")
    judge.params.maxDets = [MOST]
    whole = [0.0, float("inf")]  # of areas
    found: list[list[dict[str, Any]]] = [[] for _ in range(classes)]
    counts = np.zeros((classes, len(actual)), np.int64)
    number = 1  # id of a box; 0 means none
    for image, (said, there) in enumerate(zip(predicted, actual)):
        for box in there:
            crowd = bool(box[4] < 0)
            k = int(-1 - box[4] if crowd else box[4])
            counts[k, image] += not crowd
            judge._gts[image, k].append({**_box(box, number), "ignore": crowd, "iscrowd": int(crowd)})
            number += 1
        for box in said:
            judge._dts[image, int(box[4])].append({**_box(box, number), "score": float(box[5])})
            number += 1
    for image, k in sorted(judge._dts):  # images without predicted boxes have no matches
        judge.ious[image, k] = judge.computeIoU(image, k)
        found[k].append(judge.evaluateImg(image, k, whole, MOST))
    return [_joined(of_class, counts[k]) for k, of_class in enumerate(found)]


def _box(box: Array, number: int) -> dict[str, Any]:
    x1, y1, x2, y2 = (float(n) for n in box[:4])
    return {"id": number, "bbox": [x1, y1, x2 - x1, y2 - y1], "area": (x2 - x1) * (y2 - y1)}


def _joined(images: list[dict[str, Any]], actual: npt.NDArray[np.int64]) -> MatchedBoxes:
    """Join the boxes of all images, sorted by score; ties are in the order of images, as in COCO."""
    if not images:
        none = np.zeros((len(THRESHOLDS), 0), bool)
        return MatchedBoxes(np.zeros(0, np.int64), none, none, actual)
    order = np.argsort([-score for image in images for score in image["dtScores"]], kind="stable")
    hit = np.concatenate([image["dtMatches"] for image in images], 1)[:, order] > 0
    ignored = np.concatenate([image["dtIgnore"] for image in images], 1)[:, order] > 0
    of = np.repeat([image["image_id"] for image in images], [len(image["dtScores"]) for image in images])[order]
    return MatchedBoxes(of, hit & ~ignored, ~hit & ~ignored, actual)


def average_precision(found: MatchedBoxes, times: Array | None = None) -> Array:
    """Return the average precision for each threshold, (T,); NaN where the class does not occur.

    `times` (n,) is the weight of each image in a resample; 1 by default. An image of weight 2 counts as two images.
    Their boxes of equal score are processed at once, which changes no mean: recall is reached by the last correct one,
    and no position within them has a better precision.
    """
    times = np.ones(len(found.actual)) if times is None else times
    total = float(found.actual @ times)
    if total == 0:
        return np.full(len(THRESHOLDS), np.nan)
    weights = times[found.images]  # (D,)
    right = np.cumsum(found.right * weights, 1)  # (T, D)
    said = right + np.cumsum(found.wrong * weights, 1)
    precision = np.divide(right, said, out=np.zeros_like(right), where=said > 0)
    best = np.maximum.accumulate(precision[:, ::-1], 1)[:, ::-1]
    recall = right / total
    result = np.zeros(len(THRESHOLDS))
    for t, levels in enumerate(recall):
        at = np.searchsorted(levels, RECALLS, side="left")
        result[t] = best[t, at[at < len(levels)]].sum() / len(RECALLS)
    return result


def table(found: list[MatchedBoxes], times: Array | None = None) -> Array:
    """Return the average precision of each class at each threshold, (K, T)."""
    return np.stack([average_precision(of_class, times) for of_class in found])


def means(precisions: Array) -> Array:
    """Return mAP@[.5:.95], mAP@.5 and mAP@.75 of (K, T), over the classes that occur; NaN if none does."""
    there = precisions[~np.isnan(precisions).any(1)]
    return np.array([there.mean(), there[:, 0].mean(), there[:, 5].mean()]) if len(there) else np.full(3, np.nan)


def intervals(found: list[MatchedBoxes], names: Sequence[str]) -> dict[str, Metric]:
    """Return mAP@[.5:.95], mAP@.5 and mAP@.75 with their intervals, for the matched boxes of the classes `names`.

    The units are images, or groups of images where there are many boxes.
    """
    count = len(found[0].actual)
    values = means(table(found))
    images = np.array([int((of_class.actual > 0).sum()) for of_class in found])
    occur = images > 0
    reason = too_few_examples(images[occur], [name for name, some in zip(names, occur) if some], "images")
    if count < LEAST_IMAGES:
        reason = f"fewer than {LEAST_IMAGES} images"
    without = np.full((0, 3), np.nan)
    if not reason and occur.any():
        numbers = sum(of_class.right.size for of_class in found) + count
        group = group_units(count, int(max(FEWEST, min(MAX_UNITS, WORK // numbers))))
        without = np.stack([means(table(found, (group != g).astype(float))) for g in range(int(group.max()) + 1)])
    metrics = {}
    for k, name in enumerate(("map", "map_50", "map_75")):
        value = float(values[k])
        if np.isnan(value) or reason:
            metrics[name] = without_interval(value, reason or "no image has a box")
        else:
            metrics[name] = interval_without_each(value, without[:, k], fraction)
    return metrics
