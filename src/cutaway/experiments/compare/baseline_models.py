"""Simple baseline models: scikit-learn's on rows of numbers, and those of graphs and texts."""

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
from ...training.evaluation import batches_in_order

MOST_CELLS = 20_000_000  # numbers that a model is fitted on, training examples times inputs
MOST_ROWS = 20_000  # and training examples
PENALTY = 10  # inputs of which logistic regression has scikit-learn's penalty; of more as many times as much
STOPS = 10_000  # training examples from which on boosting keeps some of them to see when to stop
TREES = 100  # of a forest, and rounds of boosting
TREES_OF_CLASSES = 300  # of boosting, which has one for each of several classes in every round
NEAREST = 5
LEAST = 1e-6  # probability of a class that a model gives none: a loss must not be infinite

Answer = Callable[[Split], Tensor]
Finish = Callable[[Tensor], Tensor]  # from ln p or values to what the task's loss compares with targets


@dataclass(frozen=True)
class Fitted:
    """A simple model that has learned."""

    answer: Answer

    def outputs(self, split: Split) -> Tensor:
        """What it answers for every example of a split of the same data, in the form of a network's outputs."""
        with one_thread():
            return self.answer(split)


@dataclass(frozen=True)
class Baseline:
    """A simple model that is not fitted yet."""

    name: str  # gradient boosting, nearest neighbors
    explanation: str  # what it is and sees, in a sentence or two
    learn: Callable[[DataSet, int], Answer]
    chance: bool = False  # whether another seed gives another model

    def fit(self, data: DataSet, seed: int = 0) -> Fitted:
        """Learn from the training split alone, with this seed where chance has a part."""
        with one_thread():
            return Fitted(self.learn(data, seed))


@functools.cache
def loaded() -> Any:
    """scikit-learn's models, imported, and the controller of the threads of their libraries."""
    import sklearn.ensemble
    import sklearn.linear_model
    import sklearn.neighbors  # noqa: F401
    from threadpoolctl import ThreadpoolController  # comes with scikit-learn

    return ThreadpoolController()


def one_thread() -> AbstractContextManager[object]:
    """Within, libraries compute in one thread: scores do not depend on their number, and threads that wait for others,
    where other work goes on, cost a hundred times what the fit does."""
    found: AbstractContextManager[object] = loaded().limit(limits=1)
    return found


class Wanted(NamedTuple):
    """What a model of scikit-learn is made for."""

    rows: int  # that it learns from
    inputs: int
    classes: int  # 0 for numbers
    seed: int


@dataclass(frozen=True)
class Recipe:
    """One of scikit-learn's models, for classes and for numbers."""

    name: str
    explanation: str
    make: Callable[[Wanted], Any]
    votes: int = 0  # of how many its probabilities are fractions: a class without one is not impossible
    chance_from: float = np.inf  # training examples from which on its seed matters


def boosting(wanted: Wanted) -> Any:
    """Trees that correct one another: J. H. Friedman, Greedy function approximation, 2001."""
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    rounds = min(TREES, max(1, TREES_OF_CLASSES // wanted.classes)) if wanted.classes > 2 else TREES
    kind = HistGradientBoostingClassifier if wanted.classes else HistGradientBoostingRegressor
    return kind(max_iter=rounds, random_state=wanted.seed)


def forest(wanted: Wanted) -> Any:
    """Trees that vote: L. Breiman, Random forests, 2001."""
    from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

    kind = RandomForestClassifier if wanted.classes else RandomForestRegressor
    return kind(TREES, random_state=wanted.seed)


def weighted_sum(wanted: Wanted) -> Any:
    """Logistic regression, or of numbers ridge regression, of standardised inputs."""
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    c = min(1.0, PENALTY / wanted.inputs)  # of many inputs, as of pixels, several say the same
    return make_pipeline(StandardScaler(), LogisticRegression(C=c, max_iter=200) if wanted.classes else Ridge())


def weighted_sum_of_words(wanted: Wanted) -> Any:
    """The same of inputs that are counts or fractions of words, scaled to unit length together."""
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import Normalizer

    return make_pipeline(Normalizer(), LogisticRegression(max_iter=200) if wanted.classes else Ridge())


def nearest(wanted: Wanted) -> Any:
    """The training examples that are most alike, by standardised inputs."""
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
NEIGHBORS = Recipe("nearest neighbors", f"What the {NEAREST} most alike training examples have.", nearest, NEAREST)


def linear(of: str, target: Classes | Value, make: Callable[[Wanted], Any] = weighted_sum) -> Recipe:
    """A weighted sum `of` something."""
    kind = "Ridge" if isinstance(target, Value) else "Logistic"
    return Recipe("linear model", f"{kind} regression on {of}.", make)


def constant(target: Classes | Value, finish: Finish) -> Baseline:
    """The most frequent class, by how often each class is there; or the mean."""
    if isinstance(target, Value):
        name, said = "the mean", "The mean of the training split, whatever the example."
    else:
        name, said = "the most frequent class", "Each class as likely as it is in training, whatever the example."

    def learn(data: DataSet, seed: int) -> Answer:
        del seed
        learned = target_of(data)
        if isinstance(target, Value):
            row = np.array([[learned.mean(dtype=np.float64)]])
        else:
            row = log_probabilities(np.bincount(learned, minlength=len(target.names))[None] / len(learned))
        answer = finish(torch.from_numpy(row).float())
        return lambda split: answer.expand(len(split), -1)

    return Baseline(name, said, learn)


def of_rows(recipe: Recipe, data: DataSet, target: Classes | Value, finish: Finish) -> Baseline:
    """A model of scikit-learn on the examples as rows of numbers."""
    total = len(data.splits["train"])
    most = most_rows(rows_of(data.splits["train"], data.spec, np.arange(1)).shape[1])

    def learn(data: DataSet, seed: int) -> Answer:
        spec, train = data.spec, data.splits["train"]
        some = chosen(total, most, seed)
        labels = target_of(data)
        model = fitted(recipe, rows_of(train, spec, some), labels if some is None else labels[some], target, seed)
        return lambda split: finish(answers(model, rows_of(split, spec), target, recipe.votes))

    said = f" Learned from {most:,} of the {total:,} training examples." if total > most else ""
    chance = total > most or total >= recipe.chance_from
    return Baseline(recipe.name, recipe.explanation + said, learn, chance)


def most_rows(width: int) -> int:
    """How many training examples of so many inputs a model is fitted on at most."""
    return max(1_000, min(MOST_ROWS, MOST_CELLS // width))


def chosen(total: int, most: int, seed: int) -> NDArray[np.int64] | None:
    """The training examples that a model is fitted on, sorted; None for all of them."""
    if total <= most:
        return None
    return np.sort(np.random.default_rng(seed).choice(total, most, replace=False)).astype(np.int64)


def fitted(recipe: Recipe, rows: Any, labels: NDArray[Any], target: Classes | Value, seed: int) -> Any:
    """The recipe's model, fitted on rows (n, D); of one class alone, what always says that."""
    from sklearn.dummy import DummyClassifier

    classes = len(target.names) if isinstance(target, Classes) else 0
    model = recipe.make(Wanted(len(rows), rows.shape[1], classes, seed))
    if classes and (labels == labels[0]).all():
        model = DummyClassifier()
    return model.fit(rows, labels)


def answers(model: Any, rows: Any, target: Classes | Value, votes: int = 0) -> Tensor:
    """What a fitted model of scikit-learn says of rows: (n, 1) values or (n, K) ln p, as float32."""
    if isinstance(target, Value):
        return torch.from_numpy(np.asarray(model.predict(rows), np.float64)[:, None]).float()
    known = model.predict_proba(rows)
    p = np.zeros((len(known), len(target.names)))
    p[:, model.classes_.astype(int)] = known  # a class that is not in training has none
    if votes:
        p = (votes * p + 1 / len(target.names)) / (votes + 1)
    return torch.from_numpy(log_probabilities(p)).float()


def log_probabilities(p: NDArray[np.float64]) -> NDArray[np.float64]:
    """ln p of (n, K), none of which is 0."""
    p = p.clip(LEAST)
    found: NDArray[np.float64] = np.log(p / p.sum(1, keepdims=True))
    return found


def target_of(data: DataSet) -> NDArray[Any]:
    """The targets of the training split, (n,)."""
    target = data.splits["train"].target
    assert target is not None, "a training split has targets"
    found: NDArray[Any] = target.numpy()
    return found


AT_ONCE = 256  # examples that are read together
SIDE = 32  # pixels of a side that images are averaged to, where they have more
VIDEO_SIDE = 16  # of the mean frame of a video
MOST_STEPS = 128  # steps that series are averaged to, where they have more

Rows = NDArray[np.float32]


def rows_of(split: Split, spec: Spec, index: NDArray[np.int64] | None = None) -> Rows:
    """The examples as rows (n, D), in their order; or those that `index` names, in its order."""
    describe = DESCRIBED[type(spec)]
    numbers = torch.arange(len(split)) if index is None else torch.from_numpy(index)
    plan = batches_in_order(split, AT_ONCE) if index is None else torch.split(numbers, AT_ONCE)
    read = torch.cat(list(plan))
    described = torch.cat([describe(*batch.inputs) for batch in split.batches(plan)])
    place = torch.empty(len(split), dtype=torch.int64)
    place[read] = torch.arange(len(read))
    found: Rows = described[place[numbers]].numpy()
    return found


def pixels(x: Tensor, *beside: Tensor) -> Tensor:
    """Images (N, C, H, W) as their pixels, averaged to at most 32×32: (N, C·h·w)."""
    del beside
    return _smaller(x, SIDE).flatten(1)


def mean_frame(x: Tensor, mask: Tensor) -> Tensor:
    """Videos (N, T, C, H, W) as the mean of their frames and how much pixels vary over time, at most 16×16 each."""
    real = mask[:, :, None, None, None].float()
    count = real.sum(1)
    mean = (x * real).sum(1) / count  # (N, C, H, W)
    spread = ((x - mean[:, None]).square() * real).sum(1).div(count).sqrt()
    return torch.cat([_smaller(part, VIDEO_SIDE).flatten(1) for part in (mean, spread)], dim=1)


def spectrum(x: Tensor, mask: Tensor) -> Tensor:
    """Recordings (N, T, F) as mean and standard deviation of each band over real frames: (N, 2F)."""
    real = mask[..., None].float()
    count = real.sum(1)
    mean = (x * real).sum(1) / count  # (N, F)
    return torch.cat([mean, ((x - mean[:, None]).square() * real).sum(1).div(count).sqrt()], dim=1)


def steps(x: Tensor, *beside: Tensor) -> Tensor:
    """Series (N, T, F) as their steps, averaged to at most 128: (N, t·F)."""
    del beside
    if x.shape[1] > MOST_STEPS:
        x = F.adaptive_avg_pool1d(x.mT, MOST_STEPS).mT
    return x.flatten(1)


def bag_of_nodes(x: Tensor, edges: Tensor, rows: Tensor, batch: Tensor, *edge_attr: Tensor) -> Tensor:
    """Graphs side by side, x (V, F), as the sum and the mean of what is known of their nodes, how many nodes and edges
    they have, and the sum of what is known of the edges, where something is: (N, 2F + 2 + D)."""
    del rows
    count = int(batch.max()) + 1
    nodes = torch.bincount(batch, minlength=count).float()[:, None]
    links = torch.bincount(batch[edges[1]], minlength=count).float()[:, None]
    total = x.new_zeros(count, x.shape[1]).index_add_(0, batch, x)
    parts = [total, total / nodes, nodes, links]
    for of_edges in edge_attr:
        parts.append(of_edges.new_zeros(count, of_edges.shape[1]).index_add_(0, batch[edges[1]], of_edges))
    return torch.cat(parts, dim=1)


def _smaller(x: Tensor, side: int) -> Tensor:
    height, width = x.shape[-2:]
    return F.adaptive_avg_pool2d(x, (min(side, height), min(side, width))) if max(height, width) > side else x


DESCRIBED: dict[type[Spec], Callable[..., Tensor]] = {
    TableSpec: lambda x: x,
    ImageSpec: pixels,
    VideoSpec: mean_frame,
    AudioSpec: spectrum,
    SeriesSpec: steps,
    GraphSpec: bag_of_nodes,
}


ALPHA = 0.8  # of a node's distribution comes from its neighbours
STEPS = 50  # 0.8⁵⁰ is 10⁻⁵


def by_propagation(target: Classes, finish: Finish) -> Baseline:
    """F ← α S F + (1 − α) Y, S = D^−½ A D^−½ (D. Zhou et al., Learning with local and global consistency, 2004)."""

    def learn(data: DataSet, seed: int) -> Answer:
        del seed
        train = _nodes(data.splits["train"])
        labels = np.zeros((len(train.x), len(target.names)))
        labels[train.rows.numpy(), target_of(data)] = 1
        spread = propagated(train.edges.numpy(), labels)
        total = spread.sum(1, keepdims=True)
        prior = labels.sum(0) / labels.sum()  # of nodes that no labelled node can be reached from
        p = np.where(total > 0, spread / np.where(total > 0, total, 1.0), prior)
        known = torch.from_numpy(log_probabilities(p)).float()
        return lambda split: finish(known[_nodes(split).rows])

    said = "Labels of training nodes, spread along edges in both directions; what else is known of nodes is not seen."
    return Baseline("label propagation", said, learn)


def by_features(target: Classes | Value, finish: Finish, recipe: Recipe) -> Baseline:
    """A model of scikit-learn of what is known of each node, and none of the edges."""

    def learn(data: DataSet, seed: int) -> Answer:
        train = _nodes(data.splits["train"])
        model = fitted(recipe, _features(train), target_of(data), target, seed)
        return lambda split: finish(answers(model, _features(split), target, recipe.votes))

    return Baseline(recipe.name, recipe.explanation, learn)


def propagated(edges: NDArray[np.int64], labels: NDArray[np.float64]) -> NDArray[np.float64]:
    """What labels (V, K) become along edges (2, E), which lead in both directions and from no node to itself."""
    from scipy.sparse import coo_matrix, diags  # comes with scikit-learn

    nodes = len(labels)
    source, to = edges[:, edges[0] != edges[1]]
    both = np.concatenate([source, to]), np.concatenate([to, source])
    adjacency = coo_matrix((np.ones(len(both[0])), both), shape=(nodes, nodes)).tocsr()
    adjacency.data[:] = 1  # however often an edge is listed
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


def by_words(target: Classes | Value, finish: Finish) -> Baseline:
    """TF-IDF of tokens and pairs of them, with logistic regression or ridge (S. Wang, C. D. Manning, Baselines and
    bigrams, 2012, find such models hard to beat)."""

    def learn(data: DataSet, seed: int) -> Answer:
        del seed
        model = tfidf(isinstance(target, Value))
        model.fit(tokens_of(data.splits["train"]), target_of(data))
        return lambda split: finish(answers(model, tokens_of(split), target))

    last = "ridge" if isinstance(target, Value) else "logistic regression"
    said = f"How often tokens and pairs of neighbours stand in the text, weighted by how rare they are; {last}."
    return Baseline("TF-IDF", said, learn)


def tfidf(numbers: bool) -> Any:
    """The model, which takes lists of tokens."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.pipeline import make_pipeline

    counted = TfidfVectorizer(
        tokenizer=_as_it_is, preprocessor=_as_it_is, token_pattern=None, ngram_range=(1, 2), sublinear_tf=True
    )
    last = Ridge() if numbers else LogisticRegression(C=10.0, max_iter=200)
    return make_pipeline(counted, last)


def tokens_of(split: Split) -> list[list[str]]:
    """The tokens of each text, as the network is given them, each by its number."""
    plan = batches_in_order(split, AT_ONCE)
    found: list[list[str]] = [[]] * len(split)
    for index, batch in zip(plan, split.batches(plan)):
        ids, mask = batch.inputs
        for i, row, real in zip(index.tolist(), ids, mask):
            found[i] = [str(token) for token in row[real].tolist()]
    return found


def _as_it_is(tokens: Any) -> Any:
    return tokens
