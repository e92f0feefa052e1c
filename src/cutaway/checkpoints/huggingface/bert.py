"""BERT in transformers: separate matrices for queries, keys and values, and the pooler in the backbone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...models.bert import PRESETS, Config
from . import Family, Rule
from .config_fields import dropout_of, number, only, truth
from .encoders import (
    BLOCK,
    KINDS,
    THEIR_ACTIVATIONS,
    USUAL_DROPS,
    activation_of,
    answers_of,
    dropouts,
    head_of,
    reject_decoders,
    reject_unlike,
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


def sizes(config: Config) -> dict[str, Any]:
    """Return the common arguments of BertConfig and related configs."""
    dropout, attention, head = dropouts(config)
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
    reject_unlike(
        config,
        "BERT",
        embedding_dim=None,
        share_layers=False,
        first_position=0,
        pooler_activation="tanh",
        drops_before=False,
    )
    reject_unlike(config, "BERT", token_types=config.token_types or 1, **USUAL_DROPS)
    return sizes(config)


def sizes_of(theirs: Mapping[str, Any], **defaults: Any) -> dict[str, Any]:
    """Return the common fields of our Config from the config.json of BERT and related models.

    Raises ModelError for an unsupported value.
    """
    reject_decoders(theirs)
    dim = only(theirs, "hidden_size", defaults.get("dim", 768))
    hidden = only(theirs, "intermediate_size", defaults.get("ffn_dim", 3072))
    dropout = number(theirs, "hidden_dropout_prob", defaults.get("dropout", 0.1))
    own, head = defaults.get("head_field", "classifier_dropout"), defaults.get("head_dropout", dropout)
    return {
        "vocab_size": only(theirs, "vocab_size", defaults.get("vocab_size", 30_522)),
        "dim": dim,
        "layers": only(theirs, "num_hidden_layers", 12),
        "heads": only(theirs, "num_attention_heads", defaults.get("heads", 12)),
        "ffn_dim": None if hidden == 4 * dim else hidden,
        "token_types": only(theirs, "type_vocab_size", 2),
        "eps": number(theirs, "layer_norm_eps", 1e-12),
        "dropout": dropout,
        "attention_dropout": dropout_of(theirs, "attention_probs_dropout_prob", defaults.get("dropout", 0.1), dropout),
        "head_dropout": None if theirs.get(own, head) is None else dropout_of(theirs, own, head, dropout),
        "num_classes": answers_of(theirs),
        "tie_weights": truth(theirs, "tie_word_embeddings", True),
    }


def config_of(theirs: Mapping[str, Any]) -> Config:
    """Return our config from a config.json. Raises ModelError for an unsupported value."""
    return Config(
        **sizes_of(theirs),
        context_length=only(theirs, "max_position_embeddings", 512),
        activation=activation_of(theirs, "hidden_act", "gelu"),
        head=head_of(theirs, "Bert"),
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
    config=config_of,
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
