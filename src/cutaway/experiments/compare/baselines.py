"""Baseline models of a comparison: scikit-learn's models, n-grams, label propagation and simple forecasts.

The n-gram language model backs off to shorter contexts:

    p_k(w | the last k tokens c) = (n(c w) + t(c) p_{k−1}(w)) / (n(c) + t(c)),   p_{−1} = 1/V

n counts in the training split, and t(c) is the number of different tokens that followed c: interpolated Witten–Bell
smoothing (I. H. Witten, T. C. Bell, The zero-frequency problem, IEEE Transactions on Information Theory 37, 1991; S. F.
Chen, J. Goodman, An empirical study of smoothing techniques for language modeling, 1999).

Each baseline is fitted on the training split only, with scikit-learn's default settings. Outputs have the format of a
network's outputs, so that the task's metrics apply to both: ln p (n, K) for classes, the standardized value (n, 1), the
forecast (n, H·C), or the evaluated outputs of a language model, (n, T, 2). Large training splits are subsampled, and
the explanation says so.

A single run is compared with baselines too, within a fraction of its training time or a few seconds.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from ...core.errors import CutawayError
from ...core.spec import (
    AudioSpec,
    Classes,
    GraphSpec,
    Horizon,
    ImageSpec,
    NextToken,
    SeriesSpec,
    Spec,
    TableSpec,
    Tags,
    TextSpec,
    Value,
    VideoSpec,
)
from ...data.dataset_base import IGNORED, DataSet, SequenceSplit, Split
from ...data.graphs.splits import NodeSplit
from ...data.series.transforms import WindowSplit
from ...data.task_sequence import subset
from ...runs.run import Run
from ...runs.summary import headline
from ...statistics.intervals import Metric
from ...tasks.classification import Classification
from ...tasks.forecasting import fit_linear, fit_smoothing, seasonal_naive
from ...tasks.language import Language
from ...tasks.regression import Regression
from ...tasks.tagging import Tagging
from ...tasks.task import HIGHER_IS_BETTER, Task
from ...training.evaluation import sequential_batches
from ...training.run_folder import read_evaluation, read_run, write_evaluation

MAX_CONTEXT = 5  # maximum context in tokens
MAX_FIT_TOKENS = 2_000_000  # maximum training tokens; more are subsampled evenly by window
HASH_MULTIPLIER = np.uint64(
    0x9E3779B97F4A7C15
)  # odd multiplier, so that no bits are lost; millions of contexts collide once in 10⁵ times

Keys = NDArray[np.uint64]


def ngram_baseline(target: NextToken, total: int, length: int, max_tokens: int = MAX_FIT_TOKENS) -> Baseline:
    """Return the n-gram baseline for `total` training windows of `length` tokens, fitted on at most `max_tokens`.

    Its outputs have the format that evaluation keeps of a language model's outputs.
    """
    most = max(1, max_tokens // length)

    def learn(data: DataSet, seed: int) -> Predictor:
        del seed
        train = data.splits["train"]
        windows = torch.linspace(0, total - 1, min(total, most)).round().long()
        contexts, following = zip(
            *(_context_keys(*batch) for batch in train.batches(list(torch.split(windows, READ_BATCH))))
        )
        tables = [
            NgramTable.from_contexts(keys, np.concatenate(following)) for keys in map(np.concatenate, zip(*contexts))
        ]
        return lambda split: _token_losses(split, tables, target.vocab_size)

    said = f"Token frequencies after the last {MAX_CONTEXT} tokens in training, with backoff to shorter contexts."
    return Baseline("n-grams", said + (f" Fitted on {most:,} of {total:,} windows." if total > most else ""), learn)


@dataclass(frozen=True)
class NgramTable:
    """Counts of the tokens that followed contexts of one length."""

    contexts: Keys  # (C,) sorted
    count: NDArray[np.float64]  # occurrences of each context
    kinds: NDArray[np.float64]  # number of different tokens that followed it
    likeliest: NDArray[np.int64]  # most frequent token that followed it
    pairs: Keys  # (P,) context and next token, sorted
    together: NDArray[np.float64]  # occurrences of each pair

    @classmethod
    def from_contexts(cls, keys: Keys, following: NDArray[np.int64]) -> NgramTable:
        """Count contexts (n,) and their next tokens (n,)."""
        pairs, first, together = np.unique(_extend_keys(keys, following), return_index=True, return_counts=True)
        contexts, of_pair, kinds = np.unique(keys[first], return_inverse=True, return_counts=True)
        times = together.astype(np.float64)
        count = np.bincount(of_pair, times, len(contexts)).astype(np.float64)
        order = np.lexsort((together, of_pair))
        last = np.append(np.flatnonzero(np.diff(of_pair[order])), len(order) - 1)
        return cls(contexts, count, kinds.astype(np.float64), following[first][order][last], pairs, times)

    def refine(
        self, p: NDArray[np.float64], likeliest: NDArray[np.int64], keys: Keys, following: NDArray[np.int64]
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Return the probability (n,) and the most likely token after adding contexts that are one token longer."""
        at, known = _lookup(self.contexts, keys)
        pair, seen = _lookup(self.pairs, _extend_keys(keys, following))
        count, kinds = self.count[at], self.kinds[at]
        better = (np.where(seen, self.together[pair], 0.0) + kinds * p) / (count + kinds)
        return np.where(known, better, p), np.where(known, self.likeliest[at], likeliest)


def _token_losses(split: Split, tables: list[NgramTable], vocab_size: int) -> Tensor:
    """Return each token's loss in nats, and 1 if it is the most likely, shape (n, T, 2); NaN at padding."""
    plan = sequential_batches(split, READ_BATCH)
    found = []
    for batch in split.batches(plan):
        keys, following = _context_keys(*batch)
        p, likeliest = np.full(len(following), 1 / vocab_size), np.zeros(len(following), np.int64)
        for table, own in zip(tables, keys):
            p, likeliest = table.refine(p, likeliest, own, following)
        kept = torch.full((*batch.target.shape, 2), torch.nan)
        values = np.stack([-np.log(p), likeliest == following], axis=1)
        kept[batch.target != IGNORED] = torch.from_numpy(values).float()
        found.append(kept)
    longest = max(kept.shape[1] for kept in found)
    outputs = torch.full((len(split), longest, 2), torch.nan)
    for index, kept in zip(plan, found):
        outputs[index, : kept.shape[1]] = kept
    return outputs


def _context_keys(inputs: tuple[Tensor, ...], target: Tensor) -> tuple[list[Keys], NDArray[np.int64]]:
    """Return the keys of the last 0, 1, … tokens and the next token, shape (n,).

    Only tokens of a batch that have a next token are included.
    """
    real = (target != IGNORED).numpy()
    tokens = inputs[0].numpy()
    key = np.zeros(tokens.shape, np.uint64)
    keys = [key[real]]
    for back in range(MAX_CONTEXT):
        shifted = np.full(tokens.shape, -1)  # a special token pads the start of a window
        shifted[:, back:] = tokens[:, : tokens.shape[1] - back]
        key = _extend_keys(key, shifted)
        keys.append(key[real])
    return keys, target.numpy()[real]


def _extend_keys(keys: Keys, tokens: NDArray[np.int64]) -> Keys:
    """Return the keys of contexts that are extended by a token."""
    mixed = (keys + (tokens + 2).astype(np.uint64)) * HASH_MULTIPLIER
    found: Keys = mixed ^ (mixed >> np.uint64(29))
    return found


def _lookup(among: Keys, keys: Keys) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """Return the position of each key in a sorted array, and whether it is there."""
    at = np.searchsorted(among, keys).clip(max=len(among) - 1)
    return at, among[at] == keys


SUFFIX = 4  # maximum characters of a suffix by which the tag of an unknown word is predicted


def tag_baseline(target: Tags) -> Baseline:
    """Return the most frequent tag of each word in training; of unknown words, that of the longest known suffix.

    E. Brill, A simple rule-based part of speech tagger, 1992, begins with it. Its outputs have the format that
    evaluation keeps of a tagger's outputs.
    """

    def learn(data: DataSet, seed: int) -> Predictor:
        del seed
        counts: dict[str, NDArray[np.float64]] = {}
        for words, tags in _tagged_words(data.splits["train"]):
            for word, tag in zip(words, tags):
                for key in _word_keys(word):
                    counts.setdefault(key, np.zeros(len(target.names)))[tag] += 1
        return lambda split: _tag_outputs(split, counts, target)

    said = "The most frequent tag of each word; of unknown words, that of the longest known suffix of up to "
    said += f"{SUFFIX} letters."
    return Baseline("most frequent tag", said, learn)


def _word_keys(word: str) -> list[str]:
    """Return the word and its suffixes, the longest first and the empty one last. A suffix begins with a blank."""
    return [word, *(f" {word[len(word) - k :].lower()}" for k in range(min(SUFFIX, len(word)), -1, -1))]


def _tagged_words(split: Split) -> Iterator[tuple[list[str], list[int]]]:
    """Yield the words of each sentence and their tags, in the order of the split, as far as the model receives them."""
    for i in range(len(split)):
        (batch,) = split.batches([torch.tensor([i])])
        row = split.row(i)
        assert row is not None, "tagged sentences have words"
        tags = batch.target[0][batch.target[0] != IGNORED].tolist()
        yield next(iter(row.values())).split(" ")[: len(tags)], tags


def _tag_outputs(split: Split, counts: dict[str, NDArray[np.float64]], target: Tags) -> Tensor:
    """Return predicted tag, loss in nats and probability of each token, shape (n, T, 3); NaN where there is no tag."""
    targets = padded_targets(split)
    outputs = torch.full((*targets.shape, 3), torch.nan)
    uniform = np.full(len(target.names), 1 / len(target.names))
    for i, (words, tags) in enumerate(_tagged_words(split)):
        rows = []
        for word, tag in zip(words, tags):
            known = next(counts[key] for key in _word_keys(word) if key in counts)
            p = (known + uniform) / (known.sum() + 1)
            rows.append((float(p.argmax()), -float(np.log(p[tag])), float(p.max())))
        outputs[i, targets[i] != IGNORED] = torch.tensor(rows).view(-1, 3)
    return outputs


def padded_targets(split: Split) -> Tensor:
    """Return the targets of the tokens of each example, shape (n, T), padded with IGNORED."""
    rows = [next(iter(split.batches([torch.tensor([i])]))).target[0] for i in range(len(split))]
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=IGNORED)


MAX_FIT_CELLS = 20_000_000  # maximum training examples times inputs of a fit
MAX_FIT_ROWS = 20_000  # maximum training examples of a fit
PENALTY = 10  # inputs at scikit-learn's default penalty; the penalty grows in proportion to the inputs
EARLY_STOPPING_ROWS = 10_000  # training examples above which boosting holds out some for early stopping
TREES = 100  # of a forest; rounds of boosting
TREES_OF_CLASSES = 300  # of boosting with several classes, which has one for each class and round
NUM_NEIGHBORS = 5
MIN_PROBABILITY = 1e-6  # minimum probability of a class, so that no loss is infinite

Predictor = Callable[[Split], Tensor]
Finish = Callable[[Tensor], Tensor]  # from ln p or values to the outputs that the task's loss takes


@dataclass(frozen=True)
class FittedBaseline:
    """Fitted baseline."""

    answer: Predictor

    def outputs(self, split: Split) -> Tensor:
        """Return the outputs for every example of a split of the same data, in the format of a network's outputs."""
        with one_thread():
            return self.answer(split)


@dataclass(frozen=True)
class Baseline:
    """Baseline that is not fitted yet."""

    name: str  # gradient boosting, nearest neighbors
    explanation: str  # description of the model and its inputs, one or two sentences
    learn: Callable[[DataSet, int], Predictor]
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
    return make_pipeline(StandardScaler(), kind(min(NUM_NEIGHBORS, wanted.rows)))


def nearest_series(wanted: FitContext) -> Any:
    """Build 1-nearest neighbor, the common baseline of series: A. Bagnall et al., The great time series classification
    bake off, 2017.
    """
    from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor

    return (KNeighborsClassifier if wanted.classes else KNeighborsRegressor)(1)


BOOSTING = Recipe(
    "gradient boosting",
    f"At most {TREES} rounds of boosted trees.",
    boosting,
    chance_from=EARLY_STOPPING_ROWS + 1,
)
FOREST = Recipe("random forest", f"{TREES} trees on bootstrap samples of the training split.", forest, TREES, 0)
NEIGHBORS = Recipe(
    "nearest neighbors",
    f"Prediction from the {NUM_NEIGHBORS} nearest training examples.",
    nearest_neighbors,
    NUM_NEIGHBORS,
)


NEAREST = Recipe(
    "1-nearest neighbor",
    "Class of the training series with the smallest Euclidean distance.",
    nearest_series,
    1,
)


def linear_recipe(of: str, target: Classes | Value, make: Callable[[FitContext], Any] = linear_regression) -> Recipe:
    """Return the recipe of a linear model of the named inputs."""
    kind = "Ridge" if isinstance(target, Value) else "Logistic"
    return Recipe("linear model", f"{kind} regression on {of}.", make)


def constant_baseline(target: Classes | Value, finish: Finish) -> Baseline:
    """Return the baseline that predicts the class frequencies or the mean of the training split."""
    if isinstance(target, Value):
        name, said = "the mean", "The mean of the training split for every example."
    else:
        name, said = "the most frequent class", "The class frequencies of the training split for every example."

    def learn(data: DataSet, seed: int) -> Predictor:
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
    most = max_rows(feature_rows(data.splits["train"], data.spec, np.arange(1)).shape[1])

    def learn(data: DataSet, seed: int) -> Predictor:
        spec, train = data.spec, data.splits["train"]
        some = sample_training_rows(total, most, seed)
        labels = training_targets(data)
        model = fit_recipe(
            recipe, feature_rows(train, spec, some), labels if some is None else labels[some], target, seed
        )
        return lambda split: finish(predict_outputs(model, feature_rows(split, spec), target, recipe.votes))

    said = f" Fitted on {most:,} of the {total:,} training examples." if total > most else ""
    chance = total > most or total >= recipe.chance_from
    return Baseline(recipe.name, recipe.explanation + said, learn, chance)


def max_rows(width: int) -> int:
    """Return the maximum number of training examples with that many inputs."""
    return max(1_000, min(MAX_FIT_ROWS, MAX_FIT_CELLS // width))


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
    p = p.clip(MIN_PROBABILITY)
    found: NDArray[np.float64] = np.log(p / p.sum(1, keepdims=True))
    return found


def training_targets(data: DataSet) -> NDArray[Any]:
    """Return the targets of the training split, shape (n,)."""
    target = data.splits["train"].target
    assert target is not None, "a training split has targets"
    found: NDArray[Any] = target.numpy()
    return found


READ_BATCH = 256  # batch size of reading
IMAGE_SIDE = 32  # maximum side of images in pixels; larger ones are averaged
VIDEO_SIDE = 16  # maximum side of the mean frame of a video
MAX_STEPS = 128  # maximum steps of series; longer ones are averaged

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


def pixel_features(x: Tensor, *beside: Tensor) -> Tensor:
    """Flatten the pixels of images (N, C, H, W), averaged to at most 32×32, to (N, C·h·w)."""
    del beside
    return _downsample(x, IMAGE_SIDE).flatten(1)


def frame_features(x: Tensor, mask: Tensor) -> Tensor:
    """Return the mean and standard deviation over the frames of videos (N, T, C, H, W), at most 16×16 each."""
    real = mask[:, :, None, None, None].float()
    count = real.sum(1)
    mean = (x * real).sum(1) / count  # (N, C, H, W)
    spread = ((x - mean[:, None]).square() * real).sum(1).div(count).sqrt()
    return torch.cat([_downsample(part, VIDEO_SIDE).flatten(1) for part in (mean, spread)], dim=1)


def spectrum_features(x: Tensor, mask: Tensor) -> Tensor:
    """Return mean and standard deviation of each band of recordings (N, T, F) over real frames, shape (N, 2F)."""
    real = mask[..., None].float()
    count = real.sum(1)
    mean = (x * real).sum(1) / count  # (N, F)
    return torch.cat([mean, ((x - mean[:, None]).square() * real).sum(1).div(count).sqrt()], dim=1)


def step_features(x: Tensor, *beside: Tensor) -> Tensor:
    """Flatten the steps of series (N, T, F), averaged to at most 128, to (N, t·F)."""
    del beside
    if x.shape[1] > MAX_STEPS:
        x = F.adaptive_avg_pool1d(x.mT, MAX_STEPS).mT
    return x.flatten(1)


def node_sums(x: Tensor, edges: Tensor, rows: Tensor, batch: Tensor, *edge_attr: Tensor) -> Tensor:
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
    ImageSpec: pixel_features,
    VideoSpec: frame_features,
    AudioSpec: spectrum_features,
    SeriesSpec: step_features,
    GraphSpec: node_sums,
}


ALPHA = 0.8  # fraction of a node's distribution that comes from its neighbours
STEPS = 50  # 0.8⁵⁰ is 10⁻⁵


def label_propagation_baseline(target: Classes, finish: Finish) -> Baseline:
    """Return label propagation: F ← α S F + (1 − α) Y, S = D^−½ A D^−½.

    D. Zhou et al., Learning with local and global consistency, 2004.
    """

    def learn(data: DataSet, seed: int) -> Predictor:
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

    said = "Labels of training nodes, propagated along edges in both directions; node features are not used."
    return Baseline("label propagation", said, learn)


def node_feature_baseline(target: Classes | Value, finish: Finish, recipe: Recipe) -> Baseline:
    """Return a scikit-learn baseline on node features, without edges."""

    def learn(data: DataSet, seed: int) -> Predictor:
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
    assert isinstance(split, NodeSplit), "label propagation needs the nodes of one graph"
    return split


def tfidf_baseline(target: Classes | Value, finish: Finish) -> Baseline:
    """Return TF-IDF of tokens and bigrams with logistic or ridge regression.

    S. Wang, C. D. Manning, Baselines and bigrams, 2012, find such models hard to beat.
    """

    def learn(data: DataSet, seed: int) -> Predictor:
        del seed
        model = tfidf(isinstance(target, Value))
        model.fit(token_strings(data.splits["train"]), training_targets(data))
        return lambda split: finish(predict_outputs(model, token_strings(split), target))

    last = "ridge" if isinstance(target, Value) else "logistic regression"
    said = f"TF-IDF of tokens and bigrams; {last}."
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


PROBABILITY_LOSSES = ("mse", "half_squared_error")  # classification losses that compare outputs with one-hot rows


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
    finish = (
        _exponentiate
        if getattr(task, "loss_name", "") in PROBABILITY_LOSSES and isinstance(target, Classes)
        else _unchanged
    )
    return [constant_baseline(target, finish), *_learned_baselines(data, target, finish)]


def _learned_baselines(data: DataSet, target: Classes | Value, finish: Finish) -> list[Baseline]:
    """Return the learned baselines for the kind of data."""
    spec = data.spec
    if isinstance(spec, TableSpec):
        recipes = [BOOSTING, FOREST, linear_recipe("the columns", target), NEIGHBORS]
    elif isinstance(spec, SeriesSpec):
        recipes = [BOOSTING, FOREST, linear_recipe("the steps", target), NEIGHBORS, NEAREST]
    elif isinstance(spec, GraphSpec) and spec.graph_level:
        recipes = [BOOSTING, FOREST, linear_recipe("the sums of node and edge features", target)]
    elif isinstance(spec, ImageSpec):
        recipes = [linear_recipe("the pixels, downsampled to at most 32×32", target)]
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
    """Return the baselines for nodes of one graph.

    Nodes that are only numbered have no features. Labels cannot be propagated if training does not see the nodes to be
    predicted (inductive=true).
    """
    form = getattr(data.preprocessing, "form", "")
    make = bag_of_words_regression if form == "matrix" else linear_regression
    features = node_feature_baseline(target, finish, linear_recipe("the features of the node", target, make))
    train, *others = (_nodes(split) for split in data.splits.values())
    one_graph = all(torch.equal(other.edges, train.edges) and len(other.x) == len(train.x) for other in others)
    spread = [label_propagation_baseline(target, finish)] if isinstance(target, Classes) and one_graph else []
    return spread if form == "number" else [*spread, features]


def _forecasts(target: Horizon) -> list[Baseline]:
    """Return the forecasts of `tasks.forecasting`."""
    columns = len(target.columns)

    def repeated(season: int) -> Callable[[DataSet, int], Predictor]:
        return lambda data, seed: lambda split: seasonal_naive(_windows(split), columns, season)

    def learn_smoothing(data: DataSet, seed: int) -> Predictor:
        del seed
        fitted = fit_smoothing(_windows(data.splits["train"]), target.season_length)
        last = repeated(1)(data, 0)
        return last if fitted is None else lambda split: fitted(_windows(split))

    def learn_linear(data: DataSet, seed: int) -> Predictor:
        fitted = fit_linear(_windows(data.splits["train"]))
        last = repeated(1)(data, seed)
        return last if fitted is None else lambda split: fitted(_windows(split))

    found = [Baseline("last value", "Repeats the last value.", repeated(1))]
    if target.season_length > 1:
        said = f"Repeats the last {target.season_length} steps."
        found.append(Baseline("seasonal naive", said, repeated(target.season_length)))
    said = "Mean of the past steps, or of those of the same phase of a season, with exponentially decreasing weights."
    found.append(Baseline("exponential smoothing", said, learn_smoothing))
    said = "Each step ahead is a weighted sum of the last steps of the same column, by least squares."
    return [*found, Baseline("linear model", said, learn_linear)]


def _windows(split: Split) -> WindowSplit:
    assert isinstance(split, WindowSplit), "forecasts are of windows of series"
    return split


def _unchanged(outputs: Tensor) -> Tensor:
    return outputs


def _exponentiate(outputs: Tensor) -> Tensor:
    return outputs.exp()


FRACTION = 0.1  # of the training time, the limit for all baselines together
SECONDS = 5.0  # limit of a short training
SENTENCES_PER_SECOND = 2_000  # that the baseline of a tagger reads, at least
TOKENS_PER_SECOND = 50_000  # that an n-gram model fits or scores, at least
MIN_SECONDS = 0.25  # seconds that must remain to start another baseline
FIRST, GROWTH = 32, 4  # training examples of the first timed fit, and the factor between fits
MARGIN = 1.3  # factor by which a fit may exceed the expected time
MAX_OTHER_RUNS = 20  # runs in the same folder, the newest, in which scores are looked for
MAX_UNSAMPLED_ROWS = 2_000  # maximum training examples of data that cannot be subsampled for timing


def score_baselines(run: Run) -> None:
    """Fit baselines for a run's data and store their scores on the run's evaluation split in evaluation.json.

    All baselines together take at most a tenth of the training time, or 5 s if that is longer. Nothing is done if the
    scores exist already, if the run has no evaluation.json, for other tasks than plain classification, regression,
    tagging and language modelling (forecasts are compared when they are evaluated), and if the data are no longer
    available.
    """
    evaluation = read_evaluation(run.folder)
    seconds = max(SECONDS, FRACTION * (run.about.get("seconds") or 0.0))
    if evaluation is None or "simple" in evaluation:
        return
    if type(run.task) not in (Classification, Language, Tagging) and not isinstance(run.task, Regression):
        return
    if known := _score_of_other_run(run, evaluation):
        write_evaluation(run.folder, {**evaluation, "simple": known})
        return
    try:
        data = run.data()
    except CutawayError:  # `cutaway evaluate RUN` reports it
        return
    load_sklearn()  # imported once, and not counted as fitting time
    end = time.perf_counter() + seconds
    split = data.splits.get(evaluation["split"])
    found = _score_within(run.task, data, split, headline(evaluation), end) if split is not None else None
    if found:
        write_evaluation(run.folder, {**evaluation, "simple": found})


def _score_within(task: Task, data: DataSet, split: Split, key: str, end: float) -> dict[str, Any] | None:
    """Return the scores of the baselines by the metric `key`, best first, and the names of those without time.

    Return None if none was fitted. The constant baseline is left out, because the run reports it already.
    """
    if isinstance(task, Language | Tagging):
        baselines = _timed_ngrams(data, split, end) if isinstance(task, Language) else _timed_tags(data, split, end)
        if not baselines:
            return None
        (only,) = baselines
        target = split.target if isinstance(task, Language) else padded_targets(split)
        assert target is not None
        own = task.metrics(only.fit(data).outputs(split), target)[key].to_json()
        return {"metric": key, "models": [{"name": only.name, "explanation": only.explanation, **own}], "left_out": []}
    baselines = baselines_for(data, task)[1:]
    scored: list[tuple[Baseline, Metric]] = []
    left_out = []
    for baseline in reversed(baselines):  # boosting is the slowest
        metric = _score_by(baseline, task, data, split, key, end)
        if metric is None:
            left_out.append(baseline.name)
        else:
            scored.append((baseline, metric))
    sign = -1 if key in HIGHER_IS_BETTER else 1
    scored.sort(key=lambda one: sign * one[1].value)
    models = [{"name": b.name, "explanation": b.explanation, **m.to_json()} for b, m in scored]
    return {"metric": key, "models": models, "left_out": left_out} if models else None


def _timed_ngrams(data: DataSet, split: Split, end: float) -> list[Baseline]:
    """Return the n-gram baseline, for as many training windows as there is time for; empty without time or windows."""
    target, spec, total = data.spec.target, data.spec, len(data.splits["train"])
    if type(target) is not NextToken or not isinstance(spec, TextSpec):
        return []
    tokens = int((end - time.perf_counter()) * TOKENS_PER_SECOND) - len(split) * spec.longest
    return [ngram_baseline(target, total, spec.longest, min(MAX_FIT_TOKENS, tokens))] if tokens >= spec.longest else []


def _timed_tags(data: DataSet, split: Split, end: float) -> list[Baseline]:
    """Return the baseline of a tagger, or nothing if counting the sentences is expected to take longer than `end`."""
    target, seconds = data.spec.target, end - time.perf_counter()
    enough = len(data.splits["train"]) + 2 * len(split) <= seconds * SENTENCES_PER_SECOND
    return [tag_baseline(target)] if isinstance(target, Tags) and enough else []


def _score_of_other_run(run: Run, evaluation: dict[str, Any]) -> dict[str, Any] | None:
    """Return the complete scores of another run in the same folder on the same data, if there is one.

    Its data, preprocessing, split and metric must be equal, so that its baselines would have the same scores.
    """
    about, preprocessing = run.about, run.folder / "model" / "preprocessing.json"
    if not preprocessing.is_file():
        return None
    same, inputs = [about["data"][key] for key in ("fingerprint", "split_hash", "kind")], preprocessing.read_bytes()
    others = [path for path in run.folder.parent.glob("*/evaluation.json") if path.parent != run.folder]
    for path in sorted(others, key=lambda path: path.stat().st_mtime, reverse=True)[:MAX_OTHER_RUNS]:
        try:
            own = path.parent / "model" / "preprocessing.json"
            if not own.is_file() or own.read_bytes() != inputs:
                continue
            data, other = read_run(path.parent)["data"], read_evaluation(path.parent)
        except (CutawayError, OSError):
            continue
        simple = (other or {}).get("simple") or {}
        alike = [data[key] for key in ("fingerprint", "split_hash", "kind")] == same
        equal = other is not None and (other["split"], other["count"]) == (evaluation["split"], evaluation["count"])
        if alike and equal and simple.get("metric") == headline(evaluation) and not simple["left_out"]:
            return dict(simple)
    return None


def _score_by(baseline: Baseline, task: Task, data: DataSet, split: Split, key: str, end: float) -> Metric | None:
    """Return the score of a baseline, or None if it would not finish by `end`.

    It is fitted on more and more examples, as long as the next fit, extrapolated from the last two, fits into the
    remaining time.
    """
    total = len(data.splits["train"])
    timed: list[tuple[int, float]] = []  # (examples, seconds)
    for count in _fit_sizes(data, total):
        if time.perf_counter() + _expected_seconds(timed, count) > end:
            return None
        began = time.perf_counter()
        part, asked = (
            (data, split) if count == total else (_subset(data, count), _sample(split, count * len(split) // total))
        )
        same = next((one for one in baselines_for(part, task) if one.name == baseline.name), None)
        if same is None or asked.target is None:
            return None
        try:
            outputs = same.fit(part, 0).outputs(asked)
        except (CutawayError, ValueError):  # too few examples
            if count == total:
                return None
        else:
            if count == total:
                return task.metrics(outputs, asked.target)[key]
        timed.append((count, time.perf_counter() - began))
    return None


def _expected_seconds(timed: Sequence[tuple[int, float]], count: int) -> float:
    """Return the expected seconds of a fit on `count` examples.

    It is a little more than the line through the last two fits.
    """
    if not timed:
        return MIN_SECONDS
    (most, last), (fewer, before) = timed[-1], timed[-2] if len(timed) > 1 else (0, 0.0)
    return MARGIN * (last + max(0.0, (last - before) / (most - fewer)) * (count - most))


def _fit_sizes(data: DataSet, total: int) -> Sequence[int]:
    """Return the numbers of training examples to fit on, in order. The last is all of them."""
    train = data.splits["train"]
    if hasattr(train, "plan") and not isinstance(
        train, SequenceSplit
    ):  # examples that belong together cannot be subsampled
        return [total] if total <= MAX_UNSAMPLED_ROWS else []
    sizes = [FIRST]
    while sizes[-1] * GROWTH < total:
        sizes.append(sizes[-1] * GROWTH)
    return [*(size for size in sizes if 2 * size <= total), total]


def _subset(data: DataSet, count: int) -> DataSet:
    return replace(data, splits={**data.splits, "train": _sample(data.splits["train"], count)})


def _sample(split: Split, count: int) -> Split:
    """Return `count` random examples of a split, at least one, in their original order."""
    order = torch.randperm(len(split), generator=torch.Generator().manual_seed(0))
    return subset(split, order[: max(1, count)].sort().values)
