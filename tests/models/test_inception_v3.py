"""Inception-v3: counts, shapes, the auxiliary head, least size, rejections. The oracle is in tests/verify."""

from __future__ import annotations

import dataclasses

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from cutaway.core.errors import ModelError
from cutaway.core.memory_budget import build_on_meta
from cutaway.core.spec import Classes, ImageSpec, Value
from cutaway.inspect.layers import layer_table
from cutaway.models import inception_v3
from cutaway.models.inception_v3 import CARD, PRESETS, AuxiliaryHead, Config, InceptionV3, MeanConvolution
from cutaway.models.registry import preset

from .contract import assert_keeps_the_contract, compile_whole

TINY = Config(width=2, num_classes=3)
SMALL = dataclasses.replace(TINY, stem="small")
FULL = PRESETS["inception-v3"]


def test_counts_are_the_published_ones() -> None:
    held = CARD.published["inception-v3"]
    layers = layer_table(build_on_meta(preset("inception-v3"), FULL), torch.empty(1, *held.at, device="meta"))
    assert (layers.parameters, layers.multiply_adds, layers.complete) == (held.parameters, held.multiply_adds, True)
    assert held.multiply_adds == pytest.approx(5.713e9, abs=0.5e6)  # torchvision's weight metadata


def test_the_auxiliary_head_can_be_left_out() -> None:
    without = build_on_meta(preset("inception-v3"), dataclasses.replace(FULL, auxiliary=False))
    assert sum(p.numel() for p in without.parameters()) == 23_834_568
    assert CARD.published["inception-v3"].parameters == 23_834_568 + 3_326_696
    assert not any(key.startswith("Aux") for key in without.state_dict())


@pytest.mark.parametrize(("stem", "side"), [("imagenet", 80), ("small", 20)])
def test_it_keeps_the_contract(stem: str, side: int) -> None:
    torch.manual_seed(0)
    assert_keeps_the_contract(InceptionV3(dataclasses.replace(TINY, stem=stem)), torch.randn(4, 3, side, side + 7), 3)


@pytest.mark.parametrize(
    ("stem", "side", "sides"),
    [("imagenet", 299, (149, 147, 147, 73, 71, 35, 17, 8)), ("small", 32, (32, 32, 32, 32, 32, 15, 7, 3))],
)
def test_maps_are_those_of_the_docstring(stem: str, side: int, sides: tuple[int, ...]) -> None:
    model = build_on_meta(preset("inception-v3"), dataclasses.replace(FULL, stem=stem))
    blocks = layer_table(model, torch.empty(1, 3, side, side, device="meta")).blocks
    parts = {"Conv2d_1a_3x3": 32, "Conv2d_2a_3x3": 32, "Conv2d_2b_3x3": 64, "Conv2d_3b_1x1": 80, "Conv2d_4a_3x3": 192}
    parts |= {"Mixed_5d": 288, "Mixed_6e": 768, "Mixed_7c": 2048}
    assert [blocks[part].shape for part in parts] == [(1, c, n, n) for c, n in zip(parts.values(), sides)]
    joined = {"Mixed_5b": 256, "Mixed_5c": 288, "Mixed_6a": 768, "Mixed_6b": 768, "Mixed_7a": 1280, "Mixed_7b": 2048}
    assert {part: blocks[part].shape[1] for part in joined} == joined


@pytest.mark.parametrize(("stem", "least"), [("imagenet", 75), ("small", 15)])
def test_the_least_size_is_exact(stem: str, least: int, monkeypatch: pytest.MonkeyPatch) -> None:
    config = dataclasses.replace(TINY, stem=stem)
    model = InceptionV3(config)
    assert config.least_size == least
    assert [y.shape for y in model(torch.randn(2, 3, least, least + 7))] == [(2, 3)] * 2
    assert model.eval()(torch.randn(1, 3, least, least)).shape == (1, 3)
    small = torch.randn(2, 3, least + 7, least - 1)
    with pytest.raises(ModelError, match=f"at least {least}×{least} pixels"):
        model(small)
    monkeypatch.setattr(inception_v3, "validate_image_size", lambda *args: None)
    with pytest.raises(RuntimeError, match="Kernel size can't be greater than actual input size"):
        model(small)


def test_in_training_the_auxiliary_head_answers_second() -> None:
    model = InceptionV3(SMALL)
    x = torch.randn(2, 3, 16, 16)
    with torch.no_grad():
        model.AuxLogits.fc.bias.fill_(1000.0)
    answers = model(x)
    assert isinstance(answers, tuple)
    logits, auxiliary = answers
    assert logits.shape == auxiliary.shape == (2, 3)
    assert logits.abs().max() < 500
    assert auxiliary.min() > 500
    auxiliary.sum().backward()
    assert model.Mixed_7a.branch3x3_1.conv.weight.grad is None  # the head looks at 6e
    assert model.Mixed_6e.branch1x1.conv.weight.grad is not None
    assert model.auxiliary_weight == 0.4


def test_in_evaluation_the_auxiliary_head_is_not_run() -> None:
    model = InceptionV3(SMALL).eval()
    ran: list[str] = []
    model.AuxLogits.register_forward_hook(lambda module, args, result: ran.append("AuxLogits"))
    x = torch.randn(2, 3, 16, 16)
    assert model(x).shape == (2, 3)
    assert ran == []
    model.train()(x)
    assert ran == ["AuxLogits"]


def test_without_the_head_there_is_one_answer_in_training_too() -> None:
    model = InceptionV3(dataclasses.replace(SMALL, auxiliary=False)).train()
    assert model(torch.randn(2, 3, 16, 16)).shape == (2, 3)


@pytest.mark.parametrize(("side", "windows"), [(2, False), (16, False), (17, True), (20, True)])
def test_the_grid_of_the_auxiliary_head(side: int, windows: bool) -> None:
    head = AuxiliaryHead(16, TINY).eval()
    seen: list[torch.Tensor] = []
    head.conv0.register_forward_pre_hook(lambda module, args: seen.append(args[0]))
    x = torch.randn(2, 1, side, side)
    assert head(x).shape == (2, 3)
    torch.testing.assert_close(seen[0], F.avg_pool2d(x, 5, 3) if windows else F.adaptive_avg_pool2d(x, 5))
    assert min(seen[0].shape[2:]) >= 5


@settings(max_examples=15, deadline=None)
@given(
    channels=st.integers(1, 5), outputs=st.integers(1, 5), height=st.integers(1, 6), width=st.integers(1, 6),
    training=st.booleans(),
)  # fmt: skip
def test_a_mean_and_a_1x1_convolution_can_change_places(
    channels: int, outputs: int, height: int, width: int, training: bool
) -> None:
    layer = MeanConvolution(channels, outputs).double().train(training)
    x = torch.randn(3, channels, height, width, dtype=torch.float64)
    mean_first = F.avg_pool2d(x, 3, stride=1, padding=1)
    torch.testing.assert_close(layer(x), F.relu(layer.bn(layer.conv(mean_first))), rtol=1e-6, atol=1e-9)


def test_initial_weights_have_the_standard_deviations_of_the_card() -> None:
    torch.manual_seed(0)
    parts = dict(InceptionV3(Config(width=16, num_classes=50)).named_parameters())
    stds = {"Mixed_6b.branch7x7_2.conv": 0.1, "fc": 0.1, "AuxLogits.conv0.conv": 0.1}
    stds |= {"AuxLogits.conv1.conv": 0.01, "AuxLogits.fc": 0.001}
    measured = {name: parts[f"{name}.weight"].std().item() for name in stds}
    assert measured == pytest.approx(stds, rel=0.03)


def test_forward_is_the_head_of_the_features() -> None:
    model = InceptionV3(TINY).eval()
    x = torch.randn(2, 3, 80, 80)
    features = model.features(x)
    assert features.shape == (2, 128)
    assert torch.equal(model(x), model.fc(features))


def test_what_is_written_in_place_is_never_the_input() -> None:
    x = torch.randn(2, 3, 16, 16)
    before = x.clone()
    InceptionV3(SMALL)(x)
    assert torch.equal(x, before)


def test_channels_last_changes_no_result() -> None:
    model = InceptionV3(dataclasses.replace(TINY, auxiliary=False, dropout=0.0)).double()
    x = torch.randn(2, 3, 123, 139, dtype=torch.float64)
    expected = model(x)
    model = model.to(memory_format=torch.channels_last)
    torch.testing.assert_close(model(x.to(memory_format=torch.channels_last)), expected)


def test_width_scales_every_layer_but_the_first_and_the_last() -> None:
    with torch.device("meta"):
        wide, narrow = (InceptionV3(dataclasses.replace(TINY, width=w)).state_dict() for w in (32, 2))
    for key in (k for k in wide if k.endswith("conv.weight") and k != "Conv2d_1a_3x3.conv.weight"):
        assert [n // 16 for n in wide[key].shape[:2]] == list(narrow[key].shape[:2]), key
    assert narrow["Conv2d_1a_3x3.conv.weight"].shape == (2, 3, 3, 3)
    assert narrow["fc.weight"].shape == (3, 128)


def test_a_config_fits_a_data_set() -> None:
    fitted = Config.for_spec(FULL, ImageSpec(1, 28, 28, Classes(("a", "b", "c"))))
    assert (fitted.in_channels, fitted.num_classes, fitted.width) == (1, 3, 32)
    assert Config.for_spec(FULL, ImageSpec(1, 28, 28, Value())).num_classes == 1


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("dropout", 1.0),
        ("dropout", -0.1),
        ("stem", "cifar"),
        ("width", 0),
        ("width", 3),
        ("in_channels", 0),
        ("num_classes", 0),
    ],
)
def test_bad_values_are_rejected_by_name(field: str, value: object) -> None:
    with pytest.raises(ModelError, match=rf"^Invalid {field}="):
        Config(**{field: value})


@pytest.mark.slow
def test_it_compiles_without_a_break() -> None:
    model = InceptionV3(SMALL).train()  # with the auxiliary head, and all that evaluation has
    x = torch.randn(2, 3, 20, 20)
    compiled = compile_whole(model)
    answers = []
    for run in (compiled, model):
        torch.manual_seed(0)
        answers.append(run(x))
    torch.testing.assert_close(*answers)
