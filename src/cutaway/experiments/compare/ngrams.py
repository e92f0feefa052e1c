"""N-gram language model with backoff to shorter contexts.

p_k(w | the last k tokens c) = (n(c w) + t(c) p_{k−1}(w)) / (n(c) + t(c)),   p_{−1} = 1/V

n counts in the training split, and t(c) is the number of different tokens that followed c: interpolated Witten–Bell
smoothing (I. H. Witten, T. C. Bell, The zero-frequency problem, IEEE Transactions on Information Theory 37, 1991; S. F.
Chen, J. Goodman, An empirical study of smoothing techniques for language modeling, 1999).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...core.spec import NextToken
from ...data.dataset_base import IGNORED, DataSet, Split
from ...training.evaluation import sequential_batches
from .baseline_models import READ_BATCH, Answer, Baseline

LONGEST = 5  # maximum context in tokens
MOST_TOKENS = 2_000_000  # maximum training tokens; more are subsampled evenly by window
MIX = np.uint64(
    0x9E3779B97F4A7C15
)  # odd multiplier, so that no bits are lost; millions of contexts collide once in 10⁵ times

Keys = NDArray[np.uint64]


def ngram_baseline(target: NextToken, total: int, length: int) -> Baseline:
    """Return the n-gram baseline for `total` training windows of `length` tokens.

    Its outputs have the format that evaluation keeps of a language model's outputs.
    """
    most = max(1, MOST_TOKENS // length)

    def learn(data: DataSet, seed: int) -> Answer:
        del seed
        train = data.splits["train"]
        windows = torch.linspace(0, total - 1, min(total, most)).round().long()
        contexts, following = zip(*(_read(*batch) for batch in train.batches(list(torch.split(windows, READ_BATCH)))))
        tables = [NgramTable.of(keys, np.concatenate(following)) for keys in map(np.concatenate, zip(*contexts))]
        return lambda split: _token_losses(split, tables, target.vocab_size)

    said = f"How often each token followed the last {LONGEST} in training, and fewer where these are rare."
    return Baseline("n-grams", said + (f" Learned from {most:,} of {total:,} windows." if total > most else ""), learn)


@dataclass(frozen=True)
class NgramTable:
    """Counts of the tokens that followed contexts of one length."""

    contexts: Keys  # (C,) sorted
    count: NDArray[np.float64]  # occurrences of each context
    kinds: NDArray[np.float64]  # number of different tokens that followed it
    likeliest: NDArray[np.int64]  # most frequent token that followed it
    pairs: Keys  # (P,) context and next token, sorted
    together: NDArray[np.float64]  # occurrences of each pair

    @classmethod
    def of(cls, keys: Keys, following: NDArray[np.int64]) -> NgramTable:
        """Count contexts (n,) and their next tokens (n,)."""
        pairs, first, together = np.unique(_extend(keys, following), return_index=True, return_counts=True)
        contexts, of_pair, kinds = np.unique(keys[first], return_inverse=True, return_counts=True)
        times = together.astype(np.float64)
        count = np.bincount(of_pair, times, len(contexts)).astype(np.float64)
        order = np.lexsort((together, of_pair))
        last = np.append(np.flatnonzero(np.diff(of_pair[order])), len(order) - 1)
        return cls(contexts, count, kinds.astype(np.float64), following[first][order][last], pairs, times)

    def refined(
        self, p: NDArray[np.float64], likeliest: NDArray[np.int64], keys: Keys, following: NDArray[np.int64]
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Return the probability (n,) and the most likely token after adding contexts that are one token longer."""
        at, known = _lookup(self.contexts, keys)
        pair, seen = _lookup(self.pairs, _extend(keys, following))
        count, kinds = self.count[at], self.kinds[at]
        better = (np.where(seen, self.together[pair], 0.0) + kinds * p) / (count + kinds)
        return np.where(known, better, p), np.where(known, self.likeliest[at], likeliest)


def _token_losses(split: Split, tables: list[NgramTable], vocab_size: int) -> Tensor:
    """Return each token's loss in nats, and 1 if it is the most likely, shape (n, T, 2); NaN at padding."""
    plan = sequential_batches(split, READ_BATCH)
    found = []
    for batch in split.batches(plan):
        keys, following = _read(*batch)
        p, likeliest = np.full(len(following), 1 / vocab_size), np.zeros(len(following), np.int64)
        for table, own in zip(tables, keys):
            p, likeliest = table.refined(p, likeliest, own, following)
        kept = torch.full((*batch.target.shape, 2), torch.nan)
        values = np.stack([-np.log(p), likeliest == following], axis=1)
        kept[batch.target != IGNORED] = torch.from_numpy(values).float()
        found.append(kept)
    longest = max(kept.shape[1] for kept in found)
    outputs = torch.full((len(split), longest, 2), torch.nan)
    for index, kept in zip(plan, found):
        outputs[index, : kept.shape[1]] = kept
    return outputs


def _read(inputs: tuple[Tensor, ...], target: Tensor) -> tuple[list[Keys], NDArray[np.int64]]:
    """Return the keys of the last 0, 1, … tokens and the next token, shape (n,).

    Only tokens of a batch that have a next token are included.
    """
    real = (target != IGNORED).numpy()
    tokens = inputs[0].numpy()
    key = np.zeros(tokens.shape, np.uint64)
    keys = [key[real]]
    for back in range(LONGEST):
        shifted = np.full(tokens.shape, -1)  # a special token pads the start of a window
        shifted[:, back:] = tokens[:, : tokens.shape[1] - back]
        key = _extend(key, shifted)
        keys.append(key[real])
    return keys, target.numpy()[real]


def _extend(keys: Keys, tokens: NDArray[np.int64]) -> Keys:
    """Return the keys of contexts that are extended by a token."""
    mixed = (keys + (tokens + 2).astype(np.uint64)) * MIX
    found: Keys = mixed ^ (mixed >> np.uint64(29))
    return found


def _lookup(among: Keys, keys: Keys) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """Return the position of each key in a sorted array, and whether it is there."""
    at = np.searchsorted(among, keys).clip(max=len(among) - 1)
    return at, among[at] == keys
