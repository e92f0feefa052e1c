"""Oracle of Whisper: the network of transformers with eager attention, one recording at a time."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from ..checkpoints.huggingface.whisper import FAMILY
from ..models.transformer_asr import PRESETS, Config
from . import Oracle
from .hugging import transformers_oracle

LENGTHS = (14, 6, 10, 2)  # frames of the compared recordings, even because two frames are one position
STEPS = 5  # tokens of each transcript so far


class Table(nn.Module):
    """First rows of the sinusoid table of transformers."""

    weight: Tensor

    def __init__(self, rows: Tensor) -> None:
        super().__init__()
        self.register_buffer("weight", rows)
        self.num_embeddings = len(rows)

    def forward(self, places: Tensor) -> Tensor:
        """Return the rows of these positions."""
        return self.weight[places]


class PerRecording(nn.Module):
    """Network of transformers on one recording at a time, cut to its length.

    That network supports only one length, which is set for each recording.
    """

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model
        self.model.model.encoder.embed_positions = Table(model.model.encoder.embed_positions.weight.detach())

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


def transformers_whisper(name: str, config: Config) -> Oracle:
    """Build WhisperForConditionalGeneration.

    The padding id (1) is never drawn, because its embedding has no gradient.
    """
    oracle = transformers_oracle(FAMILY, name, config, inputs=recordings(config), pad_token_id=1)
    return dataclasses.replace(oracle, module=PerRecording(oracle.module.model))


def recordings(config: Config) -> Callable[[torch.Generator], tuple[Tensor, ...]]:
    """Return a function that draws recordings of several lengths, their mask, and transcripts so far.

    Padding is not zero.
    """

    def draw(generator: torch.Generator) -> tuple[Tensor, ...]:
        shape = (len(LENGTHS), max(LENGTHS), config.in_features)
        x = torch.randn(shape, generator=generator, dtype=torch.float64)
        so_far = torch.randint(2, config.target_vocab_size, (len(LENGTHS), STEPS), generator=generator)
        return x, torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS)[:, None], so_far

    return draw


ORACLES = {name: functools.partial(transformers_whisper, name) for name in PRESETS}
# Fewer words, bands, dimensions and layers: the same number of heads, with two dimensions each.
REDUCED = {
    name: dataclasses.replace(
        preset, in_features=6, target_vocab_size=40, context_length=16, dim=2 * preset.heads, layers=2
    )
    for name, preset in PRESETS.items()
    if name != "transformer-asr"
}
