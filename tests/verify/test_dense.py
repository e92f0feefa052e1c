"""The dense networks beside scikit-learn and hand-built sequences, in more than the presets' configs."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_iris
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.linear_model import Perceptron as ScikitPerceptron
from torch import nn

from cutaway.models import linear, mlp, perceptron
from cutaway.nn.activations import ACTIVATIONS
from cutaway.verify import oracle_for
from cutaway.verify.compare import compare
from cutaway.verify.feedforward import FORMULAS


def held(name: str, model: nn.Module) -> bool:
    """Whether outputs and gradients are the oracle's, to 1e-9 in float64."""
    return compare(model, oracle_for(name, model.config), torch.Generator().manual_seed(1)).equal


@pytest.mark.parametrize("name", sorted(ACTIVATIONS))
def test_the_mlp_with_each_activation(name: str) -> None:
    assert set(FORMULAS) == set(ACTIVATIONS)
    assert held("mlp", mlp.Model(mlp.Config(5, 3, (8, 6), activation=name, dropout=0.0)))


def test_the_mlp_with_an_activation_for_each_layer() -> None:
    model = mlp.Model(mlp.Config(5, 3, (8, 6, 4), activation="tanh,leaky_relu:0.2,silu", dropout=0.0))
    assert held("mlp", model)
    assert [dense.activation for dense in model.dense_layers()[:3]] == ["tanh", "leaky_relu:0.2", "silu"]


@pytest.mark.parametrize("norm", mlp.NORMS)
@pytest.mark.parametrize("bias", [True, False])
def test_the_mlp_with_each_norm(norm: str, bias: bool) -> None:
    assert held("mlp", mlp.Model(mlp.Config(5, 3, (8, 6), activation="gelu", norm=norm, dropout=0.3, bias=bias)))


@pytest.mark.parametrize("hidden", [(), (4,), (9, 8, 7, 6)])
def test_the_mlp_at_each_depth(hidden: tuple[int, ...]) -> None:
    assert held("mlp", mlp.Model(mlp.Config(5, 3, hidden)))


@pytest.mark.parametrize("classes", [2, 3])
def test_the_perceptron_with_one_neuron_and_with_several(classes: int) -> None:
    assert held("perceptron", perceptron.Model(perceptron.Config(5, classes)))


def test_another_activation_is_noticed() -> None:
    config = mlp.Config(5, 3, (8,), activation="gelu", dropout=0.0)
    other = oracle_for("mlp", dataclasses.replace(config, activation="gelu_tanh"))
    assert not compare(mlp.Model(config), other, torch.Generator().manual_seed(1)).equal


def test_scikit_learns_own_solutions_give_its_own_answers() -> None:
    """Coefficients that scikit-learn found, put into our models: the same values as its own methods give."""
    cases = [
        ("linear", LinearRegression(), load_diabetes, "predict"),
        ("logistic", LogisticRegression(max_iter=500), load_breast_cancer, "decision_function"),
        ("softmax", LogisticRegression(max_iter=500), load_digits, "decision_function"),
        ("perceptron", ScikitPerceptron(), load_iris, "decision_function"),
    ]
    for name, estimator, load, method in cases:
        x, y = load(return_X_y=True)
        x = x[:, x.std(0) > 0]
        x = (x - x.mean(0)) / x.std(0)
        estimator.fit(x, y)
        model: nn.Module
        if name == "perceptron":
            model = perceptron.Model(perceptron.Config(x.shape[1], 3)).double()
        else:
            config = dataclasses.replace(linear.PRESETS[name], in_features=x.shape[1])
            model = linear.Model(config).double()
        with torch.no_grad():
            model.head.weight.copy_(torch.tensor(estimator.coef_).reshape(model.head.weight.shape))
            model.head.bias.copy_(torch.tensor(estimator.intercept_).reshape(model.head.bias.shape))
            found = model(torch.tensor(x))
        expected = torch.tensor(getattr(estimator, method)(x)).reshape(found.shape)
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)
