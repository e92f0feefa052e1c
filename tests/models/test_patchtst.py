"""PatchTST: counts, patches, invariances, fitting to data and rejections. Its oracle is in tests/verify."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cutaway import create_model
from cutaway.core.errors import ModelError
from cutaway.core.spec import Classes, Horizon, SeriesSpec, Value
from cutaway.inspect.layers import layer_table
from cutaway.models.patchtst import CARD, PRESETS, Config, PatchTST
from cutaway.verify import oracle_for
from cutaway.verify.compare import compare

from .contract import assert_keeps_the_contract, compile_whole

SMALL = Config(
    steps=40, in_features=3, horizon=5, num_classes=10, patch_size=7, stride=3, dim=12, layers=2, heads=3, ffn_dim=20
)


def forecaster(**changes: int) -> PatchTST:
    torch.manual_seed(0)
    return PatchTST(dataclasses.replace(SMALL, **changes)).double().eval()  # type: ignore[arg-type]  # sizes


@pytest.mark.parametrize("name", PRESETS)
def test_counts_are_those_of_the_card(name: str) -> None:
    held = CARD.published[name]
    layers = layer_table(create_model(name), torch.zeros(1, *held.at))
    assert (layers.parameters, layers.multiply_adds, layers.complete) == (held.parameters, held.multiply_adds, True)


@pytest.mark.parametrize(("steps", "tokens"), [(336, 42), (512, 64)])
def test_the_paper_counts_so_many_words(steps: int, tokens: int) -> None:
    config = dataclasses.replace(PRESETS["patchtst-small"], steps=steps)
    assert config.tokens == tokens
    assert PatchTST(config).tokens(torch.randn(2, steps, 7)).shape == (2, 7, tokens, 16)


@settings(max_examples=15, deadline=None)
@given(
    steps=st.integers(8, 50),  # longer than a patch: a window that is one has no form there
    patch_size=st.integers(1, 7),
    stride=st.integers(1, 9),
    columns=st.integers(1, 3),
    horizon=st.integers(0, 4),
)
def test_any_patches_are_the_oracles(steps: int, patch_size: int, stride: int, columns: int, horizon: int) -> None:
    pytest.importorskip("transformers")
    sizes = {"steps": steps, "patch_size": patch_size, "stride": stride, "horizon": horizon}
    config = dataclasses.replace(SMALL, num_classes=columns * max(horizon, 1), **sizes)  # type: ignore[arg-type]
    torch.manual_seed(steps)
    measured = compare(PatchTST(config), oracle_for("patchtst", config), torch.Generator().manual_seed(steps))
    assert measured.equal, measured


@pytest.mark.parametrize("horizon", [5, 0])
def test_it_keeps_the_contract(horizon: int) -> None:
    torch.manual_seed(0)
    model = PatchTST(dataclasses.replace(SMALL, horizon=horizon))
    assert_keeps_the_contract(model, torch.randn(5, 40, 3), 10)


@settings(max_examples=20, deadline=None)
@given(scale=st.floats(0.1, 10), shift=st.floats(-100, 100))
def test_a_forecast_moves_and_stretches_with_its_window(scale: float, shift: float) -> None:
    model, x = forecaster(), torch.randn(2, 40, 3, dtype=torch.float64)
    expected = model(x) * scale + shift
    # What is added to the variance, 1e-5 beside about 1, is all that the scale of a window is known by.
    torch.testing.assert_close(model(x * scale + shift), expected, atol=2e-2 * scale, rtol=0)


def test_variables_know_nothing_of_each_other_and_change_places_freely() -> None:
    model, x = forecaster(), torch.randn(2, 40, 3, dtype=torch.float64)
    answers = model(x).view(2, 5, 2)
    swapped = model(x[..., [1, 0, 2]]).view(2, 5, 2)
    torch.testing.assert_close(swapped, answers[..., [1, 0]])
    other = x.clone()
    other[..., 1:] += torch.randn(2, 40, 2, dtype=torch.float64)
    changed = model(other).view(2, 5, 2)
    torch.testing.assert_close(changed[..., 0], answers[..., 0])
    assert not torch.allclose(changed[..., 1], answers[..., 1])


def test_a_flat_window_is_forecast_to_stay_near_and_gives_no_nan() -> None:
    model = forecaster()
    answers = model(torch.full((1, 40, 3), 7.0, dtype=torch.float64))
    assert (answers - 7).abs().max() < 0.02


@pytest.mark.parametrize(
    ("steps", "sizes"), [(336, (16, 8)), (64, (16, 8)), (63, (15, 7)), (24, (6, 3)), (4, (1, 1)), (1, (1, 1))]
)
def test_patches_are_a_quarter_of_a_short_window_unless_they_are_given(steps: int, sizes: tuple[int, int]) -> None:
    spec = SeriesSpec(steps, 1, Horizon(2, ("a",), (0.0,), (1.0,)))
    fitted = Config.for_spec(PRESETS["patchtst-small"], spec)
    assert (fitted.patch, fitted.apart) == sizes
    assert PatchTST(fitted)(torch.zeros(2, steps, 1)).shape == (2, 2)
    given = Config.for_spec(dataclasses.replace(PRESETS["patchtst"], patch_size=4), spec)
    assert (given.patch, given.apart) == (4, 2)


def test_a_config_fits_a_data_set() -> None:
    target = Horizon(24, ("a", "b"), (0.0, 0.0), (1.0, 1.0))
    fitted = Config.for_spec(Config(), SeriesSpec(96, 7, target))
    assert (fitted.steps, fitted.in_features, fitted.horizon, fitted.columns) == (96, 7, 24, 2)
    fitted = Config.for_spec(Config(), SeriesSpec(40, 3, Classes(("up", "down"))))
    assert (fitted.horizon, fitted.columns, fitted.num_classes) == (0, 3, 2)
    assert Config.for_spec(Config(), SeriesSpec(40, 3, Value())).num_classes == 1
    with pytest.raises(ModelError, match=r"cannot use the 2 that are known in advance.*gru"):
        Config.for_spec(Config(), SeriesSpec(96, 7, target, known_future=2))


@pytest.mark.parametrize("shape", [(2, 39, 3), (2, 41, 3), (2, 40, 2), (40, 3)])
def test_series_of_another_shape_are_rejected(shape: tuple[int, ...]) -> None:
    with pytest.raises(ModelError, match=r"takes series of shape \(40, 3\)"):
        forecaster()(torch.zeros(shape, dtype=torch.float64))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"patch_size": 41}, "Invalid patch_size=41: must be at most the 40 steps"),
        ({"heads": 5}, "Invalid heads=5"),
        ({"num_classes": 11}, "Invalid num_classes=11: must be a multiple of the 5 steps"),
        ({"num_classes": 20}, "Invalid num_classes=20"),
    ],
)
def test_invalid_settings_are_rejected_by_name(changes: dict[str, int], words: str) -> None:
    with pytest.raises(ModelError, match=words):
        forecaster(**changes)


@pytest.mark.parametrize("training", [True, False])
def test_it_compiles_without_a_break(training: bool) -> None:
    model, x = PatchTST(dataclasses.replace(SMALL, dropout=0.0)).train(training), torch.randn(2, 40, 3)
    torch.testing.assert_close(compile_whole(model)(x), model(x))
