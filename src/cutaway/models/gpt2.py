"""GPT-2: a causal Transformer decoder, which predicts each token from those before it.

A. Radford, J. Wu, R. Child, D. Luan, D. Amodei, I. Sutskever, Language models are unsupervised multitask learners,
2019. <https://github.com/openai/gpt-2>

    z⁰_t = E[token_t] + P[t]
    z ← z + MHA(LN(z)),   z ← z + MLP(LN(z))         causal: token t looks at tokens ≤ t
    p(token_{t+1} | tokens ≤ t) = softmax(LN(z_t) Eᵀ)

Shapes, from token ids (N, T):
    embedding plus positions                 (N, T, dim)
    each block                               (N, T, dim)
    normalized, times the embedding          (N, T, vocab_size)

The output layer is the embedding, or with tie_weights=false a separate matrix W_U. For classes the head is a linear
layer without bias on the last token, which attends to all others.

Padding on either side changes nothing: no token attends to it, and positions count real tokens, as in transformers'
`generate`. `extend` (`decoders.py`) continues from a cache, one or more tokens at a time, with the same result as
`forward` at the last of them.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from ..core.errors import check_value
from ..core.spec import TextSpec
from ..nn.attention import MultiHeadAttention
from ..nn.kv_cache import Cache, LayerCache
from ..nn.masks import normalize_padding_mask
from ..nn.transformer import MLP, Unembedding
from .card import Card, Divergence, Published
from .decoders import HEADS, STD, Decoder, config_for_data, initialize, last_token
from .fields import ValidatedConfig, choice, fraction, positive


@dataclass(frozen=True)
class Config(ValidatedConfig):
    """Configuration of the network."""

    vocab_size: int = positive(50_257)  # size of the vocabulary
    context_length: int = positive(1024)  # maximum number of tokens: the size of the position table
    dim: int = positive(768)  # model dimension
    layers: int = positive(12)  # number of blocks
    heads: int = positive(12)  # attention heads, each with dim / heads channels
    ffn_dim: int | None = positive(None)  # feed-forward dimension; none for 4 · dim
    dropout: float = fraction(0.1)  # dropout rate of the output of each layer
    embedding_dropout: float | None = fraction(None)  # dropout rate of embedding plus positions; none for dropout
    attention_dropout: float | None = fraction(None)  # dropout rate of the attention weights; none for dropout
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
        return config_for_data(preset, spec)


class Block(nn.Module):
    """Attention over the tokens so far, then an MLP on each, both added to the residual stream."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        dim, (dropout, _, attention_dropout) = config.dim, config.rates
        self.norm1 = nn.LayerNorm(dim)
        self.attention = MultiHeadAttention(dim, config.heads, dropout=attention_dropout)
        self.norm2 = nn.LayerNorm(dim)
        self.mlp = MLP(dim, config.ffn_dim or 4 * dim, "gelu-tanh")
        self.dropout = nn.Dropout(dropout)

    def forward(
        self, z: Tensor, mask: Tensor | None = None, causal: bool = True, cache: LayerCache | None = None
    ) -> Tensor:
        """Map (N, T, dim) to (N, T, dim). `mask` (N or 1, 1, T or 1, S) is True where a token may look."""
        z = z + self.dropout(self.attention(self.norm1(z), mask=mask, causal=causal, cache=cache))  # (N, T, dim)
        y: Tensor = z + self.dropout(self.mlp(self.norm2(z)))  # (N, T, dim)
        return y


class GPT2(Decoder):
    """(N, T) token ids to (N, T, vocab_size) logits of the token after each, or to (N, classes)."""

    context_message = "gpt2 has learned positions for"

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
        initialize(self, config.layers)
        nn.init.normal_(self.positions.weight, std=STD / 2)

    def hidden(self, tokens: Tensor, mask: Tensor | None = None, cache: Cache | None = None) -> Tensor:
        """Return the normalized output of the last block, (N, T, dim).

        `mask` (N, T) is True where a token is real. With a `cache` the tokens continue after its end. Raises ModelError
        if the context is exceeded.
        """
        positions, seen, causal = self.position_ids_and_mask(tokens, mask, cache)
        z = self.dropout(self.embedding(tokens) + self.positions(positions))  # (N, T, dim)
        for i, block in enumerate(self.blocks):
            z = block(z, seen, causal, cache.layers[i] if cache is not None else None)  # (N, T, dim)
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


Model = GPT2


def _size(dim: int, layers: int, heads: int) -> Config:
    return Config(dim=dim, layers=layers, heads=heads)


PRESETS = {
    "gpt2": _size(768, 12, 12),
    "gpt2-medium": _size(1024, 24, 16),
    "gpt2-large": _size(1280, 36, 20),
    "gpt2-xl": _size(1600, 48, 25),
}

_COUNTED = "OpenAI's model card names 124M, 355M, 774M and 1.5B; in full counted on transformers' network"
_SHAPE = (1024,)

# The schedule and decay of GPT-3's appendix B, which GPT-2's paper does not give; the rate is for small models.
_FROM_SCRATCH = {
    "optimizer": "adamw",
    "lr": 1e-3,
    "weight_decay": 0.1,
    "schedule": "warmup-cosine",
    "warmup": 0.05,
    "grad_clip": 1.0,
    "batch_size": 12,
}

# The rate and epochs of GPT's fine-tuning (A. Radford et al., 2018, section 4.1), all layers alike.
_FROM_WEIGHTS = {"lr": 6.25e-5, "epochs": 3, "freeze_epochs": 0, "layer_decay": 1.0}

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
            "initialization of what a block adds",
            paper="scaled by 1/√N, N the number of residual layers",
            here="standard deviation 0.02 / √(2 · blocks), each block having two such layers: the sum over all blocks "
            "keeps its variance",
            common="as here (transformers); the released code has no such scaling",
        ),
        Divergence(
            "positions at first",
            paper="not said; the released code: standard deviation 0.01",
            here="0.01",
            common="0.02 (transformers, nanoGPT)",
        ),
        Divergence(
            "GELU",
            paper="the tanh form, in the released code",
            here="the tanh form",
            common="the tanh form (transformers); the exact one (nanoGPT)",
        ),
        Divergence(
            "parameters",
            paper="117M and 345M in its first print, by a counting error",
            here="124M and 355M",
        ),
    ),
    settings=dict.fromkeys(PRESETS, _FROM_SCRATCH),
    fine_tuning=dict.fromkeys(PRESETS, _FROM_WEIGHTS),
)
