"""GPT-2: a causal Transformer decoder, which predicts each token from those before it.

A. Radford, J. Wu, R. Child, D. Luan, D. Amodei, I. Sutskever, Language models are unsupervised multitask learners,
2019. <https://github.com/openai/gpt-2>

    z⁰_t = E[token_t] + P[t]
    z ← z + MHA(LN(z)),   z ← z + MLP(LN(z))
    MHA(x) = [head₁ ‖ … ‖ head_h] W_O,   head_i = softmax(q_i k_iᵀ / √d) v_i       causal: token t attends to tokens ≤ t
    p(token_{t+1} | tokens ≤ t) = softmax(LN(z_t) Eᵀ)

Shapes, from token ids (N, T):
    embedding plus positions                 (N, T, dim)
    queries, keys and values of a block      (N, heads, T, d)
    each block                               (N, T, dim)
    normalized, times the embedding          (N, T, vocab_size)

The output layer is the embedding, or with tie_weights=false a separate matrix W_U. For classes the head is a linear
layer without bias on the last token, which attends to all others.

Padding on either side changes nothing: no token attends to it, and positions count real tokens, as in transformers'
`generate`. `extend` (`base.py`) continues from a cache, one or more tokens at a time, with the same result as `forward`
at the last of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..core.errors import InputShapeError, check_value
from ..core.spec import TextSpec
from ..nn.attention import AttentionRecord, MultiHeadAttention
from ..nn.kv_cache import Cache, LayerCache, position_ids_and_mask
from ..nn.masks import last_token, normalize_padding_mask
from ..nn.transformer import MLP, Unembedding
from .base import CausalLanguageModel
from .card import Card, Divergence, Published, Result
from .config import ValidatedConfig, choice, fit_language_model, fraction, positive

STD = 0.02  # standard deviation of the initialization
HEADS = ("next", "classes")


@dataclass(frozen=True)
class Config(ValidatedConfig):
    """Configuration of the network."""

    vocab_size: int = positive(50_257)  # size of the vocabulary
    context_length: int = positive(1024)  # maximum number of tokens: the size of the position table
    dim: int = positive(768)  # model dimension
    layers: int = positive(12)  # number of blocks
    heads: int = positive(12)  # attention heads, each with dim / heads channels
    ffn_dim: int | None = positive(None)  # feed-forward dimension; auto: 4 · dim
    dropout: float = fraction(0.1)  # dropout rate of the output of each layer
    embedding_dropout: float | None = fraction(None)  # dropout rate of embedding plus positions; auto: dropout
    attention_dropout: float | None = fraction(None)  # dropout rate of the attention weights; auto: dropout
    tie_weights: bool = True  # use the embedding as the output matrix W_U; else W_U is a separate matrix
    head: str = choice("next", HEADS)  # next: logits of the next token; classes: one output for a text
    num_classes: int = positive(2)  # size of the output of the head for classes

    def __post_init__(self) -> None:
        super().__post_init__()
        check_value(self.dim % self.heads == 0, "heads", self.heads, f"at least 1 and a divisor of dim={self.dim}")

    @property
    def rates(self) -> tuple[float, float, float]:
        """The dropout rates of layer outputs, of the embedding and of the attention weights."""
        embedding, attention = self.embedding_dropout, self.attention_dropout
        return (
            self.dropout,
            self.dropout if embedding is None else embedding,
            self.dropout if attention is None else attention,
        )

    @classmethod
    def for_spec(cls, preset: Config, spec: TextSpec) -> Config:
        """Return the preset with the vocabulary, the length and the target of `spec`."""
        return fit_language_model(preset, spec)


class CausalSelfAttention(MultiHeadAttention):
    """Attention of each token to itself and the tokens before it: (N, T, dim) to (N, T, dim)."""

    standard = True  # the same computation as MultiHeadAttention.forward, written out

    def forward(  # type: ignore[override]  # no cross-attention, and learned positions
        self, x: Tensor, *, mask: Tensor | None = None, causal: bool = True, cache: LayerCache | None = None
    ) -> Tensor:
        """Map (N, T, dim) to (N, T, dim).

        `mask` (N or 1, 1, T, S) is True where attention is allowed, and replaces `causal`. With a `cache`, the S keys
        and values are those of the earlier tokens and of these T.
        """
        n, length, _ = x.shape
        q, k, v = self.qkv(x).chunk(3, dim=2)  # (N, T, heads · d) each
        q = q.view(n, length, self.heads, -1).transpose(1, 2)  # (N, heads, T, d)
        k = k.view(n, length, self.heads, -1).transpose(1, 2)  # (N, heads, T, d)
        v = v.view(n, length, self.heads, -1).transpose(1, 2)  # (N, heads, T, d)
        if cache is not None:
            k, v = cache.append(k, v)  # (N, heads, S, d)
        causal = causal and bool(length > 1)  # a single token is the last one and attends to all
        if self.seen is not None:
            self.seen.append(AttentionRecord(q.detach(), k.detach(), mask, causal, self.scale))
        dropout = self.dropout if self.training else 0.0
        # softmax(q kᵀ / √d) v, without the attention matrix in memory
        y = F.scaled_dot_product_attention(q, k, v, mask, dropout, causal, scale=self.scale)  # (N, heads, T, d)
        joined: Tensor = self.out(y.transpose(1, 2).flatten(2))  # concatenated heads times W_O: (N, T, dim)
        return joined


class Block(nn.Module):
    """Attention over the tokens so far, then an MLP on each, both added to the residual stream."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        dim, (dropout, _, attention_dropout) = config.dim, config.rates
        self.norm1 = nn.LayerNorm(dim)
        self.attention = CausalSelfAttention(dim, config.heads, dropout=attention_dropout)
        self.norm2 = nn.LayerNorm(dim)
        self.mlp = MLP(dim, config.ffn_dim or 4 * dim, "gelu-tanh")
        self.dropout = nn.Dropout(dropout)

    def forward(self, z: Tensor, mask: Tensor | None = None, cache: LayerCache | None = None) -> Tensor:
        """Map (N, T, dim) to (N, T, dim); attention is causal, or where the `mask` (N or 1, 1, T, S) is True."""
        z = z + self.dropout(self.attention(self.norm1(z), mask=mask, causal=mask is None, cache=cache))  # (N, T, dim)
        y: Tensor = z + self.dropout(self.mlp(self.norm2(z)))  # (N, T, dim)
        return y


class GPT2(CausalLanguageModel):
    """(N, T) token ids to (N, T, vocab_size) logits of the token after each, or to (N, classes)."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        dim, (_, embedding_dropout, _) = config.dim, config.rates
        self.embedding = nn.Embedding(config.vocab_size, dim)  # E
        self.positions = nn.Embedding(config.context_length, dim)  # P
        self.dropout = nn.Dropout(embedding_dropout)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(dim)
        self.head: nn.Module
        if config.head == "next":
            self.head = Unembedding(self.embedding, tied=config.tie_weights)  # W_U
        else:
            self.head = nn.Linear(dim, config.num_classes, bias=False)
        init_weights(self, config.layers)
        nn.init.normal_(self.positions.weight, std=STD / 2)

    def hidden(self, tokens: Tensor, mask: Tensor | None = None, cache: Cache | None = None) -> Tensor:
        """Return the normalized output of the last block, (N, T, dim).

        `mask` (N, T) is True where a token is real. With a `cache` the tokens continue after its end. Raises ModelError
        if the context is exceeded.
        """
        length, context = tokens.shape[1] if cache is None else cache.longest(tokens), self.config.context_length
        if length > context:
            raise InputShapeError(
                f"gpt2 has learned positions for {context:,} tokens, and these are {length:,}: give fewer, or a larger "
                "model.context_length in training."
            )
        if mask is None and cache is None:  # every token attends to itself and earlier tokens
            positions, visible = torch.arange(length, device=tokens.device), None  # (T,)
        else:  # padded, or continued
            positions, visible = position_ids_and_mask(tokens, mask, cache)  # (N, T), (N, 1, T, S)
        z = self.dropout(self.embedding(tokens) + self.positions(positions))  # (N, T, dim)
        for i, block in enumerate(self.blocks):
            z = block(z, visible, cache.layers[i] if cache is not None else None)  # (N, T, dim)
        y: Tensor = self.norm(z)  # (N, T, dim)
        return y

    def features(self, tokens: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the input of the head: each token, (N, T, dim), or for classes the last real token, (N, dim)."""
        if mask is not None:
            mask = normalize_padding_mask(mask, tokens.shape)
        z = self.hidden(tokens, mask)
        return z if self.config.head == "next" else last_token(z, mask)

    def forward(self, tokens: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the logits, shape (N, T, vocab_size) or (N, classes), of token ids (N, T)."""
        logits: Tensor = self.head(self.features(tokens, mask))
        return logits


@torch.no_grad()
def init_weights(model: nn.Module, layers: int) -> None:
    """Initialize matrices with standard deviation 0.02 and biases with 0.

    The 2 · `layers` matrices that end a residual branch are scaled by 1/√(2 · layers), so that the variance of their
    sum stays the same.
    """
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            nn.init.zeros_(parameter)
        elif parameter.ndim == 2:
            is_residual = name.endswith(("attention.out.weight", "mlp.fc2.weight"))
            nn.init.normal_(parameter, std=STD / math.sqrt(2 * layers) if is_residual else STD)


Model = GPT2


def _size(dim: int, layers: int, heads: int) -> Config:
    return Config(dim=dim, layers=layers, heads=heads)


PRESETS = {
    "gpt2": _size(768, 12, 12),
    "gpt2-medium": _size(1024, 24, 16),
    "gpt2-large": _size(1280, 36, 20),
    "gpt2-xl": _size(1600, 48, 25),
}

_COUNTED = "OpenAI's model card names 124M, 355M, 774M and 1.5B; exact counts from transformers' implementation"
_SHAPE = (1024,)

# Schedule and weight decay of GPT-3's appendix B, which the GPT-2 paper does not specify; the learning rate is for
# small models.
_FROM_SCRATCH = {
    "optimizer": "adamw",
    "lr": 1e-3,
    "weight_decay": 0.1,
    "schedule": "warmup-cosine",
    "warmup": 0.05,
    "grad_clip": 1.0,
    "batch_size": 12,
}

# Learning rate and epochs of GPT's fine-tuning (A. Radford et al., 2018, section 4.1), the same for all layers.
_FROM_WEIGHTS = {"lr": 6.25e-5, "epochs": 3, "freeze_epochs": 0, "layer_decay": 1.0}


_CORPORA = ("LAMBADA", "WikiText-2", "Penn Treebank", "WikiText-103")


def _zero_shot(*perplexities: float) -> tuple[Result, ...]:
    return tuple(
        Result(corpus, {"perplexity": value}, "zero-shot", "the paper, table 3", unit="")
        for corpus, value in zip(_CORPORA, perplexities, strict=True)
    )


CARD = Card(
    title="Language models are unsupervised multitask learners",
    authors="A. Radford, J. Wu, R. Child, D. Luan, D. Amodei, I. Sutskever",
    year=2019,
    link="https://github.com/openai/gpt-2",
    family="transformer",
    equation="z ← z + MHA(LN(z));  z ← z + MLP(LN(z));  p = softmax(LN(z) Eᵀ)",
    oracle="transformers' GPT2LMHeadModel and GPT2ForSequenceClassification",
    published={
        "gpt2": Published(124_439_808, 145_824_153_600, _SHAPE, _COUNTED),
        "gpt2-medium": Published(354_823_168, 413_475_536_896, _SHAPE, _COUNTED),
        "gpt2-large": Published(774_030_080, 887_285_350_400, _SHAPE, _COUNTED),
        "gpt2-xl": Published(1_557_611_200, 1_753_351_782_400, _SHAPE, _COUNTED),
    },
    divergences=(
        Divergence(
            "initialization of residual layers",
            paper="scaled by 1/√N, N the number of residual layers",
            here="standard deviation 0.02 / √(2 · blocks), with two such layers per block, so that the residual "
            "stream keeps its variance",
            common="as here (transformers); the released code has no such scaling",
        ),
        Divergence(
            "initialization of positions",
            paper="not specified; the released code: standard deviation 0.01",
            here="0.01",
            common="0.02 (transformers, nanoGPT)",
        ),
        Divergence(
            "GELU",
            paper="tanh approximation, in the released code",
            here="tanh approximation",
            common="tanh approximation (transformers); exact (nanoGPT)",
        ),
        Divergence(
            "parameters",
            paper="117M and 345M in the first version, due to a counting error",
            here="124M and 355M",
        ),
    ),
    results={
        "gpt2": _zero_shot(35.13, 29.41, 65.85, 37.50),
        "gpt2-medium": _zero_shot(15.60, 22.76, 47.33, 26.37),
        "gpt2-large": _zero_shot(10.87, 19.93, 40.31, 22.05),
        "gpt2-xl": _zero_shot(8.63, 18.34, 35.76, 17.48),
    },
    settings=dict.fromkeys(PRESETS, _FROM_SCRATCH),
    fine_tuning=dict.fromkeys(PRESETS, _FROM_WEIGHTS),
)
