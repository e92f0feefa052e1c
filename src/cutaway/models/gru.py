"""The gated recurrent unit: a state, part of which each step lets stand, and part of which it writes anew.

K. Cho, B. van Merriënboer, C. Gulcehre, D. Bahdanau, F. Bougares, H. Schwenk, Y. Bengio, Learning phrase
representations using RNN encoder–decoder for statistical machine translation, 2014. <https://arxiv.org/abs/1406.1078>

    r = σ(W_r x_t + b_r + U_r h_{t−1} + b'_r)      what of the state is seen by n
    z = σ(W_z x_t + b_z + U_z h_{t−1} + b'_z)      what of the state is kept
    n = tanh(W_n x_t + b_n + r ⊙ (U_n h_{t−1} + b'_n))
    h_t = (1 − z) ⊙ n + z ⊙ h_{t−1},   h_0 = 0

The three W stand one below another as `rnn.weight_ih_l0`, (3 · hidden, inputs), in the order r, z, n, and so do U and
the biases: PyTorch's names and layout, whose fused `nn.GRU` runs them. The equations as code are `gru_step` in
`cutaway.nn.recurrent`; what is read of the states, and what may be asked of the network, is in `recurrent.py`.

Shapes, from a series (N, T, F) or token ids (N, T), each an embedding's row:
    state at each step          (N, T, hidden); twice as many numbers where it reads both ways
    read-out of the last        (N, hidden)
    linear                      (N, classes)

Where the paper and this file differ:
- The reset gate. The paper lets r choose among the numbers of the state, n = tanh(W_n x_t + U_n (r ⊙ h_{t−1})); here,
  as in PyTorch and cuDNN, r weighs what U_n makes of them, so that one product serves all gates. With the same weights
  these are two networks: `gru_step(..., reset="before")` is the paper's.
- The paper has no biases; here there are two a gate, as PyTorch has it. Of n both are needed, of r and z one would do.
- Which of z and 1 − z keeps the state is the paper's way here and in PyTorch. J. Chung et al., Empirical evaluation of
  gated recurrent neural networks on sequence modeling, 2014, have it the other way round.

`gru-mnist1d` is the network of the MNIST-1D benchmark (S. Greydanus, D. Kobak, Scaling down deep learning with
MNIST-1D, 2020, <https://arxiv.org/abs/2011.14439>): 6 numbers in a state, both ways, and a head with a weight for every
number of every step, so that one set of weights serves one length T = 40 alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..nn import recurrent as layers
from . import recurrent
from .card import Card, Divergence, Published
from .recurrent import Recurrent


@dataclass(frozen=True)
class Config(recurrent.Config):
    """What can be set in the network: all of `recurrent.Config`."""


class GRU(Recurrent):
    """(N, T) token ids or (N, T, F) numbers to what the head gives."""

    config: Config

    def layer(self, inputs: int, ways: int) -> layers.GRU:
        """The layers of gated units, batch first."""
        return layers.GRU(inputs, self.config.hidden_dim, **self.settings(ways))


Model = GRU

PRESETS = {
    "gru": Config(),
    "gru-mnist1d": Config(hidden_dim=6, bidirectional=True, pooling="flat", steps=40),
}

CARD = Card(
    title="Learning phrase representations using RNN encoder–decoder for statistical machine translation",
    authors="K. Cho, B. van Merriënboer, C. Gulcehre, D. Bahdanau, F. Bougares, H. Schwenk, Y. Bengio",
    year=2014,
    link="https://arxiv.org/abs/1406.1078",
    family="rnn",
    equation="h_t = (1 − z) ⊙ n + z ⊙ h_{t−1}; r, z = σ(W x_t + U h_{t−1} + b), n = tanh(W_n x_t + r ⊙ U_n h_{t−1})",
    oracle="torch.nn.GRUCell, each sequence alone and step after step; the equations unrolled",
    published={
        "gru": Published(51_594, 1_982_720, (40, 1), "computed from the equations; the paper has no such network"),
        "gru-mnist1d": Published(
            5_134, 14_880, (40, 1), "parameters as the benchmark's notebook prints them; multiply-adds computed from it"
        ),
    },
    divergences=(
        Divergence(
            "reset gate",
            paper="before the product: U_n (r ⊙ h)",
            here="after it: r ⊙ (U_n h + b'_n)",
            common="after it in PyTorch, cuDNN and Keras (reset_after)",
        ),
        Divergence("biases", paper="none", here="two a gate", common="two in PyTorch, cuDNN and Keras"),
    ),
    settings={
        "gru": {"optimizer": "adamw", "lr": 2e-3, "grad_clip": 1.0, "epochs": 30},
        # Chosen on the validation part: without decay and smoothing it learns 3 400 series by heart, and stays at 0.87.
        "gru-mnist1d": {
            "optimizer": "adamw",
            "lr": 1e-2,
            "weight_decay": 0.1,
            "label_smoothing": 0.1,
            "grad_clip": 1.0,
            "epochs": 120,
            "batch_size": 100,
        },
    },
)
