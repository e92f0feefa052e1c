"""Oracle of the Vision Transformers: torchvision's."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor, nn

from ..checkpoints.torchvision import torchvision_key
from ..models.vit import PRESETS, Config, ViT
from . import Oracle, changed, images, torchvision_models


def torchvision_vit(config: Config) -> Oracle:
    """Build torchvision's network, with other input channels or mean pooling of patches if `config` has them."""
    vision_transformer = torchvision_models("vision_transformer")
    size = config.grid * config.patch_size
    module = vision_transformer.VisionTransformer(
        image_size=size,
        patch_size=config.patch_size,
        num_layers=config.layers,
        num_heads=config.heads,
        hidden_dim=config.dim,
        mlp_dim=config.ffn_dim,
        **changed(config, PRESETS["vit-base/16"], dropout="dropout"),
        num_classes=config.num_classes,
    )
    if config.in_channels != 3:
        module.conv_proj = nn.Conv2d(config.in_channels, config.dim, config.patch_size, stride=config.patch_size)
    if config.pooling == "mean":
        module = Averaged(module)
    with torch.device("meta"):
        ours = ViT(config).state_dict()
    inside = "vit." if config.pooling == "mean" else ""
    # All of torchvision's Vision Transformers have the names of vit_b_16.
    key_map = {key: inside + torchvision_key("vit-base/16", key) for key in ours}
    batch = 1 if size > 64 else 2  # one large image is enough, to save time
    return Oracle(module, images(batch, config.in_channels, size, size), key_map)


class Averaged(nn.Module):
    """Encoder of torchvision without a class token. Its head takes the mean of the patches."""

    def __init__(self, vit: nn.Module) -> None:
        super().__init__()
        del vit.class_token
        vit.encoder.pos_embedding = nn.Parameter(vit.encoder.pos_embedding[:, 1:].detach())  # type: ignore[index,union-attr]
        self.vit = vit

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits (N, classes)."""
        tokens = self.vit.encoder(self.vit.conv_proj(x).flatten(2).mT.contiguous())  # type: ignore[operator]
        logits: Tensor = self.vit.heads(tokens.mean(1))  # type: ignore[operator]
        return logits


ORACLES = dict.fromkeys(PRESETS, torchvision_vit)

# vit-tiny/16 is compared completely; the others have more and wider blocks of the same kind.
REDUCED = {
    name: dataclasses.replace(
        config,
        image_size=2 * config.patch_size,
        dim=16 * config.heads,
        layers=3,
        ffn_dim=64 * config.heads,
        num_classes=10,
    )
    for name, config in PRESETS.items()
    if name != "vit-tiny/16"
}
