"""The densely connected networks: counts, connections, sizes, recomputation, rejections. Oracles: tests/verify."""

from __future__ import annotations

import copy
import dataclasses
import re
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from cutaway.core.errors import ModelError
from cutaway.core.memory_budget import build_on_meta
from cutaway.core.spec import Classes, ImageSpec, Value
from cutaway.inspect.layers import layer_table
from cutaway.models import densenet
from cutaway.models.densenet import CARD, PRESETS, Config, DenseBlock, DenseLayer, DenseNet, Transition, cifar
from cutaway.models.registry import preset

from .contract import assert_keeps_the_contract, compile_whole

TINY = Config(layers=(2, 3), growth_rate=3, stem="cifar", stem_channels=4, num_classes=3)


@pytest.mark.parametrize("name", PRESETS)
def test_the_name_counts_the_layers(name: str) -> None:
    model = build_on_meta(preset(name), PRESETS[name])
    weighted = [m for m in model.modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    assert len(weighted) == int(re.findall(r"\d+", name)[0])


@pytest.mark.parametrize("name", PRESETS)
def test_counts_are_the_published_ones(name: str) -> None:
    held = CARD.published[name]
    layers = layer_table(build_on_meta(preset(name), PRESETS[name]), torch.empty(1, *held.at, device="meta"))
    assert (layers.parameters, layers.multiply_adds, layers.complete) == (held.parameters, held.multiply_adds, True)


@pytest.mark.parametrize(
    ("name", "billions"),
    [("densenet121", 2.834), ("densenet161", 7.728), ("densenet169", 3.360), ("densenet201", 4.291)],
)
def test_the_card_agrees_with_torchvisions_metadata(name: str, billions: float) -> None:
    assert CARD.published[name].multiply_adds == pytest.approx(billions * 1e9, abs=0.5e6)


@pytest.mark.parametrize(
    ("config", "parameters", "millions"),  # the latter in the paper's table 2
    [
        (cifar(40, 12), 1_019_722, 1.0),
        (cifar(100, 12), 6_979_642, 7.0),
        (cifar(100, 24), 27_249_082, 27.2),
        (cifar(100, 12, bc=True), 769_162, 0.8),
        (cifar(250, 24, bc=True), 15_324_406, 15.3),
        (cifar(190, 40, bc=True), 25_624_430, 25.6),
    ],
    ids=["40-12", "100-12", "100-24", "bc-100-12", "bc-250-24", "bc-190-40"],
)
def test_the_cifar_family_has_the_parameters_of_the_papers_table(
    config: Config, parameters: int, millions: float
) -> None:
    with torch.device("meta"):
        model = DenseNet(config)
    assert sum(p.numel() for p in model.parameters()) == parameters
    assert round(parameters / 1e6, 1) == millions


@pytest.mark.parametrize("stem", ["imagenet", "cifar"])
@pytest.mark.parametrize("bottleneck", [True, False])
@pytest.mark.parametrize("recompute", [True, False])
def test_it_keeps_the_contract(stem: str, bottleneck: bool, recompute: bool) -> None:
    model = DenseNet(dataclasses.replace(TINY, stem=stem, bottleneck=bottleneck, recompute=recompute))
    assert_keeps_the_contract(model, torch.randn(3, 3, 16, 12), outputs=3)


# --- connections --------------------------------------------------------------------------------------------------


def test_a_layer_sees_all_maps_before_it_and_adds_its_own() -> None:
    block = DenseBlock(4, 5, TINY).eval()
    seen: list[Tensor] = []
    added: list[Tensor] = []
    for layer in block:
        layer.register_forward_pre_hook(lambda module, args: seen.append(torch.cat(args, 1)))
        layer.register_forward_hook(lambda module, args, result: added.append(result))
    x = torch.randn(2, 5, 4, 4)
    y = block(x)
    assert y.shape == (2, 5 + 4 * TINY.growth_rate, 4, 4)
    assert torch.equal(y, torch.cat((x, *added), 1))
    for i in range(4):
        assert torch.equal(seen[i], torch.cat((x, *added[:i]), 1))


@settings(max_examples=10, deadline=None)
@given(layers=st.integers(1, 4), source=st.integers(0, 4), bottleneck=st.booleans())
def test_a_map_reaches_all_that_come_after_it_and_none_before(layers: int, source: int, bottleneck: bool) -> None:
    torch.manual_seed(layers)
    source = min(source, layers)
    block = DenseBlock(layers, 3, dataclasses.replace(TINY, bottleneck=bottleneck)).eval()
    x = torch.randn(1, 3, 4, 4)
    before = block(x)
    if source > 0:
        block[source - 1].register_forward_hook(lambda module, args, result: result + 1)
    moved = block(x + 1 if source == 0 else x) - before
    maps = moved.split([3] + [TINY.growth_rate] * layers, dim=1)
    assert [bool(m.detach().any()) for m in maps] == [i >= source for i in range(layers + 1)]


def test_norm_and_relu_come_before_each_convolution() -> None:
    config = dataclasses.replace(TINY, bottleneck=True)
    layer = DenseLayer(5, config).eval()
    x = torch.randn(2, 5, 4, 4)
    expected = layer.conv2(torch.relu(layer.norm2(layer.conv1(torch.relu(layer.norm1(x))))))
    assert torch.equal(layer(x), expected)


def test_a_transition_compresses_and_halves() -> None:
    transition = Transition(5, 2, TINY).eval()
    x = torch.randn(1, 5, 5, 4)
    y = torch.relu(transition.norm(x)).permute(0, 2, 3, 1) @ transition.conv.weight[:, :, 0, 0].T  # (1, 5, 4, 2)
    expected = y[:, :4].reshape(1, 2, 2, 2, 2, 2).mean((2, 4)).permute(0, 3, 1, 2)
    torch.testing.assert_close(transition(x), expected)


def test_compression_rounds_down() -> None:
    assert dataclasses.replace(TINY, stem_channels=5, compression=0.5).enters == (5, 5)  # ⌊(5 + 2·3)/2⌋
    assert dataclasses.replace(TINY, stem_channels=5, compression=1.0).enters == (5, 11)


def test_the_stem_of_the_cifar_family_keeps_the_size_and_has_no_norm() -> None:
    model = DenseNet(TINY)
    assert not hasattr(model, "norm0")
    assert model.conv0(torch.randn(1, 3, 9, 7)).shape == (1, 4, 9, 7)


# --- sizes --------------------------------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(
    stem=st.sampled_from(["imagenet", "cifar"]),
    blocks=st.integers(1, 4),
    channels=st.integers(1, 4),
    taller=st.integers(0, 9),
    wider=st.integers(0, 9),
)
def test_images_of_any_size_from_the_least_one_on(
    stem: str, blocks: int, channels: int, taller: int, wider: int
) -> None:
    config = dataclasses.replace(TINY, stem=stem, layers=(1,) * blocks, in_channels=channels)
    model = DenseNet(config).eval()
    least = config.least_size
    assert model(torch.randn(2, channels, least + taller, least + wider)).shape == (2, 3)


@pytest.mark.parametrize("stem", ["imagenet", "cifar"])
@pytest.mark.parametrize("blocks", [2, 3, 4])
def test_the_least_size_is_exact(stem: str, blocks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    config = dataclasses.replace(TINY, stem=stem, layers=(1,) * blocks)
    model = DenseNet(config).eval()
    least = config.least_size
    too_small = torch.randn(1, 3, least, least - 1)
    assert model(torch.randn(1, 3, least, least)).isfinite().all()
    with pytest.raises(ModelError, match=f"densenet needs images of at least {least}×{least}"):
        model(too_small)
    monkeypatch.setattr(densenet, "validate_image_size", lambda *args: None)
    with pytest.raises(RuntimeError, match="too small"):
        model(too_small)


def test_the_presets_take_images_from_these_sizes_on() -> None:
    assert {name: config.least_size for name, config in PRESETS.items()} == {
        "densenet121": 29,
        "densenet161": 29,
        "densenet169": 29,
        "densenet201": 29,
        "densenet-40-12": 4,
        "densenet-bc-100-12": 4,
    }


# --- recomputation ------------------------------------------------------------------------------------------------


def pair(**changes: Any) -> tuple[DenseNet, DenseNet]:
    """Two networks with the same weights, without recomputation and with."""
    config = dataclasses.replace(TINY, **changes)
    plain, saving = DenseNet(config), DenseNet(dataclasses.replace(config, recompute=True))
    saving.load_state_dict(plain.state_dict())
    return plain, saving


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(
    "changes", [{}, {"bottleneck": False}, {"dropout": 0.2}, {"stem": "imagenet"}], ids=["bc", "c", "dropout", "stem"]
)
def test_recomputation_changes_no_bit(changes: dict[str, Any], training: bool) -> None:
    results = []
    for model in pair(**changes):
        model.train(training)
        torch.manual_seed(1)
        x = torch.randn(4, 3, 12, 12, requires_grad=True)
        for _ in range(2):
            y = model(x)
            y.backward(torch.randn(y.shape))
        results.append([y, x.grad, *(p.grad for p in model.parameters()), *model.state_dict().values()])
    assert all(torch.equal(a, b) for a, b in zip(*results))


def test_recomputation_counts_a_batch_once() -> None:
    _, model = pair()
    model(torch.randn(4, 3, 8, 8)).sum().backward()
    norm = model.get_submodule("denseblock1.denselayer1.norm1")
    assert norm.num_batches_tracked == 1
    assert (norm.running_mean != 0).all()


def test_statistics_are_put_back_where_recomputation_fails() -> None:
    norm = nn.BatchNorm2d(2)
    before = dict(norm.named_buffers())

    def fail() -> None:
        with densenet.preserve_running_stats(norm):
            norm(torch.randn(3, 2, 4, 4) + 1)
            raise RuntimeError("on the way")

    with pytest.raises(RuntimeError, match="on the way"):
        fail()
    after = dict(norm.named_buffers())
    assert list(after) == list(before)
    assert all(after[name] is before[name] for name in before)
    assert norm.num_batches_tracked == 0
    assert not norm.running_mean.any()


def kept_bytes(model: DenseNet) -> int:
    """Bytes of what stays for the backward pass: tensors that autograd saves, and maps held to recompute from."""
    kept: dict[int, Tensor] = {}  # by address; the tensors are held, so that no address is used again

    def note(x: Tensor) -> Tensor:
        kept[x.untyped_storage().data_ptr()] = x
        return x

    for layer in model.modules():
        if isinstance(layer, DenseLayer):
            layer.register_forward_pre_hook(lambda module, args: [note(x) for x in args] and None)
    with torch.autograd.graph.saved_tensors_hooks(note, lambda x: x):
        y = model(torch.randn(2, 3, 16, 16))
    weights = {p.untyped_storage().data_ptr() for p in model.parameters()}
    assert y.requires_grad
    return sum(x.untyped_storage().nbytes() for address, x in kept.items() if address not in weights)


def test_recomputation_keeps_less_and_grows_with_the_depth_and_not_its_square() -> None:
    shallow = [kept_bytes(model) for model in pair(layers=(8,))]
    deep = [kept_bytes(model) for model in pair(layers=(24,))]
    assert deep[1] < 0.4 * deep[0]
    assert deep[1] < 3.5 * shallow[1]
    assert deep[0] > 5 * shallow[0]


class Convolutions(TorchDispatchMode):
    """Counts forward convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += op is torch.ops.aten.convolution.default
        return op(*args, **(kwargs or {}))


@pytest.mark.parametrize("bottleneck", [True, False])
def test_no_convolution_is_computed_twice(bottleneck: bool) -> None:
    counts = []
    for model in pair(bottleneck=bottleneck):
        with Convolutions() as convolutions:
            model(torch.randn(2, 3, 8, 8)).sum().backward()
        counts.append(convolutions.count)
    layers = 5 * (2 if bottleneck else 1)
    assert counts == [1 + layers + 1] * 2


# --- the rest -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("bottleneck", "each"), [(True, 2), (False, 1)])
def test_dropout_follows_every_convolution_but_the_first(
    bottleneck: bool, each: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rates: list[float] = []
    real = nn.functional.dropout
    monkeypatch.setattr(nn.functional, "dropout", lambda x, p: (rates.append(p), real(x, p))[1])
    model = DenseNet(dataclasses.replace(TINY, dropout=0.25, bottleneck=bottleneck))
    x = torch.randn(2, 3, 8, 8)
    model.eval()(x)
    assert rates == []
    model.train()(x)
    assert rates == [0.25] * (5 * each + 1)


def test_forward_is_the_head_of_the_features() -> None:
    model = DenseNet(TINY).eval()
    x = torch.randn(2, 3, 8, 8)
    features = model.features(x)
    assert features.shape == (2, ((4 + 2 * 3) // 2) + 3 * 3)
    assert torch.equal(model(x), model.classifier(features))


@pytest.mark.parametrize("stem", ["imagenet", "cifar"])
def test_what_is_written_in_place_is_never_the_input(stem: str) -> None:
    model = DenseNet(dataclasses.replace(TINY, stem=stem))
    x = torch.randn(2, 3, 8, 8)
    before = x.clone()
    model(x)
    assert torch.equal(x, before)


def test_channels_last_changes_no_result() -> None:
    model = DenseNet(TINY).double()
    x = torch.randn(2, 3, 12, 12, dtype=torch.float64)
    expected = model(x)
    model = model.to(memory_format=torch.channels_last)
    torch.testing.assert_close(model(x.to(memory_format=torch.channels_last)), expected)


def test_initial_weights_have_the_variance_of_the_card() -> None:
    model = DenseNet(Config(layers=(1,), growth_rate=64))
    weight = model.get_submodule("denseblock1.denselayer1.conv2").weight
    assert weight.var().item() == pytest.approx(2 / (4 * 64 * 3 * 3), rel=0.05)
    assert not model.classifier.bias.any()


def test_a_config_fits_a_data_set() -> None:
    fitted = Config.for_spec(PRESETS["densenet121"], ImageSpec(1, 28, 28, Classes(("a", "b", "c"))))
    assert (fitted.in_channels, fitted.num_classes, fitted.layers) == (1, 3, (6, 12, 24, 16))
    assert Config.for_spec(PRESETS["densenet121"], ImageSpec(1, 28, 28, Value())).num_classes == 1


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("layers", ()),
        ("layers", (2, 0)),
        ("growth_rate", 0),
        ("compression", 0.0),
        ("compression", 1.1),
        ("compression", 0.001),  # no channel would be left
        ("stem", "mnist"),
        ("stem_channels", 0),
        ("dropout", 1.0),
        ("dropout", -0.1),
        ("in_channels", 0),
        ("num_classes", 0),
    ],
)
def test_bad_values_are_rejected_by_name(field: str, value: object) -> None:
    with pytest.raises(ModelError, match=rf"^Invalid {field}="):
        Config(**{field: value})


@pytest.mark.parametrize(("training", "recompute"), [(False, False), (True, False), (True, True)])
def test_it_compiles_without_a_break(training: bool, recompute: bool) -> None:
    model = DenseNet(dataclasses.replace(TINY, recompute=recompute)).train(training)
    x = torch.randn(2, 3, 8, 8)
    expected = copy.deepcopy(model)(x)
    compiled = compile_whole(model)
    torch.testing.assert_close(compiled(x), expected)
