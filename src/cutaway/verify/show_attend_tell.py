"""Oracle of show, attend and tell: plain PyTorch modules, one image and one word at a time, with sums by einsum."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..models.show_attend_tell import Config
from . import Oracle

SIDES = (14, 10)  # pixels: the map is not square, and pooling drops a row
STEPS = 5


class OneByOne(nn.Module):
    """Network that reads each image's map position by position. Attention is exponentials divided by their sum."""

    def __init__(self, config: Config) -> None:
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


def one_by_one(config: Config) -> Oracle:
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
        images = torch.randn(3, config.in_channels, *SIDES, generator=generator, dtype=torch.float64)
        return images, torch.randint(0, config.target_vocab_size, (3, STEPS), generator=generator)

    return Oracle(OneByOne(config), inputs, key_map)


ORACLES = {"show-attend-tell": one_by_one}
