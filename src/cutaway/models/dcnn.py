"""The dynamic convolutional network for sentences: wide convolutions and k-max pooling with k by the sentence length.

After N. Kalchbrenner, E. Grefenstette, P. Blunsom, A convolutional neural network for modelling sentences, 2014 (ACL).
<https://arxiv.org/abs/1404.2188>

    layer l = 1 … L:   F_j = Σ_k m_{jk} ∗ F_k'          wide convolution of each row with filters of its own
                       F_j ← F_j[2r] + F_j[2r + 1]      folding: neighbouring rows are added
                       F_j ← tanh(k-max_{k_l}(F_j) + b_j)
    k_l = max(k_top, ⌈(L − l)/L · s⌉)                    of a sentence of s words; k_L = k_top
    logits = W vec(F) + b_W

The k largest numbers of each row keep their order.

Shapes, from token ids (N, T), d = 48 rows, 6 and 14 feature maps, windows of 7 and 5 words, k_top = 4:
    embedding                    (N, 1 map, 48 rows, T)
    wide convolution 7           (N, 6, 48, T + 6), folded (N, 6, 24, T + 6), k₁ = max(4, ⌈T/2⌉): (N, 6, 24, k₁)
    wide convolution 5           (N, 14, 24, k₁ + 4), folded (N, 14, 12, k₁ + 4), k₂ = 4: (N, 14, 12, 4)
    linear                       (N, classes)

The sentences of a batch differ in s and so in k_l: numbers beyond k_l are masked, as padding is.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ..core.errors import InputShapeError, check_value
from ..core.spec import Classes, TextSpec, Value
from ..nn.masks import is_right_padded, normalize_padding_mask
from .base import BaseModel
from .card import Card, Divergence, Published, Result
from .config import ValidatedConfig, fraction, min_value, positive


@dataclass(frozen=True)
class Config(ValidatedConfig):
    """Configuration of the network."""

    vocab_size: int = min_value(2, 10_000)  # size of the vocabulary
    dim: int = positive(48)  # d, dimension of a word vector: rows of the sentence matrix
    feature_maps: tuple[int, ...] = positive((6, 14))  # of each layer
    kernel_sizes: tuple[int, ...] = positive((7, 5))  # words that each layer's filters see
    k_top: int = positive(4)  # numbers that the last layer keeps of each row
    dropout: float = fraction(0.5)  # dropout rate of the numbers that the last layer keeps
    num_classes: int = positive(2)  # size of the output

    def __post_init__(self) -> None:
        super().__post_init__()
        check_value(
            len(self.kernel_sizes) == len(self.feature_maps),
            "kernel_sizes",
            self.kernel_sizes,
            f"one for each of {len(self.feature_maps)} layers",
        )
        halves = 2 ** len(self.feature_maps)
        check_value(self.dim % halves == 0, "dim", self.dim, f"a multiple of {halves}: each layer folds it")
        check_value(
            min(self.kernel_sizes) >= self.k_top,
            "kernel_sizes",
            self.kernel_sizes,
            f"at least k_top, {self.k_top}: a sentence of one word leaves as many numbers as the window has words",
        )

    @classmethod
    def for_spec(cls, preset: Config, spec: TextSpec) -> Config:
        """Return the preset with the vocabulary and classes of `spec`."""
        return dataclasses.replace(preset, vocab_size=spec.vocab_size, num_classes=spec.target.outputs)


class Layer(nn.Module):
    """Wide convolution row by row, folding, dynamic k-max pooling, bias and tanh."""

    def __init__(self, maps: tuple[int, int], rows: int, window: int) -> None:
        super().__init__()
        self.rows, self.window = rows, window
        # One group for each row: its filters see that row of all maps, and no other.
        self.conv = nn.Conv1d(rows * maps[0], rows * maps[1], window, padding=window - 1, groups=rows, bias=False)
        self.bias = nn.Parameter(torch.zeros(rows // 2, maps[1]))

    def forward(self, x: Tensor, lengths: Tensor, kept: Tensor, most: int | None = None) -> Tensor:
        """Map (N, d · maps, T), of which `lengths` (N,) are real, to (N, d/2 · maps', max k), of which `kept` (N,) are
        real.

        The others are 0. `most` is the largest k, if known. The channels of a row are adjacent.
        """
        c: Tensor = self.conv(x)  # (N, d · maps', T + m − 1)
        folded = c.view(c.shape[0], self.rows // 2, 2, -1, c.shape[2]).sum(2)  # (N, d/2, maps', T + m − 1)
        pooled, real = batched_k_max(folded, lengths + self.window - 1, kept, most)
        return (torch.tanh(pooled + self.bias[:, :, None]) * real[:, None, None]).flatten(1, 2)


def batched_k_max(x: Tensor, lengths: Tensor, k: Tensor, most: int | None = None) -> tuple[Tensor, Tensor]:
    """Return the k largest numbers of each row in their order, with a k and a length for each example.

    Args:
        x: Numbers, shape (N, …, T).
        lengths: Number of real ones of each example, shape (N,).
        k: Number to keep of each example, shape (N,), from 1 to the length.
        most: The largest k, if known. In an exported graph the default is T.

    Returns:
        The numbers, shape (N, …, max k), and a mask (N, max k) that is True where a number is real; the others are 0.
    """
    one = (slice(None), *(None,) * (x.ndim - 2))  # (N,) beside (N, …, T)
    place = torch.arange(x.shape[-1], device=x.device)
    held = x.masked_fill(place >= lengths[one][..., None], float("-inf"))
    if most is None:
        most = x.shape[-1] if torch.compiler.is_exporting() else int(k.max())
    # A stable sort: of equal numbers the first are taken. ONNX has no argument for it; its sort is stable.
    if torch.compiler.is_exporting():
        ranked = held.sort(dim=-1, descending=True)
    else:
        ranked = held.sort(dim=-1, descending=True, stable=True)
    first = ranked.indices[..., :most]
    real = place[:most] < k[:, None]  # (N, max k)
    # Surplus numbers are moved to the end, so that sorting the positions restores the order of the others.
    spread = real[one]
    order = first.masked_fill(~spread, x.shape[-1]).sort(dim=-1).values
    taken = x.gather(-1, order.clamp(max=x.shape[-1] - 1))
    return taken.masked_fill(~spread, 0), real


class DCNN(BaseModel):
    """A network that maps token ids of shape (N, T) to logits of shape (N, classes)."""

    takes = (TextSpec,)
    targets = (Classes, Value)

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab_size, config.dim)
        self.layers = nn.ModuleList()
        rows, before = config.dim, 1
        for maps, window in zip(config.feature_maps, config.kernel_sizes):
            self.layers.append(Layer((before, maps), rows, window))
            rows, before = rows // 2, maps
        self.dropout = nn.Dropout(config.dropout)
        self.fc = nn.Linear(rows * before * config.k_top, config.num_classes)

    def features(self, tokens: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the input of the head: the k_top numbers of each row of each map, (N, rows · maps · k_top).

        `mask` (N, T) is True where a token is real; None where all are. Raises ModelError if padding precedes a real
        token.
        """
        mask = normalize_padding_mask(mask, tokens.shape)
        if mask is None:
            mask = torch.ones_like(tokens, dtype=torch.bool)
        elif not torch.compiler.is_compiling() and not is_right_padded(mask):
            raise InputShapeError(
                "dcnn reads as many tokens as are real from the left, and a row of this mask has padding before a real "
                "one: padding must stand after the last."
            )
        words = lengths = mask.sum(1)  # s, (N,)
        x = (self.embedding(tokens) * mask[:, :, None]).transpose(1, 2)  # (N, d, T)
        count = len(self.layers)
        for number, layer in enumerate(self.layers, 1):
            dynamic = -(-(count - number) * words // count)  # ⌈(L − l)/L · s⌉
            kept = dynamic.clamp(min=self.config.k_top)  # k_l
            x, lengths = layer(x, lengths, kept, self.config.k_top if number == count else None), kept
        features: Tensor = x.flatten(1)
        return features  # (N, rows · maps · k_top)

    def forward(self, tokens: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the logits, shape (N, classes), of token ids (N, T)."""
        logits: Tensor = self.fc(self.dropout(self.features(tokens, mask)))
        return logits


Model = DCNN

PRESETS = {"dcnn": Config()}

CARD = Card(
    title="A convolutional neural network for modelling sentences",
    authors="N. Kalchbrenner, E. Grefenstette, P. Blunsom",
    year=2014,
    link="https://arxiv.org/abs/1404.2188",
    family="words",
    equation="F_j = tanh(k-max(fold(Σ_k m_jk ∗ F_k)) + b_j), k_l = max(k_top, ⌈(L − l)/L · s⌉)",
    oracle="the equations for one sentence at a time, with the pooling of `nn/textbook/pooling.py`",
    published={
        "dcnn": Published(
            493_754, None, (), "computed from the paper's sizes for sentiment of two classes, with 10 000 words"
        )
    },
    divergences=(
        Divergence(
            "length that k_l is computed from",
            paper="s, the words of the sentence",
            here="the same, for each sentence of a batch separately",
            common="often the longest of the batch, so that the batch decides",
        ),
        Divergence(
            "training",
            paper="Adagrad in batches, L2 on all weights and dropout before the head; labels of phrases too",
            here="the settings of the card; labels of whole sentences where the data has no others",
        ),
    ),
    results={
        "dcnn": (Result("SST-2", {"accuracy": 86.8}, "test set", "the paper, table 1"),),
    },
    settings={
        "dcnn": {
            "optimizer": "adagrad",
            "lr": 0.05,
            "weight_decay": 1e-4,
            "schedule": "constant",
            "batch_size": 50,
            "epochs": 20,
            "patience": 5,
        }
    },
)
