"""Elman's simple recurrent network: each step computes a new state from the input and the previous state.

J. L. Elman, Finding structure in time, 1990. <https://doi.org/10.1207/s15516709cog1402_1>

    h_t = f(W x_t + b + U h_{t−1} + b'),   h_0 = 0,   f = tanh

W is (hidden, inputs), U (hidden, hidden); with several layers each reads the states of the one below. PyTorch's fused
`nn.RNN` runs all steps at once, with its names, `rnn.weight_ih_l0` = W. `elman_step` computes one step by the equation,
with the same result. Pooling and the head are in `recurrent.py`, forecasts in `forecasting.py`.

Shapes, from a series (N, T, F) or token ids (N, T), each an embedding's row:
    state at each step          (N, T, hidden); twice as many numbers where it reads in both directions
    read-out of the last        (N, hidden)
    linear                      (N, classes)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from ..nn import recurrent as layers
from ..nn.recurrent import State, Weights
from . import forecasting
from .card import Card, Divergence, Published
from .config import choice
from .forecasting import Forecasting
from .recurrent import Recurrent


@dataclass(frozen=True)
class Config(forecasting.Config):
    """Configuration of the network: all of `forecasting.Config`, and the activation of its states."""

    activation: str = choice("tanh", ("tanh", "relu"))  # tanh or relu


def elman_step(
    x: Tensor, state: State, weights: Weights, activation: Callable[[Tensor], Tensor] = torch.tanh
) -> dict[str, Tensor]:
    """Return one step: x (N, inputs), the state h (N, hidden), and W, U, b and b' to the next h."""
    (h,) = state
    W, U, b, b_state = weights
    h = activation(F.linear(x, W, b) + F.linear(h, U, b_state))  # (N, hidden)
    return {"state": h}


class RNN(Forecasting, Recurrent):
    """An Elman network: token ids (N, T) or numbers (N, T, F) to the outputs of the head."""

    config: Config

    def layer(self, inputs: int, bidirectional: bool) -> layers.RNN:
        """Build Elman's layers, batch first."""
        return layers.RNN(nonlinearity=self.config.activation, **self.settings(inputs, bidirectional))


Model = RNN

PRESETS = {"rnn": Config()}

CARD = Card(
    title="Finding structure in time",
    authors="J. L. Elman",
    year=1990,
    link="https://doi.org/10.1207/s15516709cog1402_1",
    family="rnn",
    equation="h_t = tanh(W x_t + b + U h_{t−1} + b')",
    oracle="torch.nn.RNNCell, each sequence alone and step after step; the equation unrolled",
    published={"rnn": Published(18_058, 661_760, (40, 1), "computed from the equation; the paper has no such network")},
    divergences=(
        Divergence(
            "units",
            paper="logistic, the context begins at 0.5",
            here="tanh, or relu for states that are to grow without bound; the state begins at 0",
            common="as here (PyTorch, Keras)",
        ),
        Divergence(
            "gradient",
            paper="one step back: the context is an input like any other",
            here="through all steps of a sequence, or of a language model's window (P. J. Werbos, 1990)",
            common="as here",
        ),
        Divergence(
            "biases", paper="one a unit", here="two a unit, which add up", common="two in PyTorch, one in Keras"
        ),
    ),
    settings={"rnn": {"optimizer": "adamw", "lr": 1e-3, "grad_clip": 1.0, "epochs": 30}},
)
