"""Intervals of metrics: held to formulas, to SciPy and scikit-learn, and to samples whose truth is known."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from benchmarks import coverage
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from sklearn import metrics as sk

from cutaway.statistics import classes
from cutaway.statistics.intervals import (
    MAX_BLOCKS,
    MAX_UNITS,
    MIN_BLOCKS,
    MIN_UNITS,
    Metric,
    block_sums,
    effective,
    fraction,
    group_units,
    interval_without_each,
    jackknife,
    mean,
    proportion,
    quotient,
    ratio,
    root_mean_square,
    share,
    signed,
    student,
    symmetric,
    wilson,
    window_metric,
)


def gamma(seed: int, count: int, shape: float = 1.0) -> np.ndarray:
    """Values above 0 that lean to one side."""
    return np.random.default_rng(seed).gamma(shape, size=count)


# --- proportions ----------------------------------------------------------------------------------------------------


@given(st.integers(1, 10_000), st.data())
def test_a_share_lies_in_its_interval(count: int, data: st.DataObject) -> None:
    right = data.draw(st.integers(0, count))
    m = proportion(right, count)
    assert 0 <= m.low <= m.value <= m.high <= 1


def test_wilson_is_the_published_example() -> None:
    m = proportion(15, 148)  # R. Newcombe, Statistics in Medicine 17, 1998, table I: 15 of 148
    assert (round(m.low, 4), round(m.high, 4)) == (0.0624, 0.1605)


def test_nothing_counted_is_unknown() -> None:
    assert math.isnan(proportion(0, 0).value)
    assert proportion(0, 0).to_json() == {"value": None, "low": None, "high": None}


# --- what a metric says ---------------------------------------------------------------------------------------------


def test_few_values_have_no_interval_and_a_note_that_says_so() -> None:
    found = mean(np.array([2.0]))
    assert found.value == 2
    assert found.to_json() == {"value": 2.0, "low": None, "high": None, "note": "no interval: fewer than 10 examples"}
    assert str(found) == "2 (no interval: fewer than 10 examples)"
    assert mean(gamma(0, MIN_UNITS)).note == ""
    assert ratio(np.ones(MIN_UNITS - 1), np.ones(MIN_UNITS - 1), "window").note == "no interval: fewer than 10 windows"
    assert "note" not in mean(gamma(0, MIN_UNITS)).to_json()


def test_values_that_are_all_alike_have_no_interval() -> None:
    assert mean(np.full(30, 0.25)).note == "no interval: all examples have the same value"
    assert mean(np.zeros(30)).note == "no interval: all examples have the same value"
    assert math.isnan(mean(np.zeros(30)).low)


def test_a_metric_on_another_scale_keeps_its_note_and_the_order_of_its_ends() -> None:
    assert Metric(2.0, 1.0, 4.0).map(lambda x: 1 - x) == Metric(-1.0, -3.0, 0.0)
    turned = Metric(2.0, math.nan, math.nan, "no interval: why").map(math.sqrt)
    assert (turned.value, turned.note) == (math.sqrt(2), "no interval: why")
    assert math.isnan(turned.low)


# --- means, ratios, scores ------------------------------------------------------------------------------------------


def studentised(values: np.ndarray, logarithm: bool) -> tuple[float, float]:
    """The interval of a mean by SciPy's resamples, and the widening by hand."""
    n, m, s = len(values), values.mean(), values.std(ddof=1)

    def statistic(x: np.ndarray, axis: int) -> np.ndarray:
        own = x.std(axis, ddof=1) / math.sqrt(n)
        return np.log(x.mean(axis) / m) * x.mean(axis) / own if logarithm else (x.mean(axis) - m) / own

    drawn = stats.bootstrap((values,), statistic, method="percentile", rng=np.random.default_rng(7))
    wide = stats.t.ppf(0.975, n - 1) / stats.norm.ppf(0.975) * math.sqrt(n / (n - 1))
    high, low = wide * np.quantile(drawn.bootstrap_distribution, [0.025, 0.975]) * s / math.sqrt(n)
    return (m * math.exp(-low / m), m * math.exp(-high / m)) if logarithm else (m - low, m - high)


@pytest.mark.parametrize("count", [20, 45])
def test_a_mean_has_the_studentised_bootstraps_interval_widened_for_few(count: int) -> None:
    values = gamma(1, count)
    width = values.std() / math.sqrt(count)
    found = mean(values)
    assert found.value == pytest.approx(values.mean())
    assert (found.low, found.high) == pytest.approx(studentised(values, True), abs=0.15 * width)
    moved = mean(values - 0.5)  # some are below 0
    assert (moved.low, moved.high) == pytest.approx(studentised(values - 0.5, False), abs=0.15 * width)


@pytest.mark.parametrize("count", [13, 45])
def test_the_interval_of_rmse_is_that_of_the_mean_square_widened_for_heavy_tails(count: int) -> None:
    errors = np.random.default_rng(3).standard_t(5, count)
    squares, found = mean(errors**2), root_mean_square(errors)
    assert found.value == pytest.approx(math.sqrt(squares.value))
    for end, of_squares in ((found.low, squares.low), (found.high, squares.high)):
        assert 2 * math.log(end / found.value) == pytest.approx((1 + 1 / count) * math.log(of_squares / squares.value))
    assert root_mean_square(np.full(30, -2.0)).note == "no interval: all examples have the same value"
    assert root_mean_square(np.zeros(0)).note == "no interval: empty"
    assert root_mean_square(errors[:3]).value == pytest.approx(math.sqrt((errors[:3] ** 2).mean()))


def test_an_interval_repeats_and_does_not_depend_on_the_order_of_sides() -> None:
    values = gamma(2, 33)
    assert mean(values) == mean(values.copy())
    upside = signed(float(-values.mean()), -values)
    downside = signed(float(values.mean()), values)
    assert (upside.low, upside.high) == pytest.approx((-downside.high, -downside.low))


def test_a_difference_has_students_t() -> None:
    values = np.random.default_rng(3).standard_normal(17)
    found = symmetric(float(values.mean()), values)
    scipy = stats.ttest_1samp(values, 0).confidence_interval()
    assert (found.low, found.high) == pytest.approx((scipy.low, scipy.high), rel=1e-9)


def test_a_quotient_has_students_t_of_its_logarithm_widened_for_few() -> None:
    added = np.random.default_rng(12).normal(0.4, 0.3, 21)
    found = quotient(0.4, added)
    widened = stats.t.ppf(0.975, 20) / stats.norm.ppf(0.975) * math.sqrt(21 / 20)
    reach = stats.t.ppf(0.975, 20) * widened * added.std(ddof=1) / math.sqrt(21) / 0.4
    assert (found.low, found.high) == pytest.approx((0.4 * math.exp(-reach), 0.4 * math.exp(reach)), rel=1e-9)
    assert quotient(0.4, np.full(21, 0.4)).note == "no interval: all examples have the same value"


def test_the_jackknife_of_a_mean_is_the_mean_and_of_a_ratio_what_each_adds() -> None:
    values, sizes = gamma(4, 25), 1.0 + np.random.default_rng(4).integers(1, 9, 25)
    kept: dict[str, Any] = {}

    def keep(value: float, added: np.ndarray) -> Metric:
        kept["added"] = added
        return Metric(value, value, value)

    jackknife(values[:, None], lambda sums: sums[:, 0] / 25, keep)
    assert kept["added"] == pytest.approx(values.mean() + 24 / 25 * (values - values.mean()))
    value = jackknife(np.stack([values, sizes], 1), lambda sums: sums[:, 0] / sums[:, 1], keep).value
    without = np.array([np.delete(values, i).sum() / np.delete(sizes, i).sum() for i in range(25)])
    assert value == pytest.approx(values.sum() / sizes.sum())
    assert kept["added"].mean() == pytest.approx(value)
    assert kept["added"].var(ddof=1) / 25 == pytest.approx(24 / 25 * ((without - without.mean()) ** 2).sum())


def test_a_ratio_is_of_sums_and_not_a_mean_of_ratios() -> None:
    above, below = np.array([1.0] * 12 + [30.0]), np.array([1.0] * 12 + [60.0])
    found = ratio(above, below)
    assert found.value == pytest.approx(42 / 72)
    assert share(above, below).value == pytest.approx(42 / 72)
    assert 0 <= share(above, below).low < share(above, below).high <= 1


def test_a_fraction_has_wilsons_interval_of_as_many_answers_as_have_its_variance() -> None:
    marks = np.array([1.0] * 40 + [0.0] * 10)
    found = fraction(0.8, marks)
    count = 0.8 * 0.2 / (marks.var(ddof=1) / 50)
    wilson = stats.binomtest(40, 50).proportion_ci(method="wilson")
    assert count == pytest.approx(49)
    expected = proportion(0.8 * count, count, stats.t.ppf(0.975, 49))
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), rel=1e-12)
    assert (found.low, found.high) == pytest.approx((wilson.low, wilson.high), abs=0.01)
    clustered = fraction(0.8, np.repeat([1.0, 0.6], 5))  # ten clusters, each of them half right or wholly
    assert clustered.low > 0.5
    assert fraction(1.0, np.ones(30)).low == pytest.approx(proportion(30, 30, stats.t.ppf(0.975, 29)).low)
    assert effective(0.5, math.inf, 9).note == "no interval: its variance is unknown"


def test_many_units_are_put_together_in_groups_and_the_interval_is_the_same() -> None:
    values = gamma(5, 9_001)
    assert sorted(np.bincount(group_units(9_001))) == [22] * 199 + [23] * 201
    assert len(np.bincount(group_units(9_001))) == MAX_UNITS
    found = mean(values)
    half = 1.96 * values.std() / math.sqrt(9_001)
    assert found.value == pytest.approx(values.mean(), rel=1e-12)
    assert (found.low, found.high) == pytest.approx((values.mean() - half, values.mean() + half), abs=0.15 * half)


def test_a_score_that_one_part_decides_has_no_interval() -> None:
    """Without the one example that is of the class there is no score."""
    found = interval_without_each(0.5, np.array([0.5, 0.5, math.nan]), fraction)
    assert found.note == "no interval: the score depends on a few of the examples"


def test_a_value_that_is_not_finite_has_a_true_note() -> None:
    values = gamma(6, 30)
    for bad in (np.r_[values, math.inf], np.full(30, math.inf)):
        for found in (mean(bad), root_mean_square(bad), ratio(bad, np.ones(len(bad)))):
            assert (found.value, found.note) == (math.inf, "no interval: the value is infinite")
    for found in (mean(np.r_[values, math.nan]), root_mean_square(np.r_[values, math.nan])):
        assert math.isnan(found.value)
        assert math.isnan(found.low)
        assert not found.note


def test_students_quantile_is_scipys() -> None:
    for freedom in (1, 4, 19, math.inf):
        assert student(freedom) == pytest.approx(stats.t.ppf(0.975, freedom))


# --- classes --------------------------------------------------------------------------------------------------------


def answers(seed: int, count: int, size: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Classes, unequally many of each, and what they were taken for."""
    rng = np.random.default_rng(seed)
    actual = rng.choice(size, count, p=np.arange(1, size + 1) / np.arange(1, size + 1).sum())
    return actual, np.where(rng.random(count) < 0.7, actual, rng.integers(0, size, count))


def test_balanced_accuracy_takes_the_wider_of_two_intervals() -> None:
    right, of = np.array([40, 4, 9]), np.array([50, 7, 9])
    found = classes.balanced_accuracy(right, of)
    recalls = right / of
    assert found.value == pytest.approx(recalls.mean())
    ends = [stats.binomtest(int(r), int(n)).proportion_ci(method="wilson") for r, n in zip(right, of)]
    together = math.sqrt(sum((p - e.low) ** 2 for p, e in zip(recalls, ends))) / 3
    smoothed = (right + 0.5) / (of + 1)
    count = smoothed.mean() * (1 - smoothed.mean()) / ((smoothed * (1 - smoothed) / of).sum() / 9)
    assert found.low == pytest.approx(
        min(recalls.mean() - together, proportion(recalls.mean() * count, count).low), abs=1e-12
    )
    assert found.high < 1


def test_macro_f1_has_the_variance_of_the_delta_method() -> None:
    actual, said = answers(6, 90)
    cells, counts = np.unique(3 * actual + said, return_counts=True)
    found = classes.macro_f1(cells // 3, cells % 3, counts)
    assert found.value == pytest.approx(sk.f1_score(actual, said, average="macro"))
    matrix = np.zeros((3, 3))
    matrix[cells // 3, cells % 3] = counts
    matrix += classes.SMOOTHING / 2 * (np.eye(3) + (1 - np.eye(3)) / 2)
    both = matrix.sum(0) + matrix.sum(1)
    f1 = 2 * matrix.diagonal() / both
    adds = np.diag(2 / both) - (f1 / both)[:, None] - (f1 / both)[None]
    count = f1.mean() * (1 - f1.mean()) / ((matrix * adds**2).sum() / 9)
    expected = proportion(found.value * count, count, stats.t.ppf(0.975, 87))
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), rel=1e-9)


def test_f1_of_a_class_is_a_proportion_in_disguise() -> None:
    found = classes.f1(30, 40, 35)
    inside = stats.binomtest(30, 45).proportion_ci(method="wilson")
    assert found.value == pytest.approx(60 / 75)
    assert (found.low, found.high) == pytest.approx(tuple(2 * j / (1 + j) for j in (inside.low, inside.high)))


def test_a_class_of_few_examples_is_named() -> None:
    right, of = np.array([40, 2]), np.array([50, 4])
    note = "no interval: fewer than 5 examples of class 'b'"
    assert classes.balanced_accuracy(right, of, ("a", "b")).note == note
    assert classes.balanced_accuracy(right, of, ("a", "b")).value == pytest.approx((0.8 + 0.5) / 2)
    actual, said = np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])
    assert classes.macro_f1(actual, said, np.array([40, 10, 2, 2]), ("a", "b")).note == note
    assert classes.f1(2, 4, 9).note == "no interval: fewer than 5 examples of a class"
    score, is_class = np.arange(30.0), np.arange(30) >= 27
    assert classes.auc(score, is_class, "links").note == "no interval: fewer than 5 examples of links"
    assert (
        classes.auc(score, ~is_class, "links").note == "no interval: fewer than 5 examples of classes other than links"
    )
    assert classes.average_precision(score, is_class, "links").note == "no interval: fewer than 20 examples of links"


@pytest.mark.parametrize("ties", [False, True])
def test_areas_are_scikit_learns(ties: bool) -> None:
    rng = np.random.default_rng(8)
    is_class = np.arange(120) < 30
    score = is_class + rng.standard_normal(120)
    score = np.round(score) if ties else score
    assert classes.auc(score, is_class).value == pytest.approx(sk.roc_auc_score(is_class, score))
    found = classes.average_precision(score, is_class)
    assert found.value == pytest.approx(sk.average_precision_score(is_class, score))
    without = np.array([sk.average_precision_score(np.delete(is_class, i), np.delete(score, i)) for i in range(120)])
    variance = 119 / 120 * ((without - without.mean()) ** 2).sum()
    expected = effective(found.value, variance, 30)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), rel=1e-9)


def test_the_area_under_the_roc_has_newcombes_interval_at_the_variance_of_both_sides() -> None:
    """Its ends are areas at whose own standard error the one that was found is just not refuted; the sides are unequal,
    and so are their variances, so that neither can stand for the other."""
    rng = np.random.default_rng(9)
    is_class = np.arange(90) < 15
    score = np.where(is_class, 1.2 + 2 * rng.standard_normal(90), rng.standard_normal(90))
    found = classes.auc(score, is_class)
    above = np.array([(s > score[~is_class]).mean() for s in score[is_class]])
    below = np.array([(s < score[is_class]).mean() for s in score[~is_class]])
    delong = above.var(ddof=1) / 15 + below.var(ddof=1) / 75

    def hanley(area: float) -> float:
        more = (90 / 2) - 1
        return area * (1 - area) * (1 + more * ((1 - area) / (2 - area) + area / (1 + area))) / (15 * 75)

    ratio = delong / hanley(found.value)
    factor = 15 / 35 * ratio + 20 / 35 * max(1.0, ratio)
    for end in (found.low, found.high):
        assert abs(end - found.value) == pytest.approx(1.96 * math.sqrt(factor * hanley(end)), abs=5e-4)
    turned = classes.auc(-score, ~is_class)
    assert (turned.value, turned.low) == pytest.approx((found.value, found.low), abs=1e-9)


def test_a_perfect_order_is_not_certain() -> None:
    is_class = np.arange(60) >= 35
    found = classes.auc(np.arange(60.0), is_class)
    assert found.value == found.high == 1
    assert 0.8 < found.low < 0.97
    assert 0.8 < classes.average_precision(np.arange(60.0), is_class).low < 0.95


def test_a_rank_correlation_has_bonett_and_wrights_interval() -> None:
    found = classes.correlation(0.6, 50)
    half = 1.96 * math.sqrt((1 + 0.18) / 47)
    expected = (math.tanh(math.atanh(0.6) - half), math.tanh(math.atanh(0.6) + half))
    assert (found.low, found.high) == pytest.approx(expected, abs=1e-5)
    assert classes.correlation(1.0, 50).high == 1
    assert classes.correlation(math.nan, 50).note == "no interval: one side is constant"


# --- blocks ---------------------------------------------------------------------------------------------------------


@given(count=st.integers(1, 400), overlap=st.integers(1, 40))
def test_every_window_is_in_one_block(count: int, overlap: int) -> None:
    """The last too; blocks are as long as two overlaps at least, and not more than MOST."""
    values = np.random.default_rng(count).normal(size=(count, 2))
    blocks = block_sums(values, overlap)
    assert blocks.sum(0) == pytest.approx(values.sum(0))
    sizes = block_sums(np.ones(count), overlap)
    assert sizes.sum() == count
    assert 1 <= len(blocks) <= MAX_BLOCKS
    assert len(blocks) == 1 or sizes.min() >= 2 * overlap


def test_too_few_blocks_have_no_interval() -> None:
    def score(sums: np.ndarray) -> np.ndarray:
        return np.sqrt(sums[:, 0] / sums[:, 1])

    values = np.stack([gamma(10, 100), np.ones(100)], 1)
    found = window_metric(values, 10, score)
    assert found.value == pytest.approx(math.sqrt(values[:, 0].mean()))
    assert found.note == "no interval: 100 windows; 160 are needed because neighbors overlap"
    assert len(block_sums(values, 6)) == MIN_BLOCKS
    assert window_metric(values, 6, score).note == ""
    nothing = window_metric(np.zeros((100, 2)), 6, score)
    assert math.isnan(nothing.value)
    assert nothing.note == ""


def test_blocks_hold_what_neighbours_have_in_common() -> None:
    """The mean of sums of 12 neighbours' noise: intervals from single examples would have a twelfth of the variance."""
    rng = np.random.default_rng(0)
    inside, trials = 0, 200
    for _ in range(trials):
        values = np.convolve(rng.normal(size=1011), np.ones(12), "valid")  # (1000,), true mean 0
        found = window_metric(values[:, None], 12, lambda sums: sums[:, 0], symmetric)
        inside += found.low <= 0 <= found.high
    assert stats.binom.ppf(0.001, trials, 0.92) <= inside < trials


# --- how often the truth is held ------------------------------------------------------------------------------------

TRIALS = 150
CELLS = [
    (name, n, balance)
    for name, balance in (
        ("two classes", coverage.BALANCED),
        ("two classes", coverage.RARE),
        ("several classes", coverage.BALANCED),
        ("ranked", coverage.BALANCED),
        ("ranked", coverage.RARE),
        ("errors", coverage.BALANCED),
        ("heavy errors", coverage.BALANCED),
        ("language", coverage.BALANCED),
        ("speech", coverage.BALANCED),
        ("forecasts, horizon 6, 3 series, errors correlated by 0.5", coverage.BALANCED),
    )
    for n in ((200,) if name.startswith("forecasts") else (20, 50))
]


@pytest.mark.parametrize(("name", "n", "balance"), CELLS)
def test_intervals_hold_the_truth_as_often_as_they_say(name: str, n: int, balance: str) -> None:
    """A few cells of the table of docs/statistics.md. The bounds leave 1 in 1,000 to chance where 92 or 98 % hold."""
    setting = next(one for one in coverage.SETTINGS if one.name == name)
    for key, found in coverage.simulated(setting, n, balance, TRIALS, seed=11).items():
        if found.some < TRIALS / 20:
            assert found.note.startswith("no interval: "), key
        else:
            least, most = (stats.binom.ppf(p, found.some, level) for p, level in ((0.001, 0.92), (0.999, 0.98)))
            assert least <= found.held <= most, (key, found)


def test_the_simulation_sees_an_interval_that_is_too_narrow() -> None:
    """Of the normal approximation, which leaves out how far losses lean to one side."""

    def sample(rng: np.random.Generator, n: int, balance: str) -> dict[str, Metric]:
        del balance
        values = np.exp(rng.standard_normal(n))
        half = 1.96 * values.std(ddof=1) / math.sqrt(n)
        return {"mean": Metric(values.mean(), values.mean() - half, values.mean() + half)}

    setting = coverage.Setting("narrow", sample, lambda n, balance: {"mean": math.exp(0.5)})
    found = coverage.simulated(setting, 20, coverage.BALANCED, 1_000)["mean"]
    assert found.held < stats.binom.ppf(0.001, 1_000, 0.92)
    assert coverage.told(found).endswith("low")


@pytest.mark.parametrize("n", [401, 480, 700, 1001])
def test_a_mean_of_more_values_than_groups_is_as_wide_as_its_standard_error(n: int) -> None:
    """Groups of one and two values must not add the variance of their sizes."""
    values = 0.97 + 0.01 * np.random.default_rng(0).normal(size=n)
    found = mean(values)
    assert (found.high - found.low) / 2 == pytest.approx(1.96 * values.std(ddof=1) / n**0.5, rel=0.1)
    assert found.low < values.mean() < found.high


def test_the_interval_of_a_mean_covers_with_groups_of_unequal_size() -> None:
    rng = np.random.default_rng(1)
    covered = [found.low <= 1 <= found.high for found in (mean(rng.exponential(size=520)) for _ in range(300))]
    assert 0.915 <= np.mean(covered) <= 0.98  # 95 %, and 2.8 standard errors of 300 repetitions


def test_impossible_proportions_are_rejected_and_no_predictions_have_no_interval() -> None:
    for right in (21, -1):
        with pytest.raises(ValueError, match=f"Invalid right={right}: must be from 0 to count=20"):
            proportion(right, 20)
    found = wilson(0.9, 0)
    assert found.value == 0.9
    assert math.isnan(found.low)
    assert math.isnan(found.high)
    assert "no interval" in found.note
