"""Where a token stands, told to a network that would see a set: sinusoids, rotations, distances.

Learned positions are a table like that of words (`nn.Embedding`). Sinusoids (A. Vaswani et al., 2017, section 3.5):

    PE(p, 2i) = sin(p / 10000^{2i/d}),   PE(p, 2i + 1) = cos(p / 10000^{2i/d})

Rotary positions turn each pair of a query's and a key's numbers by an angle that grows with the position, so that
their product depends on the distance alone (J. Su et al., RoFormer, 2021, <https://arxiv.org/abs/2104.09864>).
Relative bias adds to every score a number that depends on the distance of key and query, one for each bucket of
distances and each head (C. Raffel et al., T5, 2019, <https://arxiv.org/abs/1910.10683>, section 2.1).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from ..core.errors import require

Rotation = tuple[Tensor, Tensor]  # cosine and sine of the angle of each pair of numbers at each position


def sinusoids(positions: Tensor, dim: int, dtype: torch.dtype | None = None) -> Tensor:
    """PE of positions (…,): (…, dim), sine and cosine in turn. Computed in float64, then of `dtype`."""
    i = torch.arange(0, dim, 2, device=positions.device, dtype=torch.float64)  # 2i
    angles = positions[..., None].double() / 10000 ** (i / dim)  # (…, ⌈dim/2⌉)
    pairs = torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)  # (…, 2⌈dim/2⌉)
    return pairs[..., :dim].to(dtype or torch.get_default_dtype())


def grid_sinusoids(rows: int, columns: int, dim: int, like: Tensor) -> Tensor:
    """Where each place of a map is, row by row: (rows·columns, dim), the first half of the numbers PE of the row, the
    others that of the column, of the device and the type of `like`."""
    down = sinusoids(torch.arange(rows, device=like.device), dim // 2, like.dtype)  # (rows, dim/2)
    across = sinusoids(torch.arange(columns, device=like.device), dim - dim // 2, like.dtype)  # (columns, dim/2)
    grid = torch.cat([down[:, None].expand(-1, columns, -1), across[None].expand(rows, -1, -1)], -1)
    return grid.flatten(0, 1)  # (rows·columns, dim)


def rotation(positions: Tensor, dim: int, dtype: torch.dtype | None = None) -> Rotation:
    """Cosine and sine of the angles p / 10000^{2i/d} of `positions` (T,) or (N, T): (T, d/2) or (N, 1, T, d/2) each.

    They have at least float32's digits, whatever `dtype` is: bfloat16 has too few to tell positions apart.
    """
    require(dim % 2 == 0, "dim", dim, "even, to be turned pair by pair")
    table = sinusoids(positions, dim, torch.promote_types(dtype or torch.get_default_dtype(), torch.float32))
    if table.ndim == 3:
        table = table[:, None]  # the same for all heads: (N, 1, T, d)
    return table[..., 1::2], table[..., 0::2]


def rotary(x: Tensor, positions: Tensor | Rotation) -> Tensor:
    """Queries or keys (N, heads, T, d) turned by their `positions` (T,) or (N, T), or by their `rotation`: the pair
    (x_{2i}, x_{2i+1}) by the angle p / 10000^{2i/d}. d is even."""
    cos, sin = rotation(positions, x.shape[-1], x.dtype) if isinstance(positions, Tensor) else positions
    a, b = x[..., 0::2], x[..., 1::2]  # (N, heads, T, d/2)
    return torch.stack([a * cos - b * sin, a * sin + b * cos], dim=-1).flatten(-2).to(x.dtype)


def distance_buckets(distances: Tensor, buckets: int = 32, furthest: int = 128, *, both: bool = True) -> Tensor:
    """The bucket of each distance, key position − query position. With `both` one half of the buckets is for keys
    after the query, the other for those before it; without, keys after it count as at distance 0.

    Of the buckets of one direction the first half is one for each distance; the other half grow with the logarithm up
    to `furthest`, and the last holds all that is further.
    """
    found = torch.zeros_like(distances)
    if both:
        buckets //= 2
        found = (distances > 0).long() * buckets
        distances = distances.abs()
    else:
        distances = (-distances).clamp(min=0)
    exact = buckets // 2
    # In float32, as the published weights were trained: elsewhere distances at an edge fall on its other side.
    log = (distances.clamp(min=1).float() / exact).log() / math.log(furthest / exact)
    far = (exact + (log * (buckets - exact)).long()).clamp(max=buckets - 1)
    return found + torch.where(distances < exact, distances, far)


class RelativeBias(nn.Module):
    """A number for each head and each bucket of distances: (heads, T, S), to be added to the scores."""

    def __init__(self, heads: int, buckets: int = 32, furthest: int = 128, *, both: bool = True) -> None:
        super().__init__()
        exact = (buckets // 2 if both else buckets) // 2  # distances of one direction with a bucket of their own
        require(exact >= 1, "buckets", buckets, "at least 4, or 2 where keys after the query do not count")
        require(furthest > exact, "furthest", furthest, f"above {exact}, up to where each distance has its bucket")
        self.table = nn.Embedding(buckets, heads)
        self.buckets, self.furthest, self.both = buckets, furthest, both

    def forward(self, queries: int, keys: int) -> Tensor:
        """The bias (1, heads, T, S) of the last `queries` of `keys` tokens."""
        place = torch.arange(keys, device=self.table.weight.device)
        distances = place[None, :] - place[keys - queries :, None]  # (T, S), key − query
        buckets = distance_buckets(distances, self.buckets, self.furthest, both=self.both)
        bias: Tensor = self.table(buckets)  # (T, S, heads)
        return bias.permute(2, 0, 1)[None]
