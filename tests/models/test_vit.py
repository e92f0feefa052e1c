"""The Vision Transformers: counts, patches, positions, sizes and rejections. The oracles are in tests/verify."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from cutaway import create_model
from cutaway.core.errors import ModelError
from cutaway.core.memory_budget import build_on_meta
from cutaway.core.spec import Classes, ImageSpec, Value
from cutaway.inspect.layers import layer_table
from cutaway.models.registry import preset
from cutaway.models.vit import CARD, PRESETS, Config, ViT, interpolate_positions
from cutaway.nn.attention import MultiHeadAttention

from .contract import assert_keeps_the_contract, compile_whole

TINY = Config(image_size=12, patch_size=4, dim=8, layers=2, heads=2, ffn_dim=16, in_channels=2, num_classes=3)
POOLS = ("token", "mean")


def tiny(**changes: object) -> ViT:
    """A small network in float64 and evaluation mode, whose biases and class token are not zero."""
    torch.manual_seed(0)
    model = ViT(dataclasses.replace(TINY, **changes)).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def normal(*shape: int) -> Tensor:
    """Float64 numbers from the standard normal distribution."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


# --- counts -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PRESETS)
def test_counts_are_the_published_ones(name: str) -> None:
    held = CARD.published[name]
    layers = layer_table(build_on_meta(preset(name), PRESETS[name]), torch.empty(1, *held.at, device="meta"))
    assert (layers.parameters, layers.multiply_adds, layers.complete) == (held.parameters, held.multiply_adds, True)


@pytest.mark.parametrize(
    ("name", "billions"), [("vit-base/16", 17.564), ("vit-base/32", 4.409), ("vit-large/16", 61.555)]
)
def test_the_card_agrees_with_torchvisions_metadata(name: str, billions: float) -> None:
    assert CARD.published[name].multiply_adds == pytest.approx(billions * 1e9, abs=0.5e6)


def test_the_name_says_the_patch() -> None:
    assert all(config.patch_size == int(name.split("/")[1]) for name, config in PRESETS.items())


def test_two_thirds_of_a_blocks_weights_are_the_mlps() -> None:
    block = build_on_meta(preset("vit-base/16"), PRESETS["vit-base/16"]).get_submodule("blocks.0")
    weights = {k: p.numel() for k, p in block.named_parameters() if p.ndim == 2}
    assert sum(n for k, n in weights.items() if "mlp" in k) * 3 == sum(weights.values()) * 2


# --- the contract -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pool", POOLS)
def test_it_keeps_the_contract(pool: str) -> None:
    torch.manual_seed(0)
    model = ViT(dataclasses.replace(TINY, pooling=pool))
    assert_keeps_the_contract(model, torch.randn(3, 2, 12, 12), 3)
    assert model.features(torch.randn(3, 2, 12, 12)).shape == (3, 8)


@pytest.mark.parametrize("pool", POOLS)
def test_forward_is_the_head_of_the_features_and_features_are_of_the_tokens(pool: str) -> None:
    model, x = tiny(pooling=pool), normal(2, 2, 12, 8)
    tokens = model.tokens(x)
    assert tokens.shape == (2, 6 + (pool == "token"), 8)
    normalized = model.norm(tokens)
    torch.testing.assert_close(model.features(x), normalized[:, 0] if pool == "token" else normalized.mean(1))
    assert torch.equal(model(x), model.head(model.features(x)))


@settings(max_examples=15, deadline=None)
@given(
    pool=st.sampled_from(POOLS),
    patch=st.integers(1, 5),
    channels=st.integers(1, 4),
    rows=st.integers(1, 5),
    columns=st.integers(1, 5),
)
def test_images_of_any_whole_patches_and_channels(
    pool: str, patch: int, channels: int, rows: int, columns: int
) -> None:
    model = ViT(dataclasses.replace(TINY, pooling=pool, patch_size=patch, in_channels=channels)).eval()
    y = model(torch.randn(2, channels, rows * patch, columns * patch))
    assert y.shape == (2, 3)
    assert y.isfinite().all()


@pytest.mark.parametrize("pool", POOLS)
def test_the_textbook_path_gives_the_same_network(pool: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = tiny(pooling=pool), normal(2, 2, 12, 12)
    fused = model(x)
    calls = []

    def written_out(self: MultiHeadAttention, x: Tensor, **how: Any) -> Tensor:
        result, weights = self.textbook(x, **how)
        calls.append(weights.shape)
        return result

    monkeypatch.setattr(MultiHeadAttention, "forward", written_out)
    torch.testing.assert_close(model(x), fused, rtol=1e-12, atol=1e-12)
    assert calls == [(2, 2, 10 if pool == "token" else 9, 10 if pool == "token" else 9)] * 2


# --- patches and positions ----------------------------------------------------------------------------------------


def shuffled(x: Tensor, order: list[int], patch: int) -> Tensor:
    """The images with their patches laid in another order."""
    pieces = F.unfold(x, patch, stride=patch)  # (N, C·P², T)
    return F.fold(pieces[:, :, order], tuple(x.shape[2:]), patch, stride=patch)


@settings(max_examples=15, deadline=None)
@given(pool=st.sampled_from(POOLS), order=st.permutations(range(9)))
def test_without_positions_the_order_of_patches_does_not_matter(pool: str, order: list[int]) -> None:
    model, x = tiny(pooling=pool), normal(2, 2, 12, 12)
    torch.nn.init.zeros_(model.positions)
    torch.testing.assert_close(model(shuffled(x, order, 4)), model(x), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("pool", POOLS)
def test_with_positions_it_does(pool: str) -> None:
    model, x = tiny(pooling=pool), normal(2, 2, 12, 12)
    assert (model(shuffled(x, list(range(8, -1, -1)), 4)) - model(x)).abs().max() > 1e-3


def test_tokens_stand_row_by_row() -> None:
    model = tiny(layers=1, pooling="mean")
    model.blocks = torch.nn.ModuleList()
    x = normal(1, 2, 8, 12)
    expected = model.patches(x[:, :, 4:, :4])[0, :, 0, 0] + interpolate_positions(model.positions, 0, (2, 3))[0, 3]
    torch.testing.assert_close(model.tokens(x)[0, 3], expected)


def test_at_the_same_size_positions_are_untouched() -> None:
    positions = normal(1, 10, 8)
    assert interpolate_positions(positions, 1, (3, 3)) is positions


@pytest.mark.parametrize("before", [0, 1])
@pytest.mark.parametrize("grid", [(6, 6), (2, 5), (1, 1), (3, 4)])
def test_positions_are_interpolated_number_by_number(before: int, grid: tuple[int, int]) -> None:
    positions = normal(1, before + 9, 4)
    found = interpolate_positions(positions, before, grid)
    assert found.shape == (1, before + grid[0] * grid[1], 4)
    assert torch.equal(found[:, :before], positions[:, :before])
    for d in range(4):
        picture = positions[0, before:, d].view(1, 1, 3, 3)
        expected = F.interpolate(picture, size=grid, mode="bicubic", align_corners=False)
        torch.testing.assert_close(found[0, before:, d], expected.flatten())


def test_there_and_back_is_the_first_shape() -> None:
    positions = normal(1, 10, 8)
    assert interpolate_positions(interpolate_positions(positions, 1, (6, 6)), 1, (3, 3)).shape == positions.shape


@settings(max_examples=25, deadline=None)
@given(side=st.integers(1, 6), rows=st.integers(1, 8), columns=st.integers(1, 8), value=st.floats(-9, 9))
def test_interpolation_keeps_what_is_level_and_what_is_mirrored(
    side: int, rows: int, columns: int, value: float
) -> None:
    def on(picture: Tensor) -> Tensor:
        """(S, S) to (rows, columns)."""
        return interpolate_positions(picture.reshape(1, -1, 1), 0, (rows, columns)).view(rows, columns)

    level = torch.full((side, side), value, dtype=torch.float64)
    torch.testing.assert_close(on(level), torch.full((rows, columns), value, dtype=torch.float64))
    picture = normal(side, side)
    torch.testing.assert_close(on(picture.flip(1)), on(picture).flip(1))


@pytest.mark.parametrize("pool", POOLS)
def test_weights_of_another_image_size_are_adapted(pool: str) -> None:
    model, x = tiny(pooling=pool), normal(2, 2, 20, 20)
    larger = tiny(pooling=pool, image_size=20)
    adapted = larger.adapt_state(model.state_dict())
    larger.load_state_dict(adapted)
    assert larger.positions.shape[1] == 25 + (pool == "token")
    torch.testing.assert_close(larger(x), model(x), rtol=1e-12, atol=1e-12)
    assert all(torch.equal(adapted[k], v) for k, v in model.state_dict().items() if k != "positions")


def test_what_needs_no_adapting_stays() -> None:
    model = tiny()
    state = model.state_dict()
    assert all(torch.equal(v, state[k]) for k, v in model.adapt_state(state).items())
    assert model.adapt_state({"norm.bias": state["norm.bias"]}).keys() == {"norm.bias"}
    without_token = tiny(pooling="mean").state_dict()["positions"]  # 9 positions: no class token and a square of 8
    assert model.adapt_state({"positions": without_token})["positions"] is without_token


def test_gradients_reach_positions_through_the_interpolation() -> None:
    model = tiny()
    model(normal(1, 2, 20, 20)).sum().backward()
    assert model.positions.grad is not None
    assert (model.positions.grad[0, :, 0] != 0).all()


# --- how it is computed -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pool", POOLS)
def test_channels_last_changes_no_result(pool: str) -> None:
    model, x = tiny(pooling=pool), normal(2, 2, 12, 12)
    expected = model(x)
    model = model.to(memory_format=torch.channels_last)
    torch.testing.assert_close(model(x.to(memory_format=torch.channels_last)), expected)


@pytest.mark.parametrize("pool", POOLS)
def test_tokens_lie_whole_in_memory(pool: str) -> None:
    assert tiny(pooling=pool).tokens(normal(2, 2, 12, 12)).is_contiguous()


def test_the_stream_of_tokens_keeps_its_precision_in_mixed_precision() -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert tiny().float().tokens(torch.randn(2, 2, 12, 12)).dtype == torch.float32


def test_dropout_is_for_training() -> None:
    model, x = tiny(dropout=0.5), normal(2, 2, 12, 12)
    assert torch.equal(model(x), model(x))
    model.train()
    assert not torch.equal(model(x), model(x))


@pytest.mark.parametrize("training", [False, True])
def test_it_compiles_without_a_break(training: bool) -> None:
    model = tiny(layers=1).train(training)
    compiled = compile_whole(copy.deepcopy(model), dynamic=False)
    for x in (normal(2, 2, 12, 12), normal(2, 2, 8, 16)):  # the second interpolates
        torch.testing.assert_close(compiled(x), model(x))


def test_first_weights() -> None:
    torch.manual_seed(0)
    model = create_model("vit-tiny/16", layers=1)
    assert model.patches.weight.std().item() == pytest.approx((3 * 16 * 16) ** -0.5, rel=0.02)
    assert model.positions.std().item() == pytest.approx(0.02, rel=0.02)
    assert model.blocks[0].mlp.fc1.weight.var().item() == pytest.approx(2 / (192 + 768), rel=0.02)
    assert not model.class_token.any()


# --- settings and rejections ----------------------------------------------------------------------------------------


def test_a_config_fits_a_data_set() -> None:
    fitted = Config.for_spec(PRESETS["vit-tiny/16"], ImageSpec(1, 32, 48, Classes(("a", "b", "c"))))
    assert (fitted.in_channels, fitted.num_classes, fitted.image_size, fitted.grid) == (1, 3, 48, 3)
    assert Config.for_spec(PRESETS["vit-tiny/16"], ImageSpec(1, 32, 32, Value())).num_classes == 1


def test_the_documented_setting_for_small_images() -> None:
    config = preset("vit-tiny/16").configure(
        ImageSpec(3, 32, 32, Classes(("a", "b"))), {"patch_size": "4", "layers": "1"}
    )
    assert (config.grid, config.least_size, config.size_step) == (8, 4, 4)
    assert preset("vit-tiny/16").build(config).tokens(torch.zeros(1, 3, 32, 32)).shape == (1, 65, 192)


@pytest.mark.parametrize("patch", [1, 4, 7])
def test_the_least_size_is_exact(patch: int) -> None:
    config = dataclasses.replace(TINY, patch_size=patch)
    model, least = ViT(config).eval(), config.least_size
    assert model(torch.zeros(1, 2, least, least)).shape == (1, 3)
    with pytest.raises(ModelError, match=f"at least {least}×{least} pixels"):
        model(torch.zeros(1, 2, least, least - 1))
    with pytest.raises(RuntimeError):
        model.patches(torch.zeros(1, 2, least, least - 1))


@pytest.mark.parametrize(("height", "width"), [(13, 12), (12, 13)])
def test_parts_of_patches_are_rejected_with_a_size_that_fits(height: int, width: int) -> None:
    with pytest.raises(ModelError, match=rf"4×4 pixels, and these are {height}×{width}.*image_size=16.*model\.patch"):
        tiny()(normal(1, 2, height, width))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("image_size", 0),
        ("patch_size", 0),
        ("dim", 0),
        ("layers", 0),
        ("heads", 0),
        ("heads", 5),  # 768 / 5
        ("ffn_dim", 0),
        ("pooling", "max"),
        ("dropout", 1.0),
        ("dropout", -0.1),
        ("in_channels", 0),
        ("num_classes", 0),
    ],
)
def test_bad_values_are_rejected_by_name(field: str, value: object) -> None:
    with pytest.raises(ModelError, match=rf"^Invalid {field}="):
        Config(**{field: value})
