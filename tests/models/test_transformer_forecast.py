"""The Transformer forecaster: counts, causality, what is known in advance, its window's scale, and rejections."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cutaway import create_model
from cutaway.core.errors import ModelError
from cutaway.core.spec import Classes, Horizon, SeriesSpec, Value
from cutaway.inspect.layers import layer_table
from cutaway.models.transformer_forecast import CARD, Config, TransformerForecast
from cutaway.verify import oracle_for
from cutaway.verify.compare import compare
from cutaway.views import attention
from cutaway.views.subject import open_model
from tests.views.test_attention import drawings

from .contract import assert_keeps_the_contract, compile_whole

SMALL = Config(steps=9, in_features=4, known_future=1, horizon=3, num_classes=6, dim=12, layers=2, heads=3, ffn_dim=10)
WHOLE = {"known_future": 0, "horizon": 0, "num_classes": 5}  # one answer for a whole series


def built(**changes: Any) -> TransformerForecast:
    torch.manual_seed(0)
    return TransformerForecast(dataclasses.replace(SMALL, **changes)).double().eval()


def drawn(config: Config = SMALL, count: int = 2) -> tuple[torch.Tensor, ...]:
    x = torch.randn(count, config.steps, config.in_features, dtype=torch.float64)
    known = torch.randn(count, config.horizon, config.known_future, dtype=torch.float64)
    return (x, known) if config.known_future else (x,)


def test_counts_are_those_of_the_card() -> None:
    held = CARD.published["transformer-forecast"]
    layers = layer_table(create_model("transformer-forecast"), torch.zeros(1, *held.at))
    assert (layers.parameters, layers.multiply_adds, layers.complete) == (held.parameters, held.multiply_adds, True)


@settings(max_examples=12, deadline=None)
@given(
    steps=st.integers(1, 8),
    horizon=st.integers(0, 3),
    columns=st.integers(1, 2),
    past=st.integers(0, 1),
    known=st.integers(0, 2),
    normed=st.booleans(),
    pooling=st.sampled_from(["last", "mean"]),
)
def test_any_form_is_the_oracles(
    steps: int, horizon: int, columns: int, past: int, known: int, normed: bool, pooling: str
) -> None:
    known = known if horizon else 0
    sizes = {"steps": steps, "horizon": horizon, "in_features": columns + past + known, "known_future": known}
    config = dataclasses.replace(
        SMALL, num_classes=columns * max(horizon, 1), instance_norm=normed, pooling=pooling, **sizes
    )  # type: ignore[arg-type]  # sizes
    torch.manual_seed(steps)
    model = TransformerForecast(config)
    measured = compare(model, oracle_for("transformer-forecast", config), torch.Generator().manual_seed(steps))
    assert measured.equal, measured


@pytest.mark.parametrize("changes", [{"known_future": 0}, WHOLE, WHOLE | {"pooling": "mean"}])
def test_it_keeps_the_contract(changes: dict[str, Any]) -> None:
    torch.manual_seed(0)
    config = dataclasses.replace(SMALL, **changes)
    assert_keeps_the_contract(TransformerForecast(config), torch.randn(5, 9, 4), config.num_classes)


@settings(max_examples=15, deadline=None)
@given(place=st.integers(1, 11), seed=st.integers(0, 99))
def test_no_step_sees_what_is_after_it(place: int, seed: int) -> None:
    model = built()
    steps = torch.randn(2, 12, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    other = steps.clone()
    other[:, place:] += 1
    here, there = model.hidden(steps), model.hidden(other)
    torch.testing.assert_close(here[:, :place], there[:, :place], rtol=0, atol=1e-12)
    assert (here[:, place:] - there[:, place:]).abs().amax(2).min() > 1e-6


@settings(max_examples=10, deadline=None)
@given(step=st.integers(0, 2))
def test_what_is_known_of_a_step_changes_no_forecast_before_it(step: int) -> None:
    model, (x, known) = built(), drawn()
    other = known.clone()
    other[:, step] += 1
    changed = (model(x, known) - model(x, other)).view(2, 3, 2).abs().amax((0, 2))
    assert bool((changed[:step] < 1e-12).all())
    assert bool((changed[step:] > 1e-6).all())


@settings(max_examples=15, deadline=None)
@given(scale=st.floats(0.1, 10), shift=st.floats(-100, 100))
def test_a_forecast_moves_and_stretches_with_its_window(scale: float, shift: float) -> None:
    model, (x, known) = built(), drawn()
    moved = torch.cat([x[..., :3] * scale + shift, x[..., 3:]], dim=2)
    # What is added to the variance, 1e-5 beside about 1, is all that the scale of a window is known by.
    torch.testing.assert_close(model(moved, known), model(x, known) * scale + shift, atol=2e-2 * scale, rtol=0)


def test_a_flat_window_gives_no_nan() -> None:
    model = built(known_future=0)
    answers = model(torch.full((1, 9, 4), 7.0, dtype=torch.float64))
    assert (answers - 7).abs().max() < 0.05


def test_attention_is_looked_at_step_by_step() -> None:
    model = built(known_future=0)
    view = attention.view(open_model(model.float(), torch.randn(1, 9, 4)))
    matrix = next(d for d in drawings(view["drawings"]) if d.get("title") == "Weights")
    assert matrix["rows"] == [*(str(t) for t in range(1, 10)), "+1", "+2", "+3"]
    assert "steps" in view["summary"]
    assert "variable" not in view["summary"]
    assert all(value == 0 for i, row in enumerate(matrix["values"]) for value in row[i + 1 :])


def test_a_config_fits_a_data_set() -> None:
    target = Horizon(24, ("a", "b"), (0.0, 0.0), (1.0, 1.0))
    fitted = Config.for_spec(Config(), SeriesSpec(96, 7, target, known_future=2))
    assert (fitted.steps, fitted.in_features, fitted.horizon, fitted.columns) == (96, 7, 24, 2)
    assert fitted.known_future == 2
    fitted = Config.for_spec(Config(), SeriesSpec(40, 3, Classes(("up", "down"))))
    assert (fitted.horizon, fitted.num_classes) == (0, 2)
    assert Config.for_spec(Config(), SeriesSpec(40, 3, Value())).num_classes == 1


@pytest.mark.parametrize("shape", [(2, 8, 4), (2, 10, 4), (2, 9, 3), (9, 4)])
def test_series_of_another_shape_are_rejected(shape: tuple[int, ...]) -> None:
    with pytest.raises(ModelError, match=r"takes series of shape \(9, 4\)"):
        built()(torch.zeros(shape, dtype=torch.float64))


def test_what_is_known_in_advance_is_asked_for_and_only_then() -> None:
    x, known = drawn()
    with pytest.raises(ModelError, match=r"of shape \(2, 3, 1\), as its second argument, and was given nothing"):
        built()(x)
    with pytest.raises(ModelError, match=r"was given \(2, 2, 1\)"):
        built()(x, known[:, 1:])
    with pytest.raises(ModelError, match="built for nothing known in advance"):
        built(known_future=0)(x, known)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"heads": 5}, "Invalid heads=5"),
        ({"num_classes": 7}, "Invalid num_classes=7: must be a multiple of the 3 steps"),
        ({"num_classes": 12}, "Invalid num_classes=12"),
        ({"known_future": 4}, "Invalid known_future=4"),
        ({"horizon": 0}, "Invalid known_future=1: must be 0 where nothing is forecast"),
        ({"pooling": "max"}, "Invalid pooling='max'"),
    ],
)
def test_invalid_settings_are_rejected_by_name(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ModelError, match=words):
        built(**changes)


@pytest.mark.parametrize("training", [True, False])
def test_it_compiles_without_a_break(training: bool) -> None:
    model = TransformerForecast(dataclasses.replace(SMALL, dropout=0.0)).train(training)
    x, known = (t.float() for t in drawn())
    torch.testing.assert_close(compile_whole(model)(x, known), model(x, known))
