"""A Transformer encoder: the left half of the Transformer, for classes, values and tags of texts and series.

A. Vaswani et al., Attention is all you need, 2017. <https://arxiv.org/abs/1706.03762>

    x⁰_t = √d · E[token_t] + PE(t)                 numeric steps: x⁰_t = W_in x_t + b_in + PE(t)
    x ← LN(x + α₁ A(x)),   x ← LN(x + α₂ M(x))     in each block; α₁ = α₂ = 1 unless set
    z = LN(x)                                      one more normalization after the last block
    classes:   W_c · mean_t z_t + b_c              over real tokens; with pooling=first, of z₁
    tags:      W_c z_t + b_c

      a block          x ──────────┐                 A    multi-head attention of all tokens to all tokens
                       │           A                 M    two linear layers, ReLU between
                       + ◄─ α₁ · ──┘                 LN   layer normalization of each token
                       LN
                       ├───────────┐
                       │           M
                       + ◄─ α₂ · ──┘
                       LN

This is `nn.TransformerEncoder` with a normalization at the end, between an embedding with sinusoids and a linear head.
With `order=pre` each sub-layer normalizes its input instead: x ← x + α₁ A(LN(x)). With `norm=none` nothing is
normalized, and a block is the plain equation with S = A(X):

    Z = α₁ S + X,   Y = ReLU(Z F₁) F₂,   X ← α₂ Y + Z                   F₁ and F₂ with their biases

Shapes, from token ids (N, T) or numbers (N, T, F):
    embedding plus positions                 (N, T, dim)
    each block                               (N, T, dim)
    classes                                  (N, classes), from the pooled tokens (N, dim)
    tags                                     (N, T, tags)

Sinusoids do not limit the length. No token attends to padding, on either side, positions count real tokens, and the
outputs of padding have no meaning. With `pooling=first`, add the data setting `special_tokens=true`, so that the first
token is [CLS].
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ..core.errors import check_value
from ..core.spec import Classes, SeriesSpec, Tags, TextSpec, Value
from ..nn.attention import MultiHeadAttention
from ..nn.masks import attention_mask, normalize_padding_mask, position_ids
from ..nn.position import BASE, sinusoids
from ..nn.transformer import MLP
from .base import BaseModel
from .card import Card, Divergence, Published
from .config import ValidatedConfig, choice, fraction, min_value, positive

ORDERS = ("post", "pre")
NORMS = ("layer", "none")
POOLINGS = ("mean", "first")
HEADS = ("classes", "tags")


@dataclass(frozen=True)
class Config(ValidatedConfig):
    """Configuration of the network."""

    vocab_size: int = min_value(0, 10_000)  # size of the vocabulary; 0 for numeric input
    in_features: int = positive(1)  # F, features at each step of numeric input
    dim: int = positive(128)  # model dimension d
    layers: int = positive(2)  # number of blocks
    heads: int = positive(4)  # attention heads, each with dim / heads channels
    ffn_dim: int | None = positive(None)  # feed-forward dimension; auto: 4 · dim
    dropout: float = fraction(0.1)  # dropout rate of the output of each sub-layer, and of embedding plus positions
    order: str = choice("post", ORDERS)  # order of the normalization: post, after each sum; pre, before each sub-layer
    norm: str = choice("layer", NORMS)  # layer normalization, or none
    strengths: tuple[float, float] = (1.0, 1.0)  # α₁ and α₂, factors of the outputs of attention and MLP
    base: float = min_value(1, BASE)  # base of the angles of the sinusoids
    pooling: str = choice("mean", POOLINGS)  # input of the head for classes: mean of the tokens, or the first
    head: str = choice("classes", HEADS)  # classes: one output for an example; tags: one for each token
    num_classes: int = positive(2)  # size of the output

    def __post_init__(self) -> None:
        super().__post_init__()
        check_value(self.dim % self.heads == 0, "heads", self.heads, f"at least 1 and a divisor of dim={self.dim}")
        two = len(self.strengths) == 2 and all(math.isfinite(strength) for strength in self.strengths)
        check_value(two, "strengths", self.strengths, "two numbers, of attention and MLP")

    @classmethod
    def for_spec(cls, preset: Config, spec: TextSpec | SeriesSpec) -> Config:
        """Return the preset with the inputs and the target of `spec`."""
        head = "tags" if isinstance(spec.target, Tags) else "classes"
        config = dataclasses.replace(preset, head=head, num_classes=spec.target.outputs)
        if isinstance(spec, TextSpec):
            return dataclasses.replace(config, vocab_size=spec.vocab_size)
        return dataclasses.replace(config, vocab_size=0, in_features=spec.features)


class Block(nn.Module):
    """Attention over all tokens, then an MLP on each, both added to the residual stream."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        dim = config.dim
        self.order, self.strengths = config.order, config.strengths
        self.norm1 = _norm(config)
        self.attention = MultiHeadAttention(dim, config.heads)
        self.norm2 = _norm(config)
        self.mlp = MLP(dim, config.ffn_dim or 4 * dim, "relu")
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Map (N, T, dim) to (N, T, dim). `mask` (N, 1, 1, T) is True where a token is real."""
        a1, a2 = self.strengths
        if self.order == "pre":
            x = x + a1 * self.dropout(self.attention(self.norm1(x), mask=mask))  # (N, T, dim)
            x = x + a2 * self.dropout(self.mlp(self.norm2(x)))  # (N, T, dim)
        else:
            x = self.norm1(x + a1 * self.dropout(self.attention(x, mask=mask)))  # (N, T, dim)
            x = self.norm2(x + a2 * self.dropout(self.mlp(x)))  # (N, T, dim)
        return x


def _norm(config: Config) -> nn.Module:
    return nn.LayerNorm(config.dim) if config.norm == "layer" else nn.Identity()


class TransformerEncoder(BaseModel):
    """Token ids (N, T) or numbers (N, T, F) to logits: (N, classes) or (N, T, tags)."""

    takes = (TextSpec, SeriesSpec)
    targets = (Classes, Value, Tags)

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.embedding: nn.Module
        if config.vocab_size:
            self.embedding = nn.Embedding(config.vocab_size, config.dim)  # E
        else:
            self.embedding = nn.Linear(config.in_features, config.dim)  # W_in
        self.dropout = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = _norm(config)
        self.head = nn.Linear(config.dim, config.num_classes)  # W_c
        self._initialize()

    @torch.no_grad()
    def _initialize(self) -> None:
        """Initialize matrices by X. Glorot's rule and biases with 0, as attention already is."""
        for name, parameter in self.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(parameter)
            elif name == "embedding.weight" and self.config.vocab_size:
                nn.init.normal_(parameter, std=self.config.dim**-0.5)
            elif parameter.ndim == 2 and "attention" not in name:
                nn.init.xavier_uniform_(parameter)

    def position_tables(self, num_positions: int) -> dict[str, Tensor]:
        """Return the sinusoidal position encodings PE, (num_positions, dim)."""
        return {"sinusoids": sinusoids(torch.arange(num_positions), self.config.dim, base=self.config.base)}

    def embed(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the input of the first block, (N, T, dim). With a `mask` (N, T) positions count real tokens only."""
        z = self.embedding(x)  # (N, T, dim)
        if self.config.vocab_size:
            z = z * math.sqrt(self.config.dim)
        positions = torch.arange(x.shape[1], device=x.device) if mask is None else position_ids(mask)  # (T,) or (N, T)
        y: Tensor = self.dropout(z + sinusoids(positions, self.config.dim, z.dtype, self.config.base))
        return y

    def hidden(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the normalized output of the last block, (N, T, dim). `mask` (N, T) is True where a token is real."""
        mask = normalize_padding_mask(mask, x.shape)
        seen = attention_mask(mask, causal=False, length=x.shape[1])  # (N, 1, 1, T)
        z = self.embed(x, mask)
        for block in self.blocks:
            z = block(z, seen)  # (N, T, dim)
        y: Tensor = self.norm(z)
        return y

    def features(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the input of the head: each token, (N, T, dim), or for classes the pooled tokens, (N, dim)."""
        mask = normalize_padding_mask(mask, x.shape)
        z = self.hidden(x, mask)
        if self.config.head == "tags":
            return z
        if mask is None:
            return z.mean(1) if self.config.pooling == "mean" else z[:, 0]
        if self.config.pooling == "mean":
            real = mask[..., None].to(z.dtype)  # (N, T, 1)
            return (z * real).sum(1) / real.sum(1).clamp(min=1)
        return z[torch.arange(len(z), device=z.device), mask.int().argmax(1)]  # the first real token

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the logits, shape (N, classes) or (N, T, tags), of token ids (N, T) or numbers (N, T, F)."""
        logits: Tensor = self.head(self.features(x, mask))
        return logits


Model = TransformerEncoder

PRESETS = {
    "transformer-encoder": Config(),
    "transformer-encoder-base": Config(dim=512, layers=6, heads=8),
}

_COUNTED = "computed from the definition above, for {} tokens of {:,} different ones and 2 classes"
_AT = (32,)

_SETTINGS = {
    "optimizer": "adamw",
    "lr": 1e-3,
    "weight_decay": 0.01,
    "schedule": "warmup-cosine",
    "warmup": 0.1,
    "grad_clip": 1.0,
    "batch_size": 32,
}

CARD = Card(
    title="Attention is all you need",
    authors="A. Vaswani, N. Shazeer, N. Parmar, J. Uszkoreit, L. Jones, A. N. Gomez, Ł. Kaiser, I. Polosukhin",
    year=2017,
    link="https://arxiv.org/abs/1706.03762",
    family="transformer",
    equation="x = √d E + PE;  x ← LN(x + α₁ A(x));  x ← LN(x + α₂ M(x));  logits = W_c mean_t LN(x_t) + b_c",
    oracle="torch.nn.TransformerEncoder; embedding, positions, pooling and output written out",
    published={
        "transformer-encoder": Published(1_677_058, 13_107_456, _AT, _COUNTED.format(32, 10_000)),
        "transformer-encoder-base": Published(24_036_354, 610_272_256, _AT, _COUNTED.format(32, 10_000)),
    },
    divergences=(
        Divergence(
            "encoder without a decoder",
            paper="an encoder–decoder; no classes or tags",
            here="the encoder, with a linear head on the mean of the tokens, or on each token",
            common="the mean, or a first token [CLS] (pooling=first special_tokens=true); BERT adds a layer before "
            "the head",
        ),
        Divergence(
            "normalization after the last block",
            paper="none: the last sum is normalized already",
            here="one more, as torch.nn.Transformer has after each stack",
            common="one more; none in nn.TransformerEncoder unless norm= is given",
        ),
        Divergence(
            "dropout",
            paper="on the output of each sub-layer and on the sums of embeddings and positions",
            here="as in the paper",
            common="also of the attention weights and within the MLP (torch.nn.TransformerEncoderLayer)",
        ),
        Divergence(
            "√d",
            paper="only the embedding, before the positions are added",
            here="as in the paper; numeric steps are not scaled",
            common="no factor, or (embedding + position) · √d",
        ),
        Divergence(
            "normalization and residual strengths α₁, α₂",
            paper="after each sum; 1",
            here="as in the paper; order=pre, norm=none and strengths=α₁,α₂ are configurable",
        ),
        Divergence(
            "size",
            paper="6 blocks, dim 512, 8 heads, ffn_dim 2048",
            here="transformer-encoder-base has that size; transformer-encoder has 2 blocks, dim 128, 4 heads and "
            "ffn_dim 512, for a CPU",
        ),
    ),
    settings={"transformer-encoder": _SETTINGS, "transformer-encoder-base": _SETTINGS | {"lr": 1e-4}},
)
