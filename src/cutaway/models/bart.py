"""BART: an encoder–decoder pre-trained to reconstruct a corrupted text.

M. Lewis, Y. Liu, N. Goyal, M. Ghazvininejad, A. Mohamed, O. Levy, V. Stoyanov, L. Zettlemoyer, BART: denoising
sequence-to-sequence pre-training for natural language generation, translation, and comprehension, 2019.
<https://arxiv.org/abs/1910.13461>

    x_t = LN(E[token_t] + P[t + 2])                                  a table of positions for either stack
    encoder:  x ← LN(x + MHA(x, x));  x ← LN(x + W₂ GELU(W₁ x))
    decoder:  y ← LN(y + MHA(y, y ≤)); y ← LN(y + MHA(y, x)); y ← LN(y + W₂ GELU(W₁ y))
    p(token_{s+1} | tokens ≤ s, source) = softmax(y_s Eᵀ + c)

Shapes, from source ids (N, T) and the target so far (N, S), which begins with its `begin`, the end </s>:
    embedding plus positions, normalized     (N, T, dim)
    each block of the encoder                (N, T, dim)
    embedding plus positions, normalized     (N, S, dim)
    each block of the decoder                (N, S, dim)
    times the embedding, plus c              (N, S, vocab_size)

One matrix E is the embedding of source and target and the output layer; with tie_weights=false the output layer is a
separate matrix W_U.

Texts have at most `context_length` tokens on either side. Padding comes after the real tokens and changes nothing.
Decoding reads one token at a time: `begin` stores the source's keys and values, `step` those of the target so far.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ..core.errors import InputShapeError, check_value
from ..core.spec import PairSpec
from ..nn.attention import MultiHeadAttention
from ..nn.kv_cache import Cache, LayerCache
from ..nn.masks import attention_mask, normalize_padding_mask
from ..nn.transformer import MLP, Unembedding
from .base import EncoderDecoder, require_joint_vocab, target_positions
from .card import Card, Divergence, Published, Result
from .config import ValidatedConfig, fraction, positive

OFFSET = 2  # unused first rows of the position tables
STD = 0.02  # standard deviation of the initialization


@dataclass(frozen=True)
class Config(ValidatedConfig):
    """Configuration of the network."""

    vocab_size: int = positive(50_265)  # size of the vocabulary of source and target
    context_length: int = positive(1024)  # maximum number of tokens on either side: the size of the position table
    dim: int = positive(768)  # model dimension
    layers: int = positive(6)  # blocks of the encoder
    decoder_layers: int | None = positive(None)  # blocks of the decoder; auto: the same number
    heads: int = positive(12)  # attention heads, each with dim / heads channels
    ffn_dim: int | None = positive(None)  # feed-forward dimension; auto: 4 · dim
    tie_weights: bool = True  # use the embedding as the output matrix W_U; else W_U is a separate matrix
    dropout: float = fraction(0.1)  # dropout rate of the embedding and of the output of each layer
    attention_dropout: float = fraction(0.1)  # dropout rate of the attention weights
    activation_dropout: float = fraction(0.1)  # dropout rate of the hidden units

    def __post_init__(self) -> None:
        super().__post_init__()
        check_value(self.dim % self.heads == 0, "heads", self.heads, f"at least 1 and a divisor of dim={self.dim}")

    @classmethod
    def for_spec(cls, preset: Config, spec: PairSpec) -> Config:
        """Return the preset with the vocabulary of `spec`, and positions for its texts and for outputs 1.5 times as
        long.

        Raises ModelError if source and target have separate vocabularies.
        """
        require_joint_vocab("bart", spec)
        answers = spec.target.longest + spec.target.longest // 2
        return dataclasses.replace(
            preset, vocab_size=spec.vocab_size, context_length=max(preset.context_length, spec.longest, answers)
        )


class Block(nn.Module):
    """Self-attention, in the decoder cross-attention, and an MLP on each token; after each sum a normalization."""

    def __init__(self, config: Config, *, cross_attends: bool = False) -> None:
        super().__init__()
        dim, dropout = config.dim, config.attention_dropout
        self.cross_attends = cross_attends
        self.norm1 = nn.LayerNorm(dim)
        self.attention = MultiHeadAttention(dim, config.heads, dropout=dropout)
        if cross_attends:
            self.cross_norm = nn.LayerNorm(dim)
            self.cross_attention = MultiHeadAttention(dim, config.heads, source=dim, dropout=dropout)
        self.norm2 = nn.LayerNorm(dim)
        self.mlp = MLP(dim, config.ffn_dim or 4 * dim, "gelu", config.activation_dropout)
        self.dropout = nn.Dropout(config.dropout)

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None,
        causal: bool = False,
        cache: LayerCache | None = None,
        source: Tensor | None = None,
        source_mask: Tensor | None = None,
        cross_kv: LayerCache | None = None,
    ) -> Tensor:
        """Map (N, T, dim) to (N, T, dim).

        `mask`, `causal` and `cache` are for self-attention; `source` (N, S, dim), its mask (N, 1, 1, S) and `cross_kv`,
        which keeps its keys and values, for cross-attention.
        """
        x = self.norm1(x + self.dropout(self.attention(x, mask=mask, causal=causal, cache=cache)))  # (N, T, dim)
        if self.cross_attends:
            x = self.cross_norm(x + self.dropout(self.cross_attention(x, source, mask=source_mask, cache=cross_kv)))
        y: Tensor = self.norm2(x + self.dropout(self.mlp(x)))  # (N, T, dim)
        return y


class Output(nn.Module):
    """The output layer and a constant c that is added: x W_Uᵀ + c."""

    constant: Tensor

    def __init__(self, embedding: nn.Embedding, tied: bool) -> None:
        super().__init__()
        self.words = Unembedding(embedding, tied=tied)  # W_U
        self.register_buffer("constant", torch.zeros(1, embedding.num_embeddings))  # c

    def forward(self, x: Tensor) -> Tensor:
        """Map (…, dim) to (…, vocabulary)."""
        logits: Tensor = self.words(x) + self.constant[0]
        return logits

    def last(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the input of the last matrix, the matrix and the bias."""
        return x, self.words.weight, self.constant[0]


class Bart(EncoderDecoder):
    """Source ids (N, T) and the target so far (N, S) to logits of the tokens that come next, (N, S, vocab_size)."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        dim = config.dim
        self.embedding = nn.Embedding(config.vocab_size, dim)  # E
        self.dropout = nn.Dropout(config.dropout)
        self.encoder_positions = nn.Embedding(config.context_length + OFFSET, dim)
        self.encoder_norm = nn.LayerNorm(dim)  # at the bottom
        self.encoder = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.decoder_positions = nn.Embedding(config.context_length + OFFSET, dim)
        self.decoder_norm = nn.LayerNorm(dim)  # at the bottom
        layers = config.decoder_layers or config.layers
        self.decoder = nn.ModuleList(Block(config, cross_attends=True) for _ in range(layers))
        self.head = Output(self.embedding, config.tie_weights)
        self._initialize()

    @torch.no_grad()
    def _initialize(self) -> None:
        for name, parameter in self.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(parameter)
            elif parameter.ndim == 2:
                nn.init.normal_(parameter, std=STD)

    def encode(self, source: Tensor, mask: Tensor | None) -> Tensor:
        """Return the encoder output (N, T, dim) of source ids (N, T); `mask` (N, 1, 1, T) is True where a token is
        real.

        Raises ModelError if the context is exceeded.
        """
        self._reject_beyond(source.shape[1])
        positions = torch.arange(source.shape[1], device=source.device)
        words = self.embedding(source) + self.encoder_positions(positions + OFFSET)  # (N, T, dim)
        x: Tensor = self.dropout(self.encoder_norm(words))
        for block in self.encoder:
            x = block(x, mask)  # (N, T, dim)
        return x

    def decode(self, target: Tensor, read: Tensor | None, mask: Tensor | None, cache: Cache | None = None) -> Tensor:
        """Return the input of the head for target ids (N, S), (N, S, dim).

        `read` (N, T, dim) is the encoder output of a source with that `mask` (N, 1, 1, T). With a `cache`, which holds
        the source, the ids continue after its end. Raises ModelError if the context is exceeded.
        """
        self._reject_beyond(target.shape[1] + (cache.length if cache is not None else 0))
        positions, seen, causal = target_positions(target, cache)
        words = self.embedding(target) + self.decoder_positions(positions + OFFSET)  # (N, S, dim)
        y: Tensor = self.dropout(self.decoder_norm(words))  # (N, S, dim)
        for i, block in enumerate(self.decoder):
            own, cross_kv = (cache.layers[i], cache.cross_layers[i]) if cache is not None else (None, None)
            y = block(y, seen, causal, own, read, mask, cross_kv)  # (N, S, dim)
        return y

    def features(self, source: Tensor, source_mask: Tensor | None, target_so_far: Tensor) -> Tensor:
        """Return the input of the head at each place of the target, (N, S, dim)."""
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

    def position_tables(self, num_positions: int) -> dict[str, Tensor]:
        """Return the position embeddings of encoder and decoder, from the row of the first token on."""
        return {name: rows[OFFSET:] for name, rows in super().position_tables(num_positions).items()}

    def _reject_beyond(self, length: int) -> None:
        if length > self.config.context_length:
            raise InputShapeError(
                f"bart has learned positions for {self.config.context_length:,} tokens on either side, and these are "
                f"{length:,}: give fewer, or a larger model.context_length in training."
            )


Model = Bart

PRESETS = {
    "bart-base": Config(),
    "bart-large": Config(dim=1024, layers=12, heads=16),
}

_COUNTED = "counted on transformers' network, for 32 tokens on either side; fairseq names 140 M and 400 M"
_AT = (32,)

# The paper gives no rate for its pre-training. The network is post-norm, so it needs a long warm-up on little data.
_FROM_SCRATCH = {
    "optimizer": "adamw",
    "lr": 3e-4,
    "weight_decay": 0.01,
    "schedule": "warmup-cosine",
    "warmup": 0.1,
    "grad_clip": 1.0,
    "label_smoothing": 0.1,
    "batch_size": 32,
}

CARD = Card(
    title="BART: denoising sequence-to-sequence pre-training for natural language generation, translation, and "
    "comprehension",
    authors="M. Lewis, Y. Liu, N. Goyal, M. Ghazvininejad, A. Mohamed, O. Levy, V. Stoyanov, L. Zettlemoyer",
    year=2019,
    link="https://arxiv.org/abs/1910.13461",
    family="transformer",
    equation="x = LN(E + P);  x ← LN(x + MHA(x));  y ← LN(y + MHA(y, x));  x ← LN(x + FFN(x));  p = softmax(y Eᵀ + c)",
    oracle="transformers' BartForConditionalGeneration",
    published={
        "bart-base": Published(139_420_416, 4_434_518_016, _AT, _COUNTED),
        "bart-large": Published(406_291_456, 12_996_870_144, _AT, _COUNTED),
    },
    divergences=(
        Divergence(
            "positions",
            paper="not specified",
            here="learned, 1 026 rows for 1 024 tokens in either stack: the first two are unused, for compatibility "
            "with published weights",
            common="as here (transformers, fairseq, which counts from after the padding's id, 1)",
        ),
        Divergence(
            "normalization of the embedding",
            paper="not specified",
            here="one after embedding plus positions, in either stack",
            common="as here (transformers, fairseq)",
        ),
        Divergence(
            "constant of the output",
            paper="not specified",
            here="c, a buffer of zeros that is not trained, as in published weights",
            common="final_logits_bias, as here (transformers)",
        ),
        Divergence(
            "GELU",
            paper="GELU instead of ReLU",
            here="exact",
            common="exact (transformers, fairseq)",
        ),
        Divergence(
            "first token of the target",
            paper="not specified",
            here="the end token </s>, 2, with published weights; `begin` with another vocabulary",
            common="</s> (transformers, fairseq)",
        ),
    ),
    results={
        "bart-large": (
            Result(
                "GLUE",
                {
                    "MNLI": 89.9,
                    "QNLI": 94.9,
                    "QQP": 92.5,
                    "RTE": 87.0,
                    "SST-2": 96.6,
                    "MRPC": 90.4,
                    "CoLA": 62.8,
                    "STS-B": 91.2,
                },
                "development set, one task at a time",
                "the authors' release (fairseq)",
                unit="",
            ),
            Result("SQuAD 1.1", {"EM": 88.8, "F1": 94.6}, "development set", "the authors' release (fairseq)"),
            Result(
                "CNN/Daily Mail",
                {"ROUGE-1": 44.16, "ROUGE-2": 21.28, "ROUGE-L": 40.90},
                "test set",
                "the authors' release (fairseq)",
                unit="",
            ),
        ),
    },
    settings=dict.fromkeys(PRESETS, _FROM_SCRATCH),
)
