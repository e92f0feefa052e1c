"""Elman's simple recurrent network: each step computes a new state from the input and the previous state.

J. L. Elman, Finding structure in time, 1990. <https://doi.org/10.1207/s15516709cog1402_1>

    h_t = f(W x_t + b + U h_{t−1} + b'),   h_0 = 0,   f = tanh

W is (hidden, inputs), U (hidden, hidden); with several layers each reads the states of the one below. PyTorch's fused
`nn.RNN` runs all steps at once, with its names, `rnn.weight_ih_l0` = W. `elman_step` computes one step by the equation,
`textbook` the whole network, with the same results. Pooling and forecasts are in `base.py`.

Shapes, from a series (N, T, F) or token ids (N, T), each an embedding's row:
    states                      (N, T, D · hidden), D = 2 for a bidirectional network, else 1
    read-out r                  (N, D · hidden): the last state, their mean or maximum
    linear                      (N, classes), or (N, T, tags or tokens) from each state
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from ..nn import recurrent as layers
from ..nn.masks import normalize_padding_mask
from ..nn.recurrent import State, Weights, layer_weights, run_layers, sequence_lengths
from .base import RecurrentModel
from .card import Card, Divergence, Published
from .config import RecurrentConfig, choice


@dataclass(frozen=True)
class Config(RecurrentConfig):
    """Configuration of the network: all of `RecurrentConfig`, and the activation of its states."""

    activation: str = choice("tanh", ("tanh", "relu"))  # tanh or relu


def elman_step(
    x: Tensor, state: State, weights: Weights, activation: Callable[[Tensor], Tensor] = torch.tanh
) -> dict[str, Tensor]:
    """Return one step: x (N, inputs), the state h (N, hidden), and W, U, b and b' to the next h."""
    (h,) = state
    W, U, b, b_state = weights
    h = activation(F.linear(x, W, b) + F.linear(h, U, b_state))  # (N, hidden)
    return {"state": h}


class RNN(RecurrentModel):
    """An Elman network: token ids (N, T) or numbers (N, T, F) to the outputs of the head."""

    config: Config

    def build_layers(self, inputs: int, bidirectional: bool) -> layers.RNN:
        """Build Elman's layers, batch first."""
        return layers.RNN(nonlinearity=self.config.activation, **self.layer_settings(inputs, bidirectional))

    def forward(self, x: Tensor, mask_or_future: Tensor | None = None) -> Tensor:
        """Return the outputs of the head: (N, classes), or (N, T, tags or tokens) with one output for each step.

        Args:
            x: Token ids, shape (N, T), or numbers, shape (N, T, F).
            mask_or_future: True where a step is real, shape (N, T), with padding on the right. For a forecaster the
                known values of the steps to forecast, shape (N, H, K); its outputs are the forecasts, (N, H · C).

        Raises:
            ModelError: If shapes do not fit, or if the mask has padding elsewhere than on the right.
        """
        if self.config.horizon:
            return self.forecast(x, mask_or_future)
        outputs: Tensor = self.head(self.drop(self.features(x, mask_or_future)))  # W r + b, or W h_t + b
        return outputs

    def features(self, x: Tensor, mask_or_future: Tensor | None = None) -> Tensor:
        """Return the input of the head: r, (N, D · hidden), or states (N, T, D · hidden) for outputs at each step."""
        if self.config.horizon:
            return self.forecast_features(x, mask_or_future)
        x = self.embed(x)  # (N, T, inputs)
        mask = normalize_padding_mask(mask_or_future, x.shape)
        lengths = sequence_lengths(mask, x.shape[1])  # (N,), or None if nothing is padded
        states, last = run_layers(self.rnn, x, lengths)  # (N, T, D · hidden) and (layers · D, N, hidden)
        return self.pool(states, last, lengths)

    def textbook(self, x: Tensor) -> Tensor:
        """Compute `forward` by the equations, one step after another, without padding and without dropout."""
        x = self.embed(x)  # (N, T, inputs)
        activation = torch.tanh if self.config.activation == "tanh" else torch.relu
        last = []
        for layer in range(self.config.layers):
            both = []
            for way in range(self.directions):  # forwards, then backwards
                weights = layer_weights(self.rnn, layer, way)
                h = x.new_zeros(len(x), self.config.hidden_dim)
                states = []
                for x_t in x.flip(1).unbind(1) if way else x.unbind(1):  # (N, inputs)
                    h = elman_step(x_t, (h,), weights, activation)["state"]
                    states.append(h)
                last.append(h)
                both.append(torch.stack(states[::-1] if way else states, dim=1))  # (N, T, hidden)
            x = torch.cat(both, dim=2)  # (N, T, D · hidden), the inputs of the layer above
        outputs: Tensor = self.head(self.pool(x, torch.stack(last)))
        return outputs


Model = RNN

PRESETS = {"rnn": Config()}

CARD = Card(
    title="Finding structure in time",
    authors="J. L. Elman",
    year=1990,
    link="https://doi.org/10.1207/s15516709cog1402_1",
    family="rnn",
    equation="h_t = tanh(W x_t + b + U h_{t−1} + b')",
    oracle="torch.nn.RNNCell, one sequence and one step at a time; the equation unrolled",
    published={"rnn": Published(18_058, 661_760, (40, 1), "computed from the equation; the paper has no such network")},
    divergences=(
        Divergence(
            "units",
            paper="logistic, with an initial state of 0.5",
            here="tanh, or relu; the initial state is 0",
            common="as here (PyTorch, Keras)",
        ),
        Divergence(
            "gradient",
            paper="one step back: the context is an input like any other",
            here="through all steps of a sequence, or of a language model's window (P. J. Werbos, 1990)",
            common="as here",
        ),
        Divergence(
            "biases", paper="one per unit", here="two per unit, which are added", common="two in PyTorch, one in Keras"
        ),
    ),
    settings={"rnn": {"optimizer": "adamw", "lr": 1e-3, "grad_clip": 1.0, "epochs": 30}},
)
