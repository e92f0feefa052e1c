"""T5: an encoder–decoder with relative positions, which treats every task as text to text.

C. Raffel, N. Shazeer, A. Roberts, K. Lee, S. Narang, M. Matena, Y. Zhou, W. Li, P. J. Liu, Exploring the limits of
transfer learning with a unified text-to-text transformer, 2019 (JMLR 2020). <https://arxiv.org/abs/1910.10683>

    x_t = E[token_t]
    Attention(q, k, v) = softmax(q kᵀ + b[distance]) v               no 1/√d; b is one table for all blocks of a stack
    x ← x + MHA(RMS(x)),   x ← x + W₂ ReLU(W₁ RMS(x))
    RMS(x) = g · x / √(mean(x²) + ε)                                 no mean subtraction, no bias, as in all layers
    p(token_{s+1} | tokens ≤ s, source) = softmax(d^−½ RMS(y_s) Eᵀ)

Shapes, from source ids (N, T) and the target so far (N, S), which begins with its `begin`, the padding 0:
    embedding of the source                  (N, T, dim)
    bias of the encoder                      (1, heads, T, T)
    each block of the encoder, normalized    (N, T, dim)
    embedding of the target                  (N, S, dim)
    bias of the decoder                      (1, heads, S, S)
    each block of the decoder, normalized    (N, S, dim)
    times d^−½, times the embedding          (N, S, vocab_size)

A distance is key − query. It falls in one of 32 buckets: in the encoder 16 for either direction, 8 of them for one
distance each and 8 that grow logarithmically up to 128; in the decoder all are for keys before the query.

With tie_weights=false the output layer is a separate matrix W_U, and there is no scaling by d^−½.

The length is not limited. Padding comes after the real tokens and changes nothing. Decoding reads one token at a time:
`begin` stores the source's keys and values, `step` those of the target so far.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ..core.errors import check_value
from ..core.spec import PairSpec
from ..nn.attention import MultiHeadAttention
from ..nn.kv_cache import Cache, LayerCache
from ..nn.masks import attention_mask, causal_mask, merge_masks, normalize_padding_mask
from ..nn.position import RelativeBias
from ..nn.transformer import MLP, Unembedding
from .base import EncoderDecoder, require_joint_vocab, target_positions
from .card import Card, Divergence, Published
from .config import ValidatedConfig, fraction, min_value, positive

EPS = 1e-6  # ε of the normalization


@dataclass(frozen=True)
class Config(ValidatedConfig):
    """Configuration of the network."""

    vocab_size: int = positive(32_128)  # size of the vocabulary of source and target
    dim: int = positive(512)  # model dimension d
    layers: int = positive(6)  # blocks of the encoder
    decoder_layers: int | None = positive(None)  # blocks of the decoder; auto: the same number
    heads: int = positive(8)  # attention heads
    head_dim: int = positive(64)  # dimension of a head's queries, keys and values; heads · head_dim may differ from dim
    ffn_dim: int | None = positive(None)  # feed-forward dimension; auto: 4 · dim
    num_buckets: int = min_value(4, 32)  # number of buckets of relative distances
    max_distance: int = 128  # distances from this on share the last bucket
    tie_weights: bool = True  # use the embedding as the output matrix W_U; else W_U is a separate matrix
    dropout: float = fraction(0.1)  # dropout rate of embedding, attention weights, hidden units and layer outputs

    def __post_init__(self) -> None:
        super().__post_init__()
        check_value(self.num_buckets % 4 == 0, "num_buckets", self.num_buckets, "at least 4 and a multiple of 4")
        ok = self.max_distance > self.num_buckets // 2
        check_value(ok, "max_distance", self.max_distance, f"more than half of num_buckets={self.num_buckets}")

    @classmethod
    def for_spec(cls, preset: Config, spec: PairSpec) -> Config:
        """Return the preset with the vocabulary of `spec`. Raises ModelError if source and target have two."""
        require_joint_vocab("t5", spec)
        return dataclasses.replace(preset, vocab_size=spec.vocab_size)


class Block(nn.Module):
    """Self-attention, in the decoder cross-attention, and an MLP on each token, each added to the residual stream."""

    def __init__(self, config: Config, *, cross_attends: bool = False) -> None:
        super().__init__()
        dim, dropout = config.dim, config.dropout
        norm = partial(nn.RMSNorm, dim, eps=EPS)
        attention = partial(
            MultiHeadAttention, dim, config.heads, key_dim=config.head_dim, bias=False, scale=1.0, dropout=dropout
        )
        self.cross_attends = cross_attends
        self.norm1 = norm()
        self.attention = attention()
        if cross_attends:
            self.cross_norm = norm()
            self.cross_attention = attention(source=dim)
        self.norm2 = norm()
        self.mlp = MLP(dim, config.ffn_dim or 4 * dim, "relu", dropout, bias=False)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self,
        x: Tensor,
        bias: Tensor | None,
        cache: LayerCache | None = None,
        source: Tensor | None = None,
        source_mask: Tensor | None = None,
        cross_kv: LayerCache | None = None,
    ) -> Tensor:
        """Map (N, T, dim) to (N, T, dim).

        `bias` (N or 1, heads, T, keys) is the relative position bias, −∞ where attention is not allowed; it and `cache`
        are for self-attention. `source` (N, S, dim), its mask (N, 1, 1, S) and `cross_kv`, the cache of its keys and
        values, are for cross-attention.
        """
        x = x + self.dropout(self.attention(self.norm1(x), mask=bias, cache=cache))  # (N, T, dim)
        if self.cross_attends:
            x = x + self.dropout(self.cross_attention(self.cross_norm(x), source, mask=source_mask, cache=cross_kv))
        y: Tensor = x + self.dropout(self.mlp(self.norm2(x)))  # (N, T, dim)
        return y


class T5(EncoderDecoder):
    """Source ids (N, T) and the target so far (N, S) to logits of the tokens that come next, (N, S, vocab_size)."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        dim = config.dim
        self.embedding = nn.Embedding(config.vocab_size, dim)  # E
        self.dropout = nn.Dropout(config.dropout)
        self.encoder_bias = RelativeBias(config.heads, config.num_buckets, config.max_distance, both=True)
        self.encoder = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.encoder_norm = nn.RMSNorm(dim, eps=EPS)
        self.decoder_bias = RelativeBias(config.heads, config.num_buckets, config.max_distance, both=False)
        layers = config.decoder_layers or config.layers
        self.decoder = nn.ModuleList(Block(config, cross_attends=True) for _ in range(layers))
        self.decoder_norm = nn.RMSNorm(dim, eps=EPS)
        self.head = Unembedding(self.embedding, tied=config.tie_weights)  # W_U
        self._initialize()

    @torch.no_grad()
    def _initialize(self) -> None:
        """Initialize each matrix so that its outputs have variance 1, with attention's 1/√d folded into the queries."""
        c = self.config
        nn.init.normal_(self.embedding.weight)
        for bias in (self.encoder_bias, self.decoder_bias):
            nn.init.normal_(bias.table.weight, std=c.dim**-0.5)
        attentions: list[tuple[Any, tuple[Tensor, ...]]] = []
        rows = c.heads * c.head_dim
        for block in (*self.encoder, *self.decoder):
            parts: Any = block
            attentions.append((parts.attention, parts.attention.qkv.weight.split(rows)))
            nn.init.normal_(parts.mlp.fc1.weight, std=c.dim**-0.5)
            nn.init.normal_(parts.mlp.fc2.weight, std=(c.ffn_dim or 4 * c.dim) ** -0.5)
        for block in self.decoder:
            cross: Any = block.cross_attention
            attentions.append((cross, (cross.q.weight, *cross.kv.weight.split(rows))))
        for attention, weights in attentions:
            for weight, inputs in zip(weights, (c.dim * c.head_dim, c.dim, c.dim)):
                nn.init.normal_(weight, std=inputs**-0.5)
            nn.init.normal_(attention.out.weight, std=rows**-0.5)

    def encode(self, source: Tensor, mask: Tensor | None) -> Tensor:
        """Return the encoder output (N, T, dim) of source ids (N, T); `mask` (N, 1, 1, T) is True at real tokens."""
        length = source.shape[1]
        x = self.dropout(self.embedding(source))  # (N, T, dim)
        bias = merge_masks(self.encoder_bias(length, length), mask)  # (N or 1, heads, T, T)
        for block in self.encoder:
            x = block(x, bias)  # (N, T, dim)
        read: Tensor = self.dropout(self.encoder_norm(x))
        return read

    def decode(self, target: Tensor, read: Tensor | None, mask: Tensor | None, cache: Cache | None = None) -> Tensor:
        """Return the input of the head for target ids (N, S), (N, S, dim).

        `read` (N, T, dim) is the encoder output of a source with that `mask` (N, 1, 1, T). With a `cache`, which holds
        the source, the ids continue after its end.
        """
        length = target.shape[1]
        _, seen, causal = target_positions(target, cache)
        keys = length if cache is None else cache.length
        if causal:
            seen = causal_mask(length, keys, target.device)
        y = self.dropout(self.embedding(target))  # (N, S, dim)
        bias = merge_masks(self.decoder_bias(length, keys), seen)  # (1, heads, S, keys)
        for i, block in enumerate(self.decoder):
            own, cross_kv = (cache.layers[i], cache.cross_layers[i]) if cache is not None else (None, None)
            y = block(y, bias, own, read, mask, cross_kv)  # (N, S, dim)
        head_input: Tensor = self.dropout(self.decoder_norm(y))  # (N, S, dim)
        return head_input * float(self.config.dim**-0.5) if self.config.tie_weights else head_input

    def features(self, source: Tensor, source_mask: Tensor | None, target_so_far: Tensor) -> Tensor:
        """Return the input of the head at each position of the target, (N, S, dim)."""
        mask = attention_mask(
            normalize_padding_mask(source_mask, source.shape), causal=False, length=source.shape[1]
        )  # (N, 1, 1, T)
        read = self.encode(source, mask)  # (N, T, dim)
        return self.decode(target_so_far, read, mask)  # (N, S, dim)

    def forward(self, source: Tensor, source_mask: Tensor | None, target_so_far: Tensor) -> Tensor:
        """Return the logits of the token after each position of the target so far, (N, S, vocab_size).

        The arguments are source ids (N, T), their mask (N, T), True where a token is real, and the target so far (N,
        S), which begins with its `begin`.
        """
        logits: Tensor = self.head(self.features(source, source_mask, target_so_far))
        return logits


Model = T5

PRESETS = {
    "t5-small": Config(),
    "t5-base": Config(dim=768, layers=12, heads=12),
}

_COUNTED = "the paper states 60 M and 220 M; exact counts from transformers, for 32 source and 32 target tokens"
_AT = (32,)

# The paper pre-trains with AdaFactor and a learning rate of s^−½; these settings are for training on little data.
_FROM_SCRATCH = {
    "optimizer": "adamw",
    "lr": 1e-3,
    "weight_decay": 0.01,
    "schedule": "warmup-cosine",
    "warmup": 0.05,
    "grad_clip": 1.0,
    "batch_size": 32,
}

CARD = Card(
    title="Exploring the limits of transfer learning with a unified text-to-text transformer",
    authors="C. Raffel, N. Shazeer, A. Roberts, K. Lee, S. Narang, M. Matena, Y. Zhou, W. Li, P. J. Liu",
    year=2019,
    link="https://arxiv.org/abs/1910.10683",
    family="transformer",
    equation="softmax(q kᵀ + b[bucket(key − query)]) v;  x ← x + MHA(RMS(x));  x ← x + FFN(RMS(x));  "
    "p = softmax(d^−½ RMS(y) Eᵀ)",
    oracle="transformers' T5ForConditionalGeneration",
    published={
        "t5-small": Published(60_506_624, 1_954_545_664, _AT, _COUNTED),
        "t5-base": Published(222_903_552, 7_187_988_480, _AT, _COUNTED),
    },
    divergences=(
        Divergence(
            "1/√d",
            paper="not specified; the released code has none",
            here="none; the query matrix is initialized smaller by √head_dim instead",
            common="none (transformers)",
        ),
        Divergence(
            "relative position bias",
            paper="shared by all blocks, with a separate bias for each head",
            here="one table for each stack; cross-attention has none",
            common="stored in the first block (transformers); old checkpoints contain an unused one of the "
            "cross-attention",
        ),
        Divergence(
            "normalization",
            paper="layer normalization with only a scale: no mean subtraction, no bias",
            here="RMS, ε = 1e-6",
            common="RMS, with the mean square in float32 even for float64 inputs (transformers)",
        ),
        Divergence(
            "v1.1",
            paper="ReLU, and one matrix for embedding and output, scaled by d^−½",
            here="as in the paper; with tie_weights=false the output has a separate matrix, without scaling, "
            "initialized with standard deviation d^−½",
            common="also v1.1: gated GELU (not implemented here); its output matrix is initialized with standard "
            "deviation 1 and not scaled (transformers)",
        ),
        Divergence(
            "optimizer",
            paper="AdaFactor",
            here="AdamW with warm-up and cosine, for little data",
        ),
    ),
    settings=dict.fromkeys(PRESETS, _FROM_SCRATCH),
)
