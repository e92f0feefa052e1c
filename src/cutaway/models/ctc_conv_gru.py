"""Speech to text by connectionist temporal classification (CTC), with convolutions and a bidirectional GRU.

A. Graves, S. Fernández, F. Gomez, J. Schmidhuber, Connectionist temporal classification: labelling unsegmented
sequence data with recurrent neural networks, ICML 2006. <https://doi.org/10.1145/1143844.1143891>

At every frame t the network predicts a character or the blank (none): y_t = softmax(z_t). No alignment
is needed. A path π is one token per frame; B(π) is its text: repeats are merged, then blanks removed. The probability
of a text l is that of all paths with B(π) = l, and the loss is −log p(l | x) (`nn/losses.py`):

    p(l | x) = Σ_{π: B(π) = l} Π_t y_t(π_t) = Σ_s α_t(s) β_t(s)     at any t, with l' = (blank, l_1, blank, …, blank)
    α_t(s) = y_t(l'_s) (α_{t−1}(s) + α_{t−1}(s − 1) + [l'_s ≠ blank, l'_s ≠ l'_{s−2}] α_{t−1}(s − 2))
    β_t(s) = Σ_{s'} β_{t+1}(s') y_{t+1}(l'_{s'}),     s' = s, s + 1 and, under the same condition, s + 2
    ∂(−log p)/∂z_t(k) = y_t(k) − Σ_{s: l'_s = k} α_t(s) β_t(s) / p(l | x)

Two convolutions over time with stride 2 come before the recurrent layer, as in D. Amodei et al., Deep Speech 2, 2015
<https://arxiv.org/abs/1512.02595>. They leave a quarter of the steps, one every 40 ms, which is still more than the
rate of spoken characters.

    h = ReLU(conv₂(ReLU(conv₁(x)))),   s_t = (GRU→(h)_t, GRU←(h)_t),   z_t = W s_t + b

    log-mel frames (N, T, F) ─▶ conv 11, stride 2, ReLU ─▶ the same again ─▶ GRU in both directions ─▶ linear

Shapes, from frames (N, T, F) with a mask (N, T), T' = ⌈⌈T / 2⌉ / 2⌉:
    conv 11, stride 2, padding 5, ReLU     (N, channels, ⌈T / 2⌉)
    conv 11, stride 2, padding 5, ReLU     (N, channels, T')
    GRU in both directions                 (N, T', 2 · hidden)
    linear                                 (N, T', 1 + characters)

Padding does not change the result. It enters the convolutions as zeros, like everything beyond the ends of a recording,
and the recurrent layer skips it. Its output is the blank with certainty, so a text has the same probability in T'
frames and in more, and a decoder need not know where a recording ends.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..core.errors import InputShapeError, ModelError, check_value
from ..core.spec import AudioSpec, Transcript
from ..nn import recurrent
from ..nn.losses import BLANK, SILENT
from ..nn.masks import normalize_padding_mask
from ..nn.recurrent import sequence_lengths
from .base import BaseModel
from .card import Card, Divergence, Published
from .config import ValidatedConfig, fraction, positive


@dataclass(frozen=True)
class Config(ValidatedConfig):
    """Configuration of the network."""

    in_features: int = positive(64)  # F, the mel bands of a frame
    channels: tuple[int, ...] = positive((128, 128))  # of each convolution
    kernel: int = positive(11)  # size of a convolution's window in frames, an odd number
    strides: tuple[int, ...] = positive((2, 2))  # of each convolution: their product is what frames are divided by
    hidden_dim: int = positive(128)  # units of the GRU, in each direction
    layers: int = positive(1)  # stacked layers of the GRU
    dropout: float = fraction(0.1)  # dropout rate of the inputs of the GRU and of the head
    num_classes: int = positive(28)  # size of the output at a frame: the blank, then the characters

    def __post_init__(self) -> None:
        super().__post_init__()
        check_value(self.kernel % 2 == 1, "kernel", self.kernel, "an odd number")
        one_each = f"as many numbers as channels, {len(self.channels)}"
        check_value(len(self.strides) == len(self.channels), "strides", self.strides, one_each)

    @classmethod
    def for_spec(cls, preset: Config, spec: AudioSpec) -> Config:
        """Return the preset with the mel bands and characters of `spec`. Raises ModelError if it has no transcripts."""
        if not isinstance(spec.target, Transcript):
            raise ModelError(
                f"ctc-conv-gru transcribes speech and cannot learn {spec.target.column}: give recordings with their "
                "transcripts, or take gru, which learns a class or a number of each."
            )
        return dataclasses.replace(preset, in_features=spec.n_mels, num_classes=spec.target.outputs)


class CTCConvGRU(BaseModel):
    """A network that maps log-mel frames (N, T, F) to logits (N, T', 1 + characters)."""

    takes = (AudioSpec,)
    targets = (Transcript,)

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        widths, around = (config.in_features, *config.channels), config.kernel // 2
        self.convolutions = nn.ModuleList(
            nn.Conv1d(before, after, config.kernel, stride, padding=around)
            for before, after, stride in zip(widths, config.channels, config.strides)
        )
        between = config.dropout if config.layers > 1 else 0.0  # PyTorch applies dropout between layers only
        self.rnn = recurrent.GRU(
            widths[-1], config.hidden_dim, config.layers, batch_first=True, bidirectional=True, dropout=between
        )
        self.head = nn.Linear(2 * config.hidden_dim, config.num_classes)

    def output_frames(self, frames: Tensor) -> Tensor:
        """Return T' for recordings of `frames` frames, (n,): each convolution divides by its stride, rounding up."""
        for stride in self.config.strides:
            frames = -(-frames // stride)
        return frames

    def features(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the input of the head: the states of both directions, (N, T', 2 · hidden), zeros at padding.

        `mask` (N, T) is True where a frame is real, with padding on the right. Raises ModelError for other padding, and
        for frames of another size.
        """
        if x.ndim != 3 or x.shape[2] != self.config.in_features:
            raise InputShapeError(
                f"This network takes frames of shape (N, T, {self.config.in_features}), and these are "
                f"{tuple(x.shape)}: build one with other in_features."
            )
        lengths = sequence_lengths(normalize_padding_mask(mask, x.shape), x.shape[1])
        h = _zero_padding(x, lengths).transpose(1, 2)  # (N, F, T)
        for convolution, stride in zip(self.convolutions, self.config.strides):
            h = F.relu(convolution(h))  # (N, channels, T')
            lengths = None if lengths is None else -(-lengths // stride)
            h = _zero_padding(h.transpose(1, 2), lengths).transpose(1, 2)
        h = F.dropout(h.transpose(1, 2), self.config.dropout, self.training)  # (N, T', channels)
        states, _ = self.rnn(h) if lengths is None else self.rnn(h, lengths=lengths)
        return F.dropout(states, self.config.dropout, self.training)  # (N, T', 2 · hidden)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the logits, shape (N, T', 1 + characters), the blank first.

        After the end of a recording the blank has probability 1.
        """
        logits: Tensor = self.head(self.features(x, mask))
        lengths = sequence_lengths(normalize_padding_mask(mask, x.shape), x.shape[1])
        if lengths is None:
            return logits
        silence = logits.new_full((logits.shape[2],), SILENT)
        silence[BLANK] = 0
        return torch.where(_frame_mask(self.output_frames(lengths), logits), logits, silence)


def _zero_padding(x: Tensor, lengths: Tensor | None) -> Tensor:
    """Return x (N, T, …) with zeros after each of the lengths (N,)."""
    return x if lengths is None else x * _frame_mask(lengths, x)


def _frame_mask(lengths: Tensor, x: Tensor) -> Tensor:
    """Return the mask (N, T, 1) of the positions of x (N, T, …) that are before the lengths (N,)."""
    return (torch.arange(x.shape[1]) < lengths[:, None])[:, :, None].to(x.device)


Model = CTCConvGRU

PRESETS = {"ctc-conv-gru": Config()}

CARD = Card(
    title="Connectionist temporal classification: labelling unsegmented sequence data with recurrent neural networks",
    authors="A. Graves, S. Fernández, F. Gomez, J. Schmidhuber",
    year=2006,
    link="https://doi.org/10.1145/1143844.1143891",
    family="rnn",
    equation="p(l | x) = Σ_{π: B(π) = l} Π_t softmax(z_t)(π_t), z_t = W (GRU→(h)_t, GRU←(h)_t) + b, h = conv(conv(x))",
    oracle="an independent implementation in torch.nn, one recording at a time, without padding",
    published={"ctc-conv-gru": Published(475_932, 14_105_600, (100, 64), "computed from the definition above")},
    divergences=(
        Divergence(
            "network",
            paper="one layer of 100 LSTM units in each direction, over frames of 26 numbers (MFCC)",
            here="two convolutions of stride 2, then gated units, over log-mel frames",
            common="convolutions before gated units in Deep Speech 2 (2015)",
        ),
        Divergence(
            "β",
            paper="with the factor y_t(l'_s), so that each product α β is divided by it",
            here="without it: α β is the probability of a state, as in hidden Markov models",
        ),
        Divergence(
            "padding",
            paper="none: one sequence at a time",
            here="the blank with probability 1, which leaves the probability of a text unchanged",
            common="the lengths of the recordings are passed to the loss",
        ),
    ),
    settings={"ctc-conv-gru": {"optimizer": "adamw", "lr": 2e-3, "grad_clip": 1.0, "epochs": 20, "batch_size": 16}},
)
