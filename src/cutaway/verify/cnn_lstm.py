"""Oracle of the CNN-LSTM for videos: loops over frames, grid cells and time steps."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..models.cnn_lstm import Config
from . import Oracle
from .normalized import batch_normalized

LENGTHS = (2, 5, 1, 4)  # frames of the compared videos


class LoopedCNNLSTM(nn.Module):
    """Network over lists of frames, without padding."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.kernels, self.scales, self.shifts = nn.ParameterList(), nn.ParameterList(), nn.ParameterList()
        inputs = config.in_channels
        for i, outputs in enumerate(config.channels):
            self.kernels.append(nn.Parameter(torch.zeros(outputs, inputs, 3, 3)))
            self.scales.append(nn.Parameter(torch.ones(outputs)))
            self.shifts.append(nn.Parameter(torch.zeros(outputs)))
            self.register_buffer(f"mean{i}", torch.zeros(outputs))
            self.register_buffer(f"variance{i}", torch.ones(outputs))
            self.register_buffer(f"batches{i}", torch.tensor(0))
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
        mean, variance = self.get_buffer(f"mean{i}"), self.get_buffer(f"variance{i}")
        x = batch_normalized(torch.stack(maps), mean, variance, self.scales[i], self.shifts[i], self.training)
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


def looped_cnn_lstm(config: Config) -> Oracle:
    """Build the looped network and the key map from our weights."""
    key_map = {"fc.weight": "head", "fc.bias": "head_bias"}
    for i in range(len(config.channels)):
        key_map |= {f"cnn.{i}.conv.weight": f"kernels.{i}"}
        key_map |= {f"cnn.{i}.bn.weight": f"scales.{i}", f"cnn.{i}.bn.bias": f"shifts.{i}"}
        key_map |= {f"cnn.{i}.bn.running_mean": f"mean{i}", f"cnn.{i}.bn.running_var": f"variance{i}"}
        key_map |= {f"cnn.{i}.bn.num_batches_tracked": f"batches{i}"}
    for i in range(config.layers):
        for part in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
            key_map[f"lstm.{part}_l{i}"] = f"cells.{i}.{part}"

    def videos(generator: torch.Generator) -> tuple[Tensor, ...]:
        """Draw videos whose padding is not zero, so that using it would be detected."""
        shape = (len(LENGTHS), max(LENGTHS), config.in_channels, config.least_size + 7, config.least_size)
        x = torch.randn(shape, generator=generator, dtype=torch.float64)
        return x, torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS)[:, None]

    return Oracle(LoopedCNNLSTM(config), videos, key_map)


ORACLES = {"cnn-lstm": looped_cnn_lstm}
