"""Near-duplicates: examples much closer to one of an earlier split than expected by chance.

Each example has a vector of features. For k neighbors in m dimensions at distances d₁ ≤ … ≤ d_k, the probability of a
first neighbor this close is

    P(d₁ / d_k ≤ r) = 1 − (1 − r^m)^(k−1)

if points are locally uniform (E. Facco et al., Estimating the intrinsic dimension of datasets, 2017, for k = 2). m is
estimated from these distances (E. Levina, P. Bickel, 2004). The probability is bounded by ALPHA over all examples.

Images are also checked for altered copies (`altered_copies`), and rows of tables for noisy copies. In a column of
measurements values repeat, and adjacent values differ by a step, such as 0.01 of a carat. A row is a noisy copy if its
values are rare, are not a whole number of steps from others, and are within a step of another row in every column.
Jitter augmentation creates such rows. Rows of a source with more digits have such values too, but rarely lie this close
to others.

Near-duplicate texts are found by MinHash. The share of equal minima of two sets under random hashes is in expectation
their Jaccard similarity (A. Broder, On the resemblance and containment of documents, 1997). Texts that share a band of
minima are then compared exactly.
"""

from __future__ import annotations

import re
import zlib
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional as F

from ..dataset_base import DataSet, SequenceSplit, Split, TensorSplit
from ..findings import Finding, near_duplicate_warning
from ..images.dataset import PixelSplit
from ..images.transforms import FileSplit
from . import altered_copies
from .altered_copies import ZOOMS, Patches, average_pool, extract_patches

HELD = 60_000  # largest sample of in-memory examples of a split
READ = 300  # largest sample of examples that are read from files
MAX_PATCHED = 10_000  # images of a split whose patches are extracted
CHUNK = 512  # examples processed at a time
SIDE, WAVES, SMALL = 32, 8, 16  # side of a pooled image; cosines kept per side; side for filter fits
BLANK = 1e-3  # of its mean: an image of at most this standard deviation is blank
COARSE, LOUD = 16, 0.2  # mel and time bins of a recording, and the fraction of loudest ones


class ExampleFeatures(NamedTuple):
    """Features of some examples."""

    vectors: Tensor  # (n, F), in which similar examples are close
    level: Tensor  # (n, 2) mean and standard deviation of images and recordings; (n, 0) for others
    grey: Tensor  # (n, 1, s, s) float16 of images with standardised contrast; (n, 0) for others


@dataclass(frozen=True)
class SplitFeatures:
    """A sample of a split's examples with their features."""

    split: Split
    rows: Tensor  # (n,) their indices in the split
    kind: str

    @property
    def vectors(self) -> Tensor:
        """Return a vector for each example, (n, F) float32, in which similar examples are close."""
        return self._looks.vectors

    @property
    def grey(self) -> Tensor:
        """Return standardised grey images of at most SIDE pixels, (n, 1, s, s) float16."""
        return self._looks.grey

    @cached_property
    def small(self) -> Tensor:
        """Return small grey images, (n, 1, s, s)."""
        return torch.cat([average_pool(some.float(), SMALL) for some in torch.split(self.grey, CHUNK)])

    @cached_property
    def patches(self) -> Patches:
        """Return the salient patches of some of the images."""
        return extract_patches(self.grey, sample_indices(len(self.rows), MAX_PATCHED))

    @cached_property
    def spread(self) -> Tensor:
        """Return the features (n, F) that are compared between splits: level, where there is one, and vectors.

        The vectors of images and recordings do not depend on the level.
        """
        return torch.cat([self._looks.level, self.vectors], 1)

    @cached_property
    def _looks(self) -> ExampleFeatures:
        found = [_compute_features(self.split, some, self.kind) for some in torch.split(self.rows, CHUNK)]
        return ExampleFeatures(*map(torch.cat, zip(*found)))

    @cached_property
    def target(self) -> Tensor:
        """Return the target of each example, (n,)."""
        assert self.split.target is not None
        return self.split.target[self.rows]

    def name(self, i: int) -> str:
        """Return the display name of the i-th example."""
        return self.split.name(int(self.rows[i]))


def sample_indices(n: int, count: int, seed: int = 0) -> Tensor:
    """Return the sorted indices of `count` of n examples, sampled at random, or of all if n ≤ count."""
    if n <= count:
        return torch.arange(n)
    return torch.randperm(n, generator=torch.Generator().manual_seed(seed))[:count].sort().values


def extract_features(split: Split, kind: str) -> SplitFeatures | None:
    """Return the features of a sample of examples; None if the split has no target or is expensive to read."""
    if split.target is None or not len(split):
        return None
    if isinstance(split, TensorSplit | SequenceSplit | PixelSplit):
        return SplitFeatures(split, sample_indices(len(split), HELD), kind)
    return SplitFeatures(split, sample_indices(len(split), READ), kind) if isinstance(split, FileSplit) else None


def _compute_features(split: Split, rows: Tensor, kind: str) -> ExampleFeatures:
    if isinstance(split, FileSplit):
        return _image_features(split.peek(rows))
    (batch,) = split.batches([rows])
    x, nothing = batch.inputs[0], torch.empty(len(rows), 0)
    if kind == "image":
        return _image_features(x)
    if kind == "audio":
        each = [one[real] for one, real in zip(x, batch.inputs[1])]  # (T, n_mels)
        level = torch.stack([torch.stack([one.mean(), one.std(correction=0)]) for one in each])
        return ExampleFeatures(torch.stack([loudest_pattern(one) for one in each]), level, nothing)
    return ExampleFeatures(x.flatten(1).float(), nothing, nothing)


def _image_features(images: Tensor) -> ExampleFeatures:
    grey = images.float().mean(1, keepdim=True)  # (N, 1, H, W)
    smaller = average_pool(grey, SIDE)
    small = average_pool(grey, SMALL)
    spread, mean = _spread(small)
    level = torch.cat([mean, spread], 1).flatten(1)
    return ExampleFeatures(dct_features(smaller), level, standardise_images(smaller))


def standardise_images(grey: Tensor) -> Tensor:
    """Standardise images (n, 1, s, s) to mean 0 and standard deviation 1 as float16; blank images become 0."""
    spread, mean = _spread(grey)
    return torch.where(spread > BLANK * mean.abs(), (grey - mean) / spread, 0).half()


def _spread(grey: Tensor) -> tuple[Tensor, Tensor]:
    """Return the standard deviation and the mean of images (n, 1, s, s), (n, 1, 1, 1) each.

    Two passes are ten times as fast as PyTorch's `std_mean` here.
    """
    mean = grey.mean((2, 3), keepdim=True)
    return (grey - mean).square().mean((2, 3), keepdim=True).sqrt(), mean


def loudest_pattern(spectrogram: Tensor) -> Tensor:
    """Return a coarse map of the loudest fifth of a logarithmic spectrogram (T, n_mels), of norm 1, (COARSE²,).

    Softer noise and loudness do not change it.
    """
    above = (spectrogram - torch.quantile(spectrogram, 1 - LOUD)).clamp_min(0)
    return F.normalize(F.adaptive_avg_pool2d(above[None, None], COARSE).flatten(), dim=0)


def dct_features(grey: Tensor) -> Tensor:
    """Compute perceptual-hash features (N, waves² − 1): the lowest cosines of grey images (N, 1, H, W).

    They exclude the mean and have norm 1, so that brightness, contrast, size and compression change little (C. Zauner,
    2010).
    """
    small = average_pool(grey, SIDE)[:, 0]  # (N, side, side)
    side = small.shape[-1]
    waves = max(2, min(WAVES, 3 * side // 4))  # the highest frequencies of a tiny image change with its size
    place = (torch.arange(side) + 0.5) * np.pi / side
    cosines = torch.cos(torch.arange(waves)[:, None] * place)  # (waves, side)
    found = (cosines @ small @ cosines.T).flatten(1)[:, 1:]
    return F.normalize(found, dim=1)


def get_text(seen: SplitFeatures, i: int) -> str:
    """Return the i-th text of the sample."""
    row = seen.split.row(int(seen.rows[i]))
    return next(iter(row.values())) if row else ""


NEIGHBORS = 10  # neighbors to find; the probability uses the first LAST
LAST = 5
ALPHA = 0.01
BY_CHANCE = 0.0003  # share of examples: fewer do not affect a score, and data is less uniform than the formula assumes
RATIO = {"image": 0.35, "audio": 0.25}  # largest d₁ / d_k of duplicates
OTHER_RATIO = 0.1
# Largest d₁ of duplicates among images, whose vectors have norm 1. With few images the nearest of another motif can be
# much closer than the others by chance; measured on digits, MNIST and CIFAR-10 with 30 to 1000 images.
MAX_DISTANCE, MAX_DISTANCE_OF_TINY = 0.18, 0.13
PATCH_QUERIES = 2000  # images of a later split whose patches are matched
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
    if kind == "image":
        hit &= first <= (MAX_DISTANCE_OF_TINY if own.grey.shape[-1] < altered_copies.TINY else MAX_DISTANCE)
    place = numbers[:, 0]
    if len(kinds):
        hit &= (queries[:, kinds] == points[place][:, kinds]).all(1)
        noisy, source = find_noisy_copies(queries, points, ~kinds)
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
    asked = extract_patches(queries, sample_indices(len(rows), PATCH_QUERIES), ZOOMS)
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


RARE = 2  # largest number of rows with a rare value
COMMON = 0.2  # smallest share of rows with common values in a column of measurements
REGULAR, FEW = 0.3, 0.1  # share of gaps between common values that equal the step; share that is smaller by chance
WITHIN = 0.99  # of a step: a whole step is another measurement
EQUAL_STEP = 1e-6  # step of the columns in which copies are equal
WHOLE = 0.02  # of a step: smallest deviation from whole steps
MIN_COPY_SHARE = 0.5  # smallest share of copies among the rows with such values; otherwise they have another source


def find_noisy_copies(queries: Tensor, points: Tensor, measured: Tensor) -> tuple[Tensor, Tensor]:
    """Return which queries (n, F) are noisy versions of a point (N, F) or vice versa, (n,), and of which, (n,).

    Noise is in the columns `measured` (F,); all others are equal. No copies are found if a measured column has no step.
    """
    n = len(queries)
    copy, which = torch.zeros(n, dtype=torch.bool), torch.zeros(n, dtype=torch.int64)
    rows, steps = torch.cat([queries, points]), torch.full((len(measured),), EQUAL_STEP)
    rare, between = torch.ones(len(rows), dtype=torch.bool), torch.zeros(len(rows), dtype=torch.bool)
    for column in measured.nonzero()[:, 0]:
        values, places, counts = torch.unique(rows[:, column], return_inverse=True, return_counts=True)
        common = counts > RARE
        step = _step(values[common])
        if common[places].float().mean() < COMMON or not step:
            return copy, which
        steps[column] = step
        away = (values - values[counts.argmax()]) / step
        rare &= ~common[places]
        between |= ((away - away.round()).abs() > WHOLE)[places]
    noisy = rare & between
    asked, found = noisy[:n].nonzero()[:, 0], noisy[n:].nonzero()[:, 0]
    here, there = _within(queries[asked] / steps, points / steps)
    if len(here) < MIN_COPY_SHARE * len(asked):
        return copy, which
    copy[asked[here]], which[asked[here]] = True, there
    here, there = _within(points[found] / steps, queries / steps)
    copy[there], which[there] = True, found[here]
    return copy, which


def _step(values: Tensor) -> float:
    """Return the most regular gap between the sorted values (k,), or 0 for irregular values."""
    gaps = values.diff()
    if not len(gaps):
        return 0.0
    least = gaps.sort().values[int(FEW * len(gaps))]
    regular = (gaps / least - 1).abs() < 0.5
    return float(gaps[regular].median()) if regular.float().mean() >= REGULAR else 0.0


def _within(some: Tensor, others: Tensor) -> tuple[Tensor, Tensor]:
    """Match rows of `some` (n, F) within 1 of a row of `others` in every column: the indices of both."""
    from scipy.spatial import KDTree

    if not len(some):
        return torch.empty(0, dtype=torch.int64), torch.empty(0, dtype=torch.int64)
    tree = KDTree(others.numpy())
    numbers = torch.from_numpy(tree.query(some.numpy(), p=float("inf"), distance_upper_bound=WITHIN)[1])
    here = (numbers < len(others)).nonzero()[:, 0]
    return here, numbers[here]
