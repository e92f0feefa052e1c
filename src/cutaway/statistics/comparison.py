"""Confidence intervals and tests of a metric, and of the difference between two models, over examples and seeds.

A metric is f(ȳ): f is applied to the mean of the contributions of examples. It is the identity (accuracy), √ (RMSE) or
exp (perplexity). A model that was trained with S seeds has S such values, and their mean is reported. There are two
sources of variance, which add up (a two-way analysis of variance, examples × seeds):

    examples   other test examples, the same for all models and seeds. The standard error of a mean in the paired
               bootstrap (B. Efron, 1979) is known without resampling: s/√n of Σ_s f'(ȳ_s) y_s / S. Differences are
               taken for each example. The part of a single seed is counted below and subtracted here
    seeds      other trained models, with their own part of the examples: Var_s f(ȳ_s) / S. Of a difference it is the
               sum for both models. Three or five seeds are too few to be resampled

Each part alone would have an error of Student's t, with n − 1 and S − 1 degrees of freedom. Of a difference the degrees
of freedom of the seeds are those of B. L. Welch (1947). The combined error is a mixture of the two, weighted by the
squares of their variances, which are also the weights of F. E. Satterthwaite (1946). His single t is too narrow if most
of the variance is estimated from three seeds, and W. G. Cochran's (1964) is too wide. With one seed the result is about
that trained model, not about others.

The distribution of a single metric is skewed, and so is its interval. For correct and wrong predictions it is that of
E. B. Wilson (1927), for the number of independent predictions with this standard error. For all other metrics it is the
studentised bootstrap (P. Hall, 1988) of the logarithm of the mean.

The p-value of two trained models is that of random signs (R. A. Fisher, 1935): under the null hypothesis the difference
of every example has either sign with equal probability. With several seeds it is that of the mixture. The p-values of
many pairs are corrected by S. Holm, 1979: if all models are equal, at most 5 % of comparisons find any significant
difference, for any number of models.

docs/statistics.md has the coverage of the intervals in simulations, and the alternatives that were tried.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from .intervals import (
    LEVEL,
    MAX_LOG_RATIO,
    MAX_RESAMPLED,
    RESAMPLES,
    TIES,
    Metric,
    Resamples,
    Values,
    student,
    studentised,
    wilson,
)

Finish = Callable[[Values], Values]

MIN_EXAMPLES = 10  # fewer examples than this have resamples without variance
MAX_QUANTILE = 1e5  # bound of the quantile search, in standard errors


@dataclass(frozen=True)
class Difference:
    """Metric of model `a` minus that of model `b`, with its confidence interval and p-value.

    Attributes:
        a: Name of the first model.
        b: Name of the second model.
        value: The difference; NaN if either metric is not defined.
        low: The lower end of the interval, of 95 % unless `differences` was called with another level.
        high: The upper end of the interval.
        probability: Probability that `a` is better than `b`, by the distribution of the interval.
        p_value: Probability of a difference at least this large, in either direction, if both models are equal.
        p_corrected: The p-value corrected for the number of pairs (`holm`).
        told_apart: True if the difference is significant: `p_corrected` is at most 0.05, or 1 − level.

    Example:
        >>> correct = {"mlp": np.array([1] * 18 + [0] * 2), "linear": np.array([1] * 10 + [0] * 10)}
        >>> [pair] = differences(correct, higher_is_better=True)
        >>> pair.a, pair.b, pair.told_apart
        ('mlp', 'linear', True)
    """

    a: str
    b: str
    value: float
    low: float
    high: float
    probability: float
    p_value: float
    p_corrected: float
    told_apart: bool


def measure(contributions: Values, finish: Finish | None = None, seed: int = 0) -> Metric:
    """Return the metric of a model, the mean over seeds of finish(mean over examples), with its 95 % interval.

    Args:
        contributions: What each example contributes, such as 1 for a correct prediction and 0 for a wrong one, or a
            squared error: shape (seeds, examples), or (examples,) for one seed.
        finish: Function f of the mean, applied to an array of means: `np.sqrt` of squared errors for RMSE, `np.exp` of
            losses for perplexity. None for the mean itself.
        seed: Seed of the resamples.

    Returns:
        The metric. NaN if there is no example, or if a contribution is NaN or infinite; with infinite limits if there
        is one example.

    Example:
        >>> correct = np.array([1] * 18 + [0] * 2)  # 18 of 20 predictions
        >>> print(measure(correct))
        0.9 (0.699 to 0.9721)
        >>> three_seeds = np.array([[1] * 18 + [0] * 2, [1] * 16 + [0] * 4, [1] * 17 + [0] * 3])
        >>> print(measure(three_seeds))  # over other examples and other seeds
        0.85 (0.6304 to 0.9496)
        >>> losses = np.array([0.3, 0.5, 0.4, 0.9, 0.3, 0.7, 0.4, 0.3, 0.8, 0.5, 0.3, 0.6])
        >>> print(measure(losses, np.exp))  # perplexity
        1.649 (1.447 to 2.066)
    """
    rows = _distinct(contributions)
    if not rows.size or not np.isfinite(rows).all():
        return Metric(math.nan, math.nan, math.nan)
    return measure_rows(rows, finish, Resamples(rows.shape[1], seed))


def measure_rows(rows: Values, finish: Finish | None, resamples: Resamples) -> Metric:
    """Return the metric of distinct finite rows, shape (S, n), with the given resamples."""
    model = _summarize(rows, finish)
    if rows.shape[1] < 2:
        return Metric(model.value, -math.inf, math.inf)
    error = _error_distribution(model.added, [model])
    if finish is None and _is_binary(rows):
        low, high = _fraction_interval(model, error)
    elif model.added.mean() > 0 and error.scale > 0:
        if MIN_EXAMPLES <= resamples.examples <= MAX_RESAMPLED:
            error = replace(error, of_examples=np.sort(studentised(model.added, resamples, logarithm=True)))
        relative = error.scale / float(model.added.mean())
        apart = [min(-error.quantile(p) * relative, MAX_LOG_RATIO) for p in ((1 + LEVEL) / 2, (1 - LEVEL) / 2)]
        low, high = (float(_apply_finish(rows.mean(1) * math.exp(log), finish).mean()) for log in apart)
    else:
        low, high = error.interval(model.value, LEVEL)
    return Metric(model.value, min(low, model.value), max(high, model.value))


def differences(
    contributions_by_name: Mapping[str, Values],
    higher_is_better: bool,
    finish: Finish | None = None,
    seed: int = 0,
    level: float = LEVEL,
) -> list[Difference]:
    """Compare every pair of models, in the given order, on the same examples.

    A deterministic model, or one whose seeds all give the same predictions, has one row. It is compared with every seed
    of the other.

    Args:
        contributions_by_name: Contributions of each model as in `measure`, shape (seeds, examples), or (examples,) for
            one seed. The number of seeds may differ between models; example j must be the same for all.
        higher_is_better: True for accuracy, False for losses and errors.
        finish: Function f of the mean, as in `measure`. None for the mean itself.
        seed: Seed of the resamples.
        level: Confidence level of the intervals; the difference is significant if the corrected p-value is at most
            1 − level.

    Returns:
        One difference for each pair. NaN, with p = 1 and not significant, if there is no example, or if a contribution
        of either model is NaN or infinite.

    Raises:
        ValueError: If models have different numbers of examples.

    Example:
        >>> a, b = np.array([1] * 18 + [0] * 2), np.array([1] * 10 + [0] * 10)  # 18 and 10 of the same 20
        >>> [pair] = differences({"a": a, "b": b}, higher_is_better=True)
        >>> print(f"{pair.value:.2f} ({pair.low:.2f} to {pair.high:.2f}), p < 0.05: {pair.told_apart}")
        0.40 (0.16 to 0.64), p < 0.05: True

    Read: on other test examples, the first of these two trained models is 16 to 64 percentage points better than the
    second, with 95 % confidence. A difference that is not significant does not mean that the models are equal: the
    interval shows how large the difference can be.
    """
    models = {name: _distinct(rows) for name, rows in contributions_by_name.items()}
    counts = {name: rows.shape[1] for name, rows in models.items()}
    if len(set(counts.values())) > 1:
        raise ValueError(f"models must be compared on the same examples, not {counts}")
    known = {name: rows for name, rows in models.items() if rows.size and np.isfinite(rows).all()}
    found: dict[tuple[str, str], Difference] = {}
    if len(known) > 1:
        resamples = Resamples(next(iter(counts.values())), seed)
        found = {(d.a, d.b): d for d in compare_rows(known, higher_is_better, finish, resamples, level)}
    corrected = dict(zip(found, holm([d.p_value for d in found.values()])))
    unknown = Difference("", "", math.nan, math.nan, math.nan, math.nan, 1.0, 1.0, False)
    return [
        replace(found[a, b], p_corrected=corrected[a, b], told_apart=corrected[a, b] <= 1 - level)
        if (a, b) in found
        else replace(unknown, a=a, b=b)
        for a, b in itertools.combinations(models, 2)
    ]


def compare_rows(
    rows_by_name: Mapping[str, Values],
    higher_is_better: bool,
    finish: Finish | None,
    resamples: Resamples,
    level: float,
) -> list[Difference]:
    """Compare every pair of models of distinct finite rows, shape (S, n), before correction for the number of pairs."""
    models = {name: _summarize(rows, finish) for name, rows in rows_by_name.items()}
    marks = finish is None and all(map(_is_binary, rows_by_name.values()))
    pairs = list(itertools.combinations(models, 2))
    trained_once = [pair for pair in pairs if all(models[name].seeds == 1 for name in pair)]
    by_signs = _sign_test([rows_by_name[a][0] - rows_by_name[b][0] for a, b in trained_once], resamples)
    p_values = dict(zip(trained_once, by_signs))
    found = []
    for a, b in pairs:
        one, other = models[a], models[b]
        value, apart = one.value - other.value, one.added - other.added
        if resamples.examples < 2:
            found.append(Difference(a, b, value, -math.inf, math.inf, 0.5, 1.0, 1.0, False))
            continue
        error = _error_distribution(apart, [one, other])
        if marks:  # one more or fewer correct prediction is always possible
            least = 1 / (resamples.examples * min(one.seeds, other.seeds))
            error = replace(error, scale=max(error.scale, least))
        low, high = error.interval(value, level)
        above = error.cdf(value)  # the probability of a difference above 0
        p = (
            p_values[a, b]
            if (a, b) in p_values
            else 2 * _error_distribution(apart, [one, other], True).cdf(-abs(value))
        )
        found.append(Difference(a, b, value, low, high, above if higher_is_better else 1 - above, p, p, False))
    return found


def holm(p_values: list[float]) -> list[float]:
    """Return p-values corrected for their number, in the same order.

    S. Holm, A simple sequentially rejective multiple test procedure, 1979: the k-th smallest of m p-values is
    multiplied by m − k + 1, and is at least as large as the one before it, and at most 1.

    Args:
        p_values: The p-values of m tests, in any order.

    Example:
        >>> [round(p, 3) for p in holm([0.01, 0.04, 0.03])]  # at 5 % only the first remains significant
        [0.03, 0.06, 0.06]
    """
    corrected, largest = [1.0] * len(p_values), 0.0
    for k, i in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - k) * p_values[i]))
        corrected[i] = largest
    return corrected


def ranks(scores: Mapping[str, Mapping[str, float]], higher_is_better: bool, seed: int = 0) -> dict[str, Metric]:
    """Return the mean rank of each model over data sets. Rank 1 is the best; equal scores share their rank.

    Data sets are resampled together with two artificial ones, one in which each model is first and one in which each is
    last: being first in three data sets does not prove being always first. Deviations are stretched as far as Student's
    t is wider than the normal distribution (T. Hesterberg, What teachers should know about the bootstrap, 2015,
    <https://arxiv.org/abs/1411.5279>). Data sets on which any model has no finite score are ignored.

    Args:
        scores: Scores, by data set and model.
        higher_is_better: True for accuracy, False for losses and errors.
        seed: Seed of the resamples.

    Returns:
        The mean rank and its 95 % interval, by model; NaN if no data set has a score of every model.

    Example:
        >>> scores = {
        ...     "wine": {"mlp": 0.98, "linear": 0.95}, "digits": {"mlp": 0.97, "linear": 0.93},
        ...     "iris": {"mlp": 0.96, "linear": 0.94},
        ... }
        >>> for name, rank in ranks(scores, higher_is_better=True).items():
        ...     print(name, rank)  # the intervals overlap: three data sets are too few
        mlp 1 (1 to 1.834)
        linear 2 (1.166 to 2)
    """
    from scipy.stats import rankdata  # comes with scikit-learn

    names = list(dict.fromkeys(name for of_models in scores.values() for name in of_models))
    table = np.array([[of_models.get(name, math.nan) for name in names] for of_models in scores.values()])
    table = table.reshape(len(scores), len(names))
    table = table[np.isfinite(table).all(1)] * (-1 if higher_is_better else 1)  # (D, M)
    if not table.size:
        return {name: Metric(math.nan, math.nan, math.nan) for name in names}
    last = len(names)
    own = rankdata(table, axis=1)  # (D, M)
    every = np.concatenate([own, np.tile([[1.0], [float(last)]], last)])  # (D + 2, M)
    drawn = np.random.default_rng(seed).integers(0, len(every), (RESAMPLES, len(every)))
    apart = every[drawn].mean(1) - every.mean(0)  # (B, M)
    stretch = student(len(every) - 1, LEVEL) / student(math.inf, LEVEL) * math.sqrt(len(every) / (len(every) - 1))
    ends = every.mean(0) + stretch * np.quantile(apart, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)  # (2, M)
    return {
        name: Metric(value, max(1.0, min(low, value)), min(float(last), max(high, value)))
        for name, value, low, high in zip(names, own.mean(0).tolist(), *ends.tolist())
    }


# --- standard errors --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _ModelSummary:
    """Metric of a model and its parts."""

    value: float
    added: Values  # (n,) first-order contribution of each example: Σ_s f'(ȳ_s) y_s / S
    seeds: int
    of_seeds: float = 0.0  # variance of seeds, including the examples' part that is specific to a seed
    shared: float = 0.0  # that part alone, which the variance of `added` includes too


def _summarize(rows: Values, finish: Finish | None) -> _ModelSummary:
    """Return the metric and its parts from contributions (S, n)."""
    count, examples = rows.shape
    means = rows.mean(1)
    metrics = _apply_finish(means, finish)
    every = rows * _slopes(means, np.abs(rows).mean(1), finish)[:, None]
    added = every.mean(0)
    if count == 1 or examples == 1:
        return _ModelSummary(float(metrics.mean()), added, count)
    own = float((every - added).var(1, ddof=1).sum()) / (count - 1) / examples  # of one seed
    return _ModelSummary(float(metrics.mean()), added, count, float(metrics.var(ddof=1)) / count, own / count)


@dataclass(frozen=True)
class _ErrorDistribution:
    """Distribution of an error: `scale`, a standard error, times a variable with a mixture of two distributions."""

    scale: float
    freedom: float  # of Student's t for the examples
    of_seeds: float = math.inf  # of Student's t for the seeds
    weight: float = 0.0  # of the seeds in the mixture
    of_examples: Values | None = None  # sorted draws that replace Student's t for the examples

    def cdf(self, error: float) -> float:
        """Return the probability of an error below this one."""
        from scipy.special import stdtr  # comes with scikit-learn

        if not self.scale:
            return 0.5 if error == 0 else float(error > 0)
        return self._cumulative(error / self.scale, stdtr)

    def quantile(self, p: float) -> float:
        """Return the p-quantile of the distribution, in standard errors."""
        from scipy.optimize import bisect
        from scipy.special import stdtr

        return float(bisect(lambda x: self._cumulative(x, stdtr) - p, -MAX_QUANTILE, MAX_QUANTILE, xtol=1e-7))

    def interval(self, value: float, level: float) -> tuple[float, float]:
        """Return the symmetric interval of a value."""
        reach = self.scale * self.quantile((1 + level) / 2)
        return value - reach, value + reach

    def _cumulative(self, x: float, student: Callable[[float, float], float]) -> float:
        if self.of_examples is None:
            examples = student(self.freedom, x)
        else:
            examples = np.searchsorted(self.of_examples, x) / len(self.of_examples)
        return float((1 - self.weight) * examples + self.weight * student(self.of_seeds, x))


def _error_distribution(added: Values, models: list[_ModelSummary], cautious: bool = False) -> _ErrorDistribution:
    """Return the distribution of the error of a metric or a difference.

    Args:
        added: Contribution of each example, shape (n,).
        models: The one or two models, with their seeds.
        cautious: Whether the seeds' part must not reduce the variance of the examples if seeds agree by chance.
    """
    count = len(added)
    parts = [(model.of_seeds, model.seeds - 1) for model in models if model.of_seeds > 0]
    seeds = sum(variance for variance, _ in parts)
    twice = sum(model.shared for model in models)
    examples = max(0.0, float(added.var(ddof=1)) / count - (min(twice, seeds) if cautious else twice))
    if not parts:
        return _ErrorDistribution(math.sqrt(examples), count - 1)
    welch = seeds**2 / sum(variance**2 / freedom for variance, freedom in parts)
    weight = seeds**2 / (seeds**2 + examples**2)
    return _ErrorDistribution(math.sqrt(examples + seeds), count - 1, welch, weight)


def _fraction_interval(model: _ModelSummary, error: _ErrorDistribution) -> tuple[float, float]:
    """Return the interval of a fraction of correct predictions.

    With several seeds it is that of the number of independent predictions with this standard error, at most one for
    each example and seed.
    """
    examples = len(model.added)
    if model.seeds == 1:
        found = wilson(model.value, examples)
        return found.low, found.high
    most = examples * model.seeds
    alike = model.value * (1 - model.value) / error.scale**2 if error.scale else most
    found = wilson(model.value, min(alike, most), error.quantile((1 + LEVEL) / 2))
    return found.low, found.high


def _sign_test(apart: list[Values], resamples: Resamples) -> list[float]:
    """Return the p-values of means of differences, each (n,), by random signs."""
    if not apart:
        return []
    columns = np.stack(apart, axis=1)
    extreme = np.abs(resamples.signed(columns)) >= np.abs(columns.mean(0)) * (1 - TIES)
    found: list[float] = ((1 + extreme.sum(0)) / (1 + len(extreme))).tolist()
    return found


def _slopes(means: Values, sizes: Values, finish: Finish | None) -> Values:
    """Return f' at each of the means, by a finite difference that is small relative to the `sizes` of the values."""
    if finish is None:
        return np.ones_like(means)
    step = 1e-6 * np.where(sizes > 0, sizes, 1.0)
    found: Values = np.where(sizes > 0, (finish(means + step) - finish(means - step * (sizes > 0))) / (2 * step), 0.0)
    return found


def _distinct(contributions: Values) -> Values:
    """Return contributions (S, n) as float64, or one row (1, n) if all rows are equal."""
    rows = np.atleast_2d(np.asarray(contributions, np.float64))
    return rows[:1] if (rows == rows[:1]).all() else rows


def _is_binary(rows: Values) -> bool:
    """Return whether every contribution is 0 or 1: wrong or correct."""
    return bool(((rows == 0) | (rows == 1)).all())


def _apply_finish(means: Values, finish: Finish | None) -> Values:
    found: Values = means if finish is None else np.asarray(finish(means), np.float64)
    return found
