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

With `norm=none` nothing is normalized: with order=pre or post a block is Z = z + α₁ A(z), z ← Z + α₂ M(Z).

    positions=     position of a token (`nn/position.py`)
    rotary         queries and keys are rotated, so that their product depends on the distance (J. Su et al., 2021)
    alibi          a multiple of the distance is subtracted from each score (O. Press et al., 2022)
    sinusoids      z⁰_t = √d · E[token_t] + PE(t) (A. Vaswani et al., 2017)
    learned        z⁰_t = E[token_t] + P[t], a table of context_length rows
    none           only the causal mask tells tokens apart

`base` is that of the angles of rotary and sinusoids. With `score=bilinear` each head learns W_QK as one matrix (d, d)
of any rank, not as the product of W_Q and W_K.

`context_length` is the maximum length. Padding, `extend` and the head for classes are as in GPT-2 (`base.py`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..core.errors import InputShapeError, check_value
from ..core.spec import TextSpec
from ..nn.attention import BilinearAttention, MultiHeadAttention
from ..nn.kv_cache import Cache, LayerCache, position_ids_and_mask
from ..nn.masks import causal_mask, last_token, normalize_padding_mask
from ..nn.position import BASE, Rotation, alibi, alibi_slopes, rotation, sinusoids
from ..nn.transformer import MLP, Unembedding
from .base import CausalLanguageModel
from .card import Card, Divergence, Published
from .config import ValidatedConfig, choice, fit_language_model, fraction, min_value, positive
from .gpt2 import HEADS, STD, init_weights

ORDERS = ("parallel", "pre", "post")
NORMS = ("layer", "none")
POSITIONS = ("rotary", "alibi", "sinusoids", "learned", "none")
SCORES = ("scaled_dot", "bilinear")


@dataclass(frozen=True)
class Config(ValidatedConfig):
    """Configuration of the network."""

    vocab_size: int = positive(8192)  # size of the vocabulary
    context_length: int = positive(256)  # maximum number of tokens
    dim: int = positive(256)  # model dimension
    layers: int = positive(6)  # number of blocks
    heads: int = positive(8)  # attention heads, each with dim / heads channels, an even number with rotary positions
    kv_heads: int | None = positive(None)  # of keys and values, a divisor of heads: 1 in PaLM; auto: heads
    ffn_dim: int | None = positive(None)  # feed-forward dimension; auto: 4 · dim
    dropout: float = fraction(0.0)  # dropout rate of embedding, attention weights and the output of each layer; PaLM: 0
    order: str = choice("parallel", ORDERS)  # how a block adds attention and MLP: parallel, pre, post
    strengths: tuple[float, float] = (1.0, 1.0)  # α₁ and α₂, factors of the outputs of attention and MLP
    norm: str = choice("layer", NORMS)  # layer normalization, or none
    positions: str = choice("rotary", POSITIONS)  # position encoding: rotary, alibi, sinusoids, learned, none
    base: float = min_value(1, BASE)  # base of the angles of rotary and sinusoids
    score: str = choice("scaled_dot", SCORES)  # scaled_dot: W_QK is W_Q times W_K; bilinear: one matrix of any rank
    tie_weights: bool = True  # use the embedding as the output matrix W_U; else W_U is a separate matrix
    head: str = choice("next", HEADS)  # next: logits of the next token; classes: one output for a text
    num_classes: int = positive(2)  # size of the output of the head for classes

    def __post_init__(self) -> None:
        super().__post_init__()
        rotary = self.positions == "rotary"
        ok = self.dim % ((1 + rotary) * self.heads) == 0
        even = " with an even number for each" if rotary else ""
        check_value(ok, "heads", self.heads, f"at least 1, and a divisor of dim={self.dim}{even}")
        ok = self.kv_heads is None or self.heads % self.kv_heads == 0
        check_value(ok, "kv_heads", self.kv_heads, f"at least 1 and a divisor of heads={self.heads}")
        ok = self.score == "scaled_dot" or self.kv_heads in (None, self.heads)
        check_value(ok, "kv_heads", self.kv_heads, f"auto or heads={self.heads} with score=bilinear")
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
        self.norm1 = _norm(config)
        how: dict[str, Any] = {
            "dropout": dropout,
            "rotates": config.positions == "rotary",
            "base": config.base,
        }
        self.attention: MultiHeadAttention
        if config.score == "bilinear":
            self.attention = BilinearAttention(dim, config.heads, **how)
        else:
            self.attention = MultiHeadAttention(dim, config.heads, kv_heads=config.kv_heads, bias=False, **how)
        if config.order != "parallel":
            self.norm2 = _norm(config)
        self.mlp = MLP(dim, config.ffn_dim or 4 * dim, "gelu-tanh", bias=False)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self,
        z: Tensor,
        positions: Tensor | Rotation | None = None,
        mask: Tensor | None = None,
        cache: LayerCache | None = None,
    ) -> Tensor:
        """Map (N, T, dim) to (N, T, dim).

        With rotary positions, queries and keys are rotated by their `positions`, (T,) or (N, T), or the `rotation` of
        these. `mask` (N or 1, heads or 1, T or 1, S) is True where a token may attend, or a bias, by default to itself
        and the tokens before it.
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


def _norm(config: Config) -> nn.Module:
    return nn.LayerNorm(config.dim) if config.norm == "layer" else nn.Identity()


def _scaled(strength: float, y: Tensor) -> Tensor:
    return y if strength == 1.0 else strength * y


class ParallelTransformer(CausalLanguageModel):
    """(N, T) token ids to (N, T, vocab_size) logits of the token after each, or to (N, classes)."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        dim = config.dim
        self.embedding = nn.Embedding(config.vocab_size, dim)  # E
        if config.positions == "learned":
            self.positions = nn.Embedding(config.context_length, dim)  # P
        self.dropout = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        # With order=post the last block has already normalized its output.
        self.norm = nn.Identity() if config.order == "post" else _norm(config)
        self.head: nn.Module
        if config.head == "next":
            self.head = Unembedding(self.embedding, tied=config.tie_weights)  # W_U
        else:
            self.head = nn.Linear(dim, config.num_classes, bias=False)
        init_weights(self, config.layers)
        if config.positions == "learned":
            nn.init.normal_(self.positions.weight, std=STD / 2)  # as in GPT-2

    def hidden(self, tokens: Tensor, mask: Tensor | None = None, cache: Cache | None = None) -> Tensor:
        """Return the normalized output of the last block, (N, T, dim).

        `mask` (N, T) is True where a token is real. With a `cache` the tokens continue after its end. Raises ModelError
        if the context is exceeded.
        """
        length, context = tokens.shape[1] if cache is None else cache.longest(tokens), self.config.context_length
        if length > context:
            raise InputShapeError(
                f"parallel-transformer was trained for {context:,} tokens, and these are {length:,}: give fewer, or a "
                "larger model.context_length in training."
            )
        positions, visible = position_ids_and_mask(tokens, mask, cache)
        z = self._embed(tokens, positions)  # (N, T, dim)
        turn = None
        if self.config.positions == "rotary":  # once for all blocks
            size = self.config.dim if self.config.score == "bilinear" else self.config.dim // self.config.heads
            turn = rotation(positions, size, z.dtype, self.config.base)
        elif self.config.positions == "alibi":
            if visible is None:
                keys = tokens.shape[1] if cache is None else cache.length
                visible = causal_mask(tokens.shape[1], keys, tokens.device)[None, None]
            visible = alibi(visible, self.config.heads, z.dtype)  # (N or 1, heads, T or 1, S)
        for i, block in enumerate(self.blocks):
            z = block(z, turn, visible, cache.layers[i] if cache is not None else None)  # (N, T, dim)
        y: Tensor = self.norm(z)  # (N, T, dim)
        return y

    def _embed(self, tokens: Tensor, positions: Tensor) -> Tensor:
        """Return the input of the first block, (N, T, dim)."""
        z = self.embedding(tokens)  # (N, T, dim)
        if self.config.positions == "sinusoids":
            z = z * math.sqrt(self.config.dim) + sinusoids(positions, self.config.dim, z.dtype, self.config.base)
        elif self.config.positions == "learned":
            z = z + self.positions(positions)
        y: Tensor = self.dropout(z)
        return y

    def position_tables(self, num_positions: int) -> dict[str, Tensor]:
        """Return the sinusoids, (num_positions, dim), or the learned table; nothing for other positions."""
        if self.config.positions == "sinusoids":
            return {"sinusoids": sinusoids(torch.arange(num_positions), self.config.dim, base=self.config.base)}
        return super().position_tables(num_positions)

    def position_slopes(self) -> Tensor | None:
        """Return the slopes of positions=alibi, (heads,); None for other positions."""
        return alibi_slopes(self.config.heads) if self.config.positions == "alibi" else None

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
        Divergence(
            "positions, score and normalization",
            paper="rotary with base 10 000; W_Q and W_K; layer normalization",
            here="as in the papers; positions=alibi, sinusoids, learned or none, base=, score=bilinear and norm=none "
            "for comparisons",
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
