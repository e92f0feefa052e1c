"""Attention: each query takes a weighted mean of the values, weighted by how well its query matches each key.

A. Vaswani et al., Attention is all you need, 2017, section 3.2. <https://arxiv.org/abs/1706.03762>

    Attention(Q, K, V) = softmax(Q Kᵀ / √d_k) V                                                        (equation 1)
    MultiHead(x) = [head₁ ‖ … ‖ head_h] W_O,    head_i = Attention(x W_Q,i, x W_K,i, x W_V,i)

N is the number of examples, h of heads, T of queries and S of keys and values. Queries and keys have d_k features,
values d_v. The scores are scaled before the softmax: a sum of d_k independent terms of variance 1 has variance d_k, and
a softmax of such large scores is almost a maximum, which passes almost no gradient.

Other scores are possible. Each score below is a function of queries and keys alone:

    dot          q · k                       M.-T. Luong et al., 2015 <https://arxiv.org/abs/1508.04025>
    bilinear     qᵀ W k                      Luong et al., "general"; W = W_Qᵀ W_K where q and k are not projected yet
    cosine       q · k / (|q| |k|)           A. Graves et al., Neural Turing machines, 2014
    scaled_dot   q · k / √d_k                Vaswani et al.
    additive     vᵀ tanh(W q + U k)          D. Bahdanau et al., 2014 <https://arxiv.org/abs/1409.0473>

Two implementations give the same numbers. Models run PyTorch's fused kernel, which never stores the (T, S) weights.
`scaled_dot_product` implements equation 1 literally and returns the weights too. Within `recording(model)` the fused
path stores its queries and keys, and the weights are computed from them on demand.

A mask is boolean, True where a query may attend to a key, or a bias that is added to the scores, −∞ where it may not
(`masks.py`). A query that may attend to no key has the result 0 and no gradient.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..core.errors import check_value
from .kv_cache import LayerCache
from .masks import attention_mask as attention_mask
from .masks import causal_mask as causal_mask
from .masks import masked_softmax as masked_softmax
from .masks import merge_masks as merge_masks
from .position import BASE, Rotation, rotary, rotation

Score = Callable[[Tensor, Tensor], Tensor]  # maps queries (…, T, d) and keys (…, S, d') to scores (…, T, S)


def dot(q: Tensor, k: Tensor) -> Tensor:
    """Return the dot-product scores q · k.

    Args:
        q: Queries, shape (…, T, d).
        k: Keys, shape (…, S, d).

    Returns:
        Scores, shape (…, T, S).

    Example:
        >>> q = torch.tensor([[1.0, 0.0], [1.0, 1.0]])
        >>> k = torch.tensor([[2.0, 0.0], [0.0, 3.0], [1.0, -1.0]])
        >>> dot(q, k)  # a row for each query, a column for each key
        tensor([[2., 0., 1.],
                [2., 3., 0.]])
    """
    return q @ k.transpose(-2, -1)


def cosine(q: Tensor, k: Tensor) -> Tensor:
    """Return the cosine similarities of queries and keys, q · k / (|q| |k|).

    Args:
        q: Queries, shape (…, T, d).
        k: Keys, shape (…, S, d).

    Returns:
        Scores from −1 to 1, shape (…, T, S); 0 where the query or the key is a vector of zeros.

    Example:
        >>> q = torch.tensor([[2.0, 0.0]])
        >>> k = torch.tensor([[5.0, 0.0], [0.0, 3.0], [-1.0, 0.0], [0.0, 0.0]])
        >>> cosine(q, k)  # lengths do not count
        tensor([[ 1.,  0., -1.,  0.]])
    """
    return dot(F.normalize(q, dim=-1), F.normalize(k, dim=-1))


def scaled_dot(q: Tensor, k: Tensor) -> Tensor:
    """Return the scaled dot-product scores q · k / √d_k.

    Args:
        q: Queries, shape (…, T, d_k).
        k: Keys, shape (…, S, d_k).

    Returns:
        Scores, shape (…, T, S).

    Example:
        >>> q, k = torch.randn(1000, 64), torch.randn(1000, 64)
        >>> dot(q, k).std().round(), scaled_dot(q, k).std().round()  # √64 and 1
        (tensor(8.), tensor(1.))
    """
    return dot(q / math.sqrt(q.shape[-1]), k)


def additive(w: Tensor, u: Tensor, v: Tensor) -> Score:
    """Return the additive score function, vᵀ tanh(W q + U k).

    Queries and keys may differ in size. The scores are computed from a tensor of shape (…, T, S, a).

    Args:
        w: W, shape (a, d).
        u: U, shape (a, d').
        v: v, shape (a,).

    Returns:
        A function that maps queries (…, T, d) and keys (…, S, d') to scores (…, T, S).

    Example:
        >>> score = additive(torch.randn(16, 8), torch.randn(16, 5), torch.randn(16))
        >>> score(torch.randn(3, 8), torch.randn(4, 5)).shape
        torch.Size([3, 4])
    """

    def score(q: Tensor, k: Tensor) -> Tensor:
        compared = (q @ w.mT)[..., :, None, :] + (k @ u.mT)[..., None, :, :]  # (…, T, S, a)
        return torch.tanh(compared) @ v

    return score


def bilinear(w: Tensor) -> Score:
    """Return the bilinear score function, qᵀ W k. Queries and keys may differ in size.

    Args:
        w: W, shape (…, d, d').

    Returns:
        A function that maps queries (…, T, d) and keys (…, S, d') to scores (…, T, S).

    Example:
        >>> q, k = torch.randn(3, 8), torch.randn(4, 5)
        >>> bilinear(torch.randn(8, 5))(q, k).shape
        torch.Size([3, 4])
        >>> torch.allclose(bilinear(torch.eye(8))(q, q), dot(q, q))
        True
    """

    def score(q: Tensor, k: Tensor) -> Tensor:
        return dot(q @ w, k)

    return score


def query_key(w_q: Tensor, w_k: Tensor) -> Tensor:
    """Return W_QK = W_Qᵀ W_K.

    Both matrices act only through this product, (W_Q x) · (W_K y) = xᵀ W_QK y. Its rank is at most d_k.

    Args:
        w_q: W_Q as `nn.Linear` stores it, shape (…, d_k, d).
        w_k: W_K as `nn.Linear` stores it, shape (…, d_k, d').

    Returns:
        W_QK, shape (…, d, d').

    Example:
        >>> w_q, w_k, x, y = torch.randn(2, 8), torch.randn(2, 8), torch.randn(3, 8), torch.randn(4, 8)
        >>> w = query_key(w_q, w_k)
        >>> torch.allclose(bilinear(w)(x, y), dot(x @ w_q.T, y @ w_k.T), atol=1e-4)
        True
        >>> w.shape, torch.linalg.matrix_rank(w)
        (torch.Size([8, 8]), tensor(2))
    """
    return w_q.mT @ w_k


def attend(score: Score, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Compute attention with any score function.

    Args:
        score: Maps queries and keys to scores, shape (…, T, S), as `dot` and `additive(w, u, v)` do. They are not
            scaled.
        q: Queries, shape (…, T, d).
        k: Keys, shape (…, S, d').
        v: Values, shape (…, S, d_v).
        mask: Boolean or additive mask that broadcasts to (…, T, S). None: each query may attend to all keys.

    Returns:
        The result, shape (…, T, d_v), and the weights, shape (…, T, S). Each row of the weights is the softmax of the
        scores of the visible keys, or 0 where there is none.

    Example:
        >>> q, k, v = torch.zeros(1, 4), torch.randn(3, 4), torch.tensor([[1.0], [2.0], [6.0]])
        >>> result, weights = attend(dot, q, k, v, mask=torch.tensor([True, True, False]))
        >>> weights  # all scores are 0, and the last key is hidden
        tensor([[0.5000, 0.5000, 0.0000]])
        >>> result
        tensor([[1.5000]])
    """
    weights = masked_softmax(score(q, k), mask)
    return weights @ v, weights


def scaled_dot_product(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, *, scale: float | None = None
) -> tuple[Tensor, Tensor]:
    """Compute softmax(q kᵀ / √d_k) v literally, as in equation 1.

    Args:
        q: Queries, shape (…, T, d_k).
        k: Keys, shape (…, S, d_k).
        v: Values, shape (…, S, d_v).
        mask: Boolean or additive mask that broadcasts to (…, T, S). None: each query may attend to all keys.
        scale: Factor of the scores. None: 1 / √d_k.

    Returns:
        The result, shape (…, T, d_v), and the weights, shape (…, T, S). Each row of the weights sums to 1, or is 0
        where the query may attend to no key.

    Example:
        >>> q, k, v = torch.randn(3, 1, 2, 5, 8)  # each (N, heads, T, d)
        >>> result, weights = scaled_dot_product(q, k, v)
        >>> torch.allclose(result, torch.nn.functional.scaled_dot_product_attention(q, k, v), atol=1e-5)
        True
        >>> weights.shape, torch.allclose(weights.sum(-1), torch.ones(1, 2, 5))
        (torch.Size([1, 2, 5, 5]), True)
    """
    weights = attention_weights(q, k, mask, scale=scale)
    return weights @ v, weights  # (…, T, d_v), (…, T, S)


def attention_weights(q: Tensor, k: Tensor, mask: Tensor | None = None, *, scale: float | None = None) -> Tensor:
    """Return the attention weights softmax(q kᵀ / √d_k).

    Args:
        q: Queries, shape (…, T, d_k).
        k: Keys, shape (…, S, d_k).
        mask: Boolean or additive mask that broadcasts to (…, T, S). None: each query may attend to all keys.
        scale: Factor of the scores. None: 1 / √d_k.

    Returns:
        Weights, shape (…, T, S). Each row sums to 1, or is 0 where the query may attend to no key.

    Example:
        >>> q = k = torch.zeros(3, 8)  # all scores are equal
        >>> attention_weights(q, k, causal_mask(3, 3))
        tensor([[1.0000, 0.0000, 0.0000],
                [0.5000, 0.5000, 0.0000],
                [0.3333, 0.3333, 0.3333]])
    """
    return masked_softmax(scaled_dot(q, k) if scale is None else dot(q * scale, k), mask)


@dataclass(frozen=True)
class AttentionRecord:
    """The queries, keys and mask of one attention call, from which its weights can be computed.

    `recording` returns such records.

    Attributes:
        q: Queries, as they enter the scores (after rotation), shape (N, heads, T, d_k).
        k: Keys, also those of a cache, shape (N, kv_heads, S, d_k).
        mask: Boolean or additive mask that broadcasts to (N, heads, T, S). None hides nothing.
        causal: Whether tokens after the query are hidden, in addition to the mask.
        scale: Factor of the scores.

    Example:
        >>> layer = MultiHeadAttention(8, heads=2)
        >>> with recording(layer) as records:
        ...     y = layer(torch.randn(1, 3, 8), causal=True)
        >>> record = records[""][0]
        >>> record.q.shape, record.causal, record.weights.shape
        (torch.Size([1, 2, 3, 4]), True, torch.Size([1, 2, 3, 3]))
        >>> record.weights[0, 0, 0]  # the first token attends to itself only
        tensor([1., 0., 0.])
    """

    q: Tensor
    k: Tensor
    mask: Tensor | None
    causal: bool
    scale: float

    @property
    def weights(self) -> Tensor:
        """The attention weights before dropout, (N, heads, T, S): row t has the weight of each key for query t."""
        own = causal_mask(self.q.shape[2], self.k.shape[2], self.q.device) if self.causal else None
        k = _for_each_head(self.k, self.q.shape[1])
        return attention_weights(self.q, k, merge_masks(self.mask, own), scale=self.scale)


@dataclass(frozen=True)
class StepRecord:
    """The weights of one step of an attention that processes the queries of a sequence one by one.

    A layer whose score is not a scaled dot product stores the weights themselves, as `seq2seq-gru` does.

    Attributes:
        weights: Attention weights, shape (N, heads, 1, S).

    Example:
        >>> weights = attend(cosine, torch.zeros(1, 1, 1, 4), torch.randn(1, 1, 2, 4), torch.randn(1, 1, 2, 4))[1]
        >>> StepRecord(weights).weights
        tensor([[[[0.5000, 0.5000]]]])
    """

    weights: Tensor


AnyRecord = AttentionRecord | StepRecord


class Attention(nn.Module):
    """Base class of attention layers.

    A subclass appends a record of each call to `seen` where that is a list. The tools of `cutaway.inspect` can then
    record it and intervene on it, without knowing the subclass by name.

    Attributes:
        heads: Number of heads, whose results are concatenated as the input of `out`, (N, T, heads · d_v). 0 for a layer
            without heads, which `recording` skips.
        out: Linear layer after the heads. A subclass with heads creates it.
        cross_attends: Whether the layer attends to a source instead of its own input.
        seen: List of the records of the calls; None while nothing is recorded.

    Example:
        >>> class MeanAttention(Attention):  # the same weight for all tokens
        ...     heads = 1
        ...
        ...     def __init__(self, dim):
        ...         super().__init__()
        ...         self.out = torch.nn.Linear(dim, dim)
        ...
        ...     def forward(self, x):  # (N, T, dim)
        ...         q = k = torch.zeros_like(x)[:, None]
        ...         if self.seen is not None:
        ...             self.seen.append(AttentionRecord(q, k, mask=None, causal=False, scale=1.0))
        ...         return self.out(x.mean(1, keepdim=True).expand_as(x))
        >>> layer = MeanAttention(8)
        >>> with recording(layer) as records:
        ...     y = layer(torch.randn(1, 4, 8))
        >>> records[""][0].weights[0, 0, 0]
        tensor([0.2500, 0.2500, 0.2500, 0.2500])
    """

    heads: int = 0  # whose results are concatenated as input of `out`, (N, T, heads · d_v); 0 without heads
    out: nn.Linear
    cross_attends: bool = False  # whether the layer attends to a source instead of its own input

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[AnyRecord] | None = None  # a list while recording


@contextmanager
def recording(model: nn.Module) -> Iterator[dict[str, list[AnyRecord]]]:
    """Record the calls of all attention layers of a model that have heads, within the context.

    The outputs are the same as without recording. A nested context takes over the recording until it ends.

    Args:
        model: The model whose attention layers are recorded.

    Yields:
        The records of each layer by the name of its module, one entry per call.

    Example:
        >>> model = torch.nn.Sequential(MultiHeadAttention(8, heads=2), MultiHeadAttention(8, heads=4))
        >>> with recording(model) as records:
        ...     y = model(torch.randn(1, 5, 8))
        >>> {name: calls[0].weights.shape for name, calls in records.items()}
        {'0': torch.Size([1, 2, 5, 5]), '1': torch.Size([1, 4, 5, 5])}
    """
    found: dict[str, list[AnyRecord]] = {}
    layers = {name: module for name, module in model.named_modules() if isinstance(module, Attention) and module.heads}
    before = {name: layer.seen for name, layer in layers.items()}
    try:
        for name, layer in layers.items():
            layer.seen = found.setdefault(name, [])
        yield found
    finally:
        for name, layer in layers.items():
            layer.seen = before[name]


class LinearNoKeyBias(nn.Linear):
    """A linear layer in which the `keys` outputs after the first `before` outputs have no bias.

    A bias of the keys adds the same number to all scores of a query, and the softmax is invariant to that.

    Args:
        inputs: Number of input features.
        before: Number of outputs before the keys.
        keys: Number of outputs that are keys.
        after: Number of outputs after the keys.
    """

    def __init__(self, inputs: int, before: int, keys: int, after: int) -> None:
        super().__init__(inputs, before + keys + after)
        self.before, self.keys = before, keys
        self.bias = nn.Parameter(torch.zeros(before + after))

    def forward(self, x: Tensor) -> Tensor:
        """Apply the linear layer.

        Args:
            x: Inputs, shape (…, inputs).

        Returns:
            Outputs, shape (…, before + keys + after).
        """
        before, after = self.bias[: self.before], self.bias[self.before :]
        return F.linear(x, self.weight, torch.cat([before, before.new_zeros(self.keys), after]))


class MultiHeadAttention(Attention):
    """Multi-head attention: (N, T, dim) to (N, T, dim), over the input itself or over a `source` (N, S, source).

    W_Q, W_K and W_V of all heads are one matrix `qkv`, so that one product computes all of them. Its rows are the
    queries of all heads, then all keys, then all values, head by head in each. With a source there are two matrices,
    `q` and `kv`. `out` is W_O. Weights are initialized with Xavier's uniform distribution, each of the four matrices on
    its own, and biases with 0.

    With fewer `kv_heads` than heads, several heads share keys and values: grouped-query attention (J. Ainslie et al.,
    2023, <https://arxiv.org/abs/2305.13245>), and with a single one multi-query attention (N. Shazeer, 2019,
    <https://arxiv.org/abs/1911.02150>).

    Args:
        dim: Features of inputs and outputs.
        heads: Number of heads.
        source: Features of the source, for cross-attention. None: self-attention.
        kv_heads: Number of heads of keys and values, a divisor of `heads`. None: `heads`.
        key_dim: Features d_k of the queries and keys of a head. None: dim / heads.
        value_dim: Features d_v of the values of a head. None: `key_dim`.
        bias: Whether the linear layers have biases.
        key_bias: Whether the keys have biases too. Without `bias` they have none.
        scale: Factor of the scores. None: 1 / √d_k.
        dropout: Probability with which an attention weight is set to 0, in training only.
        rotates: Whether queries and keys are rotated by their positions (rotary embedding). Self-attention only.
        base: Base of the rotary angles.

    Raises:
        ConfigError: If `heads` is less than 1, or no divisor of `dim` where `key_dim` is None; if `kv_heads` is no
            divisor of `heads`; if `key_dim` or `value_dim` is less than 1; or if `rotates` is set with a source or an
            odd `key_dim`.

    Example:
        >>> layer, x = MultiHeadAttention(16, heads=4, kv_heads=2), torch.randn(2, 5, 16)
        >>> y, weights = layer.textbook(x, causal=True)
        >>> y.shape, weights.shape
        (torch.Size([2, 5, 16]), torch.Size([2, 4, 5, 5]))
        >>> torch.allclose(layer(x, causal=True), y, atol=1e-5)
        True
        >>> MultiHeadAttention(16, heads=4, source=8)(x, torch.randn(2, 7, 8)).shape
        torch.Size([2, 5, 16])
    """

    # Whether `forward` computes exactly this, so that decoding may do it without calling the module. A subclass with
    # another `forward` does not inherit it.
    standard: ClassVar[bool] = True

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        source: int | None = None,
        kv_heads: int | None = None,
        key_dim: int | None = None,
        value_dim: int | None = None,
        bias: bool = True,
        key_bias: bool = True,
        scale: float | None = None,
        dropout: float = 0.0,
        rotates: bool = False,
        base: float = BASE,
    ) -> None:
        super().__init__()
        if key_dim is None:
            check_value(heads >= 1 and dim % heads == 0, "heads", heads, f"at least 1 and a divisor of dim={dim}")
        check_value(heads >= 1, "heads", heads, "at least 1")
        self.heads, self.kv_heads = heads, heads if kv_heads is None else kv_heads
        divides = self.kv_heads >= 1 and heads % self.kv_heads == 0
        check_value(divides, "kv_heads", self.kv_heads, f"at least 1 and a divisor of heads={heads}")
        self.key_dim = dim // heads if key_dim is None else key_dim
        self.value_dim = self.key_dim if value_dim is None else value_dim
        check_value(self.key_dim >= 1, "key_dim", self.key_dim, "at least 1")
        check_value(self.value_dim >= 1, "value_dim", self.value_dim, "at least 1")
        self.cross_attends = source is not None
        check_value(
            not (rotates and self.cross_attends), "rotates", rotates, "false over a source, which has its own positions"
        )
        check_value(not rotates or self.key_dim % 2 == 0, "key_dim", self.key_dim, "even, to be turned pair by pair")
        self.scale = 1 / math.sqrt(self.key_dim) if scale is None else scale
        self.dropout, self.rotates, self.base = dropout, rotates, base
        sizes = [heads * self.key_dim, self.kv_heads * self.key_dim, self.kv_heads * self.value_dim]
        unbiased = bias and not key_bias
        if source is None:
            self.qkv = LinearNoKeyBias(dim, *sizes) if unbiased else nn.Linear(dim, sum(sizes), bias=bias)
            parts = list(torch.split(self.qkv.weight.detach(), sizes))
        else:
            self.q = nn.Linear(dim, sizes[0], bias=bias)
            self.kv = (
                LinearNoKeyBias(source, 0, *sizes[1:]) if unbiased else nn.Linear(source, sum(sizes[1:]), bias=bias)
            )
            parts = [self.q.weight, *torch.split(self.kv.weight.detach(), sizes[1:])]
        self.out = nn.Linear(heads * self.value_dim, dim, bias=bias)
        # Initialize each matrix on its own: as part of a taller matrix it would get smaller weights.
        for weight in (*parts, self.out.weight):
            nn.init.xavier_uniform_(weight)
        for layer in self.children():
            if bias:
                nn.init.zeros_(layer.bias)  # type: ignore[arg-type]  # they are linear layers

    def forward(
        self,
        x: Tensor,
        source: Tensor | None = None,
        *,
        mask: Tensor | None = None,
        causal: bool = False,
        cache: LayerCache | None = None,
        positions: Tensor | Rotation | None = None,
    ) -> Tensor:
        """Compute attention with PyTorch's fused kernel.

        Args:
            x: Inputs, shape (N, T, dim).
            source: Source of cross-attention, shape (N, S, source). Self-attention ignores it. Cross-attention requires
                it unless `cache` has its keys and values.
            mask: Boolean or additive mask that broadcasts to (N, heads, T, S). None: each token may attend to all.
            causal: Whether tokens after the query are hidden, in addition to the mask. With more keys than queries, the
                queries are the last tokens.
            cache: Keys and values of earlier tokens, a `LayerCache` of `cutaway.nn.kv_cache`, placed before the new
                ones, which are appended to it. Those of a source are computed once. None: no earlier tokens.
            positions: Positions, shape (T,) or (N, T), or their `rotation`. Required if the layer rotates, else
                ignored.

        Returns:
            Outputs, shape (N, T, dim).

        Raises:
            InputShapeError: If the mask has an integer type.
        """
        q, k, v = self.project_qkv(x, source, cache, positions)
        mask, causal = _resolve_causal(mask, causal, q, k)
        if self.seen is not None:
            self.seen.append(AttentionRecord(q.detach(), k.detach(), mask, causal, self.scale))
        y = F.scaled_dot_product_attention(
            q,
            k,
            v,
            mask,
            dropout_p=self.dropout if self.training else 0.0,
            is_causal=causal,
            scale=self.scale,
            enable_gqa=self.kv_heads != self.heads,
        )
        return self.merge_heads(y)

    def textbook(
        self,
        x: Tensor,
        source: Tensor | None = None,
        *,
        mask: Tensor | None = None,
        causal: bool = False,
        cache: LayerCache | None = None,
        positions: Tensor | Rotation | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Compute `forward` without dropout by the literal equation 1, and return the weights too.

        Calls are not recorded.

        Args:
            x: Inputs, shape (N, T, dim).
            source: Source of cross-attention, shape (N, S, source). Self-attention ignores it.
            mask: Boolean or additive mask that broadcasts to (N, heads, T, S). None: each token may attend to all.
            causal: Whether tokens after the query are hidden, in addition to the mask.
            cache: Keys and values of earlier tokens, to which the new ones are appended. None: no earlier tokens.
            positions: Positions, shape (T,) or (N, T), or their `rotation`. Required if the layer rotates, else
                ignored.

        Returns:
            Outputs, shape (N, T, dim), and weights, shape (N, heads, T, S). Row t of the weights has the weight of each
            token for token t. It sums to 1, or is 0 where token t may attend to none.

        Raises:
            InputShapeError: If the mask has an integer type.
        """
        q, k, v = self.project_qkv(x, source, cache, positions)
        mask = merge_masks(mask, causal_mask(q.shape[2], k.shape[2], q.device) if causal else None)
        k, v = _for_each_head(k, self.heads), _for_each_head(v, self.heads)
        result, weights = scaled_dot_product(q, k, v, mask, scale=self.scale)
        return self.merge_heads(result), weights

    def project_qkv(
        self,
        x: Tensor,
        source: Tensor | None = None,
        cache: LayerCache | None = None,
        positions: Tensor | Rotation | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Project the inputs to queries, keys and values, and rotate queries and keys if the layer rotates.

        Args:
            x: Inputs, shape (N, T, dim).
            source: Source of cross-attention, shape (N, S, source). Self-attention ignores it.
            cache: Keys and values of earlier tokens. The new ones are appended to it, and all are returned.
            positions: Positions, shape (T,) or (N, T), or their `rotation`. Required if the layer rotates.

        Returns:
            Queries (N, heads, T, d_k), keys (N, kv_heads, S, d_k) and values (N, kv_heads, S, d_v).
        """
        kv_sizes = [self.kv_heads * self.key_dim, self.kv_heads * self.value_dim]
        if self.cross_attends:
            q = self._split_heads(self.q(x), self.heads)
            if cache is not None and cache.keys is not None:
                return q, *cache.known()
            assert source is not None, "what is attended to"
            k, v = (self._split_heads(part, self.kv_heads) for part in self.kv(source).split(kv_sizes, dim=-1))
            if cache is not None:
                cache.hold(k, v)
            return q, k, v
        q, k, v = self.qkv(x).split([self.heads * self.key_dim, *kv_sizes], dim=-1)
        q, k, v = (
            self._split_heads(q, self.heads),
            self._split_heads(k, self.kv_heads),
            self._split_heads(v, self.kv_heads),
        )
        if self.rotates:
            assert positions is not None, "rotary attention needs positions"
            q, k = self._rotate(q, k, positions)
        if cache is not None:
            k, v = cache.append(k, v)
        return q, k, v

    def _rotate(self, q: Tensor, k: Tensor, positions: Tensor | Rotation) -> tuple[Tensor, Tensor]:
        turn = rotation(positions, self.key_dim, q.dtype, self.base) if isinstance(positions, Tensor) else positions
        return rotary(q, turn), rotary(k, turn)

    def _split_heads(self, x: Tensor, heads: int) -> Tensor:
        return x.view(*x.shape[:2], heads, -1).transpose(1, 2)  # (N, heads, T, d)

    def merge_heads(self, heads: Tensor) -> Tensor:
        """Concatenate the heads and multiply by W_O.

        Args:
            heads: Results of the heads, shape (N, heads, T, d_v).

        Returns:
            Outputs, shape (N, T, dim).
        """
        joined: Tensor = self.out(heads.transpose(1, 2).flatten(2))  # (N, T, heads·d_v)
        return joined


class BilinearAttention(MultiHeadAttention):
    """Self-attention with a whole matrix W_QK for each head: (N, T, dim) to (N, T, dim).

        score_ts = x_t W_QK x_sᵀ / √d_k,    d_k = dim / heads

    `MultiHeadAttention` learns the factors of W_QK = W_Q W_Kᵀ, whose rank is at most d_k. Here W_QK has any rank, and
    dim² parameters for each head instead of 2 · dim · d_k. The first rows of `qkv` are W_QKᵀ of all heads, the others
    those of the values. The keys of all heads are the tokens themselves, which a cache stores once. There are no
    biases.

    Args:
        dim: Features of inputs and outputs.
        heads: Number of heads, a divisor of `dim`.
        dropout: Probability with which an attention weight is set to 0, in training only.
        rotates: Whether queries and keys are rotated by their positions (rotary embedding).
        base: Base of the rotary angles.

    Raises:
        ConfigError: If `heads` is less than 1 or no divisor of `dim`, or if `rotates` is set and `dim` is odd.

    Example:
        >>> layer = BilinearAttention(16, heads=4)
        >>> layer(torch.randn(2, 5, 16), causal=True).shape
        torch.Size([2, 5, 16])
        >>> layer.qkv.weight.shape  # (heads · dim + dim, dim)
        torch.Size([80, 16])
    """

    def __init__(
        self, dim: int, heads: int, *, dropout: float = 0.0, rotates: bool = False, base: float = BASE
    ) -> None:
        check_value(heads >= 1 and dim % heads == 0, "heads", heads, f"at least 1 and a divisor of dim={dim}")
        size = dim // heads
        super().__init__(
            dim,
            heads,
            key_dim=dim,
            value_dim=size,
            bias=False,
            scale=1 / math.sqrt(size),
            dropout=dropout,
            rotates=rotates,
            base=base,
        )
        self.qkv = nn.Linear(dim, heads * dim + dim, bias=False)
        for weight in torch.split(self.qkv.weight.detach(), [*[dim] * heads, dim]):
            nn.init.xavier_uniform_(weight)

    def project_qkv(
        self,
        x: Tensor,
        source: Tensor | None = None,
        cache: LayerCache | None = None,
        positions: Tensor | Rotation | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the products x W_QK, the tokens x and the values.

        Args:
            x: Inputs, shape (N, T, dim).
            source: Ignored, as this is self-attention.
            cache: Keys and values of earlier tokens. The new ones are appended to it, and all are returned.
            positions: Positions, shape (T,) or (N, T), or their `rotation`. Required if the layer rotates.

        Returns:
            Queries x W_QK (N, heads, T, dim), keys x (N, heads, S, dim) and values (N, heads, S, d_v).
        """
        q, v = self.qkv(x).split([self.heads * self.key_dim, self.heads * self.value_dim], dim=-1)
        q, k, v = self._split_heads(q, self.heads), x[:, None], self._split_heads(v, self.heads)
        if self.rotates:
            assert positions is not None, "rotary attention needs positions"
            q, k = self._rotate(q, k, positions)
        if cache is not None:
            k, v = cache.append(k, v)
        return q, k.expand(-1, self.heads, -1, -1), v


def _resolve_causal(mask: Tensor | None, causal: bool, q: Tensor, k: Tensor) -> tuple[Tensor | None, bool]:
    """Return mask and `causal` in a form that the fused kernel accepts.

    The kernel supports `causal` only without a mask. With more keys than queries it aligns the queries with the first
    keys, where they belong to the last.
    """
    queries, keys = q.shape[2], k.shape[2]
    mask = merge_masks(mask)
    if not causal or queries == 1:  # no token follows the last one
        return mask, False
    if mask is None and queries == keys:
        return None, True
    return merge_masks(mask, causal_mask(queries, keys, q.device)), False


def _for_each_head(x: Tensor, heads: int) -> Tensor:
    """Repeat keys or values for the heads that share them: (N, kv_heads, S, d) to (N, heads, S, d)."""
    return x if x.shape[1] == heads else x.repeat_interleave(heads // x.shape[1], dim=1)
