"""Data quality checks: leakage, label errors and drift, and the function that runs all checks.

Group and time leakage of tables: rows of one group, or adjacent in time, in several splits.

Target leakage in tables: columns that alone predict the target, or are filled in only for some targets.

Drift: inputs or targets whose distribution in another split differs from training. Numeric inputs are compared by the
Kolmogorov–Smirnov test, classes by χ², with Bonferroni correction.

Label errors are found by confident learning (C. Northcutt et al., Confident learning: estimating uncertainty in dataset
labels, JAIR 2021, <https://arxiv.org/abs/1911.00068>).

With cross-validated probabilities p_j(x) and t_j = mean of p_j over the examples labelled j, example x labelled i
counts as the class j with the largest p_j(x) ≥ t_j. If j ≠ i, the label is probably wrong. The model is then refitted
without these examples and tested on all labels.

Random label errors occur among confident predictions as often as among uncertain ones, but hard examples only among the
latter. A finding is made only if the most confident predictions have errors too and the model is mostly right in
each class, on average.
Otherwise errors and hard examples cannot be distinguished.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import torch
from torch import Tensor

from ...core.spec import AudioSpec, Classes, ImageSpec, SeriesSpec, TableSpec, Target, TextSpec, Value
from ..dataset_base import DataSet
from ..findings import Finding
from ..tables.column_types import Encoder, decode, infer_type, to_moments
from ..tables.transforms import TableSplit
from . import near_duplicates
from .near_duplicates import SplitFeatures, extract_features, get_text, nearest_neighbors, sample_indices


def validate_dataset(data: DataSet) -> list[Finding]:
    """Run the data quality checks and return the findings beyond those made when the data was loaded.

    The checks support independent examples with a class or a value: rows, images, texts, recordings and series.
    """
    spec, target = data.spec, getattr(data.spec, "target", None)
    if data.tasks is not None or not isinstance(target, Classes | Value):
        return []
    if not isinstance(spec, TableSpec | ImageSpec | TextSpec | AudioSpec | SeriesSpec):
        return []
    seen = {name: extract_features(split, spec.kind) for name, split in data.splits.items()}
    looked = {name: some for name, some in seen.items() if some is not None}
    if len(looked) < len(data.splits) or "train" not in looked or any(some.target.ndim > 1 for some in looked.values()):
        return []
    found: list[Finding | None] = []
    if spec.kind == "text":
        found += [
            near_duplicates.check_near_duplicate_texts(looked),
            check_text_labels(looked, target),
            *check_drift(looked, target, (), inputs=False),
        ]
        return [finding for finding in found if finding]
    found.append(near_duplicates.check_near_duplicates(looked, spec.kind, near_duplicates.continuous_columns(data)))
    if isinstance(looked["train"].split, TableSplit):
        found += check_target_leakage(data, looked, " ".join(map(str, data.findings)))
        found += check_group_leakage(data, looked)
    if isinstance(target, Classes):
        found.append(check_labels(looked, target))
    found += check_drift(looked, target, spec.columns if isinstance(spec, TableSpec) else ())
    return [finding for finding in found if finding]


MAX_GROUP_ROWS, MIN_GROUP_ROWS = 3000, 100  # sample size
GROUPS = 10  # smallest number of groups
AGREE = 0.3  # smallest share of rows, beyond chance, whose nearest neighbor in the other columns is of the same group
MEASURED = 0.8  # the same for numbers with decimals, which are rarely group ids
MAX_CATEGORIES = 20  # largest number of values of a category; group ids have more
FOLLOWS = 0.5  # autocorrelation of the targets in time order


def check_group_leakage(data: DataSet, seen: Mapping[str, SplitFeatures]) -> list[Finding]:
    """Return findings on columns whose groups or times leak between splits.

    A group leaks if its rows are alike and in several splits, a time if rows adjacent in time have similar targets.
    """
    places = [(split, i) for split, some in seen.items() for i in range(len(some.rows))]

    places = [places[i] for i in sample_indices(len(places), MAX_GROUP_ROWS).tolist()]
    if len(places) < MIN_GROUP_ROWS:
        return []
    rows = []
    for split, i in places:
        own = seen[split].split
        assert isinstance(own, TableSplit)
        rows.append(own.at(int(seen[split].rows[i])))
    table = rows[0][0]
    numbers = np.array([row for _, row in rows])
    known = {column["name"]: column["role"] for column in data.columns}
    inputs = torch.stack([seen[split].vectors[i] for split, i in places])
    target = np.array([float(seen[split].target[i]) for split, i in places])
    features = list(data.spec.columns) if hasattr(data.spec, "columns") else []
    splits = np.array([split for split, _ in places])
    found: list[Finding] = []
    # Copies of a row agree in every column, which is no evidence of groups.
    once = np.sort(np.unique(inputs.numpy(), axis=0, return_index=True)[1])
    for column, role in known.items():
        if role in ("target", "group"):
            continue
        cells = table.text(column).gather(numbers)
        type = infer_type(column, cells, len(table))
        if type.kind == "date":
            found += _check_time_leakage(column, cells, type.written, target, isinstance(data.spec.target, Classes))
            continue
        block = [
            k for k, name in enumerate(features) if name == column or name.startswith((f"{column}=", f"{column} "))
        ]
        apart = [k for k in range(len(features)) if k not in block]
        numbers_of_column = decode(cells, type) if type.kind == "number" else None
        share = _agreement(
            cells.gather(once),
            inputs[once][:, apart],
            None if numbers_of_column is None else numbers_of_column[once],
        )
        decimals = numbers_of_column is not None and bool((np.nan_to_num(numbers_of_column) % 1 != 0).any())
        if share is None or share < (MEASURED if decimals else AGREE):
            continue
        groups, parted = _split_groups(cells, splits)
        if parted:
            some = "; ".join(f"{value} ({', '.join(where)})" for value, where in list(parted.items())[:3])
            found.append(
                Finding(
                    f"Rows of one group of column {column} are in several splits: {len(parted):,} of "
                    f"{groups:,} groups are in "
                    f"several splits, and rows of a group are alike ({share:.0%} of nearest rows, beyond "
                    "chance), such as "
                    f"{some}. A score says little of new ones: group={column} keeps each in one split.",
                    [(f"{column} = {value}", *where) for value, where in parted.items()],
                )
            )
    return found


def _agreement(cells: pl.Series, inputs: torch.Tensor, values: npt.NDArray[np.float64] | None) -> float | None:
    """Return how much more often than by chance the nearest neighbor is of the same group; None without groups.

    For a numeric column (`values`), neighbors with adjacent values are subtracted, because a quantity has these too.
    """
    counts = cells.drop_nulls().alias("value").value_counts(name="count")["count"].to_numpy()
    n = int(counts.sum())
    if n < MIN_GROUP_ROWS or not inputs.shape[1] or not GROUPS <= len(counts) <= n / 2 or counts.max() > n / 5:
        return None
    codes = cells.rank("dense").fill_null(0).to_numpy()
    _, nearest = nearest_neighbors(inputs, inputs, 2)
    itself = nearest[:, 0] == torch.arange(len(inputs))
    other = torch.where(itself, nearest[:, 1], nearest[:, 0]).numpy()
    there = codes > 0
    same = np.mean(codes[other][there] == codes[there])
    chance = float(np.square(counts / n).sum())
    if values is not None:
        ranks = np.unique(values, return_inverse=True)[1]
        same -= np.mean(np.abs(ranks[other] - ranks)[there] == 1) / 2
    return float((same - chance) / (1 - chance))


def _split_groups(cells: pl.Series, splits: npt.NDArray[Any]) -> tuple[int, dict[str, list[str]]]:
    """Return the number of groups with several rows, and the groups in several splits with those splits."""
    frame = pl.DataFrame({"group": cells, "split": splits}).drop_nulls()
    groups = frame.group_by("group", maintain_order=True).agg(pl.col("split").unique(maintain_order=True), pl.len())
    several = groups.filter(pl.col("len") > 1)
    return several.height, {row[0]: list(row[1]) for row in several.iter_rows() if len(row[1]) > 1}


def _check_time_leakage(
    column: str, cells: pl.Series, written: str, target: npt.NDArray[np.float64], classes: bool
) -> list[Finding]:
    """Return a finding if rows adjacent in time have similar targets and are in different splits."""
    moments = to_moments(cells, written)
    there = moments.is_not_null().to_numpy()
    if there.sum() < MIN_GROUP_ROWS:
        return []
    order = np.argsort(moments.drop_nulls().to_numpy(), kind="stable")
    value = target[there][order]
    if classes:
        counts = np.unique(value, return_counts=True)[1] / len(value)
        chance = float(np.square(counts).sum())
        like = (np.mean(value[1:] == value[:-1]) - chance) / max(1 - chance, 1e-9)
    else:
        like = float(np.corrcoef(value[1:], value[:-1])[0, 1]) if value.std() > 0 else 0.0
    if like < FOLLOWS:
        return []
    return [
        Finding(
            f"Rows near in time, by column {column}, have like targets ({like:.2f} of 1) and are in different "
            "splits: the score is measured between known times, not on later ones. To measure later ones, "
            "keep the latest "
            "rows in a file of their own: cutaway evaluate RUN LATER.csv."
        )
    ]


MAX_TARGET_ROWS, MIN_TARGET_ROWS = 1500, 100  # sample size
ALONE = 0.9  # smallest R², or share of the majority class's errors, that a leaking column explains
ANYWAY = 0.93  # from here on regardless of the other columns
TIMES = 2  # factor by which the other columns together must have more errors
COLUMNS = 60
MIN_CELLS = 20  # smallest number of rows with, and without, a value in the column
Array = npt.NDArray[Any]


def check_target_leakage(data: DataSet, seen: Mapping[str, SplitFeatures], known_findings: str) -> list[Finding]:
    """Return a finding for each leaking column, except those that `known_findings` already names."""
    encoders: tuple[Encoder, ...] = getattr(data.preprocessing, "encoders", ())
    if not 2 <= len(encoders) <= COLUMNS:
        return []
    rows = sample_indices(len(seen["train"].rows), MAX_TARGET_ROWS)
    target = data.spec.target
    x, y = seen["train"].vectors[rows].numpy(), seen["train"].target[rows].numpy()
    if isinstance(target, Classes):  # classes too rare for cross-validation do not count
        common = np.bincount(y)[y] >= FOLDS
        x, y = x[common], y[common]
    if len(y) < MIN_TARGET_ROWS or (isinstance(target, Classes) and len(np.unique(y)) < 2):
        return []
    features = [feature for encoder in encoders for feature in encoder.features]
    ends = np.cumsum([len(encoder.features) for encoder in encoders])
    found: list[Finding | None] = []
    for encoder, end in zip(encoders, ends):
        if f"Column {encoder.name} alone" in known_findings:
            continue
        block = np.arange(end - len(encoder.features), end)
        gaps = [k for k in block if features[k] in (f"{encoder.name} missing", f"{encoder.name}=(missing)")]
        event = _check_missingness(encoder.name, x[:, gaps[0]] == x[:, gaps[0]].min(), y, target) if gaps else None
        found.append(event or _check_predictive(encoder.name, x, block, y, target))
    return [finding for finding in found if finding]


def _check_predictive(name: str, x: Array, block: Array, y: Array, target: Target) -> Finding | None:
    """Return a finding if the inputs `block` of x (n, F) predict the target, and all others much less."""
    classes = isinstance(target, Classes)
    own = predictive_skill(x[:, block], y, classes)
    if own < ALONE:
        return None
    rest = predictive_skill(np.delete(x, block, 1), y, classes, several=True)
    if own < ANYWAY and 1 - rest < TIMES * max(1 - own, 0.005):
        return None
    return Finding(
        f"Possible target leakage by column {name}: on {len(y):,} training rows, it alone explains {own:.0%} of "
        f"{getattr(target, 'column', 'the target')}, all others together {max(rest, 0.0):.0%}. If it is made "
        f"from the target, or set after the event, leave it out: ignore={name}."
    )


def _check_missingness(name: str, filled: Array, y: Array, target: Target) -> Finding | None:
    """Return a finding if a column is `filled` in (n,) for some targets and rarely for others."""
    fewer = min(filled.sum(), (~filled).sum())
    if fewer < MIN_CELLS:
        return None
    label = getattr(target, "column", "the target")
    if isinstance(target, Classes):
        with_, of = np.bincount(y[filled], minlength=len(target.classes)), np.bincount(y, minlength=len(target.classes))
        where = 2 * with_ > of
        wrong = int(np.where(where, of - with_, with_).sum())
        names = [repr(name) for name, own in zip(target.classes, where) if own]
        when = f"is {' or '.join(names[:3])}{' …' if len(names) > 3 else ''}"
    else:
        steps = np.where(filled[np.argsort(y, kind="stable")], 1, -1)
        high = (~filled).sum() + np.cumsum(steps)  # exceptions if it is filled in above the i-th target
        wrong, when = min((int(high.min()), "is high"), (int((len(y) - high).min()), "is low"))
    if wrong > (1 - ALONE) * fewer:
        return None
    hardly, so_in = ("hardly", f"all but {wrong:,} of") if wrong else ("not", "all")
    return Finding(
        f"Column {name} is filled in where {label} {when}, and {hardly} elsewhere: so it is in {so_in} {len(y):,} "
        f"training rows. If it is set after the event, that gives the target away: ignore={name}."
    )


def predictive_skill(x: Array, y: Array, classes: bool, several: bool = False) -> float:
    """Return the cross-validated skill of inputs (n, F): 1 − errors / majority-class errors, or R² for numbers.

    The model is a tree, or a forest if there are several columns.
    """
    from sklearn.ensemble import ExtraTreesClassifier, ExtraTreesRegressor
    from sklearn.model_selection import KFold, StratifiedKFold, cross_val_predict
    from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

    if classes:
        forest, tree = ExtraTreesClassifier, DecisionTreeClassifier
    else:
        forest, tree = ExtraTreesRegressor, DecisionTreeRegressor
    model = forest(60, random_state=0) if several else tree(min_samples_leaf=3, max_leaf_nodes=128, random_state=0)
    folds = (StratifiedKFold if classes else KFold)(FOLDS, shuffle=True, random_state=0)
    predicted = cross_val_predict(model, x, y, cv=folds)
    if classes:
        commonest = np.mean(y != np.bincount(y).argmax())
        return float(1 - np.mean(predicted != y) / max(commonest, 1e-9))
    return float(1 - np.mean((predicted - y) ** 2) / max(float(np.var(y)), 1e-12))


ALPHA = 1e-3
LARGE = 0.1  # smallest relevant distance of two distribution functions
OTHERWISE = 0.05  # smallest relevant total variation distance of the class distributions
LEAST, MOST = 30, 3000  # smallest sample, and largest number of examples of a split that are tested
NAMED = 3


def check_drift(
    seen: Mapping[str, SplitFeatures], target: Target, columns: Sequence[str], inputs: bool = True
) -> list[Finding]:
    """Return a finding for each split whose inputs or targets are distributed differently than in training.

    `columns` are the names of the inputs of a table.
    """
    train, found = seen["train"], []
    for split, own in seen.items():
        if split == "train" or min(len(own.rows), len(train.rows)) < LEAST:
            continue
        drifts = [_targets(train.target, own.target, target)]
        if inputs:
            drifts.append(_inputs(train.spread, own.spread, columns))
        if any(drifts):
            found.append(
                Finding(
                    f"The {split} split is not like training: {'; and '.join(filter(None, drifts))}. Its score "
                    "is measured on other data than was trained on: draw the splits again, or report the difference."
                )
            )
    return found


def _inputs(train: Tensor, own: Tensor, columns: Sequence[str]) -> str:
    """Describe which inputs (n, F) drift; empty if none."""
    from scipy.stats import ks_2samp

    a, b = (x[sample_indices(len(x), MOST)].numpy() for x in (train, own))
    tests = [ks_2samp(a[:, k], b[:, k], method="asymp") for k in range(a.shape[1])]
    far = [
        k
        for k, t in enumerate(tests)
        if t.pvalue * len(tests) < ALPHA and t.statistic > LARGE and not _unknown(columns, k)
    ]
    if not far:
        return ""
    far.sort(key=lambda k: -tests[k].statistic)
    by = "by the Kolmogorov–Smirnov test"
    if columns:
        return f"{', '.join(f'{columns[k]} (distance {tests[k].statistic:.2f})' for k in far[:NAMED])} {by}"
    return f"{len(far)} of {len(tests)} coarse numbers of its examples, by up to {tests[far[0]].statistic:.2f}, {by}"


def _targets(train: Tensor, own: Tensor, target: Target) -> str:
    """Describe how the targets drift; empty if they do not."""
    from scipy.stats import chi2_contingency, ks_2samp

    if not isinstance(target, Classes):
        test = ks_2samp(train.numpy(), own.numpy(), method="asymp")
        far = test.pvalue < ALPHA and test.statistic > LARGE
        return f"its targets (distance {test.statistic:.2f} by the Kolmogorov–Smirnov test)" if far else ""
    counts = np.stack([np.bincount(y.numpy(), minlength=len(target.classes)) for y in (train, own)])
    there = counts.sum(0) > 0
    names, counts = np.array(target.classes, object)[there], counts[:, there]
    shares = counts / counts.sum(1, keepdims=True)
    apart = np.abs(shares[1] - shares[0])
    if (
        counts.shape[1] < 2
        or apart.sum() / 2 <= OTHERWISE
        or chi2_contingency(counts, correction=False).pvalue >= ALPHA
    ):
        return ""
    k = int(apart.argmax())
    return f"{names[k]!r} is {shares[1, k]:.0%} of it and {shares[0, k]:.0%} of training (χ² of the classes)"


def _unknown(columns: Sequence[str], k: int) -> bool:
    """Return whether an input indicates a category unknown in training, which can occur in other splits only."""
    return bool(columns) and columns[k].endswith("=(unknown)")


CLASSES = 10  # a linear model of more classes is too slow

MAX_LABELLED = 2000  # sample size
MIN_LABELLED, OF_CLASS = 100, 10  # smallest number of examples in all and per class
SURE = 0.2  # fraction of examples with the most confident predictions
SURE_WRONG = 0.03  # smallest error rate of these, as a lower confidence bound, for a finding
SHARE = 0.3  # of the error rate of all examples: below it, errors are hard examples
WRONG = 0.25  # largest mean error rate of the classes of a usable model
Z = 1.28  # normal quantile of a one-sided 90 % bound
GAP = 0.2  # smallest lead in probability of another class over the label
FOLDS = 3
Picked = Sequence[tuple[str, int]]


def check_labels(seen: Mapping[str, SplitFeatures], target: Classes) -> Finding | None:
    """Return a finding on probable label errors, by extremely randomised trees on the vectors."""
    from sklearn.ensemble import ExtraTreesClassifier

    rows = sample_examples(seen)
    x = np.stack([seen[split].vectors[i].numpy() for split, i in rows])
    return find_label_errors(x, rows, seen, target, ExtraTreesClassifier(60, min_samples_leaf=2, random_state=0))


def sample_examples(seen: Mapping[str, SplitFeatures]) -> Picked:
    """Sample the examples whose labels are checked from all splits."""

    every = [(split, i) for split, some in seen.items() for i in range(len(some.rows))]
    return [every[i] for i in sample_indices(len(every), MAX_LABELLED).tolist()]


def find_label_errors(
    x: Array, rows: Picked, seen: Mapping[str, SplitFeatures], target: Classes, model: Any
) -> Finding | None:
    """Return a finding on probable label errors, or None. `x` (n, …) are the model's inputs for `rows`."""
    y = np.array([int(seen[split].target[i]) for split, i in rows])
    common = np.flatnonzero(np.bincount(y) >= OF_CLASS)
    kept = np.isin(y, common)
    if kept.sum() < MIN_LABELLED or len(common) < 2:
        return None
    x, rows, y = x[kept], [row for row, k in zip(rows, kept) if k], np.searchsorted(common, y[kept])
    p = cross_validated_probabilities(model, x, y, np.ones(len(y), bool))
    if not has_label_errors(p, y):
        return None
    p = cross_validated_probabilities(model, x, y, confident_classes(p, y) == y)
    like = p.argmax(1)
    lead = p.max(1) - p[np.arange(len(y)), y]
    found = np.flatnonzero(lead >= GAP)
    found = found[np.argsort(-lead[found], kind="stable")]
    if not len(found):
        return None
    name = [target.classes[k] for k in common]
    suspects = [(seen[rows[i][0]].name(rows[i][1]), name[y[i]], name[like[i]]) for i in found]
    some = "; ".join(f"{where} says {was!r}, looks like {is_!r}" for where, was, is_ in suspects[:3])
    return Finding(
        f"Labels are probably wrong: {len(found):,} of {len(y):,} examples checked, such as {some}. "
        "Scores against wrong labels are wrong too: look at these examples, and correct or remove them.",
        suspects,
    )


def cross_validated_probabilities(model: Any, x: Array, y: Array, taught: Array) -> Array:
    """Return cross-validated probabilities (n, K) for classes y (n,), fitted only on the examples `taught` (n,)."""
    from sklearn.base import clone
    from sklearn.model_selection import StratifiedKFold
    from threadpoolctl import threadpool_limits  # a dependency of scikit-learn

    p = np.zeros((len(y), y.max() + 1))
    with threadpool_limits(1, "blas"):  # vectors are short: under load, threads spend more time waiting
        for train, test in StratifiedKFold(FOLDS, shuffle=True, random_state=0).split(np.zeros(len(y)), y):
            train = train[taught[train]]
            fitted = clone(model).fit(x[train], y[train])
            p[np.ix_(test, fitted.classes_)] = fitted.predict_proba(x[test])
    return p


def has_label_errors(p: Array, y: Array) -> bool:
    """Return whether y (n,) has random label errors: whether the most confident of p (n, K) are wrong.

    Each class counts the same in the error rate of the model: one that predicts the most frequent class alone is not
    usable, however rare the others are.
    """
    errors = p.argmax(1) != y
    of_class = float(np.mean([errors[y == k].mean() for k in np.unique(y)]))
    surest = np.argsort(-p.max(1), kind="stable")[: max(1, round(SURE * len(y)))]
    n, share = len(surest), errors[surest].mean()
    # lower end of Wilson's interval for the share
    least = (share + Z**2 / (2 * n) - Z * np.sqrt(share * (1 - share) / n + (Z / (2 * n)) ** 2)) / (1 + Z**2 / n)
    return bool(of_class <= WRONG and least >= max(SURE_WRONG, SHARE * errors.mean()))


def confident_classes(p: Array, y: Array) -> Array:
    """Return the class each example counts as, (n,), from probabilities (n, K) and labels y (n,).

    It is the label, or another class whose probability reaches its mean over the examples with that label.
    """
    own = p[np.arange(len(y)), y]
    thresholds = np.array([own[y == k].mean() if (y == k).any() else np.inf for k in range(p.shape[1])])
    above = np.where(p >= thresholds, p, -1.0)
    return np.where((above >= 0).any(1), above.argmax(1), y)


def check_text_labels(seen: Mapping[str, SplitFeatures], target: Target) -> Finding | None:
    """Return a finding on probable label errors of texts, by a linear model on their words."""
    from sklearn.feature_extraction.text import HashingVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.multiclass import OneVsRestClassifier
    from sklearn.pipeline import make_pipeline

    if not isinstance(target, Classes) or len(target.classes) > CLASSES:
        return None
    picked = sample_examples(seen)
    words = [get_text(seen[split], i)[:4000] for split, i in picked]
    linear = LogisticRegression(C=10, solver="liblinear")
    if len(target.classes) > 2:
        linear = OneVsRestClassifier(linear)
    model = make_pipeline(HashingVectorizer(n_features=2**14, alternate_sign=False), linear)
    return find_label_errors(np.array(words, object), picked, seen, target, model)
