"""BLEU of translations, computed by sacrebleu from counts of each sentence.

K. Papineni, S. Roukos, T. Ward, W.-J. Zhu, BLEU: a method for automatic evaluation of machine translation, ACL 2002
<https://aclanthology.org/P02-1040>; M. Post, A call for clarity in reporting BLEU scores, WMT 2018
<https://arxiv.org/abs/1804.08771>:

    BLEU = 100 · min(1, e^{1 − r/c}) · (p₁ p₂ p₃ p₄)^{1/4}

p_n is the fraction of predicted n-grams that occur in a reference, c the number of predicted tokens, and r the number
of reference tokens (for each sentence, those of the reference nearest in length). All are sums over the sentences.
sacrebleu counts tokens of the text by its own rules (13a), so scores do not depend on a model's tokenizer.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ..statistics.intervals import Metric, fraction, jackknife

ORDER = 4  # length of the longest n-grams
COUNTS = 2 + 2 * ORDER + 1  # predicted tokens, reference tokens, correct and all n-grams of each n, references


def bleu_counts(said: Sequence[str], right: Sequence[Sequence[str]], lower: bool = False) -> NDArray[np.float64]:
    """Return the BLEU statistics of each sentence, (n, COUNTS), with one or more references each; `lower` ignores
    case.
    """
    from sacrebleu.metrics.bleu import BLEU

    # The counts do not depend on `effective_order`. Without it the library warns about single sentences.
    metric = BLEU(lowercase=lower, effective_order=True, force=True)
    rows = []
    for text, answers in zip(said, right):
        found = metric.sentence_score(text, list(answers))
        rows.append([found.sys_len, found.ref_len, *found.counts, *found.totals, len(answers)])
    return np.array(rows, np.float64).reshape(-1, COUNTS)


def bleu(counts: NDArray[np.float64]) -> float:
    """Return the corpus BLEU, 0 to 100, from `counts` (n, COUNTS)."""
    from sacrebleu.metrics.bleu import BLEU

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
    from sacrebleu.metrics.bleu import BLEU

    metric = BLEU(lowercase=lower)
    numbers = set(counts[:, -1].astype(int).tolist())
    metric.num_refs = numbers.pop() if len(numbers) == 1 else -1  # −1: differs between sentences
    return str(metric.get_signature())
