"""Bounding boxes: overlap, non-maximum suppression, and the encoding of an anchor-free detector.

A box is (x1, y1, x2, y2) in pixels, the last axis of a tensor (…, 4): [x1, x2) × [y1, y2). A location of a feature map
is (x, y, s), (…, 3): its pixel and the stride of its map. FCOS encodes the box around a location as the distances to
its four sides, in strides:

    l = (x − x1) / s    t = (y − y1) / s    r = (x2 − x) / s    b = (y2 − y) / s

After Z. Tian, C. Shen, H. Chen, T. He, FCOS: Fully convolutional one-stage object detection, 2019
<https://arxiv.org/abs/1904.01355>, sections 3.1 and 3.3; H. Rezatofighi et al., Generalized intersection over union,
2019 <https://arxiv.org/abs/1902.09630>. All functions take tensors on any device.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

EPS = 1e-7  # px², added to areas in denominators, so that two boxes of zero area have an overlap of 0 and not NaN


def area(boxes: Tensor) -> Tensor:
    """Return the areas (x2 − x1)(y2 − y1) of boxes (…, 4), shape (…)."""
    return (boxes[..., 2] - boxes[..., 0]) * (boxes[..., 3] - boxes[..., 1])


def intersection_area(a: Tensor, b: Tensor) -> Tensor:
    """Return the intersection areas |a ∩ b| of boxes (…, 4) that broadcast."""
    sides = torch.minimum(a[..., 2:], b[..., 2:]) - torch.maximum(a[..., :2], b[..., :2])  # (…, 2)
    return sides.relu().prod(-1)


def iou(a: Tensor, b: Tensor) -> Tensor:
    """Return the intersection over union, |a ∩ b| / |a ∪ b|, of boxes (…, 4) that broadcast.

    `iou(a[:, None], b)` is the matrix of all pairs.
    """
    both = intersection_area(a, b)
    return both / (area(a) + area(b) - both + EPS)


def giou(a: Tensor, b: Tensor) -> Tensor:
    r"""Return the generalized IoU, −1 to 1, of boxes (…, 4) that broadcast.

    It is |a ∩ b| / |a ∪ b| − |c \ (a ∪ b)| / |c| with c the smallest box around both. Unlike IoU, it has a gradient
    where the boxes do not overlap.
    """
    both = intersection_area(a, b)
    joint = area(a) + area(b) - both
    around = torch.cat([torch.minimum(a[..., :2], b[..., :2]), torch.maximum(a[..., 2:], b[..., 2:])], -1)
    hull = area(around)
    return both / (joint + EPS) - (hull - joint) / (hull + EPS)


def nms(boxes: Tensor, scores: Tensor, classes: Tensor, threshold: float) -> Tensor:
    """Return the indices of the boxes that non-maximum suppression keeps in each class, highest score first.

    Boxes are visited by falling score. A box is kept unless its IoU with a box of the same class that is already kept
    is above `threshold`. `boxes` is (n, 4), `scores` and `classes` are (n,).

    Whether a box is kept depends only on the boxes before it. All decisions are recomputed with whole matrices until
    none changes. This takes as many rounds as the longest chain of boxes that decide each other, which is few in
    practice.
    """
    order = scores.argsort(descending=True, stable=True)
    sorted_, of = boxes[order], classes[order]
    rivals = (iou(sorted_[:, None], sorted_) > threshold) & (of[:, None] == of)
    above = rivals.triu(1)  # (n, n): True where the row, if kept, suppresses the column
    kept = torch.ones_like(order, dtype=torch.bool)
    while True:
        now = ~(above & kept[:, None]).any(0)
        if torch.equal(now, kept):
            return order[kept]
        kept = now


def locations(sizes: Sequence[tuple[int, int]], strides: Sequence[int], shift: float = 0.5) -> Tensor:
    """Return the locations (L, 3) of feature maps with the given sizes (height, width), map by map and row by row.

    A location is the pixel ((column + shift) · stride, (row + shift) · stride) and the stride.
    """
    found = []
    for (height, width), stride in zip(sizes, strides):
        y, x = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
        centres = (torch.stack([x, y], 2).view(-1, 2) + shift) * stride  # (H · W, 2)
        found.append(torch.cat([centres, torch.full((height * width, 1), float(stride))], 1))
    return torch.cat(found)


def encode(boxes: Tensor, at: Tensor) -> Tensor:
    """Return the distances l, t, r, b (…, 4), in strides, of boxes (…, 4) from locations (…, 3)."""
    centre, stride = at[..., :2], at[..., 2:]
    return torch.cat([centre - boxes[..., :2], boxes[..., 2:] - centre], -1) / stride


def decode(distances: Tensor, at: Tensor) -> Tensor:
    """Return the boxes (…, 4) of distances (…, 4) from locations (…, 3). This is the inverse of `encode`."""
    centre, stride = at[..., :2], at[..., 2:]
    return torch.cat([centre - distances[..., :2] * stride, centre + distances[..., 2:] * stride], -1)


def centerness(distances: Tensor) -> Tensor:
    """Return √(min(l, r)/max(l, r) · min(t, b)/max(t, b)) of distances (…, 4), shape (…).

    It is 1 at the center of a box and 0 on its sides.
    """
    across, down = distances[..., 0::2], distances[..., 1::2]  # l and r, t and b
    return (across.amin(-1) / across.amax(-1) * (down.amin(-1) / down.amax(-1))).sqrt()


def clip(boxes: Tensor, height: float, width: float) -> Tensor:
    """Clip boxes (…, 4) to an image of the given size."""
    most = boxes.new_tensor([width, height, width, height])
    return boxes.clamp(min=0).minimum(most)
