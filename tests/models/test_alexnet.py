"""AlexNet: counts, towers, normalization, sizes of images and rejections. The oracles are in tests/verify."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from cutaway import create_model
from cutaway.core.errors import ModelError
from cutaway.core.memory_budget import build_on_meta
from cutaway.core.spec import Classes, ImageSpec, Value
from cutaway.inspect.layers import LayerTable, layer_table
from cutaway.models.alexnet import CARD, PRESETS, AlexNet, Config, LocalResponse
from cutaway.models.registry import preset

from .contract import assert_keeps_the_contract, compile_whole

TINY = Config(stem="small", widths=(4, 6, 8, 6, 4), hidden_dim=8, num_classes=3)
FORMS = ("2014", "2012")


def lively(config: Config) -> AlexNet:
    """Initialized for narrow layers: weights of standard deviation 0.01, the original's, leave little of an input."""
    model = AlexNet(config)
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(layer.weight)
            nn.init.constant_(layer.bias, 0.1)
    return model


def published_table(name: str) -> LayerTable:
    x = torch.empty(1, *CARD.published[name].at, device="meta")
    return layer_table(build_on_meta(preset(name), PRESETS[name]), x)


@pytest.mark.parametrize("name", PRESETS)
def test_counts_are_the_published_ones(name: str) -> None:
    layers, held = published_table(name), CARD.published[name]
    assert (layers.parameters, layers.multiply_adds, layers.complete) == (held.parameters, held.multiply_adds, True)


def test_the_card_agrees_with_torchvisions_metadata() -> None:
    assert CARD.published["alexnet"].multiply_adds == pytest.approx(0.714e9, abs=0.5e6)


def test_the_units_of_each_layer_are_the_papers() -> None:
    units = {row.name: math.prod(row.shape) for row in published_table("alexnet-2012").rows}
    named = [units[name] for name in ("conv2", "conv3", "conv4", "conv5", "fc6", "fc7", "fc8")]
    assert named == [186_624, 64_896, 64_896, 43_264, 4096, 4096, 1000]
    assert units["conv1"] == 55 * 55 * 96  # where the paper says 253 440, which is 55·48·96
    assert units["conv1"] + sum(named) == pytest.approx(650_000, rel=0.02)


@pytest.mark.parametrize("name", PRESETS)
def test_fc6_sees_what_pooling_has_left(name: str) -> None:
    fc6 = next(row for row in published_table(name).rows if row.name == "fc6")
    assert fc6.parameters == 6 * 6 * 256 * 4096 + 4096 == 37_752_832
    assert 13 * 13 * 256 * 4096 == 177_209_344  # of the map before the last pooling, as is often said


def test_the_first_map_of_55_pixels_needs_227_or_padding() -> None:
    assert (224 - 11) / 4 + 1 == 54.25
    sides = {(name, size): first_side(name, size) for name in PRESETS for size in (224, 227)}
    assert sides == {
        ("alexnet", 224): 55,
        ("alexnet", 227): 56,
        ("alexnet-2012", 224): 54,
        ("alexnet-2012", 227): 55,
    }


def first_side(name: str, size: int) -> int:
    conv1 = build_on_meta(preset(name), PRESETS[name]).get_submodule("conv1")
    return int(conv1(torch.empty(1, 3, size, size, device="meta")).shape[2])


@pytest.mark.parametrize("name", PRESETS)
def test_the_published_size_fills_the_grid_cell_by_cell(name: str) -> None:
    maps: list[torch.Size] = []
    model = build_on_meta(preset(name), PRESETS[name])
    model.get_submodule("avgpool").register_forward_pre_hook(lambda module, args: maps.append(args[0].shape))
    model(torch.empty(1, *CARD.published[name].at, device="meta"))
    assert maps == [(1, 256, 6, 6)]


@pytest.mark.parametrize("name", PRESETS)
def test_the_last_map_sees_195_pixels(name: str) -> None:
    assert next(row for row in published_table(name).rows if row.name == "avgpool").receptive_field == 195


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("stem", ["imagenet", "small"])
def test_the_least_size_is_exact(form: str, stem: str, monkeypatch: pytest.MonkeyPatch) -> None:
    config = dataclasses.replace(TINY, form=form, stem=stem)
    model, least = AlexNet(config).eval(), config.least_size
    assert least == {"imagenet": {"2014": 63, "2012": 67}[form], "small": 15}[stem]
    assert model(torch.randn(1, 3, least, least + 9)).shape == (1, 3)
    with pytest.raises(ModelError, match=rf"at least {least}×{least} pixels, and these are {least + 9}×{least - 1}"):
        model(torch.randn(1, 3, least + 9, least - 1))
    monkeypatch.setattr("cutaway.models.alexnet.validate_image_size", lambda *args: None)
    with pytest.raises(RuntimeError, match="too small"):
        model(torch.randn(1, 3, least, least - 1))


@settings(max_examples=12, deadline=None)
@given(
    form=st.sampled_from(FORMS),
    stem=st.sampled_from(["imagenet", "small"]),
    channels=st.integers(1, 4),
    height=st.integers(67, 110),
    width=st.integers(67, 110),
)
def test_images_of_any_size_and_channels(form: str, stem: str, channels: int, height: int, width: int) -> None:
    config = dataclasses.replace(TINY, form=form, stem=stem, in_channels=channels)
    model = AlexNet(config).eval()
    x = torch.randn(2, channels, height, width)
    features = model.features(x)
    assert features.shape == (2, 8)
    assert torch.equal(model(x), model.fc8(features))


@pytest.mark.parametrize("form", FORMS)
def test_the_contract(form: str) -> None:
    torch.manual_seed(0)
    model = lively(dataclasses.replace(TINY, form=form, dropout=0.1))
    assert_keeps_the_contract(model, torch.randn(6, 3, 32, 32), outputs=3)


@pytest.mark.parametrize("form", FORMS)
def test_what_is_written_in_place_is_never_the_input(form: str) -> None:
    model = AlexNet(dataclasses.replace(TINY, form=form))
    x = torch.randn(2, 3, 32, 32)
    before = x.clone()
    model(x)
    assert torch.equal(x, before)


@pytest.mark.parametrize("form", FORMS)
def test_channels_last_changes_no_result(form: str) -> None:
    model = AlexNet(dataclasses.replace(TINY, form=form)).double().eval()
    x = torch.randn(2, 3, 40, 33, dtype=torch.float64)
    expected = model(x)
    model = model.to(memory_format=torch.channels_last)
    torch.testing.assert_close(model(x.to(memory_format=torch.channels_last)), expected)


def test_a_tower_does_not_see_the_other_before_conv3() -> None:
    model = AlexNet(dataclasses.replace(TINY, form="2012"))
    x = torch.randn(1, 4, 9, 9, requires_grad=True)
    model.conv2(x)[:, :3].sum().backward()  # the first tower
    seen = x.grad.abs().amax((0, 2, 3)) > 0
    assert seen.tolist() == [True, True, False, False]
    assert model.conv3(torch.randn(1, 6, 9, 9)).shape == (1, 8, 9, 9)  # of all six maps


@settings(max_examples=20, deadline=None)
@given(maps=st.integers(1, 9), seed=st.integers(0, 2**31))
def test_normalization_is_the_sum_over_five_neighbouring_maps(maps: int, seed: int) -> None:
    a = 30 * torch.randn(2, maps, 2, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    b = LocalResponse()(a)
    torch.testing.assert_close(b, F.local_response_norm(a, 5, alpha=5 * 1e-4, beta=0.75, k=2.0))
    i = maps // 2
    total = (a[:, max(0, i - 2) : i + 3] ** 2).sum(1)
    torch.testing.assert_close(b[:, i], a[:, i] / (2 + 1e-4 * total) ** 0.75)


def test_normalization_is_there_as_published_and_not_in_one_tower() -> None:
    called: list[tuple[int, ...]] = []

    def noted(module: nn.Module, args: tuple[torch.Tensor, ...]) -> None:
        if isinstance(module, nn.LocalResponseNorm):
            called.append(tuple(args[0].shape))
            assert args[0].min() >= 0  # after the ReLU

    handle = nn.modules.module.register_module_forward_pre_hook(noted)
    try:
        for form in FORMS:
            AlexNet(dataclasses.replace(TINY, form=form))(torch.randn(1, 3, 32, 32))
    finally:
        handle.remove()
    assert called == [(1, 4, 32, 32), (1, 6, 15, 15)]


def test_the_original_begins_as_its_paper_says() -> None:
    torch.manual_seed(0)
    model = AlexNet(dataclasses.replace(PRESETS["alexnet-2012"], hidden_dim=64))
    layers = {name: layer for name, layer in model.named_modules() if isinstance(layer, nn.Conv2d | nn.Linear)}
    for name, layer in layers.items():
        assert layer.weight.std().item() == pytest.approx(0.01, rel=0.03), name
        assert layer.weight.mean().abs().item() < 3e-4, name
    ones = {name for name, layer in layers.items() if bool((layer.bias == 1).all())}
    assert ones == {"conv2", "conv4", "conv5", "fc6", "fc7"}
    assert all(not layers[name].bias.any() for name in set(layers) - ones)


def test_after_a_small_stem_the_original_begins_as_pytorch_does() -> None:
    conv1 = AlexNet(dataclasses.replace(PRESETS["alexnet-2012"], stem="small", hidden_dim=4)).conv1
    assert conv1.weight.abs().max().item() == pytest.approx(1 / math.sqrt(3 * 3 * 3), rel=0.02)  # uniform up to there


@pytest.mark.parametrize(("form", "drops"), [("2014", ["fc6", "fc7"]), ("2012", ["fc7", "fc8"])])
def test_dropout_is_where_the_network_has_it(form: str, drops: list[str]) -> None:
    torch.manual_seed(0)
    model = AlexNet(dataclasses.replace(TINY, form=form, hidden_dim=64, dropout=0.9))
    with torch.no_grad():
        for p in model.parameters():
            p.fill_(0.1)  # nothing is zero but what is dropped
    sees_zeros: dict[str, bool] = {}
    for name in ("fc6", "fc7", "fc8"):
        model.get_submodule(name).register_forward_pre_hook(
            lambda module, args, name=name: sees_zeros.update({name: bool((args[0] == 0).any())})
        )
    x = torch.rand(8, 3, 32, 32)
    model.train()(x)
    assert [name for name, zeros in sees_zeros.items() if zeros] == drops
    model.eval()(x)
    assert not any(sees_zeros.values())


def test_small_images_need_no_interpolation() -> None:
    maps: list[torch.Size] = []
    model = AlexNet(TINY).eval()
    model.avgpool.register_forward_pre_hook(lambda module, args: maps.append(args[0].shape))
    model(torch.randn(1, 3, 32, 32))
    assert maps == [(1, 4, 3, 3)]
    assert model.fc6.in_features == 4 * 3 * 3


@pytest.mark.parametrize("form", FORMS)
def test_a_few_images_can_be_learned(form: str) -> None:
    torch.manual_seed(0)
    model = lively(
        Config(form=form, stem="small", widths=(8, 16, 16, 16, 16), hidden_dim=64, dropout=0.0, num_classes=4)
    )
    x, y = torch.randn(16, 3, 32, 32), torch.arange(16) % 4
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(60):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    assert (model.eval()(x).argmax(1) == y).all()


def test_a_config_fits_a_data_set() -> None:
    fitted = Config.for_spec(PRESETS["alexnet-2012"], ImageSpec(1, 28, 28, Classes(("a", "b", "c"))))
    assert fitted == dataclasses.replace(PRESETS["alexnet-2012"], in_channels=1, num_classes=3)
    assert Config.for_spec(PRESETS["alexnet"], ImageSpec(1, 28, 28, Value())).num_classes == 1


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("form", "2013"),
        ("stem", "cifar"),
        ("widths", (64, 192)),
        ("widths", (64, 192, 384, 256, 0)),
        ("hidden_dim", 0),
        ("dropout", 1.0),
        ("dropout", -0.1),
        ("in_channels", 0),
        ("num_classes", 0),
    ],
)
def test_bad_values_are_rejected_by_name(field: str, value: object) -> None:
    with pytest.raises(ModelError, match=rf"^Invalid {field}="):
        Config(**{field: value})


def test_two_towers_need_even_widths() -> None:
    with pytest.raises(ModelError, match=r"^Invalid widths=.*divisible by the number of towers"):
        Config(form="2012", widths=(96, 255, 384, 384, 256))
    assert create_model("alexnet", widths=(3, 5, 7, 5, 3), hidden_dim=4, stem="small").conv2.out_channels == 5


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("training", [True, False])
def test_it_compiles_without_a_break(form: str, training: bool) -> None:
    model = AlexNet(dataclasses.replace(TINY, form=form)).train(training)
    x = torch.randn(2, 3, 32, 32)
    compiled = compile_whole(model)
    torch.manual_seed(0)
    found = compiled(x)
    torch.manual_seed(0)
    torch.testing.assert_close(found, model(x))
