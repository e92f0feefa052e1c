"""Oracle of the word vectors: the sums of the paper's equations, one pair of words at a time."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..models.word2vec import Config
from . import Oracle

STRETCHES, WORDS, NOISE = 3, 9, 4


class PairwiseWord2Vec(nn.Module):
    """Network with one `logsigmoid` term for each pair of words and each noise word."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.given = nn.Parameter(torch.zeros(config.vocab_size, config.dim))
        self.predicted = nn.Parameter(torch.zeros(config.vocab_size, config.dim))

    def forward(self, words: Tensor, mask: Tensor, reach: Tensor, noise: Tensor) -> Tensor:
        """Return the outputs (N, L) of the model."""
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


def pairwise_word2vec(config: Config) -> Oracle:
    """Build the network of sums and the key map from our weights."""

    def draw(generator: torch.Generator) -> tuple[Tensor, ...]:
        margin = config.window
        words = torch.randint(2, config.vocab_size, (STRETCHES, WORDS + 2 * margin), generator=generator)
        reach = torch.randint(0, margin + 1, (STRETCHES, WORDS, 2), generator=generator)
        reach[0, 0] = 0  # a word without context
        noise = torch.randint(2, config.vocab_size, (STRETCHES, NOISE), generator=generator)
        noise[:, 1] = noise[:, 0]  # drawn twice
        words[1, margin] = noise[1, 0]  # a noise word that occurs in the text
        return words, words != 0, reach, noise

    return Oracle(PairwiseWord2Vec(config), draw, {"embedding.weight": "given", "context.weight": "predicted"})


ORACLES = {"word2vec-skipgram": pairwise_word2vec, "word2vec-cbow": pairwise_word2vec}
