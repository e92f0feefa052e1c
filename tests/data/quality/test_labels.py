"""Wrong labels: our confident learning is that of the paper's authors, and what it can tell is told."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from sklearn.ensemble import ExtraTreesClassifier

from cutaway.data.quality.validation import confident_classes, cross_validated_probabilities, has_label_errors


def labelled(n: int, classes: int, seed: int, noise: float = 0.15) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Probabilities (n, K) of a model that is right mostly, labels (n,) and which of them are wrong (n,)."""
    rng = np.random.default_rng(seed)
    true = np.concatenate([np.arange(classes), rng.integers(0, classes, n - classes)])
    logits = rng.normal(0, 1, (n, classes))
    logits[np.arange(n), true] += 3
    p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    wrong = rng.random(n) < noise
    wrong[:classes] = False  # every class has a label
    return p, np.where(wrong, (true + rng.integers(1, classes, n)) % classes, true), wrong


@given(n=st.integers(30, 300), classes=st.integers(2, 6), seed=st.integers(0, 1000))
@settings(max_examples=60, deadline=None)
def test_the_same_examples_count_as_other_classes_as_with_cleanlab(n: int, classes: int, seed: int) -> None:
    cleanlab = pytest.importorskip("cleanlab.count")
    p, y, _ = labelled(n, classes, seed)
    own = p[np.arange(n), y]
    below = np.array([own[y == k].mean() for k in range(classes)]) - p
    assume(not ((below > 0) & (below <= 1e-6)).any())  # cleanlab lowers each threshold by 1e-6
    joint, wrong = cleanlab.compute_confident_joint(y, p, calibrate=False, return_indices_of_off_diagonals=True)
    counted = confident_classes(p, y)
    ours = np.zeros((classes, classes), int)
    np.add.at(ours, (y, counted), 1)
    assert np.flatnonzero(counted != y).tolist() == sorted(wrong)
    off = ~np.eye(classes, dtype=bool)
    assert (ours[off] == joint[off]).all()  # on the diagonal they count none of those that are sure of no class


def test_counting_is_as_the_paper_does_by_hand() -> None:
    p = np.array([[0.9, 0.1], [0.8, 0.2], [0.1, 0.9], [0.3, 0.7], [0.95, 0.05]])
    y = np.array([0, 0, 1, 1, 1])  # thresholds 0.85 and (0.9 + 0.7 + 0.05) / 3 = 0.55
    assert confident_classes(p, y).tolist() == [0, 0, 1, 1, 0]


def test_labels_that_are_wrong_by_chance_are_told_from_examples_that_are_hard() -> None:
    p, y, wrong = labelled(1000, 3, 0, noise=0.1)
    assert has_label_errors(p, y)
    drawn = np.random.default_rng(1)
    hard = np.array([drawn.choice(3, p=own) for own in p])  # as often of another class as the model says
    assert (p.argmax(1) != hard).mean() > 0.1
    assert not has_label_errors(p, hard)
    assert not has_label_errors(p, np.where(wrong, p.argmax(1), y))


@pytest.mark.parametrize("strength", [0.0, 0.5])
@pytest.mark.parametrize("seed", range(3))
def test_a_rare_class_that_cannot_be_predicted_is_no_label_error(strength: float, seed: int) -> None:
    """Targets that are 1 for a tenth of the examples, independent of the inputs or nearly so."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(1000, 5))
    y = (rng.random(1000) < 1 / (1 + np.exp(2.2 - strength * x[:, 0]))).astype(int)
    model = ExtraTreesClassifier(60, min_samples_leaf=2, random_state=0)
    p = cross_validated_probabilities(model, x, y, np.ones(1000, bool))
    assert (p.argmax(1) != y).mean() < 0.2  # it predicts the frequent class
    assert not has_label_errors(p, y)


@pytest.mark.parametrize("seed", range(3))
def test_label_errors_are_found_beside_a_rare_class(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(1000, 5))
    true = (x[:, 0] > 1.0).astype(int)  # one of six
    y = np.where(rng.random(1000) < 0.08, 1 - true, true)
    model = ExtraTreesClassifier(60, min_samples_leaf=2, random_state=0)
    assert has_label_errors(cross_validated_probabilities(model, x, y, np.ones(1000, bool)), y)
