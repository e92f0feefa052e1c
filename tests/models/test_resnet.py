"""The residual networks: counts, shapes, shortcuts, strides and rejections. The oracles are in tests/verify."""

from __future__ import annotations

import dataclasses
import math
import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from cutaway import create_model
from cutaway.core.errors import ModelError
from cutaway.core.memory_budget import build_on_meta
from cutaway.core.spec import Classes, ImageSpec, Value
from cutaway.inspect.layers import layer_table
from cutaway.models.registry import preset
from cutaway.models.resnet import BLOCKS, CARD, PRESETS, Config, ResNet, ZeroPadShortcut

from .contract import compile_whole

TINY = Config(layers=(1, 1), width=4, num_classes=3)


@pytest.mark.parametrize("name", PRESETS)
def test_the_name_counts_the_layers(name: str) -> None:
    model = build_on_meta(preset(name), PRESETS[name])
    weighted = [k for k, m in model.named_modules() if isinstance(m, nn.Conv2d | nn.Linear) and "downsample" not in k]
    assert len(weighted) == int(re.findall(r"\d+", name)[0])


@pytest.mark.parametrize("name", PRESETS)
def test_counts_are_the_published_ones(name: str) -> None:
    held = CARD.published[name]
    layers = layer_table(build_on_meta(preset(name), PRESETS[name]), torch.empty(1, *held.at, device="meta"))
    assert (layers.parameters, layers.multiply_adds, layers.complete) == (held.parameters, held.multiply_adds, True)


@pytest.mark.parametrize(
    ("name", "billions"),
    [("resnet18", 1.814), ("resnet34", 3.664), ("resnet50", 4.089), ("resnet101", 7.801), ("resnet152", 11.514)],
)
def test_the_card_agrees_with_torchvisions_metadata(name: str, billions: float) -> None:
    assert CARD.published[name].multiply_adds == pytest.approx(billions * 1e9, abs=0.5e6)


@pytest.mark.parametrize(
    ("name", "millions"),
    [
        ("resnet18-v2", 11.69),
        ("resnet34-v2", 21.80),
        ("resnet50-v2", 25.55),
        ("resnet101-v2", 44.54),
        ("resnet164-v2", 1.70),
    ],
)
def test_pre_activation_counts_round_to_those_of_timm_and_the_paper(name: str, millions: float) -> None:
    assert CARD.published[name].parameters == pytest.approx(millions * 1e6, abs=5e3)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("resnet20", 272_474),
        ("resnet32", 466_906),
        ("resnet44", 661_338),
        ("resnet56", 855_770),
        ("resnet110", 1_730_714),
    ],
)
def test_shortcut_b_has_the_parameters_of_option_b(name: str, parameters: int) -> None:
    model = build_on_meta(preset(name), dataclasses.replace(PRESETS[name], shortcut="B"))
    assert sum(p.numel() for p in model.parameters()) == parameters


@settings(max_examples=15, deadline=None)
@given(
    stem=st.sampled_from(["imagenet", "cifar"]),
    block=st.sampled_from(list(BLOCKS)),
    shortcut=st.sampled_from(["A", "B", "none"]),
    order=st.sampled_from(["post", "pre"]),
    channels=st.integers(1, 4),
    height=st.integers(1, 40),
    width=st.integers(1, 40),
)
def test_images_of_any_size_and_channels(
    stem: str, block: str, shortcut: str, order: str, channels: int, height: int, width: int
) -> None:
    config = dataclasses.replace(TINY, stem=stem, block=block, shortcut=shortcut, order=order, in_channels=channels)
    model = ResNet(config).eval()
    x = torch.randn(2, channels, height, width)
    maps: list[torch.Size] = []
    model.avgpool.register_forward_pre_hook(lambda module, args: maps.append(args[0].shape))
    assert model(x).shape == (2, 3)
    halvings = 3 if stem == "imagenet" else 1
    assert maps[0] == (2, 8 * BLOCKS[block].expansion, *(math.ceil(n / 2**halvings) for n in (height, width)))


def test_forward_is_the_head_of_the_features() -> None:
    model = create_model("resnet20").eval()
    x = torch.randn(2, 3, 32, 32)
    features = model.features(x)
    assert features.shape == (2, 64)
    assert torch.equal(model(x), model.fc(features))


@pytest.mark.parametrize("order", ["post", "pre"])
@pytest.mark.parametrize("shortcut", ["A", "B", "none"])
def test_what_is_written_in_place_is_never_the_input(shortcut: str, order: str) -> None:
    model = ResNet(dataclasses.replace(TINY, stem="cifar", shortcut=shortcut, order=order))
    x = torch.randn(2, 3, 8, 8)
    before = x.clone()
    model(x)
    assert torch.equal(x, before)


def test_channels_last_changes_no_result() -> None:
    model = ResNet(TINY).double()
    x = torch.randn(2, 3, 24, 24, dtype=torch.float64)
    expected = model(x)
    model = model.to(memory_format=torch.channels_last)
    torch.testing.assert_close(model(x.to(memory_format=torch.channels_last)), expected)


def test_shortcut_a_takes_every_second_pixel_between_zeros() -> None:
    x = torch.arange(1.0, 19.0).view(1, 2, 3, 3)
    y = ZeroPadShortcut(2, 5, stride=2)(x)
    assert y.shape == (1, 5, 2, 2)
    assert torch.equal(y[:, 1:3], x[:, :, ::2, ::2])
    assert not y[:, [0, 3, 4]].any()


def test_v1_strides_on_the_first_1x1_and_v15_on_the_3x3() -> None:
    strides = {}
    for name in ("resnet50", "resnet50-v1"):
        first = build_on_meta(preset(name), PRESETS[name]).get_submodule("layer2.0")
        strides[name] = (first.get_submodule("conv1").stride, first.get_submodule("conv2").stride)
    assert strides == {"resnet50": ((1, 1), (2, 2)), "resnet50-v1": ((2, 2), (1, 1))}


def stream(order: str, block: str = "basic", blocks: int = 5) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """z_l before and after each block of a stage with equal shapes, and F_l, the output of its last layer; float64."""
    torch.manual_seed(0)
    config = Config(layers=(1, blocks), block=block, width=6, stem="cifar", order=order, num_classes=3)
    model = ResNet(config).double().train()
    for norm in (module for module in model.modules() if isinstance(module, nn.BatchNorm2d)):
        nn.init.uniform_(norm.weight, 0.5, 1.5)
        nn.init.uniform_(norm.bias, -0.5, 0.5)
    stage = list(model.get_submodule("layer2").children())[1:]  # the first block changes the shape
    z: list[torch.Tensor] = []
    added: list[torch.Tensor] = []
    last = {("post", "basic"): "bn2", ("post", "bottleneck"): "bn3", ("pre", "basic"): "conv2"}
    for i, one in enumerate(stage):
        if i == 0:
            one.register_forward_pre_hook(lambda module, args: z.append(args[0]))
        one.register_forward_hook(lambda module, args, output: z.append(output))
        layer = one.get_submodule(last.get((order, block), "conv3"))
        layer.register_forward_hook(lambda module, args, output: added.append(output.clone()))
    model(torch.randn(4, 3, 16, 16, dtype=torch.float64))
    assert (len(z), len(added)) == (blocks, blocks - 1)
    return z, added


@pytest.mark.parametrize("block", list(BLOCKS))
def test_with_order_pre_each_output_is_the_first_input_plus_what_blocks_add(block: str) -> None:
    z, added = stream("pre", block)
    for last in range(1, len(z)):
        for first in range(last):
            total = z[first] + torch.stack(added[first:last]).sum(0)
            assert (z[last] - total).abs().max() <= 1e-12 * z[last].abs().max()
    total = torch.stack(added).sum(0)
    g = torch.randn(total.shape, dtype=torch.float64)
    (whole,) = torch.autograd.grad(z[-1], z[0], g, retain_graph=True)  # equation 5: g itself, and g through the sum
    (through,) = torch.autograd.grad(total, z[0], g)
    torch.testing.assert_close(whole, g + through, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("block", list(BLOCKS))
def test_with_order_post_the_relu_after_the_sum_breaks_it(block: str) -> None:
    z, added = stream("post", block)
    total = z[0] + torch.stack(added).sum(0)
    assert (z[-1] - total).norm() > 0.1 * z[-1].norm()


@pytest.mark.parametrize("order", ["post", "pre"])
@pytest.mark.parametrize("block", list(BLOCKS))
def test_zero_init_starts_each_block_as_its_shortcut_and_it_can_learn(block: str, order: str) -> None:
    torch.manual_seed(0)
    config = dataclasses.replace(TINY, layers=(2, 2), block=block, order=order, stem="cifar", zero_init=True)
    model = ResNet(config).train()
    for one in model.residual_blocks():
        one.register_forward_hook(check_identity)
    x, t = torch.randn(6, 3, 12, 12), torch.arange(6) % 3
    nn.functional.cross_entropy(model(x), t).backward()  # type: ignore[no-untyped-call]
    last = [one.get_submodule(zeroed(block, order)).weight for one in model.residual_blocks()]
    assert all(not w.any() and w.grad.any() for w in last)  # type: ignore[operator, union-attr]
    plain = ResNet(dataclasses.replace(config, zero_init=False))
    assert all(one.get_submodule(zeroed(block, order)).weight.any() for one in plain.residual_blocks())  # type: ignore[operator]


def zeroed(block: str, order: str) -> str:
    """The layer of a block whose weights zero_init sets to 0."""
    return {"post": "bn", "pre": "conv"}[order] + {"basic": "2", "bottleneck": "3"}[block]


def check_identity(block: nn.Module, args: tuple[torch.Tensor], output: torch.Tensor) -> None:
    """The block gives back its input, or where shapes change what its shortcut makes of it."""
    x = args[0]
    if x.shape == output.shape:
        assert torch.equal(output, x)
    elif hasattr(block, "shortcut_path"):
        assert torch.equal(output, block.shortcut_path(x))
    else:
        assert torch.equal(output, block.get_submodule("downsample")(x).relu())


def test_initial_weights_have_the_variance_of_the_paper() -> None:
    weight = ResNet(Config(layers=(1,), width=64)).get_submodule("layer1.0.conv1").weight
    n = 64 * 3 * 3
    assert weight.var().item() == pytest.approx(2 / n, rel=0.05)


def test_a_config_fits_a_data_set() -> None:
    fitted = Config.for_spec(PRESETS["resnet18"], ImageSpec(1, 28, 28, Classes(("a", "b", "c"))))
    assert (fitted.in_channels, fitted.num_classes, fitted.layers) == (1, 3, (2, 2, 2, 2))
    assert Config.for_spec(PRESETS["resnet18"], ImageSpec(1, 28, 28, Value())).num_classes == 1


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("layers", ()),
        ("layers", (2, 0)),
        ("block", "wide"),
        ("width", 0),
        ("stem", "mnist"),
        ("shortcut", "C"),
        ("stride_on", "5x5"),
        ("stride_on", "1x1"),  # in a basic block
        ("order", "mid"),
        ("in_channels", 0),
        ("num_classes", 0),
    ],
)
def test_bad_values_are_rejected_by_name(field: str, value: object) -> None:
    with pytest.raises(ModelError, match=rf"^Invalid {field}="):
        Config(**{field: value})


def test_zero_init_needs_a_shortcut() -> None:
    with pytest.raises(ModelError, match=r"^Invalid zero_init=True: .*shortcut=none"):
        Config(shortcut="none", zero_init=True)


@pytest.mark.parametrize("order", ["post", "pre"])
def test_it_compiles_without_a_break(order: str) -> None:
    model = ResNet(dataclasses.replace(TINY, stem="cifar", shortcut="A", order=order)).eval()
    x = torch.randn(2, 3, 8, 8)
    compiled = compile_whole(model)
    torch.testing.assert_close(compiled(x), model(x))
