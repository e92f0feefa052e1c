"""ViT and GPT-2 as one encoder–decoder: an image is encoded in patches, and a caption is decoded from them.

The architecture, an image Transformer with a text Transformer as its decoder, is from M. Li et al., TrOCR:
Transformer-based optical character recognition with pre-trained models, 2021 <https://arxiv.org/abs/2109.10282>, and
from transformers' VisionEncoderDecoderModel. Its parts are ViT (`vit.py`; A. Dosovitskiy et al., 2020) and GPT-2
(`gpt2.py`; A. Radford et al., 2019), connected by cross-attention (A. Vaswani et al., 2017).

    z_0 = [x_class; x¹E_p; …; x^N E_p] + E_pos;  z ← z + MHA(LN(z));  z ← z + MLP(LN(z));   x = LN(z_L)
    y_t = E[token_t] + P[t]
    y ← y + MHA(LN(y));   y ← y + MHA(LN(y), x);   y ← y + MLP(LN(y))        the first of them causal
    p(token_{t+1} | tokens ≤ t, image) = softmax(LN(y_t) Eᵀ)

Shapes, from images (N, C, H, W) with patches of P and the caption so far (N, S), which begins with its `begin`:
    patches and class token plus positions   (N, 1 + T, dim)          T = HW/P²
    each block of the encoder                (N, 1 + T, dim)
    embedding of the caption plus positions  (N, S, dim)
    each block of the decoder                (N, S, dim)
    normalized, times the embedding          (N, S, vocab_size)

Decoding reads one token at a time: `begin` stores the keys and values of the patches, `step` those of the caption so
far.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ..core.errors import InputShapeError, check_value
from ..core.spec import ImageSpec, Tokens
from ..nn.attention import MultiHeadAttention
from ..nn.kv_cache import Cache, LayerCache
from ..nn.transformer import MLP, Unembedding
from .base import EncoderDecoder, TokenGrid, target_positions, validate_image_size
from .card import Card, Divergence, Published
from .config import ValidatedConfig, fraction, positive
from .gpt2 import STD
from .vit import EPS, adapt_positions, interpolate_positions, validate_patch_size


@dataclass(frozen=True)
class Config(ValidatedConfig):
    """Configuration of the network."""

    image_size: int = positive(224)  # pixels a side that positions are learned for; images of other sizes are accepted
    patch_size: int = positive(16)  # pixels a side of a patch: 4 for images of about 32 pixels
    dim: int = positive(768)  # model dimension of encoder and decoder
    layers: int = positive(12)  # blocks of the encoder
    decoder_layers: int | None = positive(None)  # blocks of the decoder; auto: the same number
    heads: int = positive(12)  # attention heads, each with dim / heads channels
    ffn_dim: int | None = positive(None)  # feed-forward dimension; auto: 4 · dim
    dropout: float = fraction(0.1)  # dropout rate in the decoder: embedding plus positions, and output of each layer
    tie_weights: bool = True  # use the embedding as the output matrix W_U; else W_U is a separate matrix
    eps: float = EPS  # of the encoder's normalizations: 1e-12 in transformers' ViT
    in_channels: int = positive(3)  # 1 for grey, 3 for RGB
    target_vocab_size: int = positive(50_257)  # size of the caption vocabulary
    context_length: int = positive(1024)  # maximum number of tokens of a caption

    def __post_init__(self) -> None:
        super().__post_init__()
        check_value(self.dim % self.heads == 0, "heads", self.heads, f"at least 1 and a divisor of dim={self.dim}")
        check_value(self.eps > 0, "eps", self.eps, "above 0")

    @property
    def least_size(self) -> int:
        """The smallest height and width of an image: one patch."""
        return self.patch_size

    @property
    def size_step(self) -> int:
        """Heights and widths are multiples of this: whole patches."""
        return self.patch_size

    @property
    def grid(self) -> int:
        """Patches a side that positions are learned for."""
        return math.ceil(self.image_size / self.patch_size)

    @classmethod
    def for_spec(cls, preset: Config, spec: ImageSpec) -> Config:
        """Return the preset with the channels and the vocabulary of `spec`, positions for the longer side of its
        images, and for captions half as long again as the longest in training.

        """
        assert isinstance(spec.target, Tokens), "the target is a caption"
        return dataclasses.replace(
            preset,
            image_size=max(spec.height, spec.width),
            in_channels=spec.channels,
            target_vocab_size=spec.target.outputs,
            context_length=spec.target.longest + spec.target.longest // 2 + 1,
        )


class EncoderBlock(nn.Module):
    """A block of ViT: attention among all patches, then an MLP on each, both added to the residual stream."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        dim = config.dim
        self.norm1 = nn.LayerNorm(dim, eps=config.eps)
        self.attention = MultiHeadAttention(dim, config.heads)
        self.norm2 = nn.LayerNorm(dim, eps=config.eps)
        self.mlp = MLP(dim, config.ffn_dim or 4 * dim, "gelu")

    def forward(self, z: Tensor) -> Tensor:
        """Map (N, T, dim) to (N, T, dim)."""
        z = z + self.attention(self.norm1(z))  # (N, T, dim)
        y: Tensor = z + self.mlp(self.norm2(z))  # (N, T, dim)
        return y


class DecoderBlock(nn.Module):
    """A block of GPT-2 with cross-attention to the image.

    It consists of attention over the words so far, attention over the patches, and an MLP on each word, each added to
    the residual stream.
    """

    def __init__(self, config: Config) -> None:
        super().__init__()
        dim = config.dim
        self.norm1 = nn.LayerNorm(dim)
        self.attention = MultiHeadAttention(dim, config.heads, dropout=config.dropout)
        self.cross_norm = nn.LayerNorm(dim)
        self.cross_attention = MultiHeadAttention(dim, config.heads, source=dim, dropout=config.dropout)
        self.norm2 = nn.LayerNorm(dim)
        self.mlp = MLP(dim, config.ffn_dim or 4 * dim, "gelu-tanh")
        self.dropout = nn.Dropout(config.dropout)

    def forward(
        self,
        y: Tensor,
        mask: Tensor | None = None,
        causal: bool = True,
        cache: LayerCache | None = None,
        image: Tensor | None = None,
        cross_kv: LayerCache | None = None,
    ) -> Tensor:
        """Map (N, S, dim) to (N, S, dim).

        `mask`, `causal` and `cache` are for the words; `image` (N, T, dim) and `cross_kv`, which keeps its keys and
        values, for the patches.
        """
        y = y + self.dropout(self.attention(self.norm1(y), mask=mask, causal=causal, cache=cache))  # (N, S, dim)
        y = y + self.dropout(self.cross_attention(self.cross_norm(y), image, cache=cross_kv))  # (N, S, dim)
        return y + self.dropout(self.mlp(self.norm2(y)))  # type: ignore[no-any-return]  # (N, S, dim)


class ViTGPT2(EncoderDecoder):
    """Images (N, C, H, W) and the caption so far (N, S) to logits of the words that come next, (N, S, vocab_size)."""

    takes = (ImageSpec,)
    targets = (Tokens,)
    joint_vocab = False

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        dim = config.dim
        self.patches = nn.Conv2d(config.in_channels, dim, config.patch_size, stride=config.patch_size)  # E_p
        self.class_token = nn.Parameter(torch.zeros(1, 1, dim))
        self.patch_positions = nn.Parameter(torch.empty(1, 1 + config.grid**2, dim))  # E_pos
        self.encoder = nn.ModuleList(EncoderBlock(config) for _ in range(config.layers))
        self.encoder_norm = nn.LayerNorm(dim, eps=config.eps)
        self.embedding = nn.Embedding(config.target_vocab_size, dim)  # E
        self.positions = nn.Embedding(config.context_length, dim)  # P
        self.dropout = nn.Dropout(config.dropout)
        self.decoder = nn.ModuleList(DecoderBlock(config) for _ in range(config.decoder_layers or config.layers))
        self.norm = nn.LayerNorm(dim)
        self.head = Unembedding(self.embedding, tied=config.tie_weights)  # W_U
        self._initialize()

    @torch.no_grad()
    def _initialize(self) -> None:
        """Initialize matrices and positions with standard deviation 0.02 and biases with 0, as GPT-2.

        The last matrices of the decoder's branches are scaled by the inverse root of their number, 3 · its blocks.
        """
        scaled = ("attention.out.weight", "mlp.fc2.weight")
        for name, parameter in self.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(parameter)
            elif parameter.ndim >= 2 and name != "class_token":
                added = name.startswith("decoder.") and name.endswith(scaled)
                nn.init.normal_(parameter, std=STD / math.sqrt(3 * len(self.decoder)) if added else STD)

    def token_grid(self, height: int, width: int) -> TokenGrid:
        """Return the patches, after the class token."""
        side = self.config.patch_size
        return TokenGrid(height // side, width // side, before=1)

    def position_tables(self, num_positions: int) -> dict[str, Tensor]:
        """Return the position embeddings of the patches, (patches, dim)."""
        return {"patch_positions": self.patch_positions[0, 1:]}

    def adapt_state(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Interpolate positions of patches that were learned at another image size."""
        return adapt_positions(tensors, "patch_positions", 1, self.config.grid)

    def encode(self, source: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the encoder output of images (N, C, H, W), (N, 1 + T, dim); `mask` is not used."""
        del mask
        validate_image_size(source, self.config.least_size, "vit-gpt2")
        validate_patch_size(source, self.config.patch_size, "vit-gpt2")
        z: Tensor = self.patches(source)  # (N, dim, H/P, W/P)
        grid = (z.shape[2], z.shape[3])
        z = torch.cat(
            [self.class_token.expand(z.shape[0], -1, -1), z.flatten(2).transpose(1, 2)], dim=1
        )  # (N, 1 + T, dim)
        z = z + interpolate_positions(self.patch_positions, 1, grid)
        for block in self.encoder:
            z = block(z)  # (N, 1 + T, dim)
        x: Tensor = self.encoder_norm(z)
        return x

    def decode(
        self, target: Tensor, read: Tensor | None, mask: Tensor | None = None, cache: Cache | None = None
    ) -> Tensor:
        """Return the input of the head for token ids (N, S), (N, S, dim).

        `read` (N, 1 + T, dim) is the encoder output of an image. With a `cache`, which holds the image, the ids
        continue after its end. Raises ModelError if the context is exceeded.
        """
        del mask
        length = target.shape[1] + (cache.length if cache is not None else 0)
        if length > self.config.context_length:
            raise InputShapeError(
                f"vit-gpt2 has learned positions for {self.config.context_length:,} tokens, and this caption has "
                f"{length:,}: give a larger model.context_length in training."
            )
        places, seen, causal = target_positions(target, cache)
        y = self.dropout(self.embedding(target) + self.positions(places))  # (N, S, dim)
        for i, block in enumerate(self.decoder):
            own, cross_kv = (cache.layers[i], cache.cross_layers[i]) if cache is not None else (None, None)
            y = block(y, seen, causal, own, read, cross_kv)  # (N, S, dim)
        head_input: Tensor = self.norm(y)  # (N, S, dim)
        return head_input

    def features(self, images: Tensor, target_so_far: Tensor) -> Tensor:
        """Return the input of the head at each place of the caption, (N, S, dim)."""
        return self.decode(target_so_far, self.encode(images))

    def forward(self, images: Tensor, target_so_far: Tensor) -> Tensor:
        """Return the logits of the word after each position of the caption so far, (N, S, vocab_size).

        The caption begins with `begin`.
        """
        logits: Tensor = self.head(self.features(images, target_so_far))
        return logits


Model = ViTGPT2

PRESETS = {
    "vit-gpt2": Config(),
    "vit-gpt2-small": Config(image_size=32, patch_size=4, dim=96, layers=4, decoder_layers=2, heads=4, dropout=0.0),
}

_FROM_SCRATCH = {
    "optimizer": "adamw",
    "lr": 1e-3,
    "weight_decay": 0.05,
    "batch_size": 64,
    "grad_clip": 1.0,
    "schedule": "warmup-cosine",
    "warmup": 0.1,
    "epochs": 30,
}
_COUNTED = "computed from the definition above, for 8 tokens of a caption"

CARD = Card(
    title="TrOCR: Transformer-based optical character recognition with pre-trained models",
    authors="M. Li, T. Lv, J. Chen, L. Cui, Y. Lu, D. Florencio, C. Zhang, Z. Li, F. Wei",
    year=2021,
    link="https://arxiv.org/abs/2109.10282",
    family="transformer",
    equation="x = ViT(image);  y ← y + MHA(LN(y));  y ← y + MHA(LN(y), x);  y ← y + MLP(LN(y));  p = softmax(LN(y) Eᵀ)",
    oracle="transformers' VisionEncoderDecoderModel of ViT and GPT-2",
    published={
        "vit-gpt2": Published(238_605_312, 21_483_479_040, (3, 224, 224), _COUNTED),
        "vit-gpt2-small": Published(5_680_320, 75_575_808, (3, 32, 32), _COUNTED),
    },
    divergences=(
        Divergence(
            "encoder and decoder",
            paper="DeiT or BEiT, and RoBERTa or MiniLM as the decoder; it reads lines of text",
            here="ViT and GPT-2, for captions; the decoder has cross-attention to all normalized tokens of ViT, "
            "including the class token, between GPT-2's attention and MLP",
            common="as here (transformers)",
        ),
        Divergence(
            "epsilon of the encoder's normalizations",
            paper="1e-6 in ViT's code",
            here="1e-6; eps sets it",
            common="1e-12 (transformers)",
        ),
        Divergence(
            "initialization",
            paper="pretrained weights of encoder and decoder",
            here="that of GPT-2: standard deviation 0.02, residual branches of the decoder scaled by 1/√(3 · blocks)",
        ),
        Divergence(
            "vit-gpt2-small",
            paper="no such size",
            here="4 + 2 blocks, dim 96, patches of 4 pixels, for scenes of 32 pixels",
        ),
    ),
    settings=dict.fromkeys(PRESETS, _FROM_SCRATCH),
)
