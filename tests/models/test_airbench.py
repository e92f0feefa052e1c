"""The fast CIFAR-10 network: counts, the whitening, what begins as the identity, sizes and rejections."""

from __future__ import annotations

import dataclasses

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from cutaway.core.errors import ModelError
from cutaway.core.memory_budget import build_on_meta
from cutaway.core.spec import Classes, ImageSpec, Value
from cutaway.inspect.layers import layer_table
from cutaway.models import airbench
from cutaway.models.airbench import CARD, PRESETS, Airbench, Config, Group, Whitening
from cutaway.models.registry import preset
from cutaway.verify import oracle_for
from cutaway.verify.compare import compare

from .contract import assert_keeps_the_contract, compile_whole

TINY = Config(widths=(6, 10), num_classes=3)


def smooth(n: int = 40, channels: int = 3, side: int = 12, seed: int = 0) -> Tensor:
    """Images whose neighbouring pixels and channels are alike, as those of photographs are."""
    noise = torch.randn(n, 1, side + 2, side + 2, generator=torch.Generator().manual_seed(seed))
    grey = F.avg_pool2d(noise, 3, stride=1)
    own = torch.randn(n, channels, side, side, generator=torch.Generator().manual_seed(seed + 1))
    return grey + 0.3 * own


def test_counts_are_the_published_ones() -> None:
    held = CARD.published["airbench94"]
    layers = layer_table(
        build_on_meta(preset("airbench94"), PRESETS["airbench94"]), torch.empty(1, *held.at, device="meta")
    )
    assert (layers.parameters, layers.multiply_adds, layers.complete) == (held.parameters, held.multiply_adds, True)


def test_the_counts_give_the_figures_of_the_paper() -> None:
    held = CARD.published["airbench94"]
    assert held.parameters == pytest.approx(1.97e6, abs=0.005e6)
    updates = int(48 * 9.9) + 1  # 48 whole batches of 1 024 in an epoch
    passes = 3 * updates * 1024 + 6 * 10_000  # forward and twice backward; six views of each test image
    assert held.multiply_adds is not None
    assert 2 * held.multiply_adds * passes == pytest.approx(3.6e14, abs=0.05e14)


@settings(max_examples=20, deadline=None)
@given(channels=st.integers(1, 4), side=st.integers(3, 9), seed=st.integers(0, 100))
def test_fitted_to_images_it_makes_their_patches_white(channels: int, side: int, seed: int) -> None:
    images = smooth(60, channels, side, seed).double()
    layer = Whitening(channels).double()
    layer.fit(images)
    values = layer(images).transpose(0, 1).flatten(1)  # (8C, patches)
    size = 4 * channels
    assert torch.equal(layer.weight[size:], -layer.weight[:size])
    lengths = layer.weight[:size].flatten(1).norm(dim=1)  # 1 / √(λ + ε)
    assert (lengths.diff() > -1e-9).all()  # the directions of most variance first
    moments = values[:size] @ values[:size].T / values.shape[1]
    variances = moments.diag()
    torch.testing.assert_close(moments, variances.diag(), atol=1e-9, rtol=0)  # uncorrelated
    assert (variances > 0.95).all()  # λ / (λ + ε), for λ of 0.09 and more
    assert (variances < 1).all()


def test_directions_in_which_nothing_varies_are_not_blown_up() -> None:
    layer = Whitening(3)
    layer.fit(smooth(8, 1, 6).expand(-1, 3, -1, -1))  # grey: three channels alike
    assert layer.weight.isfinite().all()
    assert layer.weight.abs().max() <= airbench.EPSILON**-0.5


def test_of_very_many_images_the_first_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    images = smooth(10, side=6)
    whole, first = Whitening(3), Whitening(3)
    first.fit(images[:4])
    whole.fit(images)
    assert not torch.equal(whole.weight, first.weight)
    monkeypatch.setattr(airbench, "MAX_PATCHES", 4 * 25)  # an image of 6×6 has 25 patches
    monkeypatch.setattr(airbench, "PATCH_CHUNK", 30)  # and one of them is looked at at a time
    whole.fit(images)
    torch.testing.assert_close(whole.weight.abs(), first.weight.abs())  # the sign of an eigenvector is nobody's


def test_the_first_kernel_comes_from_images_and_stays() -> None:
    torch.manual_seed(0)
    model = Airbench(TINY)
    before = model.whiten.weight.clone()
    model.initialize_from(smooth())
    fitted = model.whiten.weight.clone()
    assert not torch.equal(fitted, before)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    F.cross_entropy(model(smooth()), torch.arange(40) % 3).backward()
    optimizer.step()
    assert torch.equal(model.whiten.weight, fitted)
    assert model.whiten.bias.any()


def test_before_it_has_seen_images_the_first_kernel_whitens_noise() -> None:
    basis = Whitening(2).weight[:8].flatten(1)
    torch.testing.assert_close(basis @ basis.T, torch.eye(8))


def test_a_group_begins_as_the_identity_on_the_channels_it_takes() -> None:
    group = Group(5, 9)
    x = torch.randn(2, 5, 8, 8)
    assert torch.equal(group.conv1(x)[:, :5], x)
    assert not torch.allclose(group.conv1(x)[:, 5:], torch.zeros(()))
    y = torch.randn(2, 9, 4, 4)
    assert torch.equal(group.conv2(y), y)


def test_normalization_learns_no_scale_and_follows_the_last_batches() -> None:
    norm = airbench.BatchNorm(3)
    assert [name for name, _ in norm.named_parameters()] == ["bias"]
    x = torch.randn(50, 3, 4, 4) * 5 + 2
    y = norm(x)
    torch.testing.assert_close(y.std((0, 2, 3), correction=0), torch.ones(3))
    torch.testing.assert_close(norm.running_mean, 0.4 * x.mean((0, 2, 3)))


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_the_oracle_agrees_on_any_channels_and_groups(channels: int) -> None:
    config = Config(widths=(5, 7, 6), in_channels=channels, num_classes=4)
    torch.manual_seed(channels)
    model = Airbench(config)
    model.initialize_from(smooth(20, channels))
    assert compare(model, oracle_for("airbench94", config), torch.Generator().manual_seed(1)).equal


@settings(max_examples=15, deadline=None)
@given(channels=st.integers(1, 4), height=st.integers(5, 30), width=st.integers(5, 30))
def test_images_of_any_size_and_channels(channels: int, height: int, width: int) -> None:
    model = Airbench(dataclasses.replace(TINY, in_channels=channels)).eval()
    x = torch.randn(2, channels, height, width)
    assert model.features(x).shape == (2, 10)
    assert model(x).shape == (2, 3)


@pytest.mark.parametrize("config", [PRESETS["airbench94"], TINY])
def test_the_least_size_is_the_least(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    model, least = Airbench(config).eval(), config.least_size
    assert model(torch.zeros(1, 3, least, least)).shape == (1, config.num_classes)
    small = torch.zeros(1, 3, least - 1, least)
    with pytest.raises(ModelError, match=f"at least {least}×{least} pixels"):
        model(small)
    with pytest.raises(ModelError, match=f"at least {least}×{least} pixels"):
        model.initialize_from(small)
    monkeypatch.setattr(airbench, "validate_image_size", lambda *args: None)
    with pytest.raises(RuntimeError, match="Output size is too small"):
        model(small)


def test_it_keeps_the_contract() -> None:
    torch.manual_seed(0)
    assert_keeps_the_contract(Airbench(TINY), smooth(7), 3)


def test_the_logits_are_a_ninth_of_the_head() -> None:
    model = Airbench(TINY).eval()
    x = smooth(2)
    torch.testing.assert_close(9 * model(x), model.head(model.features(x)))


def test_channels_last_changes_no_result() -> None:
    model = Airbench(TINY).double()
    x = smooth(5).double()
    expected = model(x)
    model = model.to(memory_format=torch.channels_last)
    torch.testing.assert_close(model(x.to(memory_format=torch.channels_last)), expected)


def test_a_config_fits_a_data_set() -> None:
    fitted = Config.for_spec(PRESETS["airbench94"], ImageSpec(1, 28, 28, Classes(("a", "b"))))
    assert (fitted.in_channels, fitted.num_classes, fitted.widths) == (1, 2, (64, 256, 256))
    assert Config.for_spec(PRESETS["airbench94"], ImageSpec(1, 28, 28, Value())).num_classes == 1


@pytest.mark.parametrize("shape", [(4, 1, 12, 12), (3, 12, 12)])
def test_images_it_was_not_built_for_are_rejected(shape: tuple[int, ...]) -> None:
    with pytest.raises(ModelError, match=r"was built for images \(N, 3, H, W\)"):
        Airbench(TINY).initialize_from(torch.zeros(shape))


@pytest.mark.parametrize(
    ("field", "value"), [("widths", ()), ("widths", (4, 0)), ("in_channels", 0), ("num_classes", 0)]
)
def test_bad_values_are_rejected_by_name(field: str, value: object) -> None:
    with pytest.raises(ModelError, match=f"^Invalid {field}="):
        Config(**{field: value})


@pytest.mark.parametrize("training", [True, False])
def test_it_compiles_without_a_break(training: bool) -> None:
    torch.manual_seed(0)
    model = Airbench(TINY).train(training)
    x = smooth(4)
    torch.testing.assert_close(compile_whole(model)(x), model(x))
