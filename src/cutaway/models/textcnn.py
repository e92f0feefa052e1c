"""A convolutional network for sentences: filters over windows of words, the maximum of each over time.

After Y. Kim, Convolutional neural networks for sentence classification, 2014 (EMNLP). <https://arxiv.org/abs/1408.5882>

    c_i = ReLU(w · x_{i:i+h−1} + b)         a filter w ∈ R^{h×k} at the window of h words that begins at word i
    ĉ = max_i c_i                           one feature for each filter
    logits = W (ẑ ∘ r) + b_W                ẑ all features, r a Bernoulli mask (dropout); ‖W_j‖₂ ≤ 3 after each update

Shapes, for token ids (N, T) and vectors of k = 300 numbers:
    embedding                          (N, T, 300)
    windows of 3, 4 and 5 words        (N, 100, T + h − 1) each, maximum over time (N, 100)
    features                           (N, 300)
    linear                             (N, classes)

`channels`: `random` learns the vectors from U(−0.25, 0.25); `static` keeps those that were loaded (`vectors=FILE`);
`non-static` loads and learns them; `two-channel` sums the results of one channel of each kind. With one set of filters
for both, that is the filter of the sum of the two vectors.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..core.spec import Classes, TextSpec, Value
from ..nn.masks import normalize_padding_mask
from .base import BaseModel
from .card import Card, Divergence, Published, Result
from .config import ValidatedConfig, choice, fraction, min_value, positive

CHANNELS = ("random", "static", "non-static", "two-channel")
RANGE = 0.25  # bound of the uniform initialization of word vectors


@dataclass(frozen=True)
class Config(ValidatedConfig):
    """Configuration of the network."""

    vocab_size: int = min_value(2, 10_000)  # size of the vocabulary
    dim: int = positive(300)  # dimension of the word vectors
    kernel_sizes: tuple[int, ...] = positive((3, 4, 5))  # window sizes in words, each with its own group of filters
    filters: int = positive(100)  # in each group
    channels: str = choice("random", CHANNELS)  # random: learned vectors; static, non-static, two-channel: vectors=FILE
    dropout: float = fraction(0.5)  # dropout rate of the features
    max_norm: float = min_value(0, 3.0)  # largest norm of the weights of a class; 0 for no limit
    num_classes: int = positive(2)  # size of the output

    @classmethod
    def for_spec(cls, preset: Config, spec: TextSpec) -> Config:
        """Return the preset with the vocabulary and classes of `spec`."""
        return dataclasses.replace(preset, vocab_size=spec.vocab_size, num_classes=spec.target.outputs)


class TextCNN(BaseModel):
    """A network that maps token ids of shape (N, T) to logits of shape (N, classes)."""

    takes = (TextSpec,)
    targets = (Classes, Value)

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab_size, config.dim)
        nn.init.uniform_(self.embedding.weight, -RANGE, RANGE)
        self.embedding.weight.requires_grad_(config.channels != "static")
        if config.channels == "two-channel":
            self.static_embedding = nn.Embedding(config.vocab_size, config.dim)
            self.static_embedding.load_state_dict(self.embedding.state_dict())
            self.static_embedding.requires_grad_(False)
        self.convs = nn.ModuleList(
            nn.Conv1d(config.dim, config.filters, h, padding=h - 1)  # every window with a word of the sentence in it
            for h in config.kernel_sizes
        )
        self.dropout = nn.Dropout(config.dropout)
        self.fc = nn.Linear(config.filters * len(config.kernel_sizes), config.num_classes)

    def features(self, tokens: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the input of the head: the largest output of each filter, (N, filters · windows).

        `mask` (N, T) is True where a token is real; None where all are.
        """
        mask = normalize_padding_mask(mask, tokens.shape)
        x = self.embedding(tokens)  # (N, T, k)
        if self.config.channels == "two-channel":
            x = x + self.static_embedding(tokens)
        if mask is not None:
            x = x * mask[:, :, None]
        x = x.transpose(1, 2)  # (N, k, T)
        found = []
        for conv, h in zip(self.convs, self.config.kernel_sizes):
            c = conv(x)  # (N, filters, T + h − 1)
            if mask is not None:
                some = F.pad(mask, (h - 1, h - 1)).unfold(1, h, 1).any(2)  # windows with a word, (N, T + h − 1)
                c = c.masked_fill(~some[:, None], float("-inf"))
            found.append(F.relu(c.amax(2)))  # the maximum of what is rectified
        return torch.cat(found, 1)  # (N, filters · windows)

    def forward(self, tokens: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the logits, shape (N, classes), of token ids (N, T)."""
        logits: Tensor = self.fc(self.dropout(self.features(tokens, mask)))
        return logits

    @torch.no_grad()
    def constrain(self) -> None:
        """Rescale the weights of each class to a norm of at most `max_norm`, after an update."""
        if self.config.max_norm:
            weight = self.fc.weight
            weight.copy_(torch.renorm(weight, 2, 0, self.config.max_norm))


Model = TextCNN

PRESETS = {"textcnn": Config()}

# 10 000 · 300 + (3 + 4 + 5) · 300 · 100 + 300 + 300 · 2 + 2; at T = 20: Σ_h h · 300 · 100 · (T + h − 1) + 600
CARD = Card(
    title="Convolutional neural networks for sentence classification",
    authors="Y. Kim",
    year=2014,
    link="https://arxiv.org/abs/1408.5882",
    family="words",
    equation="c_i = ReLU(w · x_{i:i+h−1} + b), ĉ = max_i c_i, logits = W (ẑ ∘ r) + b_W",
    oracle="the sums of the equation, one window of one sentence at a time",
    published={
        "textcnn": Published(
            3_360_902, 8_340_600, (20,), "computed from the paper's sizes, for 10 000 words and 20 in a sentence"
        )
    },
    divergences=(
        Divergence(
            "borders",
            paper="not specified; the author's code pads with four zeros before, and after to the longest of the "
            "data set: "
            "windows of zeros only take part in the maximum",
            here="windows with at least one word of the sentence, independent of the batch",
            common="sentences padded to the longest of the batch, so that the batch decides",
        ),
        Divergence(
            "training", paper="at most 25 epochs, early stopping, Adadelta 0.95, batches of 50", here="the same"
        ),
        Divergence(
            "dropout",
            paper="W scaled by the keep probability at test time",
            here="scaled up in training, which is equivalent",
        ),
        Divergence(
            "norm of W_j",
            paper="limited to 3",
            here="the same; the author's code does so for the weights of all layers but the embedding",
            common="mostly omitted",
        ),
    ),
    results={
        "textcnn": (
            Result("MR", {"accuracy": 76.1}, "random word vectors", "the paper, table 2"),
            Result("SST-2", {"accuracy": 82.7}, "random word vectors", "the paper, table 2"),
        ),
    },
    settings={
        "textcnn": {
            "optimizer": "adadelta",
            "lr": 1.0,
            "weight_decay": 0.0,
            "schedule": "constant",
            "batch_size": 50,
            "epochs": 25,
            "patience": 5,
        }
    },
)
