"""Long-term recurrent convolutional networks: each frame of a video through a CNN, its features through an LSTM.

After J. Donahue, L. A. Hendricks, M. Rohrbach, S. Venugopalan, S. Guadarrama, K. Saenko, T. Darrell, Long-term
recurrent convolutional networks for visual recognition and description, 2014 (CVPR 2015). <https://arxiv.org/abs/1411.4389>

The same weights V process every frame v_t; the resulting features are the input of the recurrent layer (sections 2 and
3 of the paper):

    φ_t = φ_V(v_t)
    i, f, o = σ(W φ_t + U h_{t−1} + b),   g = tanh(W_g φ_t + U_g h_{t−1} + b_g)
    c_t = f ⊙ c_{t−1} + i ⊙ g,            h_t = o ⊙ tanh(c_t)
    z = W_z h_T + b_z      (pooling "last"),   or   W_z (Σ_t h_t / T) + b_z      (pooling "mean")

Shapes, from a video (N, T, C, H, W) with a mask (N, T), the three stages of `cnn-lstm`; M is the number of all real
frames of the batch:
    the real frames                        (M, C, H, W)
    conv 3×3, BN, ReLU, max over 2×2       (M, 16, H/2, W/2)
    conv 3×3, BN, ReLU, max over 2×2       (M, 32, H/4, W/4)
    conv 3×3, BN, ReLU, max over 2×2       (M, 64, H/8, W/8)
    mean over a grid of 3×3 cells          (M, 576)
    LSTM over the frames of each video     (N, T, 128)
    read-out, linear                       (N, 128), (N, classes)

Only real frames enter the convolutions and the steps of the LSTM. Padding therefore costs nothing and does not change
the result: batch normalization in training averages over all its inputs, and frames of zeros would change the
statistics of the others. A video has the same output alone and in a batch with a longer one.
"""

from __future__ import annotations

import dataclasses
import itertools
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..core.errors import ModelError
from ..core.spec import Classes, Value, VideoSpec
from ..nn.masks import normalize_padding_mask
from ..nn.recurrent import LSTM, sequence_lengths
from .base import BaseModel, validate_image_size
from .card import Card, Divergence, Published
from .config import ValidatedConfig, choice, fraction, positive


@dataclass(frozen=True)
class Config(ValidatedConfig):
    """Configuration of the network."""

    in_channels: int = positive(3)  # 1 for grey, 3 for RGB
    channels: tuple[int, ...] = positive((16, 32, 64))  # of each convolution; each is followed by a halving
    grid: int = positive(3)  # cells of the last map, in height and width
    hidden_dim: int = positive(128)  # units of the LSTM
    layers: int = positive(1)  # stacked layers of the LSTM
    pooling: str = choice("last", ("last", "mean"))  # input of the head: the last state, or the mean of all
    dropout: float = fraction(0.0)  # dropout rate of the CNN's output and of the input of the head
    num_classes: int = positive(10)  # size of the output: number of classes; 1 for a number, or for two classes

    @classmethod
    def for_spec(cls, preset: Config, spec: VideoSpec) -> Config:
        """Return the preset with the channels and classes of `spec`; videos of any length and size are accepted.

        Raises ModelError if the target is neither a class nor a number.
        """
        if not isinstance(spec.target, CNNLSTM.targets):
            raise ModelError(f"cnn-lstm learns a class or a number of each video, and not {spec.target.column}.")
        return dataclasses.replace(preset, in_channels=spec.channels, num_classes=spec.target.outputs)

    @property
    def least_size(self) -> int:
        """The smallest height and width: each cell of the grid has at least one pixel after the halvings."""
        side: int = self.grid * 2 ** len(self.channels)
        return side


class Stage(nn.Module):
    """Convolution 3×3, normalization, ReLU and the largest of each 2×2: (M, C, H, W) to (M, C', H/2, W/2).

    The convolution has no bias: the normalization after it has one.
    """

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size=3, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(out_channels)

    def forward(self, x: Tensor) -> Tensor:
        """Return maps of half the height and width, rounded down."""
        return F.max_pool2d(F.relu(self.bn(self.conv(x)), inplace=True), 2)


class CNNLSTM(BaseModel):
    """A network that maps videos of shape (N, T, C, H, W) to logits of shape (N, classes)."""

    takes = (VideoSpec,)
    targets = (Classes, Value)

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        widths = (config.in_channels, *config.channels)
        self.cnn = nn.Sequential(*(Stage(a, b) for a, b in itertools.pairwise(widths)))
        seen = config.channels[-1] * config.grid**2
        self.lstm = LSTM(seen, config.hidden_dim, config.layers, batch_first=True)
        self.fc = nn.Linear(config.hidden_dim, config.num_classes)

    def frames(self, x: Tensor) -> Tensor:
        """Apply φ_V: frames (M, C, H, W) to the input of the LSTM for each, (M, channels · grid · grid)."""
        validate_image_size(x, self.config.least_size, "cnn-lstm")
        cells = F.adaptive_avg_pool2d(self.cnn(x), self.config.grid)  # (M, channels, grid, grid)
        return F.dropout(cells.flatten(1), self.config.dropout, self.training)

    def features(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the input of the head: the last state, or the mean of all, (N, hidden).

        `mask` (N, T) is True where a frame is real, at least for the first of each video, with padding on the right.
        Raises ModelError for other padding.
        """
        mask = normalize_padding_mask(mask, x.shape)
        lengths = sequence_lengths(mask, x.shape[1])
        if mask is None or lengths is None:
            seen = self.frames(x.flatten(0, 1)).view(*x.shape[:2], -1)  # (N, T, D)
            states, (last, _) = self.lstm(seen)  # (N, T, hidden), (layers, N, hidden)
            mean: Tensor = states.mean(1)
        else:
            seen = self._lstm_inputs(x, mask)
            states, last = self.lstm(seen, lengths=lengths)  # zeros after the last real frame
            mean = states.sum(1) / mask.sum(1)[:, None]
        top: Tensor = last[-1]  # of the upper layer, (N, hidden)
        return top if self.config.pooling == "last" else mean

    def _lstm_inputs(self, x: Tensor, mask: Tensor) -> Tensor:
        """Return the input of the LSTM for each frame, (N, T, D), without computing padding frames.

        In an exported graph all frames are computed, because their number is unknown.
        """
        if torch.compiler.is_exporting():
            return self.frames(x.flatten(0, 1)).view(*x.shape[:2], -1)  # (N, T, D)
        real = self.frames(x[mask])  # (M, D)
        seen = real.new_zeros(*mask.shape, real.shape[1])  # (N, T, D)
        seen[mask] = real
        return seen

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the logits, shape (N, classes)."""
        features = F.dropout(self.features(x, mask), self.config.dropout, self.training)
        logits: Tensor = self.fc(features)
        return logits


Model = CNNLSTM

PRESETS = {"cnn-lstm": Config()}

CARD = Card(
    title="Long-term recurrent convolutional networks for visual recognition and description",
    authors="J. Donahue, L. A. Hendricks, M. Rohrbach, S. Venugopalan, S. Guadarrama, K. Saenko, T. Darrell",
    year=2014,
    link="https://arxiv.org/abs/1411.4389",
    family="rnn",
    equation="φ_t = φ_V(v_t), (h_t, c_t) = LSTM(φ_t, h_{t−1}, c_{t−1}), z = W_z h_T + b_z",
    oracle="built by hand: one frame and one step of each video after another",
    published={"cnn-lstm": Published(386_458, 185_074_944, (16, 3, 64, 64), "computed from the definition above")},
    divergences=(
        Divergence(
            "frame encoder",
            paper="CaffeNet up to its first or second dense layer, trained on ImageNet",
            here="three convolutions with normalization, trained with the rest, for small videos; the cells of the "
            "last map are kept: a mean over them would lose positions and directions of motion",
        ),
        Divergence(
            "answer",
            paper="one per frame, all trained, with averaged probabilities",
            here="one per video, from the last state; with pooling=mean from the mean of all states, whose logits are "
            "the mean of the logits of all states",
        ),
        Divergence("biases", paper="one per gate", here="two per gate, which are added, as in PyTorch"),
        Divergence(
            "network of this name",
            paper="LRCN",
            here="three convolutions with normalization, 3×3 cells, no dense layer before the LSTM of 128 units",
            common="in courses two convolutions of 32 and 64 channels without normalization, the mean over the map, a "
            "dense layer of 128 units and an LSTM of 64: 78 026 parameters, from which these sizes are reconstructed "
            "(docs/own_models.md); the mean loses the direction of motion",
        ),
    ),
    settings={"cnn-lstm": {"optimizer": "adamw", "lr": 2e-3, "epochs": 8, "batch_size": 32}},
)
