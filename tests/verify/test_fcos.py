"""FCOS beside torchvision's: the losses and their gradients, and the boxes that are made of the outputs."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor

from cutaway.core.spec import Boxes
from cutaway.data.dataset_base import IGNORED
from cutaway.models.fcos import PRESETS, Config
from cutaway.tasks import detection
from cutaway.tasks.detection import Detection
from cutaway.verify import OracleMissing, compared_config
from cutaway.verify.dense_prediction import DetectorOutputs, torchvision_detector
from cutaway.verify.libraries import torchvision_models

CLASSES, HEIGHT, WIDTH = 5, 128, 256
SMALL = dataclasses.replace(PRESETS["fcos-resnet18-small"], width=8, dim=16, num_classes=CLASSES, centred=False)
LARGE = dataclasses.replace(compared_config("fcos-resnet50", PRESETS["fcos-resnet50"]), num_classes=CLASSES)


class Detector:
    """torchvision's detector with random weights, and what it computes for three random images."""

    def __init__(self, config: Config) -> None:
        generator = torch.Generator().manual_seed(1)
        try:
            self.detector = torchvision_detector(config).double()
        except OracleMissing as missing:
            pytest.skip(str(missing))
        with torch.no_grad():
            for p in self.detector.parameters():
                p.add_(0.1 * torch.randn(p.shape, generator=generator, dtype=p.dtype))
        x = torch.randn(3, 3, HEIGHT, WIDTH, generator=generator, dtype=torch.float64)
        self.sizes = [(HEIGHT, WIDTH)] * 3
        self.maps = [m.detach() for m in self.detector.backbone(x).values()]
        self.said: dict[str, Any] = self.detector.head(self.maps)
        lists = torchvision_models("detection.image_list")
        self.anchors = self.detector.anchor_generator(lists.ImageList(x, self.sizes), self.maps)
        self.outputs: Tensor = DetectorOutputs(self.detector, 0.0)(x).detach()
        self.counts = [m.shape[2] * m.shape[3] for m in self.maps]


@pytest.fixture(scope="module", params=[SMALL, LARGE], ids=["small", "large"])
def theirs(request: pytest.FixtureRequest) -> Detector:
    """A detector of each kind."""
    return Detector(request.param)


def objects(seed: int = 0) -> tuple[list[dict[str, Tensor]], Tensor]:
    """Boxes of every size in three images, 9, 4 and 0 of them: as torchvision takes them, and as a target here."""
    generator = torch.Generator().manual_seed(seed)
    target = torch.full((3, 9, 5), float(IGNORED), dtype=torch.float64)
    rows = []
    for image, count in enumerate((9, 4, 0)):
        corner, size = torch.rand(2, count, 2, generator=generator, dtype=torch.float64)
        size = 2 + size**2 * torch.tensor([WIDTH - 10, HEIGHT - 10])
        boxes = torch.cat([corner, corner], 1) * (torch.tensor([WIDTH, HEIGHT] * 2) - size.repeat(1, 2))
        boxes[:, 2:] += size
        labels = torch.randint(CLASSES, (count,), generator=generator)
        rows.append({"boxes": boxes, "labels": labels})
        target[image, :count] = torch.cat([boxes, labels[:, None]], 1)
    return rows, target


def task() -> Detection:
    return Detection(Boxes(tuple("abcde"), 9), (3, HEIGHT, WIDTH))


def test_the_three_losses_and_their_gradients_are_torchvisions(theirs: Detector) -> None:
    rows, target = objects()
    for answer in theirs.said.values():
        answer.retain_grad()
    losses = theirs.detector.compute_loss(rows, theirs.said, theirs.anchors, theirs.counts)
    sum(losses.values()).backward()
    outputs = theirs.outputs.clone().requires_grad_()
    parts, positives = task().parts(outputs, target)
    assert positives[0] > 0
    assert positives[2] == 0
    expected = torch.stack([losses[key] for key in ("classification", "bbox_regression", "bbox_ctrness")])
    torch.testing.assert_close(parts.sum(0) / positives.sum(), expected, atol=0, rtol=1e-12)
    loss = task().loss(outputs, target) / task().loss_denominator(target)
    torch.testing.assert_close(loss, expected.sum(), atol=0, rtol=1e-12)
    loss.backward()  # type: ignore[no-untyped-call]
    assert outputs.grad is not None
    gradients = torch.cat([answer.grad for answer in theirs.said.values()], 2)
    torch.testing.assert_close(outputs.grad[:, :, : CLASSES + 5], gradients, atol=1e-15, rtol=1e-9)


def test_nothing_but_background_has_a_loss_of_classes_alone(theirs: Detector) -> None:
    parts, positives = task().parts(theirs.outputs, torch.full((3, 2, 5), float(IGNORED), dtype=torch.float64))
    assert not positives.any()
    assert (parts[:, 0] > 0).all()
    assert not parts[:, 1:].any()


def test_the_boxes_are_torchvisions(theirs: Detector, monkeypatch: pytest.MonkeyPatch) -> None:
    fcos = torchvision_models("detection.fcos")

    def suppressed(boxes: Tensor, scores: Tensor, classes: Tensor, threshold: float) -> Tensor:
        """The definition, as torchvision's own is a compiled operator that is not everywhere."""
        kept: list[int] = []
        overlap = fcos.box_ops.box_iou(boxes, boxes)
        for i in scores.argsort(descending=True, stable=True).tolist():
            if not any(classes[i] == classes[j] and overlap[i, j] > threshold for j in kept):  # NaN of no area is not
                kept.append(i)
        return torch.tensor(kept, dtype=torch.int64)

    monkeypatch.setattr(fcos.box_ops, "batched_nms", suppressed)
    limit = float(task_scores(theirs.outputs).flatten().sort(descending=True).values[400])
    monkeypatch.setattr(detection, "LEAST_SCORE", limit)
    theirs.detector.score_thresh = limit
    single = {key: list(answer.float().split(theirs.counts, 1)) for key, answer in theirs.said.items()}
    anchors = [list(own.float().split(theirs.counts)) for own in theirs.anchors]
    expected = theirs.detector.postprocess_detections(single, anchors, theirs.sizes)
    for own, there in zip(task().detect(theirs.outputs), expected):
        count = len(there["scores"])
        torch.testing.assert_close(own[:count, 5], there["scores"].detach(), atol=1e-6, rtol=1e-5)
        torch.testing.assert_close(own[:count, :4], there["boxes"].detach(), atol=1e-3, rtol=1e-5)
        assert own[:count, 4].tolist() == there["labels"].tolist()
        assert len(own) == count


def task_scores(outputs: Tensor) -> Tensor:
    """The score of every class at every location."""
    return (outputs[:, :, :CLASSES].sigmoid() * outputs[:, :, CLASSES + 4, None].sigmoid()).sqrt()
