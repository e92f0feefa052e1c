"""DistilBERT in transformers: other names of fields and tensors than BERT."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...models.bert import Config
from ...models.distilbert import PRESETS
from . import Family, Rule
from .config_fields import read_bool, read_dropout, read_float, read_int
from .encoders import (
    BLOCK,
    KINDS,
    THEIR_ACTIVATIONS,
    dropout_rates,
    num_labels,
    parse_activation,
    parse_head,
    reject_decoders,
    require_fixed_values,
)


def settings(config: Config) -> dict[str, Any]:
    """Return the arguments of DistilBertConfig. Raises ModelError for a network that DistilBERT does not support."""
    same = {
        "embedding_dim": None,
        "share_layers": False,
        "pooler_activation": "relu",
        "token_types": 0,
        "first_position": 0,
        "eps": 1e-12,
    }
    drops = {"drops_before": False, "drops_tags_as_backbone": True, "drops_attention": False, "drops_mlp": True}
    require_fixed_values(config, "DistilBERT", **same, **drops)
    dropout, attention, head = dropout_rates(config)
    return {
        "vocab_size": config.vocab_size,
        "max_position_embeddings": config.context_length,
        "dim": config.dim,
        "n_layers": config.layers,
        "n_heads": config.heads,
        "hidden_dim": config.ffn_dim or 4 * config.dim,
        "activation": THEIR_ACTIVATIONS[config.activation],
        "dropout": dropout,
        "attention_dropout": attention,
        "seq_classif_dropout": head,
        "tie_word_embeddings": config.tie_weights,
        "num_labels": config.num_classes,
    }


def parse_config(theirs: Mapping[str, Any]) -> Config:
    """Return our config from a config.json. Raises ModelError for an unsupported value.

    `sinusoidal_pos_embds` is ignored, because the position table is stored in either case.
    """
    reject_decoders(theirs)
    dim, hidden = read_int(theirs, "dim", 768), read_int(theirs, "hidden_dim", 3072)
    dropout = read_float(theirs, "dropout", 0.1)
    return Config(
        vocab_size=read_int(theirs, "vocab_size", 30_522),
        context_length=read_int(theirs, "max_position_embeddings", 512),
        dim=dim,
        layers=read_int(theirs, "n_layers", 6),
        heads=read_int(theirs, "n_heads", 12),
        ffn_dim=None if hidden == 4 * dim else hidden,
        token_types=0,
        activation=parse_activation(theirs, "activation", "gelu"),
        pooler_activation="relu",
        dropout=dropout,
        attention_dropout=read_dropout(theirs, "attention_dropout", 0.1, dropout),
        head_dropout=read_dropout(theirs, "seq_classif_dropout", 0.2, dropout),
        drops_tags_as_backbone=True,
        drops_attention=False,
        head=parse_head(theirs, "DistilBert"),
        num_classes=num_labels(theirs),
        tie_weights=read_bool(theirs, "tie_word_embeddings", True),
    )


LAYER = r"transformer.layer.\1."
FAMILY = Family(
    model_type="distilbert",
    presets=tuple(PRESETS),
    prefix="distilbert.",
    rules=(
        Rule(r"embedding\.weight", ("embeddings.word_embeddings.weight",)),
        Rule(r"positions\.weight", ("embeddings.position_embeddings.weight",)),
        Rule(r"norm\.(weight|bias)", (r"embeddings.LayerNorm.\1",)),
        Rule(
            BLOCK + r"attention\.qkv\.(weight|bias)",
            tuple(LAYER + rf"attention.{part}_lin.\2" for part in ("q", "k", "v")),
        ),
        Rule(BLOCK + r"attention\.out\.(weight|bias)", (LAYER + r"attention.out_lin.\2",)),
        Rule(BLOCK + r"norm1\.(weight|bias)", (LAYER + r"sa_layer_norm.\2",)),
        Rule(BLOCK + r"mlp\.fc([12])\.(weight|bias)", (LAYER + r"ffn.lin\2.\3",)),
        Rule(BLOCK + r"norm2\.(weight|bias)", (LAYER + r"output_layer_norm.\2",)),
        Rule(r"head\.pooler\.(weight|bias)", (r"pre_classifier.\1",), outside=True),
        Rule(r"head\.linear\.(weight|bias)", (r"classifier.\1",), outside=True),
        Rule(r"head\.(weight|bias)", (r"classifier.\1",), outside=True),
        Rule(r"head\.dense\.(weight|bias)", (r"vocab_transform.\1",), outside=True),
        Rule(r"head\.norm\.(weight|bias)", (r"vocab_layer_norm.\1",), outside=True),
        Rule(r"head\.words\.unembedding", ("vocab_projector.weight",), outside=True),
        Rule(r"head\.words\.bias", ("vocab_projector.bias",), outside=True),
    ),
    settings=settings,
    config=parse_config,
    aliases={"hidden_size": "dim", "num_attention_heads": "n_heads", "num_hidden_layers": "n_layers"},
    tokens={"pad_token_id": 0},
    architecture=lambda config: f"DistilBert{KINDS[config.head]}",
    left=(r"(distilbert\.)?embeddings\.position_ids", r"vocab_projector\.weight"),
)
