"""Position encodings: sinusoids, rotary embeddings, relative bias and ALiBi.

Without them attention is invariant to the order of tokens. Learned positions are an embedding table (`nn.Embedding`).
Sinusoids (A. Vaswani et al., 2017, section 3.5):

    PE(p, 2i) = sin(p / 10000^{2i/d}),   PE(p, 2i + 1) = cos(p / 10000^{2i/d})

Rotary embeddings rotate each pair of features of a query and a key by an angle proportional to the position, so that
their product depends on the distance only (J. Su et al., RoFormer, 2021, <https://arxiv.org/abs/2104.09864>).

Relative bias adds a number to every score that depends on the distance of key and query. There is one number for each
bucket of distances and each head (C. Raffel et al., T5, 2019, <https://arxiv.org/abs/1910.10683>, section 2.1).

ALiBi, attention with linear biases, subtracts a multiple of the distance from every score, with a fixed slope for each
head and without a parameter (O. Press, N. A. Smith, M. Lewis, Train short, test long, 2022,
<https://arxiv.org/abs/2108.12409>).

The base, 10 000 in the papers, sets the longest period, 2π · base^{(d−2)/d} positions. A larger base encodes positions
of longer texts without a repetition; the differences of near positions get smaller.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from ..core.errors import check_value

BASE = 10_000.0  # of the angles of sinusoids and rotary embeddings, in both papers
Rotation = tuple[Tensor, Tensor]  # cosine and sine of the angle of each pair of features at each position


def sinusoids(positions: Tensor, dim: int, dtype: torch.dtype | None = None, base: float = BASE) -> Tensor:
    """Return the sinusoidal encoding of positions, sine and cosine interleaved, computed in float64.

    Args:
        positions: Positions, any shape (…,).
        dim: Number of features d. If it is odd, the last sine has no cosine.
        dtype: Type of the result. None: torch's default type.
        base: Base of the angles, 10 000 in the paper.

    Returns:
        The encoding, shape (…, dim).

    Example:
        >>> sinusoids(torch.arange(3), dim=4).round(decimals=2)
        tensor([[ 0.0000,  1.0000,  0.0000,  1.0000],
                [ 0.8400,  0.5400,  0.0100,  1.0000],
                [ 0.9100, -0.4200,  0.0200,  1.0000]])
        >>> encoding = sinusoids(torch.arange(20), dim=64)
        >>> products = encoding @ encoding.T  # depend on the distance only
        >>> torch.allclose(products[0, 3], products[10, 13], atol=1e-4)
        True
    """
    i = torch.arange(0, dim, 2, device=positions.device, dtype=torch.float64)  # 2i
    angles = positions[..., None].double() / base ** (i / dim)  # (…, ⌈dim/2⌉)
    pairs = torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)  # (…, 2⌈dim/2⌉)
    return pairs[..., :dim].to(dtype or torch.get_default_dtype())


def grid_sinusoids(rows: int, columns: int, dim: int, like: Tensor) -> Tensor:
    """Return the sinusoidal encoding of each cell of a map, row by row.

    The first ⌊dim/2⌋ features encode the row, the others the column.

    Args:
        rows: Number of rows.
        columns: Number of columns.
        dim: Number of features.
        like: Tensor with the device and type of the result. Its values do not matter.

    Returns:
        The encoding, shape (rows·columns, dim).

    Example:
        >>> encoding = grid_sinusoids(2, 3, dim=8, like=torch.zeros(1))
        >>> encoding.shape
        torch.Size([6, 8])
        >>> torch.equal(encoding[0, :4], encoding[2, :4]), torch.equal(encoding[0, 4:], encoding[3, 4:])  # row, column
        (True, True)
    """
    down = sinusoids(torch.arange(rows, device=like.device), dim // 2, like.dtype)  # (rows, dim/2)
    across = sinusoids(torch.arange(columns, device=like.device), dim - dim // 2, like.dtype)  # (columns, dim/2)
    grid = torch.cat([down[:, None].expand(-1, columns, -1), across[None].expand(rows, -1, -1)], -1)
    return grid.flatten(0, 1)  # (rows·columns, dim)


def rotation(positions: Tensor, dim: int, dtype: torch.dtype | None = None, base: float = BASE) -> Rotation:
    """Return cosine and sine of the rotary angles p / base^{2i/d}.

    They have at least float32's precision for any `dtype`: bfloat16 has too few digits to distinguish positions.

    Args:
        positions: Positions p, shape (T,) or (N, T).
        dim: Features d of a head, even.
        dtype: Type of the queries and keys. None: torch's default type.
        base: Base of the angles, 10 000 in the paper.

    Returns:
        Cosine and sine, each of shape (T, d/2) or (N, 1, T, d/2).

    Raises:
        ConfigError: If `dim` is odd.

    Example:
        >>> cos, sin = rotation(torch.arange(10), dim=8)
        >>> cos.shape, torch.allclose(cos**2 + sin**2, torch.ones(10, 4))
        (torch.Size([10, 4]), True)
    """
    check_value(dim % 2 == 0, "dim", dim, "even, to be turned pair by pair")
    table = sinusoids(positions, dim, torch.promote_types(dtype or torch.get_default_dtype(), torch.float32), base)
    if table.ndim == 3:
        table = table[:, None]  # the same for all heads: (N, 1, T, d)
    return table[..., 1::2], table[..., 0::2]


def rotary(x: Tensor, positions: Tensor | Rotation, base: float = BASE) -> Tensor:
    """Rotate queries or keys by their positions: the pair (x_{2i}, x_{2i+1}) by the angle p / base^{2i/d}.

    Args:
        x: Queries or keys, shape (N, heads, T, d), d even.
        positions: Positions p, shape (T,) or (N, T), or their `rotation`, which several calls can share.
        base: Base of the angles. Ignored if `positions` is a `rotation`, which has its own.

    Returns:
        The rotated input, of the shape and type of x.

    Raises:
        ConfigError: If d is odd and `positions` is no `rotation`.

    Example:
        >>> q, k = torch.randn(2, 1, 1, 1, 8)  # each (N, heads, T, d)
        >>> def score(t, s):
        ...     return (rotary(q, torch.tensor([t])) * rotary(k, torch.tensor([s]))).sum()
        >>> torch.allclose(score(3, 1), score(52, 50), atol=1e-4)  # depends on the distance only
        True
    """
    cos, sin = rotation(positions, x.shape[-1], x.dtype, base) if isinstance(positions, Tensor) else positions
    a, b = x[..., 0::2], x[..., 1::2]  # (N, heads, T, d/2)
    return torch.stack([a * cos - b * sin, a * sin + b * cos], dim=-1).flatten(-2).to(x.dtype)


def distance_buckets(distances: Tensor, buckets: int = 32, furthest: int = 128, *, both: bool = True) -> Tensor:
    """Return the bucket of each distance, key position − query position.

    In each direction, the first half of the buckets holds one distance each. The sizes of the others grow
    logarithmically up to `furthest`, and the last one holds all larger distances too.

    Args:
        distances: Distances, int64 or int32, any shape.
        buckets: Number of buckets: at least 4, or at least 2 if `both` is False.
        furthest: Distance from which on all are certain to share the last bucket. It must exceed the number of
            distances that have their own bucket, buckets/4, or buckets/2 if `both` is False.
        both: Whether one half of the buckets is for keys before the query and the other for keys after it. If False,
            keys after the query count as distance 0.

    Returns:
        Bucket indices, of the shape of `distances`.

    Raises:
        ConfigError: If there are too few buckets, or `furthest` is too small.

    Example:
        >>> distance_buckets(torch.tensor([-1000, -20, -2, -1, 0, 1, 2, 20, 1000]))
        tensor([15, 10,  2,  1,  0, 17, 18, 26, 31])
        >>> distance_buckets(torch.tensor([-1000, -20, -2, -1, 0, 1]), both=False)
        tensor([31, 17,  2,  1,  0,  0])
    """
    _check_buckets(buckets, furthest, both)
    found = torch.zeros_like(distances)
    if both:
        buckets //= 2
        found = (distances > 0).long() * buckets
        distances = distances.abs()
    else:
        distances = (-distances).clamp(min=0)
    exact = buckets // 2
    # In float32, as in the training of the published weights: other types move distances at an edge to another bucket.
    log = (distances.clamp(min=1).float() / exact).log() / math.log(furthest / exact)
    far = (exact + (log * (buckets - exact)).long()).clamp(max=buckets - 1)
    return found + torch.where(distances < exact, distances, far)


def _check_buckets(buckets: int, furthest: int, both: bool) -> None:
    """Raise ConfigError for too few buckets, or if each distance up to `furthest` has its own."""
    exact = (buckets // 2 if both else buckets) // 2  # distances of one direction that have their own bucket
    check_value(exact >= 1, "buckets", buckets, "at least 4, or 2 where keys after the query do not count")
    check_value(furthest > exact, "furthest", furthest, f"above {exact}, up to where each distance has its bucket")


class RelativeBias(nn.Module):
    """A learned bias for each head and each bucket of distances, (heads, T, S), that is added to the scores.

    Args:
        heads: Number of heads.
        buckets: Number of buckets of `distance_buckets`: at least 4, or at least 2 if `both` is False.
        furthest: Distance from which on all share the last bucket.
        both: Whether keys after the query have buckets of their own. False for causal attention.

    Raises:
        ConfigError: If there are too few buckets, or `furthest` does not exceed the number of distances that have their
            own bucket.

    Example:
        >>> bias = RelativeBias(heads=4)
        >>> b = bias(5, 5)
        >>> b.shape, torch.equal(b[..., 0, 1], b[..., 3, 4])  # one number for each distance
        (torch.Size([1, 4, 5, 5]), True)
        >>> torch.equal(bias(1, 5), b[:, :, -1:])  # the last query
        True
    """

    def __init__(self, heads: int, buckets: int = 32, furthest: int = 128, *, both: bool = True) -> None:
        super().__init__()
        _check_buckets(buckets, furthest, both)
        self.table = nn.Embedding(buckets, heads)
        self.buckets, self.furthest, self.both = buckets, furthest, both

    def forward(self, queries: int, keys: int) -> Tensor:
        """Return the bias of the last `queries` of `keys` tokens.

        Args:
            queries: Number of queries T.
            keys: Number of keys S, at least T.

        Returns:
            The bias, shape (1, heads, T, S).
        """
        place = torch.arange(keys, device=self.table.weight.device)
        distances = place[None, :] - place[keys - queries :, None]  # (T, S), key − query
        buckets = distance_buckets(distances, self.buckets, self.furthest, both=self.both)
        bias: Tensor = self.table(buckets)  # (T, S, heads)
        return bias.permute(2, 0, 1)[None]


def alibi_slopes(heads: int) -> Tensor:
    """Return ALiBi's slope of each head, float32.

    For a power of two they are 2^{−8/heads}, 2^{−16/heads}, …, 2^{−8}. For other numbers those of the next smaller
    power of two come first, then every second one of the next larger power, as in the paper's code.

    Args:
        heads: Number of heads, at least 1.

    Returns:
        Slopes, shape (heads,).

    Example:
        >>> alibi_slopes(4)
        tensor([0.2500, 0.0625, 0.0156, 0.0039])
        >>> alibi_slopes(6)
        tensor([0.2500, 0.0625, 0.0156, 0.0039, 0.5000, 0.1250])
    """
    power = 2 ** (heads.bit_length() - 1)  # the largest power of two that is at most `heads`
    slopes = [2 ** (-8 * i / power) for i in range(1, power + 1)]
    between = [2 ** (-4 * i / power) for i in range(1, 2 * power, 2)]
    return torch.tensor(slopes + between[: heads - power])


def alibi(visible: Tensor, heads: int, dtype: torch.dtype | None = None) -> Tensor:
    """Return ALiBi's bias of causal attention: −slope · distance for each visible key, −∞ for the others.

    The distance of a key is the number of visible keys after it, so that padding and the other branches of a tree do
    not count.

    Args:
        visible: Boolean mask, True where a query may attend to a key, shape (…, 1, T, S).
        heads: Number of heads.
        dtype: Type of the result. None: float32.

    Returns:
        The bias, shape (…, heads, T, S), to be added to the scores.

    Example:
        >>> bias = alibi(torch.ones(3, 3, dtype=torch.bool).tril()[None, None], heads=4)
        >>> bias.shape
        torch.Size([1, 4, 3, 3])
        >>> bias[0, 0]  # slope 1/4
        tensor([[ 0.0000,    -inf,    -inf],
                [-0.2500,  0.0000,    -inf],
                [-0.5000, -0.2500,  0.0000]])
    """
    distances = visible.sum(-1, keepdim=True) - visible.cumsum(-1)  # (…, 1, T, S)
    slopes = alibi_slopes(heads).to(visible.device)[:, None, None]
    return (slopes * -distances).masked_fill(~visible, -math.inf).to(dtype or torch.float32)
