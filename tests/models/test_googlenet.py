"""GoogLeNet in both forms: counts, shapes, auxiliary heads, least size, errors. The oracles are in tests/verify."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from cutaway.core.errors import ModelError
from cutaway.core.memory_budget import build_on_meta
from cutaway.core.spec import Classes, ImageSpec, Value
from cutaway.inspect.layers import layer_table
from cutaway.models import googlenet
from cutaway.models.googlenet import CARD, PRESETS, AuxiliaryHead, Config, GoogLeNet, ResponseNorm
from cutaway.models.registry import preset

from .contract import assert_keeps_the_contract, compile_whole

FORMS = {name: dataclasses.replace(config, width=8, num_classes=3) for name, config in PRESETS.items()}
SMALL = dataclasses.replace(FORMS["googlenet"], stem="small")
LEAST = [(name, stem, least) for name in PRESETS for stem, least in (("imagenet", 15), ("small", 4))]


@pytest.mark.parametrize("name", PRESETS)
def test_counts_are_the_published_ones(name: str) -> None:
    held = CARD.published[name]
    layers = layer_table(build_on_meta(preset(name), PRESETS[name]), torch.empty(1, *held.at, device="meta"))
    assert (layers.parameters, layers.multiply_adds, layers.complete) == (held.parameters, held.multiply_adds, True)


def test_the_card_agrees_with_torchvisions_metadata() -> None:
    assert CARD.published["googlenet"].multiply_adds == pytest.approx(1.498e9, abs=0.5e6)


@pytest.mark.parametrize(
    ("name", "network", "heads"),
    [("googlenet", 6_624_904, 6_379_984), ("googlenet-2014", 6_998_552, 3_188_840 + 3_190_888)],
)
def test_the_auxiliary_heads_can_be_left_out(name: str, network: int, heads: int) -> None:
    without = build_on_meta(preset(name), dataclasses.replace(PRESETS[name], auxiliary=False))
    assert sum(p.numel() for p in without.parameters()) == network
    assert CARD.published[name].parameters == network + heads
    assert not any(key.startswith("aux") for key in without.state_dict())


def test_each_published_head_has_its_own_count() -> None:
    model = build_on_meta(preset("googlenet-2014"), PRESETS["googlenet-2014"])
    heads = [sum(p.numel() for p in model.get_submodule(name).parameters()) for name in ("aux1", "aux2")]
    assert heads == [3_188_840, 3_190_888]


@pytest.mark.parametrize("name", PRESETS)
def test_it_keeps_the_contract(name: str) -> None:
    torch.manual_seed(0)
    x = torch.randn(4, 3, 50, 66)
    assert_keeps_the_contract(GoogLeNet(FORMS[name]), x, 3)


@pytest.mark.parametrize(
    ("name", "stem", "side", "sides"),
    [
        ("googlenet", "imagenet", 224, (112, 56, 28, 14, 7)),
        ("googlenet-2014", "imagenet", 224, (112, 56, 28, 14, 7)),
        ("googlenet", "small", 32, (32, 32, 16, 8, 4)),
    ],
)
def test_maps_are_those_of_the_paper(name: str, stem: str, side: int, sides: tuple[int, ...]) -> None:
    model = build_on_meta(preset(name), dataclasses.replace(PRESETS[name], stem=stem))
    blocks = layer_table(model, torch.empty(1, 3, side, side, device="meta")).blocks
    parts = ("conv1", "conv3", "inception3b", "inception4a", "inception4d", "inception4e", "inception5a", "inception5b")
    stem_side, second, third, fourth, fifth = sides
    shapes = [(64, stem_side), (192, second), (480, third), (512, fourth), (528, fourth), (832, fourth)]
    shapes += [(832, fifth), (1024, fifth)]
    assert [blocks[part].shape for part in parts] == [(1, channels, n, n) for channels, n in shapes]


@pytest.mark.parametrize(("name", "stem", "least"), LEAST)
def test_the_least_size_is_exact(name: str, stem: str, least: int, monkeypatch: pytest.MonkeyPatch) -> None:
    config = dataclasses.replace(FORMS[name], stem=stem)
    model = GoogLeNet(config)
    assert config.least_size == least
    assert [y.shape for y in model(torch.randn(2, 3, least, least + 7))] == [(2, 3)] * 3
    assert model.eval()(torch.randn(1, 3, least, least)).shape == (1, 3)
    small = torch.randn(2, 3, least + 7, least - 1)
    with pytest.raises(ModelError, match=f"at least {least}×{least} pixels"):
        model(small)
    monkeypatch.setattr(googlenet, "validate_image_size", lambda *args: None)
    with pytest.raises(RuntimeError, match="Output size is too small"):
        model(small)


@settings(max_examples=10, deadline=None)
@given(height=st.integers(15, 70), width=st.integers(15, 70))
def test_pools_round_up(height: int, width: int) -> None:
    model = GoogLeNet(dataclasses.replace(FORMS["googlenet"], auxiliary=False)).eval()
    maps: list[torch.Size] = []
    model.avgpool.register_forward_pre_hook(lambda module, args: maps.append(args[0].shape))
    assert model(torch.randn(1, 3, height, width)).shape == (1, 3)
    sides = []
    for n in (height, width):
        n = math.ceil(n / 2)
        for kernel in (3, 3, 3, 2):
            n = math.ceil((n - kernel) / 2) + 1
        sides.append(n)
    assert maps[0][2:] == tuple(sides)


def test_in_training_the_heads_answer_from_the_shallow_to_the_deep() -> None:
    model = GoogLeNet(SMALL)
    x = torch.randn(2, 3, 16, 16)
    answers = model(x)
    assert isinstance(answers, tuple)
    assert [y.shape for y in answers] == [(2, 3)] * 3
    with torch.no_grad():
        model.aux1.fc2.bias.fill_(100.0)
        model.aux2.fc2.bias.fill_(200.0)
    logits, first, second = model(x)
    assert logits.abs().max() < 50
    assert ((first > 50) & (first < 150)).all()
    assert (second > 150).all()
    first.sum().backward()
    assert model.get_submodule("inception4b.branch1.conv").weight.grad is None  # aux1 looks at 4a
    assert model.get_submodule("inception4a.branch1.conv").weight.grad is not None
    assert model.auxiliary_weight == 0.3


def test_in_evaluation_the_heads_are_not_run() -> None:
    model = GoogLeNet(SMALL).eval()
    ran: list[str] = []
    for name in ("aux1", "aux2"):
        model.get_submodule(name).register_forward_hook(lambda module, args, result, name=name: ran.append(name))
    x = torch.randn(2, 3, 16, 16)
    assert model(x).shape == (2, 3)
    assert ran == []
    model.train()(x)
    assert ran == ["aux1", "aux2"]


def test_without_heads_there_is_one_answer_in_training_too() -> None:
    model = GoogLeNet(dataclasses.replace(SMALL, auxiliary=False)).train()
    assert model(torch.randn(2, 3, 16, 16)).shape == (2, 3)


@pytest.mark.parametrize(
    ("pool", "side", "corner"),
    [("5x5", 14, 5), ("5x5", 16, 5), ("5x5", 13, 4), ("5x5", 17, 5), ("equal", 14, 4), ("equal", 2, 1)],
)
def test_the_grid_of_an_auxiliary_head(pool: str, side: int, corner: int) -> None:
    head = AuxiliaryHead(16, dataclasses.replace(SMALL, auxiliary_pool=pool)).eval()
    seen: list[torch.Tensor] = []
    head.conv.register_forward_pre_hook(lambda module, args: seen.append(args[0]))
    x = torch.randn(1, 2, side, side)
    head(x)
    assert seen[0].shape == (1, 2, 4, 4)
    torch.testing.assert_close(seen[0][..., 0, 0], x[..., :corner, :corner].mean((2, 3)))
    if pool == "5x5" and side <= 16:
        torch.testing.assert_close(seen[0], F.avg_pool2d(x, 5, 3) if side >= 14 else F.adaptive_avg_pool2d(x, 4))


def test_the_published_form_has_biases_two_response_normalizations_and_large_windows() -> None:
    kinds = {}
    for name in PRESETS:
        modules = list(build_on_meta(preset(name), PRESETS[name]).modules())
        convolutions = [m for m in modules if isinstance(m, nn.Conv2d)]
        kinds[name] = (
            sum(isinstance(m, ResponseNorm) for m in modules),
            {m.eps for m in modules if isinstance(m, nn.BatchNorm2d)},
            {m.bias is not None for m in convolutions},
            sum(m.kernel_size == (5, 5) for m in convolutions),
        )
    assert kinds == {"googlenet": (0, {1e-3}, {False}, 0), "googlenet-2014": (2, set(), {True}, 9)}


def test_response_normalization_is_the_equation_of_the_docstring() -> None:
    x = 100 * torch.randn(2, 8, 3, 2)
    y = ResponseNorm()(x)
    torch.testing.assert_close(y[:, 3], x[:, 3] / (1 + 1e-4 / 5 * (x[:, 1:6] ** 2).sum(dim=1)) ** 0.75)
    torch.testing.assert_close(y, F.local_response_norm(x, 5, alpha=1e-4, beta=0.75, k=1.0))


@pytest.mark.parametrize("name", PRESETS)
def test_the_receptive_field_can_be_followed_to_the_end(name: str) -> None:
    blocks = layer_table(build_on_meta(preset(name), PRESETS[name]), torch.empty(1, 3, 224, 224, device="meta")).blocks
    # The stem, two modules, a pool of 3×3, five modules, a pool of 2×2, two modules; neighbours are 8, 16, 32 apart.
    reach = PRESETS[name].large_kernel - 1
    assert blocks["inception5b"].receptive_field == 27 + 2 * 8 * reach + 2 * 8 + 5 * 16 * reach + 16 + 2 * 32 * reach


@pytest.mark.parametrize(("name", "std"), [("googlenet", 0.01), ("googlenet-2014", math.sqrt(2 / (9 * 128)))])
def test_initial_weights_have_the_standard_deviation_of_the_card(name: str, std: float) -> None:
    config = dataclasses.replace(PRESETS[name], auxiliary=False, num_classes=3)
    weight = GoogLeNet(config).get_submodule("inception3b.branch2.1.conv").weight
    assert weight.std().item() == pytest.approx(std, rel=0.02)


def test_without_batch_normalization_the_signal_lives_through_the_initialization() -> None:
    torch.manual_seed(0)
    model = GoogLeNet(dataclasses.replace(FORMS["googlenet-2014"], width=32)).eval()
    x = torch.randn(4, 3, 64, 64)
    with torch.no_grad():
        assert model.features(x).std(dim=0).mean() > 1e-2
        for module in model.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.normal_(module.weight, std=0.01)
        assert model.features(x).std(dim=0).mean() < 1e-8


@pytest.mark.parametrize("name", PRESETS)
def test_forward_is_the_head_of_the_features(name: str) -> None:
    model = GoogLeNet(FORMS[name]).eval()
    x = torch.randn(2, 3, 40, 40)
    features = model.features(x)
    assert features.shape == (2, 128)
    assert torch.equal(model(x), model.fc(features))


@pytest.mark.parametrize("name", PRESETS)
def test_what_is_written_in_place_is_never_the_input(name: str) -> None:
    model = GoogLeNet(dataclasses.replace(FORMS[name], stem="small"))
    x = torch.randn(2, 3, 16, 16)
    before = x.clone()
    model(x)
    assert torch.equal(x, before)


@pytest.mark.parametrize("name", PRESETS)
def test_channels_last_changes_no_result(name: str) -> None:
    model = GoogLeNet(dataclasses.replace(FORMS[name], auxiliary=False, dropout=0.0)).double()
    x = torch.randn(2, 3, 50, 66, dtype=torch.float64)
    expected = model(x)
    model = model.to(memory_format=torch.channels_last)
    torch.testing.assert_close(model(x.to(memory_format=torch.channels_last)), expected)


def test_width_scales_every_layer_but_the_first_and_the_last() -> None:
    with torch.device("meta"):
        wide, narrow = (dict(GoogLeNet(dataclasses.replace(FORMS["googlenet"], width=w)).state_dict()) for w in (64, 8))
    for key in (k for k in wide if k.endswith("conv.weight") and k != "conv1.conv.weight"):
        assert [n // 8 for n in wide[key].shape[:2]] == list(narrow[key].shape[:2]), key
    assert narrow["conv1.conv.weight"].shape == (8, 3, 7, 7)
    assert narrow["fc.weight"].shape == narrow["aux2.fc2.weight"].shape == (3, 128)


def test_a_config_fits_a_data_set() -> None:
    fitted = Config.for_spec(PRESETS["googlenet-2014"], ImageSpec(1, 28, 28, Classes(("a", "b", "c"))))
    assert (fitted.in_channels, fitted.num_classes, fitted.norm) == (1, 3, "response")
    assert Config.for_spec(PRESETS["googlenet"], ImageSpec(1, 28, 28, Value())).num_classes == 1


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("norm", "layer"),
        ("large_kernel", 7),
        ("auxiliary_pool", "4x4"),
        ("dropout", 1.0),
        ("dropout", -0.1),
        ("stem", "cifar"),
        ("width", 4),
        ("width", 20),
        ("in_channels", 0),
        ("num_classes", 0),
    ],
)
def test_bad_values_are_rejected_by_name(field: str, value: object) -> None:
    with pytest.raises(ModelError, match=rf"^Invalid {field}="):
        Config(**{field: value})


@pytest.mark.slow
@pytest.mark.parametrize(("name", "training"), [("googlenet", False), ("googlenet-2014", True)])
def test_it_compiles_without_a_break(name: str, training: bool) -> None:
    model = GoogLeNet(dataclasses.replace(FORMS[name], stem="small")).train(training)
    x = torch.randn(2, 3, 16, 16)
    compiled = compile_whole(model)
    answers = []
    for run in (compiled, model):
        torch.manual_seed(0)
        answers.append(run(x))
    torch.testing.assert_close(*answers)
