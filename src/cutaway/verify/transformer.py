"""Oracle of the Transformer: PyTorch's layers, with embeddings and outputs written out."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..models.transformer import PRESETS, Config
from . import Oracle
from .pairs import ragged_pairs


class Straight(nn.Dropout):
    """Dropout that draws in the order of the indices (N, T, dim). PyTorch's attention uses another order."""

    def forward(self, x: Tensor) -> Tensor:
        """Map (…) to (…)."""
        return super().forward(x.contiguous())


class PlainTransformer(nn.Module):
    """Layers of torch.nn.Transformer between products with one-hot rows and with the transposed embedding.

    Those layers have dropout at two more places than the paper's, which is removed. A `torch.nn.Transformer` would add
    a normalization after post-norm layers, so it is not used.
    """

    def __init__(self, config: Config) -> None:
        super().__init__()
        c = self.config = config
        target = c.target_vocab_size or c.vocab_size
        self.words = nn.Parameter(torch.zeros(c.vocab_size, c.dim))
        self.answers = self.words if c.joint_vocab else nn.Parameter(torch.zeros(target, c.dim))
        self.output = self.answers if c.tie_weights else nn.Parameter(torch.zeros(target, c.dim))
        first = c.order == "pre"

        def layers(kind: type[nn.Module], count: int) -> nn.ModuleList:
            made = [
                kind(c.dim, c.heads, c.ffn_dim or 4 * c.dim, c.dropout, batch_first=True, norm_first=first)
                for _ in range(count)
            ]
            for layer in made:
                layer.dropout = nn.Identity()
                for name, child in list(layer.named_children()):
                    if isinstance(child, nn.MultiheadAttention):
                        child.dropout = 0.0
                    elif isinstance(child, nn.Dropout):
                        setattr(layer, name, Straight(c.dropout))
            return nn.ModuleList(made)

        self.reading = layers(nn.TransformerEncoderLayer, c.layers)
        self.writing = layers(nn.TransformerDecoderLayer, c.decoder_layers or c.layers)
        self.norms = nn.ModuleDict({n: nn.LayerNorm(c.dim) for n in ("reading", "writing")} if first else {})

    def forward(self, source: Tensor, mask: Tensor, target: Tensor) -> Tensor:
        """Return the logits (N, S, vocab_size) of source ids (N, T), their mask and the target so far (N, S)."""
        x = self._bottom(self.words, source)
        for layer in self.reading:
            x = layer(x, src_key_padding_mask=~mask)
        x = self._last("reading", x)
        steps = target.shape[1]
        ahead = torch.tensor([[key > query for key in range(steps)] for query in range(steps)])
        y = self._bottom(self.answers, target)
        for layer in self.writing:
            y = layer(y, x, tgt_mask=ahead, memory_key_padding_mask=~mask)
        return torch.einsum("nsd,vd->nsv", self._last("writing", y), self.output)

    def _bottom(self, table: Tensor, tokens: Tensor) -> Tensor:
        """Return √d times the embeddings of the tokens plus the positional encoding."""
        d = self.config.dim
        rows = F.one_hot(tokens, len(table)).to(table.dtype) @ table * d**0.5
        places = [
            [(math.cos if i % 2 else math.sin)(p / 10000 ** ((i - i % 2) / d)) for i in range(d)]
            for p in range(tokens.shape[1])
        ]
        return F.dropout(rows + torch.tensor(places, dtype=table.dtype), self.config.dropout, self.training)

    def _last(self, name: str, x: Tensor) -> Tensor:
        y: Tensor = self.norms[name](x) if name in self.norms else x
        return y


KINDS = ("weight", "bias")
SIDES = {"encoder": "reading", "decoder": "writing"}
PARTS = {  # our names → theirs within a block
    "attention.qkv": "self_attn.in_proj",
    "attention.out": "self_attn.out_proj",
    "cross_attention.out": "multihead_attn.out_proj",
    "mlp.fc1": "linear1",
    "mlp.fc2": "linear2",
    "norm1": "norm1",
    "cross_norm": "norm2",
}


def converted(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return our tensors under PyTorch's names. q and kv of cross-attention are one matrix there."""
    plain = {"embedding.weight": "words", "target_embedding.weight": "answers", "head.unembedding": "output"}
    plain |= {f"{ours}_norm.{kind}": f"norms.{side}.{kind}" for ours, side in SIDES.items() for kind in KINDS}
    found: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if name in plain:
            found[plain[name]] = tensor
            continue
        side, block, rest = name.split(".", 2)
        layer, kind = rest.rsplit(".", 1)
        place = f"{SIDES[side]}.{block}."
        if layer == "cross_attention.kv":
            continue
        if layer == "cross_attention.q":
            both = [tensor, tensors[name.replace(".q.", ".kv.")]]
            found[f"{place}multihead_attn.in_proj_{kind}"] = torch.cat(both)
        elif layer == "norm2":
            found[f"{place}{'norm2' if side == 'encoder' else 'norm3'}.{kind}"] = tensor
        else:
            joint = "_" if PARTS[layer].endswith("in_proj") else "."
            found[f"{place}{PARTS[layer]}{joint}{kind}"] = tensor
    return found


def plain_transformer(config: Config) -> Oracle:
    """Build PyTorch's layers with our weights. Both draw the same dropout in the same order."""
    return Oracle(
        PlainTransformer(config), ragged_pairs(config.vocab_size, config.target_vocab_size), converted=converted
    )


ORACLES = dict.fromkeys(PRESETS, plain_transformer)
REDUCED = {  # except the smallest, which is compared completely
    name: dataclasses.replace(PRESETS[name], vocab_size=50, dim=24, layers=2, heads=PRESETS[name].heads // 4)
    for name in ("transformer-base", "transformer-big")
}
