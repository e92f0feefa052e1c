"""Shifted, scaled or cropped copies of images, found by registration and a filter fit.

Starting from the zoom z and the offset o of a candidate, least-squares steps register the point to the query (B. Lucas,
T. Kanade, An iterative image registration technique, IJCAI 1981,
<https://www.ijcai.org/Proceedings/81-2/Papers/017.pdf>). With the transformed point p, each step fits

    query ≈ a · p + b + ∇p · (move + stretch · place)

first at half size, then at full size. Then u is the fraction of the query's details that the best 3 × 3 filter over the
point leaves unexplained where both overlap. Details are the residual of a polynomial fit of degree 2, so that
skies and walls have none. A copy leaves little of its source, and far more of all other images.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .altered_copies import Candidates, Patches, gaussian_blur, masked_unexplained_fraction, match_patches
from .embeddings import average_pool

LEFT = 0.005  # largest u² of the best image / u of the second
# Quantile of the second-best u, and its largest rank, that estimate chance: strokes look alike.
BY_CHANCE, AT_MOST = 0.05, 50
SMALLEST = 24  # smallest side in pixels that can be registered
COARSE_STEPS, STEPS = 4, 2
FURTHEST, WIDEST = 1.5, 0.06  # largest shift in pixels and relative scaling of a step
FAINT = 0.2  # contrast factor that bounds the step size of faint candidates
SMOOTH = 4.0  # σ in pixels of the Gaussian that is subtracted from details
COARSE_LEFT, FINE_LEFT = 0.4, 0.2  # largest unexplained fraction of details
CHUNK = 512


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
    chance = second.sort().values[min(int(BY_CHANCE * asked), AT_MOST)]
    return best.square() <= LEFT * second.clamp_max(chance), which


def unexplained_details(queries: Tensor, points: Tensor, tried: Candidates) -> Tensor:
    """Compute u of each candidate among queries (n, 1, s, s) and points (N, 1, s, s), (m,); 1 for clear mismatches."""
    u = torch.ones(len(tried.query), dtype=torch.float64)
    half = queries.shape[-1] // 2
    for rows in torch.split(torch.arange(len(u)), CHUNK):
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
