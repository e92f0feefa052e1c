"""ViT and GPT-2 as VisionEncoderDecoderModel of transformers: a config and a prefix for each half."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...core.errors import ModelError
from ...models import gpt2
from ...models.vit_gpt2 import PRESETS, Config
from . import Family, Rule
from . import gpt2 as decoders
from .config_fields import (
    format_json,
    read_float,
    read_int,
    reject_others,
    reject_partial_patches,
    resolve_aliases,
    use_transformers_names,
)

READS, WRITES = r"encoder.encoder.layer.\1.", r"decoder.transformer.h.\1."
ENCODER, DECODER = r"encoder\.(\d+)\.", r"decoder\.(\d+)\."
KIND = r"\.(weight|bias)"


def settings(config: Config) -> dict[str, Any]:
    """Return the arguments of VisionEncoderDecoderConfig."""
    decoder = gpt2.Config(
        vocab_size=config.target_vocab_size,
        context_length=config.context_length,
        dim=config.dim,
        layers=config.decoder_layers or config.layers,
        heads=config.heads,
        ffn_dim=config.ffn_dim,
        dropout=config.dropout,
        tie_weights=config.tie_weights,
    )
    return {
        "is_encoder_decoder": True,
        "tie_word_embeddings": False,  # of the whole network, whose halves share no weights
        "encoder": {
            "model_type": "vit",
            "image_size": config.grid * config.patch_size,
            "patch_size": config.patch_size,
            "num_channels": config.in_channels,
            "hidden_size": config.dim,
            "num_hidden_layers": config.layers,
            "num_attention_heads": config.heads,
            "intermediate_size": config.ffn_dim or 4 * config.dim,
            "layer_norm_eps": config.eps,
        },
        "decoder": {
            "model_type": "gpt2",
            **decoders.settings(decoder),
            "is_decoder": True,
            "add_cross_attention": True,
            **dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id")),  # those of the whole network are used
        },
    }


def parse_config(theirs: Mapping[str, Any]) -> Config:
    """Return our config from a config.json. Raises ModelError for an unsupported value."""
    halves = (_half(theirs, name, kind) for name, kind in (("encoder", "vit"), ("decoder", "gpt2")))
    encoder, decoder = (resolve_aliases(half, {}) for half in halves)
    for field, known in {
        "hidden_act": "gelu",
        "qkv_bias": True,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
    }.items():
        reject_others(encoder, field, (known,))
    reject_others(decoder, "add_cross_attention", (True,))
    try:
        writes = decoders.parse_config(
            {**resolve_aliases(decoder, decoders.FAMILY.aliases), "add_cross_attention": False}
        )
    except ModelError as error:
        raise ModelError(use_transformers_names(decoders.FAMILY.model_type, str(error))) from error
    if len(set(writes.rates)) > 1:
        raise ModelError(
            "config.json has a decoder with resid_pdrop, embd_pdrop and attn_pdrop that differ, which the network here "
            "does not have: all three are one number."
        )
    dim, patch = read_int(encoder, "hidden_size", 768), read_int(encoder, "patch_size", 16)
    hidden, heads = read_int(encoder, "intermediate_size", 3072), read_int(encoder, "num_attention_heads", 12)
    size = read_int(encoder, "image_size", 224)
    reject_partial_patches(size, patch)
    for field, reads, other in (
        ("hidden_size", dim, writes.dim),
        ("num_attention_heads", heads, writes.heads),
        ("intermediate_size", hidden, writes.ffn_dim or 4 * writes.dim),
    ):
        if reads != other:
            raise ModelError(
                f"config.json has an encoder with {field}={reads} and a decoder with {other}, which the network here "
                "does not have: both are the same."
            )
    reject_others(encoder, "head_dim", (dim // heads,))
    reject_others(decoder, "cross_attention_hidden_size", (None, dim))
    layers = read_int(encoder, "num_hidden_layers", 12)
    return Config(
        image_size=size,
        patch_size=patch,
        dim=dim,
        layers=layers,
        decoder_layers=None if writes.layers == layers else writes.layers,
        heads=writes.heads,
        ffn_dim=None if hidden == 4 * dim else hidden,
        dropout=writes.dropout,
        tie_weights=writes.tie_weights,
        eps=read_float(encoder, "layer_norm_eps", 1e-12),
        in_channels=read_int(encoder, "num_channels", 3),
        target_vocab_size=writes.vocab_size,
        context_length=writes.context_length,
    )


def _half(theirs: Mapping[str, Any], name: str, kind: str) -> Mapping[str, Any]:
    """Return the config of one half. Raises ModelError if it is missing or of another network."""
    half = theirs.get(name)
    found = half.get("model_type") if isinstance(half, Mapping) else None
    if not isinstance(half, Mapping) or found != kind:
        raise ModelError(
            f"config.json has {name}.model_type={format_json(found)}, which the network here does not have: it knows "
            f"{format_json(kind)}."
        )
    return half


FAMILY = Family(
    model_type="vision-encoder-decoder",
    presets=tuple(PRESETS),
    prefix="",
    rules=(
        Rule(r"patches" + KIND, (r"encoder.embeddings.patch_embeddings.projection.\1",)),
        Rule(r"class_token", ("encoder.embeddings.cls_token",)),
        Rule(r"patch_positions", ("encoder.embeddings.position_embeddings",)),
        Rule(ENCODER + r"norm1" + KIND, (READS + r"layernorm_before.\2",)),
        Rule(
            ENCODER + r"attention\.qkv" + KIND,
            tuple(rf"{READS}attention.attention.{part}.\2" for part in ("query", "key", "value")),
        ),
        Rule(ENCODER + r"attention\.out" + KIND, (READS + r"attention.output.dense.\2",)),
        Rule(ENCODER + r"norm2" + KIND, (READS + r"layernorm_after.\2",)),
        Rule(ENCODER + r"mlp\.fc1" + KIND, (READS + r"intermediate.dense.\2",)),
        Rule(ENCODER + r"mlp\.fc2" + KIND, (READS + r"output.dense.\2",)),
        Rule(r"encoder_norm" + KIND, (r"encoder.layernorm.\1",)),
        Rule(r"embedding\.weight", ("decoder.transformer.wte.weight",)),
        Rule(r"positions\.weight", ("decoder.transformer.wpe.weight",)),
        Rule(DECODER + r"norm([12])" + KIND, (WRITES + r"ln_\2.\3",)),
        Rule(DECODER + r"cross_norm" + KIND, (WRITES + r"ln_cross_attn.\2",)),
        Rule(DECODER + r"attention\.qkv" + KIND, (WRITES + r"attn.c_attn.\2",), transposed=True),
        Rule(DECODER + r"attention\.out" + KIND, (WRITES + r"attn.c_proj.\2",), transposed=True),
        Rule(DECODER + r"cross_attention\.q" + KIND, (WRITES + r"crossattention.q_attn.\2",), transposed=True),
        Rule(DECODER + r"cross_attention\.kv" + KIND, (WRITES + r"crossattention.c_attn.\2",), transposed=True),
        Rule(DECODER + r"cross_attention\.out" + KIND, (WRITES + r"crossattention.c_proj.\2",), transposed=True),
        Rule(DECODER + r"mlp\.fc1" + KIND, (WRITES + r"mlp.c_fc.\2",), transposed=True),
        Rule(DECODER + r"mlp\.fc2" + KIND, (WRITES + r"mlp.c_proj.\2",), transposed=True),
        Rule(r"norm" + KIND, (r"decoder.transformer.ln_f.\1",)),
        Rule(r"head\.unembedding", ("decoder.lm_head.weight",), outside=True),
    ),
    settings=settings,
    config=parse_config,
    architecture=lambda config: "VisionEncoderDecoderModel",
    left=(
        r"decoder\.lm_head\.weight",
        r"encoder\.pooler\.dense\.(weight|bias)",  # not used
        r"decoder\.transformer\.h\.\d+\.(cross)?att(n|ention)\.(bias|masked_bias)",
    ),
)
