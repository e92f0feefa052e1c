"""Image GPT: GPT-2 on the pixels of images, which predicts each pixel from those above it and to its left.

M. Chen, A. Radford, R. Child, J. Wu, H. Jun, P. Dhariwal, D. Luan, I. Sutskever, Generative pretraining from pixels,
2020. <https://openai.com/index/image-gpt/>

    x_1 … x_T: the pixels row by row, each the index of its nearest colour in a palette of k colours
    p(x | c) = Π_t p(x_t | c, x_1 … x_{t−1})                    equation 1, of images of class c
    L        = −(1/T) Σ_t ln p(x_t | c, x_1 … x_{t−1})           equation 2
    z ← z + MHA(LN(z)),   z ← z + MLP(LN(z))                     the blocks of GPT-2 (gpt2.py), causal

    ┌───┬───┬───┐
    │ 1 │ 2 │ 3 │      input   c  1  2  3  4  5  6  7  8
    ├───┼───┼───┤              │  │  │  │  │  │  │  │  │   each position sees itself and those before it
    │ 4 │ 5 │ 6 │              ▼  ▼  ▼  ▼  ▼  ▼  ▼  ▼  ▼
    ├───┼───┼───┤      output  1  2  3  4  5  6  7  8  9
    │ 7 │ 8 │ 9 │
    └───┴───┴───┘

Shapes, from images of H × W pixels, T = H · W:
    input: a start token and the first T − 1 pixels     (N, T)
    embedding plus positions                            (N, T, dim)
    each block                                          (N, T, dim)
    logits of each pixel                                (N, T, k)

The start token is the class. For a tenth of the training images it is a token for no class instead, so that images
without labels have a likelihood too. An image is sampled pixel by pixel; given its upper half, it is completed.

With captions, c is a caption of S tokens, padded, and the start token: S + T inputs, of which the last T have logits.
For a tenth of the training images the caption is padding alone. DALL-E (A. Ramesh et al., Zero-shot text-to-image
generation, 2021, <https://arxiv.org/abs/2102.12092>) reads text and image in the same order.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..core.errors import ModelError, check_value
from ..core.spec import ImageSpec, ImageTokens
from . import gpt2
from .card import Card, Divergence, Published
from .config import ValidatedConfig, fraction, min_value, positive

MOST_PIXELS = 64 * 64  # attention compares every pixel with every other


@dataclass(frozen=True)
class Config(ValidatedConfig):
    """Configuration of the network."""

    colors: int = positive(512)  # k, the colours of the palette: the tokens that a pixel can be
    classes: int = min_value(0, 0)  # number of classes, each with a start token; 0 for none
    sides: tuple[int, ...] = positive((32, 32))  # height and width of the images
    dim: int = positive(512)  # model dimension
    layers: int = positive(24)  # number of blocks
    heads: int = positive(8)  # attention heads, each with dim / heads channels
    ffn_dim: int | None = positive(None)  # feed-forward dimension; auto: 4 · dim
    dropout: float = fraction(0.0)  # dropout rate of embeddings, attention weights and the output of each layer
    class_dropout: float = fraction(0.1)  # probability that the class, or the caption, is hidden in training
    words: int = min_value(0, 0)  # size of the vocabulary of captions, with padding; 0 without captions
    caption: int = min_value(0, 0)  # S, the tokens of a caption before the start token

    def __post_init__(self) -> None:
        super().__post_init__()
        check_value(self.dim % self.heads == 0, "heads", self.heads, f"at least 1 and a divisor of dim={self.dim}")
        check_value(len(self.sides) == 2, "sides", self.sides, "two numbers")

    @classmethod
    def for_spec(cls, preset: Config, spec: ImageSpec) -> Config:
        """Return the preset with the palette, classes and size of `spec`. Raises ModelError for large images."""
        assert isinstance(spec.target, ImageTokens), "what the network learns"
        if spec.height * spec.width > MOST_PIXELS:
            raise ModelError(
                f"image-gpt reads each pixel as a token, and images of {spec.height}×{spec.width} have "
                f"{spec.height * spec.width:,}: at most {MOST_PIXELS:,} are allowed. Add image_size=32."
            )
        sides = (spec.height, spec.width)
        return dataclasses.replace(
            preset,
            colors=spec.target.outputs,
            classes=len(spec.target.names),
            sides=sides,
            words=spec.target.words,
            caption=spec.target.caption,
        )

    @property
    def no_class(self) -> int:
        """The start token for no class."""
        return self.colors + self.classes

    @property
    def vocab_size(self) -> int:
        """The number of tokens: the colours, a start token for each class, one for no class, and the words."""
        return self.no_class + 1 + self.words

    @property
    def context_length(self) -> int:
        """The number of tokens of a caption and an image, S + T."""
        return self.caption + math.prod(self.sides)

    @property
    def decoder(self) -> gpt2.Config:
        """The configuration of the GPT-2 that reads the tokens."""
        return gpt2.Config(
            vocab_size=self.vocab_size,
            context_length=self.context_length,
            dim=self.dim,
            layers=self.layers,
            heads=self.heads,
            ffn_dim=self.ffn_dim,
            dropout=self.dropout,
        )


class ImageGPT(gpt2.GPT2):
    """(N, S + T) tokens, the caption, the start token and the pixels so far, to (N, T, k) logits of each pixel."""

    takes = (ImageSpec,)
    targets = (ImageTokens,)

    def __init__(self, config: Config) -> None:
        super().__init__(config.decoder)
        self.config = config  # it has all that the decoder's methods read
        self.head = nn.Linear(config.dim, config.colors, bias=False)  # no pixel is a start token
        nn.init.normal_(self.head.weight, std=gpt2.STD)

    def features(self, tokens: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the input of the head, (N, T, dim). In training, the class or caption of some images is hidden."""
        return self.hidden(self.hide_class(tokens), mask)[:, self.config.caption :]

    def hide_class(self, tokens: Tensor) -> Tensor:
        """Return tokens (N, S + T) with padding for the caption and "no class" for the class of some images.

        It is so with probability class_dropout, in training only.
        """
        ones = torch.ones_like(tokens[:, 0], dtype=torch.float32)
        kept = F.dropout(ones, self.config.class_dropout, self.training) > 0  # (N,)
        at = torch.arange(tokens.shape[1], device=tokens.device)  # (S + T,)
        hidden = self.config.no_class + (at < self.config.caption).long()  # padding is the token after "no class"
        return torch.where(kept[:, None] | (at > self.config.caption), tokens, hidden)


Model = ImageGPT

PRESETS = {
    "image-gpt": Config(dim=128, layers=4, heads=4),
    "image-gpt-s": Config(),
}

_SETTINGS = {"optimizer": "adamw", "weight_decay": 0.01, "schedule": "warmup-cosine", "warmup": 0.05, "grad_clip": 1.0}

CARD = Card(
    title="Generative pretraining from pixels",
    authors="M. Chen, A. Radford, R. Child, J. Wu, H. Jun, P. Dhariwal, D. Luan, I. Sutskever",
    year=2020,
    link="https://openai.com/index/image-gpt/",
    family="generative",
    equation="p(x | c) = Π_t p(x_t | c, x_1 … x_{t−1});  z ← z + MHA(LN(z));  z ← z + MLP(LN(z))",
    oracle="transformers' GPT2LMHeadModel with an output for each colour",
    published={
        "image-gpt": Published(1_055_616, 1_946_157_056, (3, 32, 32), "computed from the definition above"),
        "image-gpt-s": Published(
            76_707_328,
            103_347_650_560,
            (3, 32, 32),
            "computed from the definition above",
            paper="76M, section 3.3 (iGPT-S)",
        ),
    },
    divergences=(
        Divergence(
            "classes",
            paper="none: the start token is the same for all images",
            here="a start token for each class, replaced by one for no class for 10 % of the training images",
            common="none (transformers)",
        ),
        Divergence(
            "captions",
            paper="none",
            here="on images with captions, the caption and a start token come before the pixels, as in DALL-E (Ramesh "
            "et al. 2021), and only the pixels are predicted; the caption is hidden for 10 % of the training images",
            common="none (transformers)",
        ),
        Divergence(
            "palette",
            paper="512 colours, by k-means of the pixels of ImageNet",
            here="by k-means of the training images, 64 by default (palette_size); images with fewer keep theirs",
            common="the 512 colours of the released weights (transformers)",
        ),
        Divergence(
            "normalization and activation",
            paper="layer normalization, in the formulation of GPT-2",
            here="as in GPT-2: layer normalization, GELU by its tanh approximation",
            common="no mean and no bias in the normalization, x σ(1.702 x) (released code, transformers): released "
            "weights cannot be loaded",
        ),
        Divergence(
            "order of training",
            paper="generative pre-training, then a linear probe or fine-tuning on classes; also BERT's objective",
            here="generation only",
        ),
        Divergence(
            "optimizer",
            paper="Adam, β₂ = 0.95, the largest of the learning rates 0.01, 0.003, 0.001 that is stable",
            here="AdamW, β₂ = 0.999, learning rate 0.003 (image-gpt-s) or 0.001: betas=0.9,0.95 as in the paper",
        ),
        Divergence(
            "small preset",
            paper="the smallest has 24 blocks of 512 channels",
            here="image-gpt: 4 blocks of 128 channels, for digits and other small images on a CPU",
        ),
    ),
    settings={
        "image-gpt": _SETTINGS | {"lr": 1e-3, "batch_size": 32, "epochs": 30},
        "image-gpt-s": _SETTINGS | {"lr": 3e-3, "batch_size": 128, "palette_size": 512},
    },
)
