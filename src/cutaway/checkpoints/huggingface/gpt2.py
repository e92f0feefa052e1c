"""GPT-2 in transformers: transposed matrices, and one matrix for queries, keys and values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...models.gpt2 import PRESETS, Config
from . import Family, Rule
from .config_fields import read_bool, read_dropout, read_float, read_int, reject_others

BLOCK = r"blocks\.(\d+)\."


def settings(config: Config) -> dict[str, Any]:
    """Return the arguments of GPT2Config."""
    added, embedding, attention = config.rates
    return {
        "vocab_size": config.vocab_size,
        "n_positions": config.context_length,
        "n_embd": config.dim,
        "n_layer": config.layers,
        "n_head": config.heads,
        "n_inner": config.ffn_dim,
        "activation_function": "gelu_new",
        "embd_pdrop": embedding,
        "attn_pdrop": attention,
        "resid_pdrop": added,
        "tie_word_embeddings": config.tie_weights,
        "num_labels": config.num_classes,
    }


def parse_config(theirs: Mapping[str, Any]) -> Config:
    """Return our config from a config.json. Raises ModelError for an unsupported value."""
    reject_others(theirs, "activation_function", ("gelu_new", "gelu_pytorch_tanh"))
    reject_others(theirs, "layer_norm_epsilon", (1e-5,))
    reject_others(theirs, "add_cross_attention", (False,))
    reject_others(theirs, "is_causal", (True,))
    reject_others(theirs, "scale_attn_weights", (True,))
    reject_others(theirs, "scale_attn_by_inverse_layer_idx", (False,))
    dropout = read_float(theirs, "resid_pdrop", 0.1)
    return Config(
        vocab_size=read_int(theirs, "vocab_size", 50_257),
        context_length=read_int(theirs, "n_positions", 1024),
        dim=read_int(theirs, "n_embd", 768),
        layers=read_int(theirs, "n_layer", 12),
        heads=read_int(theirs, "n_head", 12),
        ffn_dim=None if theirs.get("n_inner") is None else read_int(theirs, "n_inner", 3072),
        dropout=dropout,
        embedding_dropout=read_dropout(theirs, "embd_pdrop", 0.1, dropout),
        attention_dropout=read_dropout(theirs, "attn_pdrop", 0.1, dropout),
        tie_weights=read_bool(theirs, "tie_word_embeddings", True),
    )


FAMILY = Family(
    model_type="gpt2",
    presets=tuple(PRESETS),
    prefix="transformer.",
    rules=(
        Rule(r"embedding\.weight", ("wte.weight",)),
        Rule(r"positions\.weight", ("wpe.weight",)),
        Rule(BLOCK + r"norm([12])\.(weight|bias)", (r"h.\1.ln_\2.\3",)),
        Rule(BLOCK + r"attention\.qkv\.(weight|bias)", (r"h.\1.attn.c_attn.\2",), transposed=True),
        Rule(BLOCK + r"attention\.out\.(weight|bias)", (r"h.\1.attn.c_proj.\2",), transposed=True),
        Rule(BLOCK + r"mlp\.fc1\.(weight|bias)", (r"h.\1.mlp.c_fc.\2",), transposed=True),
        Rule(BLOCK + r"mlp\.fc2\.(weight|bias)", (r"h.\1.mlp.c_proj.\2",), transposed=True),
        Rule(r"norm\.(weight|bias)", (r"ln_f.\1",)),
        Rule(r"head\.unembedding", ("lm_head.weight",), outside=True),
        Rule(r"head\.weight", ("score.weight",), outside=True),
    ),
    settings=settings,
    config=parse_config,
    aliases={
        "hidden_size": "n_embd",
        "max_position_embeddings": "n_positions",
        "num_attention_heads": "n_head",
        "num_hidden_layers": "n_layer",
    },
    tokens={"bos_token_id": 50_256, "eos_token_id": 50_256},
    architecture=lambda config: "GPT2LMHeadModel" if config.head == "next" else "GPT2ForSequenceClassification",
    left=(r"lm_head\.weight", r"(transformer\.)?h\.\d+\.attn\.(bias|masked_bias)"),
)
