"""GPT-2, and ViT with GPT-2 as VisionEncoderDecoderModel, in transformers.

GPT-2's matrices are transposed there, and queries, keys and values are one matrix. The captioning network has a config
and a prefix for each half.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...core.errors import CheckpointConfigError, ModelError
from ...models import gpt2, vit_gpt2
from . import Family, Rule
from .config_files import (
    format_json,
    read_bool,
    read_dropout,
    read_float,
    read_int,
    reject_others,
    reject_partial_patches,
    require_values,
    resolve_aliases,
    use_transformers_names,
)

BLOCK = r"blocks\.(\d+)\."


def gpt2_settings(config: gpt2.Config) -> dict[str, Any]:
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


def parse_gpt2_config(theirs: Mapping[str, Any]) -> gpt2.Config:
    """Return our config from a config.json. Raises ModelError for an unsupported value."""
    reject_others(theirs, "activation_function", ("gelu_new", "gelu_pytorch_tanh"))
    require_values(
        theirs,
        layer_norm_epsilon=1e-5,
        add_cross_attention=False,
        is_causal=True,
        scale_attn_weights=True,
        scale_attn_by_inverse_layer_idx=False,
    )
    dropout = read_float(theirs, "resid_pdrop", 0.1)
    return gpt2.Config(
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


GPT2_FAMILY = Family(
    model_type="gpt2",
    presets=tuple(gpt2.PRESETS),
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
    settings=gpt2_settings,
    config=parse_gpt2_config,
    aliases={
        "hidden_size": "n_embd",
        "max_position_embeddings": "n_positions",
        "num_attention_heads": "n_head",
        "num_hidden_layers": "n_layer",
    },
    tokens={"bos_token_id": 50_256, "eos_token_id": 50_256},
    architecture=lambda config: "GPT2LMHeadModel" if config.head == "next" else "GPT2ForSequenceClassification",
    ignored=(r"lm_head\.weight", r"(transformer\.)?h\.\d+\.attn\.(bias|masked_bias)"),
)


ENCODER_LAYER, DECODER_LAYER = r"encoder.encoder.layer.\1.", r"decoder.transformer.h.\1."
ENCODER_BLOCK, DECODER_BLOCK = r"encoder\.(\d+)\.", r"decoder\.(\d+)\."
PARAMETER = r"\.(weight|bias)"


def vit_gpt2_settings(config: vit_gpt2.Config) -> dict[str, Any]:
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
            **gpt2_settings(decoder),
            "is_decoder": True,
            "add_cross_attention": True,
            **dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id")),  # those of the whole network are used
        },
    }


def parse_vit_gpt2_config(theirs: Mapping[str, Any]) -> vit_gpt2.Config:
    """Return our config from a config.json. Raises ModelError for an unsupported value."""
    halves = (_half(theirs, name, kind) for name, kind in (("encoder", "vit"), ("decoder", "gpt2")))
    encoder, decoder = (resolve_aliases(half, {}) for half in halves)
    require_values(encoder, hidden_act="gelu", qkv_bias=True, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    reject_others(decoder, "add_cross_attention", (True,))
    try:
        writes = parse_gpt2_config({**resolve_aliases(decoder, GPT2_FAMILY.aliases), "add_cross_attention": False})
    except ModelError as error:
        raise CheckpointConfigError(use_transformers_names(GPT2_FAMILY.model_type, str(error))) from error
    if len(set(writes.rates)) > 1:
        raise CheckpointConfigError(
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
            raise CheckpointConfigError(
                f"config.json has an encoder with {field}={reads} and a decoder with {other}, which the network here "
                "does not have: both are the same."
            )
    reject_others(encoder, "head_dim", (dim // heads,))
    reject_others(decoder, "cross_attention_hidden_size", (None, dim))
    layers = read_int(encoder, "num_hidden_layers", 12)
    return vit_gpt2.Config(
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
        raise CheckpointConfigError(
            f"config.json has {name}.model_type={format_json(found)}, which the network here does not have: it knows "
            f"{format_json(kind)}."
        )
    return half


VIT_GPT2_FAMILY = Family(
    model_type="vision-encoder-decoder",
    presets=tuple(vit_gpt2.PRESETS),
    prefix="",
    rules=(
        Rule(r"patches" + PARAMETER, (r"encoder.embeddings.patch_embeddings.projection.\1",)),
        Rule(r"class_token", ("encoder.embeddings.cls_token",)),
        Rule(r"patch_positions", ("encoder.embeddings.position_embeddings",)),
        Rule(ENCODER_BLOCK + r"norm1" + PARAMETER, (ENCODER_LAYER + r"layernorm_before.\2",)),
        Rule(
            ENCODER_BLOCK + r"attention\.qkv" + PARAMETER,
            tuple(rf"{ENCODER_LAYER}attention.attention.{part}.\2" for part in ("query", "key", "value")),
        ),
        Rule(ENCODER_BLOCK + r"attention\.out" + PARAMETER, (ENCODER_LAYER + r"attention.output.dense.\2",)),
        Rule(ENCODER_BLOCK + r"norm2" + PARAMETER, (ENCODER_LAYER + r"layernorm_after.\2",)),
        Rule(ENCODER_BLOCK + r"mlp\.fc1" + PARAMETER, (ENCODER_LAYER + r"intermediate.dense.\2",)),
        Rule(ENCODER_BLOCK + r"mlp\.fc2" + PARAMETER, (ENCODER_LAYER + r"output.dense.\2",)),
        Rule(r"encoder_norm" + PARAMETER, (r"encoder.layernorm.\1",)),
        Rule(r"embedding\.weight", ("decoder.transformer.wte.weight",)),
        Rule(r"positions\.weight", ("decoder.transformer.wpe.weight",)),
        Rule(DECODER_BLOCK + r"norm([12])" + PARAMETER, (DECODER_LAYER + r"ln_\2.\3",)),
        Rule(DECODER_BLOCK + r"cross_norm" + PARAMETER, (DECODER_LAYER + r"ln_cross_attn.\2",)),
        Rule(DECODER_BLOCK + r"attention\.qkv" + PARAMETER, (DECODER_LAYER + r"attn.c_attn.\2",), transposed=True),
        Rule(DECODER_BLOCK + r"attention\.out" + PARAMETER, (DECODER_LAYER + r"attn.c_proj.\2",), transposed=True),
        Rule(
            DECODER_BLOCK + r"cross_attention\.q" + PARAMETER,
            (DECODER_LAYER + r"crossattention.q_attn.\2",),
            transposed=True,
        ),
        Rule(
            DECODER_BLOCK + r"cross_attention\.kv" + PARAMETER,
            (DECODER_LAYER + r"crossattention.c_attn.\2",),
            transposed=True,
        ),
        Rule(
            DECODER_BLOCK + r"cross_attention\.out" + PARAMETER,
            (DECODER_LAYER + r"crossattention.c_proj.\2",),
            transposed=True,
        ),
        Rule(DECODER_BLOCK + r"mlp\.fc1" + PARAMETER, (DECODER_LAYER + r"mlp.c_fc.\2",), transposed=True),
        Rule(DECODER_BLOCK + r"mlp\.fc2" + PARAMETER, (DECODER_LAYER + r"mlp.c_proj.\2",), transposed=True),
        Rule(r"norm" + PARAMETER, (r"decoder.transformer.ln_f.\1",)),
        Rule(r"head\.unembedding", ("decoder.lm_head.weight",), outside=True),
    ),
    settings=vit_gpt2_settings,
    config=parse_vit_gpt2_config,
    architecture=lambda config: "VisionEncoderDecoderModel",
    ignored=(
        r"decoder\.lm_head\.weight",
        r"encoder\.pooler\.dense\.(weight|bias)",  # not used
        r"decoder\.transformer\.h\.\d+\.(cross)?att(n|ention)\.(bias|masked_bias)",
    ),
)
