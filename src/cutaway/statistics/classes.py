"""95 % confidence intervals of metrics of classes: balanced accuracy, F1, areas under ROC and precision–recall curves.

    recall, precision   proportions, with the interval of E. B. Wilson (1927)
    F1 of a class       2J / (1 + J), where J is a proportion too: the correct predictions among all examples that are
                        of the class or predicted as the class
    balanced accuracy   the mean of independent recalls. Two intervals are computed: the combination of those of the
                        recalls (G. Y. Zou, A. Donner, 2008), and that of the effective number of predictions, the
                        number with the same variance. The wider end of the two is used
    macro F1            the effective number of predictions, by the delta method from slightly smoothed counts
    AUC                 all values that are not rejected (R. G. Newcombe, 2006, method 5), by the variance of J. A.
                        Hanley, B. J. McNeil (1982) times its ratio to that of E. R. DeLong et al. (1988)
    average precision   the effective number of predictions, by the jackknife

With few examples of a class there is no interval, and the note names the class.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .intervals import TIES, Z95, Metric, Values, effective, proportion, student, wilson, without_interval

MIN_PER_CLASS = 5  # minimum examples of each class for an interval of means over classes and AUC
MIN_POSITIVES = 20  # minimum examples of a class for an interval of its average precision
SMOOTHING = 0.25  # examples added to each class, half of them correct, to estimate the variance of macro F1
MIN_FOR_DELONG = 20  # examples of the rarer class above which DeLong's variance outweighs Hanley and McNeil's
MAX_PERMUTED = 5_000  # examples that are permuted individually; sums of more are nearly normal
PERMUTATIONS = 1_999
GRID = np.linspace(0, 1, 4001)  # areas that are tested against the observed one


def f1(right: int, of: int, said: int) -> Metric:
    """Return the F1 of a class from counts; NaN if it neither occurs nor is predicted."""
    found = proportion(right, of + said - right).map(lambda j: 2 * j / (1 + j))
    reason = too_few_examples(np.array([of]), None) if of + said else ""
    return without_interval(found.value, reason) if reason else found


def balanced_accuracy(right: NDArray[Any], of: NDArray[Any], names: Sequence[str] | None = None) -> Metric:
    """Return the mean recall of the classes that have examples.

    Args:
        right: Correct predictions of each class, shape (K,).
        of: Examples of each class, shape (K,).
        names: Names of the classes.
    """
    there = of > 0
    names = [name for name, some in zip(names, there) if some] if names else None
    right, of = right[there].astype(np.float64), of[there].astype(np.float64)
    recalls = right / of
    value = float(recalls.mean()) if len(of) else math.nan
    if reason := too_few_examples(of, names):
        return without_interval(value, reason)
    ends = [proportion(r, n) for r, n in zip(right, of)]
    below = math.sqrt(sum((p.value - p.low) ** 2 for p in ends)) / len(of)
    above = math.sqrt(sum((p.high - p.value) ** 2 for p in ends)) / len(of)
    smoothed = (right + 0.5) / (of + 1)
    variance = float((smoothed * (1 - smoothed) / of).sum()) / len(of) ** 2
    centre = float(smoothed.mean())
    count = centre * (1 - centre) / variance
    other = wilson(value, count)
    return Metric(value, max(0.0, min(value - below, other.low)), min(1.0, max(value + above, other.high)))


def independence_p_value(actual: NDArray[np.int64], said: NDArray[np.int64], seed: int = 0) -> float:
    """Return the p-value of a balanced accuracy at least this high if predictions do not depend on the classes.

    The predictions are permuted (R. A. Fisher, 1935): for two classes this is Fisher's exact test, one-sided, which is
    valid for any number of examples. With many examples the statistic, a sum over examples, is nearly normal, and its
    variance over all permutations is known (W. Hoeffding, A combinatorial central limit theorem, 1951).

    Args:
        actual: The class of each example, shape (n,), from 0.
        said: The predicted class of each example, shape (n,), from 0.
        seed: Seed of the permutations.
    """
    from scipy.special import ndtr  # comes with scikit-learn

    size = int(max(actual.max(), said.max())) + 1
    of, taken = np.bincount(actual, minlength=size), np.bincount(said, minlength=size)
    weight = np.where(of > 0, 1 / np.maximum(of, 1), 0.0)  # of a correct prediction: its part of the class's recall
    value, count = float(weight[actual[actual == said]].sum()), len(actual)
    if count < 2:
        return 1.0
    if count > MAX_PERMUTED:
        p, q, w = of / count, taken / count, weight
        of_cells = float((w**2 * p * q).sum())  # E a², a = w 1[actual = said], over all pairs of margins
        of_rows, of_columns = float((w**2 * p * q**2).sum()), float((w**2 * p**2 * q).sum())
        mean = float((w * p * q).sum())
        variance = count**2 * (of_cells - of_rows - of_columns + mean**2) / (count - 1)
        return float(ndtr(-(value - count * mean) / math.sqrt(variance))) if variance > 0 else 1.0
    rng, above = np.random.default_rng(seed), 0
    rows = max(1, MAX_PERMUTED * 100 // count)
    for start in range(0, PERMUTATIONS, rows):
        drawn = rng.permuted(np.tile(said, (min(rows, PERMUTATIONS - start), 1)), axis=1)
        above += int((((drawn == actual) * weight[actual]).sum(1) >= value * (1 - TIES)).sum())
    return (1 + above) / (1 + PERMUTATIONS)


def macro_f1(
    actual: NDArray[np.int64], said: NDArray[np.int64], counts: NDArray[Any], names: Sequence[str] | None = None
) -> Metric:
    """Return the mean F1 of the classes that occur among the examples or the predictions.

    Args:
        actual: The class of the examples of each nonempty cell of the confusion matrix, shape (C,), from 0.
        said: The predicted class of the same cells, shape (C,).
        counts: Number of examples of each cell, shape (C,).
        names: Names of the classes.
    """
    classes = int(max(actual.max(), said.max())) + 1
    of, taken = (np.bincount(side, weights=counts, minlength=classes) for side in (actual, said))
    right = np.bincount(actual, weights=counts * (actual == said), minlength=classes)
    known = of + taken > 0
    value = float((2 * right[known] / (of + taken)[known]).mean())
    if reason := too_few_examples(of[known], [names[int(k)] for k in np.flatnonzero(known)] if names else None):
        return without_interval(value, reason)
    # Variance of the mean contribution of an example, of smoothed counts: g_ij = [i = j] 2/D_i − F_i/D_i − F_j/D_j.
    size, total = int(known.sum()), float(counts.sum())
    both = of + taken + 2 * SMOOTHING  # D
    score = 2 * (right + SMOOTHING / 2) / both  # F
    part = np.where(known, score / both, 0.0)  # F/D
    diagonal = 2 / both - 2 * part
    adds = np.where(actual == said, diagonal[actual], -part[actual] - part[said])
    squares = float((counts * adds**2).sum()) + SMOOTHING / 2 * float((diagonal[known] ** 2).sum())
    if size > 1:
        others = (size - 4) * part**2 + 2 * part * part.sum() + np.square(part).sum()  # Σ_{j≠i} (F_i/D_i + F_j/D_j)²
        squares += SMOOTHING / 2 / (size - 1) * float(others[known].sum())
    centre, variance = float(score[known].mean()), squares / size**2
    count = centre * (1 - centre) / variance
    return wilson(value, count, student(max(total - size, 1.0)))


def too_few_examples(counts: NDArray[Any], names: Sequence[str] | None, noun: str = "examples") -> str:
    """Return the note if a class has fewer than LEAST_OF_CLASS examples, otherwise an empty string."""
    if not len(counts) or counts.min() >= MIN_PER_CLASS:
        return ""
    return f"fewer than {MIN_PER_CLASS} {noun} of " + (f"class {names[int(counts.argmin())]!r}" if names else "a class")


def auc(score: Values, is_class: NDArray[np.bool_], name: str = "a class") -> Metric:
    """Return the area under the ROC curve of scores (n,), of the examples of a class against all others.

    NaN if all examples are of one side.
    """
    from scipy.stats import rankdata  # comes with scikit-learn

    of, others = int(is_class.sum()), int((~is_class).sum())
    if not of or not others:
        return Metric(math.nan, math.nan, math.nan)
    ranks = rankdata(score)
    above = (ranks[is_class] - rankdata(score[is_class])) / others  # share of the others that each example is above
    below = 1 - (ranks[~is_class] - rankdata(score[~is_class])) / of
    value = float(above.mean())
    rarer = min(of, others)
    if rarer < MIN_PER_CLASS:
        side = name if of < others else f"classes other than {name}"
        return without_interval(value, f"fewer than {MIN_PER_CLASS} examples of {side}")
    spread = float(above.var(ddof=1)) / of + float(below.var(ddof=1)) / others  # DeLong's
    least = 1 / (of * others)  # one pair in the wrong order: neither variance is 0
    ratio = spread / float(_hanley_mcneil(np.clip(value, least, 1 - least), of, others))
    weight = rarer / (rarer + MIN_FOR_DELONG)
    factor = weight * ratio + (1 - weight) * max(1.0, ratio)
    held = Z95 * np.sqrt(factor * _hanley_mcneil(GRID, of, others))
    inside = GRID[np.abs(value - GRID) <= held]
    return Metric(value, min(value, float(inside.min(initial=1.0))), max(value, float(inside.max(initial=0.0))))


def _hanley_mcneil(area: Values, of: int, others: int) -> Values:
    """Return the variance of an area, with the mean of both sides' counts in place of each."""
    more = (of + others) / 2 - 1
    spread = 1 + more * ((1 - area) / (2 - area) + area / (1 + area))
    found: Values = area * (1 - area) * spread / (of * others)
    return found


def average_precision(score: Values, is_class: NDArray[np.bool_], name: str = "a class") -> Metric:
    """Return the area under the precision–recall curve, by steps, of scores (n,) of a class against all others.

    NaN if all examples are of one side.
    """
    of, count = int(is_class.sum()), len(score)
    if not of or of == count:
        return Metric(math.nan, math.nan, math.nan)
    _, place = np.unique(-score, return_inverse=True)
    right = np.bincount(place, weights=is_class)  # count at each score, the highest first
    wrong = np.bincount(place, weights=~is_class)
    found, taken = right.cumsum(), wrong.cumsum()
    parts = right * found / (found + taken)
    value = float(parts.sum() / of)
    if of < MIN_POSITIVES:
        return without_interval(value, f"fewer than {MIN_POSITIVES} examples of {name}")
    before = parts.cumsum() - parts
    all_but_one = np.maximum(found + taken - 1, 1)
    lost = right * (found - 1) / all_but_one  # if a positive example at this score or above is left out
    own = (right - 1) * (found - 1) / all_but_one
    without_right = (before + own + lost.sum() - lost.cumsum()) / (of - 1)
    gained = right * found / all_but_one
    without_wrong = (before + gained.sum() - gained.cumsum() + gained) / of
    values, times = np.concatenate([without_right, without_wrong]), np.concatenate([right, wrong])
    centre = float((times * values).sum()) / count
    variance = (count - 1) / count * float((times * (values - centre) ** 2).sum())
    return effective(value, variance, of)


def correlation(value: float, count: int) -> Metric:
    """Return the interval of a rank correlation (C. Spearman, 1904) of `count` pairs.

    The interval is on R. A. Fisher's scale, with the variance of D. G. Bonett, T. A. Wright, Sample size requirements
    for estimating correlations, 2000.
    """
    if math.isnan(value) or count < 2 * MIN_PER_CLASS:
        reason = "one side is constant" if math.isnan(value) else f"fewer than {2 * MIN_PER_CLASS} pairs"
        return without_interval(value, reason)
    half = Z95 * math.sqrt((1 + value**2 / 2) / (count - 3))
    centre = math.atanh(min(max(value, -1 + 1e-12), 1 - 1e-12))
    return Metric(value, min(value, math.tanh(centre - half)), max(value, math.tanh(centre + half)))
