"""BART in transformers: separate matrices for queries, keys and values, and several names of the embedding."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from ...models.bart import PRESETS, Config
from . import Family, Rule
from .config_fields import read_bool, read_float, read_int, read_shared_int, reject_others

BLOCK = r"(encoder|decoder)\.(\d+)\."
LAYER, CROSS = r"\1.layers.\2.", r"decoder.layers.\1."
EMBEDDINGS = ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight")


def settings(config: Config) -> dict[str, Any]:
    """Return the arguments of BartConfig.

    Special tokens are those of the published weights: <s> 0, padding 1, and </s> 2, which also starts the decoder.
    """
    hidden, decoder_layers = config.ffn_dim or 4 * config.dim, config.decoder_layers or config.layers
    return {
        "vocab_size": config.vocab_size,
        "max_position_embeddings": config.context_length,
        "d_model": config.dim,
        "encoder_layers": config.layers,
        "decoder_layers": decoder_layers,
        "encoder_attention_heads": config.heads,
        "decoder_attention_heads": config.heads,
        "encoder_ffn_dim": hidden,
        "decoder_ffn_dim": hidden,
        "activation_function": "gelu",
        "dropout": config.dropout,
        "attention_dropout": config.attention_dropout,
        "activation_dropout": config.activation_dropout,
        "tie_word_embeddings": config.tie_weights,
        "bos_token_id": 0,
        "pad_token_id": 1,
        "eos_token_id": 2,
        "decoder_start_token_id": 2,
    }


def parse_config(theirs: Mapping[str, Any]) -> Config:
    """Return our config from a config.json. Raises ModelError for an unsupported value."""
    reject_others(theirs, "activation_function", ("gelu",))
    reject_others(theirs, "scale_embedding", (False,))
    reject_others(theirs, "encoder_layerdrop", (0.0,))
    reject_others(theirs, "decoder_layerdrop", (0.0,))
    reject_others(theirs, "is_encoder_decoder", (True,))
    reject_others(theirs, "is_causal", (True,))
    # Fields of the first files, before related models had a separate model_type.
    reject_others(theirs, "normalize_before", (False,))
    reject_others(theirs, "normalize_embedding", (True,))
    reject_others(theirs, "add_final_layer_norm", (False,))
    reject_others(theirs, "static_position_embeddings", (False,))
    dim, layers = read_int(theirs, "d_model", 1024), read_int(theirs, "encoder_layers", 12)
    decoder_layers = read_int(theirs, "decoder_layers", 12)
    hidden = read_shared_int(theirs, "ffn_dim", 4096)
    return Config(
        vocab_size=read_int(theirs, "vocab_size", 50_265),
        context_length=read_int(theirs, "max_position_embeddings", 1024),
        dim=dim,
        layers=layers,
        decoder_layers=None if decoder_layers == layers else decoder_layers,
        heads=read_shared_int(theirs, "attention_heads", 16),
        ffn_dim=None if hidden == 4 * dim else hidden,
        dropout=read_float(theirs, "dropout", 0.1),
        attention_dropout=read_float(theirs, "attention_dropout", 0.0),
        activation_dropout=read_float(theirs, "activation_dropout", 0.0),
        tie_weights=read_bool(theirs, "tie_word_embeddings", True),
    )


def _default_tensors(config: Config, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return zeros for the bias of the logits if a file lacks it, as one of a network without a head."""
    table = tensors.get("model.shared.weight")
    return {} if table is None else {"final_logits_bias": table.new_zeros(1, config.vocab_size)}


FAMILY = Family(
    model_type="bart",
    presets=tuple(PRESETS),
    prefix="model.",
    rules=(
        Rule(r"embedding\.weight", ("shared.weight",)),
        Rule(r"(encoder|decoder)_positions\.weight", (r"\1.embed_positions.weight",)),
        Rule(r"(encoder|decoder)_norm\.(weight|bias)", (r"\1.layernorm_embedding.\2",)),
        Rule(BLOCK + r"attention\.qkv\.(weight|bias)", tuple(rf"{LAYER}self_attn.{part}_proj.\3" for part in "qkv")),
        Rule(BLOCK + r"attention\.out\.(weight|bias)", (LAYER + r"self_attn.out_proj.\3",)),
        Rule(BLOCK + r"norm1\.(weight|bias)", (LAYER + r"self_attn_layer_norm.\3",)),
        Rule(r"decoder\.(\d+)\.cross_attention\.q\.(weight|bias)", (CROSS + r"encoder_attn.q_proj.\2",)),
        Rule(
            r"decoder\.(\d+)\.cross_attention\.kv\.(weight|bias)",
            (CROSS + r"encoder_attn.k_proj.\2", CROSS + r"encoder_attn.v_proj.\2"),
        ),
        Rule(r"decoder\.(\d+)\.cross_attention\.out\.(weight|bias)", (CROSS + r"encoder_attn.out_proj.\2",)),
        Rule(r"decoder\.(\d+)\.cross_norm\.(weight|bias)", (CROSS + r"encoder_attn_layer_norm.\2",)),
        Rule(BLOCK + r"mlp\.(fc[12])\.(weight|bias)", (LAYER + r"\3.\4",)),
        Rule(BLOCK + r"norm2\.(weight|bias)", (LAYER + r"final_layer_norm.\3",)),
        Rule(r"head\.words\.unembedding", ("lm_head.weight",), outside=True),
        Rule(r"head\.constant", ("final_logits_bias",), outside=True),
    ),
    settings=settings,
    config=parse_config,
    aliases={
        "hidden_size": "d_model",
        "num_attention_heads": "encoder_attention_heads",
        "num_hidden_layers": "encoder_layers",
    },
    tokens={
        "pad_token_id": 1,
        "bos_token_id": 0,
        "eos_token_id": 2,
        "decoder_start_token_id": 2,
        "forced_eos_token_id": 2,
    },
    architecture=lambda config: "BartForConditionalGeneration",
    left=(
        r"(model\.)?(encoder|decoder)\.embed_tokens\.weight",
        r"lm_head\.weight",
        r"(model\.)?(encoder|decoder)\.version",
    ),
    again={"embedding.weight": EMBEDDINGS},
    tied=EMBEDDINGS,
    absent=_default_tensors,
)
