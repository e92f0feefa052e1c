"""A simple model of language: what followed the last tokens in training, and those of fewer tokens where that is rare.

p_k(w | the last k tokens c) = (n(c w) + t(c) p_{k−1}(w)) / (n(c) + t(c)),   p_{−1} = 1/V

n counts in the training split, t(c) is how many different tokens followed c: interpolated Witten–Bell smoothing
(I. H. Witten, T. C. Bell, The zero-frequency problem, IEEE Transactions on Information Theory 37, 1991; S. F. Chen,
J. Goodman, An empirical study of smoothing techniques for language modeling, 1999).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...core.spec import NextToken
from ...data.dataset_base import IGNORED, DataSet, Split
from ...training.evaluation import batches_in_order
from .baseline_models import AT_ONCE, Answer, Baseline

LONGEST = 5  # tokens that are looked back at
MOST_TOKENS = 2_000_000  # that are counted, an even choice of windows where there are more
MIX = np.uint64(0x9E3779B97F4A7C15)  # odd, so that no context is lost: two of millions are alike once in 10⁵ times

Keys = NDArray[np.uint64]


def by_ngrams(target: NextToken, total: int, length: int) -> Baseline:
    """Of `total` training windows of `length` tokens. Its outputs are what evaluation keeps of a language model's."""
    most = max(1, MOST_TOKENS // length)

    def learn(data: DataSet, seed: int) -> Answer:
        del seed
        train = data.splits["train"]
        windows = torch.linspace(0, total - 1, min(total, most)).round().long()
        contexts, following = zip(*(_read(*batch) for batch in train.batches(list(torch.split(windows, AT_ONCE)))))
        tables = [Table.of(keys, np.concatenate(following)) for keys in map(np.concatenate, zip(*contexts))]
        return lambda split: _kept(split, tables, target.vocab_size)

    said = f"How often each token followed the last {LONGEST} in training, and fewer where these are rare."
    return Baseline("n-grams", said + (f" Learned from {most:,} of {total:,} windows." if total > most else ""), learn)


@dataclass(frozen=True)
class Table:
    """What followed contexts of one length."""

    contexts: Keys  # (C,) sorted
    count: NDArray[np.float64]  # how often each occurs
    kinds: NDArray[np.float64]  # how many different tokens followed it
    likeliest: NDArray[np.int64]  # the one that most often did
    pairs: Keys  # (P,) of a context and what followed, sorted
    together: NDArray[np.float64]  # how often

    @classmethod
    def of(cls, keys: Keys, following: NDArray[np.int64]) -> Table:
        """Count contexts (n,) and what followed each, (n,)."""
        pairs, first, together = np.unique(_mixed(keys, following), return_index=True, return_counts=True)
        contexts, of_pair, kinds = np.unique(keys[first], return_inverse=True, return_counts=True)
        times = together.astype(np.float64)
        count = np.bincount(of_pair, times, len(contexts)).astype(np.float64)
        order = np.lexsort((together, of_pair))
        last = np.append(np.flatnonzero(np.diff(of_pair[order])), len(order) - 1)
        return cls(contexts, count, kinds.astype(np.float64), following[first][order][last], pairs, times)

    def refined(
        self, p: NDArray[np.float64], likeliest: NDArray[np.int64], keys: Keys, following: NDArray[np.int64]
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """p (n,) of what follows and the likeliest token, by contexts of one token more."""
        at, known = _found(self.contexts, keys)
        pair, seen = _found(self.pairs, _mixed(keys, following))
        count, kinds = self.count[at], self.kinds[at]
        better = (np.where(seen, self.together[pair], 0.0) + kinds * p) / (count + kinds)
        return np.where(known, better, p), np.where(known, self.likeliest[at], likeliest)


def _kept(split: Split, tables: list[Table], vocab_size: int) -> Tensor:
    """(n, T, 2): each token's loss in nats, and 1 where it is the likeliest; NaN at padding."""
    plan = batches_in_order(split, AT_ONCE)
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
    """Of each token of a batch that is followed by one, (n,): keys of the last 0, 1, … tokens, and what follows."""
    real = (target != IGNORED).numpy()
    tokens = inputs[0].numpy()
    key = np.zeros(tokens.shape, np.uint64)
    keys = [key[real]]
    for back in range(LONGEST):
        shifted = np.full(tokens.shape, -1)  # before a window stands a token of its own
        shifted[:, back:] = tokens[:, : tokens.shape[1] - back]
        key = _mixed(key, shifted)
        keys.append(key[real])
    return keys, target.numpy()[real]


def _mixed(keys: Keys, tokens: NDArray[np.int64]) -> Keys:
    """Keys of contexts and a token more."""
    mixed = (keys + (tokens + 2).astype(np.uint64)) * MIX
    found: Keys = mixed ^ (mixed >> np.uint64(29))
    return found


def _found(among: Keys, keys: Keys) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """Where each of the keys stands among sorted ones, and whether it does."""
    at = np.searchsorted(among, keys).clip(max=len(among) - 1)
    return at, among[at] == keys
