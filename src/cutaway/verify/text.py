"""Oracles of sentence networks and word vectors: their equations, one window or one pair of words at a time."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from ..models import collobert, dcnn, textcnn, word2vec
from ..nn.textbook.pooling import k_max
from . import Oracle, valid_mask

SENTENCE_LENGTHS = (9, 1, 4, 6)  # words of the compared sentences


def sentence_inputs(vocab_size: int) -> Callable[[torch.Generator], tuple[Tensor, ...]]:
    """Return a function that draws token ids (4, 9) of sentences of four lengths, and their mask."""

    def draw(generator: torch.Generator) -> tuple[Tensor, ...]:
        mask = valid_mask(SENTENCE_LENGTHS)
        return torch.randint(1, vocab_size, mask.shape, generator=generator) * mask, mask

    return draw


class PerSentence(nn.Module):
    """Base class that applies `one` to the real words of each sentence and stacks the outputs."""

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Return outputs (N, …), filled after the last word as `together` combines them."""
        answers = [self.one(row[keep]) for row, keep in zip(tokens, mask)]
        return self.together(answers, tokens)

    def one(self, words: Tensor) -> Tensor:
        """Return the output for one sentence, token ids (s,)."""
        raise NotImplementedError

    def together(self, answers: list[Tensor], tokens: Tensor) -> Tensor:
        """Return all outputs as one tensor."""
        return torch.stack(answers)


class SummedTextCNN(PerSentence):
    """Kim's network, with each filter applied to each window by a sum of products."""

    def __init__(self, c: textcnn.Config) -> None:
        super().__init__()
        self.windows, self.dropout = c.kernel_sizes, nn.Dropout(c.dropout)
        self.table = nn.Parameter(torch.zeros(c.vocab_size, c.dim))
        self.filters = nn.ParameterList(torch.zeros(c.filters, c.dim, h) for h in c.kernel_sizes)
        self.biases = nn.ParameterList(torch.zeros(c.filters) for _ in c.kernel_sizes)
        self.fc = nn.Linear(c.filters * len(c.kernel_sizes), c.num_classes)
        self.second = nn.Parameter(torch.zeros(c.vocab_size, c.dim)) if c.channels == "two-channel" else None
        for table, still in ((self.table, c.channels == "static"), (self.second, True)):
            if table is not None and still:
                table.requires_grad_(False)

    def one(self, words: Tensor) -> Tensor:
        """Return the features of one sentence."""
        channels = [self.table] if self.second is None else [self.table, self.second]
        found = []
        for h, w, b in zip(self.windows, self.filters, self.biases):
            answers = []
            for begin in range(1 - h, len(words)):
                inside = [(j, int(words[begin + j])) for j in range(h) if 0 <= begin + j < len(words)]
                sums = [w[:, :, j] @ table[word] for table in channels for j, word in inside]
                answers.append((torch.stack(sums).sum(0) + b).clamp(min=0))
            found.append(torch.stack(answers).max(0).values)
        return torch.cat(found)

    def together(self, answers: list[Tensor], tokens: Tensor) -> Tensor:
        """Apply dropout and head to all features."""
        logits: Tensor = self.fc(self.dropout(torch.stack(answers)))
        return logits


def summed_textcnn(config: textcnn.Config) -> Oracle:
    """Build the network of sums and the key map from our weights."""
    key_map = {"embedding.weight": "table", "fc.weight": "fc.weight", "fc.bias": "fc.bias"}
    if config.channels == "two-channel":
        key_map["static_embedding.weight"] = "second"
    for i in range(len(config.kernel_sizes)):
        key_map |= {f"convs.{i}.weight": f"filters.{i}", f"convs.{i}.bias": f"biases.{i}"}
    return Oracle(SummedTextCNN(config), sentence_inputs(config.vocab_size), key_map)


class SummedDCNN(PerSentence):
    """Kalchbrenner's network, with each row and map convolved separately."""

    def __init__(self, c: dcnn.Config) -> None:
        super().__init__()
        self.c, self.dropout = c, nn.Dropout(c.dropout)
        self.table = nn.Parameter(torch.zeros(c.vocab_size, c.dim))
        self.filters, self.biases = nn.ParameterList(), nn.ParameterList()
        rows, before = c.dim, 1
        for maps, window in zip(c.feature_maps, c.kernel_sizes):
            self.filters.append(nn.Parameter(torch.zeros(rows * maps, before, window)))  # in our layout
            self.biases.append(nn.Parameter(torch.zeros(rows // 2, maps)))
            rows, before = rows // 2, maps
        self.fc = nn.Linear(rows * before * c.k_top, c.num_classes)

    def one(self, words: Tensor) -> Tensor:
        """Return the features of one sentence."""
        s, layers = len(words), len(self.c.feature_maps)
        rows = [self.table[words, r][None] for r in range(self.c.dim)]  # (maps, s) for each row
        for number, (filters, bias) in enumerate(zip(self.filters, self.biases), 1):
            by_row = filters.unflatten(0, (len(rows), -1))  # (rows, maps', maps, window)
            wide = [self._wide(row, kernels) for row, kernels in zip(rows, by_row)]  # of each row (maps', s + m − 1)
            k = max(self.c.k_top, math.ceil((layers - number) / layers * s))
            folded = [wide[2 * r] + wide[2 * r + 1] for r in range(len(rows) // 2)]
            rows = [torch.tanh(k_max(row, k) + bias[r][:, None]) for r, row in enumerate(folded)]
        return torch.cat([row.flatten() for row in rows])

    @staticmethod
    def _wide(maps: Tensor, kernels: Tensor) -> Tensor:
        """Return the wide cross-correlation of a row's maps, shape (maps', n + m − 1).

        The maps are (maps, n) and the kernels (maps', maps, m).
        """
        width = kernels.shape[2]
        nothing = maps.new_zeros(len(maps), width - 1)
        around = torch.cat([nothing, maps, nothing], 1)
        windows = torch.stack([around[:, t : t + width] for t in range(maps.shape[1] + width - 1)], 1)
        return torch.einsum("itj,oij->ot", windows, kernels)

    def together(self, answers: list[Tensor], tokens: Tensor) -> Tensor:
        """Apply dropout and head to all features."""
        logits: Tensor = self.fc(self.dropout(torch.stack(answers)))
        return logits


def summed_dcnn(config: dcnn.Config) -> Oracle:
    """Build the network of sums and the key map from our weights."""
    key_map = {"embedding.weight": "table", "fc.weight": "fc.weight", "fc.bias": "fc.bias"}
    for i in range(len(config.feature_maps)):
        key_map |= {f"layers.{i}.conv.weight": f"filters.{i}", f"layers.{i}.bias": f"biases.{i}"}
    return Oracle(SummedDCNN(config), sentence_inputs(config.vocab_size), key_map)


class WindowByWindow(PerSentence):
    """Collobert's networks, with the concatenated vectors of each window as in the paper."""

    def __init__(self, c: collobert.Config) -> None:
        super().__init__()
        self.c = c
        self.table = nn.Parameter(torch.zeros(c.vocab_size, c.dim))
        self.first = nn.Parameter(torch.zeros(c.hidden_dim, c.dim, c.window))
        self.first_bias = nn.Parameter(torch.zeros(c.hidden_dim))
        sentence = c.approach == "sentence"
        self.second = nn.Linear(c.hidden_dim, c.second) if sentence else None
        self.fc = nn.Linear(c.second if sentence else c.hidden_dim, c.num_classes)

    def one(self, words: Tensor) -> Tensor:
        """Return the output for one sentence."""
        half = self.c.window // 2
        bordered = [0] * half + words.tolist() + [0] * half
        matrix = self.first.transpose(1, 2).flatten(1)  # concatenated words of a window
        windows = [torch.cat([self.table[w] for w in bordered[t : t + self.c.window]]) for t in range(len(words))]
        hidden = torch.stack([matrix @ window + self.first_bias for window in windows])  # (s, hidden)
        if self.second is not None:
            hidden = self.second(hidden.max(0).values)
        answer: Tensor = self.fc(hidden.clamp(-1, 1))
        return answer

    def together(self, answers: list[Tensor], tokens: Tensor) -> Tensor:
        """Return outputs for sentences, or for words with the output of all-border windows after the last."""
        if self.c.approach == "sentence":
            return torch.stack(answers)
        longest = tokens.shape[1]
        return torch.stack([torch.cat([a, self._behind(row, len(a), longest)]) for a, row in zip(answers, tokens)])

    def _behind(self, row: Tensor, words: int, longest: int) -> Tensor:
        """Return the outputs at padding, whose windows may still contain the last words of the sentence."""
        padded = self.one(row)
        return padded[words:longest]


def windowed_collobert(config: collobert.Config) -> Oracle:
    """Build the windowed network and the key map from our weights."""
    key_map = {"embedding.weight": "table", "conv.weight": "first", "conv.bias": "first_bias"}
    layers = ("second", "fc") if config.approach == "sentence" else ("fc",)
    for theirs in layers:
        ours = {"second": "linear"}.get(theirs, theirs)
        key_map |= {f"{ours}.{k}": f"{theirs}.{k}" for k in ("weight", "bias")}
    return Oracle(WindowByWindow(config), sentence_inputs(config.vocab_size), key_map)


PASSAGES, WORDS, NOISE = 3, 9, 4


class PairwiseWord2Vec(nn.Module):
    """Network with one `logsigmoid` term for each pair of words and each noise word."""

    def __init__(self, config: word2vec.Config) -> None:
        super().__init__()
        self.config = config
        self.given = nn.Parameter(torch.zeros(config.vocab_size, config.dim))
        self.predicted = nn.Parameter(torch.zeros(config.vocab_size, config.dim))

    def forward(self, words: Tensor, mask: Tensor, reach: Tensor, noise: Tensor) -> Tensor:
        """Return the term (N, L) of the log-likelihood of each word with its context.

        `reach` (N, L, 2) is the number of words before and after, `noise` (N, K) the noise words of each row.
        """
        del mask
        margin = (words.shape[1] - reach.shape[1]) // 2
        rows = []
        for stretch, far, drawn in zip(words.tolist(), reach.tolist(), noise.tolist()):
            sums = []
            for i, (back, ahead) in enumerate(far, start=margin):
                around = [stretch[j] for j in range(i - back, i + ahead + 1) if j != i]
                sums.append(self._word(stretch[i], around, drawn))
            rows.append(torch.stack(sums))
        return torch.stack(rows)

    def _word(self, word: int, around: list[int], noise: list[int]) -> Tensor:
        """Return the term of a word and its context."""
        total = self.given.new_zeros(())
        if self.config.architecture == "skipgram":
            for other in around:
                total = total + self._term(self.given[word], other, noise)
        elif around:
            summed = sum((self.given[other] for other in around[1:]), self.given[around[0]])
            mean = summed / len(around)
            if self.config.whole_error:  # value of the mean, gradient of the sum
                mean = summed + (mean - summed).detach()
            total = total + self._term(mean, word, noise)
        return total

    def _term(self, h: Tensor, word: int, noise: list[int]) -> Tensor:
        if self.config.output == "softmax":
            return torch.log_softmax(torch.stack([v @ h for v in self.predicted]), 0)[word]
        term = nn.functional.logsigmoid(self.predicted[word] @ h)
        for other in noise:
            each = self.config.negative / len(noise)
            term = term + each * nn.functional.logsigmoid(-(self.predicted[other] @ h))
        return term


def pairwise_word2vec(config: word2vec.Config) -> Oracle:
    """Build the network of sums and the key map from our weights."""

    def draw(generator: torch.Generator) -> tuple[Tensor, ...]:
        margin = config.window
        words = torch.randint(2, config.vocab_size, (PASSAGES, WORDS + 2 * margin), generator=generator)
        reach = torch.randint(0, margin + 1, (PASSAGES, WORDS, 2), generator=generator)
        reach[0, 0] = 0  # a word without context
        noise = torch.randint(2, config.vocab_size, (PASSAGES, NOISE), generator=generator)
        noise[:, 1] = noise[:, 0]  # drawn twice
        words[1, margin] = noise[1, 0]  # a noise word that occurs in the text
        return words, words != 0, reach, noise

    return Oracle(PairwiseWord2Vec(config), draw, {"embedding.weight": "given", "context.weight": "predicted"})


ORACLES = {
    "textcnn": summed_textcnn,
    "dcnn": summed_dcnn,
    "collobert-window": windowed_collobert,
    "collobert-sentence": windowed_collobert,
    "word2vec-skipgram": pairwise_word2vec,
    "word2vec-cbow": pairwise_word2vec,
}
