"""Oracle of PatchTST: the networks of transformers, with windows that end in repeated values as in the paper."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from ..checkpoints.huggingface import to_transformers_names
from ..checkpoints.huggingface.patchtst import FAMILY, settings
from ..models.patchtst import PRESETS, Config
from . import Oracle, images
from .hugging import transformers_library


class Padded(nn.Module):
    """Encoder and head of transformers.

    Its scaler runs before the last value is repeated, which it does not support.
    """

    def __init__(self, model: nn.Module, head: nn.Module, scaler: nn.Module, config: Config) -> None:
        super().__init__()
        self.model, self.head, self.scaler, self.config = model, head, scaler, config

    def forward(self, x: Tensor) -> Tensor:
        """Return forecasts (N, H · C), or logits (N, classes)."""
        x = x[..., : self.config.columns]
        x, mean, scale = self.scaler(x, torch.ones_like(x))
        x = torch.cat([x, x[:, -1:].expand(-1, self.config.apart, -1)], dim=1)  # (N, T + S, C)
        x = x[:, : _covered_steps(self.config)]  # if patches do not fit, the end is dropped and not the beginning
        answers: Tensor = self.head(self.model(past_values=x).last_hidden_state)  # (N, H, C)
        return (answers * scale + mean).flatten(1) if self.config.horizon else answers


class Plain(nn.Module):
    """Network of transformers from windows to plain outputs."""

    def __init__(self, model: nn.Module, config: Config) -> None:
        super().__init__()
        self.model, self.config = model, config

    def forward(self, x: Tensor) -> Tensor:
        """Return forecasts (N, H · C), or logits (N, classes)."""
        found = self.model(past_values=x[..., : self.config.columns])
        answers: Tensor = found.prediction_outputs.flatten(1) if self.config.horizon else found.prediction_logits
        return answers


def transformers_patchtst(config: Config) -> Oracle:
    """Build the network of transformers for a config. For padded windows its own scaling is off."""
    library, family = transformers_library(), FAMILY.with_head(config)
    padded = config.padding_patch == "end"
    theirs = library.PatchTSTConfig(**settings(dataclasses.replace(config, padding_patch="none")))
    theirs._attn_implementation = "eager"
    if padded:
        theirs.context_length, theirs.scaling = _covered_steps(config), None
    modeling = library.models.patchtst.modeling_patchtst
    whole = getattr(library, family.architecture(config))(theirs)
    module: nn.Module = Plain(whole, config)
    if padded:
        module = Padded(whole.model, whole.head, modeling.PatchTSTStdScaler(theirs), config)

    def converted(tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        return {
            ("" if padded else "model.") + key: tensor for key, tensor in to_transformers_names(family, tensors).items()
        }

    return Oracle(module, images(2, config.steps, config.in_features), converted=converted)


def _covered_steps(config: Config) -> int:
    """Return the number of steps that are covered by patches."""
    return config.patch + config.apart * (config.tokens - 1)


ORACLES = dict.fromkeys(PRESETS, transformers_patchtst)
