"""RoBERTa in transformers: BERT's backbone, the pooler in the head, and positions that start at 2."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...core.errors import ModelError
from ...models.bert import Config
from ...models.roberta import PRESETS
from . import Family, Rule
from .bert import BACKBONE, parse_shared_fields, shared_settings
from .config_fields import read_int, reject_others
from .encoders import KINDS, USUAL_DROPS, parse_head, require_fixed_values


def settings(config: Config) -> dict[str, Any]:
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


def parse_config(theirs: Mapping[str, Any]) -> Config:
    """Return our config from a config.json. Raises ModelError for an unsupported value."""
    reject_others(theirs, "hidden_act", ("gelu",))  # its masked head supports no other
    padding = read_int(theirs, "pad_token_id", 1)
    if padding < 0:
        raise ModelError(f"config.json has pad_token_id={padding}, where the id of a token belongs: at least 0.")
    first = padding + 1  # first position
    return Config(
        **parse_shared_fields(theirs, vocab_size=50_265),
        context_length=read_int(theirs, "max_position_embeddings", 512) - first,
        first_position=first,
        drops_before=True,
        head=parse_head(theirs, "Roberta"),
    )


FAMILY = Family(
    model_type="roberta",
    presets=tuple(PRESETS),
    prefix="roberta.",
    rules=(
        *BACKBONE,
        Rule(r"head\.pooler\.(weight|bias)", (r"classifier.dense.\1",), outside=True),
        Rule(r"head\.linear\.(weight|bias)", (r"classifier.out_proj.\1",), outside=True),
        Rule(r"head\.(weight|bias)", (r"classifier.\1",), outside=True),
        Rule(r"head\.dense\.(weight|bias)", (r"lm_head.dense.\1",), outside=True),
        Rule(r"head\.norm\.(weight|bias)", (r"lm_head.layer_norm.\1",), outside=True),
        Rule(r"head\.words\.unembedding", ("lm_head.decoder.weight",), outside=True),
        Rule(r"head\.words\.bias", ("lm_head.bias",), outside=True),
    ),
    settings=settings,
    config=parse_config,
    tokens={"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2},
    architecture=lambda config: f"Roberta{KINDS[config.head]}",
    left=(
        r"(roberta\.)?embeddings\.position_ids",
        r"lm_head\.decoder\.weight",
        r"(roberta\.)?pooler\.dense\.(weight|bias)",
    ),
    again={"head.words.bias": ("lm_head.decoder.bias",)},
    output_bias=("lm_head.decoder.bias", "lm_head.bias"),
)
