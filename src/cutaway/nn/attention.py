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
    """
    return q @ k.transpose(-2, -1)


def cosine(q: Tensor, k: Tensor) -> Tensor:
    """Return the cosine similarities of queries and keys; 0 for a vector of length 0.

    Args:
        q: Queries, shape (…, T, d).
        k: Keys, shape (…, S, d).

    Returns:
        Scores, shape (…, T, S).
    """
    return dot(F.normalize(q, dim=-1), F.normalize(k, dim=-1))


def scaled_dot(q: Tensor, k: Tensor) -> Tensor:
    """Return the scaled dot-product scores q · k / √d_k.

    Args:
        q: Queries, shape (…, T, d_k).
        k: Keys, shape (…, S, d_k).

    Returns:
        Scores, shape (…, T, S).
    """
    return dot(q / math.sqrt(q.shape[-1]), k)


def additive(w: Tensor, u: Tensor, v: Tensor) -> Score:
    """Return the additive score vᵀ tanh(W q + U k). Queries and keys may differ in size.

    Args:
        w: W, shape (a, d).
        u: U, shape (a, d').
        v: v, shape (a,).

    Returns:
        The score function.
    """

    def score(q: Tensor, k: Tensor) -> Tensor:
        compared = (q @ w.mT)[..., :, None, :] + (k @ u.mT)[..., None, :, :]  # (…, T, S, a)
        return torch.tanh(compared) @ v

    return score


def bilinear(w: Tensor) -> Score:
    """Return the bilinear score qᵀ W k. Queries and keys may differ in size.

    Args:
        w: W, shape (…, d, d').

    Returns:
        The score function.
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
    """
    return w_q.mT @ w_k


def attend(score: Score, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Compute attention with any score function.

    Args:
        score: The score function.
        q: Queries, shape (…, T, d).
        k: Keys, shape (…, S, d').
        v: Values, shape (…, S, d_v).
        mask: Boolean or additive mask that broadcasts to (…, T, S).

    Returns:
        The result, shape (…, T, d_v), and the weights, shape (…, T, S): the softmax of the scores of the visible keys.
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
        mask: Boolean or additive mask that broadcasts to (…, T, S).
        scale: Factor used in place of 1 / √d_k.

    Returns:
        The result, shape (…, T, d_v), and the weights, shape (…, T, S).
    """
    weights = attention_weights(q, k, mask, scale=scale)
    return weights @ v, weights  # (…, T, d_v), (…, T, S)


def attention_weights(q: Tensor, k: Tensor, mask: Tensor | None = None, *, scale: float | None = None) -> Tensor:
    """Return softmax(q kᵀ / √d_k).

    Args:
        q: Queries, shape (…, T, d_k).
        k: Keys, shape (…, S, d_k).
        mask: Boolean or additive mask that broadcasts to (…, T, S).
        scale: Factor used in place of 1 / √d_k.

    Returns:
        Weights, shape (…, T, S). Each row sums to 1, or is 0 where the query may attend to no key.
    """
    return masked_softmax(scaled_dot(q, k) if scale is None else dot(q * scale, k), mask)


@dataclass(frozen=True)
class AttentionRecord:
    """The queries, keys and mask of one attention call, from which its weights can be computed."""

    q: Tensor  # (N, heads, T, d_k)
    k: Tensor  # (N, kv_heads, S, d_k)
    mask: Tensor | None
    causal: bool
    scale: float

    @property
    def weights(self) -> Tensor:
        """The attention weights before dropout, (N, heads, T, S): row t has the weight of each token for token t."""
        own = causal_mask(self.q.shape[2], self.k.shape[2], self.q.device) if self.causal else None
        k = _for_each_head(self.k, self.q.shape[1])
        return attention_weights(self.q, k, merge_masks(self.mask, own), scale=self.scale)


@dataclass(frozen=True)
class StepRecord:
    """The weights of an attention that processes the queries of a sequence one by one."""

    weights: Tensor  # (N, heads, 1, S)


AnyRecord = AttentionRecord | StepRecord


class Attention(nn.Module):
    """Base class of attention layers.

    A subclass appends a record of each call to `seen` where that is a list. The tools of `cutaway.inspect` can then
    record it and intervene on it, without knowing the subclass by name.
    """

    heads: int = 0  # whose results are concatenated as input of `out`, (N, T, heads · d_v); 0 without heads
    out: nn.Linear
    cross_attends: bool = False  # whether the layer attends to a source instead of its own input

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[AnyRecord] | None = None  # a list while recording


@contextmanager
def recording(model: nn.Module) -> Iterator[dict[str, list[AnyRecord]]]:
    """Record the calls of every attention with heads within the context.

    The outputs are those of the fused path, as without recording. A nested context takes over until it ends.

    Args:
        model: The model whose attention layers are recorded.

    Yields:
        The records of each layer by the name of its module, one entry per call.
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
    """

    def __init__(self, inputs: int, before: int, keys: int, after: int) -> None:
        super().__init__(inputs, before + keys + after)
        self.before, self.keys = before, keys
        self.bias = nn.Parameter(torch.zeros(before + after))

    def forward(self, x: Tensor) -> Tensor:
        """Map (…, inputs) to (…, outputs)."""
        before, after = self.bias[: self.before], self.bias[self.before :]
        return F.linear(x, self.weight, torch.cat([before, before.new_zeros(self.keys), after]))


class MultiHeadAttention(Attention):
    """Multi-head attention: (N, T, dim) to (N, T, dim), over the input itself or over a `source` (N, S, source).

    W_Q, W_K and W_V of all heads are one matrix `qkv`, so that one product computes all of them. Its rows are the
    queries of all heads, then all keys, then all values, head by head in each. With a source there are two matrices,
    `q` and `kv`. `out` is W_O. A head's queries and keys have `key_dim` features (default: dim / heads), its values
    `value_dim` (default: `key_dim`). With fewer `kv_heads` than heads, several heads share keys and values:
    grouped-query attention (J. Ainslie et al., 2023, https://arxiv.org/abs/2305.13245), and with a single one
    multi-query attention (N. Shazeer, 2019, https://arxiv.org/abs/1911.02150).
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
        """Create the layer with Xavier-uniform weights and zero biases.

        Args:
            dim: Features of inputs and outputs.
            heads: Number of heads.
            source: Features of the source, for cross-attention.
            kv_heads: Number of heads of keys and values, a divisor of `heads`.
            key_dim: Features of queries and keys of a head.
            value_dim: Features of the values of a head.
            bias: Whether the linear layers have biases.
            key_bias: Whether keys have biases too.
            scale: Factor used in place of 1 / √d_k.
            dropout: Dropout probability of the weights.
            rotates: Whether queries and keys are rotated by their positions (rotary embedding). Self-attention only.
            base: Base of the rotary angles.
        """
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
            source: Source of cross-attention, shape (N, S, source).
            mask: Boolean or additive mask, shape (N or 1, heads or 1, T or 1, S).
            causal: Whether tokens after the query are hidden, in addition to the mask.
            cache: Keys and values of earlier tokens, placed before the new ones. Those of a source are computed once.
            positions: Positions (T,) or (N, T), or their `rotation`, for rotary embeddings.

        Returns:
            Outputs, shape (N, T, dim).
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

        Args:
            x: Inputs, shape (N, T, dim).
            source: Source of cross-attention, shape (N, S, source).
            mask: Boolean or additive mask, shape (N or 1, heads or 1, T or 1, S).
            causal: Whether tokens after the query are hidden, in addition to the mask.
            cache: Keys and values of earlier tokens.
            positions: Positions (T,) or (N, T), or their `rotation`, for rotary embeddings.

        Returns:
            Outputs (N, T, dim) and weights (N, heads, T, S): row t has the weight of each token for token t, and sums
            to 1.
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
        """Project the inputs to queries, keys and values.

        Their shapes are (N, heads, T, d_k), (N, kv_heads, S, d_k) and (N, kv_heads, S, d_v).
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
        """Concatenate the heads and multiply by W_O: (N, heads, T, d_v) to (N, T, dim)."""
        joined: Tensor = self.out(heads.transpose(1, 2).flatten(2))  # (N, T, heads·d_v)
        return joined


class BilinearAttention(MultiHeadAttention):
    """Self-attention with a whole matrix W_QK for each head: (N, T, dim) to (N, T, dim).

        score_ts = x_t W_QK x_sᵀ / √d_k,    d_k = dim / heads

    `MultiHeadAttention` learns the factors of W_QK = W_Q W_Kᵀ, whose rank is at most d_k. Here W_QK has any rank, and
    dim² parameters for each head instead of 2 · dim · d_k. The first rows of `qkv` are W_QKᵀ of all heads, the others
    those of the values. The keys of all heads are the tokens themselves, which a cache stores once.
    """

    def __init__(
        self, dim: int, heads: int, *, dropout: float = 0.0, rotates: bool = False, base: float = BASE
    ) -> None:
        """Create the layer, without biases.

        Args:
            dim: Features of inputs and outputs.
            heads: Number of heads, a divisor of `dim`.
            dropout: Dropout probability of the weights.
            rotates: Whether queries and keys are rotated by their positions (rotary embedding).
            base: Base of the rotary angles.
        """
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
        """Return x W_QK, the tokens x and the values: (N, heads, T, dim), (N, heads, S, dim), (N, heads, S, d_v)."""
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
