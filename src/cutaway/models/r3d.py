"""3-D residual networks for video: R3D-18, with convolutions over time, height and width.

After D. Tran, H. Wang, L. Torresani, J. Ray, Y. LeCun, M. Paluri, A closer look at spatiotemporal convolutions for
action recognition, 2017 (CVPR 2018). <https://arxiv.org/abs/1711.11248>

A 3-D convolution also sums over a window of frames (section 3.3 of the paper), with stride s, and a, b, c from 0 to 2:

    y_{o, t, i, j} = Σ_{c', a, b, c}  w_{o, c', a, b, c}  x_{c', s t + a − 1, s i + b − 1, s j + c − 1}

The rest is ResNet-18, with a time axis in every map:

      x ────────────┐        w   width of the stage
      │ 3×3×3, w, /s│        /s  stride in time, height and width: 2 in the first block of a stage
      │ BN, ReLU    │ W_s        (but of the first stage), 1 elsewhere
      │ 3×3×3, w    │        W_s the identity where it fits, else a 1×1×1 convolution /s, BN
      │ BN          │
      ▼             │
      + ◄───────────┘
      ReLU ── y

Shapes of r3d-18, from a video (N, T, C, H, W), here (N, 16, 3, 112, 112), with a mask (N, T): stem 3×7×7 with stride 2
in space only (N, 64, 16, 56, 56), four stages with w = 64, 128, 256, 512 on maps of 16×56×56, 8×28×28, 4×14×14 and
2×7×7, mean over all of these (N, 512), logits (N, classes). Videos of any length and size are accepted: maps are
halved, rounding up, and the mean is over the remaining map.

Padding does not change the result. A convolution pads with zeros before the first frame and after the last; the maps of
padding frames are set to the same zeros after each normalization, so that a video has the same maps alone and in a
batch with a longer one. Normalization statistics in training and the final mean are over the maps of real frames. Map t
of a stage covers the frames around s t, and is real if frame s t is.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..core.errors import InputShapeError, ModelError
from ..core.spec import Classes, Value, VideoSpec
from ..nn.masks import normalize_padding_mask, rows_not_right_padded
from .base import BaseModel
from .card import Card, Divergence, Published, Result
from .config import ValidatedConfig, choice, positive

STEMS = {"r3d": (7, 2), "small": (3, 2)}  # pixels a side of the first kernel, and its stride in space


@dataclass(frozen=True)
class Config(ValidatedConfig):
    """Configuration of the network."""

    layers: tuple[int, ...] = positive((2, 2, 2, 2))  # residual blocks in each stage
    width: int = positive(64)  # channels of the first stage; each further stage has twice as many
    stem: str = choice("r3d", STEMS)  # the first kernel, with stride 2 in space: 3×7×7; small is 3×3×3, for few pixels
    in_channels: int = positive(3)  # 1 for grey, 3 for RGB
    num_classes: int = positive(400)  # size of the output: number of classes, or 1 for a number

    @classmethod
    def for_spec(cls, preset: Config, spec: VideoSpec) -> Config:
        """Return the preset with the channels and classes of `spec`; videos of any length and size are accepted.

        Raises ModelError if the target is neither a class nor a number.
        """
        if not isinstance(spec.target, R3D.targets):
            raise ModelError(f"r3d learns a class or a number of each video, and not {spec.target.column}.")
        return dataclasses.replace(preset, in_channels=spec.channels, num_classes=spec.target.outputs)


def masked_batch_norm(bn: nn.BatchNorm3d, x: Tensor, real: Tensor | None) -> Tensor:
    """Apply `bn` to the maps of real frames only, x (N, C, T, H, W) and real (N, T); padding frames become 0."""
    if real is None:
        y: Tensor = bn(x)
        return y
    if not bn.training:  # each frame by itself
        return bn(x).masked_fill(~real[:, None, :, None, None], 0)  # type: ignore[no-any-return]
    frames = x.transpose(1, 2)  # (N, T, C, H, W)
    kept = bn(frames[real].unsqueeze(2)).squeeze(2)  # (M, C, H, W), M real frames
    y = frames.new_zeros(frames.shape, dtype=kept.dtype)
    y[real] = kept
    return y.transpose(1, 2)  # (N, C, T, H, W)


def conv(in_channels: int, out_channels: int, stride: int = 1) -> nn.Conv3d:
    """Return a convolution 3×3×3 that keeps the size at stride 1.

    It has no bias: the normalization after it has one.
    """
    return nn.Conv3d(in_channels, out_channels, 3, stride, padding=1, bias=False)


class Stem(nn.Module):
    """The first convolution: (N, C, T, H, W) to (N, w, T, ⌈H/2⌉, ⌈W/2⌉)."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        side, stride = STEMS[config.stem]
        self.conv = nn.Conv3d(
            config.in_channels,
            config.width,
            kernel_size=(3, side, side),
            stride=(1, stride, stride),
            padding=(1, side // 2, side // 2),
            bias=False,
        )
        self.bn = nn.BatchNorm3d(config.width)

    def forward(self, x: Tensor, real: Tensor | None = None) -> Tensor:
        """Return the maps of every frame."""
        return F.relu(masked_batch_norm(self.bn, self.conv(x), real), inplace=True)


class Shortcut(nn.Module):
    """W_s: a 1×1×1 convolution, where the shape changes."""

    def __init__(self, in_channels: int, out_channels: int, stride: int) -> None:
        super().__init__()
        self.conv = nn.Conv3d(in_channels, out_channels, 1, stride, bias=False)
        self.bn = nn.BatchNorm3d(out_channels)

    def forward(self, x: Tensor, real: Tensor | None = None) -> Tensor:
        """Map (N, C, T, H, W) to (N, C', ⌈T/s⌉, ⌈H/s⌉, ⌈W/s⌉)."""
        return masked_batch_norm(self.bn, self.conv(x), real)


class Block(nn.Module):
    """Two 3×3×3 convolutions with a shortcut: (N, C, T, H, W) to (N, w, ⌈T/s⌉, ⌈H/s⌉, ⌈W/s⌉)."""

    def __init__(self, in_channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.stride = stride
        self.conv1 = conv(in_channels, width, stride)
        self.bn1 = nn.BatchNorm3d(width)
        self.conv2 = conv(width, width)
        self.bn2 = nn.BatchNorm3d(width)
        changes = stride > 1 or in_channels != width
        self.downsample = Shortcut(in_channels, width, stride) if changes else None

    def forward(self, x: Tensor, real: Tensor | None = None) -> Tensor:
        """Return y = ReLU(F(x) + W_s x). `real` (N, ⌈T/s⌉) is True where a map of y belongs to real frames."""
        y = F.relu(masked_batch_norm(self.bn1, self.conv1(x), real), inplace=True)
        y = masked_batch_norm(self.bn2, self.conv2(y), real)
        y += x if self.downsample is None else self.downsample(x, real)
        return F.relu(y, inplace=True)


class R3D(BaseModel):
    """A network that maps videos of shape (N, T, C, H, W) to logits of shape (N, classes)."""

    takes = (VideoSpec,)
    targets = (Classes, Value)

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.stem = Stem(config)
        channels = config.width
        for stage, count in enumerate(config.layers):
            width = config.width * 2**stage
            blocks = []
            for i in range(count):
                blocks.append(Block(channels, width, stride=2 if stage > 0 and i == 0 else 1))
                channels = width
            self.add_module(f"layer{stage + 1}", nn.ModuleList(blocks))
        self.avgpool = nn.AdaptiveAvgPool3d(1)
        self.fc = nn.Linear(channels, config.num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv3d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def features(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the input of the head: the mean over the last maps of real frames, (N, channels).

        `mask` (N, T) is True where a frame is real, at least for the first of each video, with padding on the right.
        Raises ModelError for other padding.
        """
        real = _frame_mask(mask, x)
        if real is not None:
            x = x.masked_fill(~real[:, :, None, None, None], 0)
            if torch.compiler.is_exporting():  # a tracer fixes which sizes are 1, and with more padding none becomes 1
                more = 2 ** (len(self.config.layers) - 1)
                x, real = F.pad(x, (0,) * 7 + (more,)), F.pad(real, (0, more))
        x = self.stem(x.transpose(1, 2), real)  # (N, w, T, H/2, W/2)
        for stage in range(len(self.config.layers)):
            for block in getattr(self, f"layer{stage + 1}"):
                if real is not None:
                    # Contiguous, as a tracer of torch.export would compare the strides of a view, and fix T by them.
                    real = real[:, :: block.stride].contiguous()  # (N, ⌈T/s⌉)
                x = block(x, real)
        pooled: Tensor = self.avgpool(x).flatten(1)  # (N, channels)
        if real is None:
            return pooled
        return pooled * (real.shape[1] / real.sum(1))[:, None]  # maps of padding are 0, and are not counted

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the logits, shape (N, classes)."""
        logits: Tensor = self.fc(self.features(x, mask))
        return logits


def _frame_mask(mask: Tensor | None, x: Tensor) -> Tensor | None:
    """Return the mask of real frames, (N, T), or None if all are real, and on the meta device."""
    mask = normalize_padding_mask(mask, x.shape)
    if torch.compiler.is_exporting():  # no value is known
        return mask
    if mask is None or mask.is_meta or bool(mask.all()):
        return None
    wrong = (rows_not_right_padded(mask) | ~mask.any(1)).nonzero().flatten().tolist()
    if wrong:
        raise InputShapeError(
            f"Video {wrong[0]} of the batch has padding before a real frame, or no real frame at all: padding stands "
            "after the last real frame, where a convolution over time sees zeros in any case."
        )
    return mask


Model = R3D

PRESETS = {"r3d-18": Config(), "r3d-18-small": Config(width=8, stem="small")}

CARD = Card(
    title="A closer look at spatiotemporal convolutions for action recognition",
    authors="D. Tran, H. Wang, L. Torresani, J. Ray, Y. LeCun, M. Paluri",
    year=2017,
    link="https://arxiv.org/abs/1711.11248",
    family="cnn",
    equation="y = F(x, {W_i}) + W_s x, W_i of 3×3×3",
    oracle="torchvision's VideoResNet",
    published={
        "r3d-18": Published(
            33_371_472,
            40_696_553_472,
            (16, 3, 112, 112),
            "torchvision's weight metadata, which has the multiply-adds to three decimals; in full counted on its "
            "network",
        ),
        "r3d-18-small": Published(545_480, 211_051_520, (16, 3, 64, 64), "computed from the definition above"),
    },
    divergences=(
        Divergence(
            "videos of several lengths",
            paper="clips of 8 or 16 frames",
            here="a mask marks real frames, and padding has no effect",
            common="clips of one length (torchvision)",
        ),
        Divergence(
            "initialization",
            paper="not specified",
            here="convolutions normal, variance 2 / outputs, as ResNet's; the last layer has PyTorch's own",
            common="last layer normal of standard deviation 0.01 (torchvision)",
        ),
        Divergence(
            "r3d-18-small",
            paper="none",
            here="1/8 of the width and a first kernel of 3×3×3, for small videos on a CPU",
        ),
    ),
    results={
        "r3d-18": (
            Result(
                "Kinetics-400",
                {"top-1 accuracy": 63.2, "top-5 accuracy": 83.479},
                "clips of 16 frames, averaged",
                "torchvision, R3D_18_Weights.KINETICS400_V1",
            ),
        ),
    },
    settings={
        # Section 4.1 of the paper: SGD, rate 0.01 divided by 10 every 10 of 45 epochs after 10 of warm-up, 32 clips.
        "r3d-18": {
            "optimizer": "momentum",
            "lr": 0.01,
            "batch_size": 32,
            "weight_decay": 1e-4,
            "schedule": "warmup-cosine",
            "epochs": 45,
        },
        "r3d-18-small": {"optimizer": "adamw", "lr": 2e-3, "schedule": "warmup-cosine", "epochs": 8, "batch_size": 32},
    },
)
