"""Oracle of transformer-forecast: PyTorch's encoder layers with a causal mask, and everything else written out."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from ..models.transformer_forecast import PRESETS, Config
from . import Oracle

BLOCK = {
    "attention.qkv.weight": "self_attn.in_proj_weight",
    "attention.qkv.bias": "self_attn.in_proj_bias",
    "attention.out": "self_attn.out_proj",
    "mlp.fc1": "linear1",
    "mlp.fc2": "linear2",
}


class PlainForecaster(nn.Module):
    """Network that processes one example, step and variable at a time, except in the layers."""

    def __init__(self, config: Config) -> None:
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


def plain_forecaster(config: Config) -> Oracle:
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
            table, before = BLOCK, f"stack.layers.{i}."
        module, _, kind = name.rpartition(".")
        found[before + (table.get(name) or f"{table.get(module, module)}.{kind}")] = tensor
    return found


ORACLES = dict.fromkeys(PRESETS, plain_forecaster)
