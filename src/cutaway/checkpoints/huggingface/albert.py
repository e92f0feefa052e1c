"""ALBERT in transformers: one block in one group, with the pooler in the backbone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...models.albert import PRESETS
from ...models.bert import Config
from . import Family, Rule
from .bert import parse_shared_fields, shared_settings
from .config_fields import read_int, reject_others
from .encoders import KINDS, USUAL_DROPS, parse_activation, parse_head, require_fixed_values


def settings(config: Config) -> dict[str, Any]:
    """Return the arguments of AlbertConfig. Raises ModelError for a network that ALBERT does not support."""
    same: dict[str, Any] = {
        "share_layers": True,
        "first_position": 0,
        "pooler_activation": "tanh",
        "drops_before": False,
    }
    same |= {"token_types": config.token_types or 1, "embedding_dim": config.embedding_dim or config.dim}
    require_fixed_values(config, "ALBERT", **same, **USUAL_DROPS | {"drops_mlp": False})
    found = shared_settings(config)
    found["classifier_dropout_prob"] = found.pop("classifier_dropout")
    return {**found, "embedding_size": config.embedding_dim}


def parse_config(theirs: Mapping[str, Any]) -> Config:
    """Return our config from a config.json. Raises ModelError for an unsupported value."""
    reject_others(theirs, "num_hidden_groups", (1,))
    reject_others(theirs, "inner_group_num", (1,))
    defaults = {"vocab_size": 30_000, "dim": 4096, "ffn_dim": 16_384, "heads": 64, "dropout": 0.0, "head_dropout": 0.1}
    return Config(
        **parse_shared_fields(theirs, **defaults, head_field="classifier_dropout_prob"),
        context_length=read_int(theirs, "max_position_embeddings", 512),
        embedding_dim=read_int(theirs, "embedding_size", 128),
        share_layers=True,
        drops_mlp=False,
        activation=parse_activation(theirs, "hidden_act", "gelu_new"),
        head=parse_head(theirs, "Albert"),
    )


ONE = r"blocks\.0\."
LAYER = "encoder.albert_layer_groups.0.albert_layers.0."
FAMILY = Family(
    model_type="albert",
    presets=tuple(PRESETS),
    prefix="albert.",
    rules=(
        Rule(r"embedding\.weight", ("embeddings.word_embeddings.weight",)),
        Rule(r"positions\.weight", ("embeddings.position_embeddings.weight",)),
        Rule(r"types\.weight", ("embeddings.token_type_embeddings.weight",)),
        Rule(r"norm\.(weight|bias)", (r"embeddings.LayerNorm.\1",)),
        Rule(r"project\.(weight|bias)", (r"encoder.embedding_hidden_mapping_in.\1",)),
        Rule(
            ONE + r"attention\.qkv\.(weight|bias)",
            tuple(LAYER + rf"attention.{part}.\1" for part in ("query", "key", "value")),
        ),
        Rule(ONE + r"attention\.out\.(weight|bias)", (LAYER + r"attention.dense.\1",)),
        Rule(ONE + r"norm1\.(weight|bias)", (LAYER + r"attention.LayerNorm.\1",)),
        Rule(ONE + r"mlp\.fc1\.(weight|bias)", (LAYER + r"ffn.\1",)),
        Rule(ONE + r"mlp\.fc2\.(weight|bias)", (LAYER + r"ffn_output.\1",)),
        Rule(ONE + r"norm2\.(weight|bias)", (LAYER + r"full_layer_layer_norm.\1",)),
        Rule(r"head\.pooler\.(weight|bias)", (r"pooler.\1",)),
        Rule(r"head\.linear\.(weight|bias)", (r"classifier.\1",), outside=True),
        Rule(r"head\.(weight|bias)", (r"classifier.\1",), outside=True),
        Rule(r"head\.dense\.(weight|bias)", (r"predictions.dense.\1",), outside=True),
        Rule(r"head\.norm\.(weight|bias)", (r"predictions.LayerNorm.\1",), outside=True),
        Rule(r"head\.words\.unembedding", ("predictions.decoder.weight",), outside=True),
        Rule(r"head\.words\.bias", ("predictions.bias",), outside=True),
    ),
    settings=settings,
    config=parse_config,
    tokens={"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3},
    architecture=lambda config: f"Albert{KINDS[config.head]}",
    left=(
        r"(albert\.)?embeddings\.position_ids",
        r"predictions\.decoder\.weight",
        r"sop_classifier\.classifier\.(weight|bias)",
        r"(albert\.)?pooler\.(weight|bias)",
    ),
    again={"head.words.bias": ("predictions.decoder.bias",)},
    output_bias=("predictions.decoder.bias", "predictions.bias"),
)
