"""The gated recurrent unit: each step keeps a part of the state and overwrites the rest.

K. Cho, B. van Merriënboer, C. Gulcehre, D. Bahdanau, F. Bougares, H. Schwenk, Y. Bengio, Learning phrase
representations using RNN encoder–decoder for statistical machine translation, 2014. <https://arxiv.org/abs/1406.1078>

    r = σ(W_r x_t + b_r + U_r h_{t−1} + b'_r)      reset gate: the part of the state that n uses
    z = σ(W_z x_t + b_z + U_z h_{t−1} + b'_z)      update gate: the part of the state that is kept
    n = tanh(W_n x_t + b_n + r ⊙ (U_n h_{t−1} + b'_n))
    h_t = (1 − z) ⊙ n + z ⊙ h_{t−1},   h_0 = 0

The three W are stacked as `rnn.weight_ih_l0`, (3 · hidden, inputs), in the order r, z, n, and so are U and the biases:
PyTorch's names and layout, whose fused `nn.GRU` runs all steps at once. `gru_step` computes one step by the equations,
with the same result. Pooling and the head are in `recurrent.py`, forecasts in `forecasting.py`.

Shapes, from a series (N, T, F) or token ids (N, T), each an embedding's row:
    state at each step          (N, T, hidden); twice as many numbers where it reads in both directions
    read-out of the last        (N, hidden)
    linear                      (N, classes)

`gru-mnist1d` is the network of the MNIST-1D benchmark (S. Greydanus, D. Kobak, Scaling down deep learning with
MNIST-1D, 2020, <https://arxiv.org/abs/2011.14439>): a bidirectional GRU of 6 units, and a head with a weight for every
number of every step, so that one set of weights serves only one length T = 40.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from ..core.errors import check_value
from ..nn import recurrent as layers
from ..nn.recurrent import State, Weights
from . import forecasting
from .card import Card, Divergence, Published
from .forecasting import Forecasting
from .recurrent import Recurrent


@dataclass(frozen=True)
class Config(forecasting.Config):
    """Configuration of the network: all of `forecasting.Config`."""


def gru_step(x: Tensor, state: State, weights: Weights, reset: str = "after") -> dict[str, Tensor]:
    """Compute one step and return all its values, each (N, hidden), given x (N, inputs), the state h, W, U, b and b'.

    `reset` is the position of the reset gate: "after" the product with U_n, as in PyTorch and cuDNN, or "before" it, as
    published, so that r selects among the numbers of h.
    """
    check_value(reset in ("after", "before"), "reset", reset, "after or before")
    (h,) = state
    W, U, b, b_state = weights
    r_x, z_x, n_x = F.linear(x, W, b).chunk(3, dim=1)  # each (N, hidden)
    r_h, z_h, n_h = F.linear(h, U, b_state).chunk(3, dim=1)
    r, z = torch.sigmoid(r_x + r_h), torch.sigmoid(z_x + z_h)
    if reset == "before":
        n_h = F.linear(r * h, U.chunk(3)[2], None if b_state is None else b_state.chunk(3)[2])
    else:
        n_h = r * n_h
    n = torch.tanh(n_x + n_h)
    h = (1 - z) * n + z * h
    return {"reset": r, "update": z, "candidate": n, "state": h}


class GRU(Forecasting, Recurrent):
    """A GRU network: token ids (N, T) or numbers (N, T, F) to the outputs of the head."""

    config: Config

    def layer(self, inputs: int, bidirectional: bool) -> layers.GRU:
        """Return the layers of gated units, batch first."""
        return layers.GRU(**self.settings(inputs, bidirectional))


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
            here="after it: r ⊙ (U_n h + b'_n), so that one product serves all gates; with the same weights another "
            'network than `gru_step(…, reset="before")`, the paper\'s',
            common="after it in PyTorch, cuDNN and Keras (reset_after)",
        ),
        Divergence(
            "biases",
            paper="none",
            here="two a gate; n needs both, r and z one",
            common="two in PyTorch, cuDNN and Keras",
        ),
        Divergence(
            "what keeps the state",
            paper="z",
            here="z",
            common="z in PyTorch and Keras; 1 − z in J. Chung et al., 2014",
        ),
    ),
    settings={
        "gru": {"optimizer": "adamw", "lr": 2e-3, "grad_clip": 1.0, "epochs": 30},
        # Chosen on the validation split: without decay and smoothing it overfits 3 400 series, and stays at 0.87.
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
