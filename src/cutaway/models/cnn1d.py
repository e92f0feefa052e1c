"""The convolutional network of the MNIST-1D benchmark: three convolutions over time and a linear layer.

After S. Greydanus, D. Kobak, Scaling down deep learning with MNIST-1D, 2020 (ICML 2024).
<https://arxiv.org/abs/2011.14439>

    h_l[c, t] = ReLU( b_l[c] + Σ_{c', k} W_l[c, c', k] · h_{l−1}[c', 2t + k − 1] ),   l = 1, 2, 3
    z = W vec(h₃) + b

Each layer has stride 2, so the steps are halved three times, and shifts of the signal shift the feature maps. The sum
is a cross-correlation, as everywhere in PyTorch, with one step of zero padding on either side.

Shapes, from a series (N, T, F), which a convolution takes as (N, F, T), here with T = 40, F = 1:
    conv 5, stride 2, padding 1, ReLU     (N, 25, 19)
    conv 3, stride 2, padding 1, ReLU     (N, 25, 10)
    conv 3, stride 2, padding 1, ReLU     (N, 25, 5)
    linear                                (N, classes)

The last layer has a weight for every remaining step, so one set of weights serves only one length T. The module names
are those of the authors' implementation (`ConvBase` in the repository greydanus/mnist1d), whose weights load unchanged.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor, nn

from ..core.errors import InputShapeError
from ..core.spec import SeriesSpec
from .base import BaseModel
from .card import Card, Divergence, Published, Result
from .config import ValidatedConfig, min_value, positive

KERNELS = (5, 3, 3)  # kernel sizes
LEAST_STEPS = KERNELS[0] - 2  # with the padding of one on either side, the first kernel just fits


@dataclass(frozen=True)
class Config(ValidatedConfig):
    """Configuration of the network."""

    steps: int = min_value(LEAST_STEPS, 40)  # T, the length of a series
    in_features: int = positive(1)  # F, the variables at each step
    channels: int = positive(25)  # of each convolution
    num_classes: int = positive(10)  # size of the output: number of classes, or 1 for a number

    @classmethod
    def for_spec(cls, preset: Config, spec: SeriesSpec) -> Config:
        """Return the preset with the length, variables and classes of `spec`. Raises ModelError if it is too short."""
        return dataclasses.replace(preset, steps=spec.steps, in_features=spec.features, num_classes=spec.target.outputs)

    @property
    def steps_left(self) -> int:
        """The number of steps of the last map."""
        steps = self.steps
        for kernel in KERNELS:
            steps = (steps + 2 - kernel) // 2 + 1
        return steps


class CNN1d(BaseModel):
    """A network that maps series of shape (N, T, F) to logits of shape (N, classes)."""

    takes = (SeriesSpec,)

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        first, second, third = KERNELS
        self.conv1 = nn.Conv1d(config.in_features, config.channels, first, stride=2, padding=1)
        self.conv2 = nn.Conv1d(config.channels, config.channels, second, stride=2, padding=1)
        self.conv3 = nn.Conv1d(config.channels, config.channels, third, stride=2, padding=1)
        self.linear = nn.Linear(config.channels * config.steps_left, config.num_classes)

    def features(self, x: Tensor) -> Tensor:
        """Return the input of the head: the last maps, channel after channel, (N, channels · steps left).

        Raises ModelError if the series are of another length or number of variables.
        """
        expected = (self.config.steps, self.config.in_features)
        if x.shape[1:] != expected:
            raise InputShapeError(
                f"This cnn1d takes series of shape {expected}, steps and variables, and these are "
                f"{tuple(x.shape[1:])}: cut or resample them, or build one with other steps and in_features."
            )
        h = x.transpose(1, 2)  # (N, F, T)
        h = F.relu(self.conv1(h), inplace=True)  # (N, channels, T/2)
        h = F.relu(self.conv2(h), inplace=True)  # (N, channels, T/4)
        h = F.relu(self.conv3(h), inplace=True)  # (N, channels, T/8)
        return h.flatten(1)  # (N, channels · T/8)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits, shape (N, classes)."""
        logits: Tensor = self.linear(self.features(x))
        return logits


Model = CNN1d

PRESETS = {"cnn1d": Config()}

CARD = Card(
    title="Scaling down deep learning with MNIST-1D",
    authors="S. Greydanus, D. Kobak",
    year=2020,
    link="https://arxiv.org/abs/2011.14439",
    family="cnn",
    equation="h_l[c, t] = ReLU(b_l[c] + Σ W_l[c, c', k] h_{l−1}[c', 2t + k − 1]), z = W vec(h₃) + b",
    oracle="the sums of the equation, one kernel position at a time",
    published={
        "cnn1d": Published(
            5_210, 31_750, (40, 1), "parameters as the authors' notebook prints them; multiply-adds computed from it"
        )
    },
    divergences=(
        Divergence(
            "training",
            paper="6 000 steps of Adam at 0.01 in batches of 100, with no decay and no validation split",
            here="the settings of the card; some of the training series become the validation split",
        ),
    ),
    # Chosen on validation splits: without decay and smoothing it overfits 3 400 series and stays at 0.86 there.
    results={
        "cnn1d": (Result("MNIST-1D", {"accuracy": 94.0}, "test set", "greydanus/mnist1d"),),
    },
    settings={
        "cnn1d": {
            "optimizer": "adamw",
            "lr": 1e-2,
            "weight_decay": 0.1,
            "label_smoothing": 0.1,
            "epochs": 120,
            "batch_size": 100,
        }
    },
)
