"""Long short-term memory: a cell state that changes only through gates, so that gradients reach far back in time.

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
equations, with the same result. Pooling and the head are in `recurrent.py`, forecasts in `forecasting.py`.

Shapes, from a series (N, T, F) or token ids (N, T), each an embedding's row:
    state at each step          (N, T, hidden); twice as many numbers where it reads in both directions
    read-out of the last        (N, hidden)
    linear                      (N, classes)
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from ..nn import recurrent as layers
from ..nn.recurrent import State, Weights
from . import forecasting
from .card import Card, Divergence, Published
from .forecasting import Forecasting
from .recurrent import Recurrent


@dataclass(frozen=True)
class Config(forecasting.Config):
    """Configuration of the network: all of `forecasting.Config`, and the initial bias of the forget gate."""

    forget_bias: float = 1.0  # initial bias of the forget gate


def lstm_step(x: Tensor, state: State, weights: Weights) -> dict[str, Tensor]:
    """Return one step, and all that it computes, each (N, hidden): x (N, inputs), the state h and c, and W, U, b and
    b'.

    """
    h, c = state
    W, U, b, b_state = weights
    gates = F.linear(x, W, b) + F.linear(h, U, b_state)  # (N, 4 · hidden)
    i, f, g, o = gates.chunk(4, dim=1)  # each (N, hidden)
    i, f, g, o = torch.sigmoid(i), torch.sigmoid(f), torch.tanh(g), torch.sigmoid(o)
    c = f * c + i * g
    h = o * torch.tanh(c)
    return {"input": i, "forget": f, "candidate": g, "output": o, "cell": c, "state": h}


class LSTM(Forecasting, Recurrent):
    """An LSTM network: token ids (N, T) or numbers (N, T, F) to the outputs of the head."""

    config: Config

    def layer(self, inputs: int, bidirectional: bool) -> layers.LSTM:
        """Return the layers of cells, batch first, their forget gates open."""
        cells, hidden = layers.LSTM(**self.settings(inputs, bidirectional)), self.config.hidden_dim
        with torch.no_grad():
            for name, bias in cells.named_parameters():
                if "bias" in name:
                    bias[hidden : 2 * hidden].fill_(self.config.forget_bias if "bias_ih" in name else 0.0)
        return cells


Model = LSTM

PRESETS = {"lstm": Config()}

CARD = Card(
    title="Long short-term memory",
    authors="S. Hochreiter, J. Schmidhuber",
    year=1997,
    link="https://doi.org/10.1162/neco.1997.9.8.1735",
    family="rnn",
    equation="c_t = f ⊙ c_{t−1} + i ⊙ g, h_t = o ⊙ tanh(c_t); i, f, o = σ(W x_t + U h_{t−1} + b), g = tanh(likewise)",
    oracle="torch.nn.LSTMCell, each sequence alone and step after step; the equations unrolled",
    published={
        "lstm": Published(68_362, 2_643_200, (40, 1), "computed from the equations; the papers have no such network")
    },
    divergences=(
        Divergence(
            "forget gate",
            paper="none in 1997; added by Gers et al., 2000",
            here="as in 2000; its bias begins at `forget_bias` = 1, so that a new network remembers: R. Jozefowicz, "
            "W. Zaremba, I. Sutskever, 2015, find it best <https://proceedings.mlr.press/v37/jozefowicz15.html>",
            common="PyTorch: bias drawn around 0; Keras: 1",
        ),
        Divergence(
            "functions and gradient",
            paper="logistic functions stretched to [−2, 2] and [−1, 1]; the gradient is cut where it leaves a cell "
            "through a gate",
            here="tanh; the gradient is whole (A. Graves, J. Schmidhuber, 2005)",
            common="as here",
        ),
        Divergence(
            "peepholes",
            paper="none in 1997; gates see the cell in Gers and Schmidhuber, 2000",
            here="none",
            common="none",
        ),
        Divergence(
            "biases", paper="one a gate", here="two a gate, which add up", common="two in PyTorch, one in Keras"
        ),
    ),
    settings={"lstm": {"optimizer": "adamw", "lr": 2e-3, "grad_clip": 1.0, "epochs": 30}},
)
