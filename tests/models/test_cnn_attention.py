"""Convolution, then attention: counts, sizes, what attention adds, rejections. The oracle is in tests/verify."""

from __future__ import annotations

import copy
import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cutaway.core.errors import ModelError
from cutaway.core.memory_budget import build_on_meta
from cutaway.core.spec import Classes, ImageSpec, Value
from cutaway.inspect.layers import layer_table
from cutaway.models.cnn_attention import CARD, PRESETS, CNNAttention, Config
from cutaway.models.registry import preset

from .contract import assert_keeps_the_contract, compile_whole

TINY = Config(widths=(4, 6, 8), heads=2, in_channels=2, num_classes=3)


def test_counts_are_the_cards_and_the_docstrings() -> None:
    held = CARD.published["cnn-attention"]
    model = build_on_meta(preset("cnn-attention"), PRESETS["cnn-attention"])
    layers = layer_table(model, torch.empty(1, *held.at, device="meta"))
    assert (layers.parameters, layers.multiply_adds, layers.complete) == (held.parameters, held.multiply_adds, True)
    assert layers.blocks["convs.2"].receptive_field == 18
    assert layers.blocks["attention"].shape == (1, 64, 192)


def test_it_keeps_the_contract() -> None:
    torch.manual_seed(0)
    assert_keeps_the_contract(CNNAttention(TINY), torch.randn(4, 2, 12, 9), 3)


@settings(max_examples=15, deadline=None)
@given(channels=st.integers(1, 4), height=st.integers(4, 30), width=st.integers(4, 30))
def test_images_of_any_size_and_channels(channels: int, height: int, width: int) -> None:
    model = CNNAttention(dataclasses.replace(TINY, in_channels=channels)).eval()
    x = torch.randn(2, channels, height, width)
    assert model.grid(x).shape == (2, 8, height // 4, width // 4)
    assert model(x).shape == (2, 3)


def test_forward_is_the_head_of_the_features() -> None:
    model, x = CNNAttention(TINY).eval(), torch.randn(2, 2, 12, 12)
    assert model.features(x).shape == (2, 8)
    assert torch.equal(model(x), model.head(model.features(x)))


def test_without_attention_the_mean_of_the_map_is_left() -> None:
    model, x = CNNAttention(TINY).eval(), torch.randn(2, 2, 12, 12)
    with_attention = model.features(x)
    torch.nn.init.zeros_(model.attention.out.weight)
    torch.testing.assert_close(model.features(x), model.grid(x).mean((2, 3)))
    assert not torch.allclose(with_attention, model.features(x), atol=1e-3)


def test_every_place_sees_every_other() -> None:
    """A pixel in one corner has a gradient at the token of the other, which convolutions alone do not let it see."""
    torch.manual_seed(0)
    model = CNNAttention(TINY).double().eval()
    x = torch.randn(1, 2, 40, 40, dtype=torch.float64, requires_grad=True)
    grid = model.grid(x)
    (local,) = torch.autograd.grad(grid[0, :, -1, -1].sum(), x, retain_graph=True)
    tokens = grid.flatten(2).transpose(1, 2)
    (everywhere,) = torch.autograd.grad(model.attention(model.norm(tokens))[0, -1].sum(), x)
    assert not local[..., :20, :20].any()
    assert everywhere[..., :20, :20].any()


def test_the_order_of_tokens_does_not_matter_to_the_head() -> None:
    model, x = CNNAttention(TINY).double().eval(), torch.randn(2, 2, 12, 12, dtype=torch.float64)
    expected = model.features(x)
    grid = model.grid(x)
    model.grid = lambda x: grid.transpose(2, 3).flip(2)  # type: ignore[method-assign]
    torch.testing.assert_close(model.features(x), expected)


def test_channels_last_changes_no_result() -> None:
    model = CNNAttention(TINY).double().eval()
    x = torch.randn(2, 2, 24, 24, dtype=torch.float64)
    expected = model(x)
    model = model.to(memory_format=torch.channels_last)
    torch.testing.assert_close(model(x.to(memory_format=torch.channels_last)), expected)


def test_what_is_written_in_place_is_never_the_input() -> None:
    x = torch.randn(2, 2, 8, 8)
    before = x.clone()
    CNNAttention(TINY)(x)
    assert torch.equal(x, before)


@pytest.mark.parametrize("training", [False, True])
def test_it_compiles_without_a_break(training: bool) -> None:
    model, x = CNNAttention(TINY).train(training), torch.randn(2, 2, 8, 8)
    compiled = compile_whole(copy.deepcopy(model))
    torch.testing.assert_close(compiled(x), model(x))


@pytest.mark.parametrize("widths", [(4,), (4, 6), (4, 6, 8, 10)])
def test_the_least_size_is_exact(widths: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    config = dataclasses.replace(TINY, widths=widths)
    model, least = CNNAttention(config).eval(), config.least_size
    assert model(torch.zeros(1, 2, least, least)).shape == (1, 3)
    small = torch.zeros(1, 2, least, least - 1)
    with pytest.raises(ModelError, match=f"at least {least}×{least} pixels"):
        model(small)
    monkeypatch.setattr("cutaway.models.cnn_attention.validate_image_size", lambda *args: None)
    with pytest.raises(RuntimeError):
        model(small)


def test_a_config_fits_a_data_set() -> None:
    fitted = Config.for_spec(PRESETS["cnn-attention"], ImageSpec(1, 8, 8, Classes(("a", "b", "c"))))
    assert (fitted.in_channels, fitted.num_classes) == (1, 3)
    assert Config.for_spec(PRESETS["cnn-attention"], ImageSpec(1, 8, 8, Value())).num_classes == 1


@pytest.mark.parametrize(
    ("field", "value"),
    [("widths", ()), ("widths", (4, 0)), ("heads", 0), ("heads", 5), ("in_channels", 0), ("num_classes", 0)],
)
def test_bad_values_are_rejected_by_name(field: str, value: object) -> None:
    with pytest.raises(ModelError, match=rf"^Invalid {field}="):
        Config(**{field: value})
