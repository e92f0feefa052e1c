"""Detection: average precision beside pycocotools' own, intervals beside plain resampling, and what is said of an
image."""

from __future__ import annotations

import contextlib
import io
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval
from torch import Tensor

from cutaway.core.errors import SettingError
from cutaway.core.spec import Boxes, ImageSpec
from cutaway.data.dataset_base import IGNORED
from cutaway.statistics.intervals import effective
from cutaway.tasks import precision
from cutaway.tasks.detection import KEPT, LOSS, POSITIVES, Detection, assign_boxes
from cutaway.tasks.task import task_for

NAMES = ("cat", "dog", "fish")
SPEC = ImageSpec(1, 40, 40, Boxes(NAMES, 4))
Rows = list[np.ndarray[Any, np.dtype[np.float64]]]


def task() -> Detection:
    found = task_for(SPEC)
    assert isinstance(found, Detection)
    return found


def random_scenes(seed: int, count: int = 12, crowds: bool = True, ties: bool = True) -> tuple[Rows, Rows]:
    """What is said and what is there in so many images: some boxes found nearly, some invented, some missed; with
    `ties` many have the same score."""
    rng = np.random.default_rng(seed)
    said, there = [], []
    for _ in range(count):
        m = int(rng.integers(0, 5))
        corner, size = rng.uniform(0, 25, (m, 2)), rng.uniform(3, 14, (m, 2))
        kind = rng.integers(0, len(NAMES), m)
        crowd = (rng.random(m) < 0.2) & crowds
        boxes = np.concatenate([corner, corner + size, np.where(crowd, -1 - kind, kind)[:, None]], 1)
        near = boxes[rng.random(m) < 0.8].copy()
        near[:, 4] = np.where(near[:, 4] < 0, -1 - near[:, 4], near[:, 4])
        near[:, :4] += rng.normal(0, 0.8, (len(near), 4))
        wild = rng.uniform(0, 20, (int(rng.integers(0, 4)), 5))
        wild[:, 2:4] += wild[:, :2] + 2
        wild[:, 4] = rng.integers(0, len(NAMES), len(wild))
        found = np.concatenate([near, wild])
        scores = rng.choice(np.linspace(0.1, 0.9, 7), len(found)) if ties else rng.random(len(found))
        said.append(np.concatenate([found, scores[:, None]], 1))
        there.append(boxes)
    return said, there


def coco_says(said: Rows, there: Rows) -> tuple[float, float, float]:
    """mAP@[.5:.95], mAP@.5 and mAP@.75 as pycocotools has them, from its own door to its own table."""
    images = [{"id": i} for i in range(len(there))]
    actual, found = [], []
    for i, (rows, boxes) in enumerate(zip(said, there)):
        for x1, y1, x2, y2, k in boxes:
            crowd = bool(k < 0)
            box, area = [x1, y1, x2 - x1, y2 - y1], (x2 - x1) * (y2 - y1)
            actual.append(
                {
                    "id": len(actual) + 1,
                    "image_id": i,
                    "category_id": int(-1 - k if crowd else k),
                    "bbox": box,
                    "area": area,
                }
                | {"iscrowd": int(crowd)}
            )
        for x1, y1, x2, y2, k, score in rows:
            found.append({"image_id": i, "category_id": int(k), "bbox": [x1, y1, x2 - x1, y2 - y1], "score": score})
    with contextlib.redirect_stdout(io.StringIO()):
        coco = COCO()
        coco.dataset = {"images": images, "annotations": actual, "categories": [{"id": k} for k in range(len(NAMES))]}
        coco.createIndex()
        judge = COCOeval(coco, coco.loadRes(found), "bbox")
        judge.evaluate()
        judge.accumulate()
        judge.summarize()
    first, half, three_quarters, *_ = judge.stats
    return float(first), float(half), float(three_quarters)


@pytest.mark.parametrize("seed", range(6))
def test_average_precision_is_pycocotools(seed: int) -> None:
    said, there = random_scenes(seed)
    found = precision.match_boxes(said, there, len(NAMES))
    assert precision.means(precision.table(found)) == pytest.approx(coco_says(said, there), abs=1e-12)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_an_image_that_counts_twice_is_two_images(seed: int) -> None:
    said, there = random_scenes(seed, count=6, ties=False)
    times = np.random.default_rng(seed).integers(0, 4, len(there))
    weighed = precision.table(precision.match_boxes(said, there, 3), times.astype(float))
    copied = [i for i, n in enumerate(times) for _ in range(n)]
    again = precision.table(precision.match_boxes([said[i] for i in copied], [there[i] for i in copied], 3))
    np.testing.assert_allclose(weighed, again, atol=1e-12)


def test_of_a_class_that_does_not_occur_nothing_is_measured() -> None:
    said, there = [np.array([[0, 0, 9, 9, 0, 0.9]])], [np.array([[0.0, 0, 9, 9, 0]])]
    table = precision.table(precision.match_boxes(said, there, 3))
    assert table[0].tolist() == pytest.approx([1.0] * 10)
    assert np.isnan(table[1:]).all()
    assert precision.means(table).tolist() == pytest.approx([1, 1, 1])
    assert np.isnan(precision.means(table[1:])).all()


def kept_of(said: Rows, there: Rows) -> tuple[Tensor, Tensor]:
    """What evaluation keeps, and the target."""
    kept = torch.full((len(said), KEPT, 8), torch.nan)
    target = torch.full((len(there), max(1, *map(len, there)), 5), float(IGNORED))
    for i, (rows, boxes) in enumerate(zip(said, there)):
        kept[i, : len(rows), :6] = torch.from_numpy(rows[np.argsort(-rows[:, 5], kind="stable")])
        kept[i, :, LOSS], kept[i, :, POSITIVES] = 2.0 + i, 4.0
        target[i, : len(boxes)] = torch.from_numpy(boxes)
    return kept, target


def test_metrics_have_intervals_that_hold_them_and_are_the_same_every_time() -> None:
    said, there = random_scenes(3, count=40, crowds=False)
    kept, target = kept_of(said, there)
    metrics = task().metrics(kept, target)
    assert list(metrics) == ["map", "map_50", "map_75", "loss"]
    assert metrics["map"].value == pytest.approx(coco_says(said, there)[0], abs=1e-3)
    for metric in metrics.values():
        assert metric.low < metric.value < metric.high
    assert task().metrics(kept, target) == metrics
    assert metrics["loss"].value == pytest.approx(sum(2 + i for i in range(40)) / 160)
    quick = task().fast_metrics(kept, target)
    assert quick == pytest.approx({key: metrics[key].value for key in ("map", "map_50", "loss")})
    per_class = task().details(kept, target)["boxes"]["per_class"]
    assert [row["name"] for row in per_class] == list(NAMES)
    assert np.mean([row["map"] for row in per_class]) == pytest.approx(metrics["map"].value)
    assert sum(row["count"] for row in per_class) == sum(map(len, there))
    assert task().baseline(target, target) == {"name": "no detections", "value": 0.0}


def test_intervals_are_those_of_leaving_out_each_image() -> None:
    said, there = random_scenes(5, count=32, ties=False)
    found = precision.intervals(precision.match_boxes(said, there, 3), NAMES)
    value, without = _means(said, there), []
    for image in range(32):
        without.append(_means(said[:image] + said[image + 1 :], there[:image] + there[image + 1 :]))
    variance = 31 / 32 * np.square(np.array(without) - np.mean(without, 0)).sum(0)
    for k, key in enumerate(("map", "map_50", "map_75")):
        expected = effective(value[k], variance[k], 32, 31)
        assert found[key].value == pytest.approx(value[k])
        assert (found[key].low, found[key].high) == pytest.approx((expected.low, expected.high), rel=1e-9)


def _means(said: list[np.ndarray], there: list[np.ndarray]) -> np.ndarray:
    return precision.means(precision.table(precision.match_boxes(said, there, 3)))


def test_few_images_have_no_interval() -> None:
    said, there = random_scenes(5, count=8, ties=False)
    found = precision.intervals(precision.match_boxes(said, there, 3), NAMES)
    assert found["map"].note == "no interval: fewer than 30 images"
    said, there = random_scenes(6, count=40, ties=False)
    matches = precision.match_boxes(said, there, 3)
    matches[2].actual[:] = np.arange(40) < 3
    found = precision.intervals(matches, NAMES)
    assert found["map_50"].note == f"no interval: fewer than 5 images of class {NAMES[2]!r}"


def outputs_for(boxes: list[list[float]], stride: float = 4.0, sure: float = 8.0) -> Tensor:
    """Outputs (1, L, 11) that say these boxes, (x1, y1, x2, y2, class), each at the location nearest to its middle,
    with `sure` for its logit; everywhere else nothing."""
    side = int(40 / stride)
    at = torch.tensor([[(x + 0.5) * stride, (y + 0.5) * stride, stride] for y in range(side) for x in range(side)])
    outputs = torch.cat([torch.full((side**2, 3), -9.0), torch.ones(side**2, 4), torch.full((side**2, 1), sure), at], 1)
    for x1, y1, x2, y2, k in boxes:
        i = int((at[:, :2] - torch.tensor([(x1 + x2) / 2, (y1 + y2) / 2])).abs().sum(1).argmin())
        x, y, _ = at[i].tolist()
        outputs[i, int(k)] = sure
        outputs[i, 3:7] = torch.tensor([x - x1, y - y1, x2 - x, y2 - y]) / stride
    return outputs[None]


def test_what_is_said_of_an_image() -> None:
    target = torch.tensor([[[2.0, 2, 18, 14, 0], [22, 20, 36, 38, 1], [24, 2, 34, 12, 2]]])
    outputs = outputs_for([[2, 2, 18, 14, 0], [22, 20, 36, 38, 0], [3, 26, 13, 36, 2]])
    kept = task().summarize_outputs(outputs, target)
    assert kept.shape == (1, KEPT, 8)
    assert task().predictions(kept) == [{"boxes": "2 × cat, fish"}]
    (row,) = task().example_results(kept, target)
    assert (row["actual"], row["predicted"], row["wrong"]) == ("cat, dog, fish", "2 × cat, fish", True)
    told = sorted((box["name"], box["kind"]) for box in row["boxes"])
    assert told == [("cat", "right"), ("cat", "wrong"), ("dog", "missed"), ("fish", "missed"), ("fish", "wrong")]
    assert task().predictions(task().summarize_outputs(outputs_for([]), torch.empty(1, 0))) == [{"boxes": "nothing"}]


def test_what_lies_in_a_crowd_is_neither_wrong_nor_missed() -> None:
    target = torch.tensor([[[0.0, 0, 30, 30, -1.0], [-100.0] * 5]])  # a crowd of cats
    kept = task().summarize_outputs(outputs_for([[2, 2, 10, 10, 0], [12, 12, 22, 22, 0]]), target)
    (row,) = task().example_results(kept, target)
    assert not row["wrong"]
    assert row["actual"] == "nothing"
    assert [box["kind"] for box in row["boxes"]] == ["right", "right"]
    assert not kept[0, 0, POSITIVES]  # and nothing is learned there


def test_of_two_boxes_of_a_class_the_surer_suppresses_and_none_reaches_beyond_the_image() -> None:
    said = task().detect(outputs_for([[0, 0, 16, 16, 0], [3, 0, 19, 16, 0], [3, 2, 60, 16, 1]]))[0]
    assert said[:, 4].tolist().count(0) == 1
    assert said[:, :4].max() <= 40


def test_a_location_learns_the_smallest_box_that_it_is_in_the_middle_of() -> None:
    at = torch.tensor([[20.0, 20, 4], [26.0, 20, 4], [20.0, 20, 8], [36.0, 20, 4]])
    target = torch.tensor(
        [[[8.0, 8, 32, 32, 0], [14, 14, 26, 26, 1], [-100.0] * 5], [[0, 0, 40, 40, 2], [-100] * 5, [-100] * 5]]
    )
    found = assign_boxes(at, target)
    # The smaller of two; its middle is 6 pixels off, which is not within 1.5 strides of 4, nor is the other's; of the
    # upper level, neither reaches 4 strides; outside of all.
    assert found.tolist() == [[1, -1, -1, -1], [0, -1, -1, -1]]
    crowd = target.clone()
    crowd[0, 1, 4] = -2
    assert assign_boxes(at, crowd)[0].tolist() == [0, -1, -1, -1]


@pytest.mark.parametrize(
    "given", [{"loss": "cross_entropy"}, {"label_smoothing": 0.1}, {"class_weights": torch.ones(3)}]
)
def test_what_is_for_classes_is_rejected(given: dict[str, Any]) -> None:
    with pytest.raises(SettingError, match=next(iter(given))):
        task_for(SPEC, **given)
