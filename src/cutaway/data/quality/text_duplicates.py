"""Near-duplicate texts found by MinHash, and label errors of texts.

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

from ...core.spec import Classes, Target
from ..findings import Finding
from . import labels as wrong_labels
from .duplicates import near_duplicate_warning
from .embeddings import SplitFeatures, sample_indices

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
CLASSES = 10  # a linear model of more classes is too slow
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


def check_text_labels(seen: Mapping[str, SplitFeatures], target: Target) -> Finding | None:
    """Return a finding on probable label errors of texts, by a linear model on their words."""
    from sklearn.feature_extraction.text import HashingVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.multiclass import OneVsRestClassifier
    from sklearn.pipeline import make_pipeline

    if not isinstance(target, Classes) or len(target.classes) > CLASSES:
        return None
    picked = wrong_labels.sample_examples(seen)
    words = [get_text(seen[split], i)[:4000] for split, i in picked]
    linear = LogisticRegression(C=10, solver="liblinear")
    if len(target.classes) > 2:
        linear = OneVsRestClassifier(linear)
    model = make_pipeline(HashingVectorizer(n_features=2**14, alternate_sign=False), linear)
    return wrong_labels.find_label_errors(np.array(words, object), picked, seen, target, model)


def _similarity(a: frozenset[Any], b: frozenset[Any]) -> float:
    return len(a & b) / (len(a | b) or 1)


def get_text(seen: SplitFeatures, i: int) -> str:
    """Return the i-th text of the sample."""
    row = seen.split.row(int(seen.rows[i]))
    return next(iter(row.values())) if row else ""
