"""Baseline models from scikit-learn for each kind of data, as a reference for networks.

Each is fitted on the training split only, with scikit-learn's default settings. Outputs have the format of a network's
outputs, so that the task's metrics apply to both: ln p (n, K) for classes, the standardized value (n, 1), the forecast
(n, H·C), or the evaluated outputs of a language model, (n, T, 2). Large training splits are subsampled, and the
explanation says so.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from ...core.spec import (
    AudioSpec,
    Classes,
    GraphSpec,
    Horizon,
    ImageSpec,
    NextToken,
    SeriesSpec,
    TableSpec,
    TextSpec,
    Value,
    VideoSpec,
)
from ...data.dataset_base import DataSet, Split
from ...data.series.transforms import WindowSplit
from ...tasks.simple_forecasts import fit_linear, seasonal_naive
from ...tasks.task import Task
from .baseline_models import (
    BOOSTING,
    FOREST,
    NEIGHBORS,
    Answer,
    Finish,
    bag_of_words_regression,
    constant_baseline,
    label_propagation_baseline,
    linear_recipe,
    linear_regression,
    node_feature_baseline,
    row_baseline,
    tfidf_baseline,
)
from .baseline_models import Baseline as Baseline
from .baseline_models import FittedBaseline as FittedBaseline
from .ngrams import ngram_baseline

PROBABILITIES = ("mse", "half_squared_error")  # classification losses that compare outputs with one-hot rows


def baselines_for(data: DataSet, task: Task) -> list[Baseline]:
    """Return the baselines for a data set and task.

    Args:
        data: Data set.
        task: Task whose metrics the outputs are for.

    Returns:
        The baselines, not fitted yet. Empty if no simple model is meaningful.
    """
    spec, target = data.spec, data.spec.target
    if data.tasks is not None:
        return []
    if isinstance(spec, SeriesSpec) and isinstance(target, Horizon):
        return _forecasts(target)
    if isinstance(spec, TextSpec) and type(target) is NextToken:
        return [ngram_baseline(target, len(data.splits["train"]), spec.longest)]
    if not isinstance(target, Classes | Value):
        return []
    finish = _probable if getattr(task, "loss_name", "") in PROBABILITIES and isinstance(target, Classes) else _as_is
    return [constant_baseline(target, finish), *_learned_baselines(data, target, finish)]


def _learned_baselines(data: DataSet, target: Classes | Value, finish: Finish) -> list[Baseline]:
    """Return the learned baselines for the kind of data."""
    spec = data.spec
    if isinstance(spec, TableSpec):
        recipes = [BOOSTING, FOREST, linear_recipe("the columns", target), NEIGHBORS]
    elif isinstance(spec, SeriesSpec):
        recipes = [BOOSTING, FOREST, linear_recipe("the steps", target), NEIGHBORS]
    elif isinstance(spec, GraphSpec) and spec.graph_level:
        recipes = [BOOSTING, FOREST, linear_recipe("what nodes and edges have in sum", target)]
    elif isinstance(spec, ImageSpec):
        recipes = [linear_recipe("the pixels, of images larger than 32×32 averaged to that", target)]
    elif isinstance(spec, AudioSpec):
        recipes = [linear_recipe("the mean spectrum and its standard deviation", target)]
    elif isinstance(spec, VideoSpec):
        recipes = [linear_recipe("the mean frame and the standard deviation over frames, at most 16×16", target)]
    elif isinstance(spec, TextSpec):
        return [tfidf_baseline(target, finish)]
    elif isinstance(spec, GraphSpec):
        return _node_baselines(data, target, finish)
    else:
        return []
    return [row_baseline(recipe, data, target, finish) for recipe in recipes]


def _node_baselines(data: DataSet, target: Classes | Value, finish: Finish) -> list[Baseline]:
    """Return the baselines for nodes of one graph. Nodes that are only numbered have no features."""
    form = getattr(data.preprocessing, "form", "")
    make = bag_of_words_regression if form == "matrix" else linear_regression
    features = node_feature_baseline(target, finish, linear_recipe("what is known of the node", target, make))
    spread = [label_propagation_baseline(target, finish)] if isinstance(target, Classes) else []
    return spread if form == "number" else [*spread, features]


def _forecasts(target: Horizon) -> list[Baseline]:
    """Return the forecasts of `tasks.simple_forecasts`."""
    columns = len(target.columns)

    def repeated(season: int) -> Callable[[DataSet, int], Answer]:
        return lambda data, seed: lambda split: seasonal_naive(_windows(split), columns, season)

    def learn_linear(data: DataSet, seed: int) -> Answer:
        fitted = fit_linear(_windows(data.splits["train"]))
        last = repeated(1)(data, seed)
        return last if fitted is None else lambda split: fitted(_windows(split))

    found = [Baseline("last value", "Repeats the last value.", repeated(1))]
    if target.season_length > 1:
        said = f"Repeats the last {target.season_length} steps."
        found.append(Baseline("seasonal naive", said, repeated(target.season_length)))
    said = "Each step ahead is a weighted sum of the last steps of the same column, by least squares."
    return [*found, Baseline("linear model", said, learn_linear)]


def _windows(split: Split) -> WindowSplit:
    assert isinstance(split, WindowSplit), "what is forecast are windows of series"
    return split


def _as_is(outputs: Tensor) -> Tensor:
    return outputs


def _probable(outputs: Tensor) -> Tensor:
    return outputs.exp()
