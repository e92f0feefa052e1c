"""A key-value cache for branching texts: each row is a tree of tokens, and every token is stored once.

A token attends only to the tokens before it in its own text (tree attention, as in X. Miao et al., SpecInfer, 2023
<https://arxiv.org/abs/2305.09781>, section 4.2). Nothing is copied where a text branches.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from .kv_cache import Cache, LayerCache


class Path(NamedTuple):
    """A text in a tree: its cache, its row, and a mask of its tokens."""

    cache: TreeCache
    row: int
    seen: Tensor  # (length at that time,), True for its tokens


class TreeCache(Cache):
    """A cache in which each row is a tree. `after` sets the predecessors of tokens before they are processed."""

    def __init__(self, layers: int) -> None:
        super().__init__(layers)
        self.seen = torch.empty(0, 0, 0, dtype=torch.bool)  # (N, T, length): visible to the last tokens
        self._before: Tensor | None = None

    @classmethod
    def of(cls, cache: Cache) -> TreeCache:
        """Create a tree from a cache: each row is one text."""
        found = cls(0)
        found.layers, found.length = cache.layers, cache.length
        found.seen = cache.reality()[:, None]
        return found

    def after(self, before: Tensor) -> None:
        """Set the predecessors `before` (N, T, length) of the next tokens (N, T)."""
        self._before = before

    def longest(self, tokens: Tensor) -> int:
        """Return the length of the longest text after these tokens are processed."""
        assert self._before is not None, "what the tokens come after is to be said first"
        return int(self._before.sum(2).max()) + 1

    def read(self, tokens: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor | None, bool]:
        """Register the next `tokens` (N, T) and return their positions and mask, (N, 1, T, S).

        Padding attends only to itself, and no other token attends to it.
        """
        assert self._before is not None, "what the tokens come after is to be said first"
        before, self._before = self._before, None
        itself = torch.eye(tokens.shape[1], dtype=torch.bool, device=tokens.device).expand(len(tokens), -1, -1)
        self.length += tokens.shape[1]
        self.seen = torch.cat([before, itself], 2)
        return before.sum(2), self.seen[:, None], False


def gather_paths(paths: Sequence[Path]) -> tuple[TreeCache, list[int], Tensor]:
    """Gather texts into one cache without unused tokens.

    The result is the cache, the row of each text, and the mask of its tokens there, (n, length). Texts of one row stay
    in one row.
    """
    numbers: dict[tuple[int, int], int] = {}
    rows = [numbers.setdefault((id(path.cache), path.row), len(numbers)) for path in paths]
    seen = pad_sequence([path.seen for path in paths], batch_first=True)  # (n, S)
    of = torch.tensor(rows, device=seen.device)
    kept = torch.zeros(len(numbers), seen.shape[1], device=seen.device).index_add_(0, of, seen.float()) > 0  # (N, S)
    counts = kept.sum(1)
    width = int(counts.max())
    places = (~kept).byte().argsort(dim=1, stable=True)[:, :width]  # (N, width): kept tokens first, in order
    caches = {id(path.cache): path.cache for path in paths}
    moved = []  # for each cache: its rows, their new rows, and the positions of their tokens
    for key, cache in caches.items():
        old, new = torch.tensor([(row, now) for (own, row), now in numbers.items() if own == key], device=seen.device).T
        moved.append((old, new, places[new].clamp(max=cache.length - 1)))
    found = TreeCache(0)
    for layers in zip(*(cache.layers for cache in caches.values())):
        one = LayerCache()
        parts: list[Tensor] = []
        for side in zip(*(layer.known() for layer in layers)):  # the keys of all caches, then the values
            whole = side[0].new_empty(len(numbers), width, side[0].shape[1], side[0].shape[3])
            for x, (old, new, at) in zip(side, moved):
                whole[new] = x[old[:, None], :, at]  # advanced indices come first: (n, width, heads, d)
            parts.append(whole.transpose(1, 2))
        one.append(*parts)
        found.layers.append(one)
    found.length = width
    own = seen.gather(1, places[of]) & (torch.arange(width, device=seen.device) < counts[of, None])
    return found, rows, own
