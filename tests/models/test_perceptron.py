"""The perceptron: scikit-learn's weights exactly, Rosenblatt's convergence, and XOR."""

from __future__ import annotations

import pytest
import torch
from sklearn.datasets import load_digits, load_iris
from sklearn.linear_model import Perceptron as ScikitPerceptron
from torch import Tensor

from cutaway import create_model
from cutaway.core.errors import ModelError
from cutaway.core.spec import Classes, ImageSpec, SeriesSpec, TableSpec, Value
from cutaway.models.perceptron import CARD, Config, Perceptron
from cutaway.nn import losses
from cutaway.tasks.classification import linearly_separable
from cutaway.training.config import TrainSettings

from .contract import assert_keeps_the_contract

XOR = torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]), torch.tensor([0, 1, 1, 0])


def learn(model: Perceptron, x: Tensor, y: Tensor, epochs: int) -> list[int]:
    """Descent as the card has it, one example a step in the order given. Returns the mistakes of each epoch."""
    optimizer = torch.optim.SGD(model.parameters(), lr=CARD.settings["perceptron"]["lr"])
    mistakes = []
    for _ in range(epochs):
        mistakes.append(0)
        for i in range(len(x)):
            optimizer.zero_grad()
            losses.perceptron(model(x[[i]]), y[[i]]).sum().backward()
            mistakes[-1] += int(model.head.bias.grad.abs().sum() > 0)
            optimizer.step()
    return mistakes


def setosa() -> tuple[Tensor, Tensor]:
    x, y = load_iris(return_X_y=True)
    return torch.tensor(x), torch.tensor(y == 0).long()


def test_the_contract() -> None:
    for classes, outputs in ((2, 1), (3, 3)):
        assert_keeps_the_contract(Perceptron(Config(5, classes)), torch.randn(4, 5), outputs)


@pytest.mark.parametrize("epochs", [1, 3, 10])
def test_weights_are_scikit_learns_exactly_on_two_classes(epochs: int) -> None:
    x, y = load_iris(return_X_y=True)
    x, y = x[50:], y[50:] - 1  # versicolor and virginica, which no line separates
    model = Perceptron(Config(4, 2)).double()
    learn(model, torch.tensor(x), torch.tensor(y), epochs)
    theirs = ScikitPerceptron(shuffle=False, tol=None, max_iter=epochs).fit(x, y)
    assert model.head.weight.tolist() == theirs.coef_.tolist()
    assert model.head.bias.tolist() == theirs.intercept_.tolist()


def test_weights_are_scikit_learns_exactly_on_ten_classes() -> None:
    x, y = load_digits(return_X_y=True)
    x, y = x[:300], y[:300]
    model = Perceptron(Config(64, 10)).double()
    learn(model, torch.tensor(x), torch.tensor(y), epochs=3)
    theirs = ScikitPerceptron(shuffle=False, tol=None, max_iter=3).fit(x, y)
    assert model.head.weight.tolist() == theirs.coef_.tolist()
    assert model.head.bias.tolist() == theirs.intercept_.tolist()
    assert model(torch.tensor(x)).argmax(1).tolist() == theirs.predict(x).tolist()


def test_setosa_is_separated_in_finitely_many_mistakes() -> None:
    x, y = setosa()
    model = Perceptron(Config(4, 2)).double()
    mistakes = learn(model, x, y, epochs=10)
    assert mistakes[-1] == 0
    assert 0 < sum(mistakes) < 50
    assert model.fires(x)[:, 0].long().tolist() == y.tolist()
    assert linearly_separable(x.numpy(), y.numpy())


def test_xor_never_rests() -> None:
    model = Perceptron(Config(2, 2))
    mistakes = learn(model, *XOR, epochs=200)
    assert min(mistakes) > 0
    assert not linearly_separable(XOR[0].numpy(), XOR[1].numpy())


def test_it_begins_at_zero_and_does_not_fire_there() -> None:
    model = create_model("perceptron", in_features=3, num_classes=4)
    assert all((p == 0).all() for p in model.parameters())
    assert model.fires(torch.randn(2, 3)).tolist() == [[0] * 4] * 2


def test_it_flattens_what_it_is_given() -> None:
    two, three = Classes(("no", "yes")), Classes(("a", "b", "c"))
    assert Config.for_spec(Config(), TableSpec(("x", "y"), two)) == Config(2, 2)
    assert Config.for_spec(Config(), SeriesSpec(40, 2, two)) == Config(80, 2)
    config = Config.for_spec(Config(), ImageSpec(3, 4, 5, three))
    assert config == Config(60, 3)
    assert Perceptron(config)(torch.randn(2, 3, 4, 5)).shape == (2, 3)


def test_a_number_is_rejected() -> None:
    with pytest.raises(ModelError, match=r"price is a number: take linear or mlp"):
        Config.for_spec(Config(), TableSpec(("x",), Value("price")))


@pytest.mark.parametrize(("field", "value"), [("in_features", 0), ("num_classes", 1)])
def test_bad_settings_are_rejected_by_name(field: str, value: int) -> None:
    with pytest.raises(ModelError, match=f"{field}={value}"):
        Config(**{field: value})


def test_the_cards_settings_are_rosenblatts_rule() -> None:
    settings = TrainSettings(**CARD.settings["perceptron"])
    assert (settings.optimizer, settings.lr, settings.batch_size) == ("sgd", 1.0, 1)
    assert (settings.schedule, settings.weight_decay, settings.grad_clip) == ("constant", 0.0, 0.0)
