"""Oracle of TimeSformer: the network of transformers, one video at a time without padding."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from ..checkpoints.huggingface import to_transformers_names
from ..checkpoints.huggingface.timesformer import FAMILY, settings
from ..models.video_transformer import PRESETS, Config
from . import Oracle
from .hugging import transformers_library

TIMES = "timesformer.embeddings.time_embeddings"


class OneByOne(nn.Module):
    """Network of transformers on videos of several lengths, one at a time, with the first time embeddings."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Return the logits (N, classes)."""
        times, config = self.model.get_parameter(TIMES), self.model.config
        answers, most = [], config.num_frames
        for video, real in zip(x, mask):
            config.num_frames = int(real.sum())  # its layers split the tokens by this
            own = {TIMES: times[:, : config.num_frames]}
            answers.append(functional_call(self.model, own, (video[real][None],)).logits)
        config.num_frames = most
        return torch.cat(answers)


def transformers_timesformer(config: Config) -> Oracle:
    """Build the network of transformers for a config, with the library's defaults for all other fields."""
    library = transformers_library()
    given = {k: v for k, v in settings(config).items() if k not in ("hidden_act", "layer_norm_eps")}
    module = library.TimesformerForVideoClassification(library.TimesformerConfig(**given))

    def videos(generator: torch.Generator) -> tuple[Tensor, ...]:
        """Draw videos whose padding is not zero, so that using it would be detected."""
        lengths = torch.tensor([config.frames, 1, (config.frames + 1) // 2])
        shape = (len(lengths), config.frames, config.in_channels, config.image_size, config.image_size)
        x = torch.randn(shape, generator=generator, dtype=torch.float64)
        return x, torch.arange(config.frames) < lengths[:, None]

    def converted(tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        return {f"model.{key}": tensor for key, tensor in to_transformers_names(FAMILY, tensors).items()}

    return Oracle(OneByOne(module), videos, converted=converted)


ORACLES = dict.fromkeys(PRESETS, transformers_timesformer)
REDUCED = {
    "timesformer": dataclasses.replace(
        PRESETS["timesformer"], frames=4, image_size=32, dim=96, layers=3, ffn_dim=384, num_classes=10
    )
}
