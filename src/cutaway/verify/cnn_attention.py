"""Oracle of cnn-attention: a sequence of PyTorch's layers and its multi-head attention."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..models.cnn_attention import CNNAttention, Config
from . import Oracle, images


class SequentialCNNAttention(nn.Module):
    """Sequence of layers up to the feature map, followed by `nn.MultiheadAttention` with tokens first."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.map = nn.Sequential()
        channels = config.in_channels
        for i, width in enumerate(config.widths):
            if i > 0:
                self.map.append(nn.MaxPool2d(2))
            self.map.extend([nn.Conv2d(channels, width, 3, padding="same", bias=False), nn.BatchNorm2d(width)])
            self.map.append(nn.ReLU())
            channels = width
        self.norm = nn.LayerNorm(channels)
        self.attention = nn.MultiheadAttention(channels, config.heads)
        self.head = nn.Linear(channels, config.num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits (N, classes) of images (N, C, H, W)."""
        tokens = torch.stack(list(self.map(x).flatten(2).unbind(2)))  # (T, N, D)
        normalized = self.norm(tokens)
        mixed, _ = self.attention(normalized, normalized, normalized, need_weights=True)
        logits: Tensor = self.head(torch.mean(tokens + mixed, dim=0))
        return logits


def sequential_cnn_attention(config: Config) -> Oracle:
    """Build the network and the key map from our weights."""
    with torch.device("meta"):
        names = list(CNNAttention(config).state_dict())
    key_map = {name: name for name in names} | {
        "attention.qkv.weight": "attention.in_proj_weight",
        "attention.qkv.bias": "attention.in_proj_bias",
        "attention.out.weight": "attention.out_proj.weight",
        "attention.out.bias": "attention.out_proj.bias",
    }
    for name in names:
        part, _, rest = name.partition(".")
        if part in ("convs", "bns"):
            i, _, tensor = rest.partition(".")
            key_map[name] = f"map.{4 * int(i) + (part == 'bns')}.{tensor}"  # conv, BN, ReLU, pool; conv, …
    return Oracle(SequentialCNNAttention(config), images(2, config.in_channels, 17, 20), key_map)


ORACLES = {"cnn-attention": sequential_cnn_attention}
