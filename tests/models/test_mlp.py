"""The multi-layer perceptron: counts, any depth and width, and XOR."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from cutaway import create_model
from cutaway.core.errors import ModelError
from cutaway.core.spec import Classes, ImageSpec, SeriesSpec, TableSpec, Value
from cutaway.models.mlp import CARD, MLP, NORMS, Config
from cutaway.nn.activations import ACTIVATIONS

from .contract import assert_keeps_the_contract


def test_the_mlp_of_mnist1d_counts_as_published() -> None:
    model = create_model("mlp", in_features=40, num_classes=10, hidden_dims=(100, 100))
    assert sum(p.numel() for p in model.parameters()) == 15_210


@settings(max_examples=25, deadline=None)
@given(
    inputs=st.integers(1, 9),
    outputs=st.integers(1, 9),
    hidden=st.lists(st.integers(1, 9), max_size=4),
    bias=st.booleans(),
)
def test_any_depth_and_width_counts_as_its_formula(inputs: int, outputs: int, hidden: list[int], bias: bool) -> None:
    model = MLP(Config(inputs, outputs, tuple(hidden), bias=bias))
    widths = [inputs, *hidden, outputs]
    expected = sum((i + bias) * o for i, o in pairwise(widths))
    assert sum(p.numel() for p in model.parameters()) == expected
    assert model(torch.randn(3, inputs)).shape == (3, outputs)
    assert model.features(torch.randn(3, inputs)).shape == (3, widths[-2])


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("hidden", [(), (6,), (6, 5, 4)])
def test_the_contract(norm: str, hidden: tuple[int, ...]) -> None:
    # SiLU: a ReLU may be dead on four examples, and then has rightly no gradient.
    config = Config(7, 3, hidden, activation="silu", norm=norm, dropout=0.0)
    assert_keeps_the_contract(MLP(config), torch.randn(4, 7), outputs=3)


def test_the_preset_keeps_the_contract() -> None:
    torch.manual_seed(0)
    assert_keeps_the_contract(create_model("mlp"), torch.randn(64, 40), outputs=10)


@pytest.mark.parametrize("seed", range(10))
def test_xor_is_solved_from_any_start(seed: int) -> None:
    torch.manual_seed(seed)
    x, y = torch.tensor([[-1.0, -1.0], [-1.0, 1.0], [1.0, -1.0], [1.0, 1.0]]), torch.tensor([0, 1, 1, 0])
    model = create_model("mlp", in_features=2, num_classes=2)
    ours = CARD.settings["mlp"]
    optimizer = torch.optim.AdamW(model.parameters(), lr=ours["lr"])
    for _ in range(ours["epochs"]):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    model.eval()
    assert model(x).argmax(1).tolist() == y.tolist()
    assert F.cross_entropy(model(x), y) < 0.01


@pytest.mark.parametrize("name", sorted(ACTIVATIONS))
def test_every_activation_can_be_chosen(name: str) -> None:
    assert create_model("mlp", activation=name)(torch.randn(2, 40)).isfinite().all()


@pytest.mark.parametrize("norm", NORMS)
def test_no_parameter_learns_from_rounding_alone(norm: str) -> None:
    """A bias that batch normalization takes off again has a gradient of rounding, which Adam makes as large as any: it
    wandered, another way on each number of threads, and answers differed by 0.15."""
    torch.manual_seed(0)
    model = create_model("mlp", in_features=6, hidden_dims=(8, 8), num_classes=3, norm=norm, dropout=0.0)
    model(torch.randn(32, 6)).square().sum().backward()
    largest = max(float(p.grad.abs().max()) for p in model.parameters() if p.grad is not None)
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None
        assert parameter.grad.abs().max() > 1e-4 * largest, name


def test_a_layer_is_linear_norm_activation_dropout() -> None:
    model = create_model("mlp", hidden_dims=(5,), norm="layer", dropout=0.5)
    assert [type(part) for part in model.hidden[0]] == [nn.Linear, nn.LayerNorm, nn.ReLU, nn.Dropout]
    plain = create_model("mlp", hidden_dims=(5,), norm="none", dropout=0.0)
    assert [type(part) for part in plain.hidden[0]] == [nn.Linear, nn.ReLU]


def test_dropout_blanks_in_training_alone() -> None:
    torch.manual_seed(0)
    model = create_model("mlp", hidden_dims=(1000,), activation="sigmoid", dropout=0.25)
    x = torch.randn(1, 40)
    blanked = (model.train().features(x) == 0).float().mean().item()
    assert blanked == pytest.approx(0.25, abs=0.05)
    assert (model.eval().features(x) != 0).all()


def test_it_fits_itself_to_tables_images_and_series() -> None:
    number, three = Value("price"), Classes(("a", "b", "c"))
    table = Config.for_spec(Config(), TableSpec(("x", "y"), number))
    assert (table.in_features, table.num_classes) == (2, 1)
    image = Config.for_spec(Config(hidden_dims=(8,)), ImageSpec(3, 4, 5, three))
    assert (image.in_features, image.num_classes, image.hidden_dims) == (60, 3, (8,))
    assert MLP(image)(torch.randn(2, 3, 4, 5)).shape == (2, 3)
    assert Config.for_spec(Config(), SeriesSpec(40, 2, three)).in_features == 80


def test_a_batch_of_one_has_no_variance_to_learn_from() -> None:
    model = create_model("mlp", norm="batch")
    with pytest.raises(ModelError, match=r"batch_size, or model.norm=layer"):
        model(torch.randn(1, 40))
    assert model.eval()(torch.randn(1, 40)).shape == (1, 10)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("in_features", 0),
        ("num_classes", 0),
        ("hidden_dims", (4, 0)),
        ("activation", "softplus"),
        ("activation", "relu,tanh,relu"),
        ("activation", "relu:0.1"),
        ("norm", "group"),
        ("dropout", 1.0),
        ("dropout", float("nan")),
    ],
)
def test_bad_settings_are_rejected_by_name(field: str, value: object) -> None:
    with pytest.raises(ModelError, match=f"{field}="):
        Config(**{field: value})
