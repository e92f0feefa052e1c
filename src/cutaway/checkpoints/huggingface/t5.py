"""T5 in transformers: separate matrices for queries, keys and values, and position biases in the first block."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from ...models.t5 import EPS, PRESETS, Config
from . import Family, Rule
from .config_fields import read_bool, read_float, read_int, reject_others

BLOCK = r"(encoder|decoder)\.(\d+)\."
SELF, CROSS = r"\1.block.\2.layer.0.", r"decoder.block.\1.layer.1."


def settings(config: Config) -> dict[str, Any]:
    """Return the arguments of T5Config.

    Special tokens are those of the published weights: padding 0, which also starts the decoder, and end 1.
    """
    return {
        "vocab_size": config.vocab_size,
        "d_model": config.dim,
        "d_kv": config.head_dim,
        "d_ff": config.ffn_dim or 4 * config.dim,
        "num_layers": config.layers,
        "num_decoder_layers": config.decoder_layers or config.layers,
        "num_heads": config.heads,
        "relative_attention_num_buckets": config.num_buckets,
        "relative_attention_max_distance": config.max_distance,
        "dropout_rate": config.dropout,
        "layer_norm_epsilon": EPS,
        "feed_forward_proj": "relu",
        "tie_word_embeddings": config.tie_weights,
        "pad_token_id": 0,
        "eos_token_id": 1,
        "decoder_start_token_id": 0,
    }


def parse_config(theirs: Mapping[str, Any]) -> Config:
    """Return our config from a config.json. Raises ModelError for an unsupported value."""
    reject_others(theirs, "feed_forward_proj", ("relu",))
    reject_others(theirs, "dense_act_fn", ("relu",))
    reject_others(theirs, "is_gated_act", (False,))
    reject_others(theirs, "layer_norm_epsilon", (EPS,))
    reject_others(theirs, "is_encoder_decoder", (True,))
    reject_others(theirs, "is_causal", (True,))
    # Version 5 of transformers has a field for scaled outputs; earlier versions derive it from the other field.
    tied = theirs.get("tie_word_embeddings") is None or read_bool(theirs, "tie_word_embeddings", True)
    layers = read_int(theirs, "num_layers", 6)
    decoder_layers = (
        layers if theirs.get("num_decoder_layers") is None else read_int(theirs, "num_decoder_layers", layers)
    )
    dim, hidden = read_int(theirs, "d_model", 512), read_int(theirs, "d_ff", 2048)
    return Config(
        vocab_size=read_int(theirs, "vocab_size", 32_128),
        dim=dim,
        layers=layers,
        decoder_layers=None if decoder_layers == layers else decoder_layers,
        heads=read_int(theirs, "num_heads", 8),
        head_dim=read_int(theirs, "d_kv", 64),
        ffn_dim=None if hidden == 4 * dim else hidden,
        num_buckets=read_int(theirs, "relative_attention_num_buckets", 32),
        max_distance=read_int(theirs, "relative_attention_max_distance", 128),
        dropout=read_float(theirs, "dropout_rate", 0.1),
        tie_weights=read_bool(theirs, "scale_decoder_outputs", tied),
    )


def _default_tensors(config: Config, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the embedding as output matrix if a file has none, also if outputs are not scaled."""
    table = tensors.get("shared.weight")
    return {} if config.tie_weights or table is None else {"lm_head.weight": table}


FAMILY = Family(
    model_type="t5",
    presets=tuple(PRESETS),
    prefix="",
    rules=(
        Rule(r"embedding\.weight", ("shared.weight",)),
        Rule(r"head\.unembedding", ("lm_head.weight",), outside=True),
        Rule(
            r"(encoder|decoder)_bias\.table\.weight",
            (r"\1.block.0.layer.0.SelfAttention.relative_attention_bias.weight",),
        ),
        Rule(r"(encoder|decoder)_norm\.weight", (r"\1.final_layer_norm.weight",)),
        Rule(BLOCK + r"norm1\.weight", (SELF + "layer_norm.weight",)),
        Rule(BLOCK + r"attention\.qkv\.weight", tuple(f"{SELF}SelfAttention.{part}.weight" for part in "qkv")),
        Rule(BLOCK + r"attention\.out\.weight", (SELF + "SelfAttention.o.weight",)),
        Rule(r"decoder\.(\d+)\.cross_norm\.weight", (CROSS + "layer_norm.weight",)),
        Rule(r"decoder\.(\d+)\.cross_attention\.q\.weight", (CROSS + "EncDecAttention.q.weight",)),
        Rule(
            r"decoder\.(\d+)\.cross_attention\.kv\.weight",
            (CROSS + "EncDecAttention.k.weight", CROSS + "EncDecAttention.v.weight"),
        ),
        Rule(r"decoder\.(\d+)\.cross_attention\.out\.weight", (CROSS + "EncDecAttention.o.weight",)),
        # The MLP is the second part of an encoder's block and the third of a decoder's.
        Rule(r"encoder\.(\d+)\.norm2\.weight", (r"encoder.block.\1.layer.1.layer_norm.weight",)),
        Rule(r"encoder\.(\d+)\.mlp\.fc1\.weight", (r"encoder.block.\1.layer.1.DenseReluDense.wi.weight",)),
        Rule(r"encoder\.(\d+)\.mlp\.fc2\.weight", (r"encoder.block.\1.layer.1.DenseReluDense.wo.weight",)),
        Rule(r"decoder\.(\d+)\.norm2\.weight", (r"decoder.block.\1.layer.2.layer_norm.weight",)),
        Rule(r"decoder\.(\d+)\.mlp\.fc1\.weight", (r"decoder.block.\1.layer.2.DenseReluDense.wi.weight",)),
        Rule(r"decoder\.(\d+)\.mlp\.fc2\.weight", (r"decoder.block.\1.layer.2.DenseReluDense.wo.weight",)),
    ),
    settings=settings,
    config=parse_config,
    aliases={
        "hidden_size": "d_model",
        "num_attention_heads": "num_heads",
        "num_hidden_layers": "num_layers",
        "head_dim": "d_kv",
    },
    tokens={"pad_token_id": 0, "eos_token_id": 1},
    architecture=lambda config: "T5ForConditionalGeneration",
    tied=("encoder.embed_tokens.weight", "decoder.embed_tokens.weight"),
    tied_by=None,
    absent=_default_tensors,
    left=(
        r"(encoder|decoder)\.embed_tokens\.weight",
        r"lm_head\.weight",
        # The bias of cross-attention in old files, which is not used.
        r"decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight",
    ),
)
