"""The VGG networks: counts, receptive fields, sizes of images and rejections. The oracles are in tests/verify."""

from __future__ import annotations

import dataclasses
import re

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from cutaway.core.errors import ModelError
from cutaway.core.memory_budget import build_on_meta
from cutaway.core.spec import Classes, ImageSpec, Value
from cutaway.inspect.layers import LayerTable, layer_table
from cutaway.models.registry import preset
from cutaway.models.vgg import CARD, PRESETS, VGG, Config

from .contract import assert_keeps_the_contract, compile_whole

TINY = Config(stages=(1, 2), width=4, pool_to=2, hidden_dim=8, num_classes=3)


def published_table(name: str) -> LayerTable:
    x = torch.empty(1, *CARD.published[name].at, device="meta")
    return layer_table(build_on_meta(preset(name), PRESETS[name]), x)


@pytest.mark.parametrize("name", PRESETS)
def test_the_name_counts_the_layers(name: str) -> None:
    model = build_on_meta(preset(name), PRESETS[name])
    weighted = [m for m in model.modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    assert len(weighted) == int(re.findall(r"\d+", name)[0])
    normalizations = [m for m in model.modules() if isinstance(m, nn.BatchNorm2d)]
    assert len(normalizations) == (len(weighted) - 3 if name.endswith("-bn") else 0)


@pytest.mark.parametrize("name", PRESETS)
def test_counts_are_the_published_ones(name: str) -> None:
    layers, held = published_table(name), CARD.published[name]
    assert (layers.parameters, layers.multiply_adds, layers.complete) == (held.parameters, held.multiply_adds, True)


@pytest.mark.parametrize(
    ("name", "billions", "millions"),
    [("vgg11", 7.609, 133), ("vgg13", 11.308, 133), ("vgg16", 15.470, 138), ("vgg19", 19.632, 144)],
)
def test_the_card_agrees_with_torchvisions_metadata_and_the_papers_table_2(
    name: str, billions: float, millions: int
) -> None:
    held = CARD.published[name]
    assert held.multiply_adds == CARD.published[f"{name}-bn"].multiply_adds
    assert held.multiply_adds == pytest.approx(billions * 1e9, abs=0.5e6)
    assert round(held.parameters / 1e6) == millions


def test_three_convolutions_of_3x3_see_7x7_with_fewer_weights() -> None:
    model = VGG(dataclasses.replace(TINY, stages=(3,)))
    fields = [r.receptive_field for r in layer_table(model, torch.empty(1, 3, 16, 16)).rows if r.type == "Conv2d"]
    assert fields == [3, 5, 7]
    channels = 512
    assert 3 * nn.Conv2d(channels, channels, 3, bias=False, device="meta").weight.numel() == 27 * channels**2
    assert nn.Conv2d(channels, channels, 7, bias=False, device="meta").weight.numel() == 49 * channels**2


@pytest.mark.parametrize(("name", "pixels"), [("vgg11", 150), ("vgg13", 156), ("vgg16", 212), ("vgg19", 268)])
def test_the_last_map_sees_so_many_pixels(name: str, pixels: int) -> None:
    last = next(row for row in published_table(name).rows if row.name == "avgpool")
    assert (last.shape, last.receptive_field) == ((1, 512, 7, 7), pixels)


def test_fc6_has_three_quarters_of_the_parameters_and_few_where_the_map_is_one_cell() -> None:
    def fc6(config: Config) -> int:
        return sum(p.numel() for p in build_on_meta(preset("vgg16"), config).get_submodule("fc6").parameters())

    assert fc6(PRESETS["vgg16"]) == 7 * 7 * 512 * 4096 + 4096 == 102_764_544
    assert fc6(dataclasses.replace(PRESETS["vgg16"], pool_to=1)) == 512 * 4096 + 4096 == 2_101_248


@pytest.mark.parametrize("stages", [(1,), (1, 2), (1, 1, 2, 2, 2)])
def test_the_least_size_is_exact(stages: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    config = dataclasses.replace(TINY, stages=stages)
    model, least = VGG(config).eval(), config.least_size
    assert least == 2 ** len(stages)
    assert model(torch.randn(1, 3, least, least + 9)).shape == (1, 3)
    with pytest.raises(ModelError, match=rf"at least {least}×{least} pixels, and these are {least + 9}×{least - 1}"):
        model(torch.randn(1, 3, least + 9, least - 1))
    monkeypatch.setattr("cutaway.models.vgg.validate_image_size", lambda *args: None)
    with pytest.raises(RuntimeError, match="too small"):
        model(torch.randn(1, 3, least, least - 1))


@settings(max_examples=12, deadline=None)
@given(
    stages=st.sampled_from([(1,), (2, 1), (1, 1, 2, 1, 1)]),
    batch_norm=st.booleans(),
    pool_to=st.sampled_from([1, 2, 7]),
    channels=st.integers(1, 4),
    height=st.integers(32, 70),
    width=st.integers(32, 70),
)
def test_images_of_any_size_and_channels(
    stages: tuple[int, ...], batch_norm: bool, pool_to: int, channels: int, height: int, width: int
) -> None:
    config = dataclasses.replace(TINY, stages=stages, batch_norm=batch_norm, pool_to=pool_to, in_channels=channels)
    model = VGG(config).eval()
    maps: list[torch.Size] = []
    model.avgpool.register_forward_pre_hook(lambda module, args: maps.append(args[0].shape))
    x = torch.randn(2, channels, height, width)
    features = model.features(x)
    assert features.shape == (2, 8)
    assert torch.equal(model(x), model.fc8(features))
    halvings = 2 ** len(stages)
    assert maps[0] == (2, config.widths[-1], height // halvings, width // halvings)


@pytest.mark.parametrize("batch_norm", [False, True])
def test_the_contract(batch_norm: bool) -> None:
    torch.manual_seed(0)
    model = VGG(dataclasses.replace(TINY, batch_norm=batch_norm, hidden_dim=32, dropout=0.1))
    assert_keeps_the_contract(model, torch.randn(6, 3, 16, 16), outputs=3)


@pytest.mark.parametrize("batch_norm", [False, True])
def test_max_before_relu_is_relu_before_max(batch_norm: bool) -> None:
    model = VGG(dataclasses.replace(TINY, batch_norm=batch_norm)).eval()
    relu_first = list(model.convolutions)
    pools = [i for i, layer in enumerate(relu_first) if isinstance(layer, nn.MaxPool2d)]
    for i in pools:
        relu_first[i : i + 2] = relu_first[i + 1], relu_first[i]
    assert len(pools) == 2
    x = torch.randn(2, 3, 13, 10).requires_grad_()
    y = x.detach().clone().requires_grad_()
    ours, papers = model.convolutions(x), nn.Sequential(*relu_first)(y)
    assert torch.equal(ours, papers)
    upstream = torch.randn(ours.shape)
    ours.backward(upstream)
    papers.backward(upstream)
    assert torch.equal(x.grad, y.grad)


def test_what_is_written_in_place_is_never_the_input() -> None:
    x = torch.randn(2, 3, 16, 16)
    before = x.clone()
    VGG(TINY)(x)
    assert torch.equal(x, before)


@pytest.mark.parametrize("batch_norm", [False, True])
def test_channels_last_changes_no_result(batch_norm: bool) -> None:
    model = VGG(dataclasses.replace(TINY, batch_norm=batch_norm, dropout=0.0)).double()
    x = torch.randn(2, 3, 24, 17, dtype=torch.float64)
    expected = model(x)
    model = model.to(memory_format=torch.channels_last)
    torch.testing.assert_close(model(x.to(memory_format=torch.channels_last)), expected)


def test_initial_weights_have_the_standard_deviations_of_the_card() -> None:
    torch.manual_seed(0)
    model = VGG(Config(stages=(1, 1), width=64, pool_to=2, hidden_dim=128))
    convolution = model.convolutions[3].weight  # 64 to 128 channels
    assert convolution.var().item() == pytest.approx(2 / (9 * 128), rel=0.05)
    for layer in (model.fc6, model.fc7, model.fc8):
        assert layer.weight.std().item() == pytest.approx(0.01, rel=0.05)
    assert not any(p.any() for name, p in model.named_parameters() if name.endswith("bias"))


def test_dropout_is_after_both_hidden_layers() -> None:
    torch.manual_seed(0)
    model = VGG(dataclasses.replace(TINY, hidden_dim=64, dropout=0.9))
    with torch.no_grad():
        for p in model.parameters():
            p.fill_(0.1)  # nothing is zero but what is dropped
    sees_zeros: dict[str, bool] = {}
    for name in ("fc6", "fc7", "fc8"):
        model.get_submodule(name).register_forward_pre_hook(
            lambda module, args, name=name: sees_zeros.update({name: bool((args[0] == 0).any())})
        )
    x = torch.rand(8, 3, 16, 16)
    model.train()(x)
    assert sees_zeros == {"fc6": False, "fc7": True, "fc8": True}
    model.eval()(x)
    assert not any(sees_zeros.values())


@pytest.mark.parametrize("batch_norm", [False, True])
def test_a_few_images_can_be_learned(batch_norm: bool) -> None:
    torch.manual_seed(0)
    config = Config((1, 1, 2), width=8, batch_norm=batch_norm, pool_to=1, hidden_dim=64, dropout=0.0, num_classes=4)
    model = VGG(config)
    x, y = torch.randn(16, 3, 16, 16), torch.arange(16) % 4
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(60):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    assert (model(x).argmax(1) == y).all()


def test_a_config_fits_a_data_set() -> None:
    fitted = Config.for_spec(PRESETS["vgg16-bn"], ImageSpec(1, 28, 28, Classes(("a", "b", "c"))))
    assert fitted == dataclasses.replace(PRESETS["vgg16-bn"], in_channels=1, num_classes=3)
    assert Config.for_spec(PRESETS["vgg11"], ImageSpec(1, 28, 28, Value())).num_classes == 1


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("stages", ()),
        ("stages", (2, 0)),
        ("width", 0),
        ("pool_to", 0),
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


@pytest.mark.parametrize("batch_norm", [False, True])
@pytest.mark.parametrize("training", [True, False])
def test_it_compiles_without_a_break(batch_norm: bool, training: bool) -> None:
    model = VGG(dataclasses.replace(TINY, batch_norm=batch_norm)).train(training)
    x = torch.randn(2, 3, 16, 16)
    compiled = compile_whole(model)
    torch.manual_seed(0)
    found = compiled(x)
    torch.manual_seed(0)
    torch.testing.assert_close(found, model(x))
