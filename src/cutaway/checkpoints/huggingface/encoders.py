"""Common parts of BERT and related models in transformers: heads by class names, dropout and activations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...core.errors import ModelError
from ...models.bert import Config
from .config_fields import format_json, read_int, reject_others

BLOCK = r"blocks\.(\d+)\."
KINDS = {"masked": "ForMaskedLM", "classes": "ForSequenceClassification", "tags": "ForTokenClassification"}
# Suffix of the class in transformers → our head. A bare backbone and a network from pre-training with two heads are
# read as masked.
HEADS = {kind: head for head, kind in KINDS.items()} | {"Model": "masked", "ForPreTraining": "masked"}
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
    known = {family + kind: head for kind, head in HEADS.items()}
    if not isinstance(named, list) or named[0] not in list(known):
        raise ModelError(
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
        raise ModelError(
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
    reject_others(theirs, "position_embedding_type", ("absolute",))
    reject_others(theirs, "is_decoder", (False,))
    reject_others(theirs, "add_cross_attention", (False,))


def require_fixed_values(config: Config, family: str, **always: Any) -> None:
    """Raise ModelError if a network of ours does not have the fixed values of a family, `always`."""
    for field, value in always.items():
        if getattr(config, field) != value:
            raise ModelError(
                f"This model has {field}={getattr(config, field)!r}, and transformers' {family} has always {value!r}: "
                "it has no such form."
            )


def dropout_rates(config: Config) -> tuple[float, float, float]:
    """Return the dropout rates of the network, of the attention weights and of the head."""
    own, head = config.attention_dropout, config.head_dropout
    return config.dropout, config.dropout if own is None else own, config.dropout if head is None else head
