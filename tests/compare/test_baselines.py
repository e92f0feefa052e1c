"""The simple models: scikit-learn called directly on the same arrays, in the form of a network's outputs."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn import ensemble, linear_model, neighbors
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.semi_supervised import LabelSpreading

from cutaway.data.dataset_base import DataSet, Split, TensorSplit
from cutaway.data.graphs.splits import NodeSplit
from cutaway.data.open_data import open_data
from cutaway.data.settings import DataSettings
from cutaway.experiments.compare.baselines import (
    ALPHA,
    MAX_FIT_ROWS,
    Baseline,
    baselines_for,
    max_rows,
    propagate_labels,
    sample_training_rows,
)
from cutaway.tasks.task import Task, task_for


def opened(source: Any, loss: str | None = None, **settings: Any) -> tuple[DataSet, Task, dict[str, Baseline]]:
    """The data, its task, and its simple models by name."""
    data = open_data(source, DataSettings(**settings))
    task = task_for(data.spec, loss)
    return data, task, {b.name: b for b in baselines_for(data, task)}


def score(data: DataSet, task: Task, baseline: Baseline, metric: str = "accuracy", seed: int = 0) -> float:
    """Its metric on the test split, by the task's own metrics."""
    test = data.splits["test"]
    assert test.target is not None
    return task.metrics(baseline.fit(data, seed).outputs(test), test.target)[metric].value


def arrays(split: Split) -> tuple[np.ndarray, np.ndarray]:
    """The inputs and targets of a split in memory."""
    assert isinstance(split, TensorSplit)
    assert split.target is not None
    return split.inputs.flatten(1).numpy(), split.target.numpy()


# --- tables ---------------------------------------------------------------------------------------------------------


def test_classes_of_a_table_are_scikit_learns() -> None:
    data, _, found = opened("wine")
    x, y = arrays(data.splits["train"])
    inputs, _ = arrays(data.splits["test"])
    logistic = linear_model.LogisticRegression(C=10 / x.shape[1], max_iter=200)
    peers = {
        "gradient boosting": ensemble.HistGradientBoostingClassifier(max_iter=100, random_state=3),
        "random forest": ensemble.RandomForestClassifier(100, random_state=3),
        "linear model": make_pipeline(StandardScaler(), logistic),
        "nearest neighbors": make_pipeline(StandardScaler(), neighbors.KNeighborsClassifier(5)),
    }
    assert list(found) == ["the most frequent class", *peers]
    for name, peer in peers.items():
        outputs = found[name].fit(data, seed=3).outputs(data.splits["test"])
        p = outputs.double().exp().numpy()
        expected = peer.fit(x, y).predict_proba(inputs)
        assert p.sum(1) == pytest.approx(1.0, abs=1e-6)
        assert (p.argmax(1) == expected.argmax(1)).all(), name
        votes = {"random forest": 100, "nearest neighbors": 5}.get(name)
        if votes:  # a class without a vote is not impossible
            expected = (votes * expected + 1 / 3) / (votes + 1)
        assert p == pytest.approx(expected, abs=1e-5), name


def test_numbers_of_a_table_are_scikit_learns() -> None:
    data, task, found = opened("diabetes")
    x, y = arrays(data.splits["train"])
    inputs, actual = arrays(data.splits["test"])
    peers = {
        "gradient boosting": ensemble.HistGradientBoostingRegressor(random_state=0),
        "random forest": ensemble.RandomForestRegressor(100, random_state=0),
        "linear model": make_pipeline(StandardScaler(), linear_model.Ridge()),
        "nearest neighbors": make_pipeline(StandardScaler(), neighbors.KNeighborsRegressor(5)),
    }
    assert list(found) == ["the mean", *peers]
    assert score(data, task, found["the mean"], "r2") == pytest.approx(0, abs=0.05)
    for name, peer in peers.items():
        outputs = found[name].fit(data).outputs(data.splits["test"])
        assert outputs.shape == (len(actual), 1)
        assert outputs[:, 0].numpy() == pytest.approx(peer.fit(x, y).predict(inputs), abs=1e-5)
        assert score(data, task, found[name], "rmse") < score(data, task, found["the mean"], "rmse")


def test_scores_are_those_that_such_models_have() -> None:
    data, task, found = opened("wine")
    assert score(data, task, found["the most frequent class"]) == task.baseline(*targets(data))["value"]
    assert score(data, task, found["random forest"]) > 0.95
    data, task, found = opened("digits")
    assert list(found) == ["the most frequent class", "linear model"]
    assert 0.94 < score(data, task, found["linear model"]) < 0.995


def targets(data: DataSet) -> tuple[torch.Tensor, torch.Tensor]:
    """Those of the training and the test split."""
    train, test = data.splits["train"].target, data.splits["test"].target
    assert train is not None
    assert test is not None
    return train, test


@pytest.mark.parametrize("name", ["wine"])
def test_only_the_training_split_is_learned_from(name: str) -> None:
    data, _, found = opened(name)
    test = data.splits["test"]
    first = {key: b.fit(data).outputs(test) for key, b in found.items()}
    for split in ("val", "test"):
        other = data.splits[split]
        assert isinstance(other, TensorSplit)
        assert other.target is not None
        data.splits[split] = TensorSplit(torch.randn_like(other.inputs), other.target.flip(0))
    for key, baseline in found.items():
        assert torch.equal(baseline.fit(data).outputs(test), first[key]), key


def test_seeds_matter_where_it_is_said() -> None:
    data, _, found = opened("wine")
    test = data.splits["test"]
    assert {name for name, b in found.items() if b.chance} == {"random forest"}
    for baseline in found.values():
        one, again, other = (baseline.fit(data, seed).outputs(test) for seed in (0, 0, 1))
        assert torch.equal(one, again)
        assert torch.equal(one, other) != baseline.chance


def test_a_class_that_is_not_in_training_is_not_impossible() -> None:
    data, task, found = opened("wine")
    train = data.splits["train"]
    assert isinstance(train, TensorSplit)
    assert train.target is not None
    for known in ((0, 2), (1,)):
        rows = torch.isin(train.target, torch.tensor(known))
        data.splits["train"] = TensorSplit(train.inputs[rows], train.target[rows])
        for baseline in found.values():
            outputs = baseline.fit(data).outputs(data.splits["test"])
            assert outputs.shape[1] == 3
            assert outputs.isfinite().all()
            assert set(outputs.argmax(1).tolist()) <= set(known)
            assert np.isfinite(task.metrics(outputs, targets(data)[1])["loss"].value)


def test_squared_error_of_classes_is_given_probabilities() -> None:
    data, task, found = opened("wine", loss="mse")
    for baseline in found.values():
        outputs = baseline.fit(data).outputs(data.splits["test"])
        assert outputs.sum(1).numpy() == pytest.approx(1.0, abs=1e-5)
        assert 0 <= task.metrics(outputs, targets(data)[1])["loss"].value < 1


def test_a_few_rows_are_enough() -> None:
    data, task, found = opened("xor")
    assert score(data, task, found["nearest neighbors"]) <= 0.75  # of four rows
    assert score(data, task, found["linear model"]) <= 0.75


def test_of_many_rows_a_seeded_choice_is_learned_from() -> None:
    assert max_rows(10) == MAX_FIT_ROWS
    assert max_rows(10_000) * 10_000 == 20_000_000
    some = sample_training_rows(50_000, MAX_FIT_ROWS, 0)
    assert some is not None
    assert len(some) == len(set(some.tolist())) == MAX_FIT_ROWS
    assert (np.diff(some) > 0).all()
    assert some.tolist() != sample_training_rows(50_000, MAX_FIT_ROWS, 1).tolist()  # type: ignore[union-attr]
    assert sample_training_rows(MAX_FIT_ROWS, MAX_FIT_ROWS, 0) is None


def test_a_large_table_says_how_many_rows_were_learned_from(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((30_000, 2))
    lines = [f"{a:.4f},{b:.4f},{'yes' if a > b else 'no'}" for a, b in x]
    (tmp_path / "many.csv").write_text("a,b,larger\n" + "\n".join(lines))
    data, task, found = opened(tmp_path / "many.csv", target="larger")
    assert "20,000 of the 21,000 training examples" in found["linear model"].explanation
    assert found["linear model"].chance
    assert score(data, task, found["linear model"]) > 0.98


# --- other kinds ----------------------------------------------------------------------------------------------------


def test_texts_are_tf_idf_of_their_tokens(tmp_path: Path) -> None:
    words = {"good": "fine great happy", "bad": "poor sad awful"}
    rng = np.random.default_rng(0)
    rows = []
    for k in range(120):
        label = ("good", "bad")[k % 2]
        rows.append(f"{' '.join(rng.choice([*words[label].split(), *['the', 'a', 'film', 'was']], 7))},{label}")
    (tmp_path / "films.csv").write_text("text,label\n" + "\n".join(rows))
    data, task, found = opened(tmp_path / "films.csv", text="text", target="label", tokenizer="words")
    assert list(found) == ["the most frequent class", "TF-IDF"]
    outputs = found["TF-IDF"].fit(data).outputs(data.splits["test"])

    def texts(split: Split) -> list[str]:
        return [str(split.row(i)["text"]) for i in range(len(split))]  # type: ignore[index]

    peer = make_pipeline(
        TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, token_pattern=r"\S+"),
        linear_model.LogisticRegression(C=10.0, max_iter=200),
    )
    train, _ = targets(data)
    expected = peer.fit(texts(data.splits["train"]), train.numpy()).predict_proba(texts(data.splits["test"]))
    assert outputs.double().exp().numpy() == pytest.approx(expected, abs=1e-4)
    assert score(data, task, found["TF-IDF"]) > 0.9


def test_labels_spread_as_scikit_learns() -> None:
    rng = np.random.default_rng(1)
    nodes = 40
    edges = rng.integers(0, nodes, (2, 90))
    edges = np.concatenate([edges, edges[:, :5], np.array([[3], [3]])], axis=1)  # some twice, and a loop
    adjacency = np.zeros((nodes, nodes))
    adjacency[edges[0], edges[1]] = adjacency[edges[1], edges[0]] = 1
    np.fill_diagonal(adjacency, 0)
    labels = np.full(nodes, -1)
    labels[:6] = [0, 1, 2, 0, 1, 2]
    peer = LabelSpreading(kernel=lambda a, b: adjacency, alpha=ALPHA, max_iter=500, tol=1e-9)
    peer.fit(np.arange(nodes)[:, None], labels)
    known = np.zeros((nodes, 3))
    known[np.arange(6), labels[:6]] = 1
    ours = propagate_labels(edges, known)
    reached = ours.sum(1) > 0
    assert reached.sum() > 30
    assert (ours / ours.sum(1, keepdims=True))[reached] == pytest.approx(peer.label_distributions_[reached], abs=1e-4)


def test_nodes_have_labels_that_spread_and_features(shared_data: Path) -> None:
    data, task, found = opened("cora")
    assert list(found) == ["the most frequent class", "label propagation", "linear model"]
    assert 0.66 < score(data, task, found["label propagation"]) < 0.74  # Zhu et al. have 0.68
    assert 0.55 < score(data, task, found["linear model"]) < 0.63
    test = data.splits["test"]
    assert isinstance(test, NodeSplit)
    before = found["label propagation"].fit(data).outputs(test)
    test.target = test.target.flip(0)  # type: ignore[union-attr]
    assert torch.equal(found["label propagation"].fit(data).outputs(test), before)


def test_nodes_that_are_told_apart_by_number_have_no_features(shared_data: Path) -> None:
    _, _, found = opened("karate")
    assert list(found) == ["the most frequent class", "label propagation"]


def test_graphs_are_bags_of_their_nodes(shared_data: Path) -> None:
    pytest.importorskip("rdkit", reason="molecules need RDKit")
    data, task, found = opened("esol")
    assert list(found) == ["the mean", "gradient boosting", "random forest", "linear model"]
    assert score(data, task, found["random forest"], "rmse") < 0.9 < score(data, task, found["the mean"], "rmse")


def test_forecasts_are_those_that_the_task_knows(shared_data: Path) -> None:
    from cutaway.tasks.forecasting import simple_forecasts

    data, task, found = opened("airline")
    train, test = data.splits["train"], data.splits["test"]
    theirs = simple_forecasts(train, test, data.spec.target.season_length)  # type: ignore[arg-type, union-attr]
    assert list(found) == ["last value", "seasonal naive", "exponential smoothing", "linear model"]
    for ours, their in zip(found.values(), theirs):
        assert torch.equal(ours.fit(data).outputs(test), their.outputs)
    assert score(data, task, found["linear model"], "rmse") < score(data, task, found["seasonal naive"], "rmse")


def test_signals_are_their_steps(shared_data: Path) -> None:
    data, task, found = opened("mnist1d", max_samples=600)
    assert list(found) == [
        "the most frequent class", "gradient boosting", "random forest", "linear model", "nearest neighbors",
        "1-nearest neighbor",
    ]  # fmt: skip
    x, y = arrays(data.splits["train"])
    inputs, actual = arrays(data.splits["test"])
    nearest = ((inputs[:, None] - x) ** 2).sum(2).argmin(1)
    assert score(data, task, found["1-nearest neighbor"]) == pytest.approx((y[nearest] == actual).mean())
    assert score(data, task, found["random forest"]) > 0.3 > 2 * score(data, task, found["the most frequent class"])


def test_what_has_none_gets_none(shared_data: Path) -> None:
    for name, settings in (("digit_boxes_small", {}), ("digit_scenes_small", {}), ("digits", {"tasks": "classes:2"})):
        assert opened(name, **settings)[2] == {}, name


def test_n_grams_are_counted_as_a_dictionary_counts_them(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(
        "she sells sea shells by the sea shore, the shells she sells are sea shells. " * 8
    )
    data, task, found = opened(tmp_path / "text.txt", tokenizer="characters", length=20)
    assert list(found) == ["n-grams"]
    known: dict[tuple[int, ...], Counter[int]] = defaultdict(Counter)
    for context, token in in_context(data.splits["train"]):
        for back in range(6):
            known[context[6 - back :]][token] += 1
    losses = []
    for context, token in in_context(data.splits["test"]):
        p = 1 / data.spec.vocab_size  # type: ignore[union-attr]
        for back in range(6):
            if follow := known.get(context[6 - back :]):
                p = (follow[token] + len(follow) * p) / (follow.total() + len(follow))
        losses.append(-np.log(p))
    outputs = found["n-grams"].fit(data).outputs(data.splits["test"])
    assert outputs[..., 0][~outputs[..., 0].isnan()].tolist() == pytest.approx(losses, abs=1e-5)
    metrics = task.metrics(outputs, torch.empty(0))
    assert metrics["loss"].value == pytest.approx(np.mean(losses), abs=1e-5)
    assert metrics["accuracy"].value > 0.7  # the text repeats itself


def in_context(split: Split) -> Iterator[tuple[tuple[int, ...], int]]:
    """Each token after the six before it in its window, those before the window −1, the window one after another."""
    for (inputs, _), target in split.batches([torch.tensor([i]) for i in range(len(split))]):
        before = [-1] * 6
        for token, following in zip(inputs[0].tolist(), target[0].tolist()):
            before = [*before[1:], token]
            if following >= 0:
                yield tuple(before), following
