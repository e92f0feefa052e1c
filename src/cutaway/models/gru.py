"""The gated recurrent unit: each step keeps a part of the state and overwrites the rest.

K. Cho, B. van Merriënboer, C. Gulcehre, D. Bahdanau, F. Bougares, H. Schwenk, Y. Bengio, Learning phrase
representations using RNN encoder–decoder for statistical machine translation, 2014. <https://arxiv.org/abs/1406.1078>

    r = σ(W_r x_t + b_r + U_r h_{t−1} + b'_r)      reset gate: the part of the state that n uses
    z = σ(W_z x_t + b_z + U_z h_{t−1} + b'_z)      update gate: the part of the state that is kept
    n = tanh(W_n x_t + b_n + r ⊙ (U_n h_{t−1} + b'_n))
    h_t = (1 − z) ⊙ n + z ⊙ h_{t−1},   h_0 = 0

The three W are stacked as `rnn.weight_ih_l0`, (3 · hidden, inputs), in the order r, z, n, and so are U and the biases:
PyTorch's names and layout, whose fused `nn.GRU` runs all steps at once. `gru_step` computes one step by the equations,
`textbook` the whole network, with the same results. Pooling and forecasts are in `base.py`.

Shapes, from a series (N, T, F) or token ids (N, T), each an embedding's row:
    states                      (N, T, D · hidden), D = 2 for a bidirectional network, else 1
    read-out r                  (N, D · hidden): the last state, their mean or maximum; all states side by side for flat
    linear                      (N, classes), or (N, T, tags or tokens) from each state

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
from ..nn.masks import normalize_padding_mask
from ..nn.recurrent import State, Weights, layer_weights, run_layers, sequence_lengths
from .base import RecurrentModel
from .card import Card, Divergence, Published, Result
from .config import RecurrentConfig


@dataclass(frozen=True)
class Config(RecurrentConfig):
    """Configuration of the network: all of `RecurrentConfig`."""


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


class GRU(RecurrentModel):
    """A GRU network: token ids (N, T) or numbers (N, T, F) to the outputs of the head."""

    config: Config

    def build_layers(self, inputs: int, bidirectional: bool) -> layers.GRU:
        """Build the layers of gated units, batch first."""
        return layers.GRU(**self.layer_settings(inputs, bidirectional))

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
            for way in range(self.directions):  # forwards, then backwards
                weights = layer_weights(self.rnn, layer, way)
                h = x.new_zeros(len(x), self.config.hidden_dim)
                states = []
                for x_t in x.flip(1).unbind(1) if way else x.unbind(1):  # (N, inputs)
                    h = gru_step(x_t, (h,), weights)["state"]
                    states.append(h)
                last.append(h)
                both.append(torch.stack(states[::-1] if way else states, dim=1))  # (N, T, hidden)
            x = torch.cat(both, dim=2)  # (N, T, D · hidden), the inputs of the layer above
        outputs: Tensor = self.head(self.pool(x, torch.stack(last)))
        return outputs


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
    oracle="torch.nn.GRUCell, one sequence and one step at a time; the equations unrolled",
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
            here="after it: r ⊙ (U_n h + b'_n), so that all gates share one product; with the same weights this is a "
            'different network than `gru_step(…, reset="before")`, the paper\'s',
            common="after it in PyTorch, cuDNN and Keras (reset_after)",
        ),
        Divergence(
            "biases",
            paper="none",
            here="two per gate; n needs both, r and z one",
            common="two in PyTorch, cuDNN and Keras",
        ),
        Divergence(
            "gate that keeps the state",
            paper="z",
            here="z",
            common="z in PyTorch and Keras; 1 − z in J. Chung et al., 2014",
        ),
    ),
    results={
        "gru-mnist1d": (Result("MNIST-1D", {"accuracy": 91.0}, "test set", "greydanus/mnist1d"),),
    },
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
