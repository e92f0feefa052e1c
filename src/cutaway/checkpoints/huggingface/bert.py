"""BERT in transformers: separate matrices for queries, keys and values, and the pooler in the backbone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...models.bert import PRESETS, Config
from . import Family, Rule
from .config_fields import read_bool, read_dropout, read_float, read_int
from .encoders import (
    BLOCK,
    KINDS,
    THEIR_ACTIVATIONS,
    USUAL_DROPS,
    dropout_rates,
    num_labels,
    parse_activation,
    parse_head,
    reject_decoders,
    require_fixed_values,
)

# Names of BERT's and RoBERTa's backbone tensors, after the prefix.
BACKBONE = (
    Rule(r"embedding\.weight", ("embeddings.word_embeddings.weight",)),
    Rule(r"positions\.weight", ("embeddings.position_embeddings.weight",)),
    Rule(r"types\.weight", ("embeddings.token_type_embeddings.weight",)),
    Rule(r"norm\.(weight|bias)", (r"embeddings.LayerNorm.\1",)),
    Rule(
        BLOCK + r"attention\.qkv\.(weight|bias)",
        tuple(rf"encoder.layer.\1.attention.self.{part}.\2" for part in ("query", "key", "value")),
    ),
    Rule(BLOCK + r"attention\.out\.(weight|bias)", (r"encoder.layer.\1.attention.output.dense.\2",)),
    Rule(BLOCK + r"norm1\.(weight|bias)", (r"encoder.layer.\1.attention.output.LayerNorm.\2",)),
    Rule(BLOCK + r"mlp\.fc1\.(weight|bias)", (r"encoder.layer.\1.intermediate.dense.\2",)),
    Rule(BLOCK + r"mlp\.fc2\.(weight|bias)", (r"encoder.layer.\1.output.dense.\2",)),
    Rule(BLOCK + r"norm2\.(weight|bias)", (r"encoder.layer.\1.output.LayerNorm.\2",)),
)


def shared_settings(config: Config) -> dict[str, Any]:
    """Return the common arguments of BertConfig and related configs."""
    dropout, attention, head = dropout_rates(config)
    return {
        "vocab_size": config.vocab_size,
        "hidden_size": config.dim,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "intermediate_size": config.ffn_dim or 4 * config.dim,
        "hidden_act": THEIR_ACTIVATIONS[config.activation],
        "hidden_dropout_prob": dropout,
        "attention_probs_dropout_prob": attention,
        "classifier_dropout": head,
        "max_position_embeddings": config.first_position + config.context_length,
        "type_vocab_size": config.token_types,
        "layer_norm_eps": config.eps,
        "tie_word_embeddings": config.tie_weights,
        "num_labels": config.num_classes,
    }


def settings(config: Config) -> dict[str, Any]:
    """Return the arguments of BertConfig. Raises ModelError for a network that BERT does not support."""
    require_fixed_values(
        config,
        "BERT",
        embedding_dim=None,
        share_layers=False,
        first_position=0,
        pooler_activation="tanh",
        drops_before=False,
    )
    require_fixed_values(config, "BERT", token_types=config.token_types or 1, **USUAL_DROPS)
    return shared_settings(config)


def parse_shared_fields(theirs: Mapping[str, Any], **defaults: Any) -> dict[str, Any]:
    """Return the common fields of our Config from the config.json of BERT and related models.

    Raises ModelError for an unsupported value.
    """
    reject_decoders(theirs)
    dim = read_int(theirs, "hidden_size", defaults.get("dim", 768))
    hidden = read_int(theirs, "intermediate_size", defaults.get("ffn_dim", 3072))
    dropout = read_float(theirs, "hidden_dropout_prob", defaults.get("dropout", 0.1))
    own, head = defaults.get("head_field", "classifier_dropout"), defaults.get("head_dropout", dropout)
    return {
        "vocab_size": read_int(theirs, "vocab_size", defaults.get("vocab_size", 30_522)),
        "dim": dim,
        "layers": read_int(theirs, "num_hidden_layers", 12),
        "heads": read_int(theirs, "num_attention_heads", defaults.get("heads", 12)),
        "ffn_dim": None if hidden == 4 * dim else hidden,
        "token_types": read_int(theirs, "type_vocab_size", 2),
        "eps": read_float(theirs, "layer_norm_eps", 1e-12),
        "dropout": dropout,
        "attention_dropout": read_dropout(
            theirs, "attention_probs_dropout_prob", defaults.get("dropout", 0.1), dropout
        ),
        "head_dropout": None if theirs.get(own, head) is None else read_dropout(theirs, own, head, dropout),
        "num_classes": num_labels(theirs),
        "tie_weights": read_bool(theirs, "tie_word_embeddings", True),
    }


def parse_config(theirs: Mapping[str, Any]) -> Config:
    """Return our config from a config.json. Raises ModelError for an unsupported value."""
    return Config(
        **parse_shared_fields(theirs),
        context_length=read_int(theirs, "max_position_embeddings", 512),
        activation=parse_activation(theirs, "hidden_act", "gelu"),
        head=parse_head(theirs, "Bert"),
    )


FAMILY = Family(
    model_type="bert",
    presets=tuple(PRESETS),
    prefix="bert.",
    rules=(
        *BACKBONE,
        Rule(r"head\.pooler\.(weight|bias)", (r"pooler.dense.\1",)),
        Rule(r"head\.linear\.(weight|bias)", (r"classifier.\1",), outside=True),
        Rule(r"head\.(weight|bias)", (r"classifier.\1",), outside=True),
        Rule(r"head\.dense\.(weight|bias)", (r"cls.predictions.transform.dense.\1",), outside=True),
        Rule(r"head\.norm\.(weight|bias)", (r"cls.predictions.transform.LayerNorm.\1",), outside=True),
        Rule(r"head\.words\.unembedding", ("cls.predictions.decoder.weight",), outside=True),
        Rule(r"head\.words\.bias", ("cls.predictions.bias",), outside=True),
    ),
    settings=settings,
    config=parse_config,
    tokens={"pad_token_id": 0},
    architecture=lambda config: f"Bert{KINDS[config.head]}",
    left=(
        r"(bert\.)?embeddings\.position_ids",
        r"cls\.predictions\.decoder\.weight",
        r"cls\.seq_relationship\.(weight|bias)",
        r"(bert\.)?pooler\.dense\.(weight|bias)",
    ),
    again={"head.words.bias": ("cls.predictions.decoder.bias",)},
    output_bias=("cls.predictions.decoder.bias", "cls.predictions.bias"),
)
