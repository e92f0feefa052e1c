"""A spiking network: layers of leaky integrate-and-fire neurons, trained with surrogate gradients.

E. O. Neftci, H. Mostafa, F. Zenke, Surrogate gradient learning in spiking neural networks, IEEE Signal Processing
Magazine 36(6), 2019. <https://arxiv.org/abs/1901.09948> The neuron in discrete time is that of J. K. Eshraghian et al.,
Training spiking neural networks using lessons from deep learning, Proceedings of the IEEE 111(9), 2023.
<https://arxiv.org/abs/2109.12894>

    U_t = β U_{t−1} + I_t − S_{t−1} θ,   I_t = W x_t + b        membrane potential, leak β, reset by subtraction
    S_t = 1 if U_t > θ, else 0                                  spike
    ∂S/∂U := 1 / (1 + k |U − θ|)²                               in the backward pass only: the surrogate

A neuron adds up its input current, loses the fraction 1 − β of its potential at every step, and fires when the
potential exceeds the threshold θ. The true derivative of a spike is 0 almost everywhere, so that nothing would be
learned. The surrogate is the derivative of a fast sigmoid of slope k (F. Zenke, S. Ganguli, SuperSpike, 2018). The
gradient flows back through all T steps; it does not flow through the reset.

    x  ──►  W₁ x + b₁, the same current at every step  ──►  LIF  ──►  spikes  ──►  W₂ S_t + b₂  ──►  LIF  ──►  …

The read-out does not spike: it filters the spikes of the last layer with the same leak, V_t = β V_{t−1} + S_t, and is
linear in their mean, r = 1/T Σ V_t, z = W r + b.

Shapes: x (N, F), images and series flattened; spikes (N, T, width), 0 or 1; r (N, width); z (N, classes) logits, or
(N, 1) for a number.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from ..core.spec import ImageSpec, SeriesSpec, Spec, TableSpec
from .base import BaseModel
from .card import Card, Divergence
from .config import ValidatedConfig, counts, fraction, min_value, positive


@dataclass(frozen=True)
class Config(ValidatedConfig):
    """Configuration of the network."""

    in_features: int = positive(784)  # number of features of an example
    num_classes: int = positive(10)  # size of the output: number of classes, or 1 for a number
    hidden_dims: tuple[int, ...] = counts((256,), fewest=1)  # neurons of each layer that spikes
    steps: int = positive(25)  # T, the time steps for which an example is shown
    beta: float = fraction(0.9)  # β, the fraction of the membrane potential that is left after a step
    threshold: float = min_value(1e-3, 1.0)  # θ, the potential above which a neuron fires
    slope: float = min_value(0.0, 25.0)  # k of the surrogate: larger passes gradients only closer to the threshold

    @classmethod
    def for_spec(cls, preset: Config, spec: Spec) -> Config:
        """Return the preset with the number of inputs and outputs of `spec`."""
        return dataclasses.replace(preset, in_features=math.prod(spec.shape), num_classes=spec.target.outputs)


class Spike(torch.autograd.Function):
    """The step function forwards, and the derivative of a fast sigmoid backwards."""

    generate_vmap_rule = True

    @staticmethod
    def forward(over: Tensor, slope: float) -> Tensor:
        """Return 1 where the potential over the threshold is positive, else 0."""
        del slope
        return (over > 0).to(over.dtype)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, float], output: Tensor) -> None:
        """Keep the potential."""
        del output
        over, ctx.slope = inputs
        ctx.save_for_backward(over)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        """Return grad / (1 + k |U − θ|)²."""
        (over,) = ctx.saved_tensors
        return grad / (1 + ctx.slope * over.abs()) ** 2, None


class LeakyIntegrateAndFire(nn.Module):
    """Leaky integrate-and-fire neurons: currents (N, T, width) to spikes (N, T, width)."""

    def __init__(self, beta: float, threshold: float, slope: float) -> None:
        super().__init__()
        self.beta, self.threshold, self.slope = beta, threshold, slope

    def forward(self, current: Tensor) -> Tensor:
        """Return the spikes, 0 or 1."""
        return self.run(current)[1]

    def run(self, current: Tensor) -> tuple[Tensor, Tensor]:
        """Return the membrane potential U, before the reset, and the spikes S, (N, T, width) each."""
        u = torch.zeros_like(current[:, 0])  # (N, width)
        s = torch.zeros_like(u)
        potentials, spikes = [], []
        for current_t in current.unbind(1):
            u = self.beta * u + current_t - s.detach() * self.threshold
            s = Spike.apply(u - self.threshold, self.slope)  # type: ignore[no-untyped-call]
            potentials.append(u)
            spikes.append(s)
        return torch.stack(potentials, 1), torch.stack(spikes, 1)


class SpikingLayer(nn.Module):
    """A linear layer and the neurons that its output drives."""

    def __init__(self, inputs: int, width: int, config: Config) -> None:
        super().__init__()
        self.steps = config.steps
        self.linear = nn.Linear(inputs, width)
        self.neurons = LeakyIntegrateAndFire(config.beta, config.threshold, config.slope)

    def forward(self, x: Tensor) -> Tensor:
        """Return spikes (N, T, width) of inputs (N, T, inputs), or of constant inputs (N, 1, inputs)."""
        current = self.linear(x).expand(-1, self.steps, -1)  # (N, T, width)
        spikes: Tensor = self.neurons(current)
        return spikes


class SpikingMLP(BaseModel):
    """(N, ...) examples to (N, classes) logits, or (N, 1) values."""

    takes = (TableSpec, ImageSpec, SeriesSpec)

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        widths = (config.in_features, *config.hidden_dims)
        self.hidden = nn.Sequential(*(SpikingLayer(i, o, config) for i, o in pairwise(widths)))
        self.head = nn.Linear(widths[-1], config.num_classes)

    def features(self, x: Tensor) -> Tensor:
        """Return the input of the head: the mean over time of the filtered spikes, r, (N, width)."""
        spikes = self.hidden(x.flatten(1)[:, None])  # (N, T, width)
        v = torch.zeros_like(spikes[:, 0])
        total = torch.zeros_like(v)
        for s in spikes.unbind(1):
            v = self.config.beta * v + s
            total = total + v
        return total / self.config.steps

    def forward(self, x: Tensor) -> Tensor:
        """Return the raw outputs z."""
        z: Tensor = self.head(self.features(x))
        return z


Model = SpikingMLP

PRESETS = {"spiking-mlp": Config()}

CARD = Card(
    title="Surrogate gradient learning in spiking neural networks",
    authors="E. O. Neftci, H. Mostafa, F. Zenke",
    year=2019,
    link="https://arxiv.org/abs/1901.09948",
    family="dense",
    equation="U_t = β U_{t−1} + W x_t + b − S_{t−1} θ, S_t = step(U_t − θ), ∂S/∂U := 1 / (1 + k |U − θ|)²",
    oracle="snnTorch: torch.nn.Linear and snntorch.Leaky, step by step",
    published={},
    divergences=(
        Divergence(
            "neuron",
            paper="a synaptic current with its own leak drives the membrane; the membrane leaks by the factor β",
            here="the weighted input drives the membrane directly (Eshraghian et al., 2023)",
            common="as here (snntorch.Leaky); snntorch.Synaptic has both",
        ),
        Divergence(
            "reset",
            paper="after a spike θ is subtracted; the gradient may be cut there",
            here="θ is subtracted in the next step, without a gradient",
            common="as here (snnTorch)",
        ),
        Divergence(
            "surrogate",
            paper="several, which hardly differ in accuracy (also F. Zenke, T. P. Vogels, 2021)",
            here="the fast sigmoid with slope 25",
            common="arctangent by default in snnTorch; the fast sigmoid in its tutorials",
        ),
        Divergence(
            "input",
            paper="spike trains, such as latencies of pixels",
            here="a constant current, W x + b, computed once",
            common="the same, or spikes drawn with the pixel as their rate (snnTorch)",
        ),
        Divergence(
            "read-out",
            paper="leaky integrators without spikes; the largest value over time",
            here="leaky integrators without spikes; the mean over time, with the bias added once",
            common="the number of spikes, or the loss of every step added up (snnTorch)",
        ),
    ),
    settings={"spiking-mlp": {"optimizer": "adamw", "lr": 2e-3, "epochs": 20, "batch_size": 64}},
)
