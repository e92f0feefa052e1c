"""Estimators keep the contract of scikit-learn, and learn what they are asked to."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.datasets import load_diabetes, load_digits, load_wine
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import cutaway
from cutaway.core.errors import CutawayError, UnknownName
from cutaway.estimators import Classifier, Regressor

QUICK: dict[str, Any] = {"epochs": 4, "lr": 0.1, "batch_size": 16, "threads": 1, "schedule": "constant"}
X, y = load_wine(return_X_y=True)


# All rows in one batch, in double precision: weights then have exactly the effect of repeated rows.
EXACT: dict[str, Any] = {**QUICK, "batch_size": 0, "precision": "float64"}


@parametrize_with_checks([Classifier("softmax", **EXACT), Regressor("linear", **{**EXACT, "epochs": 60})])
def test_the_contract_of_scikit_learn_is_kept(estimator: Any, check: Any) -> None:
    check(estimator)


def test_a_classifier_learns_in_pipelines_searches_and_folds() -> None:
    network = Classifier("mlp", model__hidden_dims=(16,), **{**QUICK, "lr": 2e-2})
    pipeline = make_pipeline(StandardScaler(), network).set_output(transform="polars")
    assert cross_val_score(pipeline, X, y, cv=3).mean() > 0.9
    search = GridSearchCV(pipeline, {"classifier__model__hidden_dims": [(2,), (16,)], "classifier__epochs": [2]}, cv=2)
    best = search.fit(X, y).best_estimator_[-1]
    assert best.epochs == 2
    assert best.network_.config.hidden_dims == best.model__hidden_dims
    assert list(best.feature_names_in_) == [f"x{k}" for k in range(13)]


def test_parameters_are_the_settings_and_others_are_refused_by_name() -> None:
    network = Classifier("mlp", epochs=3, random_state=5, model__hidden_dims=(4,))
    assert repr(network) == "Classifier(epochs=3, model__hidden_dims=(4,), random_state=5)"
    assert clone(network).get_params() == network.get_params()
    assert network.get_params()["lr"] is None
    assert network.set_params(lr=1e-2, model__activation="tanh").get_params()["model__activation"] == "tanh"
    with pytest.raises(UnknownName, match=r"no parameter of Classifier named 'epoch'.*epochs"):
        Classifier("mlp", epoch=3)
    with pytest.raises(UnknownName, match="no parameter of Regressor named 'learning_rate'"):
        Regressor().set_params(learning_rate=1)
    with pytest.raises(CutawayError, match="hidden_dim"):
        Classifier("mlp", model__hidden_dimz=(4,)).fit(X, y)
    with pytest.raises(ValueError, match="lr=-1"):
        Classifier("mlp", lr=-1).fit(X, y)


def test_the_seed_is_the_random_state() -> None:
    first, again, other = (Classifier("mlp", random_state=s, **QUICK).fit(X, y).predict_proba(X) for s in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    drawn = np.random.RandomState(0)
    one, two = (Classifier("mlp", random_state=drawn, **QUICK).fit(X, y).predict_proba(X) for _ in range(2))
    assert not np.array_equal(one, two)


def test_an_estimator_can_be_pickled_and_says_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    names = np.array(["Barolo", "Grignolino", "Barbera"])[y]
    network = Classifier("mlp", **QUICK).fit(X, names)
    copy = pickle.loads(pickle.dumps(network))
    assert np.array_equal(copy.predict_proba(X), network.predict_proba(X))
    assert set(copy.predict(X)) <= set(names)
    assert capfd.readouterr() == ("", "")
    kept = Classifier("mlp", out=tmp_path / "run", **QUICK).fit(X, names).fit(X, names)
    assert np.array_equal(kept.predict(X), network.predict(X))
    assert (kept.folder_ / "report.html").is_file()
    run = cutaway.load(kept.folder_)
    assert run.spec.target.classes == ("Barbera", "Barolo", "Grignolino")
    assert [row["target"] for row in run.predict(X)] == network.predict(X).tolist()


def test_names_that_a_table_would_not_tell_apart_are_told_apart() -> None:
    names = np.array(["a", "a ", "none"], object)[y]
    network = Classifier("softmax", **QUICK).fit(X, names)
    assert network.score(X, names) > 0.9


def test_data_frames_have_categories_and_missing_cells() -> None:
    kind = np.array(["red", "white", None], object)[y]
    frame = pl.DataFrame({"alcohol": X[:, 0], "kind": pl.Series(kind, dtype=pl.String), "target": X[:, 1]})
    network = Classifier("mlp", **QUICK).fit(frame, y)
    assert network.score(frame, y) > 0.95  # of the column kind
    with pytest.raises(ValueError, match="feature names"):
        network.predict(frame.drop("kind"))
    gaps = X.copy()
    gaps[::3, 4] = np.nan
    assert Classifier("mlp", **QUICK).fit(gaps, y).score(gaps, y) > 0.9


def test_images_and_texts_have_estimators_too() -> None:
    digits = load_digits()
    network = Classifier("lenet5-modern", **{**QUICK, "lr": 3e-3}).fit(digits.images[:600], digits.target[:600])
    assert network.score(digits.images[600:900], digits.target[600:900]) > 0.7
    texts = [f"{word} thing" for word in ("good", "bad") * 20]
    said = Classifier("textcnn", **{**QUICK, "lr": 1e-2}).fit(texts, ["p", "n"] * 20)
    assert said.predict(["bad thing", "good thing"]).tolist() == ["n", "p"]


def test_a_regressor_answers_in_the_units_of_the_target() -> None:
    rows, target = load_diabetes(return_X_y=True)
    model = Regressor("mlp", **{**QUICK, "epochs": 10, "lr": 3e-3}).fit(rows[:300], target[:300])
    assert model.score(rows[300:], target[300:]) > 0.2
    few = np.arange(40) % 5  # as few values as classes have
    assert Regressor("linear", **QUICK).fit(X[:40], few).predict(X[:40]).dtype == np.float64


def test_scores_that_are_no_probabilities_are_not_given_as_some() -> None:
    network = Classifier("mlp", loss="mse", **{**QUICK, "lr": 1e-2}).fit(X, y)
    assert not hasattr(network, "predict_proba")
    assert network.score(X, y) > 0.9


# --- sample weights -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", ["cross_entropy", "mse"])
def test_weights_of_a_classifier_are_repeated_rows(loss: str) -> None:
    rng = np.random.default_rng(0)
    weights = rng.integers(0, 4, len(X))
    gaps = np.where(rng.random(X.shape) < 0.1, np.nan, X)
    settings: dict[str, Any] = {**EXACT, "loss": loss, "optimizer": "adam", "lr": 1e-2, "epochs": 6}
    repeated = np.repeat(np.arange(len(X)), weights)
    model = Classifier("mlp", model__hidden_dims=(8,), model__dropout=0.0, **settings)
    one = clone(model).fit(gaps, y, sample_weight=weights)
    two = clone(model).fit(gaps[repeated], y[repeated])
    plain = clone(model).fit(gaps, y)
    ours, theirs, without = (m._outputs(gaps).double().numpy() for m in (one, two, plain))
    assert np.allclose(ours, theirs, rtol=1e-4, atol=1e-5)
    assert not np.allclose(ours, without, rtol=1e-2, atol=1e-2)


def test_equal_weights_change_nothing_with_class_weights_either() -> None:
    rows, classes = X[:140], y[:140]  # few of the last class
    model = Classifier("softmax", class_weights="balanced", **EXACT)
    one = clone(model).fit(rows, classes, sample_weight=np.full(140, 3.0))
    two = clone(model).fit(rows, classes)
    assert np.allclose(one.predict_proba(X), two.predict_proba(X), rtol=1e-6)


@pytest.mark.parametrize("scale", ["standard", "none"])
def test_weights_of_a_regressor_are_repeated_rows_in_batches_of_one_step(scale: str) -> None:
    rows, target = load_diabetes(return_X_y=True)
    weights = np.random.default_rng(1).integers(0, 4, len(rows))
    repeated = np.repeat(np.arange(len(rows)), weights)
    model = Regressor("linear", scale=scale, **{**EXACT, "optimizer": "sgd", "epochs": 8})
    one = clone(model).fit(rows, target, sample_weight=weights).predict(rows)
    two = clone(model).fit(rows[repeated], target[repeated]).predict(rows)
    assert np.allclose(one, two, rtol=1e-5)
    assert not np.allclose(one, clone(model).fit(rows, target).predict(rows), rtol=1e-3)
    half = clone(model).fit(rows, target, sample_weight=weights / 2).predict(rows)
    assert np.allclose(half, one, rtol=1e-5)  # only their ratios count


def test_weights_follow_their_rows_into_batches_and_splits() -> None:
    """Rows of a second kind, with the opposite classes, count for nothing where their weights are nearly 0."""
    rng = np.random.default_rng(2)
    rows = rng.normal(size=(400, 3))
    right = (rows[:, 0] > 0).astype(int)
    flipped = rng.random(400) < 0.6
    classes = np.where(flipped, 1 - right, right)
    model = Classifier("softmax", val=0.2, **{**QUICK, "epochs": 10, "accumulate": 2})
    weighted = clone(model).fit(rows, classes, sample_weight=np.where(flipped, 1e-6, 1.0))
    assert weighted.score(rows, right) > 0.9
    assert clone(model).fit(rows, classes).score(rows, right) < 0.5


def test_weights_are_refused_where_they_mean_nothing() -> None:
    with pytest.raises(ValueError, match=r"[Nn]egative"):
        Classifier("softmax", **QUICK).fit(X, y, sample_weight=-np.ones(len(X)))
    images, numbers = load_digits().images[:60], load_digits().target[:60]
    model = Classifier("lenet5-modern", objective="simclr", **QUICK)
    with pytest.raises(CutawayError, match="Invalid sample_weight: only for supervised learning"):
        model.fit(images, numbers, sample_weight=np.arange(60))


def test_one_class_is_named_without_the_type_of_numpy() -> None:
    with pytest.raises(CutawayError, match=r"^y holds one class, 'a': at least two are needed\.$"):
        Classifier("mlp").fit(np.ones((6, 2)), np.array(["a"] * 6))
