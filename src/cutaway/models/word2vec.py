"""Word vectors learned from the contexts of words: skip-gram and continuous bag of words (CBOW).

After T. Mikolov, K. Chen, G. Corrado, J. Dean, Efficient estimation of word representations in vector space, 2013,
<https://arxiv.org/abs/1301.3781>, and T. Mikolov, I. Sutskever, K. Chen, G. Corrado, J. Dean, Distributed
representations of words and phrases and their compositionality, 2013, <https://arxiv.org/abs/1310.4546> (below: [2]).

Every word has two vectors: v as an input and v' as a target. With C(t) the context positions of word t, at most b_t
away from it, and h_t the hidden vector,

    skip-gram   h_t = v(w_t)                         predicts each word w_j, j ∈ C(t)
    cbow        h_t = 1/|C(t)| Σ_{j ∈ C(t)} v(w_j)   predicts the word w_t

    softmax     ln p(w | h) = v'(w)·h − ln Σ_u exp(v'(u)·h)                    ([2], equation 2; u over all words)
    negative    ln σ(v'(w)·h) + k E_{u ~ P} [ln σ(−v'(u)·h)],  P ∝ count^¾     ([2], equation 4)

There is no hidden layer and no bias. For each word of a text the model returns the sum of these terms over its targets,
which training maximizes.

Shapes, from words (N, T): vectors (N, T, d), P target and K noise words (N, P + K, d), scores (N, T, P + K), sums
(N, T). With `reach`, (N, L, 2), only the L words in the middle are trained, and L replaces T in scores and sums; the
other words are context only.

Subsampling of frequent words, and the window's width b_t, belong to the data: `data/text/word2vec_dataset.py`.
"""

from __future__ import annotations

import dataclasses
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from ..core.spec import Context, TextSpec
from ..nn.masks import normalize_padding_mask
from .base import BaseModel
from .card import Card, Divergence, Published
from .config import ValidatedConfig, choice, min_value, positive


@dataclass(frozen=True)
class Config(ValidatedConfig):
    """Configuration of the network."""

    vocab_size: int = min_value(3, 10_000)  # size of the vocabulary, including padding (0) and unknown (1)
    dim: int = positive(100)  # dimension of a vector
    architecture: str = choice("skipgram", ("skipgram", "cbow"))  # predict the context of a word; cbow: the word
    output: str = choice("negative", ("negative", "softmax"))  # negative sampling, or softmax over the vocabulary
    negative: int = positive(5)  # k, expected number of noise words per target
    window: int = positive(5)  # maximum distance of a context word
    whole_error: bool = True  # cbow: give each context word the whole gradient, as word2vec.c, instead of 1/n

    @classmethod
    def for_spec(cls, preset: Config, spec: TextSpec) -> Config:
        """Return the preset with the vocabulary and the window of `spec`, whose target is Context."""
        assert isinstance(spec.target, Context)
        return dataclasses.replace(preset, vocab_size=spec.target.vocab_size, window=spec.target.window)


def negative_sampling(h: Tensor, others: Tensor, is_target: Tensor, weight: Tensor) -> Tensor:
    """Return Σ ln σ(v'·h) over targets plus weight · Σ ln σ(−v'·h) over noise, (N, L): equation 4 of [2].

    Args:
        h: Hidden vectors, shape (N, L, d).
        others: v' of P words, then of K noise words, shape (N, P + K, d).
        is_target: 1 for the targets among the words, else 0, shape (N, L, P).
        weight: Weight of each noise word, shape (N, L).
    """
    scores = h @ others.mT  # (N, L, P + K)
    words = is_target.shape[2]
    targets = (is_target * F.logsigmoid(scores[:, :, :words])).sum(2)
    noise = F.logsigmoid(-scores[:, :, words:]).sum(2)
    return targets + weight * noise


def softmax_log_likelihood(h: Tensor, vectors: Tensor, target_ids: Tensor, is_target: Tensor) -> Tensor:
    """Return Σ ln p(w | h) over the targets, (N, L): equation 2 of [2].

    Args:
        h: Hidden vectors, shape (N, L, d).
        vectors: v' of all words, shape (V, d).
        target_ids: Word ids, shape (N, P).
        is_target: 1 for the targets among them, else 0, shape (N, L, P).
    """
    scores = h @ vectors.T  # (N, L, V)
    index = target_ids[:, None].expand_as(is_target)  # (N, L, P)
    return (is_target * (scores.gather(2, index) - scores.logsumexp(2, keepdim=True))).sum(2)


def window_mean(vectors: Tensor, inside: Tensor) -> Tensor:
    """Return the mean of the vectors in each window, (N, L, d); 0 for a window without a word.

    Args:
        vectors: v of the words, shape (N, T, d).
        inside: 1 for words in the window, else 0, shape (N, L, T).
    """
    return inside @ vectors / inside.sum(2, keepdim=True).clamp(min=1)


class Word2Vec(BaseModel):
    """Words (N, T) to the log likelihood of each word and its context, (N, L), in nats."""

    takes = (TextSpec,)
    targets = (Context,)

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab_size, config.dim, sparse=True)  # v
        self.context = nn.Embedding(config.vocab_size, config.dim, sparse=config.output == "negative")  # v'
        nn.init.uniform_(self.embedding.weight, -0.5 / config.dim, 0.5 / config.dim)
        nn.init.zeros_(self.context.weight)
        self._windows: dict[tuple[int, int, torch.device], tuple[Tensor, Tensor]] = {}

    def forward(
        self, words: Tensor, mask: Tensor | None = None, reach: Tensor | None = None, noise: Tensor | None = None
    ) -> Tensor:
        """Return the sum of the logarithms of equation 2 or 4 of [2] for each word, (N, L); 0 for a word without
        context.

        Args:
            words: Word ids, shape (N, T), int64.
            mask: True where a word is real, shape (N, T); None if all are. Not used with `reach`.
            reach: Number of words before and after each of the L words in the middle that are its context, shape (N, L,
                2); 0 and 0 for words that are not trained. By default the whole window, for all T words.
            noise: Noise words of each window, shape (N, K). Without them, and with output=softmax, all words are used.
        """
        with _no_autocast(words.device):
            inside = self._window_mask(words, mask, reach)  # (N, L, T), 1 for the context of each word
            h = self._hidden(words, inside)  # (N, L, d)
            target_ids, is_target = words, inside  # a word predicts its context
            if self.config.architecture == "cbow":  # a context predicts its word
                target_ids = _middle(words, inside.shape[1])  # (N, L)
                some = inside.sum(2, keepdim=True).clamp_(max=1)  # (N, L, 1), 0 for a word without context
                is_target = some * torch.eye(some.shape[1], dtype=some.dtype, device=some.device)  # (N, L, L)
            if noise is None or self.config.output == "softmax":
                return softmax_log_likelihood(h, self.context.weight, target_ids, is_target)
            others = self.context(torch.cat([target_ids, noise], 1))  # (N, P + K, d)
            weight = is_target.sum(2).mul_(self.config.negative / noise.shape[1])  # (N, L)
            sums: Tensor = NegativeSampling.apply(h, others, is_target, weight)  # type: ignore[no-untyped-call]
            return sums

    def features(self, words: Tensor, mask: Tensor | None = None, reach: Tensor | None = None) -> Tensor:
        """Return h, (N, L, d): the vector of each word for skip-gram, the mean of its context for CBOW."""
        with _no_autocast(words.device):
            return self._hidden(words, self._window_mask(words, mask, reach))

    def _hidden(self, words: Tensor, inside: Tensor) -> Tensor:
        if self.config.architecture == "skipgram":
            h: Tensor = self.embedding(_middle(words, inside.shape[1]))
        else:
            h = WindowMean.apply(self.embedding(words), inside, self.config.whole_error)  # type: ignore[no-untyped-call]
        return h

    def _window_mask(self, words: Tensor, mask: Tensor | None, reach: Tensor | None) -> Tensor:
        """Return (N, L, T): 1 where a word is in the window of a word in the middle, else 0."""
        dtype = self.embedding.weight.dtype
        if reach is None:
            window, positions = self.config.window, torch.arange(words.shape[1], device=words.device)
            distance = (positions - positions[:, None]).abs()
            inside = ((distance <= window) & (distance > 0)).expand(words.shape[0], -1, -1)
            real = normalize_padding_mask(mask, words.shape)
            if real is not None:
                inside = inside & real[:, None] & real[:, :, None]
            return inside.to(dtype)
        before, after = self._window_masks(reach.shape[1], words.shape[1], words.device)
        # Windows are looked up by position and reach: comparing positions would cost as much as the scores.
        length, width, steps = before.shape  # L, b + 1, T
        offset = torch.arange(0, length * width, width, device=words.device)  # (L,)
        inside = before.view(-1, steps).index_select(0, (offset + reach[:, :, 0]).flatten())
        inside += after.view(-1, steps).index_select(0, (offset + reach[:, :, 1]).flatten())
        return inside.view(words.shape[0], length, steps).to(dtype)

    def _window_masks(self, length: int, steps: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """Return the masks of positions before and after the i-th middle word, for each reach: (L, b + 1, T)."""
        key = (length, steps, device)
        if key not in self._windows:
            margin = (steps - length) // 2
            reach = torch.arange(max(margin, self.config.window) + 1, device=device)[:, None]
            distance = torch.arange(steps, device=device) - margin - torch.arange(length, device=device)[:, None, None]
            before, after = (-reach <= distance) & (distance < 0), (distance > 0) & (distance <= reach)
            self._windows = {key: (before.float(), after.float())}
        return self._windows[key]


def _no_autocast(device: torch.device) -> AbstractContextManager[object]:
    """Disable autocast: sums of logarithms need more precision than bfloat16 has."""
    if torch.amp.is_autocast_available(device.type):
        return torch.autocast(device.type, enabled=False)
    return nullcontext()


def _middle(words: Tensor, length: int) -> Tensor:
    """Return the `length` words in the middle of each window: (N, T) to (N, L)."""
    return words.narrow(1, (words.shape[1] - length) // 2, length)


# The same sums with hand-written gradients, used in training.


class NegativeSampling(Function):
    """`negative_sampling` with an explicit gradient: the sums and their gradient share one sigmoid.

    The derivative with respect to a score s is σ(−s) for a target, and −σ(s) for noise.
    """

    @staticmethod
    def forward(ctx: Any, h: Tensor, others: Tensor, is_target: Tensor, weight: Tensor) -> Tensor:
        """Compute the sums.

        `h` has shape (N, L, d); `others` (N, P + K, d) are words, then noise; `is_target` (N, L, P) is 1 for target
        words and 0 for others; `weight` (N, L) is the weight of each noise word.
        """
        words = is_target.shape[2]
        p = torch.bmm(h, others.transpose(1, 2))  # (N, L, P + K)
        p[:, :, words:].neg_()
        p.sigmoid_()
        weights = torch.empty_like(p)
        weights[:, :, :words] = is_target
        weights[:, :, words:] = weight[:, :, None]
        slope = (1 - p).mul_(weights)
        slope[:, :, words:].neg_()
        ctx.save_for_backward(h, others, slope)
        return p.clamp_min_(torch.finfo(p.dtype).tiny).log_().mul_(weights).sum(2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Compute the gradients of `h` and `others`."""
        h, others, slope = ctx.saved_tensors
        slope = slope * gradient[:, :, None]
        return torch.bmm(slope, others), torch.bmm(slope.transpose(1, 2), h), None, None


class WindowMean(Function):
    """`window_mean` with an explicit gradient: the whole gradient for each vector, or 1/n of it if `whole` is False."""

    @staticmethod
    def forward(ctx: Any, vectors: Tensor, inside: Tensor, whole: bool) -> Tensor:
        """Compute the means; `vectors` is (N, T, d), `inside` (N, L, T) is 1 for vectors in the window, else 0."""
        counts = inside.sum(2, keepdim=True).clamp_min_(1)
        ctx.whole = whole
        ctx.save_for_backward(inside, counts)
        return torch.bmm(inside, vectors).div_(counts)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Compute the gradient of `vectors`."""
        inside, counts = ctx.saved_tensors
        if not ctx.whole:
            gradient = gradient / counts
        return torch.bmm(inside.transpose(1, 2), gradient), None, None


Model = Word2Vec

PRESETS = {"word2vec-skipgram": Config(), "word2vec-cbow": Config(architecture="cbow")}

_COUNTED = (
    "computed: two vectors of dimension 100 for each of 10 000 words (the data determines the vocabulary); "
    "multiply-adds for 32 words, each with the softmax over all words"
)
# The defaults of word2vec.c, except for lower case. A batch has 512 or 1 536 words: larger batches overshoot.
_LEARNED = {
    "optimizer": "sgd",
    "schedule": "linear",
    "weight_decay": 0.0,
    "epochs": 5,
    "min_count": 5,
    "lower": True,
    "val": 0.05,
    "test": 0.0,
}

CARD = Card(
    title="Efficient estimation of word representations in vector space",
    authors="T. Mikolov, K. Chen, G. Corrado, J. Dean",
    year=2013,
    link="https://arxiv.org/abs/1301.3781",
    family="words",
    equation="ln σ(v'(w)·h) + Σ_{i=1}^{k} E_{u_i ~ P(u)} [ln σ(−v'(u_i)·h)]",
    oracle="sums over pairs of words, one at a time; gensim: WordSim-353 correlation on the same books",
    published={
        "word2vec-skipgram": Published(2_000_000, 32_000_000, (32,), _COUNTED),
        "word2vec-cbow": Published(2_000_000, 32_102_400, (32,), _COUNTED),
    },
    divergences=(
        Divergence(
            "noise",
            paper="k sampled words per pair",
            here="K sampled words per window of text, weighted so that a pair has k in expectation: the computation "
            "is a "
            "product of small matrices (S. Ji et al., 2016, arXiv 1604.04661, share them within a window)",
            common="k per pair, excluding the word itself (word2vec.c, gensim)",
        ),
        Divergence(
            "updates",
            paper="not specified",
            here="one per batch, with the sum over its pairs: usual learning rates, but batches must be small",
            common="one per pair, in threads without locks",
        ),
        Divergence(
            "roles in skip-gram",
            paper="the middle word predicts its context",
            here="as in the paper",
            common="the context word predicts the middle word: the same pairs, except that the window is sampled for "
            "the "
            "middle word",
        ),
        Divergence(
            "gradient of cbow",
            paper="not specified; the gradient of a mean is 1/n for each of the n context words",
            here="the whole gradient for each, which gives better vectors; whole_error=false: 1/n",
            common="the whole gradient",
        ),
        Divergence(
            "initialization",
            paper="not specified",
            here="v uniform in ±1/(2d), v' zero",
            common="as here (word2vec.c)",
        ),
        Divergence(
            "subsampling",
            paper="an occurrence is kept with probability √(t/f)",
            here="with probability (√(f/t) + 1) · t/f",
            common="with probability (√(f/t) + 1) · t/f",
        ),
        Divergence(
            "output",
            paper="hierarchical softmax or negative sampling",
            here="negative sampling or the full softmax",
            common="hierarchical softmax or negative sampling",
        ),
    ),
    settings={
        "word2vec-skipgram": {**_LEARNED, "lr": 0.025, "batch_size": 32},
        "word2vec-cbow": {**_LEARNED, "lr": 0.05, "batch_size": 96},
    },
)
