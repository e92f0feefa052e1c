"""Parts of Transformer blocks apart from attention: the MLP and the output layer.

The blocks themselves are in the models' files (`models/gpt2.py`, …), each complete in one file.
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
FEW, MANY = 64, 2**14  # largest number of tokens and smallest vocabulary for which the transposed product is used


class MLP(nn.Module):
    """The feed-forward network of a block, W₂ g(W₁ x + b₁) + b₂ on each token: (N, T, dim) to (N, T, dim).

    Args:
        dim: Features of inputs and outputs.
        ffn_dim: Features between the two linear layers `fc1` and `fc2`.
        activation: The function g: "relu", "gelu", "gelu-tanh" (with the tanh approximation), "silu" or "tanh".
        dropout: Dropout probability between the layers, after the activation; in training only.
        bias: Whether the layers have biases.

    Raises:
        KeyError: If `activation` is none of these.

    Example:
        >>> mlp = MLP(dim=8, ffn_dim=32)
        >>> mlp(torch.randn(2, 5, 8)).shape
        torch.Size([2, 5, 8])
        >>> sum(p.numel() for p in mlp.parameters())  # 2 · 8 · 32 weights, 32 + 8 biases
        552
    """

    def __init__(
        self, dim: int, ffn_dim: int, activation: str = "gelu", dropout: float = 0.0, *, bias: bool = True
    ) -> None:
        super().__init__()
        self.fc1 = nn.Linear(dim, ffn_dim, bias=bias)
        self.fc2 = nn.Linear(ffn_dim, dim, bias=bias)
        self.activation = ACTIVATIONS[activation]
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Apply both layers to each token.

        Args:
            x: Tokens, shape (N, T, dim), or (…, dim) with any leading axes.

        Returns:
            The outputs, of the same shape.
        """
        y: Tensor = self.fc2(self.dropout(self.activation(self.fc1(x))))  # (N, T, ffn_dim) between
        return y


class Unembedding(nn.Module):
    """The output layer of a language model, logits = x W_Uᵀ (+ b).

    If tied, W_U is the embedding itself (O. Press, L. Wolf, 2017, <https://arxiv.org/abs/1608.05859>). It then belongs
    to the embedding and is saved only there. Otherwise it is a separate matrix `unembedding` of the same shape,
    initialized with the standard deviation 1/√dim. `weight` is W_U in both cases.

    Args:
        embedding: The embedding of the model's tokens, `nn.Embedding(vocab_size, dim)`. It does not become a child of
            this layer.
        tied: Whether W_U is the matrix of `embedding`.
        bias: Whether to add a bias b (vocab_size,), initialized with 0.

    Example:
        >>> embedding = nn.Embedding(100, 16)
        >>> head = Unembedding(embedding)
        >>> head(torch.randn(2, 5, 16)).shape
        torch.Size([2, 5, 100])
        >>> head.weight is embedding.weight, len(list(head.parameters()))
        (True, 0)
    """

    embedding: nn.Embedding

    def __init__(self, embedding: nn.Embedding, *, tied: bool = True, bias: bool = False) -> None:
        super().__init__()
        object.__setattr__(self, "embedding", embedding)  # not a child: it already has a name in the model
        table = embedding.weight
        self.unembedding = None if tied else nn.Parameter(torch.empty_like(table))
        if self.unembedding is not None:
            nn.init.normal_(self.unembedding, std=embedding.embedding_dim**-0.5)  # logits of the variance of x
        self.bias = nn.Parameter(table.new_zeros(embedding.num_embeddings)) if bias else None

    @property
    def weight(self) -> Tensor:
        """W_U, (vocab_size, dim): the embedding's matrix if tied."""
        return self.embedding.weight if self.unembedding is None else self.unembedding

    def last(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return the factors of the final product, from which a loss can be computed without storing all logits.

        Args:
            x: The input of the layer, shape (…, dim).

        Returns:
            `x` itself, W_U (vocab_size, dim), and the bias (vocab_size,) or None.
        """
        return x, self.weight, self.bias

    def forward(self, x: Tensor) -> Tensor:
        """Compute the logits.

        Args:
            x: The last hidden states, shape (…, dim).

        Returns:
            Logits, shape (…, vocab_size).
        """
        x, weight, bias = self.last(x)
        few = not torch.compiler.is_exporting() and 1 < x.numel() // x.shape[-1] <= FEW  # sizes are symbolic there
        if few and len(weight) >= MANY and x.device.type == "cpu" and not torch.is_grad_enabled():
            # W_U xᵀ, then transposed: the CPU is faster this way for few tokens and a large vocabulary.
            y = torch.mm(weight, x.reshape(-1, x.shape[-1]).t()).t().contiguous()  # (tokens, vocabulary)
            y = y.view(*x.shape[:-1], -1)
            return y if bias is None else y + bias
        return F.linear(x, weight, bias)


def is_block(module: nn.Module) -> bool:
    """Return whether a module is a Transformer block: it has an `attention` and an `mlp`.

    Args:
        module: Any module.

    Returns:
        Whether it is a block.
    """
    attention, mlp = getattr(module, "attention", None), getattr(module, "mlp", None)
    return isinstance(attention, MultiHeadAttention) and isinstance(mlp, MLP)
