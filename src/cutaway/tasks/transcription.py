"""Speech recognition, by connectionist temporal classification or by spelling with a decoder.

For CTC, outputs (N, T', K) are logits of the blank and the characters at each frame, and targets (N, S) are the
characters of the transcripts, padded with IGNORED. The loss is −log p(transcript | recording) (`nn/losses.py`), per
character of the transcripts. For spelling, outputs (N, S, K) are logits of the token after each position of the correct
transcript, and targets are the characters and the end. The loss is the cross-entropy of the next token.

Texts read from the outputs or decoded (`inference/sequence_decoding.py`) are compared with the transcripts by
jiwer. The word error rate is the number of substituted, deleted and inserted words per word of the transcripts. The
character error rate is the same for characters. Both may exceed 1 with many insertions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from ..core.extras import require
from ..core.spec import Spelled, Transcript
from ..data.dataset_base import IGNORED
from ..nn.losses import ctc_loss
from ..statistics.intervals import Metric, mean, proportion, ratio

# Stored columns of an example, followed by the predicted ids, padded with negative values.
NLL, LOG_P, READ = 0, 1, slice(2, None)
ABSENT = "∅"  # counterpart of an inserted or deleted word
CONFUSIONS = 20  # largest number of word confusions in the report


class SpeechRecognition:
    """Connectionist temporal classification; word and character error rates."""

    NOUN = "transcripts"
    name = "speech recognition"
    default_monitor = "word_error"
    monitors: tuple[str, ...] = ("word_error", "character_error", "loss")
    LIBRARIES = (("jiwer", "Word error rates"),)
    transcribes = True  # `summarize_outputs` also takes the predicted texts
    loss_name = "ctc"
    LOSSES = ("ctc",)
    OPTIONS: tuple[str, ...] = ()

    def __init__(self, target: Transcript) -> None:
        self.target = target

    def loss(self, outputs: Tensor, target: Tensor) -> Tensor:
        """Return −log p of all transcripts of the batch, ()."""
        return self.losses(outputs, target).sum()

    def loss_denominator(self, target: Tensor) -> float:
        """Return the number of characters of the batch's transcripts; for spelling, including their ends."""
        return int((target != IGNORED).sum())

    def losses(self, outputs: Tensor, target: Tensor) -> Tensor:
        """Return −log p of each transcript, (N,), in at least 32 bits."""
        log_probs = _precise(outputs).log_softmax(2)
        return ctc_loss(log_probs, target.clamp(min=1), (target != IGNORED).sum(1))

    def summarize_outputs(self, outputs: Tensor, target: Tensor, read: Tensor) -> Tensor:
        """Return what evaluation stores of each example, (N, 2 + L).

        The columns are −log p of its transcript, log p of the predicted text, and the ids of that text, `read` (N, L),
        padded with negative values. New examples have an empty target.
        """
        outputs = _precise(outputs)
        unknown = torch.full_like(outputs[:, 0, 0], torch.nan)
        nll = self.losses(outputs, target) if target.numel() else unknown
        log_p = -self.losses(outputs, read.where(read > 0, IGNORED))
        return torch.cat([nll[:, None], log_p[:, None], read.to(outputs.dtype)], 1)

    def fast_metrics(self, kept: Tensor, target: Tensor) -> dict[str, float]:
        """Return word error rate, character error rate and loss per character, over all examples."""
        words, characters = self._errors(kept, target)
        loss = (kept[:, NLL].double().sum() / self.loss_denominator(target)).item()
        return {"word_error": _rate(words), "character_error": _rate(characters), "loss": loss}

    def metrics(self, kept: Tensor, target: Tensor) -> dict[str, Metric]:
        """Return word error rate, character error rate, the fraction of wrong transcripts, and the loss per
        transcript.

        The units of intervals are recordings.
        """
        words, characters = self._errors(kept, target)
        return {
            "word_error": ratio(words[:, 0], words[:, 1], "recording"),
            "character_error": ratio(characters[:, 0], characters[:, 1], "recording"),
            "sequence_error": proportion(float((characters[:, 0] > 0).sum()), len(characters)),
            "loss": mean(kept[:, NLL].double().cpu().numpy()),
        }

    def details(self, kept: Tensor, target: Tensor) -> dict[str, Any]:
        """Return the confusions of words, most frequent first."""
        counts: Counter[tuple[str, str]] = Counter()
        for actual, said in zip(self._transcripts(target), self._read(kept)):
            counts.update((a, b) for a, b in align_words(actual.split(), said.split()) if a != b)
        shown = [{"actual": a, "predicted": b, "count": n} for (a, b), n in counts.most_common(CONFUSIONS)]
        return {"words": {"mistakes": counts.total(), "confusions": shown}}

    def baseline(self, train_target: Tensor, target: Tensor) -> dict[str, Any]:
        """Return the word error rate of the most frequent training transcript, or of an empty one if that is better."""
        commonest = Counter(self._transcripts(train_target)).most_common(1)[0][0]
        actual = self._transcripts(target)
        value = _rate(word_errors(actual, [commonest] * len(actual)))
        if value >= 1:  # as many errors as there are words, which are deleted
            return {"name": "empty-transcript baseline", "value": 1.0}
        return {"name": f"most-frequent-transcript baseline ({commonest!r})", "value": value}

    def predictions(self, kept: Tensor) -> list[dict[str, Any]]:
        """Return the text of each example and its probability, summed over all its paths."""
        return [
            {self.target.column: text, "probability": p}
            for text, p in zip(self._read(kept), kept[:, LOG_P].exp().tolist())
        ]

    def example_results(self, kept: Tensor, target: Tensor) -> list[dict[str, Any]]:
        """Return each transcript, the predicted text with its probability, and the loss per character."""
        lengths = (target != IGNORED).sum(1).clamp(min=1)
        rows = zip(self._transcripts(target), self._read(kept), kept[:, LOG_P].exp().tolist(), kept[:, NLL] / lengths)
        return [
            {"actual": actual, "predicted": said, "confidence": p, "loss": loss.item(), "wrong": actual != said}
            for actual, said, p, loss in rows
        ]

    def _errors(self, kept: Tensor, target: Tensor) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the wrong words and all reference words of each example, and the same for characters, (n, 2) each."""
        actual, said = self._transcripts(target), self._read(kept)
        return word_errors(actual, said), character_errors(actual, said)

    def _transcripts(self, target: Tensor) -> list[str]:
        return [self._text(row) for row in target.tolist()]

    def _read(self, kept: Tensor) -> list[str]:
        return [self._text(row) for row in kept[:, READ].tolist()]

    def _text(self, ids: Sequence[float]) -> str:
        """Convert ids to text with single blanks between words; negative ids and NaN are padding."""
        return " ".join("".join(self.target.alphabet[int(i) - 1] for i in ids if i > 0).split())


class Spelling(SpeechRecognition):
    """Cross-entropy of the next token; word and character error rates."""

    target: Spelled
    loss_name = "cross_entropy"
    LOSSES = ("cross_entropy",)
    OPTIONS = ("label_smoothing",)

    def __init__(self, target: Spelled, label_smoothing: float = 0.0) -> None:
        super().__init__(target)
        self.label_smoothing = label_smoothing

    def loss(self, outputs: Tensor, target: Tensor) -> Tensor:
        """Return the loss summed over all tokens that are not IGNORED, ()."""
        return self._of_each(outputs, target, self.label_smoothing).sum()

    def losses(self, outputs: Tensor, target: Tensor) -> Tensor:
        """Return −log p of each transcript and its end, (N,), in at least 32 bits."""
        return self._of_each(outputs, target).sum(1)

    def summarize_outputs(self, outputs: Tensor, target: Tensor, read: Tensor, log_p: Tensor | None = None) -> Tensor:
        """Return −log p of each transcript, `log_p` and the decoded ids `read`, (N, 2 + L), which evaluation stores.

        `log_p` (N,) is that of the decoded text including its end. Unknown values are NaN.
        """
        unknown = _precise(torch.full_like(outputs[:, 0, 0], torch.nan))
        nll = self.losses(outputs, target) if target.numel() else unknown
        known = unknown if log_p is None else log_p.to(nll.dtype)
        return torch.cat([nll[:, None], known[:, None], read.to(nll.dtype)], 1)

    @staticmethod
    def _of_each(outputs: Tensor, target: Tensor, smoothing: float = 0.0) -> Tensor:
        """Return the loss of each token, (N, S)."""
        return F.cross_entropy(
            _precise(outputs).transpose(1, 2), target, ignore_index=IGNORED, reduction="none", label_smoothing=smoothing
        )  # of (N, K, S)


def word_errors(actual: Sequence[str], said: Sequence[str]) -> NDArray[np.int64]:
    """Return the wrong words and the reference words of each pair of texts, (n, 2), by jiwer."""
    jiwer = require("jiwer", "Word error rates")

    return _counted(jiwer.process_words(list(actual), list(said))) if actual else np.zeros((0, 2), np.int64)


def character_errors(actual: Sequence[str], said: Sequence[str]) -> NDArray[np.int64]:
    """Return the wrong characters and the reference characters of each pair of texts, (n, 2), by jiwer."""
    jiwer = require("jiwer", "Word error rates")

    return _counted(jiwer.process_characters(list(actual), list(said))) if actual else np.zeros((0, 2), np.int64)


def align_words(actual: Sequence[str], said: Sequence[str]) -> list[tuple[str, str]]:
    """Return the aligned words of reference and prediction, by jiwer; ABSENT in place of a missing word."""
    jiwer = require("jiwer", "Word error rates")

    pairs: list[tuple[str, str]] = []
    for chunk in jiwer.process_words(" ".join(actual), " ".join(said)).alignments[0]:
        right = list(actual[chunk.ref_start_idx : chunk.ref_end_idx])
        others = list(said[chunk.hyp_start_idx : chunk.hyp_end_idx])
        count = max(len(right), len(others))
        pairs += zip(right + [ABSENT] * (count - len(right)), others + [ABSENT] * (count - len(others)))
    return pairs


def _counted(found: Any) -> NDArray[np.int64]:
    """Return the errors and the reference length of each pair, from jiwer's result."""
    rows = []
    for chunks, right in zip(found.alignments, found.references):
        sizes = [max(c.ref_end_idx - c.ref_start_idx, c.hyp_end_idx - c.hyp_start_idx) for c in chunks]
        rows.append((sum(n for n, c in zip(sizes, chunks) if c.type != "equal"), len(right)))
    return np.array(rows, np.int64).reshape(-1, 2)


def _rate(errors: NDArray[np.int64]) -> float:
    """Return the errors per reference word or character."""
    return float(errors[:, 0].sum() / errors[:, 1].sum())


def _precise(outputs: Tensor) -> Tensor:
    """Convert outputs to at least 32 bits, because half precision has too few digits to sum log probabilities."""
    return outputs.to(torch.promote_types(outputs.dtype, torch.float32))
