"""Token classification: outputs (N, T, K) are logits, targets (N, T) classes, IGNORED at padding.

Evaluation stores the predicted tag of each token, its loss and its probability, (N, T, 3), and not K logits. With tags
B- and I- (and E- and S-), spans are evaluated as in CoNLL's shared tasks (E. F. Tjong Kim Sang, F. De Meulder, 2003,
https://aclanthology.org/W03-0419): a span is correct if its first token, its last token and its type are.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ..core.spec import Tags
from ..data.dataset_base import IGNORED
from ..statistics.intervals import Metric, fraction, jackknife, ratio
from .classification import Confusion

OUTSIDE = "O"
NOUN = "sentence"
SPAN_TAG = re.compile(r"[BIES]-.+")
DECIDED, LOSS, SURE = range(3)  # stored columns of each token
SHOWN = 3  # largest number of kinds of errors of a sentence in its row

Span = tuple[int, int, str]  # first token, last token, type


class Tagging:
    """Cross-entropy of each token; token accuracy, macro F1, and F1 of spans."""

    NOUN = "tags"
    name = "tagging"
    default_monitor = "accuracy"
    loss_name = "cross_entropy"
    LOSSES = ("cross_entropy",)
    OPTIONS = ()

    def __init__(self, target: Tags, label_smoothing: float = 0.0) -> None:
        self.target = target
        self.label_smoothing = label_smoothing
        self.spans = has_span_tags(target.names)
        of_spans = ("span_f1", "span_precision", "span_recall") if self.spans else ()
        self.monitors: tuple[str, ...] = ("accuracy", "balanced_accuracy", "macro_f1", *of_spans, "loss")

    def loss(self, outputs: Tensor, target: Tensor) -> Tensor:
        """Return the loss summed over the batch's tokens, ()."""
        return F.cross_entropy(
            outputs.flatten(0, 1),  # (N·T, K)
            target.flatten(),
            ignore_index=IGNORED,
            label_smoothing=self.label_smoothing,
            reduction="sum",
        )

    def loss_denominator(self, target: Tensor) -> float:
        """Return the number of tokens in the batch."""
        return (target != IGNORED).sum().item()

    def losses(self, outputs: Tensor, target: Tensor) -> Tensor:
        """Return the loss of each example, (N,): the mean over its tokens, without smoothing."""
        kept = self.summarize_outputs(outputs, target)
        return kept[:, :, LOSS].nanmean(1)

    def summarize_outputs(self, outputs: Tensor, target: Tensor) -> Tensor:
        """Return what evaluation stores, (N, T, 3) float32: predicted tag, loss and probability; NaN at padding.

        Without targets (N, 0) every position counts as a token, and its loss is NaN.
        """
        logs = outputs.float().log_softmax(2)  # (N, T, K)
        sure, decided = logs.max(2)  # (N, T)
        if target.shape[1] == 0 < logs.shape[1]:
            return torch.stack([decided.float(), torch.full_like(sure, torch.nan), sure.exp()], dim=2)  # (N, T, 3)
        real = target != IGNORED
        loss = -logs.gather(2, target.where(real, torch.zeros_like(target))[:, :, None])[:, :, 0]  # (N, T)
        kept = torch.stack([decided.float(), loss, sure.exp()], dim=2)  # (N, T, 3)
        return kept.masked_fill(~real[:, :, None], torch.nan)

    def fast_metrics(self, kept: Tensor, target: Tensor) -> dict[str, float]:
        """Return token accuracy, loss and, where there are spans, their F1."""
        real = target != IGNORED
        metrics = {
            "accuracy": (kept[:, :, DECIDED] == target)[real].double().mean().item(),
            "loss": kept[:, :, LOSS][real].double().mean().item(),
        }
        if self.spans:
            metrics["span_f1"] = _f1(self._span_counts(kept, target).sum(0))[2]
        return metrics

    def metrics(self, kept: Tensor, target: Tensor) -> dict[str, Metric]:
        """Return token accuracy, balanced accuracy and macro F1 over tags; precision, recall and F1 of spans; loss.

        The units of intervals are sentences, because tokens of a sentence are correlated.
        """
        real = target != IGNORED
        found = self._confusion(kept, target).metrics(self.target.names)
        losses = torch.where(real, kept[:, :, LOSS].double(), 0.0).sum(1).cpu().numpy()
        found["loss"] = ratio(losses, real.sum(1).double().cpu().numpy(), NOUN)
        if self.spans:
            counts = self._span_counts(kept, target)  # (N, 3)
            for k, name in enumerate(("span_precision", "span_recall", "span_f1")):
                found[name] = jackknife(
                    counts,
                    lambda sums, k=k: np.array([_f1(row)[k] for row in sums]),  # type: ignore[misc]
                    fraction,
                    NOUN,
                )
        return found

    def details(self, kept: Tensor, target: Tensor) -> dict[str, Any]:
        """Return the confusion matrix of tags and the metrics of each, as for classes."""
        return {"classes": self._confusion(kept, target).details(self.target.names)}

    def baseline(self, train_target: Tensor, target: Tensor) -> dict[str, Any]:
        """Return the accuracy of the most frequent training tag. Both targets may have any shape."""
        commonest = train_target[train_target != IGNORED].mode().values
        name = f"majority-tag baseline ({self.target.names[int(commonest)]!r})"
        return {"name": name, "value": (target[target != IGNORED] == commonest).double().mean().item()}

    def paired_with_baseline(self, kept: Tensor, target: Tensor, train_target: Tensor) -> tuple[Tensor, Tensor]:
        """Return the correct tags of each sentence, (N,), by the model and by the most frequent training tag."""
        real = target != IGNORED
        commonest = train_target[train_target != IGNORED].mode().values
        return ((kept[:, :, DECIDED] == target) & real).sum(1), ((target == commonest) & real).sum(1)

    def predictions(self, kept: Tensor) -> list[dict[str, Any]]:
        """Return the tags of each example, separated by blanks, and the lowest probability."""
        rows = []
        for of_example in kept:
            real = ~of_example[:, DECIDED].isnan()
            tags = [self.target.names[int(k)] for k in of_example[real, DECIDED].tolist()]
            sure = of_example[real, SURE]
            rows.append({self.target.column: " ".join(tags), "least probability": sure.min().item() if tags else None})
        return rows

    def example_results(self, kept: Tensor, target: Tensor) -> list[dict[str, Any]]:
        """Return the number of tokens, the wrong tags, the lowest probability and the mean loss of each example."""
        rows = []
        names = self.target.names
        for of_example, actual in zip(kept, target):
            real = actual != IGNORED
            pairs = zip(of_example[real, DECIDED].long().tolist(), actual[real].tolist())
            wrong = Counter(f"{names[said]} for {names[was]}" for said, was in pairs if said != was)
            kinds = [f"{kind} ({n})" if n > 1 else kind for kind, n in wrong.most_common(SHOWN)]
            count, tokens = wrong.total(), int(real.sum())
            rows.append(
                {
                    "actual": f"{tokens:,} token{'' if tokens == 1 else 's'}",
                    "predicted": f"{count:,} wrong: {', '.join(kinds)}{', …' if len(wrong) > SHOWN else ''}"
                    if count
                    else "none wrong",
                    "confidence": of_example[real, SURE].min().item() if tokens else None,
                    "loss": of_example[real, LOSS].mean().item() if tokens else 0.0,
                    "wrong": count > 0,
                }
            )
        return rows

    def _confusion(self, kept: Tensor, target: Tensor) -> Confusion:
        """Return the confusion counts of tokens, clustered by sentence."""
        real = target != IGNORED
        decided = kept[:, :, DECIDED][real].long()
        sentence = real.nonzero()[:, 0].cpu().numpy()
        return Confusion(target[real].cpu().numpy(), decided.cpu().numpy(), len(self.target.names), sentence, NOUN)

    def _span_counts(self, kept: Tensor, target: Tensor) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
        """Return the number of correct, predicted and actual spans of each example, (N, 3)."""
        names = self.target.names
        rows = []
        for of_example, actual in zip(kept.cpu(), target.cpu()):
            real = actual != IGNORED
            said = spans([names[int(k)] for k in of_example[real, DECIDED].tolist()])
            there = spans([names[k] for k in actual[real].tolist()])
            rows.append((len(set(said) & set(there)), len(said), len(there)))
        return np.array(rows, np.int64).reshape(len(rows), 3)


def has_span_tags(names: tuple[str, ...]) -> bool:
    """Return whether tags mark spans: all are O or begin with B-, I-, E- or S-, and some with B- or I-."""
    marks = [name for name in names if name != OUTSIDE]
    return all(SPAN_TAG.fullmatch(name) for name in marks) and any(name[0] in "BI" for name in marks)


def spans(tags: list[str]) -> list[Span]:
    """Return the spans of a sentence.

    A span begins at B- and S-, and where the type changes or the previous span has ended. An I- without a preceding tag
    of its type begins a span too.
    """
    found: list[Span] = []
    begin, before, kind = 0, OUTSIDE, ""
    for i, tag in enumerate([*tags, OUTSIDE]):
        mark, _, type = tag.partition("-")
        ended = before in "ES"
        begins = tag != OUTSIDE and (before == OUTSIDE or mark in "BS" or ended or type != kind)
        if before != OUTSIDE and (tag == OUTSIDE or begins):
            found.append((begin, i - 1, kind))
        if begins:
            begin = i
        before, kind = (OUTSIDE, "") if tag == OUTSIDE else (mark, type)
    return found


def _f1(counts: np.ndarray[tuple[int], np.dtype[np.int64]]) -> tuple[float, float, float]:
    """Return precision, recall and F1 from counts of correct, predicted and actual spans; 0 for 0/0, as in CoNLL's
    script.
    """
    right, said, there = (float(n) for n in counts)
    return (
        right / said if said else 0.0,
        right / there if there else 0.0,
        2 * right / (said + there) if said + there else 0.0,
    )
