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


@parametrize_with_checks([Classifier("softmax", **QUICK), Regressor("linear", **QUICK)])
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
