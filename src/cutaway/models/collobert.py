"""Two networks for language from scratch: one tags each word by its window, one classifies a whole sentence.

After R. Collobert, J. Weston, L. Bottou, M. Karlen, K. Kavukcuoglu, P. Kuksa, Natural language processing (almost) from
scratch, 2011 (JMLR 12); the sentence network is that of R. Collobert, J. Weston, A unified architecture for natural
language processing, 2008 (ICML). <https://arxiv.org/abs/1103.0398>

    window:     f(t) = W² HardTanh(W¹ [x_{t−2}; x_{t−1}; x_t; x_{t+1}; x_{t+2}] + b¹) + b²       a tag for each word t
    sentence:   m = max_t (W¹ [x_{t−1}; x_t; x_{t+1}] + b¹),  f = W³ HardTanh(W² m + b²) + b³    a class for it all

x_t is the row of word t in a look-up table, which is learned with the rest. Positions before the first and after the
last word use row 0, so that padding and the border of a sentence are the same.

Shapes, from token ids (N, T) with d = 50:
    window:     look-up (N, T, 50), windows of 5 words (N, T, 250), hidden (N, T, 300), tags (N, T, K)
    sentence:   look-up (N, T, 50), windows of 3 words (N, T, 300), maximum over time (N, 300), hidden (N, 500),
                classes (N, K)
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor, nn

from ..core.errors import ModelError, check_value
from ..core.spec import Classes, Tags, TextSpec
from ..nn.masks import normalize_padding_mask
from .base import BaseModel
from .card import Card, Divergence, Published
from .config import ValidatedConfig, choice, min_value, positive


@dataclass(frozen=True)
class Config(ValidatedConfig):
    """Configuration of the networks."""

    approach: str = choice("window", ("window", "sentence"))  # window: a tag for each word; sentence: a class for each
    vocab_size: int = min_value(2, 10_000)  # tokens, each with a row of the look-up table
    dim: int = positive(50)  # dimension of a row
    window: int = positive(5)  # size of the window in words, with the word to tag in the middle
    hidden_dim: int = positive(300)  # units after the windows
    second: int = positive(500)  # sentence: units after the maximum
    num_classes: int = positive(45)  # tags or classes

    def __post_init__(self) -> None:
        super().__post_init__()
        check_value(self.window % 2 == 1, "window", self.window, "odd, so that it has a middle")

    @classmethod
    def for_spec(cls, preset: Config, spec: TextSpec) -> Config:
        """Return the preset with the vocabulary and tags or classes of `spec`.

        Raises ModelError for the other of the two.
        """
        tags = isinstance(spec.target, Tags)
        if tags != (preset.approach == "window"):
            other = "collobert-window" if tags else "collobert-sentence"
            raise ModelError(f"This text has {'tags for words' if tags else 'classes for sentences'}: take {other}.")
        return dataclasses.replace(preset, vocab_size=spec.vocab_size, num_classes=spec.target.outputs)


class Collobert(BaseModel):
    """A network that maps token ids (N, T) to logits (N, T, tags) or (N, classes)."""

    takes = (TextSpec,)
    targets = (Classes, Tags)

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab_size, config.dim)
        # A linear layer of each window of words is a convolution over time, which copies no window.
        self.conv = nn.Conv1d(config.dim, config.hidden_dim, config.window)
        ahead = config.hidden_dim
        if config.approach == "sentence":
            self.linear = nn.Linear(config.hidden_dim, config.second)
            ahead = config.second
        self.fc = nn.Linear(ahead, config.num_classes)

    def features(self, tokens: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the input of the head: (N, T, hidden), or (N, second) of a sentence.

        `mask` (N, T) is True where a token is real; None where all are.
        """
        half, mask = self.config.window // 2, normalize_padding_mask(mask, tokens.shape)
        if mask is not None:
            tokens = tokens * mask
        x = self.embedding(F.pad(tokens, (half, half)))  # (N, T + window − 1, d)
        h = self.conv(x.transpose(1, 2))  # (N, hidden, T)
        if self.config.approach == "window":
            return F.hardtanh(h).transpose(1, 2)  # (N, T, hidden)
        if mask is not None:
            h = h.masked_fill(~mask[:, None], float("-inf"))
        return F.hardtanh(self.linear(h.amax(2)))  # (N, second)

    def forward(self, tokens: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the logits of token ids (N, T): (N, T, tags), or (N, classes) of a sentence."""
        logits: Tensor = self.fc(self.features(tokens, mask))
        return logits


Model = Collobert

PRESETS = {
    "collobert-window": Config(),
    "collobert-sentence": Config(approach="sentence", window=3, num_classes=2),
}

_COMPUTED = "computed from the paper's sizes, for 10 000 words and {}"
_TRAINED = {"lr": 1e-3, "weight_decay": 1e-4, "batch_size": 32, "epochs": 15, "patience": 4}

CARD = Card(
    title="Natural language processing (almost) from scratch",
    authors="R. Collobert, J. Weston, L. Bottou, M. Karlen, K. Kavukcuoglu, P. Kuksa",
    year=2011,
    link="https://arxiv.org/abs/1103.0398",
    family="words",
    equation="f(t) = W² HardTanh(W¹ [x_{t−2}; …; x_{t+2}] + b¹) + b²; of a sentence: max_t before HardTanh",
    oracle="the equations, one window at a time",
    published={
        # 10 000 · 50 + 250 · 300 + 300 + 300 · 45 + 45
        "collobert-window": Published(588_845, 1_770_000, (20,), _COMPUTED.format("45 tags, 20 words")),
        # 10 000 · 50 + 150 · 300 + 300 + 300 · 500 + 500 + 500 · 2 + 2
        "collobert-sentence": Published(696_802, 1_051_000, (20,), _COMPUTED.format("2 classes, 20 words")),
    },
    divergences=(
        Divergence(
            "features of a word",
            paper="its lower-case form and its capitalization",
            here="only the word form, which may have capitals",
        ),
        Divergence(
            "sentences",
            paper="features for the distance to the verb and to the predicted word",
            here="none: one class for the whole sentence",
        ),
        Divergence(
            "criterion",
            paper="of each word, or of the path of a sentence through a table of transitions between tags",
            here="of each word",
        ),
        Divergence(
            "training",
            paper="stochastic gradient at 0.01, divided by the units of each layer; vectors from a language model",
            here="the recommended settings; vectors are learned, or loaded with vectors=FILE",
        ),
    ),
    settings={"collobert-window": _TRAINED, "collobert-sentence": _TRAINED},
)
