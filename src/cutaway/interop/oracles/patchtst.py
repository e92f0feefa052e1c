"""The oracle of PatchTST: transformers' networks, given windows that end in repeated values, as the paper's do."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from ...models.patchtst import PRESETS, Config
from . import Oracle, images
from .hugging import transformers_library

BLOCK = {  # ours to theirs, within a block
    "attention.out": "self_attn.out_proj",
    "norm1": "norm_sublayer1.batchnorm",
    "mlp.fc1": "ff.0",
    "mlp.fc2": "ff.3",
    "norm2": "norm_sublayer3.batchnorm",
}
OUTSIDE = {"patches": "embedder.input_embedding.", "positions": "positional_encoder.position_enc"}


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


def transformers_patchtst(config: Config) -> Oracle:
    """transformers' network of that config, its own scaling off."""
    library = transformers_library()
    theirs = library.PatchTSTConfig(
        num_input_channels=config.columns,
        context_length=_read(config),
        patch_length=config.patch,
        patch_stride=config.apart,
        num_hidden_layers=config.layers,
        d_model=config.dim,
        num_attention_heads=config.heads,
        ffn_dim=config.ffn_dim,
        positional_dropout=config.dropout,
        path_dropout=config.dropout,
        ff_dropout=config.dropout,
        pre_norm=False,
        positional_encoding_type="random",
        pooling_type=None if config.horizon else "mean",
        prediction_length=config.horizon or 1,
        num_targets=config.num_classes,
        scaling=None,
        attn_implementation="eager",
    )
    modeling = library.models.patchtst.modeling_patchtst
    kind = library.PatchTSTForPrediction if config.horizon else library.PatchTSTForClassification
    whole = kind(theirs)
    module = Padded(whole.model, whole.head, modeling.PatchTSTStdScaler(theirs), config)
    drawn = images(2, config.steps, config.in_features)
    return Oracle(module, drawn, converted=lambda tensors: _renamed(tensors, config))


def _read(config: Config) -> int:
    """The steps that are in a patch."""
    return config.patch + config.apart * (config.tokens - 1)


def _renamed(tensors: Mapping[str, Tensor], config: Config) -> Mapping[str, Tensor]:
    """Our tensors under their names; queries, keys and values are three there."""
    found: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        first, _, rest = name.partition(".")
        if first == "blocks":
            i, _, rest = rest.partition(".")
            inside, _, kind = rest.rpartition(".")
            layer = f"model.encoder.layers.{i}."
            if inside == "attention.qkv":
                for which, part in zip("qkv", tensor.chunk(3)):
                    found[f"{layer}self_attn.{which}_proj.{kind}"] = part
            else:
                found[f"{layer}{BLOCK[inside]}.{kind}"] = tensor
        elif first == "head":
            found[f"head.{'projection' if config.horizon else 'linear'}.{rest}"] = tensor
        else:
            found[f"model.encoder.{OUTSIDE[first]}{rest}"] = tensor
    return found


ORACLES = dict.fromkeys(PRESETS, transformers_patchtst)
