"""Filtered copies of images: resized, blurred, sharpened, shifted by a pixel, or with changed brightness or contrast.

All of these are nearly a 3 × 3 filter and a constant, which are fitted by least squares. For image q, the best filter w
over image x leaves the fraction u = ‖q − w ∗ x − c‖² / ‖q − mean(q)‖² unexplained. A copy leaves little of its source,
and much of all other images.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

LEFT = 0.0007  # largest u² of the best image / u of the worst neighbor
BY_CHANCE = 0.0003  # share of images that match by chance, as strokes look alike
ALONE = 0.45  # largest u of the best / u of the second; above it, several images are alike
FAR = 0.5  # largest d₁ / d_k of copies
TINY = 16  # images of fewer pixels a side change much when resized and are less distinctive:
LEFT_OF_TINY, TINY_BY_CHANCE = 0.001, 0.005
RIDGE, BLANK = 1e-5, 1e-6  # relative to the squared pixels
CHUNK = 512


def find_filtered_copies(queries: Tensor, points: Tensor, numbers: Tensor, ratio: Tensor) -> tuple[Tensor, Tensor]:
    """Return which queries (n, 1, s, s) are copies of a point (N, 1, s, s), (n,), and of which, (n,).

    `numbers` (n, k) are the nearest points of each query, `ratio` (n,) is d₁ / d_k.
    """
    which, copy = numbers[:, 0].clone(), torch.zeros(len(queries), dtype=torch.bool)
    tiny = queries.shape[-1] < TINY
    tried = torch.arange(len(queries)) if tiny else (ratio <= FAR).nonzero()[:, 0]
    for rows in torch.split(tried, CHUNK):
        left, best = unexplained_fraction(queries[rows], points, numbers[rows]).sort(1)
        few = left[:, 0].square() <= (LEFT_OF_TINY if tiny else LEFT) * left[:, -1]
        copy[rows] = few & (left[:, 0] <= ALONE * left[:, 1])
        which[rows] = numbers[rows].gather(1, best[:, :1])[:, 0]
    if copy.float().mean() <= (TINY_BY_CHANCE if tiny else BY_CHANCE):
        copy[:] = False
    return copy, which


def unexplained_fraction(queries: Tensor, points: Tensor, numbers: Tensor) -> Tensor:
    """Compute u of each query (n, 1, s, s) for k points each, (n, k).

    The smaller value of both directions counts, because a blurred copy explains its source badly.
    """
    pairs = [(queries, points[own]) for own in numbers.T]
    return torch.stack([torch.minimum(_unexplained(q, x), _unexplained(x, q)) for q, x in pairs], 1)


def _unexplained(target: Tensor, source: Tensor) -> Tensor:
    """Compute u of n images, each by one other, both (n, 1, s, s); returns (n,)."""
    everywhere = torch.ones(1, *target.shape[1:])
    return masked_unexplained_fraction(target, source, everywhere, everywhere.flatten(1))


def masked_unexplained_fraction(target: Tensor, source: Tensor, inside: Tensor, free: Tensor) -> Tensor:
    """Compute the unexplained fraction where `inside` (n, 1, s, s) is 1, after a fit of the patterns `free` (k, s²).

    With only a constant pattern it is u.
    """
    n = len(source)
    around = F.unfold(F.pad(source, (1, 1, 1, 1), mode="replicate"), 3)  # (n, 9, s²)
    x = torch.cat([free.expand(n, -1, -1), around], 1).double()
    weighed = x * inside.flatten(1)[:, None]
    y = target.flatten(1)[..., None].double()  # (n, s², 1)
    gram, product = weighed @ x.transpose(1, 2), weighed @ y
    gram += RIDGE * gram.diagonal(dim1=1, dim2=2).mean(1)[:, None, None] * torch.eye(gram.shape[1])
    k = len(free)
    before, after = (
        (
            (y - x[:, :m].transpose(1, 2) @ torch.linalg.solve(gram[:, :m, :m], product[:, :m])).square()
            * inside.flatten(1)[..., None]
        ).sum((1, 2))
        for m in (k, k + 9)
    )
    blank = before <= BLANK * (y.square() * inside.flatten(1)[..., None]).sum((1, 2))
    return torch.where(blank, 1.0, after / before)  # blank images are unexplained
