"""The oracle of PatchTST: transformers' networks, given windows that end in repeated values, as the paper's do."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from ..checkpoints.huggingface import renamed
from ..checkpoints.huggingface.patchtst import FAMILY, settings
from ..models.patchtst import PRESETS, Config
from . import Oracle, images
from .hugging import transformers_library


class Padded(nn.Module):
    """Their encoder and head, scaled by their own scaler before the last value is repeated, which it does not know."""

    def __init__(self, model: nn.Module, head: nn.Module, scaler: nn.Module, config: Config) -> None:
        super().__init__()
        self.model, self.head, self.scaler, self.config = model, head, scaler, config

    def forward(self, x: Tensor) -> Tensor:
        """Forecasts (N, H · C), or logits (N, classes)."""
        x = x[..., : self.config.columns]
        x, mean, scale = self.scaler(x, torch.ones_like(x))
        x = torch.cat([x, x[:, -1:].expand(-1, self.config.apart, -1)], dim=1)  # (N, T + S, C)
        x = x[:, : _read(self.config)]  # where patches do not fit, the end is left out, and not the beginning
        answers: Tensor = self.head(self.model(past_values=x).last_hidden_state)  # (N, H, C)
        return (answers * scale + mean).flatten(1) if self.config.horizon else answers


class Plain(nn.Module):
    """Their network as it is, from windows to plain answers."""

    def __init__(self, model: nn.Module, config: Config) -> None:
        super().__init__()
        self.model, self.config = model, config

    def forward(self, x: Tensor) -> Tensor:
        """Forecasts (N, H · C), or logits (N, classes)."""
        found = self.model(past_values=x[..., : self.config.columns])
        answers: Tensor = found.prediction_outputs.flatten(1) if self.config.horizon else found.prediction_logits
        return answers


def transformers_patchtst(config: Config) -> Oracle:
    """transformers' network of that config, and where windows are padded its own scaling off."""
    library, family = transformers_library(), FAMILY.of(config)
    padded = config.padding_patch == "end"
    theirs = library.PatchTSTConfig(**settings(dataclasses.replace(config, padding_patch="none")))
    theirs._attn_implementation = "eager"
    if padded:
        theirs.context_length, theirs.scaling = _read(config), None
    modeling = library.models.patchtst.modeling_patchtst
    whole = getattr(library, family.architecture(config))(theirs)
    module: nn.Module = Plain(whole, config)
    if padded:
        module = Padded(whole.model, whole.head, modeling.PatchTSTStdScaler(theirs), config)

    def converted(tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        return {("" if padded else "model.") + key: tensor for key, tensor in renamed(family, tensors).items()}

    return Oracle(module, images(2, config.steps, config.in_features), converted=converted)


def _read(config: Config) -> int:
    """The steps that are in a patch."""
    return config.patch + config.apart * (config.tokens - 1)


ORACLES = dict.fromkeys(PRESETS, transformers_patchtst)
