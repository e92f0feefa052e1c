"""Long short-term memory: a recurrent network whose cell state is controlled by gates, so that gradients do not vanish.

S. Hochreiter, J. Schmidhuber, Long short-term memory, 1997. <https://doi.org/10.1162/neco.1997.9.8.1735>
The forget gate is of F. A. Gers, J. Schmidhuber, F. Cummins, Learning to forget, 2000.
<https://doi.org/10.1162/089976600300015015>

    i = σ(W_i x_t + b_i + U_i h_{t−1} + b'_i)      input gate
    f = σ(W_f x_t + b_f + U_f h_{t−1} + b'_f)      forget gate
    o = σ(W_o x_t + b_o + U_o h_{t−1} + b'_o)      output gate
    g = tanh(W_g x_t + b_g + U_g h_{t−1} + b'_g)
    c_t = f ⊙ c_{t−1} + i ⊙ g,   h_t = o ⊙ tanh(c_t),   h_0 = c_0 = 0

The four W are stacked as `rnn.weight_ih_l0`, (4 · hidden, inputs), in the order i, f, g, o, and so are U and the
biases: PyTorch's names and layout, whose fused `nn.LSTM` runs all steps at once. `lstm_step` computes one step by the
equations, `textbook` the whole network, with the same results. Pooling and forecasts are in `base.py`.

Shapes, from a series (N, T, F) or token ids (N, T), each an embedding's row:
    states                      (N, T, D · hidden), D = 2 for a bidirectional network, else 1
    read-out r                  (N, D · hidden): the last state, their mean or maximum
    linear                      (N, classes), or (N, T, tags or tokens) from each state
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from ..nn import recurrent as layers
from ..nn.masks import normalize_padding_mask
from ..nn.recurrent import State, Weights, layer_weights, run_layers, sequence_lengths
from .base import RecurrentModel
from .card import Card, Divergence, Published
from .config import RecurrentConfig


@dataclass(frozen=True)
class Config(RecurrentConfig):
    """Configuration of the network: all of `RecurrentConfig`, and the initial bias of the forget gate."""

    forget_bias: float = 1.0  # initial bias of the forget gate


def lstm_step(x: Tensor, state: State, weights: Weights) -> dict[str, Tensor]:
    """Compute one step and return all gates and states, each (N, hidden).

    Args:
        x: Input, shape (N, inputs).
        state: h and c of the step before, shape (N, hidden) each.
        weights: W, U, b and b'.
    """
    h, c = state
    W, U, b, b_state = weights
    gates = F.linear(x, W, b) + F.linear(h, U, b_state)  # (N, 4 · hidden)
    i, f, g, o = gates.chunk(4, dim=1)  # each (N, hidden)
    i, f, g, o = torch.sigmoid(i), torch.sigmoid(f), torch.tanh(g), torch.sigmoid(o)
    c = f * c + i * g
    h = o * torch.tanh(c)
    return {"input": i, "forget": f, "candidate": g, "output": o, "cell": c, "state": h}


class LSTM(RecurrentModel):
    """An LSTM network: token ids (N, T) or numbers (N, T, F) to the outputs of the head."""

    config: Config

    def build_layers(self, inputs: int, bidirectional: bool) -> layers.LSTM:
        """Build the recurrent layers, batch first, with the initial bias of the forget gates."""
        cells, hidden = layers.LSTM(**self.layer_settings(inputs, bidirectional)), self.config.hidden_dim
        with torch.no_grad():
            for name, bias in cells.named_parameters():
                if "bias" in name:
                    bias[hidden : 2 * hidden].fill_(self.config.forget_bias if "bias_ih" in name else 0.0)
        return cells

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
        last = []
        for layer in range(self.config.layers):
            both = []
            for direction in range(self.directions):  # forward, then backward
                weights = layer_weights(self.rnn, layer, direction)
                h = c = x.new_zeros(len(x), self.config.hidden_dim)
                states = []
                for x_t in x.flip(1).unbind(1) if direction else x.unbind(1):  # (N, inputs)
                    step = lstm_step(x_t, (h, c), weights)
                    h, c = step["state"], step["cell"]
                    states.append(h)
                last.append(h)
                both.append(torch.stack(states[::-1] if direction else states, dim=1))  # (N, T, hidden)
            x = torch.cat(both, dim=2)  # (N, T, D · hidden), the inputs of the layer above
        outputs: Tensor = self.head(self.pool(x, torch.stack(last)))
        return outputs


Model = LSTM

PRESETS = {"lstm": Config()}

CARD = Card(
    title="Long short-term memory",
    authors="S. Hochreiter, J. Schmidhuber",
    year=1997,
    link="https://doi.org/10.1162/neco.1997.9.8.1735",
    family="rnn",
    equation="c_t = f ⊙ c_{t−1} + i ⊙ g, h_t = o ⊙ tanh(c_t); i, f, o = σ(W x_t + U h_{t−1} + b), g = tanh(W x_t + U "
    "h_{t−1} + b)",
    oracle="torch.nn.LSTMCell, one sequence and one step at a time; the equations unrolled",
    published={
        "lstm": Published(68_362, 2_643_200, (40, 1), "computed from the equations; the papers have no such network")
    },
    divergences=(
        Divergence(
            "forget gate",
            paper="none in 1997; added by Gers et al., 2000",
            here="as in 2000; its bias is initialized with `forget_bias` = 1, recommended by R. Jozefowicz, W. "
            "Zaremba, "
            "I. Sutskever, 2015 <https://proceedings.mlr.press/v37/jozefowicz15.html>",
            common="PyTorch: random bias around 0; Keras: 1",
        ),
        Divergence(
            "functions and gradient",
            paper="logistic functions scaled to [−2, 2] and [−1, 1]; the gradient is truncated at the gates",
            here="tanh; full gradient (A. Graves, J. Schmidhuber, 2005)",
            common="as here",
        ),
        Divergence(
            "peepholes",
            paper="none in 1997; gates see the cell in Gers and Schmidhuber, 2000",
            here="none",
            common="none",
        ),
        Divergence(
            "biases", paper="one per gate", here="two per gate, which are added", common="two in PyTorch, one in Keras"
        ),
    ),
    settings={"lstm": {"optimizer": "adamw", "lr": 2e-3, "grad_clip": 1.0, "epochs": 30}},
)
