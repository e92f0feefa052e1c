"""Baseline models: scikit-learn's models on feature rows, and models of graphs and texts."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from ...core.spec import AudioSpec, Classes, GraphSpec, ImageSpec, SeriesSpec, Spec, TableSpec, Value, VideoSpec
from ...data.dataset_base import DataSet, Split
from ...data.graphs.splits import NodeSplit
from ...training.evaluation import sequential_batches

MOST_CELLS = 20_000_000  # maximum training examples times inputs of a fit
MOST_ROWS = 20_000  # maximum training examples of a fit
PENALTY = 10  # inputs at scikit-learn's default penalty; the penalty grows in proportion to the inputs
STOPS = 10_000  # training examples above which boosting holds out some for early stopping
TREES = 100  # of a forest; rounds of boosting
TREES_OF_CLASSES = 300  # of boosting with several classes, which has one for each class and round
NEAREST = 5
LEAST = 1e-6  # minimum probability of a class, so that no loss is infinite

Answer = Callable[[Split], Tensor]
Finish = Callable[[Tensor], Tensor]  # from ln p or values to the outputs that the task's loss takes


@dataclass(frozen=True)
class FittedBaseline:
    """Fitted baseline."""

    answer: Answer

    def outputs(self, split: Split) -> Tensor:
        """Return the outputs for every example of a split of the same data, in the format of a network's outputs."""
        with one_thread():
            return self.answer(split)


@dataclass(frozen=True)
class Baseline:
    """Baseline that is not fitted yet."""

    name: str  # gradient boosting, nearest neighbors
    explanation: str  # description of the model and its inputs, one or two sentences
    learn: Callable[[DataSet, int], Answer]
    chance: bool = False  # whether the model depends on the seed

    def fit(self, data: DataSet, seed: int = 0) -> FittedBaseline:
        """Fit the training split. `seed` matters only for models with randomness."""
        with one_thread():
            return FittedBaseline(self.learn(data, seed))


@functools.cache
def load_sklearn() -> Any:
    """Import scikit-learn's models and return the controller of their libraries' threads."""
    import sklearn.ensemble
    import sklearn.linear_model
    import sklearn.neighbors  # noqa: F401
    from threadpoolctl import ThreadpoolController  # comes with scikit-learn

    return ThreadpoolController()


def one_thread() -> AbstractContextManager[object]:
    """Limit libraries to one thread within this context.

    Scores then do not depend on the number of threads. On a busy machine, waiting threads would cost a hundred times as
    much as the fit.
    """
    found: AbstractContextManager[object] = load_sklearn().limit(limits=1)
    return found


class FitContext(NamedTuple):
    """Data sizes and seed for which a scikit-learn model is built."""

    rows: int  # training examples
    inputs: int
    classes: int  # 0 for regression
    seed: int


@dataclass(frozen=True)
class Recipe:
    """Scikit-learn model for classification and regression."""

    name: str
    explanation: str
    make: Callable[[FitContext], Any]
    votes: int = 0  # number of votes behind each probability, for smoothing of classes without a vote
    chance_from: float = np.inf  # training examples above which the seed matters


def boosting(wanted: FitContext) -> Any:
    """Build gradient boosted trees: J. H. Friedman, Greedy function approximation, 2001."""
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    rounds = min(TREES, max(1, TREES_OF_CLASSES // wanted.classes)) if wanted.classes > 2 else TREES
    kind = HistGradientBoostingClassifier if wanted.classes else HistGradientBoostingRegressor
    return kind(max_iter=rounds, random_state=wanted.seed)


def forest(wanted: FitContext) -> Any:
    """Build a random forest: L. Breiman, Random forests, 2001."""
    from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

    kind = RandomForestClassifier if wanted.classes else RandomForestRegressor
    return kind(TREES, random_state=wanted.seed)


def linear_regression(wanted: FitContext) -> Any:
    """Build logistic regression, or ridge regression, on standardized inputs."""
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    c = min(1.0, PENALTY / wanted.inputs)  # many inputs, such as pixels, are correlated
    return make_pipeline(StandardScaler(), LogisticRegression(C=c, max_iter=200) if wanted.classes else Ridge())


def bag_of_words_regression(wanted: FitContext) -> Any:
    """Build logistic or ridge regression on counts or fractions of words, scaled to unit length."""
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import Normalizer

    return make_pipeline(Normalizer(), LogisticRegression(max_iter=200) if wanted.classes else Ridge())


def nearest_neighbors(wanted: FitContext) -> Any:
    """Build k-nearest neighbors on standardized inputs."""
    from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    kind = KNeighborsClassifier if wanted.classes else KNeighborsRegressor
    return make_pipeline(StandardScaler(), kind(min(NEAREST, wanted.rows)))


BOOSTING = Recipe(
    "gradient boosting",
    f"At most {TREES} rounds of trees, each of which corrects those before it.",
    boosting,
    chance_from=STOPS + 1,
)
FOREST = Recipe("random forest", f"{TREES} trees on resamples of the training split, which vote.", forest, TREES, 0)
NEIGHBORS = Recipe(
    "nearest neighbors", f"What the {NEAREST} most alike training examples have.", nearest_neighbors, NEAREST
)


def linear_recipe(of: str, target: Classes | Value, make: Callable[[FitContext], Any] = linear_regression) -> Recipe:
    """Return the recipe of a linear model of the named inputs."""
    kind = "Ridge" if isinstance(target, Value) else "Logistic"
    return Recipe("linear model", f"{kind} regression on {of}.", make)


def constant_baseline(target: Classes | Value, finish: Finish) -> Baseline:
    """Return the baseline that predicts the class frequencies or the mean of the training split."""
    if isinstance(target, Value):
        name, said = "the mean", "The mean of the training split, whatever the example."
    else:
        name, said = "the most frequent class", "Each class as likely as it is in training, whatever the example."

    def learn(data: DataSet, seed: int) -> Answer:
        del seed
        learned = training_targets(data)
        if isinstance(target, Value):
            row = np.array([[learned.mean(dtype=np.float64)]])
        else:
            row = log_probabilities(np.bincount(learned, minlength=len(target.names))[None] / len(learned))
        answer = finish(torch.from_numpy(row).float())
        return lambda split: answer.expand(len(split), -1)

    return Baseline(name, said, learn)


def row_baseline(recipe: Recipe, data: DataSet, target: Classes | Value, finish: Finish) -> Baseline:
    """Return a scikit-learn baseline on examples as feature rows."""
    total = len(data.splits["train"])
    most = most_rows(feature_rows(data.splits["train"], data.spec, np.arange(1)).shape[1])

    def learn(data: DataSet, seed: int) -> Answer:
        spec, train = data.spec, data.splits["train"]
        some = sample_training_rows(total, most, seed)
        labels = training_targets(data)
        model = fit_recipe(
            recipe, feature_rows(train, spec, some), labels if some is None else labels[some], target, seed
        )
        return lambda split: finish(predict_outputs(model, feature_rows(split, spec), target, recipe.votes))

    said = f" Learned from {most:,} of the {total:,} training examples." if total > most else ""
    chance = total > most or total >= recipe.chance_from
    return Baseline(recipe.name, recipe.explanation + said, learn, chance)


def most_rows(width: int) -> int:
    """Return the maximum number of training examples with that many inputs."""
    return max(1_000, min(MOST_ROWS, MOST_CELLS // width))


def sample_training_rows(total: int, most: int, seed: int) -> NDArray[np.int64] | None:
    """Return the sorted indices of the training examples to fit on; None for all of them."""
    if total <= most:
        return None
    return np.sort(np.random.default_rng(seed).choice(total, most, replace=False)).astype(np.int64)


def fit_recipe(recipe: Recipe, rows: Any, labels: NDArray[Any], target: Classes | Value, seed: int) -> Any:
    """Fit a recipe's model on rows (n, D). With a single class the model always predicts it."""
    from sklearn.dummy import DummyClassifier

    classes = len(target.names) if isinstance(target, Classes) else 0
    model = recipe.make(FitContext(len(rows), rows.shape[1], classes, seed))
    if classes and (labels == labels[0]).all():
        model = DummyClassifier()
    return model.fit(rows, labels)


def predict_outputs(model: Any, rows: Any, target: Classes | Value, votes: int = 0) -> Tensor:
    """Return the predictions of a fitted scikit-learn model as float32: values (n, 1) or ln p (n, K)."""
    if isinstance(target, Value):
        return torch.from_numpy(np.asarray(model.predict(rows), np.float64)[:, None]).float()
    known = model.predict_proba(rows)
    p = np.zeros((len(known), len(target.names)))
    p[:, model.classes_.astype(int)] = known  # classes without training examples have probability 0
    if votes:
        p = (votes * p + 1 / len(target.names)) / (votes + 1)
    return torch.from_numpy(log_probabilities(p)).float()


def log_probabilities(p: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return ln p of (n, K), with a minimum probability."""
    p = p.clip(LEAST)
    found: NDArray[np.float64] = np.log(p / p.sum(1, keepdims=True))
    return found


def training_targets(data: DataSet) -> NDArray[Any]:
    """Return the targets of the training split, shape (n,)."""
    target = data.splits["train"].target
    assert target is not None, "a training split has targets"
    found: NDArray[Any] = target.numpy()
    return found


READ_BATCH = 256  # batch size of reading
SIDE = 32  # maximum side of images in pixels; larger ones are averaged
VIDEO_SIDE = 16  # maximum side of the mean frame of a video
MOST_STEPS = 128  # maximum steps of series; longer ones are averaged

Rows = NDArray[np.float32]


def feature_rows(split: Split, spec: Spec, index: NDArray[np.int64] | None = None) -> Rows:
    """Return the examples as feature rows (n, D), in order, or those of `index`, in its order."""
    describe = FEATURE_EXTRACTORS[type(spec)]
    numbers = torch.arange(len(split)) if index is None else torch.from_numpy(index)
    plan = sequential_batches(split, READ_BATCH) if index is None else torch.split(numbers, READ_BATCH)
    read = torch.cat(list(plan))
    described = torch.cat([describe(*batch.inputs) for batch in split.batches(plan)])
    place = torch.empty(len(split), dtype=torch.int64)
    place[read] = torch.arange(len(read))
    found: Rows = described[place[numbers]].numpy()
    return found


def pixels(x: Tensor, *beside: Tensor) -> Tensor:
    """Flatten the pixels of images (N, C, H, W), averaged to at most 32×32, to (N, C·h·w)."""
    del beside
    return _downsample(x, SIDE).flatten(1)


def mean_frame(x: Tensor, mask: Tensor) -> Tensor:
    """Return the mean and standard deviation over the frames of videos (N, T, C, H, W), at most 16×16 each."""
    real = mask[:, :, None, None, None].float()
    count = real.sum(1)
    mean = (x * real).sum(1) / count  # (N, C, H, W)
    spread = ((x - mean[:, None]).square() * real).sum(1).div(count).sqrt()
    return torch.cat([_downsample(part, VIDEO_SIDE).flatten(1) for part in (mean, spread)], dim=1)


def spectrum(x: Tensor, mask: Tensor) -> Tensor:
    """Return mean and standard deviation of each band of recordings (N, T, F) over real frames, shape (N, 2F)."""
    real = mask[..., None].float()
    count = real.sum(1)
    mean = (x * real).sum(1) / count  # (N, F)
    return torch.cat([mean, ((x - mean[:, None]).square() * real).sum(1).div(count).sqrt()], dim=1)


def steps(x: Tensor, *beside: Tensor) -> Tensor:
    """Flatten the steps of series (N, T, F), averaged to at most 128, to (N, t·F)."""
    del beside
    if x.shape[1] > MOST_STEPS:
        x = F.adaptive_avg_pool1d(x.mT, MOST_STEPS).mT
    return x.flatten(1)


def bag_of_nodes(x: Tensor, edges: Tensor, rows: Tensor, batch: Tensor, *edge_attr: Tensor) -> Tensor:
    """Return graph features, shape (N, 2F + 2 + D), of batched graphs with nodes x (V, F).

    They are the sum and the mean of node features, the numbers of nodes and edges, and the sum of edge features, if
    any.
    """
    del rows
    count = int(batch.max()) + 1
    nodes = torch.bincount(batch, minlength=count).float()[:, None]
    links = torch.bincount(batch[edges[1]], minlength=count).float()[:, None]
    total = x.new_zeros(count, x.shape[1]).index_add_(0, batch, x)
    parts = [total, total / nodes, nodes, links]
    for of_edges in edge_attr:
        parts.append(of_edges.new_zeros(count, of_edges.shape[1]).index_add_(0, batch[edges[1]], of_edges))
    return torch.cat(parts, dim=1)


def _downsample(x: Tensor, side: int) -> Tensor:
    height, width = x.shape[-2:]
    return F.adaptive_avg_pool2d(x, (min(side, height), min(side, width))) if max(height, width) > side else x


FEATURE_EXTRACTORS: dict[type[Spec], Callable[..., Tensor]] = {
    TableSpec: lambda x: x,
    ImageSpec: pixels,
    VideoSpec: mean_frame,
    AudioSpec: spectrum,
    SeriesSpec: steps,
    GraphSpec: bag_of_nodes,
}


ALPHA = 0.8  # fraction of a node's distribution that comes from its neighbours
STEPS = 50  # 0.8⁵⁰ is 10⁻⁵


def label_propagation_baseline(target: Classes, finish: Finish) -> Baseline:
    """Return label propagation: F ← α S F + (1 − α) Y, S = D^−½ A D^−½.

    D. Zhou et al., Learning with local and global consistency, 2004.
    """

    def learn(data: DataSet, seed: int) -> Answer:
        del seed
        train = _nodes(data.splits["train"])
        labels = np.zeros((len(train.x), len(target.names)))
        labels[train.rows.numpy(), training_targets(data)] = 1
        spread = propagate_labels(train.edges.numpy(), labels)
        total = spread.sum(1, keepdims=True)
        prior = labels.sum(0) / labels.sum()  # for nodes without a path to a labelled node
        p = np.where(total > 0, spread / np.where(total > 0, total, 1.0), prior)
        known = torch.from_numpy(log_probabilities(p)).float()
        return lambda split: finish(known[_nodes(split).rows])

    said = "Labels of training nodes, spread along edges in both directions; what else is known of nodes is not seen."
    return Baseline("label propagation", said, learn)


def node_feature_baseline(target: Classes | Value, finish: Finish, recipe: Recipe) -> Baseline:
    """Return a scikit-learn baseline on node features, without edges."""

    def learn(data: DataSet, seed: int) -> Answer:
        train = _nodes(data.splits["train"])
        model = fit_recipe(recipe, _features(train), training_targets(data), target, seed)
        return lambda split: finish(predict_outputs(model, _features(split), target, recipe.votes))

    return Baseline(recipe.name, recipe.explanation, learn)


def propagate_labels(edges: NDArray[np.int64], labels: NDArray[np.float64]) -> NDArray[np.float64]:
    """Propagate labels (V, K) along undirected edges (2, E), without self-loops."""
    from scipy.sparse import coo_matrix, diags  # comes with scikit-learn

    nodes = len(labels)
    source, to = edges[:, edges[0] != edges[1]]
    both = np.concatenate([source, to]), np.concatenate([to, source])
    adjacency = coo_matrix((np.ones(len(both[0])), both), shape=(nodes, nodes)).tocsr()
    adjacency.data[:] = 1  # duplicate edges count once
    degree = np.asarray(adjacency.sum(1)).ravel()
    scale = diags(np.where(degree > 0, degree, 1.0) ** -0.5)
    along = scale @ adjacency @ scale
    spread = labels.copy()
    for _ in range(STEPS):
        spread = ALPHA * (along @ spread) + (1 - ALPHA) * labels
    return spread


def _features(split: Split) -> NDArray[np.float32]:
    nodes = _nodes(split)
    found: NDArray[np.float32] = nodes.x[nodes.rows].numpy()
    return found


def _nodes(split: Split) -> NodeSplit:
    assert isinstance(split, NodeSplit), "label propagation is of the nodes of one graph"
    return split


def tfidf_baseline(target: Classes | Value, finish: Finish) -> Baseline:
    """Return TF-IDF of tokens and bigrams with logistic or ridge regression.

    S. Wang, C. D. Manning, Baselines and bigrams, 2012, find such models hard to beat.
    """

    def learn(data: DataSet, seed: int) -> Answer:
        del seed
        model = tfidf(isinstance(target, Value))
        model.fit(token_strings(data.splits["train"]), training_targets(data))
        return lambda split: finish(predict_outputs(model, token_strings(split), target))

    last = "ridge" if isinstance(target, Value) else "logistic regression"
    said = f"How often tokens and pairs of neighbours stand in the text, weighted by how rare they are; {last}."
    return Baseline("TF-IDF", said, learn)


def tfidf(numbers: bool) -> Any:
    """Build the TF-IDF model, which takes lists of tokens."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.pipeline import make_pipeline

    counted = TfidfVectorizer(
        tokenizer=_identity, preprocessor=_identity, token_pattern=None, ngram_range=(1, 2), sublinear_tf=True
    )
    last = Ridge() if numbers else LogisticRegression(C=10.0, max_iter=200)
    return make_pipeline(counted, last)


def token_strings(split: Split) -> list[list[str]]:
    """Return the tokens of each text that the network receives, as strings of their ids."""
    plan = sequential_batches(split, READ_BATCH)
    found: list[list[str]] = [[]] * len(split)
    for index, batch in zip(plan, split.batches(plan)):
        ids, mask = batch.inputs
        for i, row, real in zip(index.tolist(), ids, mask):
            found[i] = [str(token) for token in row[real].tolist()]
    return found


def _identity(tokens: Any) -> Any:
    return tokens
