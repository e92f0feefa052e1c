"""Oracles of image captioning.

ViT with GPT-2 is the VisionEncoderDecoderModel of transformers with eager attention. Show, attend and tell consists of
plain PyTorch modules, one image and one word at a time, with sums by einsum.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..models import show_attend_tell, vit_gpt2
from . import Oracle
from .libraries import transformers_library

CAPTION_STEPS = 6  # tokens of the caption so far
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
OUTER = {
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


def transformers_vit_gpt2(config: vit_gpt2.Config) -> Oracle:
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
        return images, torch.randint(0, config.target_vocab_size, (2, CAPTION_STEPS), generator=generator)

    return Oracle(Captioner(module), inputs, converted=_to_transformers)


def _to_transformers(tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """Return our tensors under their names: the encoder's qkv as three matrices, the decoder's matrices transposed."""
    found: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        side, _, rest = name.partition(".")
        if name in OUTER:
            found[f"model.{OUTER[name]}"] = tensor
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


IMAGE_SIZE = (14, 10)  # pixels: the map is not square, and pooling drops a row
WORDS = 5


class PlainShowAttendTell(nn.Module):
    """Network that reads each image's map position by position. Attention is exponentials divided by their sum."""

    def __init__(self, config: show_attend_tell.Config) -> None:
        super().__init__()
        self.config = config
        layers: list[nn.Module] = []
        before = config.in_channels
        for i, width in enumerate(config.widths):
            layers += [nn.MaxPool2d(2)] if i else []
            for _ in range(config.stage_layers):
                layers += [nn.Conv2d(before, width, 3, padding="same", bias=False), nn.BatchNorm2d(width), nn.ReLU()]
                before = width
        self.cnn = nn.Sequential(*layers)
        e, n, a, d = config.embedding_dim, config.hidden_dim, config.attention_dim, before
        self.cell = nn.LSTMCell(e + d, n)
        shapes = {
            "words": (config.target_vocab_size, e),
            "f_c": (n, d), "f_c_bias": (n,), "f_h": (n, d), "f_h_bias": (n,),
            "query": (a, n), "key": (a, d), "key_bias": (a,), "score": (a,),
            "gate": (1, n), "gate_bias": (1,),
            "L_h": (e, n), "L_h_bias": (e,), "L_z": (e, d),
            "L_o": (config.target_vocab_size, e), "L_o_bias": (config.target_vocab_size,),
        }  # fmt: skip
        self.w = nn.ParameterDict({name: nn.Parameter(torch.zeros(shape)) for name, shape in shapes.items()})

    def forward(self, images: Tensor, target: Tensor) -> Tensor:
        """Return the logits (N, S, vocab_size) of images (N, C, H, W) and the caption so far (N, S)."""
        maps = self.cnn(images)  # all images at once, for the statistics of normalization
        ones = torch.ones(*target.shape, self.config.embedding_dim, dtype=torch.float64)
        kept = F.dropout(ones, self.config.dropout, self.training)  # for the words and for the input of the head
        return torch.stack([self._one(*example) for example in zip(maps, target, kept)])

    def _one(self, grid: Tensor, target: Tensor, kept: Tensor) -> Tensor:
        """Return the logits (S, vocab_size) of one image, from its map (D, H, W)."""
        places = [self._at(grid, row, column) for row in range(grid.shape[1]) for column in range(grid.shape[2])]
        w, mean = self.w, sum(places, torch.zeros_like(places[0])) / len(places)
        c, h = (torch.tanh(torch.einsum("nd,d->n", w[f], mean) + w[f"{f}_bias"]) for f in ("f_c", "f_h"))
        logits = []
        for token, keeps in zip(target, kept):
            word = w["words"][token] * keeps
            energies = []
            for place in places:
                compared = torch.einsum("an,n->a", w["query"], h) + torch.einsum("ad,d->a", w["key"], place)
                energies.append(torch.dot(w["score"], torch.tanh(compared + w["key_bias"])))
            powers = torch.stack(energies).exp()
            context = sum((x * place for x, place in zip(powers, places)), torch.zeros_like(mean)) / powers.sum()
            context = context / (1 + torch.exp(-(torch.einsum("on,n->o", w["gate"], h) + w["gate_bias"])))
            h, c = (x[0] for x in self.cell(torch.cat([word, context])[None], (h[None], c[None])))
            deep = word + torch.einsum("en,n->e", w["L_h"], h) + w["L_h_bias"]
            deep = (deep + torch.einsum("ed,d->e", w["L_z"], context)) * keeps
            logits.append(torch.einsum("ve,e->v", w["L_o"], deep) + w["L_o_bias"])
        return torch.stack(logits)

    @staticmethod
    def _at(grid: Tensor, row: int, column: int) -> Tensor:
        """Return a position of the map (D, H, W) with its encoding.

        One half of the values encodes the row and the other the column.
        """
        halves = []
        half = grid.shape[0] // 2
        for position, size in ((row, half), (column, grid.shape[0] - half)):
            angles = [position / 10000 ** ((k - k % 2) / size) for k in range(size)]
            halves += [math.cos(x) if k % 2 else math.sin(x) for k, x in enumerate(angles)]
        return grid[:, row, column] + torch.tensor(halves, dtype=grid.dtype)


def plain_show_attend_tell(config: show_attend_tell.Config) -> Oracle:
    """Build the plain modules and the key map from our weights."""
    key_map = {"embedding.weight": "w.words", "attention.query.weight": "w.query", "attention.v": "w.score"}
    key_map |= {"read_context.weight": "w.L_z"}
    for ours, theirs in (
        ("initial_c", "f_c"), ("initial_h", "f_h"), ("attention.key", "key"), ("gate", "gate"), ("read_state", "L_h"),
        ("head", "L_o"),
    ):  # fmt: skip
        key_map |= {f"{ours}.weight": f"w.{theirs}", f"{ours}.bias": f"w.{theirs}_bias"}
    for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
        key_map[f"decoder.{kind}"] = f"cell.{kind}"
    at = 0
    for i in range(len(config.widths)):
        at += i > 0  # the halving
        for k in range(config.stage_layers):
            key_map[f"stages.{i}.convs.{k}.weight"] = f"cnn.{at}.weight"
            for kind in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked"):
                key_map[f"stages.{i}.bns.{k}.{kind}"] = f"cnn.{at + 1}.{kind}"
            at += 3

    def inputs(generator: torch.Generator) -> tuple[Tensor, ...]:
        images = torch.randn(3, config.in_channels, *IMAGE_SIZE, generator=generator, dtype=torch.float64)
        return images, torch.randint(0, config.target_vocab_size, (3, WORDS), generator=generator)

    return Oracle(PlainShowAttendTell(config), inputs, key_map)


ORACLES = {
    **dict.fromkeys(vit_gpt2.PRESETS, transformers_vit_gpt2),
    "show-attend-tell": plain_show_attend_tell,
}

REDUCED = {
    # vit-gpt2-small is compared completely; the other has fewer words and layers, and as many heads of two dimensions.
    "vit-gpt2": dataclasses.replace(
        vit_gpt2.PRESETS["vit-gpt2"], image_size=48, dim=24, layers=2, target_vocab_size=40, context_length=10
    ),
}
