"""Two-dimensional projections of vectors, and nearest neighbors.

PCA rotates the axes so that the first has the largest variance, the second the largest of the rest (K. Pearson, 1901,
<https://doi.org/10.1080/14786440109462720>). t-SNE finds points in the plane with the same neighbors as the vectors
(L. van der Maaten, G. Hinton, Visualizing data using t-SNE, 2008,
<https://jmlr.org/papers/v9/vandermaaten08a.html>), with scikit-learn's implementation. UMAP does so for the graph of
nearest neighbors (L. McInnes, J. Healy, J. Melville, UMAP: uniform manifold approximation and projection for dimension
reduction, 2018, <https://arxiv.org/abs/1802.03426>), with the authors' umap-learn, an extra. All are deterministic.
"""

from __future__ import annotations

import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import torch
from torch import Tensor

from ..core.errors import SettingError, check_value
from ..core.extras import require
from ..nn.attention import Score, cosine, dot, scaled_dot

MEASURES: dict[str, Score] = {"cosine": cosine, "dot product": dot, "dot product / √d": scaled_dot}
PERPLEXITY = 30.0  # effective number of neighbors in t-SNE; less for few vectors
FIRST = 50  # largest number of components for t-SNE, as in its paper
LEAST = 5  # smallest number of vectors for t-SNE and UMAP
GRAPH = 15  # largest number of neighbors in UMAP's graph, the library's default


@dataclass(frozen=True)
class Plane:
    """Positions of n vectors in a plane."""

    places: Tensor  # (n, 2) float64
    explained: tuple[float, float] | None = (
        None  # fraction of the variance along each axis; None if axes have no meaning
    )


def components(x: Tensor, count: int = 2) -> tuple[Tensor, Tensor]:
    """Return the principal components of vectors (n, d): coordinates (n, count) and explained variance ratios
    (count,).

    Missing components are 0. The largest weight of each component is positive, so that signs are unique.
    """
    x = x.detach().cpu().double()
    x = x - x.mean(0)
    u, s, v = torch.linalg.svd(x, full_matrices=False)
    sign = v.gather(1, v.abs().argmax(1, keepdim=True)).sign()[:, 0] if v.numel() else s
    found = (u * s * sign)[:, :count]  # (n, ≤ count)
    variance = s.square()
    total = variance.sum()
    explained = (variance / total if float(total) > 0 else torch.zeros_like(variance))[:count]
    missing = count - found.shape[1]
    return torch.nn.functional.pad(found, (0, missing)), torch.nn.functional.pad(explained, (0, missing))


def pca(x: Tensor) -> Plane:
    """Return the plane with the largest variance of vectors (n, d)."""
    places, explained = components(x)
    return Plane(places, (float(explained[0]), float(explained[1])))


def tsne(x: Tensor, seed: int = 0) -> Plane | None:
    """Return the t-SNE plane of vectors (n, d); None for fewer than five vectors, or if all are equal."""
    given, start = _initial_positions(x)
    if given is None:
        return None
    from sklearn.manifold import TSNE

    found = TSNE(
        perplexity=min(PERPLEXITY, (len(x) - 1) / 3),
        init=(1e-4 * start).float().numpy(),
        learning_rate="auto",
        max_iter=500,
        method="exact" if len(x) < 4 * LEAST else "barnes_hut",
        random_state=seed,
        n_jobs=1,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about empty means, where vectors are equal
        places = found.fit_transform(given.float().numpy())
    return Plane(torch.from_numpy(places).double())


def umap(x: Tensor, seed: int = 0) -> Plane | None:
    """Return the UMAP plane of vectors (n, d); None for fewer than five vectors, or if all are equal.

    Raises SettingError if umap-learn is not installed.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about missing TensorFlow
        library = require("umap", "plane=umap")
    given, start = _initial_positions(x)
    if given is None:
        return None
    # The library divides by the spread of the initial positions, which is 0 on the second axis for 1-d vectors.
    start = start + 1e-4 * torch.randn(start.shape, generator=torch.Generator().manual_seed(seed))
    found = library.UMAP(
        n_neighbors=min(GRAPH, len(x) - 1),
        init=start.float().numpy(),
        random_state=seed,
        n_jobs=1,
    )
    # In a separate thread: numba changes the processor's state, and t-SNE takes 30 times as long in the same thread.
    with warnings.catch_warnings(), ThreadPoolExecutor(1) as thread:
        warnings.simplefilter("ignore")  # about equal vectors
        places = thread.submit(found.fit_transform, given.float().numpy()).result()
    return Plane(torch.from_numpy(places).double())


def _initial_positions(x: Tensor) -> tuple[Tensor | None, Tensor]:
    """Return the first components of vectors (n, d), scaled to a spread of 1 along the first, and initial positions
    (n, 2).

    The first result is None for few or equal vectors.
    """
    if len(x) < LEAST:
        return None, x
    given, _ = components(x, min(FIRST, *x.shape))
    spread = float(given[:, 0].std())
    if not spread > 0:
        return None, given
    given = given / spread
    return given, torch.nn.functional.pad(given[:, :2], (0, max(0, 2 - given.shape[1])))


def nearest_neighbors(x: Tensor, measure: str, count: int = 5) -> tuple[Tensor, Tensor]:
    """Return indices and scores of the `count` nearest neighbors of each vector (n, d), nearest first.

    Both are (n, at most n − 1); a vector is not its own neighbor. Raises SettingError for an unknown measure.
    """
    check_value(measure in MEASURES, "measure", measure, ", ".join(MEASURES), SettingError)
    x = x.detach().cpu().double()
    scores = MEASURES[measure](x, x).fill_diagonal_(-torch.inf)
    near = scores.topk(min(count, len(x) - 1), dim=1)
    return near.indices, near.values


__all__ = ["MEASURES", "Plane", "components", "nearest_neighbors", "pca", "tsne", "umap"]
