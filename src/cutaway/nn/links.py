"""Link decoders: symmetric scores of pairs of nodes, computed from node embeddings.

    dot        s_ij = z_i · z_j                          T. N. Kipf, M. Welling, 2016 <https://arxiv.org/abs/1611.07308>
    bilinear   s_ij = z_iᵀ ½ (W + Wᵀ) z_j                W (d, d) is learned, and used as its symmetric part

σ(s_ij) is the probability of a link. Pairs are unordered, and an asymmetric matrix would give two scores for one pair.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

DECODERS = ("none", "dot", "bilinear")


class DotProduct(nn.Module):
    """The decoder z_i · z_j."""

    def forward(self, ends: Tensor) -> Tensor:
        """Map both ends of each pair (n, 2, d) to logits (n, 1)."""
        return (ends[:, 0] * ends[:, 1]).sum(1, keepdim=True)

    def between(self, a: Tensor, b: Tensor) -> Tensor:
        """Return the logits (n, m) of every node of a (n, d) with every node of b (m, d)."""
        return a @ b.t()


class Bilinear(nn.Module):
    """The decoder z_iᵀ ½ (W + Wᵀ) z_j, with Glorot's uniform initialization of W."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(dim, dim))
        nn.init.xavier_uniform_(self.weight)

    def forward(self, ends: Tensor) -> Tensor:
        """Map both ends of each pair (n, 2, d) to logits (n, 1)."""
        first, second = ends.unbind(1)
        return (first @ self._symmetric() * second).sum(1, keepdim=True)

    def between(self, a: Tensor, b: Tensor) -> Tensor:
        """Return the logits (n, m) of every node of a (n, d) with every node of b (m, d)."""
        return a @ self._symmetric() @ b.t()

    def _symmetric(self) -> Tensor:
        return (self.weight + self.weight.t()) / 2


def decoder(kind: str, dim: int) -> DotProduct | Bilinear:
    """Return the decoder with the given name, for nodes (V, dim)."""
    return Bilinear(dim) if kind == "bilinear" else DotProduct()
