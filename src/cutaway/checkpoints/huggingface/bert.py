"""BERT, RoBERTa, ALBERT and DistilBERT in transformers.

All four have separate matrices for queries, keys and values. RoBERTa has BERT's backbone, its pooler in the head, and
positions that start at 2. ALBERT has one block in one group. DistilBERT has other names of fields and tensors.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...core.errors import CheckpointConfigError
from ...models import albert, bert, distilbert, roberta
from . import Family, Rule
from .config_files import format_json, read_bool, read_dropout, read_float, read_int, reject_others, require_values

BLOCK = r"blocks\.(\d+)\."
CLASS_SUFFIXES = {"masked": "ForMaskedLM", "classes": "ForSequenceClassification", "tags": "ForTokenClassification"}
# Suffix of the class in transformers → our head. A bare backbone and a network from pre-training with two heads are
# read as masked.
HEADS_BY_CLASS = {kind: head for head, kind in CLASS_SUFFIXES.items()} | {"Model": "masked", "ForPreTraining": "masked"}
ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu-tanh",
    "gelu_pytorch_tanh": "gelu-tanh",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
    "tanh": "tanh",
}
# Positions of dropout in most of these models.
USUAL_DROPS = {"drops_tags_as_backbone": False, "drops_attention": True, "drops_mlp": True}
THEIR_ACTIVATIONS = {ours: theirs for theirs, ours in reversed(ACTIVATIONS.items())}


def parse_head(theirs: Mapping[str, Any], family: str) -> str:
    """Return the head that the `architectures` of a config.json name, such as BertForMaskedLM; masked by default.

    Raises ModelError for another class.
    """
    named = theirs.get("architectures") or [f"{family}Model"]
    known = {family + kind: head for kind, head in HEADS_BY_CLASS.items()}
    if not isinstance(named, list) or named[0] not in list(known):
        raise CheckpointConfigError(
            f"config.json has architectures={named!r}, which the network here does not have: "
            f"it knows {', '.join(known)}."
        )
    return known[named[0]]


def num_labels(theirs: Mapping[str, Any]) -> int:
    """Return the number of outputs: `num_labels`, or the number of class names, or 2.

    Raises ModelError if either is invalid.
    """
    if theirs.get("num_labels") is not None:
        return read_int(theirs, "num_labels", 2)
    names = theirs.get("id2label")
    if names is None:
        return 2
    if not isinstance(names, Mapping | list) or not names:
        raise CheckpointConfigError(
            f"config.json has id2label={format_json(names)}, where the names of at least one class belong."
        )
    return len(names)


def parse_activation(theirs: Mapping[str, Any], field: str, default: str) -> str:
    """Return our name of the activation. Raises ModelError for an unsupported one."""
    value = theirs.get(field, default)
    reject_others({field: value}, field, tuple(ACTIVATIONS))
    return ACTIVATIONS[value]


def reject_decoders(theirs: Mapping[str, Any]) -> None:
    """Raise ModelError for causal networks, cross-attention, and positions without a table."""
    require_values(theirs, position_embedding_type="absolute", is_decoder=False, add_cross_attention=False)


def require_fixed_values(config: bert.Config, family: str, **always: Any) -> None:
    """Raise ModelError if a network of ours does not have the fixed values of a family, `always`."""
    for field, value in always.items():
        if getattr(config, field) != value:
            raise CheckpointConfigError(
                f"This model has {field}={getattr(config, field)!r}, and transformers' {family} has always {value!r}: "
                "it has no such form."
            )


def dropout_rates(config: bert.Config) -> tuple[float, float, float]:
    """Return the dropout rates of the network, of the attention weights and of the head."""
    own, head = config.attention_dropout, config.head_dropout
    return config.dropout, config.dropout if own is None else own, config.dropout if head is None else head


def _head_rules(
    pooler: str, outside: bool, linear: str, transform: str, norm: str, unembedding: str, bias: str
) -> tuple[Rule, ...]:
    """Return the rules of the heads, by the names of their layers. `outside` says whether the pooler has no prefix."""
    return (
        Rule(r"head\.pooler\.(weight|bias)", (rf"{pooler}.\1",), outside=outside),
        Rule(r"head\.linear\.(weight|bias)", (rf"{linear}.\1",), outside=True),
        Rule(r"head\.(weight|bias)", (r"classifier.\1",), outside=True),
        Rule(r"head\.dense\.(weight|bias)", (rf"{transform}.\1",), outside=True),
        Rule(r"head\.norm\.(weight|bias)", (rf"{norm}.\1",), outside=True),
        Rule(r"head\.words\.unembedding", (unembedding,), outside=True),
        Rule(r"head\.words\.bias", (bias,), outside=True),
    )


EMBEDDINGS = (
    Rule(r"embedding\.weight", ("embeddings.word_embeddings.weight",)),
    Rule(r"positions\.weight", ("embeddings.position_embeddings.weight",)),
    Rule(r"types\.weight", ("embeddings.token_type_embeddings.weight",)),
    Rule(r"norm\.(weight|bias)", (r"embeddings.LayerNorm.\1",)),
)
# Names of BERT's and RoBERTa's backbone tensors, after the prefix.
BACKBONE = (
    *EMBEDDINGS,
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


def shared_settings(config: bert.Config) -> dict[str, Any]:
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


def bert_settings(config: bert.Config) -> dict[str, Any]:
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


def parse_bert_config(theirs: Mapping[str, Any]) -> bert.Config:
    """Return our config from a config.json. Raises ModelError for an unsupported value."""
    return bert.Config(
        **parse_shared_fields(theirs),
        context_length=read_int(theirs, "max_position_embeddings", 512),
        activation=parse_activation(theirs, "hidden_act", "gelu"),
        head=parse_head(theirs, "Bert"),
    )


BERT_FAMILY = Family(
    model_type="bert",
    presets=tuple(bert.PRESETS),
    prefix="bert.",
    rules=(
        *BACKBONE,
        *_head_rules(
            "pooler.dense",
            False,
            "classifier",
            "cls.predictions.transform.dense",
            "cls.predictions.transform.LayerNorm",
            "cls.predictions.decoder.weight",
            "cls.predictions.bias",
        ),
    ),
    settings=bert_settings,
    config=parse_bert_config,
    tokens={"pad_token_id": 0},
    architecture=lambda config: f"Bert{CLASS_SUFFIXES[config.head]}",
    ignored=(
        r"(bert\.)?embeddings\.position_ids",
        r"cls\.predictions\.decoder\.weight",
        r"cls\.seq_relationship\.(weight|bias)",
        r"(bert\.)?pooler\.dense\.(weight|bias)",
    ),
    untied_names={"head.words.bias": ("cls.predictions.decoder.bias",)},
    output_bias=("cls.predictions.decoder.bias", "cls.predictions.bias"),
)


def roberta_settings(config: bert.Config) -> dict[str, Any]:
    """Return the arguments of RobertaConfig. Raises ModelError for a network that RoBERTa does not support.

    The first position follows that of padding, whose row is its token id.
    """
    same: dict[str, Any] = {
        "embedding_dim": None,
        "share_layers": False,
        "pooler_activation": "tanh",
        "activation": "gelu",
        "drops_before": True,
    }
    same |= {"token_types": config.token_types or 1, "first_position": config.first_position or 1}
    require_fixed_values(config, "RoBERTa", **same, **USUAL_DROPS)
    return shared_settings(config) | {"pad_token_id": config.first_position - 1}


def parse_roberta_config(theirs: Mapping[str, Any]) -> bert.Config:
    """Return our config from a config.json. Raises ModelError for an unsupported value."""
    reject_others(theirs, "hidden_act", ("gelu",))  # its masked head supports no other
    padding = read_int(theirs, "pad_token_id", 1)
    if padding < 0:
        raise CheckpointConfigError(
            f"config.json has pad_token_id={padding}, where the id of a token belongs: at least 0."
        )
    first = padding + 1  # first position
    return bert.Config(
        **parse_shared_fields(theirs, vocab_size=50_265),
        context_length=read_int(theirs, "max_position_embeddings", 512) - first,
        first_position=first,
        drops_before=True,
        head=parse_head(theirs, "Roberta"),
    )


ROBERTA_FAMILY = Family(
    model_type="roberta",
    presets=tuple(roberta.PRESETS),
    prefix="roberta.",
    rules=(
        *BACKBONE,
        *_head_rules(
            "classifier.dense",
            True,
            "classifier.out_proj",
            "lm_head.dense",
            "lm_head.layer_norm",
            "lm_head.decoder.weight",
            "lm_head.bias",
        ),
    ),
    settings=roberta_settings,
    config=parse_roberta_config,
    tokens={"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2},
    architecture=lambda config: f"Roberta{CLASS_SUFFIXES[config.head]}",
    ignored=(
        r"(roberta\.)?embeddings\.position_ids",
        r"lm_head\.decoder\.weight",
        r"(roberta\.)?pooler\.dense\.(weight|bias)",
    ),
    untied_names={"head.words.bias": ("lm_head.decoder.bias",)},
    output_bias=("lm_head.decoder.bias", "lm_head.bias"),
)


def albert_settings(config: bert.Config) -> dict[str, Any]:
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


def parse_albert_config(theirs: Mapping[str, Any]) -> bert.Config:
    """Return our config from a config.json. Raises ModelError for an unsupported value."""
    require_values(theirs, num_hidden_groups=1, inner_group_num=1)
    defaults = {"vocab_size": 30_000, "dim": 4096, "ffn_dim": 16_384, "heads": 64, "dropout": 0.0, "head_dropout": 0.1}
    return bert.Config(
        **parse_shared_fields(theirs, **defaults, head_field="classifier_dropout_prob"),
        context_length=read_int(theirs, "max_position_embeddings", 512),
        embedding_dim=read_int(theirs, "embedding_size", 128),
        share_layers=True,
        drops_mlp=False,
        activation=parse_activation(theirs, "hidden_act", "gelu_new"),
        head=parse_head(theirs, "Albert"),
    )


ALBERT_BLOCK = r"blocks\.0\."
ALBERT_LAYER = "encoder.albert_layer_groups.0.albert_layers.0."
ALBERT_FAMILY = Family(
    model_type="albert",
    presets=tuple(albert.PRESETS),
    prefix="albert.",
    rules=(
        *EMBEDDINGS,
        Rule(r"project\.(weight|bias)", (r"encoder.embedding_hidden_mapping_in.\1",)),
        Rule(
            ALBERT_BLOCK + r"attention\.qkv\.(weight|bias)",
            tuple(ALBERT_LAYER + rf"attention.{part}.\1" for part in ("query", "key", "value")),
        ),
        Rule(ALBERT_BLOCK + r"attention\.out\.(weight|bias)", (ALBERT_LAYER + r"attention.dense.\1",)),
        Rule(ALBERT_BLOCK + r"norm1\.(weight|bias)", (ALBERT_LAYER + r"attention.LayerNorm.\1",)),
        Rule(ALBERT_BLOCK + r"mlp\.fc1\.(weight|bias)", (ALBERT_LAYER + r"ffn.\1",)),
        Rule(ALBERT_BLOCK + r"mlp\.fc2\.(weight|bias)", (ALBERT_LAYER + r"ffn_output.\1",)),
        Rule(ALBERT_BLOCK + r"norm2\.(weight|bias)", (ALBERT_LAYER + r"full_layer_layer_norm.\1",)),
        *_head_rules(
            "pooler",
            False,
            "classifier",
            "predictions.dense",
            "predictions.LayerNorm",
            "predictions.decoder.weight",
            "predictions.bias",
        ),
    ),
    settings=albert_settings,
    config=parse_albert_config,
    tokens={"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3},
    architecture=lambda config: f"Albert{CLASS_SUFFIXES[config.head]}",
    ignored=(
        r"(albert\.)?embeddings\.position_ids",
        r"predictions\.decoder\.weight",
        r"sop_classifier\.classifier\.(weight|bias)",
        r"(albert\.)?pooler\.(weight|bias)",
    ),
    untied_names={"head.words.bias": ("predictions.decoder.bias",)},
    output_bias=("predictions.decoder.bias", "predictions.bias"),
)


def distilbert_settings(config: bert.Config) -> dict[str, Any]:
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


def parse_distilbert_config(theirs: Mapping[str, Any]) -> bert.Config:
    """Return our config from a config.json. Raises ModelError for an unsupported value.

    `sinusoidal_pos_embds` is ignored, because the position table is stored in either case.
    """
    reject_decoders(theirs)
    dim, hidden = read_int(theirs, "dim", 768), read_int(theirs, "hidden_dim", 3072)
    dropout = read_float(theirs, "dropout", 0.1)
    return bert.Config(
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


DISTILBERT_LAYER = r"transformer.layer.\1."
DISTILBERT_FAMILY = Family(
    model_type="distilbert",
    presets=tuple(distilbert.PRESETS),
    prefix="distilbert.",
    rules=(
        *EMBEDDINGS,
        Rule(
            BLOCK + r"attention\.qkv\.(weight|bias)",
            tuple(DISTILBERT_LAYER + rf"attention.{part}_lin.\2" for part in ("q", "k", "v")),
        ),
        Rule(BLOCK + r"attention\.out\.(weight|bias)", (DISTILBERT_LAYER + r"attention.out_lin.\2",)),
        Rule(BLOCK + r"norm1\.(weight|bias)", (DISTILBERT_LAYER + r"sa_layer_norm.\2",)),
        Rule(BLOCK + r"mlp\.fc([12])\.(weight|bias)", (DISTILBERT_LAYER + r"ffn.lin\2.\3",)),
        Rule(BLOCK + r"norm2\.(weight|bias)", (DISTILBERT_LAYER + r"output_layer_norm.\2",)),
        *_head_rules(
            "pre_classifier",
            True,
            "classifier",
            "vocab_transform",
            "vocab_layer_norm",
            "vocab_projector.weight",
            "vocab_projector.bias",
        ),
    ),
    settings=distilbert_settings,
    config=parse_distilbert_config,
    aliases={"hidden_size": "dim", "num_attention_heads": "n_heads", "num_hidden_layers": "n_layers"},
    tokens={"pad_token_id": 0},
    architecture=lambda config: f"DistilBert{CLASS_SUFFIXES[config.head]}",
    ignored=(r"(distilbert\.)?embeddings\.position_ids", r"vocab_projector\.weight"),
)
