"""What test examples and seeds say of a metric and of the difference between two models.

A metric is f(ȳ), the mean over examples of what each contributes, finished by f: the identity (accuracy), √ (RMSE) or
exp (perplexity). A model that was trained with S seeds has S such values, and is told by their mean. It could have come
out otherwise for two reasons, which are told apart:

    examples   other test examples: paired bootstrap, the same resample for all models and seeds (B. Efron, 1979).
               Deviations are stretched by t_{n−1}/z · √(n/(n−1)), without which the interval of few examples is too
               narrow (T. Hesterberg, What teachers should know about the bootstrap, 2015, <https://arxiv.org/abs/1411.5279>)
    seeds      other trained models: variance σ² / S with σ² = Var_s f(ȳ_s) − what of it is the examples' alone, at
               least 0, as in a two-way analysis of variance. Three or five seeds are too few to be resampled: Student's
               t is added instead, with S − 1 degrees of freedom, of a difference those of B. L. Welch, 1947

The interval holds 95 % of their sum. With one seed it says nothing of other seeds: it is about that trained model.
Where contributions are 0 or 1 a few made-up examples are resampled with the others, since thirty right answers of
thirty do not prove that all will be (A. Agresti, B. A. Coull, 1998; of differences D. G. Bonett, R. M. Price, 2012).

The p-value is that of random signs (R. A. Fisher, 1935): were two models alike, every example's difference could as
well have the other sign; the seeds' part is added to that too. Of many pairs p is corrected by S. Holm, 1979: models
that are all alike are called different in at most 5 of 100 comparisons, whatever the number of pairs.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]
Finish = Callable[[Values], Values]

DRAWS = 9_999  # p is a multiple of 1/10 000
MOST = 5_000  # examples that are resampled; of more, means are drawn from the normal curve that resampling tends to
CELLS = 1 << 22  # resampled examples that are held at a time
LEVEL = 0.95


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
    value = float(_finished(rows.mean(1), finish).mean())
    if not np.isfinite(rows).all():
        return Interval(math.nan, math.nan, math.nan)
    rng = np.random.default_rng(seed)
    made_up = 2 if finish is None and _marks(rows) else 0
    padded = np.concatenate([rows, np.ones((len(rows), made_up)), np.zeros((len(rows), made_up))], axis=1)
    means, _ = _resampled(padded, rng, made_up=0)
    draws = _finished(means, finish)  # (B, S)
    centre = float(_finished(padded.mean(1), finish).mean())
    seeds = _of_seeds(_finished(rows.mean(1), finish), draws)
    low, high = _limits(_stretched(draws.mean(1), centre, padded.shape[1]) + seeds.draws(rng), LEVEL)
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
    if len({rows.shape[1] for rows in models.values()}) > 1:
        raise ValueError(f"models of different examples: { {name: rows.shape[1] for name, rows in models.items()} }")
    known = {name: rows for name, rows in models.items() if np.isfinite(rows).all()}
    rng = np.random.default_rng(seed)
    answers = _Answers(known, finish, rng)
    found = []
    for (a, b), null in zip(itertools.combinations(known, 2), answers.under_alike(rng)):
        value, draws, seeds = answers.difference(a, b)
        n = answers.count
        draws = _stretched(draws, value * answers.shrunk, n) + seeds.draws(rng)
        low, high = _limits(draws, level)
        better = draws if higher_is_better else -draws
        probability = float((better > 0).mean() + (better == 0).mean() / 2)
        extreme = np.abs(null + seeds.draws(rng)) >= abs(value) * (1 - 1e-9)  # ties count, whatever the rounding
        p = (1 + int(extreme.sum())) / (1 + len(null))
        found.append(Difference(a, b, value, min(low, value), max(high, value), probability, p, p, False))
    corrected = dict(zip(((d.a, d.b) for d in found), holm([d.p_value for d in found])))
    by_pair = {(d.a, d.b): d for d in found}
    return [
        _judged(by_pair.get(pair), pair, corrected.get(pair, 1.0), 1 - level)
        for pair in itertools.combinations(models, 2)
    ]


def holm(p_values: list[float]) -> list[float]:
    """p-values corrected for their number, in the same order (S. Holm, A simple sequentially rejective multiple test
    procedure, 1979): the k-th smallest of m times m − k + 1, none below the one before it."""
    corrected, largest = [1.0] * len(p_values), 0.0
    for k, i in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - k) * p_values[i]))
        corrected[i] = largest
    return corrected


def ranks(scores: Mapping[str, Mapping[str, float]], higher_is_better: bool, seed: int = 0) -> dict[str, Interval]:
    """The mean rank of each model over data sets, 1 the best; equal scores share theirs.

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
    most = len(names)
    rng = np.random.default_rng(seed)
    found = {}
    for name, column in zip(names, own.T):
        padded = np.concatenate([column, [1.0, most]])[None]
        means, _ = _resampled(padded, rng, made_up=0)
        draws = _stretched(means[:, 0], float(padded.mean()), padded.shape[1])
        low, high = _limits(draws, LEVEL)
        value = float(column.mean())
        found[name] = Interval(value, max(1.0, min(low, value)), min(float(most), max(high, value)))
    return found


class _Answers:
    """The resampled metrics of several models, of the same resamples."""

    def __init__(self, models: Mapping[str, Values], finish: Finish | None, rng: np.random.Generator) -> None:
        self.finish = finish
        self.names = list(models)
        self.rows = list(models.values())
        ends = np.cumsum([len(rows) for rows in self.rows]).tolist()
        self.at = {name: slice(end - len(rows), end) for name, rows, end in zip(models, self.rows, ends)}
        self.every = np.concatenate(self.rows) if self.rows else np.zeros((0, 1))  # (ΣS, n)
        self.made_up = 2 if finish is None and _marks(self.every) else 0
        self.count = self.every.shape[1] + self.made_up
        self.shrunk = self.every.shape[1] / self.count  # the made-up examples favour neither model
        self.metrics = _finished(self.every.mean(1), finish)  # (ΣS,)
        means, self.favour = _resampled(self.every, rng, self.made_up)
        self.draws = _finished(means, finish)  # (B, ΣS)

    def difference(self, a: str, b: str) -> tuple[float, Values, _Seeds]:
        """The metric of a less that of b; the same of every resample, (B,); and what seeds add."""
        a_at, b_at = self.at[a], self.at[b]
        value = float(self.metrics[a_at].mean() - self.metrics[b_at].mean())
        draws = self.draws[:, a_at].mean(1) - self.draws[:, b_at].mean(1)
        if self.made_up:
            draws = draws + self.favour / self.count
        of_a = _of_seeds(self.metrics[a_at], self.draws[:, a_at])
        of_b = _of_seeds(self.metrics[b_at], self.draws[:, b_at])
        return value, draws, of_a.beside(of_b)

    def under_alike(self, rng: np.random.Generator) -> Iterator[Values]:
        """Of each pair, differences as they would be were the two alike, (B,): with the sign of each example's
        difference drawn at random."""
        pairs = list(itertools.combinations(self.names, 2))
        if not pairs:
            return iter(())
        of_examples = {name: self.every[at].mean(0) for name, at in self.at.items()}
        apart = np.stack([(of_examples[a] - of_examples[b]) * self._slope(a, b) for a, b in pairs], 1)  # (n, P)
        return iter(_signed(apart, rng).T)

    def _slope(self, a: str, b: str) -> float:
        """How much the finished difference grows with that of the means."""
        if self.finish is None:
            return 1.0
        means = [float(self.every[self.at[name]].mean()) for name in (a, b)]
        step = 1e-6 * max(abs(mean) for mean in means)
        if abs(means[0] - means[1]) < step:
            means = [means[0] + step, means[0]]
        if means[0] == means[1]:
            return 1.0
        top, bottom = _finished(np.array(means), self.finish)
        return float((top - bottom) / (means[0] - means[1]))


@dataclass(frozen=True)
class _Seeds:
    """The part of the uncertainty that other seeds would bring: Student's t with `freedom`, times √`variance`."""

    variance: float
    freedom: float

    def beside(self, other: _Seeds) -> _Seeds:
        """That of a difference, whose degrees of freedom are Welch's."""
        total = self.variance + other.variance
        if total == 0:
            return self
        parts = sum(one.variance**2 / one.freedom for one in (self, other))
        return _Seeds(total, total**2 / parts)

    def draws(self, rng: np.random.Generator) -> Values | float:
        """(B,), or 0 where there is nothing to be added."""
        return math.sqrt(self.variance) * rng.standard_t(self.freedom, DRAWS) if self.variance else 0.0


def _of_seeds(metrics: Values, draws: Values) -> _Seeds:
    """From a model's metric by each seed, (S,), and the same of every resample, (B, S)."""
    count = len(metrics)
    if count == 1:
        return _Seeds(0.0, 1.0)
    apart = draws - draws.mean(1, keepdims=True)  # what a resample does to one seed and not to all
    noise = float(apart.var(0).sum()) / (count - 1)
    return _Seeds(max(0.0, float(metrics.var(ddof=1)) - noise) / count, count - 1)


def _resampled(rows: Values, rng: np.random.Generator, made_up: int) -> tuple[Values, Values]:
    """The means of rows (R, n) over resamples of the examples, (B, R); and how much more often the first half of the
    `made_up` examples was drawn than the second, (B,): they add 0 to the means, and count."""
    examples = rows.shape[1]
    total = examples + made_up
    half = made_up // 2
    if examples > MOST:
        spread = np.atleast_2d(np.cov(rows, ddof=0)) / total
        means = rng.multivariate_normal(rows.mean(1), spread, DRAWS, method="eigh")
        return means, rng.poisson(half, DRAWS).astype(float) - rng.poisson(half, DRAWS)
    found, favour = [], []
    at_once = max(1, CELLS // total)
    for start in range(0, DRAWS, at_once):
        some = min(at_once, DRAWS - start)
        drawn = rng.integers(0, total, (some, total)) + total * np.arange(some)[:, None]
        counts = np.bincount(drawn.ravel(), minlength=some * total).reshape(some, total)
        found.append(counts[:, :examples] @ rows.T / total)
        favour.append(counts[:, examples : examples + half].sum(1) - counts[:, examples + half :].sum(1))
    return np.concatenate(found), np.concatenate(favour).astype(float)


def _signed(apart: Values, rng: np.random.Generator) -> Values:
    """Means of columns (n, P) whose entries have random signs, those of an example the same in all: (B, P)."""
    examples = len(apart)
    if examples > MOST:
        spread: Values = np.sqrt(np.square(apart).sum(0)) / examples
        return spread * rng.standard_normal((DRAWS, apart.shape[1]))
    found = []
    at_once = max(1, CELLS // examples)
    for start in range(0, DRAWS, at_once):
        signs = rng.integers(0, 2, (min(at_once, DRAWS - start), examples), dtype=np.int8)
        found.append((2.0 * signs - 1.0) @ apart / examples)
    return np.concatenate(found)


def _stretched(draws: Values, centre: float, count: int) -> Values:
    """Draws further from the centre, as far as Student's t is wider than the normal curve for so many examples."""
    if count < 2:
        return np.where(np.arange(len(draws)) % 2 == 0, -math.inf, math.inf)
    from scipy.special import stdtrit  # comes with scikit-learn

    normal, student = (float(stdtrit(freedom, (1 + LEVEL) / 2)) for freedom in (math.inf, count - 1))
    return centre + (draws - centre) * student / normal * math.sqrt(count / (count - 1))


def _limits(draws: Values, level: float) -> tuple[float, float]:
    """The interval that holds this fraction of the draws, as many left out on either side."""
    low, high = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2], method="nearest")
    return float(low), float(high)


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


def _judged(found: Difference | None, pair: tuple[str, str], corrected: float, most: float) -> Difference:
    if found is None:
        return Difference(*pair, math.nan, math.nan, math.nan, math.nan, 1.0, 1.0, False)
    told_apart = corrected <= most
    return Difference(
        *pair, found.value, found.low, found.high, found.probability, found.p_value, corrected, told_apart
    )
