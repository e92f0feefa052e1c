"""The block that every Transformer here is made of: attention between the tokens, then an MLP on each.

A is attention, M the MLP, α₁ and α₂ the strengths of what they add (1 unless said). `order` is where the
normalization stands:

    post       x ← LN(x + α₁ A(x));  x ← LN(x + α₂ M(x))             A. Vaswani et al., 2017
    pre        x ← x + α₁ A(LN(x));  x ← x + α₂ M(LN(x))             GPT-2, ViT, T5
    parallel   x ← x + α₁ A(LN(x)) + α₂ M(LN(x))                     GPT-J, PaLM (<https://arxiv.org/abs/2204.02311>)

A decoder's block looks at a source too, between the two, with strength 1: x ← LN(x + A'(x)), or x ← x + A'(LN(x)).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import require
from .attention import MultiHeadAttention
from .cache import Slot
from .position import Rotation

ORDERS = ("post", "pre", "parallel")
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu-tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "tanh": F.tanh,
}
FEW, MANY = 64, 2**14  # tokens at most and words at least for which a product is made the other way about
NORMS: dict[str, Callable[..., nn.Module]] = {"layer": nn.LayerNorm, "rms": nn.RMSNorm}


class MLP(nn.Module):
    """W₂ g(W₁ x), on each token by itself: (N, T, dim) to (N, T, dim)."""

    def __init__(
        self, dim: int, ffn_dim: int, activation: str = "gelu", dropout: float = 0.0, *, bias: bool = True
    ) -> None:
        """`dropout` is that between the two layers."""
        super().__init__()
        self.fc1 = nn.Linear(dim, ffn_dim, bias=bias)
        self.fc2 = nn.Linear(ffn_dim, dim, bias=bias)
        self.activation = ACTIVATIONS[activation]
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """(N, T, dim) to (N, T, dim)."""
        y: Tensor = self.fc2(self.dropout(self.activation(self.fc1(x))))  # (N, T, ffn_dim) between
        return y


class Block(nn.Module):
    """Attention and MLP, each added to what came in: (N, T, dim) to (N, T, dim)."""

    def __init__(
        self,
        dim: int,
        heads: int,
        ffn_dim: int,
        *,
        order: str = "pre",
        activation: str = "gelu",
        norm: str = "layer",
        eps: float = 1e-5,
        bias: bool = True,
        crosses: bool = False,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        mlp_dropout: float = 0.0,
        drops: tuple[bool, bool] = (True, True),
        strengths: tuple[float, float] = (1.0, 1.0),
        key_dim: int | None = None,
        kv_heads: int | None = None,
        scale: float | None = None,
        rotates: bool = False,
    ) -> None:
        """`dropout` is of what attention and MLP add, where `drops` says so of each, `attention_dropout` of the weights
        of attention, `mlp_dropout` within the MLP. `bias=False` takes the biases from attention and MLP. With
        `crosses` the block looks at a source. The rest is for the attention."""
        super().__init__()
        require(order in ORDERS, "order", order, ", ".join(ORDERS))
        require(activation in ACTIVATIONS, "activation", activation, ", ".join(ACTIVATIONS))
        require(norm in NORMS, "norm", norm, ", ".join(NORMS))
        require(
            not (crosses and order == "parallel"), "order", order, "post or pre in a decoder that looks at a source"
        )
        self.order, self.strengths, self.drops = order, strengths, drops

        def attention(source: int | None, turned: bool) -> MultiHeadAttention:
            return MultiHeadAttention(
                dim,
                heads,
                source=source,
                kv_heads=kv_heads,
                key_dim=key_dim,
                bias=bias,
                scale=scale,
                dropout=attention_dropout,
                rotates=turned,
            )

        self.norm1 = NORMS[norm](dim, eps=eps)
        self.attention = attention(None, rotates)
        if crosses:
            self.cross_norm = NORMS[norm](dim, eps=eps)
            self.cross_attention = attention(dim, False)
        if order != "parallel":
            self.norm2 = NORMS[norm](dim, eps=eps)
        self.mlp = MLP(dim, ffn_dim, activation, mlp_dropout, bias=bias)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        *,
        causal: bool = False,
        cache: Slot | None = None,
        positions: Tensor | Rotation | None = None,
        source: Tensor | None = None,
        source_mask: Tensor | None = None,
        crossing: Slot | None = None,
    ) -> Tensor:
        """(N, T, dim) to (N, T, dim). `mask`, `causal`, `cache` and `positions` are for self-attention, the others for
        attention over a `source` (N, S, dim): its mask (N, 1, 1, S), and the slot that keeps its keys and values."""

        def look(y: Tensor) -> Tensor:
            seen: Tensor = self.attention(y, mask=mask, causal=causal, cache=cache, positions=positions)
            return seen

        # Sums are not made in place: in mixed precision x has more digits than what is added.
        first, second = zip(self.strengths, self.drops)
        if self.order == "parallel":
            y = self.norm1(x)
            return x + self._part(look(y), *first) + self._part(self.mlp(y), *second)
        x = self._add(x, look, self.norm1, *first)
        if source is not None or crossing is not None:
            x = self._add(
                x,
                lambda y: self.cross_attention(y, source, mask=source_mask, cache=crossing),
                self.cross_norm,
                1.0,
                True,
            )
        return self._add(x, self.mlp, self.norm2, *second)

    def _add(
        self, x: Tensor, layer: Callable[[Tensor], Tensor], norm: nn.Module, strength: float, drops: bool
    ) -> Tensor:
        """x and what the layer adds, normalized before the layer or behind the sum."""
        if self.order == "pre":
            return x + self._part(layer(norm(x)), strength, drops)
        y: Tensor = norm(x + self._part(layer(x), strength, drops))
        return y

    def _part(self, y: Tensor, strength: float, drops: bool) -> Tensor:
        y = self.dropout(y) if drops else y
        return y if strength == 1.0 else strength * y


class Tied(nn.Module):
    """The output layer that is the embedding itself, logits = x Eᵀ (+ b): O. Press, L. Wolf, 2017,
    <https://arxiv.org/abs/1608.05859>. The weight belongs to the embedding, and is saved there alone."""

    embedding: nn.Embedding

    def __init__(self, embedding: nn.Embedding, *, bias: bool = False) -> None:
        super().__init__()
        object.__setattr__(self, "embedding", embedding)  # known, and no child: it has a name of its own already
        self.bias = nn.Parameter(embedding.weight.new_zeros(embedding.num_embeddings)) if bias else None

    @property
    def weight(self) -> Tensor:
        """The embedding's, (vocabulary, dim)."""
        return self.embedding.weight

    def last(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """What the matrix is multiplied with, that matrix and what is added."""
        return x, self.weight, self.bias

    def forward(self, x: Tensor) -> Tensor:
        """(…, dim) to (…, vocabulary)."""
        x, weight, bias = self.last(x)
        few = 1 < x.numel() // x.shape[-1] <= FEW
        if few and len(weight) >= MANY and x.device.type == "cpu" and not torch.is_grad_enabled():
            # E xᵀ and then turned: for few tokens and many words the CPU's product is faster that way about.
            y = torch.mm(weight, x.reshape(-1, x.shape[-1]).t()).t().contiguous()  # (tokens, vocabulary)
            y = y.view(*x.shape[:-1], -1)
            return y if bias is None else y + bias
        return F.linear(x, weight, bias)
