"""Oracles for time series.

The convolutional network is the sums of its equation, one window at a time. PatchTST is that of transformers, with
windows that end in repeated values as in the paper. The forecasting Transformer has PyTorch's encoder layers with a
causal mask, and everything else written out.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from ..checkpoints.huggingface import to_transformers_names
from ..checkpoints.huggingface.patchtst import PATCHTST_FAMILY, settings
from ..models import cnn1d, patchtst, transformer_forecast
from . import Oracle, images
from .libraries import transformers_library


class SummedCNN1d(nn.Module):
    """Network whose convolutions are dot products with every second window of the zero-padded signal."""

    def __init__(self, steps: int, variables: int, channels: int, classes: int) -> None:
        super().__init__()
        self.kernels, self.biases = nn.ParameterList(), nn.ParameterList()
        for inputs, width in ((variables, 5), (channels, 3), (channels, 3)):
            self.kernels.append(nn.Parameter(torch.zeros(channels, inputs, width)))
            self.biases.append(nn.Parameter(torch.zeros(channels)))
            steps = len(_window_starts(steps + 2, width))
        self.head = nn.Parameter(torch.zeros(classes, channels * steps))
        self.head_bias = nn.Parameter(torch.zeros(classes))

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits (N, classes) of series (N, T, F)."""
        h = x
        for kernel, bias in zip(self.kernels, self.biases):
            zero = torch.zeros_like(h[:, :1])
            h, width = torch.cat([zero, h, zero], 1), kernel.shape[2]  # (N, T + 2, C)
            sums = [torch.einsum("nkc,dck->nd", h[:, t : t + width], kernel) for t in _window_starts(h.shape[1], width)]
            h = torch.clamp(torch.stack(sums, 1) + bias, min=0)
        by_channel = self.head.view(len(self.head), -1, h.shape[1])  # (classes, C, T)
        return torch.einsum("ntc,kct->nk", h, by_channel) + self.head_bias


def _window_starts(steps: int, width: int) -> range:
    """Return the starts of every second window of that width."""
    return range(0, steps - width + 1, 2)


def summed_cnn1d(config: cnn1d.Config) -> Oracle:
    """Build the network of sums and the key map from our weights."""
    module = SummedCNN1d(config.steps, config.in_features, config.channels, config.num_classes)
    key_map = {"linear.weight": "head", "linear.bias": "head_bias"}
    for i in range(3):
        key_map |= {f"conv{i + 1}.weight": f"kernels.{i}", f"conv{i + 1}.bias": f"biases.{i}"}
    return Oracle(module, images(4, config.steps, config.in_features), key_map)


class PaddedPatchTST(nn.Module):
    """Encoder and head of transformers.

    Its scaler runs before the last value is repeated, which it does not support.
    """

    def __init__(self, model: nn.Module, head: nn.Module, scaler: nn.Module, config: patchtst.Config) -> None:
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


class PatchTSTOutputs(nn.Module):
    """Network of transformers from windows to plain outputs."""

    def __init__(self, model: nn.Module, config: patchtst.Config) -> None:
        super().__init__()
        self.model, self.config = model, config

    def forward(self, x: Tensor) -> Tensor:
        """Return forecasts (N, H · C), or logits (N, classes)."""
        found = self.model(past_values=x[..., : self.config.columns])
        answers: Tensor = found.prediction_outputs.flatten(1) if self.config.horizon else found.prediction_logits
        return answers


def transformers_patchtst(config: patchtst.Config) -> Oracle:
    """Build the network of transformers for a config. For padded windows its own scaling is off."""
    library, family = transformers_library(), PATCHTST_FAMILY.with_head(config)
    padded = config.padding_patch == "end"
    theirs = library.PatchTSTConfig(**settings(dataclasses.replace(config, padding_patch="none")))
    theirs._attn_implementation = "eager"
    if padded:
        theirs.context_length, theirs.scaling = _covered_steps(config), None
    modeling = library.models.patchtst.modeling_patchtst
    whole = getattr(library, family.architecture(config))(theirs)
    module: nn.Module = PatchTSTOutputs(whole, config)
    if padded:
        module = PaddedPatchTST(whole.model, whole.head, modeling.PatchTSTStdScaler(theirs), config)

    def converted(tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        return {
            ("" if padded else "model.") + key: tensor for key, tensor in to_transformers_names(family, tensors).items()
        }

    return Oracle(module, images(2, config.steps, config.in_features), converted=converted)


def _covered_steps(config: patchtst.Config) -> int:
    """Return the number of steps that are covered by patches."""
    return config.patch + config.apart * (config.tokens - 1)


FORECAST_BLOCK = {
    "attention.qkv.weight": "self_attn.in_proj_weight",
    "attention.qkv.bias": "self_attn.in_proj_bias",
    "attention.out": "self_attn.out_proj",
    "mlp.fc1": "linear1",
    "mlp.fc2": "linear2",
}


class PlainForecaster(nn.Module):
    """Network that processes one example, step and variable at a time, except in the layers."""

    def __init__(self, config: transformer_forecast.Config) -> None:
        super().__init__()
        c = self.config = config
        steps = c.steps + c.horizon
        self.values = nn.Parameter(torch.zeros(c.in_features, c.dim))
        self.positions = nn.Parameter(torch.zeros(steps, c.dim))
        self.bias = nn.Parameter(torch.zeros(c.dim))
        layer = nn.TransformerEncoderLayer(
            c.dim, c.heads, c.ffn_dim or 4 * c.dim, c.dropout, "gelu", batch_first=True, norm_first=True
        )
        layer.dropout = nn.Dropout(0.0)  # ours has none within the feed-forward layer
        layer.self_attn.dropout = 0.0
        self.drop = nn.Dropout(c.dropout)
        self.stack = nn.TransformerEncoder(layer, c.layers, nn.LayerNorm(c.dim), enable_nested_tensor=False)
        self.answer = nn.Linear(c.dim, c.columns)

    def forward(self, x: Tensor, known: Tensor | None = None) -> Tensor:
        """Return forecasts (N, H · C), or logits (N, classes)."""
        c = self.config
        own = c.in_features - c.known_future
        rows, moved = [], []
        for n, window in enumerate(x):
            mean, std = [x.new_zeros(())] * c.in_features, [x.new_ones(())] * c.in_features
            for v in range(own) if c.horizon and c.instance_norm else ():
                mean[v] = window[:, v].sum() / c.steps
                std[v] = ((window[:, v] - mean[v]).square().sum() / c.steps + 1e-5).sqrt()
            steps = [(step - torch.stack(mean)) / torch.stack(std) for step in window]
            for h in range(c.horizon):
                ahead = known[n, h] if known is not None else x.new_zeros(0)
                steps.append(torch.cat([x.new_zeros(c.in_features - len(ahead)), ahead]))
            rows.append(torch.stack([step @ self.values + self.bias + p for step, p in zip(steps, self.positions)]))
            moved.append((torch.stack(mean[: c.columns]), torch.stack(std[: c.columns])))
        length = c.steps + c.horizon
        ahead = torch.full((length, length), -torch.inf, dtype=x.dtype).triu(1)
        z = self.stack(self.drop(torch.stack(rows)), mask=ahead)
        if not c.horizon:
            logits: Tensor = self.answer(z[:, -1] if c.pooling == "last" else z.sum(1) / length)
            return logits
        answers = self.answer(z[:, c.steps :])  # (N, H, C)
        return torch.stack([(y * std + mean).reshape(-1) for y, (mean, std) in zip(answers, moved)])


def plain_forecaster(config: transformer_forecast.Config) -> Oracle:
    """Build the network, with variables that are known in advance if the config has them."""

    def draw(generator: torch.Generator) -> tuple[Tensor, ...]:
        shapes = [(2, config.steps, config.in_features)]
        if config.known_future:
            shapes.append((2, config.horizon, config.known_future))
        return tuple(torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes)

    return Oracle(PlainForecaster(config), draw, converted=_to_pytorch)


def _to_pytorch(tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """Return our tensors under PyTorch's names."""
    found: dict[str, Tensor] = {}
    outside = {
        "values.bias": "bias", "positions.weight": "positions", "norm": "stack.norm", "head": "answer",
    }  # fmt: skip
    for name, tensor in tensors.items():
        if name == "values.weight":
            found["values"] = tensor.T
            continue
        first, _, rest = name.partition(".")
        table, before = outside, ""
        if first == "blocks":
            i, _, name = rest.partition(".")
            table, before = FORECAST_BLOCK, f"stack.layers.{i}."
        module, _, kind = name.rpartition(".")
        found[before + (table.get(name) or f"{table.get(module, module)}.{kind}")] = tensor
    return found


ORACLES = {
    "cnn1d": summed_cnn1d,
    **dict.fromkeys(patchtst.PRESETS, transformers_patchtst),
    **dict.fromkeys(transformer_forecast.PRESETS, plain_forecaster),
}
