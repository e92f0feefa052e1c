"""Attention: every token asks all the others, and takes from each as much as it matches.

A. Vaswani et al., Attention is all you need, 2017, section 3.2. <https://arxiv.org/abs/1706.03762>

    Attention(Q, K, V) = softmax(Q Kᵀ / √d_k) V                                                        (equation 1)
    MultiHead(x) = [head₁ ‖ … ‖ head_h] W_O,    head_i = Attention(x W_Q,i, x W_K,i, x W_V,i)

N examples, h heads, T queries, S keys, each of d_k numbers, and as many values as keys, of d_v numbers each. The
scores are divided before the softmax: a product of d_k independent terms of variance 1 has variance d_k, and a softmax
of scores that large is all but a maximum, through which hardly a gradient passes.

Two paths give the same numbers. Models run PyTorch's fused kernel, which never holds the (T, S) weights;
`scaled_dot_product` writes equation 1 out and gives the weights too.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import require


def scaled_dot_product(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """softmax(q kᵀ / √d_k) v written out: the result (…, T, d_v) and the weights (…, T, S).

    q (…, T, d_k), k (…, S, d_k), v (…, S, d_v). `mask` is boolean, (…, T, S) or what broadcasts to it: True where
    the query may look. Weights are 0 where it may not; a query that may look nowhere takes nothing, 0.
    """
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])  # (…, T, S)
    if mask is None:
        weights = torch.softmax(scores, dim=-1)
    else:
        weights = torch.softmax(scores.masked_fill(~mask, -math.inf), dim=-1)
        # A row of nothing but −∞ is 0/0: the second filling makes its weights and their gradient 0.
        weights = weights.masked_fill(~mask, 0)
    return weights @ v, weights  # (…, T, d_v), (…, T, S)


class MultiHeadAttention(nn.Module):
    """Self-attention in `heads` parts of dim/heads numbers each: (N, T, dim) to (N, T, dim).

    W_Q, W_K and W_V of all heads are one matrix, `qkv`, so that one product makes them: its rows are all heads'
    queries, then all keys, then all values, head after head in each. `out` is W_O.
    """

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        require(heads >= 1 and dim % heads == 0, "heads", heads, f"at least 1 and a divisor of dim={dim}")
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)
        # Each of the three is drawn as the matrix that it is, not as a third of a taller one with smaller numbers.
        for weight in self.qkv.weight.detach().chunk(3):
            nn.init.xavier_uniform_(weight)
        nn.init.xavier_uniform_(self.out.weight)
        nn.init.zeros_(self.qkv.bias)
        nn.init.zeros_(self.out.bias)

    def forward(self, x: Tensor) -> Tensor:
        """(N, T, dim) to (N, T, dim), by PyTorch's fused kernel."""
        q, k, v = self.split(x)
        return self.join(F.scaled_dot_product_attention(q, k, v))

    def textbook(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """What `forward` gives, by equation 1 written out, and the weights (N, heads, T, S): row t says how much
        token t takes from each token, and sums to 1."""
        result, weights = scaled_dot_product(*self.split(x))
        return self.join(result), weights

    def split(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of every head: (N, T, dim) to three of (N, heads, T, d)."""
        q, k, v = self.qkv(x).chunk(3, dim=-1)  # each (N, T, heads·d)
        return self._heads(q), self._heads(k), self._heads(v)

    def _heads(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:2], self.heads, -1).transpose(1, 2)  # (N, heads, T, d)

    def join(self, heads: Tensor) -> Tensor:
        """The heads side by side, times W_O: (N, heads, T, d) to (N, T, dim)."""
        joined: Tensor = self.out(heads.transpose(1, 2).flatten(2))  # (N, T, heads·d)
        return joined
