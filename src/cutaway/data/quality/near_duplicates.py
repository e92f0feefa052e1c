"""Near-duplicates: examples much closer to one of an earlier split than expected by chance.

For k neighbors in m dimensions at distances d₁ ≤ … ≤ d_k, the probability of a first neighbor this close is

    P(d₁ / d_k ≤ r) = 1 − (1 − r^m)^(k−1)

if points are locally uniform (E. Facco et al., Estimating the intrinsic dimension of datasets, 2017, for k = 2). m is
estimated from these distances (E. Levina, P. Bickel, 2004). The probability is bounded by ALPHA over all examples.
Rows of tables and images are also checked for altered copies by `altered_copies`.

Near-duplicate texts are found by MinHash.

The share of equal minima of two sets under random hashes is in expectation their Jaccard similarity (A. Broder, On the
resemblance and containment of documents, 1997). Texts that share a band of minima are then compared exactly.
"""

from __future__ import annotations

import re
import zlib
from collections import defaultdict
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..dataset_base import DataSet, TensorSplit
from ..findings import Finding, near_duplicate_warning
from . import altered_copies
from .altered_copies import ZOOMS, Patches, extract_patches
from .embeddings import SplitFeatures, get_text, sample_indices

NEIGHBORS = 10  # neighbors to find; the probability uses the first LAST
LAST = 5
ALPHA = 0.01
BY_CHANCE = 0.0003  # share of examples: fewer do not affect a score, and data is less uniform than the formula assumes
RATIO = {"image": 0.35, "audio": 0.25}  # largest d₁ / d_k of duplicates
OTHER_RATIO = 0.1
PATCHED = 2000  # images of a later split whose patches are matched
QUERIES = 20_000  # examples of later splits that are compared with all earlier ones
EXACT = 20_000_000  # distances computed exactly; above, a tree finds the neighbors
COMPONENTS, SLACK = 8, 1.0  # principal components in the tree; relative error of its search
SAME = 1e-6
CONTINUOUS, DISTINCT = 4, 20  # columns that a table needs, and distinct values of such a column
WHAT = {"table": "rows", "image": "images", "audio": "recordings", "series": "series"}


def continuous_columns(data: DataSet) -> npt.NDArray[np.bool_]:
    """Return which inputs of a table are numbers with many values, (F,); empty for other modalities."""
    split = data.splits["train"]
    if data.spec.kind != "table" or not isinstance(split, TensorSplit):
        return np.zeros(0, bool)
    return np.array([len(column[:4096].unique()) > DISTINCT for column in split.inputs.T])


def check_near_duplicates(
    seen: Mapping[str, SplitFeatures], kind: str, numbers: npt.NDArray[np.bool_]
) -> Finding | None:
    """Return a finding if validation or test examples nearly equal one of an earlier split.

    Exact duplicates are reported elsewhere.
    """

    if kind == "table" and numbers.sum() < CONTINUOUS:
        return None
    pairs: list[tuple[str, str]] = []
    looked: dict[str, int] = {}
    counts: dict[str, int] = {}
    earlier: list[str] = []
    for split, own in seen.items():
        before = [(home, i) for home in earlier for i in range(len(seen[home].rows))]
        if len(before) > NEIGHBORS:
            rows = sample_indices(len(own.rows), QUERIES)
            hits, places = _find_near(own, rows, [seen[home] for home in earlier], kind, torch.from_numpy(~numbers))
            looked[split], counts[split] = len(rows), len(hits)
            for hit, place in zip(rows[hits].tolist(), places.tolist()):
                home, i = before[place]
                pairs.append((f"{own.name(hit)} ({split})", f"{seen[home].name(i)} ({home})"))
        earlier.append(split)
    if len(pairs) <= BY_CHANCE * sum(looked.values()):
        return None
    return near_duplicate_warning(pairs, counts, looked, WHAT[kind], "nearly equal", grouped=kind == "table")


def _find_near(
    own: SplitFeatures, rows: Tensor, earlier: list[SplitFeatures], kind: str, kinds: Tensor
) -> tuple[Tensor, Tensor]:
    """Return which of `rows` are closer to an example of earlier splits than by chance, and to which.

    Both are equal in the inputs `kinds`.
    """
    queries, points = own.vectors[rows], torch.cat([one.vectors for one in earlier])
    distances, numbers = nearest_neighbors(queries, points, NEIGHBORS)
    first, last = distances[:, 0], distances[:, LAST - 1].clamp_min(1e-12)
    apart = first > SAME
    if not apart.any():
        return torch.empty(0, dtype=torch.int64), torch.empty(0, dtype=torch.int64)
    logs = torch.log(last[apart, None] / distances[apart, : LAST - 1].clamp_min(1e-9))
    dimensions = 1 / logs.mean(1).median().clamp_min(1e-3)
    r = first / last
    chance = 1 - (1 - r.clamp(max=1) ** dimensions) ** (LAST - 1)
    hit = apart & (r <= RATIO.get(kind, OTHER_RATIO)) & (chance * len(queries) <= ALPHA)
    place = numbers[:, 0]
    if len(kinds):
        hit &= (queries[:, kinds] == points[place][:, kinds]).all(1)
        noisy, source = altered_copies.find_noisy_copies(queries, points, ~kinds)
        place = torch.where(noisy, source, place)
        hit |= apart & noisy
    if kind == "image":
        filtered, which = altered_copies.find_filtered_copies(
            own.small[rows], torch.cat([one.small for one in earlier]), numbers, r
        )
        moved, source = _find_transformed(own, rows, earlier)
        place = torch.where(hit, place, torch.where(filtered, which, source))
        hit |= apart & (filtered | moved)
    return hit.nonzero()[:, 0], place[hit]


def _find_transformed(own: SplitFeatures, rows: Tensor, earlier: list[SplitFeatures]) -> tuple[Tensor, Tensor]:
    """Return which images of `rows` are shifted, scaled or cropped copies from earlier splits, and of which images."""
    if own.grey.shape[-1] < altered_copies.SMALLEST:
        return torch.zeros(len(rows), dtype=torch.bool), torch.zeros_like(rows)
    queries, points = own.grey[rows], torch.cat([one.grey for one in earlier])
    starts = np.cumsum([0, *(len(one.rows) for one in earlier)])
    held = [one.patches._replace(image=one.patches.image + int(start)) for one, start in zip(earlier, starts)]
    asked = extract_patches(queries, sample_indices(len(rows), PATCHED), ZOOMS)
    return altered_copies.find_transformed_copies(queries, points, asked, Patches(*map(torch.cat, zip(*held))))


def nearest_neighbors(queries: Tensor, points: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the sorted distances (n, k) of queries (n, F) to their nearest points (N, F), and the indices.

    Large searches are approximate, but a point much closer than all others is found.
    """
    k = min(k, len(points))
    if len(queries) * len(points) > EXACT:
        return _in_order(queries, points, _in_tree(queries, points, k))
    squares = points.square().sum(1)
    found = []
    for some in torch.split(queries, 256):
        far = squares - 2 * some @ points.T  # (n, N): the squared distance without the constant of each row
        found.append(far.topk(k, largest=False).indices)
    return _in_order(queries, points, torch.cat(found))


def _in_tree(queries: Tensor, points: Tensor, k: int) -> Tensor:
    """Return the indices (n, k) of near points by a tree over the principal components."""
    from scipy.spatial import KDTree

    mean = points.mean(0)
    axes = torch.linalg.svd(points[sample_indices(len(points), 4096)] - mean, full_matrices=False).Vh[:COMPONENTS].T
    tree = KDTree(((points - mean) @ axes).numpy())
    return torch.from_numpy(tree.query(((queries - mean) @ axes).numpy(), k=k, eps=SLACK)[1])


def _in_order(queries: Tensor, points: Tensor, numbers: Tensor) -> tuple[Tensor, Tensor]:
    """Return the sorted distances (n, k), computed from differences to avoid cancellation, and the indices."""
    found = []
    for some, own in zip(torch.split(queries, 1024), torch.split(numbers, 1024)):
        ordered, order = (some[:, None] - points[own]).double().norm(dim=-1).sort(1)
        found.append((ordered, own.gather(1, order)))
    return torch.cat([d for d, _ in found]), torch.cat([i for _, i in found])


MOST = 15_000  # sample size of a split
WORDS = 400  # words of a text that are used
LEAST = 8  # smallest number of words; shorter texts coincide by chance
BANDS, ROWS = 24, 3
SIMILAR = 0.7  # Jaccard similarity of word pairs of near-duplicates
# A lower limit applies if enough words agree, because a removed word changes two pairs. Texts of at least LONG words
# are more distinctive and may differ in two more words.
SHORT, WORDS_ALIKE = 0.55, 0.8
LONG, OF_LONG, WORDS_OF_LONG = 12, 0.45, 0.7
BUCKET = 10  # texts with a common band that are compared
WORD = re.compile(r"\w+")
_RNG = np.random.default_rng(0)
FACTORS, SUMMANDS = _RNG.integers(0, 2**63, (2, BANDS * ROWS), np.uint64) * np.uint64(2) + np.uint64(1)


class Sketch(NamedTuple):
    """The MinHash sketch of a text."""

    name: str  # with its split
    text: str
    words: frozenset[str]
    pairs: frozenset[int]  # hashes of word pairs
    bands: tuple[bytes, ...]

    def alike(self, other: Sketch) -> float:
        """Return the Jaccard similarity of the word pairs."""
        return _similarity(self.pairs, other.pairs)

    def nearly(self, other: Sketch) -> bool:
        """Return whether the texts are near-duplicates."""
        pairs, long = self.alike(other), min(len(self.pairs), len(other.pairs)) >= LONG - 1
        of_pairs, of_words = (OF_LONG, WORDS_OF_LONG) if long else (SHORT, WORDS_ALIKE)
        return pairs >= SIMILAR or (pairs >= of_pairs and _similarity(self.words, other.words) >= of_words)


def build_sketch(name: str, text: str) -> Sketch | None:
    """Compute the sketch of a text; None if it is too short."""
    words = WORD.findall(text.lower())[:WORDS]
    if len(words) < LEAST:
        return None
    hashes = np.fromiter({zlib.crc32(f"{a} {b}".encode()) for a, b in pairwise(words)}, np.uint64)
    mixed = hashes[:, None] * FACTORS + SUMMANDS >> np.uint64(32)  # products wrap around: each has its own order
    minima = mixed.min(0).astype(np.uint32).reshape(BANDS, ROWS)
    return Sketch(name, text, frozenset(words), frozenset(hashes.tolist()), tuple(band.tobytes() for band in minima))


def check_near_duplicate_texts(seen: Mapping[str, SplitFeatures]) -> Finding | None:
    """Return a finding if validation or test texts nearly equal, but do not equal, one of an earlier split."""
    held: list[defaultdict[bytes, list[Sketch]]] = [defaultdict(list) for _ in range(BANDS)]
    pairs: list[tuple[str, str]] = []
    counts, looked = dict.fromkeys(seen, 0), dict.fromkeys(seen, 0)
    for split, some in seen.items():
        own = []
        for i in sample_indices(len(some.rows), MOST).tolist():
            sketch = build_sketch(f"{some.name(i)} ({split})", get_text(some, i))
            if sketch is None:
                continue
            own.append(sketch)
            others = {
                one.name: one for bucket, band in zip(held, sketch.bands) for one in bucket.get(band, ())[:BUCKET]
            }
            best = max(others.values(), key=sketch.alike, default=None)
            if best is None or any(one.text == sketch.text for one in others.values()):
                continue
            if sketch.nearly(best):
                counts[split] += 1
                pairs.append((sketch.name, best.name))
        looked[split] = len(own)
        for sketch in own:
            for bucket, band in zip(held, sketch.bands):
                bucket[band].append(sketch)
    return near_duplicate_warning(pairs, counts, looked, "texts", "share most pairs of words with", grouped=True)


def _similarity(a: frozenset[Any], b: frozenset[Any]) -> float:
    return len(a & b) / (len(a | b) or 1)
