"""Oracle of the convolutional GRU for CTC: one recording at a time, without padding, one cell and step at a time."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..models.ctc_conv_gru import Config
from . import Oracle
from .recurrent import Stack

LENGTHS = (7, 3, 12, 1)  # frames of the compared recordings


class PerRecording(nn.Module):
    """Network over recordings that are cut to their lengths.

    Dropout is drawn for the whole batch first, in the order of the model. Between layers it is not used.
    """

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        widths = (config.in_features, *config.channels)
        self.convolutions = nn.ModuleList(
            nn.Conv1d(before, after, config.kernel, stride, padding=(config.kernel - 1) // 2)
            for before, after, stride in zip(widths, widths[1:], config.strides)
        )
        self.reader = Stack(
            lambda inputs: nn.GRUCell(inputs, config.hidden_dim), widths[-1], config.hidden_dim, config.layers, 2
        )
        self.head = nn.Linear(2 * config.hidden_dim, config.num_classes)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Return the logits (N, T', blank and characters) of frames (N, T, F), with zeros at padding."""
        config, width = self.config, x.shape[1]
        for stride in config.strides:
            width = (width - 1) // stride + 1
        kept_in, kept_out = (
            F.dropout(x.new_ones(len(x), width, numbers), config.dropout, self.training)
            for numbers in (config.channels[-1], 2 * config.hidden_dim)
        )
        found = []
        for i, recording in enumerate(x):
            h = recording[mask[i]].T  # (F, T)
            for convolution in self.convolutions:
                h = convolution(h).clamp(min=0)
            steps = [h[:, t] * kept_in[i, t] for t in range(h.shape[1])]
            states = torch.stack(self.reader(steps)[0])  # (T', 2 · hidden)
            own = self.head(states * kept_out[i, : len(states)])
            found.append(F.pad(own, (0, 0, 0, width - len(own))))
        return torch.stack(found)


def one_at_a_time(config: Config) -> Oracle:
    """Build the network and the key map from our weights."""
    module = PerRecording(config)
    key_map = {name: name for name, _ in module.named_parameters() if not name.startswith("reader")}
    for i in range(len(module.reader.cells)):
        level, way = divmod(i, 2)
        for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
            key_map[f"rnn.{name}_l{level}{'_reverse' * way}"] = f"reader.cells.{i}.{name}"
    return Oracle(module, recordings(config), key_map, compared=lambda inputs, found: _real(config, inputs[1], found))


def _real(config: Config, mask: Tensor, found: Tensor) -> Tensor:
    """Return the outputs at real frames, shape (n, K). Outputs at padding are large constants."""
    lengths = mask.sum(1)
    for stride in config.strides:
        lengths = (lengths - 1) // stride + 1
    return found[torch.arange(found.shape[1]) < lengths[:, None]]


def recordings(config: Config) -> Callable[[torch.Generator], tuple[Tensor, ...]]:
    """Return a function that draws recordings of several lengths, with nonzero padding, and their mask."""

    def draw(generator: torch.Generator) -> tuple[Tensor, ...]:
        x = torch.randn(len(LENGTHS), max(LENGTHS), config.in_features, generator=generator, dtype=torch.float64)
        return x, torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS)[:, None]

    return draw


ORACLES = {"ctc-conv-gru": one_at_a_time}
