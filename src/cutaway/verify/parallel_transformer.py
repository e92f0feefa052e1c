"""Oracle of parallel-transformer: one text at a time, without padding, with loops over heads and tokens."""

from __future__ import annotations

import cmath
import math

import torch
from torch import Tensor, nn

from ..models.parallel_transformer import Config, ParallelTransformer
from . import Oracle
from .hugging import ragged_tokens, where_real


class LoopedTransformer(nn.Module):
    """Network with rotary positions as products of complex numbers. Softmax and normalization are sums."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        d, h = config.dim, config.heads
        self.groups = config.kv_heads or h
        self.size = d // h
        shapes: dict[str, tuple[int, ...]] = {"words": (config.vocab_size, d)}
        for i in range(config.layers):
            shapes |= {
                f"{i}_qkv": ((h + 2 * self.groups) * self.size, d),
                f"{i}_out": (d, d),
                f"{i}_up": (config.ffn_dim or 4 * d, d),
                f"{i}_down": (d, config.ffn_dim or 4 * d),
            }
            for norm in ("norm1",) if config.order == "parallel" else ("norm1", "norm2"):
                shapes |= {f"{i}_{norm}_weight": (d,), f"{i}_{norm}_bias": (d,)}
        if config.order != "post":
            shapes |= {"norm_weight": (d,), "norm_bias": (d,)}
        if config.head == "classes":
            shapes["head"] = (config.num_classes, d)
        elif not config.tie_weights:
            shapes["output"] = (config.vocab_size, d)
        self.w = nn.ParameterDict({name: nn.Parameter(torch.zeros(shape)) for name, shape in shapes.items()})

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Return the logits (N, T, vocab_size), 0 at padding, or (N, classes), of token ids (N, T) and their mask."""
        return torch.stack([self._one(row[real], len(row)) for row, real in zip(tokens, mask)])

    def _one(self, tokens: Tensor, length: int) -> Tensor:
        z = torch.stack([self.w["words"][token] for token in tokens])  # (T, d)
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
        h, n, s = self.config.heads, self.groups, self.size
        made = torch.einsum("id,td->ti", self.w[f"{layer}_qkv"], y)
        heads = []
        for head in range(h):
            shared = head // (h // n)  # the keys and values of this head
            q = self._rotate(made[:, head * s : (head + 1) * s])
            k = self._rotate(made[:, (h + shared) * s : (h + shared + 1) * s])
            v = made[:, (h + n + shared) * s : (h + n + shared + 1) * s]
            rows = []
            for t in range(len(y)):
                # The real part of a · b̄ is the product of two pairs of numbers.
                scores = torch.stack([(q[t] * k[j].conj()).sum().real for j in range(t + 1)]) / math.sqrt(s)
                exponentials = (scores - scores.max()).exp()
                rows.append(torch.einsum("j,jd->d", exponentials / exponentials.sum(), v[: t + 1]))
            heads.append(torch.stack(rows))
        return torch.einsum("di,ti->td", self.w[f"{layer}_out"], torch.cat(heads, 1))

    def _rotate(self, x: Tensor) -> Tensor:
        """Rotate pairs of values as complex numbers, shape (T, s/2): pair i of token t by t / 10000^{2i/s}."""
        turns = [
            [cmath.exp(1j * t / 10000 ** (2 * i / self.size)) for i in range(self.size // 2)] for t in range(len(x))
        ]
        return torch.complex(x[:, 0::2], x[:, 1::2]) * torch.tensor(turns, dtype=torch.complex128)

    def _mlp(self, y: Tensor, layer: int) -> Tensor:
        u = torch.einsum("id,td->ti", self.w[f"{layer}_up"], y)
        gelu = u / 2 * (1 + torch.tanh(math.sqrt(2 / math.pi) * (u + 0.044715 * u**3)))
        return torch.einsum("di,ti->td", self.w[f"{layer}_down"], gelu)

    def _norm(self, z: Tensor, name: str) -> Tensor:
        centred = z - z.sum(1, keepdim=True) / z.shape[1]
        variance = centred.square().sum(1, keepdim=True) / z.shape[1]
        normalized: Tensor = centred / (variance + 1e-5).sqrt() * self.w[f"{name}_weight"] + self.w[f"{name}_bias"]
        return normalized


def looped_transformer(config: Config) -> Oracle:
    """Build the looped network and the key map from our weights. It has no dropout."""
    with torch.device("meta"):
        names = [name for name, _ in ParallelTransformer(config).named_parameters()]
    renames = (
        ("embedding.weight", "words"),
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
    return Oracle(LoopedTransformer(config), ragged_tokens(config.vocab_size), key_map, compared=where_real)


ORACLES = {"parallel-transformer": looped_transformer}
