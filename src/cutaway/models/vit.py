"""The Vision Transformer: a Transformer encoder on the sequence of an image's patches.

After A. Dosovitskiy, L. Beyer, A. Kolesnikov, D. Weissenborn, X. Zhai, T. Unterthiner, M. Dehghani, M. Minderer,
G. Heigold, S. Gelly, J. Uszkoreit, N. Houlsby, An image is worth 16×16 words: Transformers for image recognition at
scale, 2020 (ICLR 2021). <https://arxiv.org/abs/2010.11929>

    z_0  = [x_class; x¹E; x²E; …; x^N E] + E_pos                                                       (equation 1)
    z'_l = MSA(LN(z_{l−1})) + z_{l−1}                                                                  (equation 2)
    z_l  = MLP(LN(z'_l)) + z'_l                                                                        (equation 3)
    y    = LN(z_L⁰)                                                                                    (equation 4)

      a block          z ──────────┐                 MSA  multi-head self-attention
                       │ LN        │                 MLP  two linear layers, GELU between
                       │ MSA       │                 LN   layer normalization of each token, eps 1e-6
                       + ◄─────────┘
                       ├───────────┐
                       │ LN        │
                       │ MLP       │
                       + ◄─────────┘
                       z

Shapes, from (N, C, H, W) with patches of P: E is a convolution P×P with stride P (N, D, H/P, W/P), its map read row
by row as T = HW/P² tokens (N, T, D), the class token before them (N, 1 + T, D), positions added, `depth` blocks, the
last normalization of the class token (N, D), logits (N, classes). Sides must be multiples of P, and need not be equal.

Positions are learned, one for each patch of a square image of `image_size`; for images of another shape they are
interpolated as a map (section 3.2), so that one set of weights serves every size. Small images need small
patches: `model.patch_size=4` gives 64 tokens for 32×32 pixels.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..core.errors import InputShapeError, check_value
from ..core.spec import ImageSpec
from ..nn.attention import MultiHeadAttention
from ..nn.transformer import MLP
from .base import BaseModel, TokenGrid, validate_image_size
from .card import Card, Divergence, Published, Result, torchvision_accuracy
from .config import ValidatedConfig, choice, fraction, positive

POOLING = ("token", "mean")
EPS = 1e-6  # ε of the normalizations: the default in the authors' library, not PyTorch's


@dataclass(frozen=True)
class Config(ValidatedConfig):
    """Configuration of the network."""

    image_size: int = positive(224)  # image size of the learned positions; other sizes are accepted
    patch_size: int = positive(16)  # size of a patch in pixels: 4 for images of about 32 pixels
    dim: int = positive(768)  # model dimension D
    layers: int = positive(12)  # blocks: L
    heads: int = positive(12)  # attention heads, each with dim / heads channels
    ffn_dim: int = positive(3072)  # feed-forward dimension, 4 · dim in all presets
    pooling: str = choice("token", POOLING)  # token: the class token; mean: mean of all patches, no class token
    dropout: float = fraction(0.0)  # dropout rate after positions, attention and both layers of the MLP
    in_channels: int = positive(3)  # 1 for grey, 3 for RGB
    num_classes: int = positive(1000)  # logits

    def __post_init__(self) -> None:
        super().__post_init__()
        check_value(self.dim % self.heads == 0, "heads", self.heads, f"at least 1 and a divisor of dim={self.dim}")

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
        """The number of patches along one side of the grid whose positions are learned, rounded up."""
        return math.ceil(self.image_size / self.patch_size)

    @property
    def tokens_before(self) -> int:
        """The number of tokens before the patches: 1 for the class token, or 0."""
        return 1 if self.pooling == "token" else 0

    @classmethod
    def for_spec(cls, preset: Config, spec: ImageSpec) -> Config:
        """Return the preset with the channels and classes of `spec`, and positions for its longer side."""
        return dataclasses.replace(
            preset,
            image_size=max(spec.height, spec.width),
            in_channels=spec.channels,
            num_classes=spec.target.outputs,
        )


def interpolate_positions(positions: Tensor, before: int, grid: tuple[int, int]) -> Tensor:
    """Interpolate positions learned for a square map to a map of `grid` rows and columns.

    (1, before + S², D) becomes (1, before + rows·columns, D). Each of the D channels is an image of S×S pixels, resized
    by cubic interpolation. The first `before` positions belong to tokens outside the map and are unchanged. At the same
    size nothing changes.
    """
    first, squares = positions[:, :before], positions[:, before:]
    side = math.isqrt(squares.shape[1])
    if grid == (side, side):
        return positions
    image = squares.reshape(1, side, side, -1).permute(0, 3, 1, 2)  # (1, D, S, S)
    image = F.interpolate(image, size=grid, mode="bicubic", align_corners=False)  # (1, D, rows, columns)
    return torch.cat([first, image.flatten(2).transpose(1, 2)], dim=1)  # (1, before + rows·columns, D)


def adapt_positions(tensors: Mapping[str, Tensor], name: str, before: int, grid: int) -> dict[str, Tensor]:
    """Return the tensors of a checkpoint, with positions of a square map interpolated to `grid` by `grid`."""
    adapted = dict(tensors)
    found = adapted.get(name)
    if found is not None and found.ndim == 3:
        squares = found.shape[1] - before
        if squares >= 1 and math.isqrt(squares) ** 2 == squares:
            adapted[name] = interpolate_positions(found, before, (grid, grid))
    return adapted


def validate_patch_size(x: Tensor, patch: int, name: str) -> None:
    """Raise ModelError if the sides of images (N, C, H, W) are not multiples of the patch."""
    height, width = x.shape[2:]
    if height % patch or width % patch:
        whole = math.ceil(max(height, width) / patch) * patch
        raise InputShapeError(
            f"{name} cuts images into patches of {patch}×{patch} pixels, and these are {height}×{width}: resize them, "
            f"for example image_size={whole}, or give a model.patch_size that divides both sides."
        )


class Block(nn.Module):
    """Equations 2 and 3, with the MLP initialized as in the authors' code."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(config.dim, eps=EPS)
        self.attention = MultiHeadAttention(config.dim, config.heads)
        self.norm2 = nn.LayerNorm(config.dim, eps=EPS)
        self.mlp = MLP(config.dim, config.ffn_dim, "gelu", config.dropout)
        self.dropout = nn.Dropout(config.dropout)
        for layer in (self.mlp.fc1, self.mlp.fc2):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.normal_(layer.bias, std=1e-6)

    def forward(self, z: Tensor) -> Tensor:
        """Map (N, T, D) to (N, T, D)."""
        z = z + self.dropout(self.attention(self.norm1(z)))  # (N, T, D)
        y: Tensor = z + self.dropout(self.mlp(self.norm2(z)))  # (N, T, D)
        return y


class ViT(BaseModel):
    """(N, C, H, W) images, sides multiples of the patch, to (N, classes) logits."""

    takes = (ImageSpec,)

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.patches = nn.Conv2d(config.in_channels, config.dim, config.patch_size, stride=config.patch_size)  # E
        if config.pooling == "token":
            self.class_token = nn.Parameter(torch.zeros(1, 1, config.dim))
        self.positions = nn.Parameter(torch.empty(1, config.tokens_before + config.grid**2, config.dim))
        self.dropout = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.dim, eps=EPS)
        self.head = nn.Linear(config.dim, config.num_classes)

        nn.init.trunc_normal_(self.patches.weight, std=self.patches.weight[0].numel() ** -0.5)
        nn.init.zeros_(self.patches.bias)  # type: ignore[arg-type]  # it has one
        nn.init.normal_(self.positions, std=0.02)
        nn.init.trunc_normal_(self.head.weight, std=0.02)
        nn.init.zeros_(self.head.bias)

    def tokens(self, x: Tensor, kept: Tensor | None = None) -> Tensor:
        """Return the output of the last block: (N, T, D), one token for each patch, row by row, after the class token.

        With `kept` (N, K) the blocks take only the patches with these indices: (N, K, D), after the class token. Raises
        ModelError if the sides of the images are not multiples of the patch.
        """
        validate_image_size(x, self.config.least_size, "vit")
        validate_patch_size(x, self.config.patch_size, "vit")
        z: Tensor = self.patches(x)  # (N, D, H/P, W/P)
        grid = (z.shape[2], z.shape[3])
        z = z.flatten(2).transpose(1, 2)  # (N, T, D)
        if self.config.pooling == "token":
            z = torch.cat([self.class_token.expand(z.shape[0], -1, -1), z], dim=1)  # (N, 1 + T, D)
        # Without a class token z would stay transposed in memory, and every normalization would copy it.
        z = z.contiguous() + interpolate_positions(self.positions, self.config.tokens_before, grid)
        if kept is not None:
            first = torch.arange(self.config.tokens_before, device=z.device).expand(z.shape[0], -1)
            which = torch.cat([first, kept + self.config.tokens_before], dim=1)  # (N, 1 + K)
            z = z.gather(1, which[..., None].expand(-1, -1, z.shape[2]))  # (N, 1 + K, D)
        z = self.dropout(z)
        for block in self.blocks:
            z = block(z)  # (N, T, D)
        return z

    def features(self, x: Tensor) -> Tensor:
        """Return the input of the head, (N, D): the class token, normalized, or the mean of the normalized patches."""
        z = self.tokens(x)
        y: Tensor = self.norm(z[:, 0]) if self.config.pooling == "token" else self.norm(z).mean(1)
        return y

    def encode_patches(self, x: Tensor, kept: Tensor) -> Tensor:
        """Return the normalized tokens of the patches `kept` (N, K) only, (N, K, D), after the class token."""
        y: Tensor = self.norm(self.tokens(x, kept))
        return y

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits, shape (N, classes)."""
        logits: Tensor = self.head(self.features(x))
        return logits

    def token_grid(self, height: int, width: int) -> TokenGrid:
        """Return the patches, after the class token."""
        side = self.config.patch_size
        return TokenGrid(height // side, width // side, self.config.tokens_before)

    def position_tables(self, num_positions: int) -> dict[str, Tensor]:
        """Return the position embeddings of the patches, (patches, dim)."""
        return {"positions": self.positions[0, self.config.tokens_before :]}

    def adapt_state(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return a ViT's tensors with positions interpolated to this network's image size.

        Everything else, and positions that fit no square map, is returned unchanged.
        """
        return adapt_positions(tensors, "positions", self.config.tokens_before, self.config.grid)


Model = ViT


def _size(dim: int, layers: int, heads: int, patch_size: int = 16) -> Config:
    return Config(patch_size=patch_size, dim=dim, layers=layers, heads=heads, ffn_dim=4 * dim)


PRESETS = {
    "vit-tiny/16": _size(192, 12, 3),
    "vit-small/16": _size(384, 12, 6),
    "vit-base/16": _size(768, 12, 12),
    "vit-base/32": _size(768, 12, 12, patch_size=32),
    "vit-large/16": _size(1024, 24, 16),
}

_TORCHVISION = (
    "torchvision's weight metadata, with multiply-adds to three decimals, including those of attention; exact counts "
    "from its implementation"
)
_DEIT = "computed from DeiT's width, depth and heads"
_SHAPE = (3, 224, 224)

# The paper's training on ImageNet only (table 3): Adam, learning rate 3e-3 for batches of 4096, warm-up and cosine,
# weight decay 0.3, dropout 0.1, gradients clipped at 1, 300 epochs. Here the rate is scaled by the square root of the
# batch size, 3e-3 / 8; weight decay, crops and flips are for small data sets, where a network without convolutions
# needs them.
_FROM_SCRATCH = {
    "optimizer": "adamw",
    "lr": 4e-4,
    "batch_size": 64,
    "weight_decay": 0.05,
    "schedule": "warmup-cosine",
    "warmup": 0.1,
    "grad_clip": 1.0,
    "epochs": 100,
    "crop": 4,
    "flip": True,
}


def _deit(name: str, top1: float, top5: float) -> Result:
    scores = {"top-1 accuracy": top1, "top-5 accuracy": top5}
    return Result("ImageNet", scores, "single crop", f"{name}, the same network trained on ImageNet alone")


CARD = Card(
    title="An image is worth 16×16 words: Transformers for image recognition at scale",
    authors=(
        "A. Dosovitskiy, L. Beyer, A. Kolesnikov, D. Weissenborn, X. Zhai, T. Unterthiner, M. Dehghani, "
        "M. Minderer, G. Heigold, S. Gelly, J. Uszkoreit, N. Houlsby"
    ),
    year=2020,
    link="https://arxiv.org/abs/2010.11929",
    family="transformer",
    equation="z' = MSA(LN(z)) + z;  z ← MLP(LN(z')) + z'",
    oracle="torchvision's VisionTransformer; transformers' ViTForImageClassification",
    published={
        "vit-tiny/16": Published(5_717_416, 1_253_683_200, _SHAPE, _DEIT),
        "vit-small/16": Published(22_050_664, 4_598_882_304, _SHAPE, _DEIT),
        "vit-base/16": Published(86_567_656, 17_563_828_224, _SHAPE, _TORCHVISION),
        "vit-base/32": Published(88_224_232, 4_409_186_304, _SHAPE, _TORCHVISION),
        "vit-large/16": Published(304_326_632, 61_554_712_576, _SHAPE, _TORCHVISION),
    },
    divergences=(
        Divergence(
            "sizes",
            paper="base, large and huge (its table 1)",
            here="base and large; tiny and small are those of DeiT, <https://arxiv.org/abs/2012.12877>, without its "
            "distillation, with patches of 16",
        ),
        Divergence(
            "head",
            paper="one hidden layer in pre-training, linear in fine-tuning (section 3.1); the mean of all patches "
            "instead of the class token is tested in appendix D.3",
            here="linear; pooling=mean takes the mean and has no class token, as in the authors' code",
            common="linear (torchvision, transformers, timm)",
        ),
        Divergence(
            "GELU",
            paper="not specified; the authors' code uses the tanh approximation",
            here="exact",
            common="exact (torchvision, transformers, timm)",
        ),
        Divergence(
            "dropout",
            paper="after every linear layer except those of queries, keys and values, and after positions; the "
            "authors' code: of the attention weights too",
            here="after positions, attention's output and both layers of the MLP; none in the presets",
            common="as here (torchvision); none within the MLP (transformers)",
        ),
        Divergence(
            "interpolation of positions",
            paper="2-D; the authors' code: linear, corners aligned",
            here="bicubic, corners not aligned",
            common="as here (transformers), with a filter (timm), corners aligned (torchvision)",
        ),
        Divergence(
            "initialization",
            paper="head zero in fine-tuning; the authors' code: head zero, separate Xavier for queries, keys and "
            "values",
            here="separate Xavier for queries, keys and values; head normal with standard deviation 0.02, as DeiT, so "
            "that the first step updates every weight",
            common="torchvision: Xavier for all three as one matrix; head zero",
        ),
        Divergence(
            "weight decay of positions and the class token",
            paper="not specified",
            here="the same as for weights, because they are tables",
            common="none in timm's and DeiT's recipes",
        ),
    ),
    results={
        "vit-tiny/16": (_deit("DeiT-tiny", 72.2, 91.1),),
        "vit-small/16": (_deit("DeiT-small", 79.9, 95.0),),
        "vit-base/16": (
            _deit("DeiT-base", 81.8, 95.6),
            torchvision_accuracy("ViT_B_16_Weights.IMAGENET1K_V1", 81.072, 95.318),
        ),
        "vit-base/32": (torchvision_accuracy("ViT_B_32_Weights.IMAGENET1K_V1", 75.912, 92.466),),
        "vit-large/16": (torchvision_accuracy("ViT_L_16_Weights.IMAGENET1K_V1", 79.662, 94.638),),
    },
    settings=dict.fromkeys(PRESETS, _FROM_SCRATCH),
)
