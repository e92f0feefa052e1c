"""A causal language model whose blocks compute attention and MLP in parallel.

The architecture is from B. Wang, A. Komatsuzaki, GPT-J-6B, 2021 <https://github.com/kingoflolz/mesh-transformer-jax>,
and A. Chowdhery et al., PaLM: Scaling language modeling with Pathways, 2022. <https://arxiv.org/abs/2204.02311>

    z⁰_t = E[token_t]
    z ← z + α₁ A(LN(z)) + α₂ M(LN(z))                causal: token t looks at tokens ≤ t; α₁ = α₂ = 1 unless set
    p(token_{t+1} | tokens ≤ t) = softmax(LN(z_t) Eᵀ)

      a block          z ──────────┐                 A    causal multi-head attention, queries and keys turned
                       │ LN        │                 M    two linear layers, GELU between
                       ├─────┐     │                 LN   layer normalization of each token, one for both
                       │ A   │ M   │
                       + ◄───┴─────┘
                       z

Attention and MLP do not depend on each other. In the sequential orders (`order=pre`, z ← z + α₁ A(LN(z)) and then z ← z
+ α₂ M(LN(z)); `order=post`, z ← LN(z + α₁ A(z)), z ← LN(z + α₂ M(z))) the network is otherwise the same, so that the
three can be compared, and so can the strengths α₁ and α₂.

Shapes, from token ids (N, T):
    embedding                                (N, T, dim)
    each block                               (N, T, dim)
    normalized, times the embedding          (N, T, vocab_size)

There are no additive positions: queries and keys are rotated by their positions, so that their product depends on the
distance of two tokens (J. Su et al., RoFormer, 2021, <https://arxiv.org/abs/2104.09864>). `context_length` is the
length for which the model was trained, and the maximum. Padding, `extend` and the head for classes are as in GPT-2
(`base.py`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor, nn

from ..core.errors import ModelError, check_value
from ..core.spec import TextSpec
from ..nn.attention import MultiHeadAttention
from ..nn.kv_cache import Cache, LayerCache, position_ids_and_mask
from ..nn.masks import last_token, normalize_padding_mask
from ..nn.position import Rotation, rotation
from ..nn.transformer import MLP, Unembedding
from .base import CausalLanguageModel
from .card import Card, Divergence, Published
from .config import ValidatedConfig, choice, fit_language_model, fraction, positive
from .gpt2 import HEADS, init_weights

ORDERS = ("parallel", "pre", "post")


@dataclass(frozen=True)
class Config(ValidatedConfig):
    """Configuration of the network."""

    vocab_size: int = positive(8192)  # size of the vocabulary
    context_length: int = positive(256)  # maximum number of tokens
    dim: int = positive(256)  # model dimension
    layers: int = positive(6)  # number of blocks
    heads: int = positive(8)  # attention heads, each with dim / heads channels, an even number
    kv_heads: int | None = positive(None)  # of keys and values, a divisor of heads: 1 in PaLM; auto: heads
    ffn_dim: int | None = positive(None)  # feed-forward dimension; auto: 4 · dim
    dropout: float = fraction(0.0)  # dropout rate of embedding, attention weights and the output of each layer; PaLM: 0
    order: str = choice("parallel", ORDERS)  # how a block adds attention and MLP: parallel, pre, post
    strengths: tuple[float, float] = (1.0, 1.0)  # α₁ and α₂, factors of the outputs of attention and MLP
    tie_weights: bool = True  # use the embedding as the output matrix W_U; else W_U is a separate matrix
    head: str = choice("next", HEADS)  # next: logits of the next token; classes: one output for a text
    num_classes: int = positive(2)  # size of the output of the head for classes

    def __post_init__(self) -> None:
        super().__post_init__()
        ok = self.dim % (2 * self.heads) == 0
        check_value(
            ok, "heads", self.heads, f"at least 1, and a divisor of dim={self.dim} with an even number for each"
        )
        ok = self.kv_heads is None or self.heads % self.kv_heads == 0
        check_value(ok, "kv_heads", self.kv_heads, f"at least 1 and a divisor of heads={self.heads}")
        two = len(self.strengths) == 2 and all(math.isfinite(strength) for strength in self.strengths)
        check_value(two, "strengths", self.strengths, "two numbers, of attention and MLP")

    @classmethod
    def for_spec(cls, preset: Config, spec: TextSpec) -> Config:
        """Return the preset with the vocabulary, the length and the target of `spec`."""
        return fit_language_model(preset, spec)


class Block(nn.Module):
    """Causal attention and an MLP, both added to the residual stream: side by side, or one after the other."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        dim, dropout = config.dim, config.dropout
        self.order, self.strengths = config.order, config.strengths
        self.norm1 = nn.LayerNorm(dim)
        self.attention = MultiHeadAttention(
            dim, config.heads, kv_heads=config.kv_heads, bias=False, dropout=dropout, rotates=True
        )
        if config.order != "parallel":
            self.norm2 = nn.LayerNorm(dim)
        self.mlp = MLP(dim, config.ffn_dim or 4 * dim, "gelu-tanh", bias=False)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self,
        z: Tensor,
        positions: Tensor | Rotation,
        mask: Tensor | None = None,
        cache: LayerCache | None = None,
    ) -> Tensor:
        """Map (N, T, dim) to (N, T, dim).

        Queries and keys are turned by their `positions`, (T,) or (N, T), or the `rotation` of these; `mask` (N or 1, 1,
        T or 1, S) is True where a token may look, by default at itself and the tokens before it.
        """
        a1, a2 = self.strengths

        def attention(x: Tensor) -> Tensor:  # α₁ A(x), (N, T, dim)
            y = self.attention(x, mask=mask, causal=mask is None, cache=cache, positions=positions)
            return _scaled(a1, self.dropout(y))

        def mlp(x: Tensor) -> Tensor:  # α₂ M(x), (N, T, dim)
            return _scaled(a2, self.dropout(self.mlp(x)))

        if self.order == "parallel":
            x = self.norm1(z)
            z = z + attention(x) + mlp(x)
        elif self.order == "pre":
            z = z + attention(self.norm1(z))
            z = z + mlp(self.norm2(z))
        else:
            z = self.norm1(z + attention(z))
            z = self.norm2(z + mlp(z))
        return z


def _scaled(strength: float, y: Tensor) -> Tensor:
    return y if strength == 1.0 else strength * y


class ParallelTransformer(CausalLanguageModel):
    """(N, T) token ids to (N, T, vocab_size) logits of the token after each, or to (N, classes)."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        dim = config.dim
        self.embedding = nn.Embedding(config.vocab_size, dim)  # E
        self.dropout = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        # With order=post the last block has already normalized its output.
        self.norm = nn.Identity() if config.order == "post" else nn.LayerNorm(dim)
        self.head: nn.Module
        if config.head == "next":
            self.head = Unembedding(self.embedding, tied=config.tie_weights)  # W_U
        else:
            self.head = nn.Linear(dim, config.num_classes, bias=False)
        init_weights(self, config.layers)

    def hidden(self, tokens: Tensor, mask: Tensor | None = None, cache: Cache | None = None) -> Tensor:
        """Return the normalized output of the last block, (N, T, dim).

        `mask` (N, T) is True where a token is real. With a `cache` the tokens continue after its end. Raises ModelError
        if the context is exceeded.
        """
        length, context = tokens.shape[1] if cache is None else cache.longest(tokens), self.config.context_length
        if length > context:
            raise ModelError(
                f"parallel-transformer was trained for {context:,} tokens, and these are {length:,}: give fewer, or a "
                "larger model.context_length in training."
            )
        positions, visible = position_ids_and_mask(tokens, mask, cache)
        z = self.dropout(self.embedding(tokens))  # (N, T, dim)
        turn = rotation(positions, self.config.dim // self.config.heads, z.dtype)  # once for all blocks
        for i, block in enumerate(self.blocks):
            z = block(z, turn, visible, cache.layers[i] if cache is not None else None)  # (N, T, dim)
        y: Tensor = self.norm(z)  # (N, T, dim)
        return y

    def features(self, tokens: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the input of the head: each token, (N, T, dim), or for classes the last real token, (N, dim)."""
        mask = normalize_padding_mask(mask, tokens.shape)
        z = self.hidden(tokens, mask)
        return z if self.config.head == "next" else last_token(z, mask)

    def forward(self, tokens: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the logits, shape (N, T, vocab_size) or (N, classes), of token ids (N, T)."""
        logits: Tensor = self.head(self.features(tokens, mask))
        return logits


Model = ParallelTransformer

PRESETS = {"parallel-transformer": Config()}

CARD = Card(
    title="PaLM: Scaling language modeling with Pathways",
    authors="A. Chowdhery et al.",
    year=2022,
    link="https://arxiv.org/abs/2204.02311",
    family="transformer",
    equation="z ← z + α₁ A(LN(z)) + α₂ M(LN(z));  p = softmax(LN(z) Eᵀ)",
    oracle="one text at a time by loops over heads and tokens, sums by einsum",
    published={
        "parallel-transformer": Published(
            6_819_328,
            1_946_157_056,
            (256,),
            "computed from the definition above: V·d + L·(12d² + 2d) + 2d parameters; for each of T = 256 tokens "
            "L·(12d² + 2T·d) + V·d multiply-adds",
        )
    },
    divergences=(
        Divergence(
            "size",
            paper="PaLM: 8, 62 and 540 billion parameters; GPT-J: 6 billion",
            here="6.8 million, for a CPU; configurable",
        ),
        Divergence(
            "MLP",
            paper="PaLM: SwiGLU; GPT-J: the tanh form of GELU",
            here="the tanh form of GELU",
        ),
        Divergence(
            "keys and values",
            paper="PaLM: one head for all heads of queries; GPT-J: as many heads as queries",
            here="the same number; kv_heads=1 as in PaLM",
        ),
        Divergence(
            "rotated channels",
            paper="PaLM: all channels of a head; GPT-J: the first 64 of 256",
            here="all",
        ),
        Divergence(
            "output layer",
            paper="PaLM: the embedding, whose standard deviation is 1, and logits divided by √dim; GPT-J: a separate "
            "matrix, with a bias",
            here="the embedding, whose standard deviation is 0.02; tie_weights=false uses a separate matrix",
        ),
        Divergence(
            "initialization",
            paper="PaLM: standard deviation 1/√fan-in",
            here="GPT-2's: standard deviation 0.02, divided by √(2 · blocks) for layers that end a residual branch",
        ),
        Divergence(
            "biases",
            paper="PaLM: none, also not in normalizations; GPT-J: in the MLP and the normalizations",
            here="only in the normalizations",
        ),
        Divergence(
            "residual strengths α₁, α₂, and the other orders",
            paper="1; only parallel",
            here="1 and parallel in the preset; configurable",
        ),
    ),
    settings={
        "parallel-transformer": {
            "optimizer": "adamw",
            "lr": 1e-3,
            "weight_decay": 0.1,
            "schedule": "warmup-cosine",
            "warmup": 0.05,
            "grad_clip": 1.0,
            "batch_size": 12,
        }
    },
)
