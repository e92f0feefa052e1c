"""Long short-term memory: a cell that keeps what it holds until gates say otherwise, so that errors flow far back.

S. Hochreiter, J. Schmidhuber, Long short-term memory, 1997. <https://doi.org/10.1162/neco.1997.9.8.1735>
The forget gate is of F. A. Gers, J. Schmidhuber, F. Cummins, Learning to forget, 2000.
<https://doi.org/10.1162/089976600300015015>

    i = σ(W_i x_t + b_i + U_i h_{t−1} + b'_i)      what is let in
    f = σ(W_f x_t + b_f + U_f h_{t−1} + b'_f)      what is kept
    o = σ(W_o x_t + b_o + U_o h_{t−1} + b'_o)      what is shown
    g = tanh(W_g x_t + b_g + U_g h_{t−1} + b'_g)
    c_t = f ⊙ c_{t−1} + i ⊙ g,   h_t = o ⊙ tanh(c_t),   h_0 = c_0 = 0

The four W stand one below another as `rnn.weight_ih_l0`, (4 · hidden, inputs), in the order i, f, g, o, and so do U
and the biases: PyTorch's names and layout, whose fused `nn.LSTM` runs them. The equations as code are `lstm_step` in
`cutaway.nn.recurrent`; what is read of the states, and what may be asked of the network, is in `recurrent.py`.

Shapes, from a series (N, T, F) or token ids (N, T), each an embedding's row:
    state at each step          (N, T, hidden); twice as many numbers where it reads both ways
    read-out of the last        (N, hidden)
    linear                      (N, classes)

Where the papers and this file differ:
- The network of 1997 has no forget gate, squashes by logistic functions stretched to [−2, 2] and [−1, 1], and cuts the
  gradient where it leaves a cell through a gate. Here g and the shown cell go through tanh, and the gradient is whole
  (A. Graves, J. Schmidhuber, 2005).
- No peepholes: gates do not see the cell itself, which Gers and Schmidhuber let them in 2000.
- The bias of the forget gate begins at 1 (b_f = `forget_bias`, b'_f = 0), so that a new network remembers: Gers et al.
  begin it positive, and R. Jozefowicz, W. Zaremba, I. Sutskever, An empirical exploration of recurrent network
  architectures, 2015, find that it should be 1. <https://proceedings.mlr.press/v37/jozefowicz15.html> PyTorch draws it
  around 0.
- There are two vectors of biases where one would do, as PyTorch has it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ..nn import recurrent as layers
from . import recurrent
from .card import Card, Divergence, Published
from .recurrent import Recurrent


@dataclass(frozen=True)
class Config(recurrent.Config):
    """What can be set in the network: all of `recurrent.Config`, and how much it remembers at first."""

    forget_bias: float = 1.0  # what the forget gate's bias begins with


class LSTM(Recurrent):
    """(N, T) token ids or (N, T, F) numbers to what the head gives."""

    config: Config

    def layer(self, inputs: int, ways: int) -> layers.LSTM:
        """The layers of cells, batch first, their forget gates open."""
        hidden = self.config.hidden_dim
        cells = layers.LSTM(inputs, hidden, **self.settings(ways))
        with torch.no_grad():
            for name, bias in cells.named_parameters():
                if "bias" in name:
                    bias[hidden : 2 * hidden] = self.config.forget_bias if "bias_ih" in name else 0.0
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
            here="as in 2000, its bias begins at 1",
            common="PyTorch: bias drawn around 0; Keras: 1",
        ),
        Divergence(
            "functions and gradient",
            paper="stretched logistic functions; the gradient is cut at the gates",
            here="tanh; the gradient is whole",
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
