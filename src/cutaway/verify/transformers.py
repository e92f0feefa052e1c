"""Oracles of Transformers on text and images.

BERT, RoBERTa, DistilBERT, ALBERT, GPT-2, BART and T5 are the networks of transformers with eager attention, and the
Vision Transformers are torchvision's. The Transformer and its encoder have PyTorch's layers, with embeddings and
outputs written out. The parallel Transformer takes one text at a time, without padding, with loops over heads and
tokens. Convolution with attention is a sequence of PyTorch's layers and its multi-head attention.
"""

from __future__ import annotations

import cmath
import dataclasses
import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..checkpoints.huggingface import Family
from ..checkpoints.huggingface.bert import ALBERT_FAMILY as ALBERT
from ..checkpoints.huggingface.bert import BERT_FAMILY as BERT
from ..checkpoints.huggingface.bert import DISTILBERT_FAMILY as DISTILBERT
from ..checkpoints.huggingface.bert import ROBERTA_FAMILY as ROBERTA
from ..checkpoints.huggingface.encoder_decoders import BART_FAMILY, T5_FAMILY
from ..checkpoints.huggingface.gpt2 import GPT2_FAMILY
from ..models import (
    bart,
    bert,
    cnn_attention,
    distilbert,
    gpt2,
    parallel_transformer,
    roberta,
    t5,
    transformer,
    transformer_encoder,
    vit,
)
from . import Oracle, changed, images, ragged_pairs, ragged_tokens
from .huggingface import transformers_oracle, zero_padding
from .libraries import torchvision_key_map, torchvision_models


class WithTypes(nn.Module):
    """Network of transformers with token types: token ids, mask and types to logits."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor, mask: Tensor, types: Tensor) -> Tensor:
        """Return the raw outputs."""
        logits: Tensor = self.model(input_ids=tokens, attention_mask=mask, token_type_ids=types).logits
        return logits


def encoder_oracle(family: Family, name: str) -> Callable[[bert.Config], Oracle]:
    """Return a function of the config that builds the oracle with the head of the config."""

    def build(config: bert.Config) -> Oracle:
        """Build the oracle, with token types if the config has them."""
        padding = max(config.first_position - 1, 0)

        def draw(generator: torch.Generator) -> tuple[Tensor, ...]:
            tokens, mask = ragged_tokens(config.vocab_size)(generator)
            tokens = tokens.where(mask, padding)
            if not config.token_types:
                return tokens, mask
            return tokens, mask, torch.randint(0, config.token_types, tokens.shape, generator=generator)

        found = transformers_oracle(family, name, config, inputs=draw)
        if not config.token_types:
            return found
        model = found.module.model
        assert isinstance(model, nn.Module)
        return dataclasses.replace(
            found, module=WithTypes(model), compared=lambda inputs, outputs: zero_padding(inputs[:2], outputs)
        )

    return build


def transformers_gpt2(name: str, config: gpt2.Config) -> Oracle:
    """Build GPT2LMHeadModel, or GPT2ForSequenceClassification.

    The latter predicts at the last token that is not padding (0).
    """
    return transformers_oracle(GPT2_FAMILY, name, config, pad_token_id=0, bos_token_id=None, eos_token_id=None)


def transformers_bart(name: str, config: bart.Config) -> Oracle:
    """Build BartForConditionalGeneration.

    Padding ids (1) are never drawn, because their embedding has no gradient there.
    """
    return transformers_oracle(BART_FAMILY, name, config, inputs=ragged_pairs(config.vocab_size))


class PreciseRMSNorm(nn.Module):
    """RMS normalization, g · x / √(mean(x²) + ε), in the precision of x.

    That of transformers always averages in float32.
    """

    def __init__(self, weight: nn.Parameter, eps: float) -> None:
        super().__init__()
        self.weight, self.eps = weight, eps

    def forward(self, x: Tensor) -> Tensor:
        """Map (…, dim) to (…, dim)."""
        return self.weight * (x / ((x * x).sum(-1, keepdim=True) / x.shape[-1] + self.eps).sqrt())


def transformers_t5(name: str, config: t5.Config) -> Oracle:
    """Build T5ForConditionalGeneration with normalizations in float64. Sources are long enough for most distances."""
    drawn = ragged_pairs(config.vocab_size, lengths=(40, 4, 7, 1), steps=24)
    # As version 5 of transformers configures a file with a separate output matrix.
    own = {} if config.tie_weights else {"scale_decoder_outputs": False}
    oracle = transformers_oracle(T5_FAMILY, name, config, inputs=drawn, **own)
    for module in list(oracle.module.modules()):
        for part, child in list(module.named_children()):
            if type(child).__name__ == "T5LayerNorm":
                eps: Any = child.variance_epsilon
                setattr(module, part, PreciseRMSNorm(child.weight, eps))  # type: ignore[arg-type]  # its gains
    return oracle


class ContiguousDropout(nn.Dropout):
    """Dropout that draws in the order of the indices (N, T, dim). PyTorch's attention uses another order."""

    def forward(self, x: Tensor) -> Tensor:
        """Map (…) to (…)."""
        return super().forward(x.contiguous())


class PlainTransformer(nn.Module):
    """Layers of torch.nn.Transformer between products with one-hot rows and with the transposed embedding.

    Those layers have dropout at two more places than the paper's, which is removed. A `torch.nn.Transformer` would add
    a normalization after post-norm layers, so it is not used.
    """

    def __init__(self, config: transformer.Config) -> None:
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
                        setattr(layer, name, ContiguousDropout(c.dropout))
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
            [(math.cos if i % 2 else math.sin)(p / self.config.base ** ((i - i % 2) / d)) for i in range(d)]
            for p in range(tokens.shape[1])
        ]
        return F.dropout(rows + torch.tensor(places, dtype=table.dtype), self.config.dropout, self.training)

    def _last(self, name: str, x: Tensor) -> Tensor:
        y: Tensor = self.norms[name](x) if name in self.norms else x
        return y


PARAMETERS = ("weight", "bias")
STACKS = {"encoder": "reading", "decoder": "writing"}
TORCH_LAYERS = {  # our names → theirs within a block
    "attention.qkv": "self_attn.in_proj",
    "attention.out": "self_attn.out_proj",
    "cross_attention.out": "multihead_attn.out_proj",
    "mlp.fc1": "linear1",
    "mlp.fc2": "linear2",
    "norm1": "norm1",
    "cross_norm": "norm2",
}


def _to_pytorch_layers(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return our tensors under PyTorch's names. q and kv of cross-attention are one matrix there."""
    plain = {"embedding.weight": "words", "target_embedding.weight": "answers", "head.unembedding": "output"}
    plain |= {f"{ours}_norm.{kind}": f"norms.{side}.{kind}" for ours, side in STACKS.items() for kind in PARAMETERS}
    found: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if name in plain:
            found[plain[name]] = tensor
            continue
        side, block, rest = name.split(".", 2)
        layer, kind = rest.rsplit(".", 1)
        place = f"{STACKS[side]}.{block}."
        if layer == "cross_attention.kv":
            continue
        if layer == "cross_attention.q":
            both = [tensor, tensors[name.replace(".q.", ".kv.")]]
            found[f"{place}multihead_attn.in_proj_{kind}"] = torch.cat(both)
        elif layer == "norm2":
            found[f"{place}{'norm2' if side == 'encoder' else 'norm3'}.{kind}"] = tensor
        else:
            joint = "_" if TORCH_LAYERS[layer].endswith("in_proj") else "."
            found[f"{place}{TORCH_LAYERS[layer]}{joint}{kind}"] = tensor
    return found


def plain_transformer(config: transformer.Config) -> Oracle:
    """Build PyTorch's layers with our weights. Both draw the same dropout in the same order."""
    return Oracle(
        PlainTransformer(config),
        ragged_pairs(config.vocab_size, config.target_vocab_size),
        converted=_to_pytorch_layers,
    )


class Scale(nn.Module):
    """Multiplication with a constant."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        """Return the product."""
        return x * self.factor


class PlainEncoder(nn.Module):
    """`nn.TransformerEncoder` between an embedding with sinusoids and a linear head, one token at a time.

    Its layers have dropout at two more places than the paper's, which is removed. α₁ and α₂ multiply the outputs of its
    dropouts, and without normalization its normalizations are identities.
    """

    def __init__(self, config: transformer_encoder.Config) -> None:
        super().__init__()
        c = self.config = config
        normalized = c.norm == "layer"
        layer = nn.TransformerEncoderLayer(
            c.dim, c.heads, c.ffn_dim or 4 * c.dim, c.dropout, batch_first=True, norm_first=c.order == "pre"
        )
        layer.self_attn.dropout = 0.0
        layer.dropout = nn.Identity()  # type: ignore[assignment]  # within the MLP
        for number, strength in enumerate(c.strengths, 1):
            setattr(layer, f"dropout{number}", nn.Sequential(ContiguousDropout(c.dropout), Scale(strength)))
            if not normalized:
                identity = nn.Identity()
                identity.eps = 1e-5  # type: ignore[assignment]  # the layer compares both
                setattr(layer, f"norm{number}", identity)
        norm = nn.LayerNorm(c.dim) if normalized else None
        self.encoder = nn.TransformerEncoder(layer, c.layers, norm, enable_nested_tensor=False)
        self.table = nn.Parameter(torch.zeros(c.vocab_size or c.in_features, c.dim))
        self.bias = None if c.vocab_size else nn.Parameter(torch.zeros(c.dim))
        self.head = nn.Linear(c.dim, c.num_classes)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the logits (N, classes) or (N, T, tags) of token ids (N, T) or numbers (N, T, F)."""
        mask = torch.ones(x.shape[:2], dtype=torch.bool) if mask is None else mask
        d = self.config.dim
        if self.bias is None:
            z = F.one_hot(x, len(self.table)).to(self.table.dtype) @ self.table * d**0.5
        else:
            z = torch.einsum("ntf,fd->ntd", x, self.table) + self.bias
        places = [self._place(sum(row[:t].tolist())) for row in mask for t in range(x.shape[1])]
        z = z + torch.tensor(places, dtype=z.dtype).view(z.shape)
        z = F.dropout(z, self.config.dropout, self.training)
        z = self.encoder(z, src_key_padding_mask=~mask)
        if self.config.head == "classes":
            texts = [row[real] for row, real in zip(z, mask)]
            z = torch.stack([sum(t) / len(t) if self.config.pooling == "mean" else t[0] for t in texts])
        logits: Tensor = self.head(z)
        return logits

    def _place(self, p: int) -> list[float]:
        """Return the positional encoding of position p."""
        d, base = self.config.dim, self.config.base
        return [(math.cos if i % 2 else math.sin)(p / base ** ((i - i % 2) / d)) for i in range(d)]


def plain_encoder(config: transformer_encoder.Config) -> Oracle:
    """Build PyTorch's encoder with our weights. Tags of padding are not compared."""

    def converted(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        found: dict[str, Tensor] = {}
        for name, tensor in tensors.items():
            if name == "embedding.weight":
                found["table"] = tensor if config.vocab_size else tensor.mT
            elif name == "embedding.bias":
                found["bias"] = tensor
            elif name.startswith("blocks."):
                _, block, rest = name.split(".", 2)
                layer, kind = rest.rsplit(".", 1)
                joint = "_" if layer == "attention.qkv" else "."
                found[f"encoder.layers.{block}.{TORCH_LAYERS.get(layer, layer)}{joint}{kind}"] = tensor
            else:
                found[name.replace("norm.", "encoder.norm.")] = tensor
        return found

    if config.vocab_size:
        tags = zero_padding if config.head == "tags" else None
        return Oracle(PlainEncoder(config), ragged_tokens(config.vocab_size), converted=converted, compared=tags)
    return Oracle(PlainEncoder(config), images(4, 7, config.in_features), converted=converted)


class LoopedTransformer(nn.Module):
    """Network with rotary positions as products of complex numbers. Softmax and normalization are sums.

    ALiBi's biases are computed as in the paper, one distance at a time; a bilinear score is xᵀ W y.
    """

    def __init__(self, config: parallel_transformer.Config) -> None:
        super().__init__()
        self.config = config
        d, h = config.dim, config.heads
        self.groups = config.kv_heads or h
        self.size = d // h
        shapes: dict[str, tuple[int, ...]] = {"words": (config.vocab_size, d)}
        for i in range(config.layers):
            rows = h * d + d if config.score == "bilinear" else (h + 2 * self.groups) * self.size
            shapes |= {
                f"{i}_qkv": (rows, d),
                f"{i}_out": (d, d),
                f"{i}_up": (config.ffn_dim or 4 * d, d),
                f"{i}_down": (d, config.ffn_dim or 4 * d),
            }
            norms = ("norm1",) if config.order == "parallel" else ("norm1", "norm2")
            for norm in norms if config.norm == "layer" else ():
                shapes |= {f"{i}_{norm}_weight": (d,), f"{i}_{norm}_bias": (d,)}
        if config.order != "post" and config.norm == "layer":
            shapes |= {"norm_weight": (d,), "norm_bias": (d,)}
        if config.positions == "learned":
            shapes["positions"] = (config.context_length, d)
        if config.head == "classes":
            shapes["head"] = (config.num_classes, d)
        elif not config.tie_weights:
            shapes["output"] = (config.vocab_size, d)
        self.w = nn.ParameterDict({name: nn.Parameter(torch.zeros(shape)) for name, shape in shapes.items()})

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Return the logits (N, T, vocab_size), 0 at padding, or (N, classes), of token ids (N, T) and their mask."""
        return torch.stack([self._one(row[real], len(row)) for row, real in zip(tokens, mask)])

    def _one(self, tokens: Tensor, length: int) -> Tensor:
        """Return the logits of one text, with zeros up to `length`."""
        z = torch.stack([self.w["words"][token] for token in tokens])  # (T, d)
        if self.config.positions == "learned":
            z = z + self.w["positions"][: len(z)]
        elif self.config.positions == "sinusoids":
            angles = [[cmath.exp(1j * angle) for angle in self._angles(t, z.shape[1])] for t in range(len(z))]
            pairs = [[value for turn in row for value in (turn.imag, turn.real)] for row in angles]
            z = z * math.sqrt(z.shape[1]) + torch.tensor(pairs, dtype=z.dtype)
        first, second = self.config.strengths
        for i in range(self.config.layers):
            if self.config.order == "parallel":
                y = self._norm(z, f"{i}_norm1")
                z = z + first * self._attention(y, i) + second * self._mlp(y, i)
            elif self.config.order == "pre":
                z = z + first * self._attention(self._norm(z, f"{i}_norm1"), i)
                z = z + second * self._mlp(self._norm(z, f"{i}_norm2"), i)
            else:
                z = self._norm(z + first * self._attention(z, i), f"{i}_norm1")
                z = self._norm(z + second * self._mlp(z, i), f"{i}_norm2")
        if self.config.order != "post":
            z = self._norm(z, "norm")
        if self.config.head == "classes":
            return torch.einsum("cd,d->c", self.w["head"], z[-1])
        logits = torch.einsum("vd,td->tv", self.w["words" if self.config.tie_weights else "output"], z)
        return torch.cat([logits, logits.new_zeros(length - len(logits), logits.shape[1])])

    def _attention(self, y: Tensor, layer: int) -> Tensor:
        """Compute attention one head and one query at a time, with the keys up to the position of the query."""
        h, n, s, d = self.config.heads, self.groups, self.size, self.config.dim
        bilinear = self.config.score == "bilinear"
        made = torch.einsum("id,td->ti", self.w[f"{layer}_qkv"], y)
        heads = []
        for head in range(h):
            shared = head // (h // n)  # the keys and values of this head
            if bilinear:
                q = self._rotate(torch.stack([self.w[f"{layer}_qkv"][head * d : (head + 1) * d] @ x for x in y]))
                k = self._rotate(y)
                v = made[:, h * d + head * s : h * d + (head + 1) * s]
            else:
                q = self._rotate(made[:, head * s : (head + 1) * s])
                k = self._rotate(made[:, (h + shared) * s : (h + shared + 1) * s])
                v = made[:, (h + n + shared) * s : (h + n + shared + 1) * s]
            rows = []
            for t in range(len(y)):
                # The real part of a · b̄ is the product of two pairs of numbers.
                scores = torch.stack([(q[t] * k[j].conj()).sum().real for j in range(t + 1)]) / math.sqrt(s)
                if self.config.positions == "alibi":
                    scores = scores + self._slope(head) * torch.tensor([j - t for j in range(t + 1)])
                exponentials = (scores - scores.max()).exp()
                rows.append(torch.einsum("j,jd->d", exponentials / exponentials.sum(), v[: t + 1]))
            heads.append(torch.stack(rows))
        return torch.einsum("di,ti->td", self.w[f"{layer}_out"], torch.cat(heads, 1))

    def _rotate(self, x: Tensor) -> Tensor:
        """Rotate pairs of values as complex numbers, shape (T, s/2): pair i of token t by t / base^{2i/s}.

        Without rotary positions the numbers remain as they are.
        """
        if self.config.positions != "rotary":
            return x
        turns = [[cmath.exp(1j * angle) for angle in self._angles(t, x.shape[1])] for t in range(len(x))]
        return torch.complex(x[:, 0::2], x[:, 1::2]) * torch.tensor(turns, dtype=torch.complex128)

    def _angles(self, t: int, size: int) -> list[float]:
        return [t / self.config.base ** (2 * i / size) for i in range(size // 2)]

    def _slope(self, head: int) -> float:
        """Return ALiBi's slope: a geometric sequence from 2^{−8/n} with that ratio, n the smaller power of two."""
        power = 1
        while 2 * power <= self.config.heads:
            power *= 2
        if head < power:
            return math.pow(2, -8 / power) ** (head + 1)
        return math.pow(2, -4 / power) ** (2 * (head - power) + 1)

    def _mlp(self, y: Tensor, layer: int) -> Tensor:
        u = torch.einsum("id,td->ti", self.w[f"{layer}_up"], y)
        gelu = u / 2 * (1 + torch.tanh(math.sqrt(2 / math.pi) * (u + 0.044715 * u**3)))
        return torch.einsum("di,ti->td", self.w[f"{layer}_down"], gelu)

    def _norm(self, z: Tensor, name: str) -> Tensor:
        if self.config.norm == "none":
            return z
        centred = z - z.sum(1, keepdim=True) / z.shape[1]
        variance = centred.square().sum(1, keepdim=True) / z.shape[1]
        normalized: Tensor = centred / (variance + 1e-5).sqrt() * self.w[f"{name}_weight"] + self.w[f"{name}_bias"]
        return normalized


def looped_transformer(config: parallel_transformer.Config) -> Oracle:
    """Build the looped network and the key map from our weights. It has no dropout."""
    with torch.device("meta"):
        names = [name for name, _ in parallel_transformer.ParallelTransformer(config).named_parameters()]
    renames = (
        ("embedding.weight", "words"),
        ("positions.weight", "positions"),
        ("head.weight", "head"),
        ("head.unembedding", "output"),
        ("blocks.", ""),
        ("attention.qkv.weight", "qkv"),
        ("attention.out.weight", "out"),
        ("mlp.fc1.weight", "up"),
        ("mlp.fc2.weight", "down"),
        (".", "_"),
    )
    key_map = {}
    for name in names:
        theirs = name
        for ours, there in renames:
            theirs = theirs.replace(ours, there)
        key_map[name] = f"w.{theirs}"
    return Oracle(LoopedTransformer(config), ragged_tokens(config.vocab_size), key_map, compared=zero_padding)


def torchvision_vit(config: vit.Config) -> Oracle:
    """Build torchvision's network, with other input channels or mean pooling of patches if `config` has them."""
    vision_transformer = torchvision_models("vision_transformer")
    size = config.grid * config.patch_size
    module = vision_transformer.VisionTransformer(
        image_size=size,
        patch_size=config.patch_size,
        num_layers=config.layers,
        num_heads=config.heads,
        hidden_dim=config.dim,
        mlp_dim=config.ffn_dim,
        **changed(config, vit.PRESETS["vit-base/16"], dropout="dropout"),
        num_classes=config.num_classes,
    )
    if config.in_channels != 3:
        module.conv_proj = nn.Conv2d(config.in_channels, config.dim, config.patch_size, stride=config.patch_size)
    if config.pooling == "mean":
        module = MeanPooledViT(module)
    # All of torchvision's Vision Transformers have the names of vit_b_16.
    key_map = torchvision_key_map("vit-base/16", vit.ViT, config, "vit." if config.pooling == "mean" else "")
    batch = 1 if size > 64 else 2  # one large image is enough, to save time
    return Oracle(module, images(batch, config.in_channels, size, size), key_map)


class MeanPooledViT(nn.Module):
    """Encoder of torchvision without a class token. Its head takes the mean of the patches."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        del network.class_token
        network.encoder.pos_embedding = nn.Parameter(network.encoder.pos_embedding[:, 1:].detach())  # type: ignore[index,union-attr]
        self.vit = network

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits (N, classes)."""
        tokens = self.vit.encoder(self.vit.conv_proj(x).flatten(2).mT.contiguous())  # type: ignore[operator]
        logits: Tensor = self.vit.heads(tokens.mean(1))  # type: ignore[operator]
        return logits


class SequentialCNNAttention(nn.Module):
    """Sequence of layers up to the feature map, followed by `nn.MultiheadAttention` with tokens first."""

    def __init__(self, config: cnn_attention.Config) -> None:
        super().__init__()
        self.map = nn.Sequential()
        channels = config.in_channels
        for i, width in enumerate(config.widths):
            if i > 0:
                self.map.append(nn.MaxPool2d(2))
            self.map.extend([nn.Conv2d(channels, width, 3, padding="same", bias=False), nn.BatchNorm2d(width)])
            self.map.append(nn.ReLU())
            channels = width
        self.norm = nn.LayerNorm(channels)
        self.attention = nn.MultiheadAttention(channels, config.heads)
        self.head = nn.Linear(channels, config.num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits (N, classes) of images (N, C, H, W)."""
        tokens = torch.stack(list(self.map(x).flatten(2).unbind(2)))  # (T, N, D)
        normalized = self.norm(tokens)
        mixed, _ = self.attention(normalized, normalized, normalized, need_weights=True)
        logits: Tensor = self.head(torch.mean(tokens + mixed, dim=0))
        return logits


def sequential_cnn_attention(config: cnn_attention.Config) -> Oracle:
    """Build the network and the key map from our weights."""
    with torch.device("meta"):
        names = list(cnn_attention.CNNAttention(config).state_dict())
    key_map = {name: name for name in names} | {
        "attention.qkv.weight": "attention.in_proj_weight",
        "attention.qkv.bias": "attention.in_proj_bias",
        "attention.out.weight": "attention.out_proj.weight",
        "attention.out.bias": "attention.out_proj.bias",
    }
    for name in names:
        part, _, rest = name.partition(".")
        if part in ("convs", "bns"):
            i, _, tensor = rest.partition(".")
            key_map[name] = f"map.{4 * int(i) + (part == 'bns')}.{tensor}"  # conv, BN, ReLU, pool; conv, …
    return Oracle(SequentialCNNAttention(config), images(2, config.in_channels, 17, 20), key_map)


ORACLES = {
    **{name: encoder_oracle(family, name) for family in (BERT, ROBERTA, DISTILBERT, ALBERT) for name in family.presets},
    **{name: functools.partial(transformers_gpt2, name) for name in gpt2.PRESETS},
    **{name: functools.partial(transformers_bart, name) for name in bart.PRESETS},
    **{name: functools.partial(transformers_t5, name) for name in t5.PRESETS},
    **dict.fromkeys(transformer.PRESETS, plain_transformer),
    **dict.fromkeys(transformer_encoder.PRESETS, plain_encoder),
    "parallel-transformer": looped_transformer,
    **dict.fromkeys(vit.PRESETS, torchvision_vit),
    "cnn-attention": sequential_cnn_attention,
}

REDUCED = {
    # Fewer words and layers, and the same number of heads, with two dimensions each. ALBERT is compared completely.
    **{
        name: dataclasses.replace(preset, vocab_size=50, context_length=16, dim=2 * preset.heads, layers=2)
        for name, preset in (bert.PRESETS | roberta.PRESETS | distilbert.PRESETS | gpt2.PRESETS | bart.PRESETS).items()
    },
    **{
        name: dataclasses.replace(preset, vocab_size=50, dim=24, layers=2, head_dim=5)
        for name, preset in t5.PRESETS.items()
    },
    # The smallest is compared completely.
    **{
        name: dataclasses.replace(
            transformer.PRESETS[name], vocab_size=50, dim=24, layers=2, heads=transformer.PRESETS[name].heads // 4
        )
        for name in ("transformer-base", "transformer-big")
    },
    "transformer-encoder-base": dataclasses.replace(
        transformer_encoder.PRESETS["transformer-encoder-base"], vocab_size=50, dim=24, layers=3, heads=2
    ),
    # vit-tiny/16 is compared completely; the others have more and wider blocks of the same kind.
    **{
        name: dataclasses.replace(
            config,
            image_size=2 * config.patch_size,
            dim=16 * config.heads,
            layers=3,
            ffn_dim=64 * config.heads,
            num_classes=10,
        )
        for name, config in vit.PRESETS.items()
        if name != "vit-tiny/16"
    },
}
