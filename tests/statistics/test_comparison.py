"""Intervals, p-values and ranks, held to SciPy and to simulated models whose truth is known."""

from __future__ import annotations

import math

import numpy as np
import pytest
from benchmarks.statistics import SHARED, Setting, simulated
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from cutaway.statistics.comparison import (
    Difference,
    _error_distribution,
    _ErrorDistribution,
    _ModelSummary,
    _summarize,
    compare_rows,
    differences,
    holm,
    measure,
    ranks,
)
from cutaway.statistics.intervals import RESAMPLES, Resamples

N = 80


def errors(seed: int, seeds: int = 1, count: int = N, scale: float = 1.0) -> np.ndarray:
    """Squared errors (seeds, count)."""
    return scale * np.square(np.random.default_rng(seed).standard_normal((seeds, count)))


def rights(seed: int, seeds: int = 1, count: int = N, share: float = 0.9) -> np.ndarray:
    """Right and wrong answers (seeds, count)."""
    return (np.random.default_rng(seed).random((seeds, count)) < share).astype(np.float64)


def only(found: list[Difference]) -> Difference:
    """The one pair."""
    (pair,) = found
    return pair


# --- one seed, beside SciPy -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("finish", [None, np.sqrt])
def test_a_difference_of_one_seed_has_the_standard_error_of_scipys_paired_bootstrap(finish: np.ufunc | None) -> None:
    a, b = errors(0), errors(1, scale=1.5)

    def statistic(x: np.ndarray, y: np.ndarray, axis: int) -> np.ndarray:
        means = x.mean(axis), y.mean(axis)
        return means[0] - means[1] if finish is None else finish(means[0]) - finish(means[1])

    scipy = stats.bootstrap((a[0], b[0]), statistic, paired=True, method="percentile", rng=np.random.default_rng(0))
    ours = only(differences({"a": a, "b": b}, higher_is_better=False, finish=finish))
    reach = stats.t.ppf(0.975, N - 1) * scipy.standard_error * math.sqrt(N / (N - 1))
    assert ours.value == pytest.approx(statistic(a[0], b[0], 0))
    assert ours.high - ours.value == pytest.approx(reach, rel=0.04)  # of 9 999 resamples, and to first order
    assert ours.value - ours.low == pytest.approx(reach, rel=0.04)


def test_a_difference_of_means_of_one_seed_is_scipys_paired_t_interval() -> None:
    a, b = errors(0), errors(1, scale=1.5)
    scipy = stats.ttest_rel(a[0], b[0]).confidence_interval()
    ours = only(differences({"a": a, "b": b}, higher_is_better=False))
    assert (ours.low, ours.high) == pytest.approx((scipy.low, scipy.high), rel=1e-6)


@pytest.mark.parametrize("right", [0, 3, 50, 60])
def test_right_answers_of_one_seed_have_wilsons_interval(right: int) -> None:
    marks = np.zeros((1, 60))
    marks[0, :right] = 1
    wilson = stats.binomtest(right, 60).proportion_ci(method="wilson")
    ours = measure(marks)
    assert (ours.low, ours.high) == pytest.approx((wilson.low, wilson.high), abs=1e-9)


@pytest.mark.parametrize("finish", [np.sqrt, np.exp])
def test_a_metric_of_one_seed_is_the_studentised_bootstrap_of_scipys_resamples(finish: np.ufunc) -> None:
    a = errors(2)
    mean, error = a.mean(), a.std(ddof=1) / math.sqrt(N) / a.mean()

    def statistic(x: np.ndarray, axis: int) -> np.ndarray:
        return np.log(x.mean(axis) / mean) / (x.std(axis) / math.sqrt(N - 1) / x.mean(axis))

    scipy = stats.bootstrap((a[0],), statistic, method="percentile", rng=np.random.default_rng(0))
    low, high = np.quantile(scipy.bootstrap_distribution, [0.025, 0.975])
    widened = stats.t.ppf(0.975, N - 1) / stats.norm.ppf(0.975) * math.sqrt(N / (N - 1))  # few examples
    low, high = widened * low, widened * high
    ours = measure(a, finish, seed=0)
    assert ours.value == pytest.approx(finish(mean))
    assert (ours.low, ours.high) == pytest.approx(finish(mean * np.exp([-high * error, -low * error])), rel=2e-4)


@pytest.mark.parametrize("count", [12, 60])
@pytest.mark.parametrize("marks", [True, False])
def test_p_of_one_seed_is_scipys_permutation_test(marks: bool, count: int) -> None:
    a, b = errors(3, count=count), errors(4, count=count, scale=1.8)
    if marks:  # 8 that a alone has right, 3 that b alone has
        a, b = np.ones((1, count)), np.ones((1, count))
        a[0, :3], b[0, 3:11] = 0, 0
    scipy = stats.permutation_test(
        (a[0], b[0]),
        lambda x, y, axis: x.mean(axis) - y.mean(axis),
        permutation_type="samples",
        n_resamples=50_000,
        rng=np.random.default_rng(1),
    ).pvalue
    ours = only(differences({"a": a, "b": b}, higher_is_better=True)).p_value
    chance = math.sqrt(scipy * (1 - scipy) * (1 / RESAMPLES + 1 / 50_000))
    assert 0.01 < scipy < 0.99  # else this would show nothing
    assert ours == pytest.approx(scipy, abs=4 * chance + 2 / RESAMPLES)


def test_p_of_right_and_wrong_answers_is_mcnemars() -> None:
    a, b = np.ones((1, 50)), np.ones((1, 50))
    b[0, :9], a[0, 9:11] = 0, 0  # 9 that a alone has right, 2 that b alone has
    ours = only(differences({"a": a, "b": b}, higher_is_better=True)).p_value
    exact = stats.binomtest(2, 11, 0.5).pvalue
    assert ours == pytest.approx(exact, abs=4 * math.sqrt(exact / RESAMPLES))


# --- several seeds --------------------------------------------------------------------------------------------------


def test_seeds_alone_are_welchs_t_test() -> None:
    """Where all examples of a seed are alike, only seeds differ, and they are two samples."""
    rng = np.random.default_rng(5)
    of_a, of_b = rng.normal(0.0, 1.0, 4), rng.normal(1.5, 2.0, 6)
    a, b = (np.repeat(values[:, None], 200, axis=1) for values in (of_a, of_b))
    ours = only(differences({"a": a, "b": b}, higher_is_better=True))
    welch = stats.ttest_ind(of_a, of_b, equal_var=False)
    interval = welch.confidence_interval()
    assert (ours.low, ours.high) == pytest.approx((interval.low, interval.high), abs=1e-6)
    assert ours.p_value == pytest.approx(welch.pvalue, abs=1e-6)
    assert ours.probability == pytest.approx(stats.t.sf((0 - ours.value) / welch._standard_error, welch.df), abs=1e-6)


@pytest.mark.parametrize(("seeds", "spread"), [((2, 2), 5.0), ((2, 5), 1.0), ((3, 3), 1.0), ((5, 5), 3.0)])
def test_equal_models_of_few_seeds_are_rarely_called_different(seeds: tuple[int, int], spread: float) -> None:
    """By seeds of unequal variance alone. The degrees of freedom that are Welch's first, without a bias of their own,
    would call them different in 8 % with 2 and 5 seeds, and in 6 to 8 % with 2 and 2."""
    rng, wrong, trials = np.random.default_rng(31), 0, 1_500
    for _ in range(trials):
        a, b = rng.standard_normal(seeds[0]), spread * rng.standard_normal(seeds[1])
        models = [_ModelSummary(float(x.mean()), np.zeros(9), len(x), float(x.var(ddof=1)) / len(x)) for x in (a, b)]
        apart = models[0].value - models[1].value
        wrong += 2 * _error_distribution(np.zeros(9), models, True).cdf(-abs(apart)) <= 0.05
    most = 0.0645 if seeds == (2, 5) else 0.06  # what Welch's test has there in 400,000 trials, at most
    assert wrong <= stats.binom.ppf(0.999, trials, most)


def test_variances_are_those_of_a_two_way_analysis() -> None:
    """Of contributions with effects of both: the mean squares, each over what it is a mean of."""
    rng = np.random.default_rng(6)
    rows = 0.3 * rng.standard_normal((5, 1)) + rng.standard_normal((1, 400)) + rng.standard_normal((5, 400))
    seeds, n = rows.shape
    rest = rows - rows.mean(0) - rows.mean(1, keepdims=True) + rows.mean()
    of_seeds = n * rows.mean(1).var(ddof=1)
    of_examples = seeds * rows.mean(0).var(ddof=1)
    of_rest = np.square(rest).sum() / ((seeds - 1) * (n - 1))
    model = _summarize(rows, None)
    assert model.of_seeds == pytest.approx(of_seeds / (seeds * n))
    assert model.shared == pytest.approx(of_rest / (seeds * n))
    error = _error_distribution(model.added, [model])
    assert error.scale**2 == pytest.approx((of_seeds + of_examples - of_rest) / (seeds * n))
    assert error.of_seeds == pytest.approx(seeds - 1)


def test_quantiles_are_those_of_the_mixture() -> None:
    error = _ErrorDistribution(2.0, freedom=7, of_seeds=2, weight=0.3)
    for p in (0.001, 0.025, 0.6, 0.975):
        at = error.quantile(p)
        assert 0.7 * stats.t.cdf(at, 7) + 0.3 * stats.t.cdf(at, 2) == pytest.approx(p, abs=1e-6)
        assert error.cdf(2 * at) == pytest.approx(p, abs=1e-6)
    assert _ErrorDistribution(1.0, freedom=math.inf).quantile(0.975) == pytest.approx(stats.norm.ppf(0.975))


def test_the_mixture_is_weighted_by_the_squares_of_the_variances() -> None:
    added = np.random.default_rng(32).standard_normal(50)
    examples = added.var(ddof=1) / 50
    found = _error_distribution(
        added, [_ModelSummary(0.0, added, 3, of_seeds=2 * examples), _ModelSummary(0.0, added, 4, of_seeds=examples)]
    )
    assert found.weight == pytest.approx(9 / (9 + 1))
    assert found.of_seeds == pytest.approx(9 / (4 / 2 + 1 / 3))
    assert found.scale == pytest.approx(2 * math.sqrt(examples))


def test_seeds_that_agree_by_chance_do_not_make_a_test_keener() -> None:
    """The variance that is shared is taken away in the interval; the p-value keeps what examples alone say."""
    rng = np.random.default_rng(4)
    apart = rng.standard_normal(60)
    models = [_ModelSummary(0.0, apart, 3, of_seeds=1e-6, shared=0.004) for _ in range(2)]
    plain, cautious = _error_distribution(apart, models), _error_distribution(apart, models, cautious=True)
    assert plain.scale**2 == pytest.approx(apart.var(ddof=1) / 60 - 0.008 + 2e-6)
    assert cautious.scale**2 == pytest.approx(apart.var(ddof=1) / 60)


def test_a_model_without_chance_has_one_row_however_often_it_is_given() -> None:
    a, b = errors(7, seeds=5), errors(8)
    once = differences({"a": a, "b": b}, higher_is_better=False, finish=np.sqrt)
    often = differences({"a": a, "b": np.repeat(b, 5, axis=0)}, higher_is_better=False, finish=np.sqrt)
    assert once == often
    assert measure(b) == measure(np.repeat(b, 3, axis=0))


def test_other_seeds_widen_the_interval() -> None:
    rng = np.random.default_rng(9)
    same = rng.standard_normal((1, 300)) + 0.1 * rng.standard_normal((3, 300))
    apart = same + np.array([[-0.5], [0.0], [0.5]])
    narrow, wide = measure(same), measure(apart)
    assert wide.value == pytest.approx(narrow.value)
    assert wide.high - wide.low > 4 * (narrow.high - narrow.low)


# --- what may not be claimed ----------------------------------------------------------------------------------------


def test_thirty_of_thirty_is_not_certain() -> None:
    ours = measure(np.ones((1, 30)))
    assert ours.value == ours.high == 1
    assert 0.8 < ours.low < 0.95
    pair = only(differences({"a": np.ones((1, 30)), "b": np.ones((1, 30))}, higher_is_better=True))
    assert pair.value == 0
    assert pair.low < -0.02
    assert pair.high > 0.02
    assert not pair.told_apart


def test_equal_answers_are_not_told_apart() -> None:
    a = errors(10)
    pair = only(differences({"a": a, "b": a.copy()}, higher_is_better=False, finish=np.sqrt))
    assert (pair.value, pair.probability, pair.p_value, pair.told_apart) == (0, 0.5, 1, False)


def test_one_example_says_nothing() -> None:
    assert measure(np.array([[0.0]])) == measure(np.array([[0.0]]), seed=1)
    assert math.isinf(measure(np.array([[2.5]])).high)
    pair = only(differences({"a": np.array([[1.0]]), "b": np.array([[0.0]])}, higher_is_better=True))
    assert (pair.low, pair.high, pair.told_apart) == (-math.inf, math.inf, False)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_model_that_diverged_is_not_compared_and_others_are(bad: float) -> None:
    broken = errors(11)
    broken[0, 3] = bad
    found = differences({"a": errors(12), "broken": broken, "b": errors(13, scale=9.0)}, higher_is_better=False)
    assert [(d.a, d.b) for d in found] == [("a", "broken"), ("a", "b"), ("broken", "b")]
    assert [math.isnan(d.value) for d in found] == [True, False, True]
    assert [d.told_apart for d in found] == [False, True, False]
    assert found[1].p_corrected == found[1].p_value  # one pair was tested
    assert math.isnan(measure(broken).low)


def test_without_examples_or_data_sets_nothing_is_known() -> None:
    none = np.zeros((3, 0))
    assert math.isnan(measure(none).value)
    assert math.isnan(measure(none).low)
    [found] = differences({"a": none, "b": none}, higher_is_better=True)
    assert math.isnan(found.value)
    assert (found.a, found.b, found.p_corrected, found.told_apart) == ("a", "b", 1.0, False)
    assert ranks({}, higher_is_better=True) == ranks({"wine": {}}, higher_is_better=True) == {}


def test_models_of_different_examples_are_rejected() -> None:
    with pytest.raises(ValueError, match="same examples"):
        differences({"a": errors(0), "b": errors(0, count=N + 1)}, higher_is_better=True)


# --- pairs, directions, invariances ---------------------------------------------------------------------------------


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_rejects_step_by_step(p_values: list[float]) -> None:
    """The procedure as it is published: the smallest p beside α/m, the next beside α/(m − 1), until one fails."""
    for alpha in (0.01, 0.05, 0.3):
        rejected: set[int] = set()
        order = sorted(range(len(p_values)), key=p_values.__getitem__)
        for k, i in enumerate(order):
            if (len(p_values) - k) * p_values[i] > alpha:
                break
            rejected.add(i)
        assert {i for i, p in enumerate(holm(p_values)) if p <= alpha} == rejected


def test_corrected_p_values_are_those_of_the_pairs() -> None:
    shares = {"a": 0.9, "b": 0.85, "c": 0.6}
    models = {name: rights(k, count=400, share=share) for k, (name, share) in enumerate(shares.items())}
    found = differences(models, higher_is_better=True)
    assert [d.p_corrected for d in found] == holm([d.p_value for d in found])
    assert [d.told_apart for d in found] == [d.p_corrected <= 0.05 for d in found]
    assert {(d.a, d.b) for d in found if d.told_apart} >= {("a", "c"), ("b", "c")}


def test_it_is_the_corrected_p_value_that_tells_models_apart() -> None:
    """One that is wrong on six examples is different from one that is always right, p = 1/32, but not of two pairs."""
    right, worse = np.ones((1, 60)), np.ones((1, 60))
    worse[0, :6] = 0
    assert only(differences({"a": right, "c": worse}, True)).told_apart
    found = differences({"a": right, "b": right.copy(), "c": worse}, True)
    assert [d.p_value < 0.05 for d in found] == [False, True, True]
    assert [d.told_apart for d in found] == [False, False, False]


def test_the_better_one_is_the_likelier_one_in_either_direction() -> None:
    models = {"small": errors(14), "large": errors(15, scale=1.4)}
    lower = only(differences(models, higher_is_better=False))
    higher = only(differences(models, higher_is_better=True))
    assert lower.value == higher.value < 0
    assert lower.probability == pytest.approx(1 - higher.probability)
    assert lower.probability > 0.5


@settings(max_examples=10, deadline=None)
@given(shift=st.floats(-5, 5), scale=st.floats(0.1, 10))
def test_units_do_not_matter(shift: float, scale: float) -> None:
    models = {"a": errors(16, seeds=3), "b": errors(17, seeds=3)}
    plain = only(differences(models, higher_is_better=False))
    moved = only(differences({k: scale * v + shift for k, v in models.items()}, higher_is_better=False))
    for of in ("value", "low", "high"):
        assert getattr(moved, of) == pytest.approx(scale * getattr(plain, of), rel=1e-6, abs=1e-9)
    assert moved.p_value == pytest.approx(plain.p_value, abs=2e-4)


def test_it_is_the_same_again_and_another_with_another_seed() -> None:
    models = {"a": errors(18), "b": errors(19)}
    assert differences(models, False) == differences(models, False)
    assert differences(models, False) != differences(models, False, seed=1)


def test_many_examples_are_as_good_as_normal(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = errors(20, count=2000), errors(21, count=2000, scale=1.05)
    exact, p_exact = measure(a, np.sqrt), only(differences({"a": a, "b": b}, False, np.sqrt)).p_value
    monkeypatch.setattr("cutaway.statistics.intervals.MAX_RESAMPLED", 1000)
    monkeypatch.setattr("cutaway.statistics.comparison.MAX_RESAMPLED", 1000)
    limit, p_limit = measure(a, np.sqrt), only(differences({"a": a, "b": b}, False, np.sqrt)).p_value
    width = exact.high - exact.low
    assert limit.value == exact.value
    assert (limit.low, limit.high) == pytest.approx((exact.low, exact.high), abs=0.06 * width)
    assert p_limit == pytest.approx(p_exact, abs=0.02)


@pytest.mark.parametrize("rows", [np.zeros((3, 25)), np.eye(3, 25), np.full((2, 40), 4.0), np.eye(25)[:, :3]])
def test_errors_of_a_few_examples_or_none_have_an_interval(rows: np.ndarray) -> None:
    for finish in (None, np.sqrt, np.exp):
        found = measure(rows, finish)
        assert found.low <= found.value <= found.high
        pair = only(differences({"a": rows, "b": rows + 1.0}, higher_is_better=False, finish=finish))
        assert pair.low <= pair.value <= pair.high
        assert 0 <= pair.p_value <= 1


# --- ranks ----------------------------------------------------------------------------------------------------------


def test_ranks_are_scipys_and_ties_share_theirs() -> None:
    rng = np.random.default_rng(22)
    table = rng.integers(0, 6, (15, 4)) / 10
    scores = {f"set {i}": dict(zip("abcd", row)) for i, row in enumerate(table.tolist())}
    expected = stats.rankdata(-table, axis=1).mean(0)
    found = ranks(scores, higher_is_better=True)
    assert [found[name].value for name in "abcd"] == pytest.approx(expected.tolist())
    assert all(1 <= one.low <= one.value <= one.high <= 4 for one in found.values())
    other_way = ranks(scores, higher_is_better=False)
    assert [other_way[name].value for name in "abcd"] == pytest.approx((5 - expected).tolist())


def test_rank_intervals_are_resampled_data_sets_and_two_made_up_ones_stretched_for_few() -> None:
    """Means of eight ranks are steps of 1/8."""
    table = np.random.default_rng(26).random((6, 5))
    found = ranks({f"set {i}": dict(zip("abcde", row)) for i, row in enumerate(table.tolist())}, True)
    own = stats.rankdata(-table, axis=1)
    for k, name in enumerate("abcde"):
        every = np.append(own[:, k], [1.0, 5.0])
        drawn = stats.bootstrap((every,), np.mean, method="percentile", rng=np.random.default_rng(1))
        stretch = stats.t.ppf(0.975, 7) / stats.norm.ppf(0.975) * math.sqrt(8 / 7)
        low, high = every.mean() + stretch * (np.quantile(drawn.bootstrap_distribution, [0.025, 0.975]) - every.mean())
        assert (found[name].low, found[name].high) == pytest.approx(
            (max(1, low), min(5, high)), abs=0.2
        )  # of steps of 1/8


def test_first_in_three_data_sets_is_not_always_first() -> None:
    scores = {name: {"a": 0.9, "b": 0.8, "c": 0.7} for name in ("wine", "adult", "digits")}
    assert ranks(scores, higher_is_better=True)["a"].high > 1.5


def test_a_data_set_that_one_model_could_not_take_counts_for_nothing() -> None:
    scores = {"one": {"a": 1.0, "b": 2.0}, "two": {"a": 1.0, "b": math.nan}, "three": {"a": 3.0}}
    assert ranks(scores, higher_is_better=True)["b"].value == 1
    assert math.isnan(ranks({"two": scores["two"]}, higher_is_better=True)["a"].value)


# --- how often the truth is held ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "setting",
    [
        Setting("accuracy", (1, 1), 0.0),
        Setting("accuracy", (3, 3), 0.05),
        Setting("accuracy", (3, 1), 0.15),
        Setting("accuracy", (4, 4), 0.05, SHARED),
        Setting("RMSE", (1, 1), 0.0),
        Setting("RMSE", (3, 3), 0.15),
    ],
    ids=lambda setting: setting.words,
)
def test_intervals_hold_the_truth_and_equal_models_stay_equal(setting: Setting) -> None:
    trials = 200
    found = simulated(setting, 60, trials)
    least = stats.binom.ppf(0.001, trials, 0.935)  # 1.5 points below what is stated
    assert min(found.equal, found.unequal, found.single) >= least
    assert found.called <= stats.binom.ppf(0.999, trials, 0.05)
    assert found.equal < trials  # nor are they so wide that they hold everything


def test_one_seed_says_nothing_of_other_seeds() -> None:
    """What the page warns of can be seen: intervals from one seed miss the truth of other seeds."""
    found = simulated(Setting("RMSE", (1, 1), 0.15, others=True), 300, 100)
    assert found.equal < 0.8 * found.trials


def test_the_simulated_truth_is_the_truth() -> None:
    from benchmarks.statistics import trial

    rng = np.random.default_rng(23)
    for setting, finish in ((Setting("accuracy", (400, 1), 0.15), None), (Setting("RMSE", (400, 1), 0.15), np.sqrt)):
        made, truths = trial(setting, 4000, rng)
        for name, rows in made.items():
            metrics = rows.mean(1) if finish is None else finish(rows.mean(1))
            assert metrics.mean() == pytest.approx(truths[name], abs=0.03), (setting.words, name)
    assert truths["a"] == truths["b"] != truths["c"]


def test_of_many_alike_models_none_is_called_different() -> None:
    """Whether any of ten pairs is: 5 of 100 times at most, after correction."""
    wrong, trials = 0, 100
    resamples = Resamples(80, draws=1_999)
    rng = np.random.default_rng(24)
    for _ in range(trials):
        hard = rng.standard_normal((1, 80))
        models = {str(k): (hard + rng.standard_normal((3, 80)) > -1).astype(np.float64) for k in range(5)}
        found = compare_rows(models, True, None, resamples, 0.95)
        wrong += min(holm([d.p_value for d in found])) <= 0.05
    assert wrong <= stats.binom.ppf(0.999, trials, 0.05)


def test_resamples_are_those_of_a_multinomial() -> None:
    means = Resamples(50, draws=4_000).means(np.eye(50))  # how often each example is drawn, of 50
    assert means.sum(1) == pytest.approx(np.ones(4_000))
    assert means.mean(0) == pytest.approx(np.full(50, 1 / 50), rel=0.1)
    assert (50 * means).var(0) == pytest.approx(np.full(50, 1 - 1 / 50), rel=0.15)
