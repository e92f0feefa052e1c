"""Oracles for videos.

R3D is torchvision's network, and TimeSformer that of transformers, one video at a time without padding. The CNN-LSTM
loops over frames, grid cells and time steps.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from ..checkpoints.huggingface import to_transformers_names
from ..checkpoints.huggingface.timesformer import TIMESFORMER_FAMILY, settings
from ..models import cnn_lstm, r3d, video_transformer
from . import Oracle, ragged_frames
from .libraries import torchvision_key_map, torchvision_models, transformers_library
from .residual import FlatLayers, flat_key_map


class FramesFirst(nn.Module):
    """Network of torchvision, which has channels before frames, with our stem and channels."""

    def __init__(self, config: r3d.Config) -> None:
        super().__init__()
        library: Any = torchvision_models("video.resnet")
        self.net: Any = library.VideoResNet(
            library.BasicBlock, [library.Conv3DSimple] * 4, list(config.layers), library.BasicStem, config.num_classes
        )
        narrow = config.width / 64
        for module in self.net.modules():  # its widths are fixed
            for name, child in module.named_children():
                if isinstance(child, nn.Conv3d):
                    module._modules[name] = _narrow(child, narrow)
                elif isinstance(child, nn.BatchNorm3d):
                    module._modules[name] = nn.BatchNorm3d(round(child.num_features * narrow))
        side, width = {"r3d": 7, "small": 3}[config.stem], config.width
        self.net.stem[0] = nn.Conv3d(
            config.in_channels, width, (3, side, side), (1, 2, 2), (1, side // 2, side // 2), bias=False
        )
        self.net.fc = nn.Linear(8 * width, config.num_classes)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Return the logits (N, classes) of videos (N, T, C, H, W) without padding."""
        logits: Tensor = self.net(x.transpose(1, 2))
        return logits


def _narrow(conv: nn.Conv3d, times: float) -> nn.Conv3d:
    """Return the same convolution with a fraction of the channels."""
    settings: Any = {"kernel_size": conv.kernel_size, "stride": conv.stride, "padding": conv.padding, "bias": False}
    return nn.Conv3d(max(1, round(conv.in_channels * times)), round(conv.out_channels * times), **settings)


def torchvision_r3d(config: r3d.Config) -> Oracle:
    """Build torchvision's network with four stages."""
    videos = ragged_frames((5, 5, 5), config.in_channels, 24, 19)
    return Oracle(FramesFirst(config), videos, torchvision_key_map("r3d-18", r3d.R3D, config, "net."))


VIDEO_LENGTHS = (2, 5, 1, 4)  # frames of the compared videos


class LoopedCNNLSTM(FlatLayers):
    """Network over lists of frames, without padding."""

    def __init__(self, config: cnn_lstm.Config) -> None:
        super().__init__()
        self.config = config
        inputs = config.in_channels
        for outputs in config.channels:
            self.add_kernel(inputs, outputs, 3)
            self.add_norm(outputs)
            inputs = outputs
        seen = inputs * config.grid**2
        sizes = [seen] + [config.hidden_dim] * (config.layers - 1)
        self.cells = nn.ModuleList(nn.LSTMCell(size, config.hidden_dim) for size in sizes)
        self.head = nn.Parameter(torch.zeros(config.num_classes, config.hidden_dim))
        self.head_bias = nn.Parameter(torch.zeros(config.num_classes))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Return the logits (N, classes) of videos (N, T, C, H, W)."""
        lengths = [int(real.sum()) for real in mask]
        frames = [x[n, t] for n, length in enumerate(lengths) for t in range(length)]
        for i in range(len(self.kernels)):
            frames = self._stage(i, frames)
        dropped = self.config.dropout
        seen = F.dropout(torch.stack([self._grid_means(frame) for frame in frames]), dropped, self.training)
        kept = []
        for video in seen.split(lengths):  # type: ignore[no-untyped-call]
            states = self._steps(video)
            kept.append(states[-1] if self.config.pooling == "last" else torch.stack(states).mean(0))
        answers = F.dropout(torch.stack(kept), dropped, self.training)
        return torch.einsum("nd,kd->nk", answers, self.head) + self.head_bias

    def _stage(self, i: int, frames: list[Tensor]) -> list[Tensor]:
        """Apply convolution, normalization over all frames, ReLU and 2×2 max pooling."""
        kernel = self.kernels[i].flatten(1)  # (C', C·9)
        maps = []
        for frame in frames:
            columns = F.unfold(frame[None], 3, padding=1)[0]  # (C·9, H·W)
            maps.append((kernel @ columns).unflatten(1, frame.shape[1:]))
        x = self.normalize(i, torch.stack(maps))
        height, width = (side // 2 * 2 for side in x.shape[2:])
        corners = [torch.clamp(x[:, :, r:height:2, c:width:2], min=0) for r in (0, 1) for c in (0, 1)]
        return list(torch.stack(corners).amax(0))

    def _grid_means(self, frame: Tensor) -> Tensor:
        """Return the mean of each grid cell, channel by channel, shape (C · grid · grid,)."""
        grid = self.config.grid
        (top, bottom), (left, right) = (
            ([g * side // grid for g in range(grid)], [-(-(g + 1) * side // grid) for g in range(grid)])
            for side in frame.shape[1:]
        )
        cells = [
            frame[:, top[r] : bottom[r], left[c] : right[c]].mean((1, 2)) for r in range(grid) for c in range(grid)
        ]
        return torch.stack(cells, 1).flatten()

    def _steps(self, video: Tensor) -> list[Tensor]:
        """Return the states of the last layer at each frame, shape (T, D)."""
        states = list(video)
        for cell in self.cells:
            h = c = video.new_zeros(self.config.hidden_dim)
            inputs, states = states, []
            for x in inputs:
                h, c = cell(x, (h, c))
                states.append(h)
        return states


def looped_cnn_lstm(config: cnn_lstm.Config) -> Oracle:
    """Build the looped network and the key map from our weights."""
    key_map = {"fc.weight": "head", "fc.bias": "head_bias"}
    stages = range(len(config.channels))
    key_map |= flat_key_map([f"cnn.{i}.conv.weight" for i in stages], [f"cnn.{i}.bn" for i in stages])
    for i in range(config.layers):
        for part in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
            key_map[f"lstm.{part}_l{i}"] = f"cells.{i}.{part}"

    videos = ragged_frames(VIDEO_LENGTHS, config.in_channels, config.least_size + 7, config.least_size)
    return Oracle(LoopedCNNLSTM(config), videos, key_map)


TIME_EMBEDDINGS = "timesformer.embeddings.time_embeddings"


class TimeSformerPerVideo(nn.Module):
    """Network of transformers on videos of several lengths, one at a time, with the first time embeddings."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Return the logits (N, classes)."""
        times, config = self.model.get_parameter(TIME_EMBEDDINGS), self.model.config
        answers, most = [], config.num_frames
        for video, real in zip(x, mask):
            config.num_frames = int(real.sum())  # its layers split the tokens by this
            own = {TIME_EMBEDDINGS: times[:, : config.num_frames]}
            answers.append(functional_call(self.model, own, (video[real][None],)).logits)
        config.num_frames = most
        return torch.cat(answers)


def transformers_timesformer(config: video_transformer.Config) -> Oracle:
    """Build the network of transformers for a config, with the library's defaults for all other fields."""
    library = transformers_library()
    given = {k: v for k, v in settings(config).items() if k not in ("hidden_act", "layer_norm_eps")}
    module = library.TimesformerForVideoClassification(library.TimesformerConfig(**given))

    def converted(tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        return {f"model.{key}": tensor for key, tensor in to_transformers_names(TIMESFORMER_FAMILY, tensors).items()}

    lengths = (config.frames, 1, (config.frames + 1) // 2)
    videos = ragged_frames(lengths, config.in_channels, config.image_size, config.image_size)
    return Oracle(TimeSformerPerVideo(module), videos, converted=converted)


ORACLES = {
    **dict.fromkeys(r3d.PRESETS, torchvision_r3d),
    "cnn-lstm": looped_cnn_lstm,
    **dict.fromkeys(video_transformer.PRESETS, transformers_timesformer),
}

REDUCED = {
    "r3d-18": dataclasses.replace(r3d.PRESETS["r3d-18"], width=16, num_classes=10),
    "timesformer": dataclasses.replace(
        video_transformer.PRESETS["timesformer"], frames=4, image_size=32, dim=96, layers=3, ffn_dim=384, num_classes=10
    ),
}
