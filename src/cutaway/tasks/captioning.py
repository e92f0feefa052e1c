"""Captions of images: sequences, each held to all the captions that are right of its image.

Beside what is measured of every sequence stands the fraction of images whose caption is, word for word, one of the
right ones. A caption's probability is the product of those of its words and its end; the words that a beam did not
choose are not among them.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Protocol

import numpy as np
from torch import Tensor

from ..statistics.intervals import Metric, proportion
from .sequences import EDITS, LOG_P, SequenceToSequence


class Referenced(Protocol):
    """A split that knows all right answers to an example."""

    def __len__(self) -> int: ...
    def references(self, i: int) -> list[list[int]]:
        """Those to example i, as ids without `end`."""
        ...


class Captioning(SequenceToSequence):
    """Cross-entropy of the next word; the fraction of images with a right caption, BLEU and edits."""

    NOUN = "captions"
    name = "image captioning"
    headline = "exact_match"

    def metrics(self, kept: Tensor, target: Tensor) -> dict[str, Metric]:
        """First the fraction of images whose caption is one of the right ones, where it was decoded, with Wilson's
        interval; then those of all sequences."""
        found = super().metrics(kept, target)
        if found.pop("sequence_error", None) is None:
            return found
        exact = proportion(float((kept[:, EDITS] == 0).sum()), len(kept))
        return {"exact_match": exact, **{k: found[k] for k in ("bleu", "token_error", "loss") if k in found}}

    def beside(self, kept: Tensor, train: Referenced, split: Referenced) -> dict[str, Any]:
        """How many images the commonest caption of the training split would be right of."""
        del kept
        counts = Counter(tuple(ids) for i in range(len(train)) for ids in train.references(i))
        commonest = counts.most_common(1)[0][0]
        right = np.mean([commonest in map(tuple, split.references(i)) for i in range(len(split))])
        return {"baseline": {"name": f"always “{self.words(list(commonest))}”", "value": float(right)}}

    def predictions(self, kept: Tensor) -> list[dict[str, Any]]:
        """The caption of each image and its probability."""
        chances = kept[:, LOG_P].double().exp().tolist()
        return [{**row, "probability": p} for row, p in zip(super().predictions(kept), chances)]

    def mistakes(self, kept: Tensor, target: Tensor) -> list[dict[str, Any]]:
        """What each caption was and what was said; of several right ones that which was said, where it is among them,
        else the first."""
        chances = kept[:, LOG_P].double().exp().tolist()
        return [
            {**row, "actual": row["actual"] if row["wrong"] else row["predicted"], "confidence": p}
            for row, p in zip(super().mistakes(kept, target), chances)
        ]
