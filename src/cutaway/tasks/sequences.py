"""Sequence to sequence and captioning: outputs (N, S, V) are logits of the next token after each target token.

What a model says by itself is decoded token after token (`cutaway.inference`), and held to the right answer by the
edit distance: the fewest tokens to insert, delete or replace (V. I. Levenshtein, 1966), for each token of the right
answer. Of phonemes that is the phoneme error rate. Where there are several right answers, the nearest counts. Sentences
are held to the right ones as text too, by BLEU (`bleu.py`).

Captions are compared with all captions of their image. Their metrics add the fraction of images whose caption is, word
for word, one of the right ones. A caption's probability is the product of those of its words and its end; the words
that a beam did not choose are not among them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from ..core.spec import Tokens
from ..data.dataset_base import IGNORED
from ..statistics.intervals import Metric, proportion, ratio
from .bleu import COUNTS, bleu_counts, bleu_metric, bleu_signature
from .language import TokenLoss

NONE = -1  # after the end of a decoded sequence
NEVER = -2  # what an unknown token of a right answer becomes: nothing that is decoded equals it

# The columns of what evaluation keeps of an example; where it was decoded, there are more, and the ids are after them.
NLL, TOKENS, EDITS, LENGTH, LOG_P = range(5)
BLEU = slice(LOG_P + 1, LOG_P + 1 + COUNTS)  # NaN where the right answers are no sentences
DECODED = slice(BLEU.stop, None)
Texts = Sequence[Sequence[str]]  # for each example all its right answers, as they were written
Answers = Sequence[Sequence[Sequence[int]]]  # for each example all its right answers, as ids without `end`


class SequenceToSequence(TokenLoss):
    """Cross-entropy of the next token; the fraction of tokens, and of whole sequences, that come out wrong."""

    NOUN = "sequences"
    name = "sequence-to-sequence"
    watch = "loss"
    monitors: tuple[str, ...] = ("loss", "perplexity")
    decodes = True  # `keep` wants what the model says by itself, beside the outputs
    loss_name = "cross_entropy"
    LOSSES = ("cross_entropy",)
    OPTIONS = ("label_smoothing", "words")

    def __init__(
        self, target: Tokens, label_smoothing: float = 0.0, words: Callable[[list[int]], str] | None = None
    ) -> None:
        """`words` writes ids of the target as text; without it they are written as numbers."""
        self.target = target
        self.label_smoothing = label_smoothing
        self.words = words or (lambda ids: " ".join(map(str, ids)))

    def keep(
        self,
        outputs: Tensor,
        target: Tensor,
        decoded: Tensor | None = None,
        references: Answers | None = None,
        texts: Texts | None = None,
        log_p: Tensor | None = None,
    ) -> Tensor:
        """What evaluation stores of each example instead of its outputs: the sum of its tokens' negative log
        probabilities and their number, (N, 2); where it was `decoded` (N, L), also how many edits the nearest right
        answer is away, how many tokens that has, `log_p` (N,) of what was decoded, the counts of BLEU, and the decoded
        ids, NONE after their end: (N, 5 + COUNTS + L).

        `references` are the right answers of each example, where the target is not the only one, and `texts` are they
        as they were written, where they are sentences. New examples have an empty target and no right answer: what is
        kept of those is what was decoded.
        """
        if not target.numel():
            target = torch.full(outputs.shape[:2], IGNORED, device=outputs.device)  # (N, S)
        real = target != IGNORED  # (N, S)
        nll = F.cross_entropy(outputs.transpose(1, 2), target, ignore_index=IGNORED, reduction="none")  # (N, S)
        kept = [nll.double().sum(1, keepdim=True), real.sum(1, keepdim=True)]
        if decoded is not None:
            answers = references if references is not None else [[ids] for ids in self._own(target)]
            known = log_p if log_p is not None else nll.new_full((len(decoded),), math.nan)
            kept += [self._nearest(decoded, answers).to(decoded.device), known[:, None]]
            kept += [self._counts(decoded, texts), decoded]
        exact = torch.promote_types(nll.dtype, torch.float32)  # half precision has no room for ids
        return torch.cat([column.to(exact) for column in kept], 1)

    def quick(self, kept: Tensor, target: Tensor) -> dict[str, float]:
        """Loss and perplexity, over all tokens."""
        del target
        loss = (kept[:, NLL].double().sum() / kept[:, TOKENS].double().sum()).item()
        return {"loss": loss, "perplexity": math.exp(min(loss, 700.0))}  # e^700 is the largest there is

    def metrics(self, kept: Tensor, target: Tensor) -> dict[str, Metric]:
        """Loss for each token; where it was decoded, edits for each token of the right answers (0 at best, above 1
        where much is said too much), and the fraction of sequences that are not right to the last token; of sentences,
        BLEU, 0 to 100, by sacrebleu.

        The units of intervals are examples.
        """
        del target
        columns = kept[:, : BLEU.stop].double().cpu().numpy()

        found = {"loss": ratio(columns[:, NLL], columns[:, TOKENS])}
        if _has_bleu(kept):
            found["bleu"] = bleu_metric(columns[:, BLEU])
        if kept.shape[1] > TOKENS + 1:
            found["token_error"] = ratio(columns[:, EDITS], columns[:, LENGTH])
            found["sequence_error"] = proportion(float((columns[:, EDITS] > 0).sum()), len(columns))
        return found

    def details(self, kept: Tensor, target: Tensor) -> dict[str, Any]:
        """How BLEU was computed, where it was."""
        del target
        if not _has_bleu(kept):
            return {}
        return {"signatures": {"bleu": bleu_signature(kept[:, BLEU].double().cpu().numpy(), self.target.lower)}}

    def baseline(self, train_target: Tensor, target: Tensor) -> dict[str, Any]:
        """The loss of giving each token the probability that it has in training, whatever the source; each counts once
        more than it occurs there, so that none is impossible."""
        counts = train_target[train_target != IGNORED].bincount(minlength=self.target.vocab_size).double() + 1
        nll = -(counts / counts.sum()).log()[target[target != IGNORED]]
        return {"name": "each token as often as in training, whatever the source", "value": nll.mean().item()}

    def predictions(self, kept: Tensor) -> list[dict[str, Any]]:
        """What was said for each example."""
        return [{self.target.column: self.words(ids)} for ids in self._decoded(kept)]

    def mistakes(self, kept: Tensor, target: Tensor) -> list[dict[str, Any]]:
        """What each example was and what was said of it; loss is for each token of the right answer."""
        lengths = kept[:, TOKENS].long().tolist()
        tokens = target[target != IGNORED]  # of (N, S) as of token after token, in the order of the examples
        rows = kept[:, : LENGTH + 1].double().tolist()
        return [
            {
                "actual": self.words([t for t in actual.tolist() if t != self.target.end]),
                "predicted": self.words(said),
                "confidence": None,
                "loss": row[NLL] / row[TOKENS],
                "wrong": row[EDITS] > 0,
            }
            for actual, said, row in zip(torch.split(tokens, lengths), self._decoded(kept), rows)
        ]

    def _own(self, target: Tensor) -> list[list[int]]:
        """The tokens of each target (N, S), without `end`."""
        return [[t for t in row if t not in (IGNORED, self.target.end)] for row in target.tolist()]

    def _decoded(self, kept: Tensor) -> list[list[int]]:
        """The decoded ids of each example; batches may have been padded with NONE or with NaN to be put together."""
        return [[int(i) for i in row if i >= 0] for row in kept[:, DECODED].tolist()]

    def _nearest(self, decoded: Tensor, answers: Answers) -> Tensor:
        """The edits from each of `decoded` (N, L) to its nearest right answer, and the tokens of that one, (N, 2)."""
        said = [[i for i in row if i != NONE] for row in decoded.tolist()]
        answers = [of_one or [()] for of_one in answers]
        owner = np.repeat(np.arange(len(said)), [len(of_one) for of_one in answers])
        right = [[NEVER if i == self.target.unknown else i for i in ids] for of_one in answers for ids in of_one]
        edits = edit_distances([said[k] for k in owner], right)
        lengths = np.array([len(ids) for ids in right])
        best = np.lexsort((edits, owner))[np.searchsorted(owner, np.arange(len(said)))]  # the first of each owner
        return torch.from_numpy(np.stack([edits[best], lengths[best]], 1))

    def _counts(self, decoded: Tensor, texts: Texts | None) -> Tensor:
        """The counts of BLEU of each of `decoded` (N, L), (N, COUNTS); NaN without `texts`."""
        if texts is None:
            return torch.full((len(decoded), COUNTS), math.nan, device=decoded.device)
        said = [self.words([i for i in row if i != NONE]) for row in decoded.tolist()]
        return torch.from_numpy(bleu_counts(said, texts, self.target.lower)).to(decoded.device)


def _has_bleu(kept: Tensor) -> bool:
    """Whether the counts of BLEU are among what is kept."""
    return kept.shape[1] >= BLEU.stop and not bool(kept[:, BLEU].isnan().any())


def edit_distances(first: Sequence[Sequence[int]], second: Sequence[Sequence[int]]) -> NDArray[np.int64]:
    """The edit distance of each pair of sequences, (n,): insertions, deletions and replacements cost 1.

    The table of R. A. Wagner and M. J. Fischer, 1974, row after row, for all pairs at once.
    """
    a, lengths = _padded(first, NONE)  # (n, L)
    b, ends = _padded(second, NONE - 1)  # (n, S)
    places = np.arange(b.shape[1] + 1)
    row = np.broadcast_to(places, (len(a), len(places)))  # (n, S + 1): from nothing to the first j of b
    for i in range(a.shape[1]):
        replaced = row[:, :-1] + (a[:, i, None] != b)
        new = np.minimum(row + 1, np.concatenate([row[:, :1] + 1, replaced], 1))
        # An insertion costs 1 more than what stands to its left: the running minimum, with the slope taken out.
        new = np.minimum.accumulate(new - places, axis=1) + places
        row = np.where((i < lengths)[:, None], new, row)
    return np.take_along_axis(row, ends[:, None], 1)[:, 0]


def _padded(sequences: Sequence[Sequence[int]], filling: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    lengths = np.array([len(ids) for ids in sequences], np.int64)
    padded = np.full((len(sequences), lengths.max(initial=0)), filling, np.int64)
    padded[np.arange(padded.shape[1]) < lengths[:, None]] = np.fromiter(
        (i for ids in sequences for i in ids), np.int64, count=int(lengths.sum())
    )
    return padded, lengths


class Referenced(Protocol):
    """A split that knows all right answers to an example."""

    def __len__(self) -> int: ...
    def references(self, i: int) -> list[list[int]]:
        """Those to example i, as ids without `end`."""
        ...


class Captioning(SequenceToSequence):
    """Cross-entropy of the next word; the fraction of images with a right caption, BLEU and edits."""

    NOUN = "captions"
    name = "image captioning"
    headline = "exact_match"

    def metrics(self, kept: Tensor, target: Tensor) -> dict[str, Metric]:
        """First the fraction of images whose caption is one of the right ones, where it was decoded, with Wilson's
        interval; then those of all sequences."""
        found = super().metrics(kept, target)
        if found.pop("sequence_error", None) is None:
            return found
        exact = proportion(float((kept[:, EDITS] == 0).sum()), len(kept))
        return {"exact_match": exact, **{k: found[k] for k in ("bleu", "token_error", "loss") if k in found}}

    def beside(self, kept: Tensor, train: Referenced, split: Referenced) -> dict[str, Any]:
        """How many images the commonest caption of the training split would be right of."""
        del kept
        counts = Counter(tuple(ids) for i in range(len(train)) for ids in train.references(i))
        commonest = counts.most_common(1)[0][0]
        right = np.mean([commonest in map(tuple, split.references(i)) for i in range(len(split))])
        return {"baseline": {"name": f"always “{self.words(list(commonest))}”", "value": float(right)}}

    def predictions(self, kept: Tensor) -> list[dict[str, Any]]:
        """The caption of each image and its probability."""
        chances = kept[:, LOG_P].double().exp().tolist()
        return [{**row, "probability": p} for row, p in zip(super().predictions(kept), chances)]

    def mistakes(self, kept: Tensor, target: Tensor) -> list[dict[str, Any]]:
        """What each caption was and what was said; of several right ones that which was said, where it is among them,
        else the first."""
        chances = kept[:, LOG_P].double().exp().tolist()
        return [
            {**row, "actual": row["actual"] if row["wrong"] else row["predicted"], "confidence": p}
            for row, p in zip(super().mistakes(kept, target), chances)
        ]
