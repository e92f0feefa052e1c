"""Oracles of linear models and multi-layer perceptrons: scikit-learn, a `torch.nn.Sequential`, and snnTorch."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from ..models import linear, mlp, perceptron, spiking
from . import Oracle, images
from .libraries import snntorch_library

KINDS = "weight", "bias"  # of a linear layer's parameters


class ScikitLearn(nn.Module):
    """Linear model of scikit-learn with the weights of this module: (N, F) to (N, outputs).

    The values are scikit-learn's. The gradients are those of a `torch.nn.Linear`, because scikit-learn has none.
    """

    def __init__(self, estimator: Any, method: str, in_features: int, outputs: int) -> None:
        super().__init__()
        self.estimator, self.method = estimator, method
        self.affine = nn.Linear(in_features, outputs)

    def forward(self, x: Tensor) -> Tensor:
        """Return the result of the estimator's method."""
        self.estimator.coef_ = self.affine.weight.detach().numpy()
        self.estimator.intercept_ = self.affine.bias.detach().numpy()
        values = torch.as_tensor(getattr(self.estimator, self.method)(x.numpy()))
        z: Tensor = self.affine(x)
        return z + (values.reshape(z.shape) - z).detach()  # value of scikit-learn, gradient of z


def scikit_perceptron(config: perceptron.Config) -> Oracle:
    """Build scikit-learn's Perceptron, one against the rest."""
    from sklearn.linear_model import Perceptron

    outputs = 1 if config.num_classes == 2 else config.num_classes
    return _linear(ScikitLearn(Perceptron(), "decision_function", config.in_features, outputs), config)


def scikit_linear(config: linear.Config) -> Oracle:
    """Build scikit-learn's LinearRegression, or the scores of its LogisticRegression before the sigmoid or softmax."""
    from sklearn.linear_model import LinearRegression, LogisticRegression

    outputs = config.num_classes if config.output == "softmax" else 1
    if config.output == "identity":
        return _linear(ScikitLearn(LinearRegression(), "predict", config.in_features, outputs), config)
    return _linear(ScikitLearn(LogisticRegression(), "decision_function", config.in_features, outputs), config)


def _linear(module: ScikitLearn, config: perceptron.Config | linear.Config) -> Oracle:
    key_map = {"head.weight": "affine.weight", "head.bias": "affine.bias"}
    return Oracle(module, images(7, config.in_features), key_map)


class Formula(nn.Module):
    """Function as a module."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, z: Tensor) -> Tensor:
        """Return the function of z."""
        return self.function(z)


def _gelu_tanh(z: Tensor) -> Tensor:
    return 0.5 * z * (1 + torch.tanh(math.sqrt(2 / math.pi) * (z + 0.044715 * z.pow(3))))


FORMULAS: dict[str, Callable[[Tensor], Tensor]] = {
    "identity": lambda z: z,
    "step": lambda z: (z > 0) + 0 * z,
    "sigmoid": lambda z: 1 / (1 + torch.exp(-z)),
    "tanh": lambda z: 1 - 2 / (torch.exp(2 * z) + 1),
    "scaled_tanh": lambda z: 1.7159 * (1 - 2 / (torch.exp(4 * z / 3) + 1)),
    "hard_tanh": lambda z: torch.maximum(torch.minimum(z, torch.ones_like(z)), -torch.ones_like(z)),
    "relu": lambda z: (z + z.abs()) / 2,
    "leaky_relu": lambda z: torch.maximum(z, 0.01 * z),
    "silu": lambda z: z / (1 + torch.exp(-z)),
    "gelu": lambda z: 0.5 * z * (1 + torch.erf(z / math.sqrt(2))),
    "gelu_tanh": _gelu_tanh,
}


def _formula(name: str) -> Callable[[Tensor], Tensor]:
    """Return the formula of an activation, with the slope in its name if there is one."""
    base, _, slope = name.partition(":")
    return (lambda z: z.clamp(min=0) + float(slope) * z.clamp(max=0)) if slope else FORMULAS[base]


def sequential_mlp(config: mlp.Config) -> Oracle:
    """Build a flat list of PyTorch's layers, each activation by its formula."""
    layers: list[nn.Module] = [nn.Flatten()]
    key_map: dict[str, str] = {}

    def add(name: str, layer: nn.Module) -> None:
        key_map.update({f"{name}.{key}": f"{len(layers)}.{key}" for key in layer.state_dict()})
        layers.append(layer)

    inputs = config.in_features
    for i, width in enumerate(config.hidden_dims):
        add(f"hidden.{i}.linear", nn.Linear(inputs, width, bias=config.bias and config.norm != "batch"))
        if config.norm == "batch":
            add(f"hidden.{i}.norm", nn.BatchNorm1d(width))
        elif config.norm == "layer":
            add(f"hidden.{i}.norm", nn.LayerNorm(width))
        layers.append(Formula(_formula(config.activations[i])))
        layers.append(nn.Dropout(config.dropout))
        inputs = width
    add("head", nn.Linear(inputs, config.num_classes, bias=config.bias))
    return Oracle(nn.Sequential(*layers), images(7, config.in_features), key_map)


class SnnTorch(nn.Module):
    """PyTorch's linear layers and snnTorch's neurons: all layers in one time step, one step after another."""

    def __init__(self, config: spiking.Config, snntorch: Any) -> None:
        super().__init__()
        widths = (config.in_features, *config.hidden_dims)
        library = snntorch.surrogate.FastSigmoid

        class FastSigmoid(library):  # type: ignore[misc, valid-type]
            """snnTorch's surrogate; its spikes are float32, these have the precision of the potential."""

            @staticmethod
            def forward(ctx: Any, input_: Tensor, slope: float) -> Any:
                """Return the spikes."""
                return library.forward(ctx, input_, slope).to(input_.dtype)

        def neurons(**more: Any) -> nn.Module:
            leak, level = (torch.tensor(value, dtype=torch.float64) for value in (config.beta, config.threshold))
            made: nn.Module = snntorch.Leaky(
                beta=leak, threshold=level, spike_grad=lambda over: FastSigmoid.apply(over, config.slope), **more
            )
            return made

        self.steps = config.steps
        self.layers = nn.ModuleList(nn.Linear(i, o) for i, o in pairwise(widths))
        self.readout = nn.Linear(widths[-1], config.num_classes)
        # In a tuple, because their constants are no weights.
        self.neurons = (*(neurons() for _ in config.hidden_dims), neurons(reset_mechanism="none"))

    def forward(self, x: Tensor) -> Tensor:
        """Return the mean potential of the read-out neurons."""
        widths = [layer.out_features for layer in (*self.layers, self.readout)]
        *membranes, readout = (x.new_zeros(len(x), int(width)) for width in widths)
        potentials = []
        for _ in range(self.steps):
            signal = x.flatten(1)
            for k, layer in enumerate(self.layers):
                signal, membranes[k] = self.neurons[k](layer(signal), membranes[k])
            _, readout = self.neurons[-1](nn.functional.linear(signal, self.readout.weight), readout)
            potentials.append(readout)
        return torch.stack(potentials).mean(0) + self.readout.bias


def snntorch_mlp(config: spiking.Config) -> Oracle:
    """Build the network of snnTorch's neurons. Raises OracleMissing if snnTorch is not installed."""
    names = {
        **{f"hidden.{k}.linear.{kind}": f"layers.{k}.{kind}" for k in range(len(config.hidden_dims)) for kind in KINDS},
        **{f"head.{kind}": f"readout.{kind}" for kind in KINDS},
    }
    return Oracle(SnnTorch(config, snntorch_library()), images(7, config.in_features), names)


ORACLES = {
    "perceptron": scikit_perceptron,
    "linear": scikit_linear,
    "logistic": scikit_linear,
    "softmax": scikit_linear,
    "mlp": sequential_mlp,
    "spiking-mlp": snntorch_mlp,
}
