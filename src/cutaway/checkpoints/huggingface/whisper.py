"""Whisper in transformers: separate matrices for queries, keys and values, keys without bias, and a sinusoid table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ...models.transformer_asr import PRESETS, Config, sinusoids
from . import Computed, Family, Rule
from .config_fields import read_float, read_int, read_shared_int, reject_others

BLOCK = r"(encoder|decoder)\.(\d+)\."
LAYER, CROSS = r"\1.layers.\2.", r"decoder.layers.\1."
MAX_POSITIONS = 1500  # positions of the encoder: 30 s, the maximum input of transformers' network


def settings(config: Config) -> dict[str, Any]:
    """Return the arguments of WhisperConfig."""
    hidden = config.ffn_dim or 4 * config.dim
    ends = dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id"), 0)
    ours = {**ends, "begin_suppress_tokens": None}  # for custom transcripts, whose only special token is 0
    return {
        **(ours if config.target_vocab_size != Config.target_vocab_size else {}),
        "vocab_size": config.target_vocab_size,
        "num_mel_bins": config.in_features,
        "max_source_positions": MAX_POSITIONS,
        "max_target_positions": config.context_length,
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


def parse_config(theirs: Mapping[str, Any]) -> Config:
    """Return our config from a config.json. Raises ModelError for an unsupported value."""
    reject_others(theirs, "activation_function", ("gelu",))
    reject_others(theirs, "tie_word_embeddings", (True,))
    reject_others(theirs, "scale_embedding", (False,))
    reject_others(theirs, "attention_dropout", (0.0,))
    reject_others(theirs, "activation_dropout", (0.0,))
    reject_others(theirs, "encoder_layerdrop", (0.0,))
    reject_others(theirs, "decoder_layerdrop", (0.0,))
    reject_others(theirs, "is_encoder_decoder", (True,))
    reject_others(theirs, "is_causal", (True,))
    dim, layers = read_int(theirs, "d_model", 384), read_int(theirs, "encoder_layers", 4)
    decoder_layers = read_int(theirs, "decoder_layers", 4)
    hidden = read_shared_int(theirs, "ffn_dim", 1536)
    return Config(
        in_features=read_int(theirs, "num_mel_bins", 80),
        dim=dim,
        layers=layers,
        decoder_layers=None if decoder_layers == layers else decoder_layers,
        heads=read_shared_int(theirs, "attention_heads", 6),
        ffn_dim=None if hidden == 4 * dim else hidden,
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


FAMILY = Family(
    model_type="whisper",
    presets=tuple(PRESETS),
    prefix="model.",
    rules=(
        Rule(r"(conv[12])\.(weight|bias)", (r"encoder.\1.\2",)),
        Rule(r"embedding\.weight", ("decoder.embed_tokens.weight",)),
        Rule(r"positions\.weight", ("decoder.embed_positions.weight",)),
        Rule(r"encoder_norm\.(weight|bias)", (r"encoder.layer_norm.\1",)),
        Rule(r"norm\.(weight|bias)", (r"decoder.layer_norm.\1",)),
        Rule(BLOCK + r"attention\.qkv\.weight", tuple(f"{LAYER}self_attn.{part}_proj.weight" for part in "qkv")),
        Rule(BLOCK + r"attention\.qkv\.bias", tuple(f"{LAYER}self_attn.{part}_proj.bias" for part in "qv")),
        Rule(BLOCK + r"attention\.out\.(weight|bias)", (LAYER + r"self_attn.out_proj.\3",)),
        Rule(BLOCK + r"norm1\.(weight|bias)", (LAYER + r"self_attn_layer_norm.\3",)),
        Rule(r"decoder\.(\d+)\.cross_attention\.q\.(weight|bias)", (CROSS + r"encoder_attn.q_proj.\2",)),
        Rule(
            r"decoder\.(\d+)\.cross_attention\.kv\.weight",
            (CROSS + "encoder_attn.k_proj.weight", CROSS + "encoder_attn.v_proj.weight"),
        ),
        Rule(r"decoder\.(\d+)\.cross_attention\.kv\.bias", (CROSS + "encoder_attn.v_proj.bias",)),
        Rule(r"decoder\.(\d+)\.cross_attention\.out\.(weight|bias)", (CROSS + r"encoder_attn.out_proj.\2",)),
        Rule(r"decoder\.(\d+)\.cross_norm\.(weight|bias)", (CROSS + r"encoder_attn_layer_norm.\2",)),
        Rule(BLOCK + r"mlp\.(fc[12])\.(weight|bias)", (LAYER + r"\3.\4",)),
        Rule(BLOCK + r"norm2\.(weight|bias)", (LAYER + r"final_layer_norm.\3",)),
    ),
    settings=settings,
    config=parse_config,
    aliases={
        "hidden_size": "d_model",
        "num_attention_heads": "encoder_attention_heads",
        "num_hidden_layers": "encoder_layers",
    },
    tokens={
        "pad_token_id": 50_256,
        "bos_token_id": 50_256,
        "eos_token_id": 50_256,
        "decoder_start_token_id": 50_257,
    },
    architecture=lambda config: "WhisperForConditionalGeneration",
    left=(r"(model\.)?encoder\.embed_positions\.weight", r"proj_out\.weight"),
    computed={
        "model.encoder.embed_positions.weight": Computed(_table, lambda shape: sinusoids(*shape), _rounding),
    },
    tied=("proj_out.weight",),
    tied_by=None,
)
