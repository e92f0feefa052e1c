"""Key-value caches, with which a decoder processes only the new tokens.

Memory is allocated ahead and written in place, so a new token does not copy the tokens before it.

In a `TreeCache`, for branching texts, each row is a tree of tokens, and every token is stored once. A token attends
only to the tokens before it in its own text (tree attention, as in X. Miao et al., SpecInfer, 2023
<https://arxiv.org/abs/2305.09781>, section 4.2). Nothing is copied where a text branches.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from .masks import attention_mask, causal_mask, is_right_padded, position_ids

FIRST = 64  # initial capacity in tokens, where none is given


class LayerCache:
    """The keys (N, kv_heads, S, d_k) and values (N, kv_heads, S, d_v) of one attention layer."""

    def __init__(self, capacity: int = 0) -> None:
        """Create an empty cache.

        Args:
            capacity: Number of tokens to allocate at first. The capacity doubles when it is exceeded.
        """
        self.capacity, self.length = capacity, 0
        self.keys: Tensor | None = None
        self.values: Tensor | None = None

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Append keys and values, and return all of them."""
        end = self.length + k.shape[2]
        if self.keys is None or self.values is None or end > self.keys.shape[2]:
            room = max(end, (self.capacity or FIRST) if self.keys is None else 2 * self.keys.shape[2])
            keys, values = (x.new_empty(*x.shape[:2], room, x.shape[3]) for x in (k, v))
            if self.keys is not None and self.values is not None:
                keys[:, :, : self.length], values[:, :, : self.length] = self.known()
            self.keys, self.values = keys, values
        self.keys[:, :, self.length : end] = k
        self.values[:, :, self.length : end] = v
        self.length = end
        return self.known()

    def hold(self, k: Tensor, v: Tensor) -> None:
        """Store keys and values in place of the present ones: a decoder's source, which does not grow."""
        self.keys, self.values, self.length = k, v, k.shape[2]

    def known(self) -> tuple[Tensor, Tensor]:
        """Return all keys and values."""
        assert self.keys is not None, "nothing was kept yet"
        assert self.values is not None
        return self.keys[:, :, : self.length], self.values[:, :, : self.length]

    def select(self, rows: Tensor) -> LayerCache:
        """Return a cache of the examples `rows`, in their order; an index may occur several times."""
        found = LayerCache(self.capacity)
        if self.keys is not None and self.values is not None:
            for name, whole in (("keys", self.keys), ("values", self.values)):
                room = whole.new_empty(len(rows), *whole.shape[1:])
                room[:, :, : self.length] = whole[:, :, : self.length].index_select(0, rows)
                setattr(found, name, room)
            found.length = self.length
        return found


class Cache:
    """The keys and values of every layer, and a mask of the real tokens, because rows may differ in length.

    `cross_layers` are the caches of cross-attention, in a decoder that has it.
    """

    def __init__(self, layers: int, capacity: int = 0, *, cross_attends: bool = False) -> None:
        self.layers = [LayerCache(capacity) for _ in range(layers)]
        self.cross_layers = [LayerCache() for _ in range(layers)] if cross_attends else []
        self.length = 0  # tokens processed, including padding
        self.real: Tensor | None = None  # (N, length), True for real tokens; None if all are real
        self.source_mask: Tensor | None = None  # (N, 1, 1, S) of the source, True for real tokens

    def read(self, tokens: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor | None, bool]:
        """Register the next `tokens` (N, T) and return their positions, attention mask and causal flag.

        `mask` (N, T) is True where tokens are real. The positions are (T,) or (N, T). The attention mask is (N or 1, 1,
        T, S) or None.
        """
        before, count, device = self.length, tokens.shape[1], tokens.device
        self.length = before + count
        if mask is not None and self.real is None and not bool(mask.all()):
            self.real = mask.new_ones(len(tokens), before)
        steps = torch.arange(count, device=device)
        if self.real is None:
            if before == 0:
                return steps, None, count > 1
            own = None if count == 1 else causal_mask(count, self.length, device)[None, None]  # (1, 1, T, S)
            return before + steps, own, False
        now = mask if mask is not None else torch.ones_like(tokens, dtype=torch.bool)
        earlier = self.real.sum(1, keepdim=True)
        self.real = torch.cat([self.real, now], dim=1)  # (N, S)
        positions = (earlier + now.cumsum(1) - 1).clamp(min=0)  # (N, T)
        seen = self.real[:, None, None, :]  # (N, 1, 1, S)
        return positions, seen if count == 1 else seen & causal_mask(count, self.length, device), False

    def select(self, rows: Tensor) -> Cache:
        """Return the cache of the examples `rows`, in their order; an index may occur several times."""
        found = Cache(0)
        found.layers = [one.select(rows) for one in self.layers]
        found.cross_layers = [one.select(rows) for one in self.cross_layers]
        found.length = self.length
        found.real = None if self.real is None else self.real[rows]
        found.source_mask = None if self.source_mask is None else self.source_mask[rows]
        return found

    def longest(self, tokens: Tensor) -> int:
        """Return the number of tokens, including padding, after `tokens` (N, T) are processed."""
        return self.length + tokens.shape[1]

    def reality(self) -> Tensor:
        """Return the mask of real tokens, (N, length)."""
        if self.real is not None:
            return self.real
        keys = self.layers[0].known()[0]
        return torch.ones(len(keys), self.length, dtype=torch.bool, device=keys.device)

    def __len__(self) -> int:
        """Return the number of examples in the batch."""
        keys = (self.cross_layers + self.layers)[0].keys  # the source is cached first
        return 0 if keys is None else len(keys)


def position_ids_and_mask(
    tokens: Tensor, mask: Tensor | None, cache: Cache | None = None
) -> tuple[Tensor, Tensor | None]:
    """Return the positions of the tokens of a causal language model, and their attention mask.

    Args:
        tokens: Token ids, shape (N, T). With a cache they continue after its end.
        mask: True where a token is real, shape (N, T); None if all are.
        cache: The keys and values of earlier tokens.

    Returns:
        Positions, shape (T,) or (N, T), and the mask, shape (N or 1, 1, T, S), or None where every token attends to
        itself and to all tokens before it.
    """
    if cache is not None:
        positions, visible, _ = cache.read(tokens, mask)
        return positions, visible
    if mask is None or is_right_padded(mask):  # causal attention never reaches right padding
        return torch.arange(tokens.shape[1], device=tokens.device), None
    return position_ids(mask), attention_mask(mask, causal=True, length=tokens.shape[1])


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
    def from_cache(cls, cache: Cache) -> TreeCache:
        """Create a tree from the cache of a decoder without an encoder: each row is one text.

        The tree takes over the layers of `cache`, which must not be used afterwards.
        """
        found = cls(0)
        found.layers, found.length = cache.layers, cache.length
        found.seen = cache.reality()[:, None]
        return found

    def after(self, before: Tensor) -> None:
        """Set the predecessors `before` (N, T, length) of the next tokens (N, T)."""
        self._before = before

    def longest(self, tokens: Tensor) -> int:
        """Return the length of the longest text after these tokens are processed."""
        assert self._before is not None, "call `after` first"
        return int(self._before.sum(2).max()) + 1

    def read(self, tokens: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor | None, bool]:
        """Register the next `tokens` (N, T) and return their positions and mask, (N, 1, T, S).

        Padding attends only to itself, and no other token attends to it.
        """
        assert self._before is not None, "call `after` first"
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
