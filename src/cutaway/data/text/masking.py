"""Which tokens are hidden, and by what: masked-language modelling as BERT has it.

J. Devlin, M.-W. Chang, K. Lee, K. Toutanova, BERT, 2018, section 3.1 and appendix C.1,
<https://arxiv.org/abs/1810.04805>. Of each example max(1, round(mask_prob · n)) of its n tokens are chosen, as the
released code has it; of these 80 % become the mask, 10 % any token, 10 % stay as they are.

With whole words (the authors' later release) the subwords of a word are chosen together or not at all: words at random,
until as many tokens are chosen; the last word is taken where at least half of it still fits.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..sets import IGNORED
from .draws import uniform

MASK_PROB = 0.15
MASKED, RANDOM = 0.8, 0.1  # of the chosen tokens; the rest stays
CHOICE, FATE, OTHER = range(3)  # what is drawn for each place

Flags = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Masking:
    """How tokens are hidden."""

    mask: int  # the token that stands for a hidden one
    others: Numbers  # (K,) the tokens that may stand there instead: none that is no text
    mask_prob: float = MASK_PROB

    def hide(
        self, tokens: Tensor, places: Tensor, real: Tensor, seed: int, goes_on: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """What the model sees of `tokens` (N, T), and what it is to predict, IGNORED where nothing.

        `places` (N, T) are where the tokens stand in the whole text: what is drawn belongs to the place and the seed.
        Only `real` (N, T) tokens are chosen, at least one in each row that has one. With `goes_on` (N, T), True where
        a token goes on with the word of the one before it, words are chosen whole. A row that has hidden tokens
        already, as a person writes them, is left as it is.
        """
        written = (tokens == self.mask).any(1, keepdim=True)
        at, may = places.numpy(), (real & ~written).numpy()
        wanted = np.maximum(1, np.rint(self.mask_prob * may.sum(1)))  # (N,)
        chosen = self._chosen(at, may, wanted, seed, goes_on.numpy() if goes_on is not None else None)
        fate = uniform(seed, at, FATE)
        any_token = self.others[(uniform(seed, at, OTHER) * len(self.others)).astype(np.int64)]
        seen = tokens.numpy().copy()
        seen[chosen & (fate < MASKED)] = self.mask
        swapped = chosen & (fate >= MASKED) & (fate < MASKED + RANDOM)
        seen[swapped] = any_token[swapped]
        return torch.from_numpy(seen), tokens.masked_fill(~torch.from_numpy(chosen), IGNORED)

    def _chosen(
        self, at: Numbers, may: Flags, wanted: npt.NDArray[np.float64], seed: int, goes_on: Flags | None
    ) -> Flags:
        """Which tokens are chosen, (N, T)."""
        if goes_on is None:
            order = np.where(may, uniform(seed, at, CHOICE), np.inf)
            rank = order.argsort(1, kind="stable").argsort(1)
            found: Flags = may & (rank < wanted[:, None])
            return found
        step = np.arange(at.shape[1])
        begins = may & (~goes_on | ~np.pad(may, ((0, 0), (1, 0)))[:, :-1])  # the first token of each word here
        first = np.maximum.accumulate(np.where(begins, step, 0), 1)  # (N, T) where the word of each token begins
        drawn = np.take_along_axis(uniform(seed, at, CHOICE), first, 1)
        order = np.where(may, drawn, np.inf).argsort(1, kind="stable")  # words at random, the subwords of one together
        size = np.zeros_like(at)  # of the word that begins there
        np.add.at(size, (np.arange(len(at))[:, None], first), may.astype(np.int64))
        sizes = np.take_along_axis(np.take_along_axis(size, first, 1), order, 1)  # of the words, in that order
        heads = np.take_along_axis(begins, order, 1)
        # A word's tokens stand one after another in this order, its first in front: so many were chosen before it.
        before = np.maximum.accumulate(np.where(heads, step, 0), 1)
        taken = (before == 0) | (before + sizes / 2 <= wanted[:, None])
        back = np.empty_like(taken)
        np.put_along_axis(back, order, taken, 1)
        whole: Flags = back & may
        return whole
