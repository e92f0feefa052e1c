"""Boxes: overlap and its gradients, suppression, and what a detector without anchors writes down."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from cutaway.nn import boxes as bx
from cutaway.nn.losses import focal
from cutaway.verify.libraries import make_torchvision_importable

# What is added to areas that are divided by, beside boxes of at least 1 px²: an IoU is off by that at most.
OFF = 2 * bx.EPS


def drawn(count: int, seed: int, side: float = 40) -> Tensor:
    """Boxes of at least one pixel, float64, of which many overlap."""
    generator = torch.Generator().manual_seed(seed)
    corner, size = torch.rand(2, count, 2, generator=generator, dtype=torch.float64)
    return torch.cat([corner * side, corner * side + 1 + size * side / 2], 1)


def in_pixels(box: list[int], side: int = 12) -> set[tuple[int, int]]:
    """The pixels that a box of whole numbers covers."""
    x1, y1, x2, y2 = box
    return {(x, y) for x in range(side) for y in range(side) if x1 <= x < x2 and y1 <= y < y2}


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 11), min_size=4, max_size=4), st.lists(st.integers(0, 11), min_size=4, max_size=4))
def test_overlap_is_that_of_the_pixels(a: list[int], b: list[int]) -> None:
    first, second = ([min(p[0], p[2]), min(p[1], p[3]), max(p[0], p[2]) + 1, max(p[1], p[3]) + 1] for p in (a, b))
    one, other = in_pixels(first), in_pixels(second)
    hull = (max(first[2], second[2]) - min(first[0], second[0])) * (max(first[3], second[3]) - min(first[1], second[1]))
    tensors = [torch.tensor(box, dtype=torch.float64) for box in (first, second)]
    assert float(bx.area(tensors[0])) == len(one)
    assert float(bx.intersection_area(*tensors)) == len(one & other)
    expected = len(one & other) / len(one | other)
    assert float(bx.iou(*tensors)) == pytest.approx(expected, abs=OFF)
    assert float(bx.giou(*tensors)) == pytest.approx(expected - (hull - len(one | other)) / hull, abs=OFF)
    assert float(bx.giou(*tensors)) == float(bx.giou(*tensors[::-1]))


def test_overlap_and_losses_are_torchvisions() -> None:
    make_torchvision_importable()
    ops = pytest.importorskip("torchvision.ops")
    a, b = drawn(30, 0), drawn(40, 1)
    torch.testing.assert_close(bx.iou(a[:, None], b), ops.box_iou(a, b), atol=OFF, rtol=0)
    torch.testing.assert_close(bx.giou(a[:, None], b), ops.generalized_box_iou(a, b), atol=OFF, rtol=0)
    results = []
    for loss in (lambda x: (1 - bx.giou(x, b[:30])).sum(), lambda x: ops.generalized_box_iou_loss(x, b[:30]).sum()):
        x = a.clone().requires_grad_()
        loss(x).backward()
        results.append(x.grad)
    torch.testing.assert_close(*results, atol=1e-12, rtol=1e-9)
    generator = torch.Generator().manual_seed(2)
    z = 4 * torch.randn(50, 3, generator=generator, dtype=torch.float64)
    target = (torch.rand(50, 3, generator=generator) < 0.3).double()
    torch.testing.assert_close(focal(z, target), ops.sigmoid_focal_loss(z, target), atol=1e-14, rtol=1e-12)


def test_generalized_overlap_has_a_right_gradient_where_boxes_are_apart_and_where_they_meet() -> None:
    a, b = drawn(12, 3).requires_grad_(), drawn(12, 4)
    assert bool((bx.iou(a, b) == 0).any())
    assert torch.autograd.gradcheck(lambda x: bx.giou(x, b), (a,))
    apart = torch.tensor([0.0, 0.0, 2.0, 2.0], requires_grad=True)
    bx.giou(apart, torch.tensor([5.0, 0.0, 7.0, 2.0])).backward()
    assert apart.grad is not None
    assert apart.grad[2] > 0  # its right side is drawn towards the other


def test_a_box_of_no_area_gives_no_nan() -> None:
    point = torch.tensor([3.0, 3.0, 3.0, 3.0], requires_grad=True)
    value = bx.giou(point, torch.tensor([3.0, 3.0, 3.0, 3.0]))
    value.backward()
    assert value.isfinite()
    assert point.grad is not None
    assert point.grad.isfinite().all()


def plainly(boxes: Tensor, scores: Tensor, classes: Tensor, threshold: float) -> list[int]:
    """Non-maximum suppression by its definition, one box after another. (torchvision's own is a compiled operator,
    which is not everywhere.)"""
    kept: list[int] = []
    for i in sorted(range(len(boxes)), key=lambda i: -float(scores[i])):
        rivals = [j for j in kept if classes[j] == classes[i]]
        if all(float(bx.iou(boxes[i], boxes[j])) <= threshold for j in rivals):
            kept.append(i)
    return kept


@settings(max_examples=40, deadline=None)
@given(count=st.integers(0, 30), seed=st.integers(0, 10**6), threshold=st.floats(0, 1), classes=st.integers(1, 3))
def test_suppression_is_that_of_its_definition(count: int, seed: int, threshold: float, classes: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    boxes, scores = drawn(count, seed, side=12), torch.rand(count, generator=generator)
    of = torch.randint(classes, (count,), generator=generator)
    assert bx.nms(boxes, scores, of, threshold).tolist() == plainly(boxes, scores, of, threshold)


def test_a_suppressed_box_suppresses_none() -> None:
    row = torch.tensor([[0.0, 0, 10, 10], [4, 0, 14, 10], [8, 0, 18, 10]])  # each overlaps the next alone
    scores, one = torch.tensor([0.9, 0.8, 0.7]), torch.zeros(3)
    assert bx.nms(row, scores, one, 0.3).tolist() == [0, 2]
    assert bx.nms(row, scores, torch.tensor([0, 1, 0]), 0.3).tolist() == [0, 1, 2]


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_boxes_come_back_from_their_distances(seed: int) -> None:
    boxes = drawn(7, seed)
    at = torch.cat([(boxes[:, :2] + boxes[:, 2:]) / 2, torch.tensor([[4.0], [8.0]])[torch.arange(7) % 2].double()], 1)
    distances = bx.encode(boxes, at)
    torch.testing.assert_close(bx.decode(distances, at), boxes, atol=1e-12, rtol=0)
    torch.testing.assert_close(bx.centerness(distances), torch.ones(7, dtype=torch.float64))  # they are in the middle


def test_locations_stand_in_their_cells_and_centerness_falls_to_the_side() -> None:
    at = bx.locations([(2, 3), (1, 1)], [4, 16])
    assert at.tolist() == [[2, 2, 4], [6, 2, 4], [10, 2, 4], [2, 6, 4], [6, 6, 4], [10, 6, 4], [8, 8, 16]]
    assert bx.locations([(1, 2)], [8], shift=0.0).tolist() == [[0, 0, 8], [8, 0, 8]]
    assert float(bx.centerness(torch.tensor([1.0, 2.0, 4.0, 2.0]))) == pytest.approx(0.5)
    assert float(bx.centerness(torch.tensor([0.0, 2.0, 4.0, 2.0]))) == 0
    clipped = bx.clip(torch.tensor([-3.0, 2.0, 50.0, 90.0]), 40, 30)
    assert clipped.tolist() == [0, 2, 30, 40]
