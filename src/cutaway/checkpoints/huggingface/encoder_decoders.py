"""BART, T5 and Whisper in transformers: encoders and decoders with separate matrices for queries, keys and values.

BART has several names of the embedding. T5 has position biases in the first block. Whisper has keys without bias, and a
sinusoid table as a tensor.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ...models import bart, t5, transformer_asr
from . import Computed, Family, Rule
from .config_files import read_bool, read_float, read_int, read_shared_int, require_values

BLOCK = r"(encoder|decoder)\.(\d+)\."
LAYER, CROSS = r"\1.layers.\2.", r"decoder.layers.\1."
EMBEDDINGS = ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight")


# Of BART and Whisper.
STACK_RULES = (
    Rule(BLOCK + r"attention\.out\.(weight|bias)", (LAYER + r"self_attn.out_proj.\3",)),
    Rule(BLOCK + r"norm1\.(weight|bias)", (LAYER + r"self_attn_layer_norm.\3",)),
    Rule(r"decoder\.(\d+)\.cross_attention\.q\.(weight|bias)", (CROSS + r"encoder_attn.q_proj.\2",)),
    Rule(r"decoder\.(\d+)\.cross_attention\.out\.(weight|bias)", (CROSS + r"encoder_attn.out_proj.\2",)),
    Rule(r"decoder\.(\d+)\.cross_norm\.(weight|bias)", (CROSS + r"encoder_attn_layer_norm.\2",)),
    Rule(BLOCK + r"mlp\.(fc[12])\.(weight|bias)", (LAYER + r"\3.\4",)),
    Rule(BLOCK + r"norm2\.(weight|bias)", (LAYER + r"final_layer_norm.\3",)),
)
STACK_ALIASES = {
    "hidden_size": "d_model",
    "num_attention_heads": "encoder_attention_heads",
    "num_hidden_layers": "encoder_layers",
}


def _stack_settings(config: bart.Config | transformer_asr.Config) -> dict[str, Any]:
    """Return the arguments on the layers that BartConfig and WhisperConfig share."""
    hidden = config.ffn_dim or 4 * config.dim
    return {
        "d_model": config.dim,
        "encoder_layers": config.layers,
        "decoder_layers": config.decoder_layers or config.layers,
        "encoder_attention_heads": config.heads,
        "decoder_attention_heads": config.heads,
        "encoder_ffn_dim": hidden,
        "decoder_ffn_dim": hidden,
        "activation_function": "gelu",
        "dropout": config.dropout,
    }


def _parse_stacks(theirs: Mapping[str, Any], dim: int, layers: int, heads: int) -> dict[str, Any]:
    """Return the fields on the layers of a Config of ours, with these defaults. Raises ModelError for a wrong value."""
    found = {"dim": read_int(theirs, "d_model", dim), "layers": read_int(theirs, "encoder_layers", layers)}
    decoder_layers, hidden = read_int(theirs, "decoder_layers", layers), read_shared_int(theirs, "ffn_dim", 4 * dim)
    return {
        **found,
        "decoder_layers": None if decoder_layers == found["layers"] else decoder_layers,
        "heads": read_shared_int(theirs, "attention_heads", heads),
        "ffn_dim": None if hidden == 4 * found["dim"] else hidden,
    }


def bart_settings(config: bart.Config) -> dict[str, Any]:
    """Return the arguments of BartConfig.

    Special tokens are those of the published weights: <s> 0, padding 1, and </s> 2, which also starts the decoder.
    """
    return {
        "vocab_size": config.vocab_size,
        "max_position_embeddings": config.context_length,
        **_stack_settings(config),
        "attention_dropout": config.attention_dropout,
        "activation_dropout": config.activation_dropout,
        "tie_word_embeddings": config.tie_weights,
        "bos_token_id": 0,
        "pad_token_id": 1,
        "eos_token_id": 2,
        "decoder_start_token_id": 2,
    }


def parse_bart_config(theirs: Mapping[str, Any]) -> bart.Config:
    """Return our config from a config.json. Raises ModelError for an unsupported value."""
    require_values(
        theirs,
        activation_function="gelu",
        scale_embedding=False,
        encoder_layerdrop=0.0,
        decoder_layerdrop=0.0,
        is_encoder_decoder=True,
        is_causal=True,
    )
    # Fields of the first files, before related models had a separate model_type.
    require_values(
        theirs,
        normalize_before=False,
        normalize_embedding=True,
        add_final_layer_norm=False,
        static_position_embeddings=False,
    )
    stacks = _parse_stacks(theirs, dim=1024, layers=12, heads=16)
    return bart.Config(
        vocab_size=read_int(theirs, "vocab_size", 50_265),
        context_length=read_int(theirs, "max_position_embeddings", 1024),
        **stacks,
        dropout=read_float(theirs, "dropout", 0.1),
        attention_dropout=read_float(theirs, "attention_dropout", 0.0),
        activation_dropout=read_float(theirs, "activation_dropout", 0.0),
        tie_weights=read_bool(theirs, "tie_word_embeddings", True),
    )


def _zero_logits_bias(config: bart.Config, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return zeros for the bias of the logits if a file lacks it, as one of a network without a head."""
    table = tensors.get("model.shared.weight")
    return {} if table is None else {"final_logits_bias": table.new_zeros(1, config.vocab_size)}


BART_FAMILY = Family(
    model_type="bart",
    presets=tuple(bart.PRESETS),
    prefix="model.",
    rules=(
        Rule(r"embedding\.weight", ("shared.weight",)),
        Rule(r"(encoder|decoder)_positions\.weight", (r"\1.embed_positions.weight",)),
        Rule(r"(encoder|decoder)_norm\.(weight|bias)", (r"\1.layernorm_embedding.\2",)),
        Rule(BLOCK + r"attention\.qkv\.(weight|bias)", tuple(rf"{LAYER}self_attn.{part}_proj.\3" for part in "qkv")),
        Rule(
            r"decoder\.(\d+)\.cross_attention\.kv\.(weight|bias)",
            (CROSS + r"encoder_attn.k_proj.\2", CROSS + r"encoder_attn.v_proj.\2"),
        ),
        *STACK_RULES,
        Rule(r"head\.words\.unembedding", ("lm_head.weight",), outside=True),
        Rule(r"head\.constant", ("final_logits_bias",), outside=True),
    ),
    settings=bart_settings,
    config=parse_bart_config,
    aliases=STACK_ALIASES,
    tokens={
        "pad_token_id": 1,
        "bos_token_id": 0,
        "eos_token_id": 2,
        "decoder_start_token_id": 2,
        "forced_eos_token_id": 2,
    },
    architecture=lambda config: "BartForConditionalGeneration",
    ignored=(
        r"(model\.)?(encoder|decoder)\.embed_tokens\.weight",
        r"lm_head\.weight",
        r"(model\.)?(encoder|decoder)\.version",
    ),
    untied_names={"embedding.weight": EMBEDDINGS},
    embedding_names=EMBEDDINGS,
    default_tensors=_zero_logits_bias,
)


T5_ATTENTION, T5_CROSS_ATTENTION = r"\1.block.\2.layer.0.", r"decoder.block.\1.layer.1."


def t5_settings(config: t5.Config) -> dict[str, Any]:
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
        "layer_norm_epsilon": t5.EPS,
        "feed_forward_proj": "relu",
        "tie_word_embeddings": config.tie_weights,
        "pad_token_id": 0,
        "eos_token_id": 1,
        "decoder_start_token_id": 0,
    }


def parse_t5_config(theirs: Mapping[str, Any]) -> t5.Config:
    """Return our config from a config.json. Raises ModelError for an unsupported value."""
    require_values(
        theirs,
        feed_forward_proj="relu",
        dense_act_fn="relu",
        is_gated_act=False,
        layer_norm_epsilon=t5.EPS,
        is_encoder_decoder=True,
        is_causal=True,
    )
    # Version 5 of transformers has a field for scaled outputs; earlier versions derive it from the other field.
    tied = theirs.get("tie_word_embeddings") is None or read_bool(theirs, "tie_word_embeddings", True)
    layers = read_int(theirs, "num_layers", 6)
    decoder_layers = (
        layers if theirs.get("num_decoder_layers") is None else read_int(theirs, "num_decoder_layers", layers)
    )
    dim, hidden = read_int(theirs, "d_model", 512), read_int(theirs, "d_ff", 2048)
    return t5.Config(
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


def _embedding_as_output(config: t5.Config, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the embedding as output matrix if a file has none, also if outputs are not scaled."""
    table = tensors.get("shared.weight")
    return {} if config.tie_weights or table is None else {"lm_head.weight": table}


T5_FAMILY = Family(
    model_type="t5",
    presets=tuple(t5.PRESETS),
    prefix="",
    rules=(
        Rule(r"embedding\.weight", ("shared.weight",)),
        Rule(r"head\.unembedding", ("lm_head.weight",), outside=True),
        Rule(
            r"(encoder|decoder)_bias\.table\.weight",
            (r"\1.block.0.layer.0.SelfAttention.relative_attention_bias.weight",),
        ),
        Rule(r"(encoder|decoder)_norm\.weight", (r"\1.final_layer_norm.weight",)),
        Rule(BLOCK + r"norm1\.weight", (T5_ATTENTION + "layer_norm.weight",)),
        Rule(BLOCK + r"attention\.qkv\.weight", tuple(f"{T5_ATTENTION}SelfAttention.{part}.weight" for part in "qkv")),
        Rule(BLOCK + r"attention\.out\.weight", (T5_ATTENTION + "SelfAttention.o.weight",)),
        Rule(r"decoder\.(\d+)\.cross_norm\.weight", (T5_CROSS_ATTENTION + "layer_norm.weight",)),
        Rule(r"decoder\.(\d+)\.cross_attention\.q\.weight", (T5_CROSS_ATTENTION + "EncDecAttention.q.weight",)),
        Rule(
            r"decoder\.(\d+)\.cross_attention\.kv\.weight",
            (T5_CROSS_ATTENTION + "EncDecAttention.k.weight", T5_CROSS_ATTENTION + "EncDecAttention.v.weight"),
        ),
        Rule(r"decoder\.(\d+)\.cross_attention\.out\.weight", (T5_CROSS_ATTENTION + "EncDecAttention.o.weight",)),
        # The MLP is the second part of an encoder's block and the third of a decoder's.
        Rule(r"encoder\.(\d+)\.norm2\.weight", (r"encoder.block.\1.layer.1.layer_norm.weight",)),
        Rule(r"encoder\.(\d+)\.mlp\.fc1\.weight", (r"encoder.block.\1.layer.1.DenseReluDense.wi.weight",)),
        Rule(r"encoder\.(\d+)\.mlp\.fc2\.weight", (r"encoder.block.\1.layer.1.DenseReluDense.wo.weight",)),
        Rule(r"decoder\.(\d+)\.norm2\.weight", (r"decoder.block.\1.layer.2.layer_norm.weight",)),
        Rule(r"decoder\.(\d+)\.mlp\.fc1\.weight", (r"decoder.block.\1.layer.2.DenseReluDense.wi.weight",)),
        Rule(r"decoder\.(\d+)\.mlp\.fc2\.weight", (r"decoder.block.\1.layer.2.DenseReluDense.wo.weight",)),
    ),
    settings=t5_settings,
    config=parse_t5_config,
    aliases={
        "hidden_size": "d_model",
        "num_attention_heads": "num_heads",
        "num_hidden_layers": "num_layers",
        "head_dim": "d_kv",
    },
    tokens={"pad_token_id": 0, "eos_token_id": 1},
    architecture=lambda config: "T5ForConditionalGeneration",
    embedding_names=("encoder.embed_tokens.weight", "decoder.embed_tokens.weight"),
    tied_by=None,
    default_tensors=_embedding_as_output,
    ignored=(
        r"(encoder|decoder)\.embed_tokens\.weight",
        r"lm_head\.weight",
        # The bias of cross-attention in old files, which is not used.
        r"decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight",
    ),
)


MAX_POSITIONS = 1500  # positions of the encoder: 30 s, the maximum input of transformers' network


def whisper_settings(config: transformer_asr.Config) -> dict[str, Any]:
    """Return the arguments of WhisperConfig."""
    ends = dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id"), 0)
    ours = {**ends, "begin_suppress_tokens": None}  # for custom transcripts, whose only special token is 0
    return {
        **(ours if config.target_vocab_size != transformer_asr.Config.target_vocab_size else {}),
        "vocab_size": config.target_vocab_size,
        "num_mel_bins": config.in_features,
        "max_source_positions": MAX_POSITIONS,
        "max_target_positions": config.context_length,
        **_stack_settings(config),
    }


def parse_whisper_config(theirs: Mapping[str, Any]) -> transformer_asr.Config:
    """Return our config from a config.json. Raises ModelError for an unsupported value."""
    require_values(
        theirs,
        activation_function="gelu",
        tie_word_embeddings=True,
        scale_embedding=False,
        attention_dropout=0.0,
        activation_dropout=0.0,
        encoder_layerdrop=0.0,
        decoder_layerdrop=0.0,
        is_encoder_decoder=True,
        is_causal=True,
    )
    stacks = _parse_stacks(theirs, dim=384, layers=4, heads=6)
    return transformer_asr.Config(
        in_features=read_int(theirs, "num_mel_bins", 80),
        **stacks,
        dropout=read_float(theirs, "dropout", 0.0),
        target_vocab_size=read_int(theirs, "vocab_size", 51_865),
        context_length=read_int(theirs, "max_target_positions", 448),
    )


def _table(theirs: Mapping[str, Any]) -> tuple[int, int]:
    """Return the shape of the sinusoid table, which their files store as a tensor."""
    return read_int(theirs, "max_source_positions", MAX_POSITIONS), read_int(theirs, "d_model", 384)


def _rounding(shape: tuple[int, ...]) -> Tensor:
    """Return the maximum difference of two sinusoid tables in float32.

    Each exponential may differ by one unit in the last place, which its angle multiplies, and each sine by another one.
    """
    places, dim = shape
    rates = torch.logspace(0, -4, dim // 2, dtype=torch.float64)
    angles = torch.arange(places, dtype=torch.float64)[:, None] * rates  # (places, dim/2)
    return (4 * angles + 2).repeat(1, 2) * torch.finfo(torch.float32).eps


WHISPER_FAMILY = Family(
    model_type="whisper",
    presets=tuple(transformer_asr.PRESETS),
    prefix="model.",
    rules=(
        Rule(r"(conv[12])\.(weight|bias)", (r"encoder.\1.\2",)),
        Rule(r"embedding\.weight", ("decoder.embed_tokens.weight",)),
        Rule(r"positions\.weight", ("decoder.embed_positions.weight",)),
        Rule(r"encoder_norm\.(weight|bias)", (r"encoder.layer_norm.\1",)),
        Rule(r"norm\.(weight|bias)", (r"decoder.layer_norm.\1",)),
        Rule(BLOCK + r"attention\.qkv\.weight", tuple(f"{LAYER}self_attn.{part}_proj.weight" for part in "qkv")),
        Rule(BLOCK + r"attention\.qkv\.bias", tuple(f"{LAYER}self_attn.{part}_proj.bias" for part in "qv")),
        Rule(
            r"decoder\.(\d+)\.cross_attention\.kv\.weight",
            (CROSS + "encoder_attn.k_proj.weight", CROSS + "encoder_attn.v_proj.weight"),
        ),
        Rule(r"decoder\.(\d+)\.cross_attention\.kv\.bias", (CROSS + "encoder_attn.v_proj.bias",)),
        *STACK_RULES,
    ),
    settings=whisper_settings,
    config=parse_whisper_config,
    aliases=STACK_ALIASES,
    tokens={
        "pad_token_id": 50_256,
        "bos_token_id": 50_256,
        "eos_token_id": 50_256,
        "decoder_start_token_id": 50_257,
    },
    architecture=lambda config: "WhisperForConditionalGeneration",
    ignored=(r"(model\.)?encoder\.embed_positions\.weight", r"proj_out\.weight"),
    computed={
        "model.encoder.embed_positions.weight": Computed(
            _table, lambda shape: transformer_asr.sinusoids(*shape), _rounding
        ),
    },
    embedding_names=("proj_out.weight",),
    tied_by=None,
)
