"""The Transformer: an encoder–decoder that consists of attention only, for sequence-to-sequence tasks.

A. Vaswani, N. Shazeer, N. Parmar, J. Uszkoreit, L. Jones, A. N. Gomez, Ł. Kaiser, I. Polosukhin, Attention is all you
need, 2017. <https://arxiv.org/abs/1706.03762>

    x_t = √d · E[token_t] + PE(t)                                    only the embedding is scaled
    encoder:  x ← LN(x + MHA(x, x));  x ← LN(x + W₂ ReLU(W₁ x))
    decoder:  y ← LN(y + MHA(y, y ≤)); y ← LN(y + MHA(y, x)); y ← LN(y + W₂ ReLU(W₁ y))
    p(token_{s+1} | tokens ≤ s, source) = softmax(y_s Eᵀ)

Shapes, from source ids (N, T) and the target so far (N, S), which begins with its `begin`:
    embedding of the source plus positions   (N, T, dim)
    each block of the encoder                (N, T, dim)
    embedding of the target plus positions   (N, S, dim)
    each block of the decoder                (N, S, dim)
    times the embedding                      (N, S, vocab_size)

One matrix E is the embedding of source and target and the output layer, if both have one vocabulary. With two
vocabularies the source has its own matrix, and the target's is still the output layer; tie_weights=false makes the
output layer a separate matrix W_U.

Sinusoids do not limit the length. Padding on either side changes nothing. Decoding reads one token at a time: `begin`
stores the source's keys and values, `step` those of the target so far.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ..core.errors import check_value
from ..core.spec import PairSpec
from ..nn.attention import MultiHeadAttention
from ..nn.kv_cache import Cache, LayerCache
from ..nn.masks import attention_mask, normalize_padding_mask, position_ids
from ..nn.position import BASE, sinusoids
from ..nn.transformer import MLP, Unembedding
from .base import EncoderDecoder, parse_forward_args, target_positions
from .card import Card, Divergence, Published, Result
from .config import ValidatedConfig, choice, fraction, min_value, positive

ORDERS = ("post", "pre")


@dataclass(frozen=True)
class Config(ValidatedConfig):
    """Configuration of the network."""

    vocab_size: int = positive(37_000)  # size of the source vocabulary
    target_vocab_size: int | None = positive(None)  # size of the target vocabulary; auto: that of the source
    joint_vocab: bool = True  # share the embedding of source and target; else the source has its own
    dim: int = positive(512)  # model dimension d
    layers: int = positive(6)  # blocks of the encoder
    decoder_layers: int | None = positive(None)  # blocks of the decoder; auto: the same number
    heads: int = positive(8)  # attention heads, each with dim / heads channels
    ffn_dim: int | None = positive(None)  # feed-forward dimension; auto: 4 · dim
    dropout: float = fraction(0.1)  # dropout rate of the output of each sub-layer, and of embedding plus positions
    tie_weights: bool = True  # use the embedding as the output matrix W_U; else W_U is a separate matrix
    order: str = choice("post", ORDERS)  # order of the normalization: post, after each sum; pre, before each sub-layer
    base: float = min_value(1, BASE)  # base of the angles of the sinusoids

    def __post_init__(self) -> None:
        super().__post_init__()
        check_value(self.dim % self.heads == 0, "heads", self.heads, f"at least 1 and a divisor of dim={self.dim}")
        ok = not self.joint_vocab or self.target_vocab_size in (None, self.vocab_size)
        allowed = f"vocab_size={self.vocab_size}: joint_vocab=true has one for both sides"
        check_value(ok, "target_vocab_size", self.target_vocab_size, allowed)

    @classmethod
    def for_spec(cls, preset: Config, spec: PairSpec) -> Config:
        """Return the preset with the vocabularies of `spec`."""
        return dataclasses.replace(
            preset, vocab_size=spec.vocab_size, target_vocab_size=spec.target.outputs, joint_vocab=spec.joint_vocab
        )


class Block(nn.Module):
    """Self-attention, in the decoder cross-attention, and an MLP on each token, each added to the residual stream."""

    def __init__(self, config: Config, *, cross_attends: bool = False) -> None:
        super().__init__()
        dim = config.dim
        self.order, self.cross_attends = config.order, cross_attends
        self.norm1 = nn.LayerNorm(dim)
        self.attention = MultiHeadAttention(dim, config.heads)
        if cross_attends:
            self.cross_norm = nn.LayerNorm(dim)
            self.cross_attention = MultiHeadAttention(dim, config.heads, source=dim)
        self.norm2 = nn.LayerNorm(dim)
        self.mlp = MLP(dim, config.ffn_dim or 4 * dim, "relu")
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
        if self.order == "pre":
            x = x + self.dropout(self.attention(self.norm1(x), mask=mask, causal=causal, cache=cache))  # (N, T, dim)
            if self.cross_attends:
                x = x + self.dropout(self.cross_attention(self.cross_norm(x), source, mask=source_mask, cache=cross_kv))
            x = x + self.dropout(self.mlp(self.norm2(x)))  # (N, T, dim)
        else:
            x = self.norm1(x + self.dropout(self.attention(x, mask=mask, causal=causal, cache=cache)))  # (N, T, dim)
            if self.cross_attends:
                x = self.cross_norm(x + self.dropout(self.cross_attention(x, source, mask=source_mask, cache=cross_kv)))
            x = self.norm2(x + self.dropout(self.mlp(x)))  # (N, T, dim)
        return x


class Transformer(EncoderDecoder):
    """Source ids (N, T) and the target so far (N, S) to logits of the tokens that come next, (N, S, vocab_size)."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        dim = config.dim
        self.embedding = nn.Embedding(config.vocab_size, dim)  # E, or the source's
        self.target_embedding = (
            None if config.joint_vocab else nn.Embedding(config.target_vocab_size or config.vocab_size, dim)
        )
        self.dropout = nn.Dropout(config.dropout)
        self.encoder = nn.ModuleList(Block(config) for _ in range(config.layers))
        layers = config.decoder_layers or config.layers
        self.decoder = nn.ModuleList(Block(config, cross_attends=True) for _ in range(layers))
        last = nn.LayerNorm if config.order == "pre" else nn.Identity
        self.encoder_norm, self.decoder_norm = last(dim), last(dim)
        self.head = Unembedding(self._words, tied=config.tie_weights)  # W_U
        self._initialize()

    @torch.no_grad()
    def _initialize(self) -> None:
        """Initialize matrices by X. Glorot's rule and biases with 0, as attention already is."""
        for name, parameter in self.named_parameters():
            if "mlp" in name:
                nn.init.zeros_(parameter) if name.endswith("bias") else nn.init.xavier_uniform_(parameter)
            elif "embedding" in name:
                nn.init.normal_(parameter, std=self.config.dim**-0.5)

    @property
    def _words(self) -> nn.Embedding:
        """Return the embedding of the target."""
        return self.embedding if self.target_embedding is None else self.target_embedding

    def position_tables(self, num_positions: int) -> dict[str, Tensor]:
        """Return the sinusoidal position encodings PE, (num_positions, dim)."""
        return {"sinusoids": sinusoids(torch.arange(num_positions), self.config.dim, base=self.config.base)}

    def _embed_tokens(self, words: nn.Embedding, tokens: Tensor, places: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return √d · E[tokens] + PE(places), (N, T, dim); the factor does not apply to the positions.

        With a `mask` (N, 1, 1, T) positions count real tokens only.
        """
        x = words(tokens) * math.sqrt(self.config.dim)
        positions = sinusoids(places, self.config.dim, x.dtype, self.config.base)  # (T, dim)
        if mask is not None:
            positions = positions[position_ids(mask[:, 0, 0])]  # (N, T, dim)
        summed: Tensor = self.dropout(x + positions)
        return summed

    def encode(self, source: Tensor, mask: Tensor | None) -> Tensor:
        """Return the encoder output (N, T, dim) of source ids (N, T); `mask` (N, 1, 1, T) is True where a token is
        real.

        """
        x = self._embed_tokens(self.embedding, source, torch.arange(source.shape[1], device=source.device), mask)
        for block in self.encoder:
            x = block(x, mask)  # (N, T, dim)
        read: Tensor = self.encoder_norm(x)
        return read

    def decode(
        self,
        target: Tensor,
        read: Tensor | None,
        mask: Tensor | None,
        cache: Cache | None = None,
        own_mask: Tensor | None = None,
    ) -> Tensor:
        """Return the input of the head for target ids (N, S), (N, S, dim).

        `read` (N, T, dim) is the encoder output of a source with that `mask` (N, 1, 1, T). With a `cache`, which holds
        the source, the ids continue after its end. Without one, `own_mask` (N, 1, 1, S) is True where a target token is
        real.
        """
        positions, seen, causal = target_positions(target, cache)
        seen = own_mask if seen is None else seen
        y = self._embed_tokens(self._words, target, positions, own_mask)
        for i, block in enumerate(self.decoder):
            own, cross_kv = (cache.layers[i], cache.cross_layers[i]) if cache is not None else (None, None)
            y = block(y, seen, causal, own, read, mask, cross_kv)  # (N, S, dim)
        head_input: Tensor = self.decoder_norm(y)  # (N, S, dim)
        return head_input

    def features(
        self, src: Tensor, tgt: Tensor | None, src_mask: Tensor | None = None, tgt_mask: Tensor | None = None
    ) -> Tensor:
        """Return the input of the head at each place of the target, (N, S, dim)."""
        src, src_mask, tgt = parse_forward_args(src, tgt, src_mask)
        mask = attention_mask(
            normalize_padding_mask(src_mask, src.shape), causal=False, length=src.shape[1]
        )  # (N, 1, 1, T)
        own = attention_mask(
            normalize_padding_mask(tgt_mask, tgt.shape), causal=False, length=tgt.shape[1]
        )  # (N, 1, 1, S)
        read = self.encode(src, mask)  # (N, T, dim)
        return self.decode(tgt, read, mask, own_mask=own)  # (N, S, dim)

    def forward(
        self, src: Tensor, tgt: Tensor | None, src_mask: Tensor | None = None, tgt_mask: Tensor | None = None
    ) -> Tensor:
        """Return the logits of the token after each position of the target so far, (N, S, vocab_size).

        Args:
            src: Source ids, shape (N, T).
            tgt: Target so far, shape (N, S), which begins with its `begin`.
            src_mask: True where a source token is real, shape (N, T). The causal mask is added automatically.
            tgt_mask: True where a target token is real, shape (N, S).

        The order of a batch of pairs is accepted too: source, mask, target. Raises ModelError without a target.
        """
        logits: Tensor = self.head(self.features(src, tgt, src_mask, tgt_mask))
        return logits


Model = Transformer

PRESETS = {
    "transformer-base": Config(),
    "transformer-big": Config(dim=1024, heads=16, dropout=0.3),
    "transformer-tiny": Config(vocab_size=10_000, dim=128, layers=4, heads=4, ffn_dim=512),
}


def _noam(dim: int, warmup: int, updates: int) -> dict[str, object]:
    """Return the paper's training: its rate is d^−½ · min(s^−½, s · w^−³ᐟ²) at update s, which peaks at s = w."""
    return {
        "optimizer": "adam",
        "lr": round((dim * warmup) ** -0.5, 6),
        "weight_decay": 0.0,
        "schedule": "noam",
        "warmup": round(warmup / updates, 4),
        "label_smoothing": 0.1,
        "batch_tokens": 25_000,
    }


_COUNTED = "computed from the definition above, for {} tokens on either side, of {:,} different ones"
_AT = (32,)


def _bleu(target: str, score: float, source: str = "the paper, table 2") -> Result:
    return Result(f"WMT 2014, English to {target}", {"BLEU": score}, "newstest2014, beam of 4", source, unit="")


CARD = Card(
    title="Attention is all you need",
    authors="A. Vaswani, N. Shazeer, N. Parmar, J. Uszkoreit, L. Jones, A. N. Gomez, Ł. Kaiser, I. Polosukhin",
    year=2017,
    link="https://arxiv.org/abs/1706.03762",
    family="transformer",
    equation="x = √d E + PE;  x ← LN(x + MHA(x));  y ← LN(y + MHA(y, x));  x ← LN(x + FFN(x));  p = softmax(y Eᵀ)",
    oracle="the layers of torch.nn.Transformer; embedding, positions and output written out",
    published={
        "transformer-base": Published(63_082_496, 2_034_368_512, _AT, _COUNTED.format(32, 37_000), "65 M, Table 3"),
        "transformer-big": Published(214_245_376, 6_887_309_312, _AT, _COUNTED.format(32, 37_000), "213 M, Table 3"),
        "transformer-tiny": Published(3_131_392, 102_825_984, _AT, _COUNTED.format(32, 10_000)),
    },
    divergences=(
        Divergence(
            "parameters",
            paper="65 M and 213 M (Table 3), with 37 000 words",
            here="63 082 496 and 214 245 376: the paper's definition does not give its numbers for that vocabulary",
        ),
        Divergence(
            "√d",
            paper="only the embedding (section 3.4), before the positions are added (3.5)",
            here="as in the paper; E is initialized with standard deviation 1/√d, which the paper does not specify: "
            "√d · E has the scale of the sinusoids, and the softmax is not saturated",
            common="(embedding + position) · √d; or E with standard deviation 1, much larger than the positions",
        ),
        Divergence(
            "sinusoids",
            paper="sine and cosine interleaved, 10000^(2i/d)",
            here="as in the paper",
            common="all sines, then all cosines, with d/2 − 1 in the exponent's denominator (tensor2tensor)",
        ),
        Divergence(
            "position of the normalization",
            paper="after each sum; no additional one after the last block",
            here="as in the paper; order=pre sets it before each sub-layer, with one more after each stack, which "
            "trains deep networks without a long warm-up",
            common="before each sub-layer (tensor2tensor's later default); after each sum and once more after "
            "either stack (torch.nn.Transformer)",
        ),
        Divergence(
            "dropout",
            paper="on the output of each sub-layer and on the sums of embeddings and positions",
            here="as in the paper",
            common="also of the attention weights and within the MLP (torch.nn.Transformer)",
        ),
        Divergence(
            "training",
            paper="Adam with β = 0.9, 0.98 and ε = 1e-9; the last 5 (big: 20) checkpoints, 10 minutes apart, averaged",
            here="Adam with PyTorch's β = 0.9, 0.999 and ε = 1e-8; average_epochs=K averages the last K epochs",
        ),
        Divergence(
            "decoding",
            paper="beam 4, α = 0.6, at most 50 tokens more than the source has",
            here="configurable: num_beams=4 length_penalty=0.6 as in the paper; the length limit comes from the "
            "training targets",
        ),
        Divergence(
            "transformer-tiny",
            paper="no such size",
            here="4 + 4 blocks, dim 128, ffn_dim 512, for grapheme-to-phoneme conversion; for small translation data "
            "use model.dim=256 model.layers=3 model.heads=8",
        ),
    ),
    results={
        "transformer-base": (_bleu("German", 27.3), _bleu("French", 38.1)),
        "transformer-big": (
            _bleu("German", 28.4),
            _bleu("French", 41.8),
            _bleu("French", 41.0, "the paper as first printed, and section 6.1 of later versions"),
        ),
    },
    settings={
        "transformer-base": _noam(512, 4000, 100_000),
        "transformer-big": _noam(1024, 4000, 300_000),
        # Its time is short and known beforehand: a cosine ends lower than s^−½, which would go on.
        "transformer-tiny": {
            "optimizer": "adam",
            "lr": 1e-3,
            "weight_decay": 0.0,
            "schedule": "warmup-cosine",
            "warmup": 0.1,
            "label_smoothing": 0.1,
            "batch_tokens": 2048,
            "grad_clip": 1.0,
        },
    },
)
