"""Patch matching of images: candidates for copies that were shifted, scaled or cropped.

Local extrema of a difference of Gaussians give salient patches (D. Lowe, Distinctive image features from
scale-invariant keypoints, IJCV 2004, <https://doi.org/10.1023/B:VISI.0000029664.99615.94>), described by their low
frequencies with norm 1. Queries are processed at several scales. The signs of a patch's principal components are its
hash key. Patches are compared if their keys are equal or differ in a component near 0 (Q. Lv et al., Multi-probe LSH,
VLDB 2007). Each pair of similar patches votes for a pair of images with a zoom z and an offset o,

    row or column in the query = z · row or column in the point + o,

and votes that agree are summed.
"""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

PATCHES = 8  # per image
SIDE, STEP, WAVES = 13, 2, 5  # pixels of a patch and their stride; cosines per side
FINE, COARSE = 1.0, 2.0  # standard deviations of the Gaussians, in pixels
ZOOMS = (0.8, 0.9, 1.0, 1 / 0.9, 1 / 0.8)  # scales of the queries
PROBES = 3  # components nearest to 0, whose signs are both tried
MOST = 400_000  # patch pairs that are compared, those with rare keys first
LIKE = 0.9  # smallest cosine of patches that vote, with weight ((cosine − LIKE) / (1 − LIKE))²
CHUNK = 512
NEAR = 4  # tolerance of offsets in pixels
WEIGHT, TRIED = 0.4, 3  # votes that a candidate needs; candidates per query


class Patches(NamedTuple):
    """Salient patches in the order of their images; positions refer to the original images."""

    image: Tensor  # (M,)
    zoom: Tensor  # (M,) scale at which the patch was found
    place: Tensor  # (M, 2) row and column
    vectors: Tensor  # (M, WAVES² − 1)


class Candidates(NamedTuple):
    """Pairs of images that may be copies, with their relative position."""

    query: Tensor  # (m,)
    point: Tensor  # (m,)
    zoom: Tensor  # (m, 2)
    offset: Tensor  # (m, 2)


def extract_patches(images: Tensor, some: Tensor, zooms: tuple[float, ...] = (1.0,)) -> Patches:
    """Extract the patches of the images `some` (m,) of (n, 1, s, s), at each of the zooms."""
    found = []
    for numbers in torch.split(some, CHUNK):
        for zoom in zooms:
            one = _extract(images[numbers].float(), zoom)
            found.append(one._replace(image=numbers[one.image]))
    return Patches(*map(torch.cat, zip(*found)))


def _extract(images: Tensor, zoom: float) -> Patches:
    n, _, own, _ = images.shape
    side = round(zoom * own)
    if side != own:
        images = F.interpolate(images, (side, side), mode="bilinear", antialias=True)
    fine, coarse = (gaussian_blur(images, size) for size in (FINE, COARSE))
    standing, edge = (fine - coarse).abs(), SIDE // 2
    around = standing[..., edge - 1 : side - edge + 1, edge - 1 : side - edge + 1]
    rows = around[..., :-2, :].maximum(around[..., 1:-1, :]).maximum(around[..., 2:, :])
    highest = rows[..., :-2].maximum(rows[..., 1:-1]).maximum(rows[..., 2:])  # 3 × 3, faster than max_pool2d
    inside = around[..., 1:-1, 1:-1]
    peaks = torch.where(highest == inside, inside, 0)
    height, number = peaks.flatten(1).topk(PATCHES)
    place = torch.stack([number // (side - 2 * edge), number % (side - 2 * edge)], 2) + edge  # (n, PATCHES, 2)
    read = torch.arange(-edge, edge + 1, STEP)
    pixels = (place[..., 0, None, None] + read[:, None]) * side + place[..., 1, None, None] + read
    cut = fine.flatten(1).gather(1, pixels.flatten(1)).view(n * PATCHES, -1)  # (n · PATCHES, reads²)
    vectors = F.normalize(cut @ _basis(len(read)), dim=1)
    real = (height.flatten() > 0) & (vectors.square().sum(1) > 0.5)
    scale = own / side
    image = torch.arange(n).repeat_interleave(PATCHES)
    places = (place.flatten(0, 1) + 0.5) * scale - 0.5
    return Patches(image[real], torch.full((int(real.sum()),), scale), places[real], vectors[real])


def _basis(reads: int) -> Tensor:
    """Return zero-mean cosines under a Gaussian window, (reads², WAVES² − 1)."""
    place = torch.arange(reads) + 0.5
    cosines = torch.cos(torch.arange(WAVES)[:, None] * place * np.pi / reads)  # (WAVES, reads)
    window = torch.exp(-0.5 * ((place / reads - 0.5) / 0.35).square())
    window = torch.outer(window, window).flatten()
    waves = window[:, None] * torch.einsum("ai,bj->ijab", cosines, cosines).flatten(2).flatten(0, 1)[:, 1:]
    return waves - torch.outer(window / window.sum(), waves.sum(0))


def gaussian_blur(images: Tensor, size: float) -> Tensor:
    """Blur images (n, 1, s, s) with a Gaussian of this σ in pixels, renormalised at the border."""
    place = torch.arange(images.shape[-1])
    rows = torch.exp(-0.5 * ((place[:, None] - place) / size).square())
    rows /= rows.sum(1, keepdim=True)
    return rows @ images @ rows.T


def match_patches(queries: Patches, points: Patches, of: tuple[int, int]) -> Candidates:
    """Return the best candidates of each query. `of` holds the numbers of queries and points."""
    mine, theirs, cosine = _match(queries.vectors, points.vectors)
    weight = ((cosine - LIKE) / (1 - LIKE)).square()
    zoom = queries.zoom[mine]
    offset = queries.place[mine] - zoom[:, None] * points.place[theirs]
    query, point = queries.image[mine], points.image[theirs]
    size = torch.unique(zoom, return_inverse=True)[1]
    box = (offset / NEAR).round().long() + 64
    key = (((query * of[1] + point) * len(ZOOMS) + size) * 128 + box[:, 0]) * 128 + box[:, 1]
    _, group, count = torch.unique(key, return_inverse=True, return_counts=True)
    one = torch.zeros(len(count), dtype=torch.int64).scatter_(0, group, torch.arange(len(group)))  # one per group
    votes = torch.zeros(len(count)).index_add_(0, group, weight)
    middle = torch.zeros(len(count), 2).index_add_(0, group, offset) / count[:, None]
    best = (votes >= WEIGHT).nonzero()[:, 0]
    best = best[votes[best].sort(descending=True, stable=True).indices]
    best = best[query[one[best]].sort(stable=True).indices]  # by query, and within each by votes
    own = query[one[best]]
    counts = torch.bincount(own, minlength=of[0])
    rank = torch.arange(len(best)) - (counts.cumsum(0) - counts)[own]
    best = best[rank < TRIED]
    return Candidates(query[one[best]], point[one[best]], zoom[one[best], None].expand(-1, 2), middle[best])


def _match(queries: Tensor, points: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Match patches: returns indices into queries (n, D) and points (N, D), and their cosines."""
    bits = min(points.shape[1], max(1, (len(points) // 2).bit_length()))
    mean = points.mean(0)
    axes = torch.linalg.svd(points[:: len(points) // 4096 + 1] - mean, full_matrices=False).Vh[:bits].T
    at = points @ axes
    middle = at.median(0).values
    held, asked = at - middle, queries @ axes - middle
    powers = 2 ** torch.arange(held.shape[1])
    keys, order = ((held > 0) * powers).sum(1).sort()
    weak = asked.abs().topk(min(PROBES, held.shape[1]), largest=False).indices
    flips = torch.tensor(list(product((0, 1), repeat=weak.shape[1])))  # (2^PROBES, PROBES)
    tried = (((asked > 0) * powers).sum(1)[:, None] ^ (powers[weak] @ flips.T)).flatten()
    first = torch.searchsorted(keys, tried)
    count = torch.searchsorted(keys, tried, right=True) - first
    total = torch.bincount(count, minlength=1) * torch.arange(int(count.max()) + 1)
    count[count > int((total.cumsum(0) <= MOST).sum()) - 1] = 0  # frequent keys are uninformative
    mine = torch.arange(len(tried)).repeat_interleave(count)
    theirs = order[torch.arange(len(mine)) + (first - (count.cumsum(0) - count)).repeat_interleave(count)]
    mine = mine // len(flips)
    cosine = (queries[mine] * points[theirs]).sum(1)
    like = cosine > LIKE
    return mine[like], theirs[like], cosine[like]
