"""Attention: every token asks all the others, and takes from each as much as it matches.

A. Vaswani et al., Attention is all you need, 2017, section 3.2. <https://arxiv.org/abs/1706.03762>

    Attention(Q, K, V) = softmax(Q Kᵀ / √d_k) V                                                        (equation 1)
    MultiHead(x) = [head₁ ‖ … ‖ head_h] W_O,    head_i = Attention(x W_Q,i, x W_K,i, x W_V,i)

N examples, h heads, T queries, S keys, each of d_k numbers, and as many values as keys, of d_v numbers each. The
scores are divided before the softmax: a product of d_k independent terms of variance 1 has variance d_k, and a softmax
of scores that large is all but a maximum, through which hardly a gradient passes.

How well a query suits a key can be measured otherwise. Each score here is a function of queries and keys alone:

    dot          q · k                       M.-T. Luong et al., 2015 <https://arxiv.org/abs/1508.04025>
    bilinear     qᵀ W k                      likewise, "general"; W = W_Qᵀ W_K where q and k are not projected yet
    cosine       q · k / (|q| |k|)           A. Graves et al., Neural Turing machines, 2014
    scaled_dot   q · k / √d_k                Vaswani et al.
    additive     vᵀ tanh(W q + U k)          D. Bahdanau et al., 2014 <https://arxiv.org/abs/1409.0473>

Two paths give the same numbers. Models run PyTorch's fused kernel, which never holds the (T, S) weights;
`scaled_dot_product` writes equation 1 out and gives the weights too. Within `recording(model)` the fused path keeps
the queries and keys that it used, and the weights are computed from them only for who asks.

A mask is boolean, True where the query may look, or a bias that is added to the scores, −∞ where it may not
(`masks.py`). A query that may look nowhere takes nothing: its result is 0, and so are its gradients.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..core.errors import require
from .kv_cache import LayerCache
from .masks import causal_mask as causal_mask
from .masks import combined as combined
from .masks import masked_softmax as masked_softmax
from .masks import visible as visible
from .position import Rotation, rotary, rotation

Score = Callable[[Tensor, Tensor], Tensor]  # queries (…, T, d), keys (…, S, d') to scores (…, T, S)


def dot(q: Tensor, k: Tensor) -> Tensor:
    """q · k, (…, T, S)."""
    return q @ k.transpose(-2, -1)


def cosine(q: Tensor, k: Tensor) -> Tensor:
    """The cosine of the angle between q and k, (…, T, S): their lengths do not count. It is 0 where one has none."""
    return dot(F.normalize(q, dim=-1), F.normalize(k, dim=-1))


def scaled_dot(q: Tensor, k: Tensor) -> Tensor:
    """q · k / √d_k, (…, T, S)."""
    return dot(q / math.sqrt(q.shape[-1]), k)


def additive(w: Tensor, u: Tensor, v: Tensor) -> Score:
    """The score vᵀ tanh(W q + U k), of W (a, d), U (a, d') and v (a,): queries and keys may differ in size."""

    def score(q: Tensor, k: Tensor) -> Tensor:
        compared = (q @ w.mT)[..., :, None, :] + (k @ u.mT)[..., None, :, :]  # (…, T, S, a)
        return torch.tanh(compared) @ v

    return score


def bilinear(w: Tensor) -> Score:
    """The score qᵀ W k, of W (…, d, d'): queries and keys may differ in size."""

    def score(q: Tensor, k: Tensor) -> Tensor:
        return dot(q @ w, k)

    return score


def query_key(w_q: Tensor, w_k: Tensor) -> Tensor:
    """W_QK = W_Qᵀ W_K, (…, d, d'), of W_Q (…, d_k, d) and W_K (…, d_k, d'), as `nn.Linear` holds them.

    Both matrices make one score together, (W_Q x) · (W_K y) = xᵀ W_QK y, whose rank is d_k at most.
    """
    return w_q.mT @ w_k


def attend(score: Score, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Attention by any score: the result (…, T, d_v) and the weights (…, T, S), a softmax of the scores of what each
    query may look at. q (…, T, d), k (…, S, d'), v (…, S, d_v)."""
    weights = masked_softmax(score(q, k), mask)
    return weights @ v, weights


def scaled_dot_product(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, *, scale: float | None = None
) -> tuple[Tensor, Tensor]:
    """softmax(q kᵀ / √d_k) v written out: the result (…, T, d_v) and the weights (…, T, S).

    q (…, T, d_k), k (…, S, d_k), v (…, S, d_v). `mask` is boolean or additive, (…, T, S) or what broadcasts to it.
    `scale` stands for 1 / √d_k where it is given.
    """
    weights = attention_weights(q, k, mask, scale=scale)
    return weights @ v, weights  # (…, T, d_v), (…, T, S)


def attention_weights(q: Tensor, k: Tensor, mask: Tensor | None = None, *, scale: float | None = None) -> Tensor:
    """softmax(q kᵀ / √d_k), (…, T, S): each row sums to 1, or is 0 where its query may look nowhere."""
    return masked_softmax(scaled_dot(q, k) if scale is None else dot(q * scale, k), mask)


@dataclass(frozen=True)
class Seen:
    """What one attention used: enough to compute its weights, should anyone ask."""

    q: Tensor  # (N, heads, T, d_k)
    k: Tensor  # (N, kv_heads, S, d_k)
    mask: Tensor | None
    causal: bool
    scale: float

    @property
    def weights(self) -> Tensor:
        """(N, heads, T, S): row t says how much token t took from each, before dropout."""
        own = causal_mask(self.q.shape[2], self.k.shape[2], self.q.device) if self.causal else None
        k = _for_each_head(self.k, self.q.shape[1])
        return attention_weights(self.q, k, combined(self.mask, own), scale=self.scale)


@dataclass(frozen=True)
class SeenStep:
    """What an attention used that takes the queries of a sequence one by one."""

    weights: Tensor  # (N, heads, 1, S)


Used = Seen | SeenStep


class Attention(nn.Module):
    """A layer that attends. A layer derived from it, which puts what it used into `seen` where a list stands there, can
    be looked into and intervened on (`cutaway.inspect`): nothing there knows it by name."""

    heads: int = 0  # whose results enter `out` side by side, (N, T, heads · d_v); 0 where there are none to choose from
    out: nn.Linear
    cross_attends: bool = False  # over a source, not over itself

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Used] | None = None  # there for as long as somebody looks inside


@contextmanager
def recording(model: nn.Module) -> Iterator[dict[str, list[Used]]]:
    """Within it every attention with heads keeps what it used, by the name of its module, one entry a call; its
    output is that of the fused path as ever. One within another takes over until it ends."""
    found: dict[str, list[Used]] = {}
    layers = {name: module for name, module in model.named_modules() if isinstance(module, Attention) and module.heads}
    before = {name: layer.seen for name, layer in layers.items()}
    try:
        for name, layer in layers.items():
            layer.seen = found.setdefault(name, [])
        yield found
    finally:
        for name, layer in layers.items():
            layer.seen = before[name]


class KeysUnbiased(nn.Linear):
    """A linear layer of which so many outputs, keys among them from `before` on, have no bias: it would add the same
    number to all scores of a query, and a softmax does not see that."""

    def __init__(self, inputs: int, before: int, keys: int, after: int) -> None:
        super().__init__(inputs, before + keys + after)
        self.before, self.keys = before, keys
        self.bias = nn.Parameter(torch.zeros(before + after))

    def forward(self, x: Tensor) -> Tensor:
        """(…, inputs) to (…, outputs)."""
        before, after = self.bias[: self.before], self.bias[self.before :]
        return F.linear(x, self.weight, torch.cat([before, before.new_zeros(self.keys), after]))


class MultiHeadAttention(Attention):
    """Attention in `heads` parts: (N, T, dim) to (N, T, dim), over itself, or over a `source` (N, S, source).

    W_Q, W_K and W_V of all heads are one matrix, `qkv`, so that one product makes them: its rows are all heads'
    queries, then all keys, then all values, head after head in each. Over a source they are two, `q` and `kv`. `out`
    is W_O. A head's queries and keys have `key_dim` numbers (dim / heads unless said), its values `value_dim` (as many
    unless said). With fewer `kv_heads` than heads, several heads share keys and values: grouped-query attention
    (J. Ainslie et al., 2023, https://arxiv.org/abs/2305.13245), and with one of them multi-query attention
    (N. Shazeer, 2019, https://arxiv.org/abs/1911.02150).
    """

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
    ) -> None:
        """`scale` stands for 1 / √d_k; `dropout` is that of the weights; `rotates` turns queries and keys by their
        positions (rotary), among the tokens themselves. Without `key_bias` keys alone have no bias."""
        super().__init__()
        if key_dim is None:
            require(heads >= 1 and dim % heads == 0, "heads", heads, f"at least 1 and a divisor of dim={dim}")
        require(heads >= 1, "heads", heads, "at least 1")
        self.heads, self.kv_heads = heads, heads if kv_heads is None else kv_heads
        divides = self.kv_heads >= 1 and heads % self.kv_heads == 0
        require(divides, "kv_heads", self.kv_heads, f"at least 1 and a divisor of heads={heads}")
        self.key_dim = dim // heads if key_dim is None else key_dim
        self.value_dim = self.key_dim if value_dim is None else value_dim
        require(self.key_dim >= 1, "key_dim", self.key_dim, "at least 1")
        require(self.value_dim >= 1, "value_dim", self.value_dim, "at least 1")
        self.cross_attends = source is not None
        require(
            not (rotates and self.cross_attends), "rotates", rotates, "false over a source, which has its own positions"
        )
        require(not rotates or self.key_dim % 2 == 0, "key_dim", self.key_dim, "even, to be turned pair by pair")
        self.scale = 1 / math.sqrt(self.key_dim) if scale is None else scale
        self.dropout, self.rotates = dropout, rotates
        sizes = [heads * self.key_dim, self.kv_heads * self.key_dim, self.kv_heads * self.value_dim]
        unbiased = bias and not key_bias
        if source is None:
            self.qkv = KeysUnbiased(dim, *sizes) if unbiased else nn.Linear(dim, sum(sizes), bias=bias)
            parts = list(torch.split(self.qkv.weight.detach(), sizes))
        else:
            self.q = nn.Linear(dim, sizes[0], bias=bias)
            self.kv = KeysUnbiased(source, 0, *sizes[1:]) if unbiased else nn.Linear(source, sum(sizes[1:]), bias=bias)
            parts = [self.q.weight, *torch.split(self.kv.weight.detach(), sizes[1:])]
        self.out = nn.Linear(heads * self.value_dim, dim, bias=bias)
        # Each is drawn as the matrix that it is, not as a third of a taller one with smaller numbers.
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
        """(N, T, dim) to (N, T, dim), by PyTorch's fused kernel.

        `mask`, boolean or additive, is (N or 1, heads or 1, T or 1, S); `causal` hides what stands after a token, with
        or without a mask. With a `cache` the keys and values of what was read before go in front; those of a source
        are made once. `positions` (T,) or (N, T), or their `rotation`, are for queries and keys that are turned.
        """
        q, k, v = self.split(x, source, cache, positions)
        mask, causal = _settled(mask, causal, q, k)
        if self.seen is not None:
            self.seen.append(Seen(q.detach(), k.detach(), mask, causal, self.scale))
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
        return self.join(y)

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
        """What `forward` gives without dropout, by equation 1 written out, and the weights (N, heads, T, S): row t
        says how much token t takes from each token, and sums to 1."""
        q, k, v = self.split(x, source, cache, positions)
        mask = combined(mask, causal_mask(q.shape[2], k.shape[2], q.device) if causal else None)
        k, v = _for_each_head(k, self.heads), _for_each_head(v, self.heads)
        result, weights = scaled_dot_product(q, k, v, mask, scale=self.scale)
        return self.join(result), weights

    def split(
        self,
        x: Tensor,
        source: Tensor | None = None,
        cache: LayerCache | None = None,
        positions: Tensor | Rotation | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Queries (N, heads, T, d_k), keys (N, kv_heads, S, d_k) and values (N, kv_heads, S, d_v)."""
        kv_sizes = [self.kv_heads * self.key_dim, self.kv_heads * self.value_dim]
        if self.cross_attends:
            q = self._apart(self.q(x), self.heads)
            if cache is not None and cache.keys is not None:
                return q, *cache.known()
            assert source is not None, "what is attended to"
            k, v = (self._apart(part, self.kv_heads) for part in self.kv(source).split(kv_sizes, dim=-1))
            if cache is not None:
                cache.hold(k, v)
            return q, k, v
        q, k, v = self.qkv(x).split([self.heads * self.key_dim, *kv_sizes], dim=-1)
        q, k, v = self._apart(q, self.heads), self._apart(k, self.kv_heads), self._apart(v, self.kv_heads)
        if self.rotates:
            assert positions is not None, "rotary attention needs positions"
            turn = rotation(positions, self.key_dim, q.dtype) if isinstance(positions, Tensor) else positions
            q, k = rotary(q, turn), rotary(k, turn)
        if cache is not None:
            k, v = cache.append(k, v)
        return q, k, v

    def _apart(self, x: Tensor, heads: int) -> Tensor:
        return x.view(*x.shape[:2], heads, -1).transpose(1, 2)  # (N, heads, T, d)

    def join(self, heads: Tensor) -> Tensor:
        """The heads side by side, times W_O: (N, heads, T, d_v) to (N, T, dim)."""
        joined: Tensor = self.out(heads.transpose(1, 2).flatten(2))  # (N, T, heads·d_v)
        return joined


def _settled(mask: Tensor | None, causal: bool, q: Tensor, k: Tensor) -> tuple[Tensor | None, bool]:
    """Mask and `causal` as the fused kernel can take them: it knows causal without a mask alone, and with more keys
    than queries it takes the queries for the first, where they are the last."""
    queries, keys = q.shape[2], k.shape[2]
    mask = combined(mask)
    if not causal or queries == 1:  # the last token has nothing behind it
        return mask, False
    if mask is None and queries == keys:
        return None, True
    return combined(mask, causal_mask(queries, keys, q.device)), False


def _for_each_head(x: Tensor, heads: int) -> Tensor:
    """Keys or values, (N, kv_heads, S, d) to (N, heads, S, d): each for as many heads as share it."""
    return x if x.shape[1] == heads else x.repeat_interleave(heads // x.shape[1], dim=1)
