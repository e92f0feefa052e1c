"""What test examples and seeds say of a metric and of the difference between two models.

A metric is f(ȳ), the mean over examples of what each contributes, finished by f: the identity (accuracy), √ (RMSE) or
exp (perplexity). A model that was trained with S seeds has S such values, and is told by their mean. It could have come
out otherwise for two reasons, which are told apart:

    examples   other test examples: paired bootstrap, the same resample for all models and seeds (B. Efron, 1979).
               Deviations are stretched by t_{n−1}/z · √(n/(n−1)), without which the interval of few examples is too
               narrow (T. Hesterberg, What teachers should know about the bootstrap, 2015, <https://arxiv.org/abs/1411.5279>)
    seeds      other trained models: σ²/S with σ² = Var_s f(ȳ_s) − what of it is the examples' alone, as in a two-way
               analysis of variance; of a difference the sum of both models'. Three or five seeds are too few to be
               resampled: what is added is Student's t times its root, with S − 1 degrees of freedom, of a difference
               those of B. L. Welch, 1947

The interval holds 95 % of the sum of both. With one seed it says nothing of other seeds: it is about the trained model.
Where contributions are 0 or 1 two made-up examples are resampled with the others, one right and one wrong, since
thirty right answers of thirty do not prove that all will be (after A. Agresti, B. A. Coull, 1998); of a difference each
is half won by another model (after D. G. Bonett, R. M. Price, 2012). Of other single metrics, which lean to one side,
the interval is the bias-corrected and accelerated one (B. Efron, 1987).

The p-value is that of random signs (R. A. Fisher, 1935): were two models alike, every example's difference could as
well have the other sign; the seeds' part is added to that too. Of many pairs p is corrected by S. Holm, 1979: where all
models are alike, any is called different in at most 5 of 100 comparisons, whatever the number of pairs.

docs/statistics.md has how often intervals held the truth in simulations.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from .resampling import Resamples, Values

Finish = Callable[[Values], Values]

LEVEL = 0.95
TIES = 1e-9  # relative difference below which two sums of the same numbers are equal


@dataclass(frozen=True)
class Interval:
    """A value and the interval that holds it with 95 % confidence."""

    value: float
    low: float
    high: float


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


def measure(contributions: Values, finish: Finish | None = None, seed: int = 0) -> Interval:
    """A model's metric, from contributions (seeds, examples): the mean over seeds of finish(mean over examples).

    NaN where a contribution is none or infinite; without limits where there is one example.
    """
    rows = _distinct(contributions)
    if not np.isfinite(rows).all():
        return Interval(math.nan, math.nan, math.nan)
    marks = finish is None and _marks(rows)
    return measured(rows, finish, Resamples(rows.shape[1], 2 if marks else 0, seed))


def measured(rows: Values, finish: Finish | None, resamples: Resamples) -> Interval:
    """The same of distinct finite rows (S, n), with these resamples; marks of 0 and 1 have two made-up ones."""
    made_up, total, examples = resamples.made_up, resamples.total, rows.shape[1]
    metrics = _finished(rows.mean(1), finish)  # (S,)
    value = float(metrics.mean())
    if examples < 2:
        return Interval(value, -math.inf, math.inf)
    draws = _finished(resamples.means(rows), finish)  # (B, S)
    centre = value
    if made_up:  # one answer of one seed more, right or wrong
        right = np.array([0.5 + 0.5 / len(rows), 0.5 - 0.5 / len(rows)])
        draws = draws + (resamples.favour @ right)[:, None] / total
        centre = (value * examples + right.sum()) / total
    seeds = _of_seeds(metrics, draws)
    of_examples = draws.mean(1)
    spread = _stretched(of_examples, centre, total) + seeds.draws(resamples)
    lean = (0.0, 0.0)
    if not made_up:
        share = float(of_examples.var()) / (float(of_examples.var()) + max(seeds.variance, 0.0) or 1.0)
        lean = _bias(spread, value), _acceleration(rows, finish) * share**1.5
    low, high = _limits(spread, LEVEL, *lean)
    if made_up:
        low, high = max(low, 0.0), min(high, 1.0)
    return Interval(value, min(low, value), max(high, value))


def differences(
    contributions_by_name: Mapping[str, Values],
    higher_is_better: bool,
    finish: Finish | None = None,
    seed: int = 0,
    level: float = LEVEL,
) -> list[Difference]:
    """Every pair of models, in the order in which they are given, from contributions (seeds, examples) of the same
    examples. A model that learns without chance, or whose seeds all answer alike, has one row, which is held against
    every seed of the other. Raises ValueError where models have contributions of different numbers of examples.

    NaN, p = 1 and not told apart where a contribution of either is none or infinite.
    """
    models = {name: _distinct(rows) for name, rows in contributions_by_name.items()}
    counts = {name: rows.shape[1] for name, rows in models.items()}
    if len(set(counts.values())) > 1:
        raise ValueError(f"models are compared on the same examples, and these have {counts}")
    known = {name: rows for name, rows in models.items() if np.isfinite(rows).all()}
    found: dict[tuple[str, str], Difference] = {}
    if len(known) > 1:
        marks = finish is None and all(map(_marks, known.values()))
        resamples = Resamples(next(iter(counts.values())), 2 if marks else 0, seed)
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
    models: Mapping[str, Values], higher_is_better: bool, finish: Finish | None, resamples: Resamples, level: float
) -> list[Difference]:
    """Every pair of models of distinct finite rows (S, n), with these resamples, before correction for their number;
    marks of 0 and 1 have two made-up ones."""
    ends = np.cumsum([len(rows) for rows in models.values()]).tolist()
    at = {name: slice(end - len(rows), end) for (name, rows), end in zip(models.items(), ends)}
    every = np.concatenate(list(models.values()))  # (ΣS, n)
    metrics, draws = _finished(every.mean(1), finish), _finished(resamples.means(every), finish)  # (ΣS,), (B, ΣS)
    pairs = list(itertools.combinations(models, 2))
    of_examples = {name: rows.mean(0) for name, rows in models.items()}
    apart = [(of_examples[a] - of_examples[b]) * _slope(models[a], models[b], finish) for a, b in pairs]
    found = []
    for (a, b), null in zip(pairs, resamples.signed(np.stack(apart, axis=1)).T):
        value = float(metrics[at[a]].mean() - metrics[at[b]].mean())
        seeds = _of_seeds(metrics[at[a]], draws[:, at[a]]).beside(_of_seeds(metrics[at[b]], draws[:, at[b]]))
        own = draws[:, at[a]].mean(1) - draws[:, at[b]].mean(1)
        if resamples.made_up:  # half an answer of one seed
            won = (1 / len(models[a]) + 1 / len(models[b])) / 4
            own = own + won * (resamples.favour[:, 0] - resamples.favour[:, 1]) / resamples.total
        spread = _stretched(own, value * resamples.examples / resamples.total, resamples.total) + seeds.draws(resamples)
        low, high = _limits(spread, level) if resamples.examples > 1 else (-math.inf, math.inf)
        better = spread if higher_is_better else -spread
        probability = float((better > 0).mean() + (better == 0).mean() / 2) if resamples.examples > 1 else 0.5
        extreme = np.abs(null + seeds.draws(resamples)) >= abs(value) * (1 - TIES)
        p = (1 + int(extreme.sum())) / (1 + len(null))
        found.append(Difference(a, b, value, min(low, value), max(high, value), probability, p, p, False))
    return found


def holm(p_values: list[float]) -> list[float]:
    """p-values corrected for their number, in the same order (S. Holm, A simple sequentially rejective multiple test
    procedure, 1979): the k-th smallest of m times m − k + 1, none below the one before it."""
    corrected, largest = [1.0] * len(p_values), 0.0
    for k, i in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - k) * p_values[i]))
        corrected[i] = largest
    return corrected


def ranks(scores: Mapping[str, Mapping[str, float]], higher_is_better: bool, seed: int = 0) -> dict[str, Interval]:
    """The mean rank of each model over data sets, 1 the best; equal scores share theirs. Scores are by data set and
    model.

    Data sets are resampled with two made-up ones, in which the model is first and last: first of all in three data sets
    is not proof of being always first. Data sets that some model has no finite score of count for nothing.
    """
    names = list(dict.fromkeys(name for of_models in scores.values() for name in of_models))
    table = np.array([[of_models.get(name, math.nan) for name in names] for of_models in scores.values()])
    table = table.reshape(-1, len(names))
    table = table[np.isfinite(table).all(1)] * (-1 if higher_is_better else 1)  # (D, M)
    if not len(table):
        return {name: Interval(math.nan, math.nan, math.nan) for name in names}
    below = (table[:, None, :] < table[:, :, None]).sum(2)  # (D, M)
    equal = (table[:, None, :] == table[:, :, None]).sum(2)
    own = below + (equal + 1) / 2
    resamples = Resamples(len(table), 2, seed)
    draws = resamples.means(own.T) + (resamples.favour @ (1.0, len(names)))[:, None] / resamples.total  # (B, M)
    found = {}
    for name, value, drawn in zip(names, own.mean(0).tolist(), draws.T):
        centre = (value * len(table) + 1 + len(names)) / resamples.total
        low, high = _limits(_stretched(drawn, centre, resamples.total), LEVEL)
        found[name] = Interval(value, max(1.0, min(low, value)), min(float(len(names)), max(high, value)))
    return found


@dataclass(frozen=True)
class _Seeds:
    """The part of the uncertainty that other seeds would bring: Student's t with `freedom`, times √`variance`, or
    nothing where that is estimated to be below 0."""

    variance: float = 0.0
    freedom: float = math.inf

    def beside(self, other: _Seeds) -> _Seeds:
        """That of a difference. Its degrees of freedom are Welch's, between those of one and of both together."""
        parts = [one for one in (self, other) if one.variance]
        if len(parts) < 2:
            return parts[0] if parts else self
        total = self.variance + other.variance
        welch = total**2 / sum(one.variance**2 / one.freedom for one in parts)
        least, most = min(one.freedom for one in parts), sum(one.freedom for one in parts)
        return _Seeds(total, min(max(welch, least), most))

    def draws(self, resamples: Resamples) -> Values | float:
        """(B,), or 0 where there is nothing to be added."""
        if self.variance <= 0:
            return 0.0
        return math.sqrt(self.variance) * resamples.rng.standard_t(self.freedom, resamples.draws)


def _of_seeds(metrics: Values, draws: Values) -> _Seeds:
    """From a model's metric by each seed, (S,), and the same of every resample, (B, S)."""
    count = len(metrics)
    if count == 1:
        return _Seeds()
    apart = draws - draws.mean(1, keepdims=True)  # what a resample does to one seed and not to all
    noise = float(apart.var(0).sum()) / (count - 1)
    return _Seeds((float(metrics.var(ddof=1)) - noise) / count, count - 1)


def _stretched(draws: Values, centre: float, count: int) -> Values:
    """Draws further from the centre, as far as Student's t is wider than the normal curve for so many examples."""
    from scipy.special import stdtrit  # comes with scikit-learn

    if count < 2:
        return draws
    normal, student = (float(stdtrit(freedom, (1 + LEVEL) / 2)) for freedom in (math.inf, count - 1))
    return centre + (draws - centre) * student / normal * math.sqrt(count / (count - 1))


def _limits(draws: Values, level: float, bias: float = 0.0, acceleration: float = 0.0) -> tuple[float, float]:
    """The interval that holds this fraction of the draws, as many left out on either side; or as many as bias z₀ and
    acceleration a ask for: Φ(z₀ + (z₀ + z) / (1 − a (z₀ + z)))."""
    from scipy.special import ndtr, ndtri

    z = bias + ndtri(np.array([(1 - level) / 2, (1 + level) / 2]))
    low, high = np.quantile(draws, ndtr(bias + z / (1 - acceleration * z)))
    return float(low), float(high)


def _bias(draws: Values, value: float) -> float:
    """z₀: how far the value is from the median of the draws, in standard deviations."""
    from scipy.special import ndtri

    below = float((draws < value).mean() + (draws == value).mean() / 2)
    return float(ndtri(min(max(below, 1 / len(draws)), 1 - 1 / len(draws))))


def _acceleration(rows: Values, finish: Finish | None) -> float:
    """a: the skewness of what each example adds, by leaving it out (the jackknife), over 6."""
    without = _finished((rows.sum(1, keepdims=True) - rows) / (rows.shape[1] - 1), finish).mean(0)  # (n,)
    added = without.mean() - without
    scale = float(np.square(added).sum()) ** 1.5
    return float((added**3).sum()) / (6 * scale) if scale else 0.0


def _slope(a: Values, b: Values, finish: Finish | None) -> float:
    """How much the finished difference of two models grows with that of their means."""
    if finish is None:
        return 1.0
    means = np.array([a.mean(), b.mean()])
    if abs(means[0] - means[1]) <= 1e-6 * abs(means).max():  # equal but for a rounding: the derivative
        means = means.mean() * np.array([1 + 1e-6, 1 - 1e-6])
    apart = float(means[0] - means[1])
    top, bottom = _finished(means, finish)
    return float(top - bottom) / apart if apart else 1.0


def _distinct(contributions: Values) -> Values:
    """Contributions (S, n) as float64, or one row (1, n) where all are alike."""
    rows = np.atleast_2d(np.asarray(contributions, np.float64))
    return rows[:1] if (rows == rows[:1]).all() else rows


def _marks(rows: Values) -> bool:
    """Whether every contribution is 0 or 1: right or wrong."""
    return bool(((rows == 0) | (rows == 1)).all())


def _finished(means: Values, finish: Finish | None) -> Values:
    found: Values = means if finish is None else np.asarray(finish(means), np.float64)
    return found
