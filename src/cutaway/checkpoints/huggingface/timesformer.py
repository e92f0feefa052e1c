"""TimeSformer in transformers: the layers of temporal attention have the prefix temporal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...models.video_transformer import PRESETS, Config
from . import Family, Rule
from .bert import BLOCK, num_labels
from .config_files import read_float, read_int, reject_partial_patches, require_values

LAYER = r"encoder.layer.\1."


def settings(config: Config) -> dict[str, Any]:
    """Return the arguments of TimesformerConfig."""
    return {
        "num_frames": config.frames,
        "image_size": config.image_size,
        "patch_size": config.patch_size,
        "num_channels": config.in_channels,
        "hidden_size": config.dim,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "intermediate_size": config.ffn_dim,
        "hidden_act": "gelu",
        "hidden_dropout_prob": config.dropout,
        "attention_probs_dropout_prob": 0.0,
        "layer_norm_eps": 1e-6,
        "num_labels": config.num_classes,
    }


def parse_config(theirs: Mapping[str, Any]) -> Config:
    """Return our config from a config.json. Raises ModelError for an unsupported value."""
    require_values(
        theirs,
        attention_type="divided_space_time",
        hidden_act="gelu",
        layer_norm_eps=1e-6,
        qkv_bias=True,
        attention_probs_dropout_prob=0.0,
        drop_path_rate=0,
    )
    size, patch = read_int(theirs, "image_size", 224), read_int(theirs, "patch_size", 16)
    reject_partial_patches(size, patch)
    return Config(
        frames=read_int(theirs, "num_frames", 8),
        image_size=size,
        patch_size=patch,
        dim=read_int(theirs, "hidden_size", 768),
        layers=read_int(theirs, "num_hidden_layers", 12),
        heads=read_int(theirs, "num_attention_heads", 12),
        ffn_dim=read_int(theirs, "intermediate_size", 3072),
        dropout=read_float(theirs, "hidden_dropout_prob", 0.0),
        in_channels=read_int(theirs, "num_channels", 3),
        num_classes=num_labels(theirs),
    )


TIMESFORMER_FAMILY = Family(
    model_type="timesformer",
    presets=tuple(PRESETS),
    prefix="timesformer.",
    rules=(
        Rule(r"patches\.(weight|bias)", (r"embeddings.patch_embeddings.projection.\1",)),
        Rule(r"class_token", ("embeddings.cls_token",)),
        Rule(r"positions", ("embeddings.position_embeddings",)),
        Rule(r"times", ("embeddings.time_embeddings",)),
        Rule(BLOCK + r"time_norm\.(weight|bias)", (LAYER + r"temporal_layernorm.\2",)),
        Rule(BLOCK + r"time_attention\.qkv\.(weight|bias)", (LAYER + r"temporal_attention.attention.qkv.\2",)),
        Rule(BLOCK + r"time_attention\.out\.(weight|bias)", (LAYER + r"temporal_attention.output.dense.\2",)),
        Rule(BLOCK + r"time_fc\.(weight|bias)", (LAYER + r"temporal_dense.\2",)),
        Rule(BLOCK + r"norm1\.(weight|bias)", (LAYER + r"layernorm_before.\2",)),
        Rule(BLOCK + r"attention\.qkv\.(weight|bias)", (LAYER + r"attention.attention.qkv.\2",)),
        Rule(BLOCK + r"attention\.out\.(weight|bias)", (LAYER + r"attention.output.dense.\2",)),
        Rule(BLOCK + r"norm2\.(weight|bias)", (LAYER + r"layernorm_after.\2",)),
        Rule(BLOCK + r"mlp\.fc1\.(weight|bias)", (LAYER + r"intermediate.dense.\2",)),
        Rule(BLOCK + r"mlp\.fc2\.(weight|bias)", (LAYER + r"output.dense.\2",)),
        Rule(r"norm\.(weight|bias)", (r"layernorm.\1",)),
        Rule(r"head\.(weight|bias)", (r"classifier.\1",), outside=True),
    ),
    settings=settings,
    config=parse_config,
    architecture=lambda config: "TimesformerForVideoClassification",
)
