"""Vectors as places in a plane, and who is near to whom.

PCA turns the axes so that the first holds as much of the variance as one can, the second as much of the rest
(K. Pearson, 1901, <https://doi.org/10.1080/14786440109462720>). t-SNE looks for places in the plane whose neighbours
are those of the vectors (L. van der Maaten, G. Hinton, Visualizing data using t-SNE, 2008,
<https://jmlr.org/papers/v9/vandermaaten08a.html>), by scikit-learn's implementation. UMAP does so for the graph of
nearest neighbours (L. McInnes, J. Healy, J. Melville, UMAP: uniform manifold approximation and projection for dimension
reduction, 2018, <https://arxiv.org/abs/1802.03426>), by the authors' umap-learn, an extra. All are the same every time.
"""

from __future__ import annotations

import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import torch
from torch import Tensor

from ..core.errors import SettingError, require
from ..nn.attention import Score, cosine, dot, scaled_dot

MEASURES: dict[str, Score] = {"cosine": cosine, "dot product": dot, "dot product / √d": scaled_dot}
PERPLEXITY = 30.0  # how many neighbours t-SNE minds, about; less where there are few vectors
FIRST = 50  # components that t-SNE is given at most, as its paper does
LEAST = 5  # vectors that t-SNE and UMAP need for there to be neighbours and others
GRAPH = 15  # neighbours of each vector in UMAP's graph at most, as the authors' library has it


@dataclass(frozen=True)
class Plane:
    """Where n vectors stand in a plane."""

    places: Tensor  # (n, 2) float64
    explained: tuple[float, float] | None = None  # of the variance, along each axis; None where axes mean nothing


def components(x: Tensor, count: int = 2) -> tuple[Tensor, Tensor]:
    """Principal components of vectors (n, d): coordinates (n, count), 0 beyond those there are, and the share of the
    variance along each, (count,). The largest weight of each component is positive, so that signs are settled."""
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
    """The plane that holds most of the variance of vectors (n, d)."""
    places, explained = components(x)
    return Plane(places, (float(explained[0]), float(explained[1])))


def tsne(x: Tensor, seed: int = 0) -> Plane | None:
    """The plane in which neighbours of vectors (n, d) stay neighbours. None where there are fewer than five vectors,
    or all are the same."""
    given, start = _begun(x)
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
        warnings.simplefilter("ignore")  # of means of nothing, where vectors are the same
        places = found.fit_transform(given.float().numpy())
    return Plane(torch.from_numpy(places).double())


def umap(x: Tensor, seed: int = 0) -> Plane | None:
    """The plane that UMAP gives vectors (n, d). None where there are fewer than five, or all are the same.

    Raises SettingError where umap-learn is not installed."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that it goes without TensorFlow
            from umap import UMAP
    except ImportError as error:
        raise SettingError(
            f"UMAP needs umap-learn, which is not here ({error}): pip install 'cutaway[umap]'."
        ) from error
    given, start = _begun(x)
    if given is None:
        return None
    # The library divides by the width of where it begins, which is 0 of vectors of one number along the second axis.
    start = start + 1e-4 * torch.randn(start.shape, generator=torch.Generator().manual_seed(seed))
    found = UMAP(
        n_neighbors=min(GRAPH, len(x) - 1),
        init=start.float().numpy(),
        random_state=seed,
        n_jobs=1,
    )
    # In a thread of its own: numba leaves the processor so that t-SNE takes 30 times as long in the same thread.
    with warnings.catch_warnings(), ThreadPoolExecutor(1) as thread:
        warnings.simplefilter("ignore")  # of vectors that are the same
        places = thread.submit(found.fit_transform, given.float().numpy()).result()
    return Plane(torch.from_numpy(places).double())


def _begun(x: Tensor) -> tuple[Tensor | None, Tensor]:
    """Vectors (n, d) by their first components, as wide as 1 along the first, and the two that a search for places
    begins at, (n, 2); None where there are few vectors or all are the same."""
    if len(x) < LEAST:
        return None, x
    given, _ = components(x, min(FIRST, *x.shape))
    spread = float(given[:, 0].std())
    if not spread > 0:
        return None, given
    given = given / spread
    return given, torch.nn.functional.pad(given[:, :2], (0, max(0, 2 - given.shape[1])))


def neighbours(x: Tensor, measure: str, count: int = 5) -> tuple[Tensor, Tensor]:
    """The `count` nearest of each of the vectors (n, d), itself left out: their numbers and how near they are,
    (n, at most n − 1) each, nearest first. Raises SettingError for a measure that is none."""
    require(measure in MEASURES, "measure", measure, ", ".join(MEASURES), SettingError)
    x = x.detach().cpu().double()
    scores = MEASURES[measure](x, x).fill_diagonal_(-torch.inf)
    near = scores.topk(min(count, len(x) - 1), dim=1)
    return near.indices, near.values


__all__ = ["MEASURES", "Plane", "components", "neighbours", "pca", "tsne", "umap"]
