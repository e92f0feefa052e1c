"""The multi-layer perceptron: affine maps with an activation between them.

After D. Rumelhart, G. Hinton, R. Williams, Learning representations by back-propagating errors, Nature 323,
1986. <https://doi.org/10.1038/323533a0>

    a₀ = x,   a_l = g(W_l a_{l−1} + b_l),   z = W a_L + b

Shapes: x (N, F), images and series flattened; hidden layers (N, width); z (N, classes) logits, or (N, 1) for a number.
`nn/textbook/backprop.py` has explicit forward and backward propagation.

A hidden layer is linear → norm → activation → dropout, where norm and dropout are optional.
"""

from __future__ import annotations

import dataclasses
import math
from collections import OrderedDict
from dataclasses import dataclass
from itertools import pairwise

from torch import Tensor, nn

from ..core.errors import ConfigError, InputShapeError, UnknownName, check_value
from ..core.spec import ImageSpec, SeriesSpec, Spec, TableSpec
from ..nn.activations import activation, formula
from .base import BaseModel, Dense
from .card import Card, Divergence
from .config import ValidatedConfig, choice, counts, fraction, positive

NORMS = {"none": None, "batch": nn.BatchNorm1d, "layer": nn.LayerNorm}


@dataclass(frozen=True)
class Config(ValidatedConfig):
    """Configuration of the network."""

    in_features: int = positive(40)  # number of features of an example
    num_classes: int = positive(10)  # size of the output: number of classes; 1 for a number, or for two classes
    hidden_dims: tuple[int, ...] = counts((256, 256))  # width of each hidden layer; an empty list gives one affine map
    activation: str = "relu"  # relu, tanh, leaky_relu:0.2 (its slope) …; relu,tanh: one a hidden layer
    norm: str = choice("none", NORMS)  # before each activation: none, batch or layer
    dropout: float = fraction(0.1)  # dropout rate of each hidden layer
    bias: bool = True  # bias of every linear layer, except those before batch normalization

    def __post_init__(self) -> None:
        super().__post_init__()
        names = self.activation.split(",")
        try:
            for name in names:
                formula(name)
        except UnknownName as error:
            raise ConfigError(f"Invalid activation={self.activation}. {error}") from error
        check_value(
            len(names) in (1, len(self.hidden_dims)),
            "activation",
            self.activation,
            f"one, or one for each of the {len(self.hidden_dims)} hidden layers",
        )

    @property
    def activations(self) -> tuple[str, ...]:
        """Of each hidden layer."""
        names = tuple(self.activation.split(","))
        return names if len(names) > 1 else names * len(self.hidden_dims)

    @classmethod
    def for_spec(cls, preset: Config, spec: Spec) -> Config:
        """Return the preset with the number of inputs and outputs of `spec`."""
        return dataclasses.replace(preset, in_features=math.prod(spec.shape), num_classes=spec.target.outputs)


def hidden_layer(inputs: int, width: int, name: str, config: Config) -> nn.Sequential:
    """Return linear → norm → activation → dropout, (N, inputs) to (N, width)."""
    parts: OrderedDict[str, nn.Module] = OrderedDict()
    # Batch normalization subtracts the mean, and so any bias: its gradient is only rounding, which Adam makes as large
    # as any other, so that the bias would wander and the running mean lag behind it.
    parts["linear"] = nn.Linear(inputs, width, bias=config.bias and config.norm != "batch")
    norm = NORMS[config.norm]
    if norm is not None:
        parts["norm"] = norm(width)
    parts["activation"] = activation(name)
    if config.dropout:
        parts["dropout"] = nn.Dropout(config.dropout)
    return nn.Sequential(parts)


class MLP(BaseModel):
    """(N, ...) examples to (N, classes) logits, or (N, 1) values."""

    takes = (TableSpec, ImageSpec, SeriesSpec)

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        widths = (config.in_features, *config.hidden_dims)
        layers = zip(pairwise(widths), config.activations, strict=True)
        self.hidden = nn.Sequential(*(hidden_layer(i, o, name, config) for (i, o), name in layers))
        self.head = nn.Linear(widths[-1], config.num_classes, bias=config.bias)

    def dense_layers(self) -> list[Dense]:
        """Return the hidden layers and the head."""
        hidden = ((f"hidden.{i}", name) for i, name in enumerate(self.config.activations))
        norm = self.config.norm != "none"
        return [
            *(Dense(f"{h}.linear", h, f"{h}.norm" if norm else "", name) for h, name in hidden),
            Dense("head", "head"),
        ]

    def features(self, x: Tensor) -> Tensor:
        """Return the input of the head: the last hidden layer, (N, width)."""
        if self.config.norm == "batch" and self.training and len(x) == 1:
            raise InputShapeError(
                "mlp with norm=batch cannot learn from a batch of one example, which has no variance: "
                "take a larger batch_size, or model.norm=layer."
            )
        a: Tensor = self.hidden(x.flatten(1))
        return a

    def forward(self, x: Tensor) -> Tensor:
        """Return the raw outputs z."""
        z: Tensor = self.head(self.features(x))
        return z


Model = MLP

# Inputs and classes are those of MNIST-1D, whose own benchmark has hidden_dims=(100, 100); a data set sets its own.
PRESETS = {"mlp": Config()}

CARD = Card(
    title="Learning representations by back-propagating errors",
    authors="D. Rumelhart, G. Hinton, R. Williams",
    year=1986,
    link="https://doi.org/10.1038/323533a0",
    family="dense",
    equation="a_l = g(W_l a_{l−1} + b_l), z = W a_L + b",
    oracle="torch.nn.Sequential, built by hand",
    published={},
    divergences=(
        Divergence("activation", paper="sigmoid", here="ReLU by default (model.activation)"),
        Divergence("dropout", paper="none", here="0.1 by default (model.dropout)"),
        Divergence("biases", paper="for every unit", here="none before batch normalization, which removes it"),
        Divergence("loss", paper="½ squared error", here="cross-entropy for classes, squared error for numbers"),
        Divergence(
            "initialization",
            paper="small and random",
            here="uniform in ±1/√fan-in, including biases (PyTorch's default)",
        ),
        Divergence("optimizer", paper="full-batch descent with momentum", here="the settings of the card"),
    ),
    settings={"mlp": {"optimizer": "adamw", "lr": 5e-3, "epochs": 80, "batch_size": 128}},
)
