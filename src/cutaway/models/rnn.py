"""Elman's simple recurrent network: a state that each step makes anew of the input and of the state before it.

J. L. Elman, Finding structure in time, 1990. <https://doi.org/10.1207/s15516709cog1402_1>

    h_t = f(W x_t + b + U h_{t−1} + b'),   h_0 = 0,   f = tanh

W is (hidden, inputs), U (hidden, hidden); of several layers each reads the states of the one below. What is read of
the states, and what may be asked of the network, is in `recurrent.py`; the equation as code is `elman_step` in
`cutaway.nn.recurrent`, and PyTorch's fused `nn.RNN` runs it. Its parts have PyTorch's names, `rnn.weight_ih_l0` = W.

Shapes, from a series (N, T, F) or token ids (N, T), each an embedding's row:
    state at each step          (N, T, hidden); twice as many numbers where it reads both ways
    read-out of the last        (N, hidden)
    linear                      (N, classes)

Where the paper and this file differ:
- The paper's units are logistic, between 0 and 1, and its context units begin at 0.5; here f is tanh and the state
  begins at 0, as in most of what came later. `activation=relu` is for states that are to grow without bound.
- The paper learns from one step back: the context is an input like any other. Here the gradient goes back through all
  steps of a sequence (P. J. Werbos, 1990), and in a language model to the beginning of each window.
- There are two vectors of biases where one would do, as PyTorch has it.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import require
from ..nn import recurrent as layers
from . import recurrent
from .card import Card, Divergence, Published
from .recurrent import Recurrent


@dataclass(frozen=True)
class Config(recurrent.Config):
    """What can be set in the network: all of `recurrent.Config`, and the function of its states."""

    activation: str = "tanh"  # tanh or relu

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.activation in ("tanh", "relu"), "activation", self.activation, "tanh or relu")


class RNN(Recurrent):
    """(N, T) token ids or (N, T, F) numbers to what the head gives."""

    config: Config

    def layer(self, inputs: int, ways: int) -> layers.RNN:
        """Elman's layers, batch first."""
        return layers.RNN(inputs, self.config.hidden_dim, nonlinearity=self.config.activation, **self.settings(ways))


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
            here="tanh, the state begins at 0",
            common="as here (PyTorch, Keras)",
        ),
        Divergence(
            "gradient",
            paper="one step back",
            here="through all steps of a sequence or window",
            common="as here",
        ),
        Divergence(
            "biases", paper="one a unit", here="two a unit, which add up", common="two in PyTorch, one in Keras"
        ),
    ),
    settings={"rnn": {"optimizer": "adamw", "lr": 1e-3, "grad_clip": 1.0, "epochs": 30}},
)
