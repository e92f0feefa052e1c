"""TimeSformer: a video Transformer with divided attention, over time and then over space.

After G. Bertasius, H. Wang, L. Torresani, Is space-time attention all you need for video understanding?, 2021
(ICML 2021). <https://arxiv.org/abs/2102.05095>

Each of T frames is cut into P patches, as in a ViT; patch p of frame t is a token. A token does not attend to all T·P
tokens, but to those at its position in all frames, and then to those of its frame (equations 1 and 2 of the paper, and
8 with 9 for one head's weights α of a query q over keys k):

    z⁰_{p,t}   = E x_{p,t} + e_p + e_t,   the class token z_cls before them with a place of its own and no time
    α^time     = softmax over t' of q_{p,t} · k_{p,t'} / √d
    α^space    = softmax over p' of q_{p,t} · k_{p',t} / √d, the class token among the p'

      a block        z ──────────┐
                     │ LN        │                 T-MSA  each place over the frames; the class token is not in it
                     │ T-MSA     │                 W_T    one linear layer after it
                     │ W_T       │
                     + ◄─────────┘
                     ├───────────┐
                     │ LN        │                 S-MSA  each frame over its patches and the class token, which
                     │ S-MSA     │                        every frame has; its outputs are averaged over frames
                     + ◄─────────┘
                     ├───────────┐
                     │ LN        │                 MLP    two linear layers, GELU between
                     │ MLP       │                 LN     layer normalization of each token, eps 1e-6
                     + ◄─────────┘
                     z

Shapes, from a video (N, T, C, H, W) with a mask (N, T): E is a convolution P×P with stride P, the same for every frame
(N·T, D, H/P, W/P); tokens frame by frame, and row by row in a frame, after the class token (N, 1 + T·HW/P², D);
`layers` blocks; the class token, normalized (N, D); logits (N, classes).

Padding does not change the result: temporal attention ignores padding frames, and the class token is averaged over real
frames. A frame has the time embedding of its index, so a shorter video uses only the first ones.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from ..core.errors import InputShapeError, ModelError, check_value
from ..core.spec import Classes, Value, VideoSpec
from ..nn.attention import MultiHeadAttention
from ..nn.masks import normalize_padding_mask
from ..nn.transformer import MLP
from .base import BaseModel, TokenGrid
from .card import Card, Divergence, Published, Result
from .config import ValidatedConfig, fraction, positive
from .vit import interpolate_positions

EPS = 1e-6  # ε of the normalizations: the default in the authors' library, not PyTorch's
STD = 0.02  # standard deviation of the initialization of positions, class token and head
TIMES_STD = 0.2  # of times: a fifth of a patch embedding's, so that frames differ from the first step on


@dataclass(frozen=True)
class Config(ValidatedConfig):
    """Configuration of the network."""

    frames: int = positive(8)  # maximum number of frames: the size of the table of times
    image_size: int = positive(224)  # pixels a side that positions are learned for; frames of other sizes are accepted
    patch_size: int = positive(16)  # pixels a side of a patch: 8 for videos of few pixels
    dim: int = positive(768)  # model dimension D
    layers: int = positive(12)  # blocks, each with attention over time and over space
    heads: int = positive(12)  # attention heads, each with dim / heads channels
    ffn_dim: int = positive(3072)  # feed-forward dimension, 4 · dim in all presets
    dropout: float = fraction(0.0)  # dropout rate after positions, times, attention and both layers of the MLP
    in_channels: int = positive(3)  # 1 for grey, 3 for RGB
    num_classes: int = positive(400)  # size of the output: number of classes, or 1 for a number

    def __post_init__(self) -> None:
        super().__post_init__()
        check_value(self.dim % self.heads == 0, "heads", self.heads, f"at least 1 and a divisor of dim={self.dim}")

    @property
    def least_size(self) -> int:
        """The smallest height and width of a frame: one patch."""
        return self.patch_size

    @property
    def size_step(self) -> int:
        """Heights and widths are multiples of this: whole patches."""
        return self.patch_size

    @property
    def grid(self) -> int:
        """Patches a side that positions are learned for; a part of a patch at the edge counts as one."""
        return math.ceil(self.image_size / self.patch_size)

    @classmethod
    def for_spec(cls, preset: Config, spec: VideoSpec) -> Config:
        """Return the preset with the channels and classes of `spec`, positions for its longer side and times for its
        frames.

        Raises ModelError if the target is neither a class nor a number.
        """
        if not isinstance(spec.target, VideoTransformer.targets):
            raise ModelError(
                f"video-transformer learns a class or a number of each video, and not {spec.target.column}."
            )
        return dataclasses.replace(
            preset,
            frames=spec.frames,
            image_size=max(spec.height, spec.width),
            in_channels=spec.channels,
            num_classes=spec.target.outputs,
        )


class Block(nn.Module):
    """Temporal attention, spatial attention and MLP, each with a residual connection."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.time_norm = nn.LayerNorm(config.dim, eps=EPS)
        self.time_attention = MultiHeadAttention(config.dim, config.heads)
        self.time_fc = nn.Linear(config.dim, config.dim)
        self.norm1 = nn.LayerNorm(config.dim, eps=EPS)
        self.attention = MultiHeadAttention(config.dim, config.heads)
        self.norm2 = nn.LayerNorm(config.dim, eps=EPS)
        self.mlp = MLP(config.dim, config.ffn_dim, "gelu", config.dropout)
        self.dropout = nn.Dropout(config.dropout)
        for layer in (self.time_fc, self.mlp.fc1, self.mlp.fc2):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, z: Tensor, frames: int, real: Tensor | None = None) -> Tensor:
        """Map (N, 1 + T·P, D) to the same shape, with T frames of P patches; `real` (N, T) is True for real frames."""
        first, patches = z[:, :1], torch.unflatten(z[:, 1:], 1, (frames, -1))  # (N, 1, D), (N, T, P, D)
        n, _, places, _ = patches.shape

        x = patches.transpose(1, 2).flatten(0, 1)  # (N·P, T, D)
        keys = real.repeat_interleave(places, 0)[:, None, None] if real is not None else None  # (N·P, 1, 1, T)
        x = self.time_fc(self.dropout(self.time_attention(self.time_norm(x), mask=keys)))
        patches = patches + x.unflatten(0, (n, places)).transpose(1, 2)  # (N, T, P, D)

        x = torch.cat([first[:, None].expand(-1, frames, -1, -1), patches], 2).flatten(0, 1)  # (N·T, 1 + P, D)
        x = self.dropout(self.attention(self.norm1(x))).unflatten(0, (n, frames))  # (N, T, 1 + P, D)
        z = torch.cat([first + mean_over(x[:, :, 0], real), (patches + x[:, :, 1:]).flatten(1, 2)], 1)
        y: Tensor = z + self.dropout(self.mlp(self.norm2(z)))  # (N, 1 + T·P, D)
        return y


def mean_over(x: Tensor, real: Tensor | None) -> Tensor:
    """Return the mean of x (N, T, D) over real frames, (N, 1, D)."""
    if real is None:
        return x.mean(1, keepdim=True)
    weights = real.to(x.dtype) / real.sum(1, keepdim=True).clamp(min=1)  # (N, T)
    return weights[:, None] @ x.masked_fill(~real[..., None], 0)  # padding may hold anything


class VideoTransformer(BaseModel):
    """(N, T, C, H, W) videos, sides multiples of the patch, to (N, classes) logits."""

    takes = (VideoSpec,)
    targets = (Classes, Value)
    over_frames: ClassVar[tuple[str, ...]] = ("blocks.*.time_attention",)

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.patches = nn.Conv2d(config.in_channels, config.dim, config.patch_size, stride=config.patch_size)  # E
        self.class_token = nn.Parameter(torch.zeros(1, 1, config.dim))
        self.positions = nn.Parameter(torch.empty(1, 1 + config.grid**2, config.dim))
        self.times = nn.Parameter(torch.empty(1, config.frames, config.dim))
        self.dropout = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.dim, eps=EPS)
        self.head = nn.Linear(config.dim, config.num_classes)

        nn.init.trunc_normal_(self.patches.weight, std=self.patches.weight[0].numel() ** -0.5)
        nn.init.zeros_(self.patches.bias)  # type: ignore[arg-type]  # it has one
        nn.init.trunc_normal_(self.head.weight, std=STD)
        nn.init.zeros_(self.head.bias)
        for table in (self.class_token, self.positions):
            nn.init.trunc_normal_(table, std=STD)
        nn.init.normal_(self.times, std=TIMES_STD)

    def tokens(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the output of the last block: (N, 1 + T·P, D), the class token, then the patches frame by frame.

        Raises ModelError if a video has too many frames, or sides that are not multiples of the patch.
        """
        self._reject(x)
        n, frames = x.shape[:2]
        real = normalize_padding_mask(mask, x.shape)
        z: Tensor = self.patches(x.flatten(0, 1))  # (N·T, D, H/P, W/P)
        positions = interpolate_positions(self.positions, 1, (z.shape[2], z.shape[3]))  # (1, 1 + P, D)
        z = self.dropout(z.flatten(2).transpose(1, 2) + positions[:, 1:]).unflatten(0, (n, frames))  # (N, T, P, D)
        z = self.dropout((z + self.times[:, :frames, None]).flatten(1, 2))  # (N, T·P, D)
        first = self.dropout(self.class_token + positions[:, :1]).expand(n, -1, -1)  # (N, 1, D)
        z = torch.cat([first, z], 1)  # (N, 1 + T·P, D)
        for block in self.blocks:
            z = block(z, frames, real)
        return z

    def features(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the input of the head: the class token, normalized, (N, D)."""
        y: Tensor = self.norm(self.tokens(x, mask)[:, 0])
        return y

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the logits, shape (N, classes). `mask` (N, T) is True where a frame is real."""
        logits: Tensor = self.head(self.features(x, mask))
        return logits

    def token_grid(self, height: int, width: int) -> TokenGrid:
        """Return the patches of a frame, after the class token."""
        side = self.config.patch_size
        return TokenGrid(height // side, width // side, 1)

    def position_tables(self, num_positions: int) -> dict[str, Tensor]:
        """Return the position embeddings of the patches and those of the frames."""
        return {"positions": self.positions[0, 1:], "times": self.times[0]}

    def adapt_state(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the tensors of another such network as this one takes them: positions learned at another frame size
        are interpolated; of times learned for more frames the first ones are taken.

        """
        adapted = dict(tensors)
        found = adapted.get("positions")
        if found is not None and found.ndim == 3 and math.isqrt(found.shape[1] - 1) ** 2 == found.shape[1] - 1 > 0:
            adapted["positions"] = interpolate_positions(found, 1, (self.config.grid, self.config.grid))
        times = adapted.get("times")
        if times is not None and times.ndim == 3 and times.shape[1] > self.config.frames:
            adapted["times"] = times[:, : self.config.frames].contiguous()
        return adapted

    def _reject(self, x: Tensor) -> None:
        frames, (height, width), patch = x.shape[1], x.shape[3:], self.config.patch_size
        if frames > self.config.frames:
            raise InputShapeError(
                f"These videos have {frames} frames, and this model has learned times for {self.config.frames}: give "
                f"it fewer frames, or build it with frames={frames}."
            )
        if not height or not width or height % patch or width % patch:
            whole = max(1, math.ceil(max(height, width) / patch)) * patch
            raise InputShapeError(
                f"video-transformer cuts frames into patches of {patch}×{patch} pixels, and these are "
                f"{height}×{width}: bring them to a multiple, as image_size={whole}, or take a patch that divides both "
                "sides, by model.patch_size."
            )


Model = VideoTransformer

PRESETS = {
    "timesformer": Config(),
    "video-transformer": Config(
        frames=16, image_size=24, patch_size=8, dim=64, layers=3, heads=4, ffn_dim=256, num_classes=10
    ),
}

CARD = Card(
    title="Is space-time attention all you need for video understanding?",
    authors="G. Bertasius, H. Wang, L. Torresani",
    year=2021,
    link="https://arxiv.org/abs/2102.05095",
    family="transformer",
    equation="z ← z + W_T T-MSA(LN(z));  z ← z + S-MSA(LN(z));  z ← z + MLP(LN(z))",
    oracle="transformers' TimesformerForVideoClassification",
    published={
        "timesformer": Published(
            121_566_352,
            195_830_353_920,
            (8, 3, 224, 224),
            "computed on transformers' network, for the 400 classes of Kinetics; the paper's 0.59 tera-operations are "
            "of the three crops of a video together",
            paper="121.4 M, which the definition has with the 174 classes of Something-Something",
        ),
        "video-transformer": Published(
            227_594, 34_238_080, (16, 3, 24, 24), "computed from the definition above, for 10 classes"
        ),
    },
    divergences=(
        Divergence(
            "attention",
            paper="five kinds: space only, joint, divided, sparse and axial (its figure 2)",
            here="divided, as recommended",
            common="space only, joint and divided (the authors' code, transformers)",
        ),
        Divergence(
            "the linear layer after attention over time",
            paper="not specified; initialized with zero in the authors' code, so that a network with image weights "
            "starts as a ViT",
            here="as every other layer, because the presets are trained from scratch",
            common="as here (transformers)",
        ),
        Divergence(
            "shorter videos",
            paper="all have the same length",
            here="the first positions; padding is masked",
            common="temporal positions interpolated to the number of frames (the authors' code)",
        ),
        Divergence(
            "frames of another size",
            paper="positions interpolated; the method is not specified",
            here="bicubic, as in vit.py",
            common="nearest (the authors' code, transformers)",
        ),
        Divergence(
            "initialization",
            paper="a ViT's weights, learned on images",
            here="as in vit.py; temporal positions normal with standard deviation 0.2: with zeros the small preset, "
            "trained from scratch, predicted after 400 steps only the axis of motion of a digit, not its direction",
            common="normal of standard deviation 0.02, times zero (transformers; the authors' code, with patches as "
            "PyTorch's own)",
        ),
    ),
    results={
        "timesformer": (
            Result(
                "Kinetics-400",
                {"top-1 accuracy": 77.9, "top-5 accuracy": 93.2},
                "8 frames, 3 crops",
                "the authors' release, retrained after the paper",
            ),
        ),
    },
    settings={
        # Section 4 of the paper: SGD, rate 0.005 divided by 10 after 11 and 14 of 15 epochs, from a ViT's weights.
        "timesformer": {
            "optimizer": "momentum",
            "lr": 5e-3,
            "batch_size": 16,
            "weight_decay": 1e-4,
            "schedule": "warmup-cosine",
            "epochs": 15,
        },
        "video-transformer": {
            "optimizer": "adamw",
            "lr": 1e-3,
            "schedule": "warmup-cosine",
            "grad_clip": 1.0,
            "epochs": 30,
            "batch_size": 32,
        },
    },
)
