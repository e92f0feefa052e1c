"""Oracle of ViT with GPT-2: the VisionEncoderDecoderModel of transformers with eager attention."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from ..models.vit_gpt2 import PRESETS, Config
from . import Oracle
from .hugging import transformers_library

STEPS = 6  # tokens of the caption so far
ENCODER = {
    "norm1": "layernorm_before",
    "attention.out": "attention.o_proj",
    "norm2": "layernorm_after",
    "mlp.fc1": "mlp.fc1",
    "mlp.fc2": "mlp.fc2",
}
DECODER = {  # their matrices are transposed there, in Conv1D
    "norm1": "ln_1",
    "attention.qkv": "attn.c_attn",
    "attention.out": "attn.c_proj",
    "cross_norm": "ln_cross_attn",
    "cross_attention.q": "crossattention.q_attn",
    "cross_attention.kv": "crossattention.c_attn",
    "cross_attention.out": "crossattention.c_proj",
    "norm2": "ln_2",
    "mlp.fc1": "mlp.c_fc",
    "mlp.fc2": "mlp.c_proj",
}
OUTSIDE = {
    "patches.weight": "encoder.embeddings.patch_embeddings.projection.weight",
    "patches.bias": "encoder.embeddings.patch_embeddings.projection.bias",
    "class_token": "encoder.embeddings.cls_token",
    "patch_positions": "encoder.embeddings.position_embeddings",
    "encoder_norm.weight": "encoder.layernorm.weight",
    "encoder_norm.bias": "encoder.layernorm.bias",
    "embedding.weight": "decoder.transformer.wte.weight",
    "positions.weight": "decoder.transformer.wpe.weight",
    "norm.weight": "decoder.transformer.ln_f.weight",
    "norm.bias": "decoder.transformer.ln_f.bias",
    "head.unembedding": "decoder.lm_head.weight",
}


class Captioner(nn.Module):
    """Network of transformers from images and the caption so far to logits."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor, target: Tensor) -> Tensor:
        """Return the logits (N, S, vocab_size)."""
        logits: Tensor = self.model(pixel_values=images, decoder_input_ids=target).logits
        return logits


def transformers_vit_gpt2(config: Config) -> Oracle:
    """Build ViTModel without a pooler and GPT2LMHeadModel with cross-attention, with the sizes of `config`."""
    library = transformers_library()
    side = config.grid * config.patch_size
    encoder = library.ViTConfig(
        image_size=side,
        patch_size=config.patch_size,
        num_channels=config.in_channels,
        hidden_size=config.dim,
        num_hidden_layers=config.layers,
        num_attention_heads=config.heads,
        intermediate_size=config.ffn_dim or 4 * config.dim,
        layer_norm_eps=config.eps,
    )
    decoder = library.GPT2Config(
        vocab_size=config.target_vocab_size,
        n_positions=config.context_length,
        n_embd=config.dim,
        n_layer=config.decoder_layers or config.layers,
        n_head=config.heads,
        n_inner=config.ffn_dim,
        resid_pdrop=config.dropout,
        embd_pdrop=config.dropout,
        attn_pdrop=config.dropout,
        add_cross_attention=True,
        tie_word_embeddings=config.tie_weights,
        bos_token_id=None,
        eos_token_id=None,
    )
    module = library.VisionEncoderDecoderModel(
        encoder=library.ViTModel(encoder, add_pooling_layer=False), decoder=library.GPT2LMHeadModel(decoder)
    )
    module.set_attn_implementation("eager")

    def inputs(generator: torch.Generator) -> tuple[Tensor, ...]:
        images = torch.randn(2, config.in_channels, side, side, generator=generator, dtype=torch.float64)
        return images, torch.randint(0, config.target_vocab_size, (2, STEPS), generator=generator)

    return Oracle(Captioner(module), inputs, converted=_to_transformers)


def _to_transformers(tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """Return our tensors under their names: the encoder's qkv as three matrices, the decoder's matrices transposed."""
    found: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        side, _, rest = name.partition(".")
        if name in OUTSIDE:
            found[f"model.{OUTSIDE[name]}"] = tensor
            continue
        i, _, rest = rest.partition(".")
        inside, _, kind = rest.rpartition(".")
        if side == "decoder":
            turned = tensor.T if tensor.ndim == 2 else tensor
            found[f"model.decoder.transformer.h.{i}.{DECODER[inside]}.{kind}"] = turned
        elif inside == "attention.qkv":
            for part, which in zip(tensor.chunk(3), "qkv"):
                found[f"model.encoder.layers.{i}.attention.{which}_proj.{kind}"] = part
        else:
            found[f"model.encoder.layers.{i}.{ENCODER[inside]}.{kind}"] = tensor
    return found


ORACLES = dict.fromkeys(PRESETS, transformers_vit_gpt2)
# vit-gpt2-small is compared completely; the other has fewer words and layers, and as many heads of two dimensions.
REDUCED = {
    "vit-gpt2": dataclasses.replace(
        PRESETS["vit-gpt2"], image_size=48, dim=24, layers=2, target_vocab_size=40, context_length=10
    )
}
