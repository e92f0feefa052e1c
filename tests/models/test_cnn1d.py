"""The convolutional network for series: counts, lengths, shifts and rejections. Its oracle is in tests/verify."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cutaway import create_model
from cutaway.core.errors import ModelError
from cutaway.core.spec import Classes, SeriesSpec, Value
from cutaway.inspect.layers import layer_table
from cutaway.models.cnn1d import CARD, LEAST_STEPS, Config, Model
from cutaway.verify import oracle_for
from cutaway.verify.compare import compare

from .contract import assert_keeps_the_contract, compile_whole


def test_counts_are_the_published_ones() -> None:
    held = CARD.published["cnn1d"]
    layers = layer_table(create_model("cnn1d"), torch.zeros(1, *held.at))
    assert (layers.parameters, layers.multiply_adds, layers.complete) == (held.parameters, held.multiply_adds, True)
    assert [row.shape[1:] for row in layers.rows if row.type == "Conv1d"] == [(25, 19), (25, 10), (25, 5)]


@settings(max_examples=25, deadline=None)
@given(steps=st.integers(LEAST_STEPS, 70), in_features=st.integers(1, 4))
def test_series_of_any_length_and_any_number_of_variables(steps: int, in_features: int) -> None:
    config = Config(steps=steps, in_features=in_features, channels=3, num_classes=2)
    torch.manual_seed(steps)
    model, oracle = Model(config), oracle_for("cnn1d", config)
    assert compare(model, oracle, torch.Generator().manual_seed(steps)).equal
    assert model.features(torch.zeros(2, steps, in_features)).shape == (2, 3 * config.steps_left)


@pytest.mark.parametrize("classes", [10, 1])
def test_it_keeps_the_contract(classes: int) -> None:
    torch.manual_seed(0)
    model = Model(Config(steps=21, in_features=2, num_classes=classes))
    assert_keeps_the_contract(model, torch.randn(5, 21, 2), classes)


def test_a_shifted_signal_shifts_the_last_maps() -> None:
    torch.manual_seed(0)
    model = Model(Config(steps=80)).double()
    x = torch.zeros(1, 80, 1, dtype=torch.float64)
    x[:, 30:36, 0] = torch.randn(6, dtype=torch.float64)
    maps, shifted = (model.features(s).view(25, -1) for s in (x, x.roll(8, dims=1)))  # three halvings: one step
    torch.testing.assert_close(maps[:, 1:-2], shifted[:, 2:-1])
    assert not torch.allclose(maps[:, 1:-2], shifted[:, 1:-2])


def test_the_input_is_left_as_it_is() -> None:
    x = torch.randn(2, 40, 1)
    before = x.clone()
    create_model("cnn1d")(x)
    assert torch.equal(x, before)


def test_a_config_fits_a_data_set() -> None:
    fitted = Config.for_spec(Config(), SeriesSpec(96, 7, Classes(("up", "down"))))
    assert (fitted.steps, fitted.in_features, fitted.num_classes, fitted.steps_left) == (96, 7, 2, 12)
    assert Config.for_spec(Config(), SeriesSpec(96, 7, Value())).num_classes == 1


@pytest.mark.parametrize("shape", [(2, 39, 1), (2, 41, 1), (2, 40, 2), (2, 1, 40), (2, 40)])
def test_series_of_another_shape_are_rejected(shape: tuple[int, ...]) -> None:
    with pytest.raises(ModelError, match=r"takes series of shape \(40, 1\)"):
        create_model("cnn1d")(torch.zeros(shape))


@pytest.mark.parametrize("field", ["steps", "in_features", "channels", "num_classes"])
def test_bad_values_are_rejected_by_name(field: str) -> None:
    with pytest.raises(ModelError, match=f"^Invalid {field}=0"):
        Config(**{field: 0})


def test_the_least_length_is_the_least() -> None:
    shortest = Config(steps=LEAST_STEPS, channels=2)
    assert Model(shortest)(torch.zeros(1, LEAST_STEPS, 1)).shape == (1, 10)
    with pytest.raises(ModelError, match=f"^Invalid steps={LEAST_STEPS - 1}: must be at least {LEAST_STEPS}"):
        dataclasses.replace(shortest, steps=LEAST_STEPS - 1)
    with pytest.raises(RuntimeError, match="Kernel size can't be greater"):
        Model(shortest).conv1(torch.zeros(1, 1, LEAST_STEPS - 1))


@pytest.mark.parametrize("training", [True, False])
def test_it_compiles_without_a_break(training: bool) -> None:
    model = create_model("cnn1d").train(training)
    x = torch.randn(2, 40, 1)
    torch.testing.assert_close(compile_whole(model)(x), model(x))
