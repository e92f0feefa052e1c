"""Oracles of speech recognition, one recording at a time: Whisper of transformers, and a convolutional GRU for CTC.

The latter has no padding, and one cell and step at a time.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..checkpoints.huggingface.encoder_decoders import WHISPER_FAMILY
from ..models import ctc_conv_gru, transformer_asr
from . import Oracle, ragged_frames
from .huggingface import transformers_oracle
from .recurrent import CellStack

WHISPER_LENGTHS = (14, 6, 10, 2)  # frames of the compared recordings, even because two frames are one position
WHISPER_STEPS = 5  # tokens of each transcript so far


class SinusoidTable(nn.Module):
    """First rows of the sinusoid table of transformers."""

    weight: Tensor

    def __init__(self, rows: Tensor) -> None:
        super().__init__()
        self.register_buffer("weight", rows)
        self.num_embeddings = len(rows)

    def forward(self, places: Tensor) -> Tensor:
        """Return the rows of these positions."""
        return self.weight[places]


class WhisperPerRecording(nn.Module):
    """Network of transformers on one recording at a time, cut to its length.

    That network supports only one length, which is set for each recording.
    """

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model
        self.model.model.encoder.embed_positions = SinusoidTable(model.model.encoder.embed_positions.weight.detach())

    def forward(self, x: Tensor, mask: Tensor, target: Tensor) -> Tensor:
        """Return the logits (N, S, vocab_size).

        The inputs are frames (N, T, F), their mask (N, T) and the transcripts so far (N, S).
        """
        encoder, found = self.model.model.encoder, []
        for one, real, so_far in zip(x, mask, target):
            places = int(real.sum()) // 2
            self.model.config.max_source_positions = encoder.config.max_source_positions = places
            encoder.embed_positions.num_embeddings = places
            found.append(self.model(input_features=one[real].T[None], decoder_input_ids=so_far[None]).logits)
        return torch.cat(found)


def transformers_whisper(name: str, config: transformer_asr.Config) -> Oracle:
    """Build WhisperForConditionalGeneration.

    The padding id (1) is never drawn, because its embedding has no gradient.
    """
    oracle = transformers_oracle(WHISPER_FAMILY, name, config, inputs=_whisper_inputs(config), pad_token_id=1)
    return dataclasses.replace(oracle, module=WhisperPerRecording(oracle.module.model))


def _whisper_inputs(config: transformer_asr.Config) -> Callable[[torch.Generator], tuple[Tensor, ...]]:
    """Return a function that draws recordings of several lengths, their mask, and transcripts so far."""
    recordings = ragged_frames(WHISPER_LENGTHS, config.in_features)

    def draw(generator: torch.Generator) -> tuple[Tensor, ...]:
        size = (len(WHISPER_LENGTHS), WHISPER_STEPS)
        return *recordings(generator), torch.randint(2, config.target_vocab_size, size, generator=generator)

    return draw


CTC_LENGTHS = (7, 3, 12, 1)  # frames of the compared recordings


class CTCPerRecording(nn.Module):
    """Network over recordings that are cut to their lengths.

    Dropout is drawn for the whole batch first, in the order of the model. Between layers it is not used.
    """

    def __init__(self, config: ctc_conv_gru.Config) -> None:
        super().__init__()
        self.config = config
        widths = (config.in_features, *config.channels)
        self.convolutions = nn.ModuleList(
            nn.Conv1d(before, after, config.kernel, stride, padding=(config.kernel - 1) // 2)
            for before, after, stride in zip(widths, widths[1:], config.strides)
        )
        self.reader = CellStack(
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


def recurrent_ctc(config: ctc_conv_gru.Config) -> Oracle:
    """Build the network and the key map from our weights."""
    module = CTCPerRecording(config)
    key_map = {name: name for name, _ in module.named_parameters() if not name.startswith("reader")}
    for i in range(len(module.reader.cells)):
        level, way = divmod(i, 2)
        for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
            key_map[f"rnn.{name}_l{level}{'_reverse' * way}"] = f"reader.cells.{i}.{name}"
    recordings = ragged_frames(CTC_LENGTHS, config.in_features)
    return Oracle(module, recordings, key_map, compared=lambda inputs, found: _valid_frames(config, inputs[1], found))


def _valid_frames(config: ctc_conv_gru.Config, mask: Tensor, found: Tensor) -> Tensor:
    """Return the outputs at real frames, shape (n, K). Outputs at padding are large constants."""
    lengths = mask.sum(1)
    for stride in config.strides:
        lengths = (lengths - 1) // stride + 1
    return found[torch.arange(found.shape[1]) < lengths[:, None]]


ORACLES = {
    **{name: functools.partial(transformers_whisper, name) for name in transformer_asr.PRESETS},
    "ctc-conv-gru": recurrent_ctc,
}

REDUCED = {
    # Fewer words, bands, dimensions and layers: the same number of heads, with two dimensions each.
    **{
        name: dataclasses.replace(
            preset, in_features=6, target_vocab_size=40, context_length=16, dim=2 * preset.heads, layers=2
        )
        for name, preset in transformer_asr.PRESETS.items()
        if name != "transformer-asr"
    },
}
