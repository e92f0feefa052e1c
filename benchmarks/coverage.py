"""How often the 95 % intervals of metrics hold the truth: python -m benchmarks coverage.

Each metric is simulated for samples whose truth is known: by a formula, or as the metric of a large pool that samples
are drawn from. Classes are balanced or 9 to 1, as splits that keep the shares of classes are. A cell is the percentage
of samples in which the interval holds the truth, of those that have an interval; "none" where fewer than 1 in 20 have.
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import special, stats

from cutaway.core.spec import Horizon, Mask, Tags, Value
from cutaway.data.dataset_base import IGNORED
from cutaway.statistics import classes
from cutaway.statistics.intervals import Metric, mean, proportion, ratio, share
from cutaway.tasks import precision
from cutaway.tasks.classification import Confusion
from cutaway.tasks.forecasting import Forecasting
from cutaway.tasks.link_prediction import reciprocal_ranks
from cutaway.tasks.regression import Regression
from cutaway.tasks.segmentation import SAID, Segmentation
from cutaway.tasks.sequences import bleu, bleu_counts, bleu_metric
from cutaway.tasks.tagging import Tagging

from .pages import replace_section

PAGE = Path("docs/statistics.md")
BEGIN, END = "<!-- measured by python -m benchmarks coverage -->\n", "<!-- end of coverage -->\n"
SIZES = (20, 50, 200)
BALANCED, RARE = "balanced", "9 to 1"
TRIALS, SLOW = 2_000, 1_000
LOW, HIGH = 0.92, 0.98
SEED = 0

Values = np.ndarray[Any, np.dtype[np.float64]]
Sample = Callable[[np.random.Generator, int, str], dict[str, Metric]]


@dataclass(frozen=True)
class Setting:
    """Metrics that are simulated together."""

    name: str
    sample: Sample  # generator, number of units and balance to metrics
    truth: Callable[[int, str], dict[str, float]]
    balances: tuple[str, ...] = (BALANCED,)
    trials: int = TRIALS


def sides(n: int, balance: str) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Which of n examples are of the second class: half of them, or a tenth."""
    rare = n // 2 if balance == BALANCED else round(n / 10)
    return np.arange(n) < rare


# --- classes ------------------------------------------------------------------------------------------------------

RIGHT = {BALANCED: (0.85, 0.85), RARE: (0.95, 0.7)}  # the recall of each class


def confusion(rng: np.random.Generator, n: int, balance: str) -> dict[str, Metric]:
    """Accuracy, balanced accuracy, macro F1 and the F1 of the second class."""
    actual = sides(n, balance).astype(np.int64)
    recall = np.array(RIGHT[balance])[actual]
    found = Confusion(actual, np.where(rng.random(n) < recall, actual, 1 - actual), 2)
    right, was, said = (s[0] for s in found.sums(found.counts[None]))
    second = int(np.flatnonzero(found.known == 1)[0])
    return {**found.metrics(("a", "b")), "F1 of a class": classes.f1(right[second], was[second], said[second])}


def confusion_truth(n: int, balance: str) -> dict[str, float]:
    """The same of all examples there are."""
    rare = sides(n, balance).mean()
    a, b = RIGHT[balance]
    both = {0: (1 - rare) * a, 1: rare * b}
    wrong = (1 - rare) * (1 - a) + rare * (1 - b)
    f1 = [2 * both[k] / (2 * both[k] + wrong) for k in (0, 1)]
    accuracy, balanced = both[0] + both[1], (a + b) / 2
    return {"accuracy": accuracy, "balanced_accuracy": balanced, "macro_f1": sum(f1) / 2, "F1 of a class": f1[1]}


MANY = 6  # classes
RECALLS = np.linspace(0.9, 0.6, MANY)


def several(rng: np.random.Generator, n: int, balance: str) -> dict[str, Metric]:
    """Balanced accuracy and macro F1 of several classes."""
    del balance
    actual = np.arange(n) % MANY
    other = (actual + rng.integers(1, MANY, n)) % MANY
    found = Confusion(actual, np.where(rng.random(n) < RECALLS[actual], actual, other), MANY)
    return {f"{key}, {MANY} classes": m for key, m in found.metrics().items() if key != "accuracy"}


def several_truth(n: int, balance: str) -> dict[str, float]:
    """The same of all examples there are."""
    del balance
    share = np.bincount(np.arange(n) % MANY) / n
    joint = share[:, None] * (1 - RECALLS[:, None]) / (MANY - 1) * (1 - np.eye(MANY)) + np.diag(share * RECALLS)
    f1 = (2 * joint.diagonal() / (joint.sum(0) + joint.sum(1))).mean()
    return {f"balanced_accuracy, {MANY} classes": RECALLS.mean(), f"macro_f1, {MANY} classes": float(f1)}


SHIFT, WIDTH = 1.8, 1.3  # of the scores of the second class, beside those of the first, which are normal


def ranked(rng: np.random.Generator, n: int, balance: str) -> dict[str, Metric]:
    """AUC and average precision of scores, and the mean reciprocal rank of links among the absent ones."""
    is_class = sides(n, balance)
    score = rng.standard_normal(n)
    score[is_class] = SHIFT + WIDTH * score[is_class]
    return {"auc": classes.auc(score, is_class), "average_precision": classes.average_precision(score, is_class)}


def ranked_truth(n: int, balance: str) -> dict[str, float]:
    """The same of all scores there are."""
    rare = sides(n, balance).mean()
    x = SHIFT + WIDTH * special.ndtri((np.arange(200_000) + 0.5) / 200_000)
    above, others = special.ndtr((SHIFT - x) / WIDTH), special.ndtr(-x)
    precision_at = rare * above / (rare * above + (1 - rare) * others)
    auc = float(special.ndtr(SHIFT / math.hypot(1, WIDTH)))
    return {"auc": auc, "average_precision": float(precision_at.mean())}


ABSENT = 100


@functools.cache
def absent_links() -> Values:
    """The scores of absent links that links are ranked among."""
    found: Values = np.random.default_rng(SEED).standard_normal(ABSENT)
    return found


def ranks(rng: np.random.Generator, n: int, balance: str) -> dict[str, Metric]:
    """The mean reciprocal rank of n links among given absent ones."""
    del balance
    links = SHIFT + WIDTH * rng.standard_normal(n)
    found = _ranks(links)
    return {"mrr": share(found, np.ones_like(found), "link")}


def _ranks(links: Values) -> Values:
    score = np.concatenate([links, absent_links()])
    return reciprocal_ranks(score, np.arange(len(score)) < len(links))


def ranks_truth(n: int, balance: str) -> dict[str, float]:
    """That of very many links."""
    del n, balance
    return {"mrr": float(_ranks(SHIFT + WIDTH * special.ndtri((np.arange(100_000) + 0.5) / 100_000)).mean())}


def losses(rng: np.random.Generator, n: int, balance: str) -> dict[str, Metric]:
    """Log loss and Brier score of a calibrated model, and log loss of an overconfident one: its logits doubled."""
    found = _losses(rng, n, balance)
    return {key: mean(values) for key, values in found.items()}


def _losses(rng: np.random.Generator, n: int, balance: str) -> dict[str, Values]:
    offset = 0.0 if balance == BALANCED else -3.0
    z = offset + 2 * rng.standard_normal(n)
    margin = np.where(rng.random(n) < special.expit(z), z, -z)
    return {
        "log loss": np.logaddexp(0, -margin),
        "log loss, overconfident": np.logaddexp(0, -2 * margin),
        "Brier score": special.expit(-margin) ** 2,
    }


def losses_truth(n: int, balance: str) -> dict[str, float]:
    """The same of very many examples."""
    del n
    return {k: float(v.mean()) for k, v in _losses(np.random.default_rng(1), 4_000_000, balance).items()}


# --- numbers ------------------------------------------------------------------------------------------------------


def errors(heavy: bool) -> Sample:
    """RMSE, MAE and R² of a regression; `heavy` errors have Student's t of five degrees of freedom."""
    task = Regression(Value("y", 0.0, 1.0))
    words = ", heavy tails" if heavy else ""

    def sample(rng: np.random.Generator, n: int, balance: str) -> dict[str, Metric]:
        del balance
        actual = torch.from_numpy(2 * rng.standard_normal(n))
        error = rng.standard_t(5, n) if heavy else rng.standard_normal(n)
        found = task.metrics((actual + torch.from_numpy(error))[:, None], actual)
        return {f"{key}{words}": found[key] for key in ("rmse", "mae", "r2")}

    return sample


def errors_truth(heavy: bool) -> Callable[[int, str], dict[str, float]]:
    """The same of all numbers there are."""
    variance = 5 / 3 if heavy else 1.0
    mae = float(stats.t(5).expect(abs)) if heavy else math.sqrt(2 / math.pi)
    words = ", heavy tails" if heavy else ""
    return lambda n, balance: {
        f"rmse{words}": math.sqrt(variance), f"mae{words}": mae, f"r2{words}": 1 - variance / 4,
    }  # fmt: skip


# --- pools: units that samples are drawn from, whose metric is the truth ------------------------------------------

POOL = 20_000


def pooled(name: str, pool: Callable[[], Any], metrics: Callable[[Any], dict[str, Metric]], **more: Any) -> Setting:
    """A setting whose units are drawn from a pool: metrics of chosen ones, (n, …), and of all of them."""

    def sample(rng: np.random.Generator, n: int, balance: str) -> dict[str, Metric]:
        del balance
        units = pool()
        return metrics(units[rng.integers(0, len(units), n)])

    @functools.cache
    def all_of_them() -> dict[str, float]:
        return {key: m.value for key, m in metrics(pool()).items()}

    return Setting(name, sample, lambda n, balance: all_of_them(), **more)


@functools.cache
def windows() -> Values:
    """Windows of a language model: summed loss, tokens that are right, tokens; the level of a window varies."""
    rng = np.random.default_rng(SEED)
    tokens = rng.integers(8, 65, POOL).astype(np.float64)
    level = np.exp(0.4 * rng.standard_normal(POOL))
    right = rng.binomial(tokens.astype(int), np.clip(0.45 / level, 0.02, 0.98))
    return np.stack([rng.gamma(tokens, 2.5 * level), right, tokens], 1)


def of_language(units: Values) -> dict[str, Metric]:
    """Perplexity and token accuracy, by windows."""
    loss = ratio(units[:, 0], units[:, 2], "window")
    return {"perplexity": loss.map(math.exp), "token accuracy": share(units[:, 1], units[:, 2], "window")}


@functools.cache
def recordings() -> Values:
    """Words that are wrong and words, of recordings of which some are much worse than others."""
    rng = np.random.default_rng(SEED)
    count = 1 + rng.poisson(8, POOL)
    return np.stack([rng.binomial(2 * count, rng.beta(0.6, 5, POOL)), count], 1).astype(np.float64)


def of_recordings(units: Values) -> dict[str, Metric]:
    """The word error rate, and the recordings with any mistake."""
    wrong = proportion(float((units[:, 0] > 0).sum()), len(units))
    return {"word_error": ratio(units[:, 0], units[:, 1], "recording"), "sequence_error": wrong}


@functools.cache
def translations() -> Values:
    """What BLEU counts of sentences, some of whose words are replaced, left out or said twice."""
    rng = np.random.default_rng(SEED)
    words = [f"w{k}" for k in range(400)]
    said, right = [], []
    for _ in range(POOL // 5):
        length = int(rng.integers(5, 26))
        sentence = [words[int(400 * u**2)] for u in rng.random(length)]
        badness = rng.beta(1.2, 4)
        draws = rng.random(length)
        text = [words[rng.integers(400)] if d < badness else w for w, d in zip(sentence, draws) if d > badness / 8]
        said.append(" ".join(text) or "w0")
        right.append([" ".join(sentence)])
    return bleu_counts(said, right)


def of_translations(units: Values) -> dict[str, Metric]:
    """BLEU."""
    if len(units) > 1_000:
        return {"bleu": Metric(bleu(units), math.nan, math.nan)}
    return {"bleu": bleu_metric(units)}


TAGS = ("O", "B-X", "I-X", "B-Y", "I-Y")


@functools.cache
def sentences() -> Any:
    """Tags of sentences, and what was said of them: (n, 2, 12), half a sentence at a time wrong."""
    rng = np.random.default_rng(SEED)
    found = np.full((POOL // 4, 2, 12), IGNORED)
    for row in found:
        length = int(rng.integers(5, 13))
        tags, at = [0] * length, 0
        while at < length - 2:
            if rng.random() < 0.35:
                kind = 1 if rng.random() < 0.7 else 3
                tags[at : at + 2] = [kind, kind + 1]
                at += 2
            at += 1
        badness = rng.beta(0.7, 4)
        row[0, :length] = tags
        row[1, :length] = [int(rng.integers(5)) if rng.random() < badness else tag for tag in tags]
    return found


def of_sentences(units: Any) -> dict[str, Metric]:
    """Token accuracy, balanced accuracy, macro F1 and the F1 of spans, by sentences."""
    task = Tagging(Tags(TAGS, "tag"))
    target, said = torch.from_numpy(units[:, 0]), torch.from_numpy(units[:, 1])
    kept = torch.stack([said.float(), said.float() * 0 + 0.1, said.float() * 0 + 0.9], 2)
    kept = kept.masked_fill((target == IGNORED)[..., None], math.nan)
    found = task.metrics(kept, target)
    return {f"{key}, tags": found[key] for key in ("accuracy", "balanced_accuracy", "macro_f1", "span_f1")}


@functools.cache
def masks() -> Values:
    """Pixels that were taken for what in images, (n, 9): three classes, some images much worse than others."""
    rng = np.random.default_rng(SEED)
    size = POOL // 4
    shares = rng.dirichlet((6, 3, 1.5), size)
    shares *= rng.random((size, 3)) < (1.0, 0.8, 0.5)
    shares[:, 0] += 1e-9
    shares /= shares.sum(1, keepdims=True)
    found = np.zeros((size, 3, 3))
    for k, counts in enumerate((4096 * shares).round().astype(int).T):
        bad = rng.beta(0.8, 4, size)
        wrong = rng.binomial(counts, bad)
        first = rng.binomial(wrong, 0.7)
        found[:, k, k] = counts - wrong
        found[:, k, (k + 1) % 3] += first
        found[:, k, (k + 2) % 3] += wrong - first
    return found.reshape(size, 9)


def of_masks(units: Values) -> dict[str, Metric]:
    """Mean IoU and pixel accuracy, by images."""
    task = Segmentation(Mask(("a", "b", "c")))
    kept = torch.ones(len(units), SAID + 3 + 9, dtype=torch.float64)
    kept[:, SAID + 3 :] = torch.from_numpy(units)
    found = task.metrics(kept, torch.zeros(len(units), 3))
    return {key: found[key] for key in ("mean_iou", "pixel_accuracy")}


BOXES = 6  # of an image at most, right and wrong ones each


@functools.cache
def pictures() -> Values:
    """Boxes of images, (n, 2, 2 · BOXES, 2): of two classes IoU (0 where wrong, NaN where there is none) and score."""
    rng = np.random.default_rng(SEED)
    size = POOL // 4
    found = np.full((size, 2, 2 * BOXES, 2), np.nan)
    skill = rng.beta(3, 2, size)
    for i, k in np.ndindex(size, 2):
        there = int(rng.poisson((1.6, 0.8)[k]))
        hits = min(BOXES, int(rng.binomial(there, 0.4 + 0.6 * skill[i])))
        misses = min(BOXES, int(rng.poisson(0.6)))
        found[i, k, :hits, 0] = np.clip(0.5 + 0.5 * rng.beta(4 * skill[i] + 0.5, 2, hits), 0, 1)
        found[i, k, :hits, 1] = rng.beta(4, 1.5, hits)
        found[i, k, BOXES : BOXES + misses, 0] = 0.0
        found[i, k, BOXES : BOXES + misses, 1] = rng.beta(1.5, 3, misses)
        found[i, k, 2 * BOXES - 1, 1] = there  # how many there are, beside no box
    return found


def of_pictures(units: Values) -> dict[str, Metric]:
    """mAP@[.5:.95] and mAP@.5, by images."""
    matches = []
    for k in range(2):
        iou, score = units[:, k, :, 0], units[:, k, :, 1]
        image, box = np.nonzero(~np.isnan(iou))
        order = np.argsort(-score[image, box], kind="stable")
        own = iou[image, box][order]
        right = own[None] >= precision.THRESHOLDS[:, None] - 1e-9
        matches.append(
            precision.MatchedBoxes(image[order], right, ~right, np.nan_to_num(units[:, k, -1, 1]).astype(int))
        )
    if len(units) > 1_000:
        values = precision.means(precision.table(matches))
        return {key: Metric(float(v), math.nan, math.nan) for key, v in zip(("map", "map_50"), values)}
    found = precision.intervals(matches, ("a", "b"))
    return {key: found[key] for key in ("map", "map_50")}


# --- forecasts ----------------------------------------------------------------------------------------------------


def forecasts(horizon: int, series: int, correlation: float) -> Setting:
    """RMSE and MASE of n windows of each series, whose errors are correlated in time and between series."""
    about = Horizon(
        steps=horizon, columns=("y",), mean=(0.0,), scale=(1.0,), naive=(1.0,), season_length=1, **_of(series)
    )
    task = Forecasting(about)
    words = f"horizon {horizon}, {series} series, errors correlated by {correlation:g}"

    def sample(rng: np.random.Generator, n: int, balance: str) -> dict[str, Metric]:
        del balance
        steps = n + horizon - 1
        shocks = math.sqrt(0.5) * (rng.standard_normal((1, steps)) + rng.standard_normal((series, steps)))
        shocks = rng.standard_normal((1, steps)) if series == 1 else shocks
        error = np.empty((series, steps))
        error[:, 0] = shocks[:, 0]
        for t in range(1, steps):
            error[:, t] = correlation * error[:, t - 1] + math.sqrt(1 - correlation**2) * shocks[:, t]
        slid = np.lib.stride_tricks.sliding_window_view(error, horizon, axis=1)  # (S, n, H)
        outputs = torch.from_numpy(slid.transpose(1, 0, 2).reshape(n * series, horizon).copy())
        found = task.metrics(outputs, torch.zeros_like(outputs))
        return {f"{key}, {words}": found[key] for key in ("rmse", "mase")}

    truth = {f"rmse, {words}": 1.0, f"mase, {words}": math.sqrt(2 / math.pi)}
    return Setting(f"forecasts, {words}", sample, lambda n, balance: truth)


def _of(series: int) -> dict[str, Any]:
    return {"series": tuple(f"s{k}" for k in range(series)) if series > 1 else ()}


SETTINGS = [
    Setting("two classes", confusion, confusion_truth, (BALANCED, RARE)),
    Setting("several classes", several, several_truth),
    Setting("ranked", ranked, ranked_truth, (BALANCED, RARE)),
    Setting("ranks", ranks, ranks_truth),
    Setting("losses", losses, losses_truth, (BALANCED, RARE)),
    Setting("errors", errors(False), errors_truth(False)),
    Setting("heavy errors", errors(True), errors_truth(True)),
    pooled("language", windows, of_language),
    pooled("speech", recordings, of_recordings),
    pooled("translation", translations, of_translations, trials=SLOW),
    pooled("tags", sentences, of_sentences, trials=SLOW),
    pooled("masks", masks, of_masks, trials=SLOW),
    pooled("boxes", pictures, of_pictures, trials=SLOW),
    forecasts(1, 1, 0.5),
    forecasts(6, 1, 0.5),
    forecasts(6, 3, 0.5),
]


@dataclass
class Held:
    """Of how many samples the interval holds the truth, and how many have one."""

    held: int = 0
    some: int = 0
    trials: int = 0
    note: str = ""


def simulated(setting: Setting, n: int, balance: str, trials: int, seed: int = SEED) -> dict[str, Held]:
    """So many samples of a setting, metric by metric."""
    rng = np.random.default_rng([seed, n, balance == RARE])
    truth = setting.truth(n, balance)
    found = {key: Held() for key in truth}
    for _ in range(trials):
        metrics = setting.sample(rng, n, balance)
        for key, one in found.items():
            metric = metrics[key]
            one.trials += 1
            one.note = metric.note or one.note
            if not math.isnan(metric.low):
                one.some += 1
                one.held += metric.low <= truth[key] <= metric.high
    return found


def told(one: Held) -> str:
    """A coverage in percent, marked where it is not from 92 to 98."""
    if one.some < one.trials / 20:
        return "none"
    held = one.held / one.some
    mark = "" if LOW <= held <= HIGH else " low" if held < LOW else " high"
    share = "" if one.some > 0.95 * one.trials else f" (of {100 * one.some / one.trials:.0f} %)"
    return f"{100 * held:.1f}{mark}{share}"


def rows(names: list[str]) -> Iterator[str]:
    """The table, row by row; of the settings named, or all."""
    yield f"| metric | classes | {' | '.join(f'n = {n}' for n in SIZES)} |"
    yield f"| --- | --- {'| ---: ' * len(SIZES)}|"
    for setting in SETTINGS:
        if names and setting.name.split(",")[0] not in names:
            continue
        for balance in setting.balances:
            cells = [simulated(setting, n, balance, setting.trials) for n in SIZES]
            of = balance if len(setting.balances) > 1 else ""
            for key in cells[0]:
                yield f"| {key.replace('_', ' ')} | {of} | {' | '.join(told(cell[key]) for cell in cells)} |"


def main(names: list[str] | None = None) -> int:
    """Simulate, print the table and, of all settings, write it to the page."""
    lines = []
    for line in rows(names or []):
        lines.append(line)
        print(line, flush=True)
    if not names:
        replace_section(PAGE, BEGIN, END, lines)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
