"""Altered copies of images.

Filtered copies of images: resized, blurred, sharpened, shifted by a pixel, or with changed brightness or contrast.

All of these are nearly a 3 × 3 filter and a constant, which are fitted by least squares. For image q, the best filter w
over image x leaves the fraction u = ‖q − w ∗ x − c‖² / ‖q − mean(q)‖² unexplained. A copy leaves little of its source,
and much of all other images.

Patch matching of images: candidates for copies that were shifted, scaled or cropped.

Local extrema of a difference of Gaussians give salient patches (D. Lowe, Distinctive image features from
scale-invariant keypoints, IJCV 2004, <https://doi.org/10.1023/B:VISI.0000029664.99615.94>), described by their low
frequencies with norm 1. Queries are processed at several scales. The signs of a patch's principal components are its
hash key. Patches are compared if their keys are equal or differ in a component near 0 (Q. Lv et al., Multi-probe LSH,
VLDB 2007). Each pair of similar patches votes for a pair of images with a zoom z and an offset o,

    row or column in the query = z · row or column in the point + o,

and votes that agree are summed.

Shifted, scaled or cropped copies of images, found by registration and a filter fit.

Starting from the zoom z and the offset o of a candidate, least-squares steps register the point to the query (B. Lucas,
T. Kanade, An iterative image registration technique, IJCAI 1981,
<https://www.ijcai.org/Proceedings/81-2/Papers/017.pdf>). With the transformed point p, each step fits

    query ≈ a · p + b + ∇p · (move + stretch · place)

first at half size, then at full size. Then u is the fraction of the query's details that the best 3 × 3 filter over the
point leaves unexplained where both overlap. Details are the residual of a polynomial fit of degree 2, so that
skies and walls have none. A copy leaves little of its source, and far more of all other images.
"""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

import numpy as np
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


PATCHES = 8  # per image
SIDE, STEP, WAVES = 13, 2, 5  # pixels of a patch and their stride; cosines per side
FINE, COARSE = 1.0, 2.0  # standard deviations of the Gaussians, in pixels
ZOOMS = (0.8, 0.9, 1.0, 1 / 0.9, 1 / 0.8)  # scales of the queries
PROBES = 3  # components nearest to 0, whose signs are both tried
MAX_PATCH_PAIRS = 400_000  # patch pairs that are compared, those with rare keys first
LIKE = 0.9  # smallest cosine of patches that vote, with weight ((cosine − LIKE) / (1 − LIKE))²
PATCH_CHUNK = 512
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
    for numbers in torch.split(some, PATCH_CHUNK):
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
    count[count > int((total.cumsum(0) <= MAX_PATCH_PAIRS).sum()) - 1] = 0  # frequent keys are uninformative
    mine = torch.arange(len(tried)).repeat_interleave(count)
    theirs = order[torch.arange(len(mine)) + (first - (count.cumsum(0) - count)).repeat_interleave(count)]
    mine = mine // len(flips)
    cosine = (queries[mine] * points[theirs]).sum(1)
    like = cosine > LIKE
    return mine[like], theirs[like], cosine[like]


TRANSFORMED_LEFT = 0.005  # largest u² of the best image / u of the second
# Quantile of the second-best u, and its largest rank, that estimate chance: strokes look alike.
TRANSFORMED_BY_CHANCE, AT_MOST = 0.05, 50
SMALLEST = 24  # smallest side in pixels that can be registered
COARSE_STEPS, STEPS = 4, 2
FURTHEST, WIDEST = 1.5, 0.06  # largest shift in pixels and relative scaling of a step
FAINT = 0.2  # contrast factor that bounds the step size of faint candidates
SMOOTH = 4.0  # σ in pixels of the Gaussian that is subtracted from details
COARSE_LEFT, FINE_LEFT = 0.4, 0.2  # largest unexplained fraction of details
TRANSFORMED_CHUNK = 512


def find_transformed_copies(
    queries: Tensor, points: Tensor, of_queries: Patches, of_points: Patches
) -> tuple[Tensor, Tensor]:
    """Return which queries (n, 1, s, s) are copies of a point (N, 1, s, s), (n,), and of which, (n,).

    Only candidates of the patch matching are tested.
    """
    best, second = torch.ones(2, len(queries), dtype=torch.float64)
    which = torch.zeros(len(queries), dtype=torch.int64)
    if not len(of_queries.image) or not len(of_points.image):
        return best < 1, which
    tried = match_patches(of_queries, of_points, (len(queries), len(points)))
    u = unexplained_details(queries, points, tried)
    best.scatter_reduce_(0, tried.query, u, "amin")
    first = u == best[tried.query]
    which[tried.query[first]] = tried.point[first]
    others = tried.point != which[tried.query]
    second.scatter_reduce_(0, tried.query[others], u[others], "amin")
    asked = len(torch.unique(of_queries.image))
    chance = second.sort().values[min(int(TRANSFORMED_BY_CHANCE * asked), AT_MOST)]
    return best.square() <= TRANSFORMED_LEFT * second.clamp_max(chance), which


def unexplained_details(queries: Tensor, points: Tensor, tried: Candidates) -> Tensor:
    """Compute u of each candidate among queries (n, 1, s, s) and points (N, 1, s, s), (m,); 1 for clear mismatches."""
    u = torch.ones(len(tried.query), dtype=torch.float64)
    half = queries.shape[-1] // 2
    for rows in torch.split(torch.arange(len(u)), TRANSFORMED_CHUNK):
        one = Candidates(*(each[rows] for each in tried))
        q, p = (
            gaussian_blur(average_pool(each, half), 0.7)
            for each in (queries[one.query].float(), points[one.point].float())
        )
        scale = half / queries.shape[-1]
        zoom, offset = _register(q, p, one.zoom, scale * one.offset + _centre(one.zoom, scale), COARSE_STEPS)
        kept = (_detail_left(q, p, zoom, offset, SMOOTH / 2) < COARSE_LEFT).nonzero()[:, 0]
        zoom, offset = zoom[kept], (offset - _centre(zoom, scale))[kept] / scale
        q, p = queries[one.query[kept]].float(), points[one.point[kept]].float()
        fine = gaussian_blur(q, 1.0), gaussian_blur(p, 1.0)
        zoom, offset = _register(*fine, zoom, offset, STEPS)
        good = _detail_left(*fine, zoom, offset, SMOOTH) < FINE_LEFT
        q, p, zoom, offset = q[good], p[good], zoom[good], offset[good]
        over, back = _transform(p, zoom, offset), _transform(q, 1 / zoom, -offset / zoom)
        smooth = _smooth(q.shape[-1])
        u[rows[kept[good]]] = torch.minimum(
            masked_unexplained_fraction(q, *over, smooth), masked_unexplained_fraction(p, *back, smooth)
        )
    return u


def _centre(zoom: Tensor, scale: float) -> Tensor:
    """Return the shift of an offset when pixel centers are counted at another scale."""
    return 0.5 * (zoom - 1) * (1 - scale)


def _transform(images: Tensor, zoom: Tensor, offset: Tensor) -> tuple[Tensor, Tensor]:
    """Transform images (n, 1, s, s) by zoom (n, 2) and offset (n, 2), bilinear, with their mask (n, 1, s, s)."""
    side = images.shape[-1]
    place = torch.arange(side)
    at = (place - offset[..., None]) / zoom[..., None]  # (n, 2, s)
    inside = ((at >= 0) & (at <= side - 1)).float()
    rows = (1 - (at.clamp(0, side - 1)[..., None] - place).abs()).clamp_min(0)  # (n, 2, s, s)
    moved = rows[:, 0] @ images[:, 0] @ rows[:, 1].transpose(1, 2)
    return moved[:, None], (inside[:, 0, :, None] * inside[:, 1, None])[:, None]


def _register(queries: Tensor, points: Tensor, zoom: Tensor, offset: Tensor, steps: int) -> tuple[Tensor, Tensor]:
    """Refine zoom and offset by `steps` registration steps."""
    side = queries.shape[-1]
    middle = (side - 1) / 2
    place = torch.arange(side) - middle
    for _ in range(steps):
        p, inside = (each[:, 0] for each in _transform(points, zoom, offset))
        down, right = torch.zeros_like(p), torch.zeros_like(p)
        down[:, 1:-1], right[:, :, 1:-1] = (p[:, 2:] - p[:, :-2]) / 2, (p[:, :, 2:] - p[:, :, :-2]) / 2
        columns = [down, right, down * place[:, None], right * place, p, torch.ones_like(p)]
        x = torch.stack(columns, 1).flatten(2)  # (n, 6, s²)
        weighed = x * inside.flatten(1)[:, None]
        gram = weighed @ x.transpose(1, 2)
        gram += torch.diag_embed(1e-4 * gram.diagonal(dim1=1, dim2=2) + 1e-6)
        w = torch.linalg.solve(gram, weighed @ queries.flatten(1)[..., None])[..., 0]  # (n, 6)
        contrast = torch.where(w[:, 4:5].abs() < FAINT, FAINT, w[:, 4:5])
        move = (w[:, :2] / contrast).clamp(-FURTHEST, FURTHEST)
        stretch = (w[:, 2:4] / contrast).clamp(-WIDEST, WIDEST)
        offset = (offset - move + stretch * middle) / (1 + stretch)
        zoom = zoom / (1 + stretch)
    return zoom, offset


def _detail_left(queries: Tensor, points: Tensor, zoom: Tensor, offset: Tensor, smooth: float) -> Tensor:
    """Return 1 − r² of the details of queries and of the transformed points, (n,)."""
    p, inside = _transform(points - gaussian_blur(points, smooth), zoom, offset)
    p, q = (p * inside).flatten(1), ((queries - gaussian_blur(queries, smooth)) * inside).flatten(1)
    both = (p * q).sum(1).clamp_min(0).square()
    return 1 - both / (p.square().sum(1) * q.square().sum(1)).clamp_min(1e-6)


def _smooth(side: int) -> Tensor:
    """Return the polynomials of degree at most 2 over the pixels of an image, (6, s²)."""
    place = torch.linspace(-1, 1, side)
    y, x = torch.meshgrid(place, place, indexing="ij")
    return torch.stack([torch.ones_like(x), x, y, x * y, x * x, y * y]).flatten(1)


def average_pool(images: Tensor, side: int) -> Tensor:
    """Reduce images (N, C, H, W) by average pooling to (N, C, side, side); smaller images become square only.

    Matrix products are twice as fast as pooling here.
    """
    side = min(side, *images.shape[2:])
    if images.shape[2:] == (side, side):
        return images
    rows, columns = (_windows(size, side) for size in images.shape[2:])
    return rows @ images @ columns.T


def _windows(size: int, side: int) -> Tensor:
    """Return the averaging matrix (side, size) of `side` windows over `size` pixels."""
    i, place = torch.arange(side)[:, None], torch.arange(size)
    inside = ((place >= i * size // side) & (place < -(-(i + 1) * size // side))).float()
    return inside / inside.sum(1, keepdim=True)
