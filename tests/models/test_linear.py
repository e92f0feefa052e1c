"""Linear, logistic and softmax regression find the solutions that scikit-learn finds."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from cutaway import create_model
from cutaway.core.errors import ModelError
from cutaway.core.spec import Classes, ImageSpec, SeriesSpec, TableSpec, Value
from cutaway.models.linear import PRESETS, Config, Linear
from cutaway.nn import losses

from .contract import assert_keeps_the_contract

TWO, THREE, NUMBER = Classes(("no", "yes"), "sick"), Classes(("a", "b", "c"), "kind"), Value("price")


def solve(model: Linear, loss: Callable[[Tensor, Tensor], Tensor], x: np.ndarray, y: np.ndarray, l2: float) -> None:
    """Least Σ loss + l2/2 |W|², by L-BFGS on all examples at once."""
    inputs, target = torch.tensor(x), torch.tensor(y)
    optimizer = torch.optim.LBFGS(
        model.parameters(), max_iter=3000, tolerance_grad=1e-6, tolerance_change=1e-14, line_search_fn="strong_wolfe"
    )

    def total() -> Tensor:
        optimizer.zero_grad()
        value = loss(model(inputs), target).sum() + l2 / 2 * model.head.weight.square().sum()
        value.backward()
        return value

    optimizer.step(total)


@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_linear_is_scikit_learns_solution_on_diabetes(alpha: float) -> None:
    x, y = load_diabetes(return_X_y=True)
    x, y = StandardScaler().fit_transform(x), (y - y.mean()) / y.std()
    model = create_model("linear", in_features=10).double()
    solve(model, losses.half_squared_error, x, y, l2=alpha)
    theirs = (Ridge(alpha=alpha) if alpha else LinearRegression()).fit(x, y)
    np.testing.assert_allclose(model.head.weight[0].detach(), theirs.coef_, rtol=1e-5, atol=1e-8)
    np.testing.assert_allclose(model.head.bias.item(), theirs.intercept_, atol=1e-8)


def test_logistic_is_scikit_learns_solution_on_breast_cancer() -> None:
    x, y = load_breast_cancer(return_X_y=True)
    x = StandardScaler().fit_transform(x)
    model = create_model("logistic", in_features=30).double()
    solve(model, losses.cross_entropy, x, y, l2=1.0)
    theirs = LogisticRegression(C=1.0, tol=1e-10, max_iter=5000).fit(x, y)
    np.testing.assert_allclose(model.head.weight.detach(), theirs.coef_, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(model.head.bias.detach(), theirs.intercept_, rtol=1e-4)
    np.testing.assert_allclose(model.predict(torch.tensor(x)).detach()[:, 0], theirs.predict_proba(x)[:, 1], atol=1e-5)


def test_softmax_is_scikit_learns_solution_on_digits() -> None:
    x, y = load_digits(return_X_y=True)
    x = x / 16
    model = create_model("softmax", in_features=64, num_classes=10).double()
    solve(model, losses.cross_entropy, x, y, l2=1.0)
    theirs = LogisticRegression(C=1.0, tol=1e-10, max_iter=5000).fit(x, y)
    np.testing.assert_allclose(model.head.weight.detach(), theirs.coef_, rtol=1e-3, atol=1e-4)
    # Of the biases only the differences are determined: they have no penalty.
    np.testing.assert_allclose(model.head.bias.detach() - model.head.bias.detach().mean(), theirs.intercept_, atol=1e-3)
    np.testing.assert_allclose(model.predict(torch.tensor(x)).detach(), theirs.predict_proba(x), atol=1e-4)


@pytest.mark.parametrize(("name", "parameters"), [("linear", 11), ("logistic", 31), ("softmax", 410)])
def test_counts_and_contract(name: str, parameters: int) -> None:
    model = create_model(name)
    assert sum(p.numel() for p in model.parameters()) == parameters
    outputs = 10 if name == "softmax" else 1
    assert_keeps_the_contract(model, torch.randn(4, PRESETS[name].in_features), outputs)


def test_softmax_on_mnist1d_counts_as_published() -> None:
    config = Config.for_spec(PRESETS["softmax"], SeriesSpec(40, 1, Classes(tuple("0123456789"))))
    model = Linear(config)
    assert sum(p.numel() for p in model.parameters()) == 410
    assert model(torch.randn(2, 40, 1)).shape == (2, 10)


def test_predict_returns_values_or_probabilities() -> None:
    x = torch.randn(3, 10)
    linear = create_model("linear")
    assert torch.equal(linear.predict(x), linear(x))
    softmax = create_model("softmax", in_features=10, num_classes=4)
    torch.testing.assert_close(softmax.predict(x).sum(1), torch.ones(3))


@pytest.mark.parametrize(
    ("name", "target", "advice"),
    [
        ("linear", TWO, "sick is one of 2 classes: take logistic"),
        ("linear", THREE, "kind is one of 3 classes: take softmax"),
        ("logistic", THREE, "kind has 3: take softmax"),
        ("logistic", NUMBER, "logistic tells classes apart, and price is a number: take linear or mlp"),
        ("softmax", NUMBER, "softmax tells classes apart, and price is a number: take linear or mlp"),
    ],
)
def test_a_target_that_the_output_is_not_for_names_the_model_to_take(
    name: str, target: Classes | Value, advice: str
) -> None:
    with pytest.raises(ModelError, match=advice):
        Config.for_spec(PRESETS[name], TableSpec(("x",), target))


def test_it_fits_itself_to_data() -> None:
    assert Config.for_spec(PRESETS["logistic"], TableSpec(("x", "y"), TWO)) == Config("sigmoid", 2, 2)
    assert Config.for_spec(PRESETS["softmax"], ImageSpec(1, 8, 8, THREE)) == Config("softmax", 64, 3)
    assert Config.for_spec(PRESETS["linear"], SeriesSpec(5, 2, NUMBER)) == Config("identity", 10, 1)


@pytest.mark.parametrize(
    ("name", "settings", "words"),
    [
        ("softmax", {"num_classes": 1}, "Invalid num_classes=1: must be at least 2"),
        ("logistic", {"num_classes": 3}, "Invalid num_classes=3: must be 2 with output=sigmoid"),
        ("linear", {"output": "tanh"}, "Invalid output='tanh': must be identity, sigmoid, softmax"),
        ("linear", {"in_features": 0}, "in_features=0"),
    ],
)
def test_bad_settings_are_rejected_by_name(name: str, settings: dict[str, object], words: str) -> None:
    with pytest.raises(ModelError, match=words):
        create_model(name, **settings)
