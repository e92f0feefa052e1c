"""Texts that nearly equal one of an earlier split, by MinHash, and texts whose label is probably wrong.

The share of equal minima of two sets under random hashes is their Jaccard similarity in expectation (A. Broder, On the
resemblance and containment of documents, 1997). Texts that share a band of minima are then compared exactly.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from itertools import pairwise

import numpy as np

from ...spec import Classes, Target
from ..findings import Finding
from . import labels as wrong_labels
from .near import told
from .seen import Seen, sample

MOST = 6_000  # texts of a split that are looked at
WORDS = 400  # of a text that are looked at
LEAST = 5  # words of a text, without which it equals others by chance
BANDS, ROWS = 24, 3
SIMILAR = 0.7  # Jaccard similarity of pairs of words from which on texts nearly equal one another
BUCKET = 10  # texts with one band in common that are compared
WORD = re.compile(r"\w+")


def near(seen: Mapping[str, Seen]) -> list[Finding]:
    """A finding where texts of val or test nearly equal one of an earlier split, but are not the same."""

    rng = np.random.default_rng(0)
    a = rng.integers(1, 2**31, BANDS * ROWS, dtype=np.uint64) * 2 + 1
    b = rng.integers(0, 2**31, BANDS * ROWS, dtype=np.uint64)
    buckets: list[dict[bytes, list[tuple[str, int]]]] = [{} for _ in range(BANDS)]
    shingles: dict[tuple[str, int], frozenset[int]] = {}
    texts: dict[tuple[str, int], str] = {}
    pairs: list[tuple[str, str]] = []
    counts, looked = dict.fromkeys(seen, 0), dict.fromkeys(seen, 0)
    for split, some in seen.items():
        own: list[tuple[list[bytes], tuple[str, int]]] = []
        for i in sample(len(some.rows), MOST).tolist():
            text = text_of(some, i)
            words = WORD.findall(text.lower())[:WORDS]
            if len(words) < LEAST:
                continue
            key, looked[split] = (split, i), looked[split] + 1
            hashes = np.fromiter({zlib.crc32(f"{x} {y}".encode()) for x, y in pairwise(words)}, np.uint64)
            minima = ((hashes[:, None] * a + b) >> np.uint64(32)).min(0).astype(np.uint32).reshape(BANDS, ROWS)
            shingles[key], texts[key] = frozenset(hashes.tolist()), text
            bands = [band.tobytes() for band in minima]
            own.append((bands, key))
            candidates = {k for bucket, band in zip(buckets, bands) for k in bucket.get(band, ())[:BUCKET]}
            best = max(candidates, key=lambda k: (_alike(shingles[k], shingles[key]), k), default=None)
            if (
                best
                and _alike(shingles[best], shingles[key]) >= SIMILAR
                and not any(texts[k] == text for k in candidates)
            ):
                counts[split] += 1
                pairs.append((f"{some.name(i)} ({split})", f"{seen[best[0]].name(best[1])} ({best[0]})"))
        for bands, key in own:
            for bucket, band in zip(buckets, bands):
                bucket.setdefault(band, []).append(key)
    return told(pairs, counts, looked, "texts", "share most pairs of words with", grouped=True)


def labels(seen: Mapping[str, Seen], target: Target) -> list[Finding]:
    """A finding where labels of texts are probably wrong, told by their words."""
    from sklearn.feature_extraction.text import HashingVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    if not isinstance(target, Classes) or len(target.classes) > 2:
        return []  # linear models of many classes take too long
    picked = wrong_labels.picked(seen)
    words = [text_of(seen[split], i)[:4000] for split, i in picked]
    model = make_pipeline(
        HashingVectorizer(n_features=2**14, alternate_sign=False), LogisticRegression(C=30, solver="liblinear")
    )
    return wrong_labels.told(np.array(words, object), picked, seen, target, model)


def text_of(seen: Seen, i: int) -> str:
    """The i-th text that is looked at."""
    row = seen.split.row(int(seen.rows[i]))
    return next(iter(row.values())) if row else ""


def _alike(a: frozenset[int], b: frozenset[int]) -> float:
    return len(a & b) / (len(a | b) or 1)
