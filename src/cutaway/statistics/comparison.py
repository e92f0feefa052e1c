"""Confidence intervals and tests of a metric, and of the difference between two models, over examples and seeds.

A metric is f(ȳ), the mean over examples of their contributions, finished by f: the identity (accuracy), √ (RMSE) or
exp (perplexity). A model that was trained with S seeds has S such values, and is reported by their mean. That has two
sources of variance, which add up (a two-way analysis of variance, examples × seeds):

    examples   other test examples, the same ones for all models and seeds. Of the paired bootstrap (B. Efron, 1979) the
               standard error of a mean is known without resampling: s/√n of Σ_s f'(ȳ_s) y_s / S, of which differences
               are taken example by example. The part of a single seed is counted below, and subtracted here
    seeds      other trained models, with their own part of the examples: Var_s f(ȳ_s) / S; of a difference the
               sum of both models'. Three or five seeds are too few to be resampled

Each part alone would have an error of Student's t, with n − 1 degrees of freedom and with S − 1, of a difference those
of B. L. Welch (1947). Together the error has a mixture of the two, weighted by the squares of their variances, which
are the weights of F. E. Satterthwaite (1946) too: his single t is too narrow where most of the variance is known from
three seeds, W. G. Cochran's (1964) too wide. With one seed the result is about that trained model, not about others.

The distribution of a single metric is skewed, and so is its interval. For right and wrong answers it is that of E. B.
Wilson (1927), for the number of independent answers with this standard error; for all other metrics the studentised
bootstrap (P. Hall, 1988) of the mean's logarithm.

The p-value of two trained models is that of random signs (R. A. Fisher, 1935): under the null hypothesis every
example's difference has either sign with equal probability. With several seeds it is that of the mixture. The p-values
of many pairs are corrected by S. Holm, 1979: if all models are equal, at most 5 of 100 comparisons of any number of
models call some pair different.

docs/statistics.md has the coverage of the intervals in simulations, and the alternatives that were tried.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from .intervals import LEVEL, TIES, WIDEST, Metric, student, studentised, wilson
from .resampling import DRAWS, MOST, Resamples, Values

Finish = Callable[[Values], Values]

FEW = 10  # examples of which some resamples are all alike, and have no standard error
FAR = 1e5  # standard errors: no quantile that is asked for is further away


@dataclass(frozen=True)
class Difference:
    """The metric of `a` less that of `b`."""

    a: str
    b: str
    value: float
    low: float
    high: float
    probability: float  # that a is the better one of the two
    p_value: float  # of so large a difference, were they alike
    p_corrected: float  # for the number of pairs
    told_apart: bool  # whether the corrected p-value is small enough to call them different


def measure(contributions: Values, finish: Finish | None = None, seed: int = 0) -> Metric:
    """A model's metric, from contributions (seeds, examples): the mean over seeds of finish(mean over examples).

    NaN where a contribution is none or infinite; without limits where there is one example.
    """
    rows = _distinct(contributions)
    if not np.isfinite(rows).all():
        return Metric(math.nan, math.nan, math.nan)
    return measured(rows, finish, Resamples(rows.shape[1], seed))


def measured(rows: Values, finish: Finish | None, resamples: Resamples) -> Metric:
    """The same of distinct finite rows (S, n), with these resamples."""
    model = _model(rows, finish)
    if rows.shape[1] < 2:
        return Metric(model.value, -math.inf, math.inf)
    error = _error(model.added, [model])
    if finish is None and _is_binary(rows):
        low, high = _fraction_interval(model, error)
    elif model.added.mean() > 0 and error.scale > 0:
        if FEW <= resamples.examples <= MOST:
            error = replace(error, of_examples=np.sort(studentised(model.added, resamples, logarithm=True)))
        relative = error.scale / float(model.added.mean())
        apart = [min(-error.quantile(p) * relative, WIDEST) for p in ((1 + LEVEL) / 2, (1 - LEVEL) / 2)]
        low, high = (float(_finished(rows.mean(1) * math.exp(log), finish).mean()) for log in apart)
    else:
        low, high = error.around(model.value, LEVEL)
    return Metric(model.value, min(low, model.value), max(high, model.value))


def differences(
    contributions_by_name: Mapping[str, Values],
    higher_is_better: bool,
    finish: Finish | None = None,
    seed: int = 0,
    level: float = LEVEL,
) -> list[Difference]:
    """Compare every pair of models, in the given order, by contributions (seeds, examples) of the same examples.

    A deterministic model, or one whose seeds all answer alike, has one row, which is compared with every seed of the
    other. Raises ValueError if models have contributions of different numbers of examples.

    The difference is NaN, with p = 1 and not significant, if a contribution of either is NaN or infinite.
    """
    models = {name: _distinct(rows) for name, rows in contributions_by_name.items()}
    counts = {name: rows.shape[1] for name, rows in models.items()}
    if len(set(counts.values())) > 1:
        raise ValueError(f"models are compared on the same examples, and these have {counts}")
    known = {name: rows for name, rows in models.items() if np.isfinite(rows).all()}
    found: dict[tuple[str, str], Difference] = {}
    if len(known) > 1:
        resamples = Resamples(next(iter(counts.values())), seed)
        found = {(d.a, d.b): d for d in compared(known, higher_is_better, finish, resamples, level)}
    corrected = dict(zip(found, holm([d.p_value for d in found.values()])))
    unknown = Difference("", "", math.nan, math.nan, math.nan, math.nan, 1.0, 1.0, False)
    return [
        replace(found[a, b], p_corrected=corrected[a, b], told_apart=corrected[a, b] <= 1 - level)
        if (a, b) in found
        else replace(unknown, a=a, b=b)
        for a, b in itertools.combinations(models, 2)
    ]


def compared(
    rows_by_name: Mapping[str, Values],
    higher_is_better: bool,
    finish: Finish | None,
    resamples: Resamples,
    level: float,
) -> list[Difference]:
    """Every pair of models of distinct finite rows (S, n), before correction for their number."""
    models = {name: _model(rows, finish) for name, rows in rows_by_name.items()}
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
        error = _error(apart, [one, other])
        if marks:  # one more or fewer right answer is always possible
            least = 1 / (resamples.examples * min(one.seeds, other.seeds))
            error = replace(error, scale=max(error.scale, least))
        low, high = error.around(value, level)
        above = error.below(value)  # as likely as an error below it is a difference above 0
        p = p_values[a, b] if (a, b) in p_values else 2 * _error(apart, [one, other], True).below(-abs(value))
        found.append(Difference(a, b, value, low, high, above if higher_is_better else 1 - above, p, p, False))
    return found


def holm(p_values: list[float]) -> list[float]:
    """p-values corrected for their number, in the same order (S. Holm, A simple sequentially rejective multiple test
    procedure, 1979): the k-th smallest of m times m − k + 1, none below the one before it."""
    corrected, largest = [1.0] * len(p_values), 0.0
    for k, i in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - k) * p_values[i]))
        corrected[i] = largest
    return corrected


def ranks(scores: Mapping[str, Mapping[str, float]], higher_is_better: bool, seed: int = 0) -> dict[str, Metric]:
    """The mean rank of each model over data sets, 1 the best; equal scores share theirs. Scores are by data set and
    model.

    Data sets are resampled with two made-up ones, in which the model is first and last: first of all in three data sets
    is not proof of being always first. Deviations are stretched as far as Student's t is wider than the normal curve
    (T. Hesterberg, What teachers should know about the bootstrap, 2015, <https://arxiv.org/abs/1411.5279>). Data sets
    that some model has no finite score of count for nothing.
    """
    from scipy.stats import rankdata  # comes with scikit-learn

    names = list(dict.fromkeys(name for of_models in scores.values() for name in of_models))
    table = np.array([[of_models.get(name, math.nan) for name in names] for of_models in scores.values()])
    table = table.reshape(-1, len(names))
    table = table[np.isfinite(table).all(1)] * (-1 if higher_is_better else 1)  # (D, M)
    if not len(table):
        return {name: Metric(math.nan, math.nan, math.nan) for name in names}
    last = len(names)
    own = rankdata(table, axis=1)  # (D, M)
    every = np.concatenate([own, np.tile([[1.0], [float(last)]], last)])  # (D + 2, M)
    drawn = np.random.default_rng(seed).integers(0, len(every), (DRAWS, len(every)))
    apart = every[drawn].mean(1) - every.mean(0)  # (B, M)
    stretch = student(len(every) - 1, LEVEL) / student(math.inf, LEVEL) * math.sqrt(len(every) / (len(every) - 1))
    ends = every.mean(0) + stretch * np.quantile(apart, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)  # (2, M)
    return {
        name: Metric(value, max(1.0, min(low, value)), min(float(last), max(high, value)))
        for name, value, low, high in zip(names, own.mean(0).tolist(), *ends.tolist())
    }


# --- how far a value may be off ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Model:
    """A model's metric, and its parts."""

    value: float
    added: Values  # (n,) what each example adds to it, to first order: Σ_s f'(ȳ_s) y_s / S
    seeds: int
    of_seeds: float = 0.0  # variance that other seeds would bring, what of examples is theirs alone included
    shared: float = 0.0  # and the latter by itself, which is a part of the variance of `added` too


def _model(rows: Values, finish: Finish | None) -> _Model:
    """From contributions (S, n)."""
    count, examples = rows.shape
    means = rows.mean(1)
    metrics = _finished(means, finish)
    every = rows * _slopes(means, np.abs(rows).mean(1), finish)[:, None]
    added = every.mean(0)
    if count == 1 or examples == 1:
        return _Model(float(metrics.mean()), added, count)
    own = float((every - added).var(1, ddof=1).sum()) / (count - 1) / examples  # of one seed
    return _Model(float(metrics.mean()), added, count, float(metrics.var(ddof=1)) / count, own / count)


@dataclass(frozen=True)
class _Error:
    """Error of a value: `scale`, a standard error, times a variable with a mixture of two distributions."""

    scale: float
    freedom: float  # of Student's t for the examples
    of_seeds: float = math.inf  # and for the seeds
    weight: float = 0.0  # of the latter
    of_examples: Values | None = None  # draws that stand in place of the former

    def below(self, error: float) -> float:
        """The probability of an error below this one."""
        from scipy.special import stdtr  # comes with scikit-learn

        if not self.scale:
            return 0.5 if error == 0 else float(error > 0)
        return self._cumulative(error / self.scale, stdtr)

    def quantile(self, p: float) -> float:
        """Return the p-quantile of the distribution, in standard errors."""
        from scipy.optimize import bisect
        from scipy.special import stdtr

        return float(bisect(lambda x: self._cumulative(x, stdtr) - p, -FAR, FAR, xtol=1e-7))

    def around(self, value: float, level: float) -> tuple[float, float]:
        """The interval of a value whose errors have no side."""
        reach = self.scale * self.quantile((1 + level) / 2)
        return value - reach, value + reach

    def _cumulative(self, x: float, student: Callable[[float, float], float]) -> float:
        if self.of_examples is None:
            examples = student(self.freedom, x)
        else:
            examples = np.searchsorted(self.of_examples, x) / len(self.of_examples)
        return float((1 - self.weight) * examples + self.weight * student(self.of_seeds, x))


def _error(added: Values, models: list[_Model], cautious: bool = False) -> _Error:
    """That of a metric or a difference, from what each example adds to it (n,) and the seeds of its models. To be
    cautious, seeds that agree by chance take nothing away from what examples alone would say."""
    count = len(added)
    parts = [(model.of_seeds, model.seeds - 1) for model in models if model.of_seeds > 0]
    seeds = sum(variance for variance, _ in parts)
    twice = sum(model.shared for model in models)
    examples = max(0.0, float(added.var(ddof=1)) / count - (min(twice, seeds) if cautious else twice))
    if not parts:
        return _Error(math.sqrt(examples), count - 1)
    welch = seeds**2 / sum(variance**2 / freedom for variance, freedom in parts)
    weight = seeds**2 / (seeds**2 + examples**2)
    return _Error(math.sqrt(examples + seeds), count - 1, welch, weight)


def _fraction_interval(model: _Model, error: _Error) -> tuple[float, float]:
    """Return the interval of a fraction of right answers; for several seeds that of the number of independent answers
    with this standard error, at most the number of examples."""
    examples = len(model.added)
    if model.seeds == 1:
        found = wilson(model.value, examples)
        return found.low, found.high
    most = examples * model.seeds
    alike = model.value * (1 - model.value) / error.scale**2 if error.scale else most
    found = wilson(model.value, min(alike, most), error.quantile((1 + LEVEL) / 2))
    return found.low, found.high


def _sign_test(apart: list[Values], resamples: Resamples) -> list[float]:
    """The p-values of means of differences, each (n,), by random signs."""
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
    """Contributions (S, n) as float64, or one row (1, n) where all are alike."""
    rows = np.atleast_2d(np.asarray(contributions, np.float64))
    return rows[:1] if (rows == rows[:1]).all() else rows


def _is_binary(rows: Values) -> bool:
    """Return whether every contribution is 0 or 1: right or wrong."""
    return bool(((rows == 0) | (rows == 1)).all())


def _finished(means: Values, finish: Finish | None) -> Values:
    found: Values = means if finish is None else np.asarray(finish(means), np.float64)
    return found
