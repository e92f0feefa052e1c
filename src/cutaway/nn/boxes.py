"""Boxes: how much two overlap, which of many say the same, and how a detector without anchors writes one down.

A box is (x1, y1, x2, y2) in pixels, the last axis of a tensor (…, 4): [x1, x2) × [y1, y2). A location of a feature map
is (x, y, s), (…, 3): the pixel that it stands for and the stride of its map. FCOS writes the box around a location as
the distances to its four sides, in strides:

    l = (x − x1) / s    t = (y − y1) / s    r = (x2 − x) / s    b = (y2 − y) / s

After Z. Tian, C. Shen, H. Chen, T. He, FCOS: Fully convolutional one-stage object detection, 2019
<https://arxiv.org/abs/1904.01355>, sections 3.1 and 3.3; H. Rezatofighi et al., Generalized intersection over union,
2019 <https://arxiv.org/abs/1902.09630>. Everything here is a function of tensors, on any device.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

EPS = 1e-7  # px², added to areas that are divided by: two boxes of no area have no overlap, and no NaN


def area(boxes: Tensor) -> Tensor:
    """(x2 − x1)(y2 − y1), (…, 4) to (…)."""
    return (boxes[..., 2] - boxes[..., 0]) * (boxes[..., 3] - boxes[..., 1])


def shared(a: Tensor, b: Tensor) -> Tensor:
    """The area that two boxes share, |a ∩ b|, of boxes (…, 4) that broadcast."""
    sides = torch.minimum(a[..., 2:], b[..., 2:]) - torch.maximum(a[..., :2], b[..., :2])  # (…, 2)
    return sides.relu().prod(-1)


def iou(a: Tensor, b: Tensor) -> Tensor:
    """Intersection over union, |a ∩ b| / |a ∪ b|, of boxes (…, 4) that broadcast: `iou(a[:, None], b)` is a matrix."""
    both = shared(a, b)
    return both / (area(a) + area(b) - both + EPS)


def giou(a: Tensor, b: Tensor) -> Tensor:
    """Generalized IoU, |a ∩ b| / |a ∪ b| − |c \\ (a ∪ b)| / |c| with c the smallest box around both, −1 to 1; boxes
    as in `iou`. Unlike IoU it has a gradient where they do not overlap."""
    both = shared(a, b)
    joint = area(a) + area(b) - both
    around = torch.cat([torch.minimum(a[..., :2], b[..., :2]), torch.maximum(a[..., 2:], b[..., 2:])], -1)
    hull = area(around)
    return both / (joint + EPS) - (hull - joint) / (hull + EPS)


def nms(boxes: Tensor, scores: Tensor, classes: Tensor, threshold: float) -> Tensor:
    """Non-maximum suppression within each class: the numbers of the boxes that are kept, the highest score first.

    In the order of their scores, a box is kept unless its IoU with one of its class that is kept already is above
    `threshold`. `boxes` (n, 4), `scores` and `classes` (n,). Whether a box is kept hangs on those before it alone: all
    are decided anew until nothing changes, which takes as many rounds as the longest chain of boxes that decide each
    other, few in practice, and is done with whole matrices.
    """
    order = scores.argsort(descending=True, stable=True)
    sorted_, of = boxes[order], classes[order]
    rivals = (iou(sorted_[:, None], sorted_) > threshold) & (of[:, None] == of)
    above = rivals.triu(1)  # (n, n): whether the row, if it is kept, suppresses the column
    kept = torch.ones_like(order, dtype=torch.bool)
    while True:
        now = ~(above & kept[:, None]).any(0)
        if torch.equal(now, kept):
            return order[kept]
        kept = now


def locations(sizes: Sequence[tuple[int, int]], strides: Sequence[int], shift: float = 0.5) -> Tensor:
    """The locations of feature maps of these sizes (height, width), (L, 3), map after map and row by row: pixel
    ((column + shift) · stride, (row + shift) · stride) and the stride."""
    found = []
    for (height, width), stride in zip(sizes, strides):
        y, x = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
        centres = (torch.stack([x, y], 2).view(-1, 2) + shift) * stride  # (H · W, 2)
        found.append(torch.cat([centres, torch.full((height * width, 1), float(stride))], 1))
    return torch.cat(found)


def encode(boxes: Tensor, at: Tensor) -> Tensor:
    """The distances l, t, r, b of boxes (…, 4) from locations (…, 3), in strides, (…, 4)."""
    centre, stride = at[..., :2], at[..., 2:]
    return torch.cat([centre - boxes[..., :2], boxes[..., 2:] - centre], -1) / stride


def decode(distances: Tensor, at: Tensor) -> Tensor:
    """The boxes (…, 4) of distances (…, 4) from locations (…, 3): what `encode` turned around."""
    centre, stride = at[..., :2], at[..., 2:]
    return torch.cat([centre - distances[..., :2] * stride, centre + distances[..., 2:] * stride], -1)


def centerness(distances: Tensor) -> Tensor:
    """√(min(l, r)/max(l, r) · min(t, b)/max(t, b)) of distances (…, 4), (…): 1 in the middle of a box, 0 on its
    side."""
    across, down = distances[..., 0::2], distances[..., 1::2]  # l and r, t and b
    return (across.amin(-1) / across.amax(-1) * (down.amin(-1) / down.amax(-1))).sqrt()


def clip(boxes: Tensor, height: float, width: float) -> Tensor:
    """The parts of boxes (…, 4) that lie in an image of that size."""
    most = boxes.new_tensor([width, height, width, height])
    return boxes.clamp(min=0).minimum(most)
