"""Sequence-to-sequence and captioning tasks: decoding, edit distance, BLEU and ROUGE.

Outputs (N, S, V) are logits of the next token after each target token. The model's own answer is decoded token by token
(`cutaway.inference`) and compared with the reference by the edit distance: the smallest number of insertions, deletions
and replacements of tokens (V. I. Levenshtein, 1966), per token of the reference. For phonemes this is the phoneme error
rate. With several references the nearest one counts. Sentences are also compared as text, by BLEU and ROUGE
(`rouge.py`).

Captions are compared with all captions of their image. Their metrics include the fraction of images whose caption
equals a reference word for word. A caption's probability is the product of those of its words and its end; words that a
beam did not choose are not included.

BLEU is computed by sacrebleu from counts of each sentence.

K. Papineni, S. Roukos, T. Ward, W.-J. Zhu, BLEU: a method for automatic evaluation of machine translation, ACL 2002
<https://aclanthology.org/P02-1040>; M. Post, A call for clarity in reporting BLEU scores, WMT 2018
<https://arxiv.org/abs/1804.08771>:

    BLEU = 100 · min(1, e^{1 − r/c}) · (p₁ p₂ p₃ p₄)^{1/4}

p_n is the fraction of predicted n-grams that occur in a reference, c the number of predicted tokens, and r the number
of reference tokens (for each sentence, those of the reference nearest in length). All are sums over the sentences.
sacrebleu counts tokens of the text by its own rules (13a), so scores do not depend on a model's tokenizer.
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

from ..core.extras import require
from ..core.spec import Tokens
from ..data.dataset_base import IGNORED
from ..statistics.intervals import Metric, fraction, jackknife, proportion, ratio
from .language import TokenLoss
from .rouge import NAMES, rouge_metric, rouge_scores

NONE = -1  # padding after the end of a decoded sequence
NEVER = -2  # replaces an unknown token of a reference: no decoded token equals it

ORDER = 4  # length of the longest n-grams of BLEU
COUNTS = 2 + 2 * ORDER + 1  # predicted tokens, reference tokens, correct and all n-grams of each n, references

# Stored columns of an example. If it was decoded there are more, followed by the ids.
NLL, TOKENS, EDITS, LENGTH, LOG_P = range(5)
BLEU = slice(LOG_P + 1, LOG_P + 1 + COUNTS)  # NaN where the references are not sentences
ROUGE = slice(BLEU.stop, BLEU.stop + len(NAMES))  # NaN too
DECODED = slice(ROUGE.stop, None)
Texts = Sequence[Sequence[str]]  # all references of each example, as text
Answers = Sequence[Sequence[Sequence[int]]]  # all references of each example, as ids without `end`


class SequenceToSequence(TokenLoss):
    """Cross-entropy of the next token; the error rates of tokens and of whole sequences."""

    NOUN = "sequences"
    name = "sequence-to-sequence"
    default_monitor = "loss"
    monitors: tuple[str, ...] = ("loss", "perplexity")
    decodes = True  # `summarize_outputs` also takes the model's decoded answers
    loss_name = "cross_entropy"
    LOSSES = ("cross_entropy",)
    OPTIONS = ("label_smoothing", "words")

    def __init__(
        self, target: Tokens, label_smoothing: float = 0.0, words: Callable[[list[int]], str] | None = None
    ) -> None:
        """Create the task. `words` converts ids of the target to text; by default they are written as numbers."""
        self.target = target
        self.label_smoothing = label_smoothing
        self.words = words or (lambda ids: " ".join(map(str, ids)))

    def summarize_outputs(
        self,
        outputs: Tensor,
        target: Tensor,
        decoded: Tensor | None = None,
        references: Answers | None = None,
        texts: Texts | None = None,
        log_p: Tensor | None = None,
    ) -> Tensor:
        """Return what evaluation stores of each example instead of its outputs.

        These are the summed negative log probability of its tokens and their number, (N, 2). With `decoded` (N, L)
        there are also the edit distance to the nearest reference, its length, `log_p` (N,) of the decoded answer, the
        BLEU statistics, the ROUGE scores, and the decoded ids, padded with NONE: (N, 8 + COUNTS + L).

        `references` are the correct answers of each example, where the target is not the only one. `texts` are these as
        text, where they are sentences. New examples have an empty target and no reference; only their decoded ids are
        used.
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
            kept += [self._text_scores(decoded, texts), decoded]
        exact = torch.promote_types(nll.dtype, torch.float32)  # half precision cannot represent ids
        return torch.cat([column.to(exact) for column in kept], 1)

    def fast_metrics(self, kept: Tensor, target: Tensor) -> dict[str, float]:
        """Return loss and perplexity over all tokens."""
        del target
        loss = (kept[:, NLL].double().sum() / kept[:, TOKENS].double().sum()).item()
        return {"loss": loss, "perplexity": math.exp(min(loss, 700.0))}  # larger exponents overflow

    def metrics(self, kept: Tensor, target: Tensor) -> dict[str, Metric]:
        """Return the loss per token, and the metrics of decoded answers.

        These are the edits per reference token (0 at best, above 1 where the answer is much too long), the fraction of
        sequences with any error, and for sentences BLEU, 0 to 100, by sacrebleu, and the mean F₁ of ROUGE. The units of
        intervals are examples.
        """
        del target
        columns = kept[:, : ROUGE.stop].double().cpu().numpy()

        found = {"loss": ratio(columns[:, NLL], columns[:, TOKENS])}
        if _has_bleu(kept):
            found["bleu"] = bleu_metric(columns[:, BLEU])
            found |= {name: rouge_metric(scores) for name, scores in zip(NAMES, columns[:, ROUGE].T)}
        if kept.shape[1] > TOKENS + 1:
            found["token_error"] = ratio(columns[:, EDITS], columns[:, LENGTH])
            found["sequence_error"] = proportion(float((columns[:, EDITS] > 0).sum()), len(columns))
        return found

    def details(self, kept: Tensor, target: Tensor) -> dict[str, Any]:
        """Return the signature of BLEU, where it was computed."""
        del target
        if not _has_bleu(kept):
            return {}
        return {"signatures": {"bleu": bleu_signature(kept[:, BLEU].double().cpu().numpy(), self.target.lower)}}

    def baseline(self, train_target: Tensor, target: Tensor) -> dict[str, Any]:
        """Return the loss of the unigram frequencies of the training tokens, with add-one smoothing."""
        counts = train_target[train_target != IGNORED].bincount(minlength=self.target.vocab_size).double() + 1
        nll = -(counts / counts.sum()).log()[target[target != IGNORED]]
        return {"name": "unigram baseline", "value": nll.mean().item()}

    def predictions(self, kept: Tensor) -> list[dict[str, Any]]:
        """Return the decoded answer of each example."""
        return [{self.target.column: self.words(ids)} for ids in self._decoded(kept)]

    def example_results(self, kept: Tensor, target: Tensor) -> list[dict[str, Any]]:
        """Return the reference and the decoded answer of each example; the loss is per token of the reference."""
        lengths = kept[:, TOKENS].long().tolist()
        tokens = target[target != IGNORED]  # works for (N, S) and for flat tokens in the order of the examples
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
        """Return the tokens of each target (N, S), without `end`."""
        return [[t for t in row if t not in (IGNORED, self.target.end)] for row in target.tolist()]

    def _decoded(self, kept: Tensor) -> list[list[int]]:
        """Return the decoded ids of each example; batches may be padded with NONE or NaN."""
        return [[int(i) for i in row if i >= 0] for row in kept[:, DECODED].tolist()]

    def _nearest(self, decoded: Tensor, answers: Answers) -> Tensor:
        """Return the edit distance of each of `decoded` (N, L) to its nearest reference, and the reference's length,
        (N, 2).
        """
        said = [[i for i in row if i != NONE] for row in decoded.tolist()]
        answers = [of_one or [()] for of_one in answers]
        owner = np.repeat(np.arange(len(said)), [len(of_one) for of_one in answers])
        right = [[NEVER if i == self.target.unknown else i for i in ids] for of_one in answers for ids in of_one]
        edits = edit_distances([said[k] for k in owner], right)
        lengths = np.array([len(ids) for ids in right])
        best = np.lexsort((edits, owner))[
            np.searchsorted(owner, np.arange(len(said)))
        ]  # the nearest reference of each example
        return torch.from_numpy(np.stack([edits[best], lengths[best]], 1))

    def _text_scores(self, decoded: Tensor, texts: Texts | None) -> Tensor:
        """Return the BLEU statistics and ROUGE scores of each of `decoded` (N, L), (N, COUNTS + 3).

        They are NaN without `texts`.
        """
        if texts is None:
            return torch.full((len(decoded), COUNTS + len(NAMES)), math.nan, device=decoded.device)
        said = [self.words([i for i in row if i != NONE]) for row in decoded.tolist()]
        found = np.concatenate([bleu_counts(said, texts, self.target.lower), rouge_scores(said, texts)], axis=1)
        return torch.from_numpy(found).to(decoded.device)


def _has_bleu(kept: Tensor) -> bool:
    """Return whether the stored columns have BLEU statistics."""
    return kept.shape[1] >= ROUGE.stop and not bool(kept[:, BLEU].isnan().any())


def edit_distances(first: Sequence[Sequence[int]], second: Sequence[Sequence[int]]) -> NDArray[np.int64]:
    """Return the edit distance of each pair of sequences, (n,): insertions, deletions and replacements cost 1.

    It computes the table of R. A. Wagner and M. J. Fischer, 1974, row by row, for all pairs at once.
    """
    a, lengths = _padded(first, NONE)  # (n, L)
    b, ends = _padded(second, NONE - 1)  # (n, S)
    places = np.arange(b.shape[1] + 1)
    row = np.broadcast_to(places, (len(a), len(places)))  # (n, S + 1): from nothing to the first j of b
    for i in range(a.shape[1]):
        replaced = row[:, :-1] + (a[:, i, None] != b)
        new = np.minimum(row + 1, np.concatenate([row[:, :1] + 1, replaced], 1))
        # An insertion costs 1 more than the cell on the left: a running minimum after subtracting the slope.
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


class HasReferences(Protocol):
    """Protocol of a split with all references of each example."""

    def __len__(self) -> int: ...
    def references(self, i: int) -> list[list[int]]:
        """Return the references of example i, as ids without `end`."""
        ...


class Captioning(SequenceToSequence):
    """Cross-entropy of the next word; the fraction of images with a correct caption, BLEU and edits."""

    NOUN = "captions"
    name = "image captioning"
    headline = "exact_match"

    def metrics(self, kept: Tensor, target: Tensor) -> dict[str, Metric]:
        """Return the fraction of images with a correct caption, with Wilson's interval, and further metrics."""
        found = super().metrics(kept, target)
        if found.pop("sequence_error", None) is None:
            return found
        exact = proportion(float((kept[:, EDITS] == 0).sum()), len(kept))
        return {"exact_match": exact, **{k: found[k] for k in ("bleu", "token_error", "loss") if k in found}}

    def beside(self, kept: Tensor, train: HasReferences, split: HasReferences) -> dict[str, Any]:
        """Return the fraction of images for which the most frequent training caption is correct."""
        del kept
        counts = Counter(tuple(ids) for i in range(len(train)) for ids in train.references(i))
        commonest = counts.most_common(1)[0][0]
        right = np.mean([commonest in map(tuple, split.references(i)) for i in range(len(split))])
        return {
            "baseline": {
                "name": f"most-frequent-caption baseline (“{self.words(list(commonest))}”)",
                "value": float(right),
            }
        }

    def predictions(self, kept: Tensor) -> list[dict[str, Any]]:
        """Return the caption of each image and its probability."""
        chances = kept[:, LOG_P].double().exp().tolist()
        return [{**row, "probability": p} for row, p in zip(super().predictions(kept), chances)]

    def example_results(self, kept: Tensor, target: Tensor) -> list[dict[str, Any]]:
        """Return the reference and the decoded caption of each image; the matching reference, or else the first."""
        chances = kept[:, LOG_P].double().exp().tolist()
        return [
            {**row, "actual": row["actual"] if row["wrong"] else row["predicted"], "confidence": p}
            for row, p in zip(super().example_results(kept, target), chances)
        ]


def bleu_counts(said: Sequence[str], right: Sequence[Sequence[str]], lower: bool = False) -> NDArray[np.float64]:
    """Return the BLEU statistics of each sentence, (n, COUNTS), with one or more references each; `lower` ignores
    case.
    """
    BLEU = require("sacrebleu.metrics.bleu", "BLEU").BLEU
    # The counts do not depend on `effective_order`. Without it the library warns about single sentences.
    metric = BLEU(lowercase=lower, effective_order=True, force=True)
    rows = []
    for text, answers in zip(said, right):
        found = metric.sentence_score(text, list(answers))
        rows.append([found.sys_len, found.ref_len, *found.counts, *found.totals, len(answers)])
    return np.array(rows, np.float64).reshape(-1, COUNTS)


def bleu(counts: NDArray[np.float64]) -> float:
    """Return the corpus BLEU, 0 to 100, from `counts` (n, COUNTS)."""
    BLEU = require("sacrebleu.metrics.bleu", "BLEU").BLEU
    said, right, *grams = counts[:, :-1].sum(0).astype(int).tolist()
    found = BLEU.compute_bleu(grams[:ORDER], grams[ORDER:], said, right, smooth_method="exp")
    return float(found.score)


def bleu_metric(counts: NDArray[np.float64]) -> Metric:
    """Return BLEU with a jackknife interval over sentences."""

    def score(sums: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.array([bleu(row[None]) / 100 for row in sums])

    return jackknife(counts, score, fraction, "sentence").map(lambda x: 100 * x)


def bleu_signature(counts: NDArray[np.float64], lower: bool = False) -> str:
    """Return sacrebleu's signature: references, case, tokenizer, smoothing and version."""
    BLEU = require("sacrebleu.metrics.bleu", "BLEU").BLEU
    metric = BLEU(lowercase=lower)
    numbers = set(counts[:, -1].astype(int).tolist())
    metric.num_refs = numbers.pop() if len(numbers) == 1 else -1  # −1: differs between sentences
    return str(metric.get_signature())
