"""The tensors of our Vision Transformer by the names that transformers gives to those of its own."""

from __future__ import annotations

import re
from collections.abc import Mapping

from torch import Tensor

RENAMES = (
    (r"^class_token$", "vit.embeddings.cls_token"),
    (r"^positions$", "vit.embeddings.position_embeddings"),
    (r"^patches", "vit.embeddings.patch_embeddings.projection"),
    (r"^blocks\.", "vit.layers."),
    (r"^norm\.", "vit.layernorm."),
    (r"norm1", "layernorm_before"),
    (r"norm2", "layernorm_after"),
    (r"attention\.out", "attention.o_proj"),
)


def as_transformers(tensors: Mapping[str, Tensor], *more: tuple[str, str]) -> dict[str, Tensor]:
    """Our tensors, weights or gradients, by transformers' names, with queries, keys and values apart. `more` are the
    patterns and names of what is not of the encoder."""
    found = {}
    for key, tensor in tensors.items():
        for pattern, replacement in (*more, *RENAMES):
            key = re.sub(pattern, replacement, key)
        if ".qkv." in key:
            found |= {key.replace("qkv", f"{letter}_proj"): part for letter, part in zip("qkv", tensor.chunk(3))}
        else:
            found[key] = tensor
    return found
