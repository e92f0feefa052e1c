"""What the blocks of every Transformer here are made of, beside attention: an MLP on each token, the output layer.

The blocks themselves stand in the files of the models (`models/gpt2.py`, …), where each is read whole.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .attention import MultiHeadAttention

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu-tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "tanh": F.tanh,
}
FEW, MANY = 64, 2**14  # tokens at most and words at least for which a product is made the other way about


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


class Unembedding(nn.Module):
    """The output layer of words, logits = x W_Uᵀ (+ b). Tied, W_U is the embedding itself (O. Press, L. Wolf, 2017,
    <https://arxiv.org/abs/1608.05859>): it belongs to the embedding, and is saved there alone. Else it is a matrix of
    its own, `unembedding`, of the same shape. `weight` is W_U either way."""

    embedding: nn.Embedding

    def __init__(self, embedding: nn.Embedding, *, tied: bool = True, bias: bool = False) -> None:
        super().__init__()
        object.__setattr__(self, "embedding", embedding)  # known, and no child: it has a name of its own already
        table = embedding.weight
        self.unembedding = None if tied else nn.Parameter(torch.empty_like(table))
        if self.unembedding is not None:
            nn.init.normal_(self.unembedding, std=embedding.embedding_dim**-0.5)  # logits of the variance of x
        self.bias = nn.Parameter(table.new_zeros(embedding.num_embeddings)) if bias else None

    @property
    def weight(self) -> Tensor:
        """W_U, (vocabulary, dim)."""
        return self.embedding.weight if self.unembedding is None else self.unembedding

    def last(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """What the matrix is multiplied with, that matrix and what is added."""
        return x, self.weight, self.bias

    def forward(self, x: Tensor) -> Tensor:
        """(…, dim) to (…, vocabulary)."""
        x, weight, bias = self.last(x)
        few = not torch.compiler.is_exporting() and 1 < x.numel() // x.shape[-1] <= FEW  # a graph has no size yet
        if few and len(weight) >= MANY and x.device.type == "cpu" and not torch.is_grad_enabled():
            # W_U xᵀ and then turned: for few tokens and many words the CPU's product is faster that way about.
            y = torch.mm(weight, x.reshape(-1, x.shape[-1]).t()).t().contiguous()  # (tokens, vocabulary)
            y = y.view(*x.shape[:-1], -1)
            return y if bias is None else y + bias
        return F.linear(x, weight, bias)


def is_block(module: nn.Module) -> bool:
    """Whether a module is a block of a Transformer, whichever it is: it has its `attention` and its `mlp`."""
    attention, mlp = getattr(module, "attention", None), getattr(module, "mlp", None)
    return isinstance(attention, MultiHeadAttention) and isinstance(mlp, MLP)
