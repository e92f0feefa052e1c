"""Speech recognition, in two ways: by connectionist temporal classification, and spelled token after token.

Of the first, outputs (N, T', K) are logits of the blank and the characters at each frame, and targets (N, S) the
characters of the transcripts, IGNORED after their end; the loss is −log p(transcript | recording) (`nn/ctc.py`), for
each character of the transcripts. Of the second, outputs (N, S, K) are logits of the token after each place of the
right transcript so far, targets the characters and the end; the loss is the cross-entropy of the next token.

What is read out of the outputs (`inference/ctc.py`), or decoded (`inference/sequence_decoding.py`), is held to the
transcripts by jiwer: the word error rate counts words that are substituted, deleted and inserted, for each word of the
transcripts, and the character error rate the same of characters. Both may be above 1, where much is said too much.
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

from ..core.spec import Spelled, Transcript
from ..data.dataset_base import IGNORED
from ..nn.ctc import ctc_loss
from ..statistics.intervals import Metric, mean, proportion, ratio

# The columns of what evaluation keeps of an example; the ids that were read are after them, negative after their end.
NLL, LOG_P, READ = 0, 1, slice(2, None)
ABSENT = "∅"  # what stands against a word that was inserted or deleted
CONFUSIONS = 20  # of words, in the report


class SpeechRecognition:
    """Connectionist temporal classification; the errors of words and of characters."""

    NOUN = "transcripts"
    name = "speech recognition"
    watch = "word_error"
    monitors: tuple[str, ...] = ("word_error", "character_error", "loss")
    transcribes = True  # `keep` wants what is read out of the outputs, or decoded, beside them
    loss_name = "ctc"
    LOSSES = ("ctc",)
    OPTIONS: tuple[str, ...] = ()

    def __init__(self, target: Transcript) -> None:
        self.target = target

    def loss(self, outputs: Tensor, target: Tensor) -> Tensor:
        """−log p of all transcripts of the batch, ()."""
        return self.losses(outputs, target).sum()

    def count(self, target: Tensor) -> float:
        """The characters of the batch's transcripts; where they are spelled, their ends too."""
        return int((target != IGNORED).sum())

    def losses(self, outputs: Tensor, target: Tensor) -> Tensor:
        """−log p of each transcript, (N,), in at least 32 bits."""
        log_probs = _precise(outputs).log_softmax(2)
        return ctc_loss(log_probs, target.clamp(min=1), (target != IGNORED).sum(1))

    def keep(self, outputs: Tensor, target: Tensor, read: Tensor) -> Tensor:
        """What evaluation stores of each example, (N, 2 + L): −log p of its transcript, log p of the text that was
        read, and that text's ids, `read` (N, L), negative after their end. New examples have an empty target."""
        outputs = _precise(outputs)
        unknown = torch.full_like(outputs[:, 0, 0], torch.nan)
        nll = self.losses(outputs, target) if target.numel() else unknown
        log_p = -self.losses(outputs, read.where(read > 0, IGNORED))
        return torch.cat([nll[:, None], log_p[:, None], read.to(outputs.dtype)], 1)

    def quick(self, kept: Tensor, target: Tensor) -> dict[str, float]:
        """Word error rate, character error rate and loss for each character, over all."""
        words, characters = self._errors(kept, target)
        loss = (kept[:, NLL].double().sum() / self.count(target)).item()
        return {"word_error": _rate(words), "character_error": _rate(characters), "loss": loss}

    def metrics(self, kept: Tensor, target: Tensor) -> dict[str, Metric]:
        """Word error rate, character error rate, the fraction of transcripts with any mistake, and the loss for each
        transcript. The units of intervals are recordings."""
        words, characters = self._errors(kept, target)
        return {
            "word_error": ratio(words[:, 0], words[:, 1], "recording"),
            "character_error": ratio(characters[:, 0], characters[:, 1], "recording"),
            "sequence_error": proportion(float((characters[:, 0] > 0).sum()), len(characters)),
            "loss": mean(kept[:, NLL].double().cpu().numpy()),
        }

    def details(self, kept: Tensor, target: Tensor) -> dict[str, Any]:
        """Which words were taken for which, most often first."""
        counts: Counter[tuple[str, str]] = Counter()
        for actual, said in zip(self._transcripts(target), self._read(kept)):
            counts.update((a, b) for a, b in aligned(actual.split(), said.split()) if a != b)
        shown = [{"actual": a, "predicted": b, "count": n} for (a, b), n in counts.most_common(CONFUSIONS)]
        return {"words": {"mistakes": counts.total(), "confusions": shown}}

    def baseline(self, train_target: Tensor, target: Tensor) -> dict[str, Any]:
        """The word error rate of always saying the commonest training transcript, or nothing where that is better."""
        commonest = Counter(self._transcripts(train_target)).most_common(1)[0][0]
        actual = self._transcripts(target)
        value = _rate(word_errors(actual, [commonest] * len(actual)))
        if value >= 1:  # as many errors as there are words, which are deleted
            return {"name": "an empty transcript", "value": 1.0}
        return {"name": f"always {commonest!r}, the commonest transcript", "value": value}

    def predictions(self, kept: Tensor) -> list[dict[str, Any]]:
        """The text of each example, and its probability: that of all paths that read it."""
        return [
            {self.target.column: text, "probability": p}
            for text, p in zip(self._read(kept), kept[:, LOG_P].exp().tolist())
        ]

    def mistakes(self, kept: Tensor, target: Tensor) -> list[dict[str, Any]]:
        """Each transcript and what was read instead, the probability of that, and the loss for each character."""
        lengths = (target != IGNORED).sum(1).clamp(min=1)
        rows = zip(self._transcripts(target), self._read(kept), kept[:, LOG_P].exp().tolist(), kept[:, NLL] / lengths)
        return [
            {"actual": actual, "predicted": said, "confidence": p, "loss": loss.item(), "wrong": actual != said}
            for actual, said, p, loss in rows
        ]

    def _errors(self, kept: Tensor, target: Tensor) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Of each example the wrong words and all that are right, and the same of characters, each (n, 2)."""
        actual, said = self._transcripts(target), self._read(kept)
        return word_errors(actual, said), character_errors(actual, said)

    def _transcripts(self, target: Tensor) -> list[str]:
        return [self._text(row) for row in target.tolist()]

    def _read(self, kept: Tensor) -> list[str]:
        return [self._text(row) for row in kept[:, READ].tolist()]

    def _text(self, ids: Sequence[float]) -> str:
        """The characters of these ids, one blank between words; what is negative, or NaN, is padding."""
        return " ".join("".join(self.target.alphabet[int(i) - 1] for i in ids if i > 0).split())


class Spelling(SpeechRecognition):
    """Cross-entropy of the next token; the errors of words and of characters."""

    target: Spelled
    loss_name = "cross_entropy"
    LOSSES = ("cross_entropy",)
    OPTIONS = ("label_smoothing",)

    def __init__(self, target: Spelled, label_smoothing: float = 0.0) -> None:
        super().__init__(target)
        self.label_smoothing = label_smoothing

    def loss(self, outputs: Tensor, target: Tensor) -> Tensor:
        """The loss summed over all tokens that are not IGNORED, ()."""
        return self._of_each(outputs, target, self.label_smoothing).sum()

    def losses(self, outputs: Tensor, target: Tensor) -> Tensor:
        """−log p of each transcript and its end, (N,), in at least 32 bits."""
        return self._of_each(outputs, target).sum(1)

    def keep(self, outputs: Tensor, target: Tensor, read: Tensor, log_p: Tensor | None = None) -> Tensor:
        """As of connectionist temporal classification; `log_p` (N,) is that of what was decoded, its end among it."""
        unknown = _precise(torch.full_like(outputs[:, 0, 0], torch.nan))
        nll = self.losses(outputs, target) if target.numel() else unknown
        known = unknown if log_p is None else log_p.to(nll.dtype)
        return torch.cat([nll[:, None], known[:, None], read.to(nll.dtype)], 1)

    @staticmethod
    def _of_each(outputs: Tensor, target: Tensor, smoothing: float = 0.0) -> Tensor:
        """The loss of each token, (N, S)."""
        return F.cross_entropy(
            _precise(outputs).transpose(1, 2), target, ignore_index=IGNORED, reduction="none", label_smoothing=smoothing
        )  # of (N, K, S)


def word_errors(actual: Sequence[str], said: Sequence[str]) -> NDArray[np.int64]:
    """Of each pair of texts the words that are wrong, and those of the right text, (n, 2), by jiwer."""
    import jiwer

    return _counted(jiwer.process_words(list(actual), list(said))) if actual else np.zeros((0, 2), np.int64)


def character_errors(actual: Sequence[str], said: Sequence[str]) -> NDArray[np.int64]:
    """Of each pair of texts the characters that are wrong, and those of the right text, (n, 2), by jiwer."""
    import jiwer

    return _counted(jiwer.process_characters(list(actual), list(said))) if actual else np.zeros((0, 2), np.int64)


def aligned(actual: Sequence[str], said: Sequence[str]) -> list[tuple[str, str]]:
    """The words of the right text beside those that were said, by jiwer's alignment; ABSENT where there is none."""
    import jiwer

    pairs: list[tuple[str, str]] = []
    for chunk in jiwer.process_words(" ".join(actual), " ".join(said)).alignments[0]:
        right = list(actual[chunk.ref_start_idx : chunk.ref_end_idx])
        others = list(said[chunk.hyp_start_idx : chunk.hyp_end_idx])
        count = max(len(right), len(others))
        pairs += zip(right + [ABSENT] * (count - len(right)), others + [ABSENT] * (count - len(others)))
    return pairs


def _counted(found: Any) -> NDArray[np.int64]:
    """What jiwer found of all pairs, one by one: errors, and the length of the right text."""
    rows = []
    for chunks, right in zip(found.alignments, found.references):
        sizes = [max(c.ref_end_idx - c.ref_start_idx, c.hyp_end_idx - c.hyp_start_idx) for c in chunks]
        rows.append((sum(n for n, c in zip(sizes, chunks) if c.type != "equal"), len(right)))
    return np.array(rows, np.int64).reshape(-1, 2)


def _rate(errors: NDArray[np.int64]) -> float:
    """Errors for each word, or character, of the right texts."""
    return float(errors[:, 0].sum() / errors[:, 1].sum())


def _precise(outputs: Tensor) -> Tensor:
    """Half precision holds too few digits to add up log probabilities in."""
    return outputs.to(torch.promote_types(outputs.dtype, torch.float32))
