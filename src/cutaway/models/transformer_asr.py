"""Whisper: speech to text with a Transformer encoder and a decoder that writes the transcript token by token.

A. Radford, J. W. Kim, T. Xu, G. Brockman, C. McLeavey, I. Sutskever, Robust speech recognition via large-scale weak
supervision, 2022. <https://arxiv.org/abs/2212.04356>

    h = GELU(conv₂(GELU(conv₁(x)))),   z = h + PE
    z ← z + MHA(LN(z));   z ← z + MLP(LN(z));   s = LN(z_L)
    y_t = E[token_t] + P[t]
    y ← y + MHA(LN(y));   y ← y + MHA(LN(y), s);   y ← y + MLP(LN(y))        the first of them causal
    p(token_{t+1} | tokens ≤ t, x) = softmax(LN(y_t) Eᵀ)

Connectionist temporal classification (`ctc_conv_gru.py`) predicts a character or a blank at every frame and treats
frames as independent. Here each token depends on all before it, and cross-attention finds its sound anywhere in the
recording. The network has to learn that speech and text run in the same order.

    log-mel frames (N, T, F) ─▶ conv 3, GELU ─▶ conv 3, stride 2, GELU ─▶ + sinusoids ─▶ encoder ─┐
    the transcript so far (N, S) ─▶ embedding + positions ─▶ decoder ◀── cross-attention ─────────┘ ─▶ · Eᵀ

Shapes, from frames (N, T, F) with a mask (N, T), T' = ⌈T / 2⌉, and the transcript so far (N, S):
    conv 3, padding 1, GELU                    (N, dim, T)
    conv 3, stride 2, padding 1, GELU          (N, dim, T')
    plus sinusoids, each block of the encoder  (N, T', dim)
    embedding of the tokens plus positions     (N, S, dim)
    each block of the decoder                  (N, S, dim)
    normalized, times the embedding            (N, S, vocab_size)

Padding does not change the result: it enters both convolutions as zeros, like everything beyond the ends of a
recording, and is not attended to. Decoding reads one token at a time: `begin` stores the keys and values of the
recording, `step` those of the transcript so far.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..core.errors import InputShapeError, check_value
from ..core.spec import AudioSpec, Spelled
from ..nn.attention import MultiHeadAttention
from ..nn.kv_cache import Cache, LayerCache
from ..nn.masks import attention_mask, normalize_padding_mask
from ..nn.recurrent import sequence_lengths
from ..nn.transformer import MLP, Unembedding
from .base import EncoderDecoder, target_positions
from .card import Card, Divergence, Published
from .config import ValidatedConfig, fraction, positive

STRIDE = 2  # stride of the second convolution: frames for each position of the encoder


@dataclass(frozen=True)
class Config(ValidatedConfig):
    """Configuration of the network."""

    in_features: int = positive(80)  # F, the mel bands of a frame
    dim: int = positive(384)  # model dimension of encoder and decoder
    layers: int = positive(4)  # blocks of the encoder
    decoder_layers: int | None = positive(None)  # blocks of the decoder; auto: the same number
    heads: int = positive(6)  # attention heads, each with dim / heads channels
    ffn_dim: int | None = positive(None)  # feed-forward dimension; auto: 4 · dim
    dropout: float = fraction(0.0)  # dropout rate of embeddings plus positions and of the output of each layer
    target_vocab_size: int = positive(51_865)  # size of the transcript vocabulary
    context_length: int = positive(448)  # maximum number of tokens of a transcript

    def __post_init__(self) -> None:
        super().__post_init__()
        check_value(self.dim % self.heads == 0, "heads", self.heads, f"at least 1 and a divisor of dim={self.dim}")
        check_value(
            self.dim % 2 == 0 and self.dim >= 4, "dim", self.dim, "even and at least 4, half sines and half cosines"
        )

    @classmethod
    def for_spec(cls, preset: Config, spec: AudioSpec) -> Config:
        """Return the preset with the mel bands and characters of `spec`, and positions for transcripts half as long
        again as the longest in training.

        """
        assert isinstance(spec.target, Spelled), "the target is a transcript"
        longest = spec.target.longest
        return dataclasses.replace(
            preset,
            in_features=spec.n_mels,
            target_vocab_size=spec.target.outputs,
            context_length=longest + longest // 2 + 1,
        )


def sinusoids(places: int, dim: int) -> Tensor:
    """Return PE(p) = [sin(p ω_i); cos(p ω_i)], ω_i = 10000^(−i / (dim/2 − 1)), (places, dim).

    All sines come before all cosines. Computed in float32, as for the published weights: another precision changes the
    angles of late positions.
    """
    half = dim // 2
    rates = torch.exp(-math.log(10_000) / (half - 1) * torch.arange(half, dtype=torch.float32))
    angles = torch.arange(places, dtype=torch.float32)[:, None] * rates  # (places, dim/2)
    return torch.cat([angles.sin(), angles.cos()], 1)


class EncoderBlock(nn.Module):
    """Attention among all places of the recording, then an MLP on each, both added to the residual stream."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        dim = config.dim
        self.norm1 = nn.LayerNorm(dim)
        self.attention = MultiHeadAttention(dim, config.heads, key_bias=False)
        self.norm2 = nn.LayerNorm(dim)
        self.mlp = MLP(dim, config.ffn_dim or 4 * dim, "gelu")
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, z: Tensor, mask: Tensor | None = None) -> Tensor:
        """Map (N, T', dim) to (N, T', dim)."""
        z = z + self.dropout(self.attention(self.norm1(z), mask=mask))  # (N, T', dim)
        return z + self.dropout(self.mlp(self.norm2(z)))  # type: ignore[no-any-return]  # (N, T', dim)


class DecoderBlock(nn.Module):
    """Attention over the transcript so far, attention over the recording, an MLP on each token, each added to the
    residual stream."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        dim = config.dim
        self.norm1 = nn.LayerNorm(dim)
        self.attention = MultiHeadAttention(dim, config.heads, key_bias=False)
        self.cross_norm = nn.LayerNorm(dim)
        self.cross_attention = MultiHeadAttention(dim, config.heads, source=dim, key_bias=False)
        self.norm2 = nn.LayerNorm(dim)
        self.mlp = MLP(dim, config.ffn_dim or 4 * dim, "gelu")
        self.dropout = nn.Dropout(config.dropout)

    def forward(
        self,
        y: Tensor,
        mask: Tensor | None = None,
        causal: bool = True,
        cache: LayerCache | None = None,
        read: Tensor | None = None,
        read_mask: Tensor | None = None,
        cross_kv: LayerCache | None = None,
    ) -> Tensor:
        """Map (N, S, dim) to (N, S, dim).

        `mask`, `causal` and `cache` are for the transcript; `read` (N, T', dim), `read_mask` and `cross_kv`, which
        keeps its keys and values, for the recording.
        """
        y = y + self.dropout(self.attention(self.norm1(y), mask=mask, causal=causal, cache=cache))  # (N, S, dim)
        looked = self.cross_attention(self.cross_norm(y), read, mask=read_mask, cache=cross_kv)
        y = y + self.dropout(looked)  # (N, S, dim)
        return y + self.dropout(self.mlp(self.norm2(y)))  # type: ignore[no-any-return]  # (N, S, dim)


class TransformerASR(EncoderDecoder):
    """Log-mel frames (N, T, F), their mask (N, T) and the transcript so far (N, S) to logits of the tokens that come
    next, (N, S, vocab_size)."""

    takes = (AudioSpec,)
    targets = (Spelled,)
    joint_vocab = False

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        dim = config.dim
        self.conv1 = nn.Conv1d(config.in_features, dim, 3, padding=1)
        self.conv2 = nn.Conv1d(dim, dim, 3, STRIDE, padding=1)
        self.encoder = nn.ModuleList(EncoderBlock(config) for _ in range(config.layers))
        self.encoder_norm = nn.LayerNorm(dim)
        self.embedding = nn.Embedding(config.target_vocab_size, dim)  # E
        self.positions = nn.Embedding(config.context_length, dim)  # P
        self.dropout = nn.Dropout(config.dropout)
        self.decoder = nn.ModuleList(DecoderBlock(config) for _ in range(config.decoder_layers or config.layers))
        self.norm = nn.LayerNorm(dim)
        self.head = Unembedding(self.embedding)
        self._initialize()

    @torch.no_grad()
    def _initialize(self) -> None:
        """Initialize all weights normally with variance 1 / fan-in, E and P with 1 / dim, and biases with 0."""
        for name, parameter in self.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(parameter)
            elif parameter.ndim >= 2:
                nn.init.normal_(parameter, std=parameter[0].numel() ** -0.5)

    def output_frames(self, frames: Tensor) -> Tensor:
        """Return T' for recordings of `frames` frames, (n,)."""
        return -(-frames // STRIDE)

    def position_tables(self, num_positions: int) -> dict[str, Tensor]:
        """Return the sinusoidal encodings PE, and the learned position embeddings of the decoder."""
        return {"sinusoids": sinusoids(num_positions, self.config.dim), "positions": self.positions.weight}

    def encode(self, source: Tensor, mask: Tensor | None) -> Tensor:
        """Return the encoder output (N, T', dim) of frames (N, T, F); `mask` (N, 1, 1, T) is True where a frame is
        real.

        Raises ModelError for frames of another size, and for padding before a real frame.
        """
        if source.ndim != 3 or source.shape[2] != self.config.in_features:
            raise InputShapeError(
                f"This network takes frames of shape (N, T, {self.config.in_features}), and these are "
                f"{tuple(source.shape)}: build one with other in_features."
            )
        real = None if mask is None else mask[:, 0]  # (N, 1, T)
        sequence_lengths(None if real is None else real[:, 0], source.shape[1])
        h = source.transpose(1, 2)  # (N, F, T)
        for convolution in (self.conv1, self.conv2):
            h = F.gelu(convolution(h if real is None else h * real))  # (N, dim, T), then (N, dim, T')
        z = h.transpose(1, 2)  # (N, T', dim)
        z = self.dropout(z + sinusoids(z.shape[1], self.config.dim).to(z))
        for block in self.encoder:
            z = block(z, _halved(mask))  # (N, T', dim)
        read: Tensor = self.encoder_norm(z)
        return read

    def decode(self, target: Tensor, read: Tensor | None, mask: Tensor | None, cache: Cache | None = None) -> Tensor:
        """Return the input of the head for token ids (N, S), (N, S, dim).

        `read` (N, T', dim) is the encoder output of frames with that `mask` (N, 1, 1, T). With a `cache`, which holds
        the recording, the ids continue after its end. Raises ModelError if the context is exceeded.
        """
        length = target.shape[1] + (cache.length if cache is not None else 0)
        if length > self.config.context_length:
            raise InputShapeError(
                f"This network has learned positions for {self.config.context_length:,} tokens, and this transcript "
                f"has {length:,}: give a larger model.context_length in training."
            )
        places, seen, causal = target_positions(target, cache)
        y = self.dropout(self.embedding(target) + self.positions(places))  # (N, S, dim)
        for i, block in enumerate(self.decoder):
            own, cross_kv = (cache.layers[i], cache.cross_layers[i]) if cache is not None else (None, None)
            y = block(y, seen, causal, own, read, _halved(mask), cross_kv)  # (N, S, dim)
        head_input: Tensor = self.norm(y)  # (N, S, dim)
        return head_input

    def features(self, x: Tensor, mask: Tensor | None, target_so_far: Tensor) -> Tensor:
        """Return the input of the head at each place of the transcript, (N, S, dim)."""
        real = attention_mask(normalize_padding_mask(mask, x.shape), causal=False, length=x.shape[1])  # (N, 1, 1, T)
        return self.decode(target_so_far, self.encode(x, real), real)

    def forward(self, x: Tensor, mask: Tensor | None, target_so_far: Tensor) -> Tensor:
        """Return the logits of the token after each place of the transcript so far, (N, S, vocab_size), which begins
        with its `begin`, from frames (N, T, F) and their mask (N, T), True where a frame is real.

        """
        logits: Tensor = self.head(self.features(x, mask, target_so_far))
        return logits


def _halved(mask: Tensor | None) -> Tensor | None:
    """Return the mask (N, 1, 1, T') of the encoder's places, of that of the frames (N, 1, 1, T): place t' is real where
    frame 2t' is.
    """
    return None if mask is None else mask[..., ::STRIDE]


Model = TransformerASR

PRESETS = {
    "transformer-asr": Config(
        dim=96, layers=2, decoder_layers=2, heads=4, dropout=0.1, target_vocab_size=28, context_length=64
    ),
    "whisper-tiny": Config(),
    "whisper-base": Config(dim=512, layers=6, heads=8),
    "whisper-small": Config(dim=768, layers=12, heads=12),
}

_FROM_SCRATCH = {
    "optimizer": "adamw",
    "lr": 1e-3,
    "weight_decay": 0.05,
    "batch_size": 16,
    "grad_clip": 1.0,
    "schedule": "warmup-cosine",
    "warmup": 0.1,
    "epochs": 30,
}
_AT = (3000, 80)
_COUNTED = "computed from the definition above, for 30 s and 8 tokens of a transcript"

CARD = Card(
    title="Robust speech recognition via large-scale weak supervision",
    authors="A. Radford, J. W. Kim, T. Xu, G. Brockman, C. McLeavey, I. Sutskever",
    year=2022,
    link="https://arxiv.org/abs/2212.04356",
    family="transformer",
    equation="s = encoder(conv(conv(x)) + PE);  y ← y + MHA(LN(y));  y ← y + MHA(LN(y), s);  y ← y + MLP(LN(y));  "
    "p = softmax(LN(y) Eᵀ)",
    oracle="transformers' WhisperForConditionalGeneration, one recording at a time",
    published={
        "transformer-asr": Published(
            581_760, 60_977_664, (300, 80), "computed from the definition above, for 3 s and 8 tokens"
        ),
        "whisper-tiny": Published(37_184_640, 20_500_786_176, _AT, _COUNTED, "39 M, Table 1"),
        "whisper-base": Published(71_825_920, 48_865_153_024, _AT, _COUNTED, "74 M, Table 1"),
        "whisper-small": Published(240_582_912, 194_648_561_664, _AT, _COUNTED, "244 M, Table 1"),
    },
    divergences=(
        Divergence(
            "parameters",
            paper="39 M, 74 M and 244 M (Table 1)",
            here="sinusoids are computed and not counted",
            common="576 000, 768 000 and 1 152 000 more: a table of sinusoids for 1 500 positions, which is not "
            "trained (transformers)",
        ),
        Divergence(
            "length of a recording",
            paper="30 s; shorter recordings are padded with silence, which is not masked",
            here="any length, padding is masked; without a mask every frame counts, as in the paper",
            common="exactly 3 000 frames (transformers)",
        ),
        Divergence(
            "input",
            paper="80 bands at 16 000 samples a second, with values scaled to about −1 to 1",
            here="the bands and the sample rate of the data, standardized per band; published weights need those of "
            "the paper",
        ),
        Divergence(
            "transcript",
            paper="byte-pair tokens after special tokens for language, task and timestamps",
            here="the characters of the training transcripts, with one token for begin and end",
        ),
        Divergence(
            "bias of keys",
            paper="not specified",
            here="none: it would add the same constant to all scores of a query",
            common="none (transformers)",
        ),
        Divergence(
            "initialization",
            paper="“Gaussian fan-in”, without details",
            here="normal with variance 1 / fan-in",
            common="normal with standard deviation 0.02 (transformers)",
        ),
        Divergence(
            "transformer-asr",
            paper="no such size",
            here="2 + 2 blocks, dim 96, for strings of digits",
        ),
    ),
    settings=dict.fromkeys(PRESETS, _FROM_SCRATCH),
)
