"""Convolution arithmetic: what the window adds up to is what the real layer gives."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import cutaway
from cutaway.core.errors import SettingError, UnknownName
from cutaway.views import convolution
from cutaway.views.convolution import InputOutput, _crop, _see, draw_arithmetic, sums
from cutaway.views.model_layers import Convolution, _convolution, convolutions, flat_pools
from cutaway.views.registry import suitable_views
from cutaway.views.subject import Subject, open_model, open_preset, open_run

from ..small import DIFFERENT, meta, small
from .suited import suited


def opened(name: str, **options: str) -> Subject:
    model, inputs = small(name)
    return dataclasses.replace(open_model(model, *inputs), options=options)


CONVOLUTIONAL = suited("arithmetic")


def total(found: dict[str, Any], row: int, column: int) -> float:
    """The terms of one cell added up."""
    drawing = found["drawings"][0]
    return sum(part["sums"][row][column] for part in drawing["channels"]) + (drawing["bias"] or 0)


def test_models_with_convolutions_alone_have_arithmetic() -> None:
    flat = {name for name in DIFFERENT if any(len(c.kernel) < 3 for c in convolutions(meta(name)).values())}
    assert flat == set(CONVOLUTIONAL)
    assert "r3d-18" not in flat  # a window over frames too is no grid
    assert {"lenet5", "airbench94", "vit-tiny/16", "textcnn", "dcnn", "cnn-lstm"} <= set(CONVOLUTIONAL)
    assert not {"mlp", "lstm", "gpt2", "gcn"} & set(CONVOLUTIONAL)


@pytest.mark.parametrize("name", CONVOLUTIONAL)
def test_the_sum_is_the_layers_own_output(name: str) -> None:
    """For several layers of every preset: the arithmetic in float64 equals what the model computed."""
    subject = opened(name)
    layers = list(convolutions(subject.model))
    called = 0
    for layer in dict.fromkeys((layers[0], layers[len(layers) // 2], layers[-1])):
        try:
            found = draw_arithmetic(dataclasses.replace(subject, options={"layer": layer}))
        except cutaway.CutawayError:  # an auxiliary head, which does not run in evaluation mode
            continue
        called += 1
        json.dumps(found, allow_nan=False)
        drawing = found["drawings"][0]
        scale = max(abs(v) for line in drawing["output"] for v in line)
        for i, line in enumerate(drawing["output"]):
            for j, value in enumerate(line):
                assert total(found, i, j) == pytest.approx(value, abs=2e-3 * max(scale, 1e-6))
    assert called >= 1


@settings(max_examples=60, deadline=None)
@given(
    axes=st.integers(1, 2),
    kernel=st.integers(1, 4),
    stride=st.integers(1, 3),
    padding=st.integers(0, 3),
    dilation=st.integers(1, 2),
    groups=st.sampled_from([1, 2]),
    bias=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_any_window_equals_pytorchs(
    axes: int, kernel: int, stride: int, padding: int, dilation: int, groups: int, bias: bool, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    size = [dilation * (kernel - 1) + 1 + int(n) for n in torch.randint(0, 9, (axes,), generator=generator)]
    make: Any = (nn.Conv1d, nn.Conv2d)[axes - 1]
    module = make(4, 6, kernel, stride, padding, dilation, groups, bias).double()
    x = torch.randn(1, 4, *size, dtype=torch.float64, generator=generator)
    y: Tensor = module(x)[0].detach()
    layer = _convolution("conv", module)
    assert isinstance(layer, Convolution)
    seen = InputOutput(x[0], y)
    for channel in (0, 5):
        crops = [_crop(seen, layer, channel, axis) for axis in range(axes)]
        found = sums(seen, layer, channel, crops).sum(0) + (module.bias[channel].detach() if bias else 0)
        expected = y[channel]
        for axis, crop in enumerate(crops):
            expected = expected.narrow(axis, crop.first, crop.outputs)
        assert torch.allclose(found, expected, rtol=0, atol=1e-10)


def test_products_under_the_window_make_the_channels_sum() -> None:
    """From the numbers as they are drawn: the window at every output, with stride, in what is shown of the input."""
    found = draw_arithmetic(open_preset("resnet18", {"num_classes": 3}))
    drawing = found["drawings"][0]
    part, (s, _), k = drawing["channels"][0], drawing["stride"], drawing["kernel"][0]
    assert (s, k) == (2, 7)
    for i in range(len(drawing["output"])):
        for j in range(len(drawing["output"][0])):
            products = [part["weights"][a][b] * part["input"][i * s + a][j * s + b] for a in range(k) for b in range(k)]
            assert sum(products) == pytest.approx(part["sums"][i][j], abs=2e-3)


def test_padding_is_where_it_is() -> None:
    """Cells outside the real input are zeros, cells inside are the input's own."""
    subject = opened("resnet20", layer="conv1", channel="0")
    drawing = draw_arithmetic(subject)["drawings"][0]
    x = _see(subject, 0, "conv1").x
    (top, left), (height, width) = drawing["begin"], drawing["size"]
    for i, line in enumerate(drawing["channels"][0]["input"]):
        for j, value in enumerate(line):
            inside = 0 <= top + i < height and 0 <= left + j < width
            expected = x[0, top + i, left + j].item() if inside else 0.0
            assert value == pytest.approx(expected, rel=1e-3)


def test_runs(tmp_path: Path) -> None:
    run = cutaway.train("lenet5-modern", "digits", epochs=1, out=tmp_path / "run")
    found = draw_arithmetic(open_run(run, options={"layer": "c3", "example": "1", "channel": "4"}))
    drawing = found["drawings"][0]
    assert len(drawing["channels"]) == 6
    assert drawing["title"].startswith("c3, channel 4 of 16")
    with pytest.raises(UnknownName, match="layer with a window 'c4'"):
        draw_arithmetic(open_run(run, options={"layer": "c4"}))
    with pytest.raises(SettingError, match="Invalid channel=6: must be an integer from 0 to 5"):
        draw_arithmetic(open_run(run, options={"layer": "c1", "channel": "6"}))


@pytest.mark.parametrize("kind", ["max", "mean"])
@pytest.mark.parametrize("padding", [0, 1])
def test_pooling_takes_the_largest_or_the_mean(kind: str, padding: int) -> None:
    module: Any = (nn.MaxPool2d if kind == "max" else nn.AvgPool2d)(3, 2, padding)
    model = nn.Sequential()
    model.add_module("pool", module)
    layer = flat_pools(model)["pool"]
    x = torch.randn(1, 2, 9, 8, dtype=torch.float64)
    seen = InputOutput(x[0], module(x)[0])
    crops = [_crop(seen, layer, 1, axis) for axis in range(2)]
    part, windows = convolution._windows(seen.x[1:2], layer, crops, float("-inf") if kind == "max" else 0.0)
    values = windows[0].flatten(2)
    found = values.amax(-1) if kind == "max" else values.mean(-1)
    expected = seen.y[1]
    for axis, crop in enumerate(crops):
        expected = expected.narrow(axis, crop.first, crop.outputs)
    assert torch.equal(found, expected) if kind == "max" else torch.allclose(found, expected)
    assert part.shape[1:] == (crops[0].entries, crops[1].entries)


def test_a_layer_that_writes_over_its_input_is_seen_before() -> None:
    """ReLU in place stands behind many convolutions: the output shown is the sum, not what became of it."""
    assert _see(opened("vgg11"), 0, "convolutions.3").y.min() < 0


def picture(rows: list[list[float]]) -> Tensor:
    return torch.tensor([[rows]], dtype=torch.float32)


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize(("module", "expected"), [(nn.MaxPool2d(2), 2.0), (nn.AvgPool2d(2), -0.25)])
def test_a_pooling_layer_alone_has_arithmetic(module: nn.Module, expected: float, named: bool) -> None:
    """A model with a pool and no convolution, also one that is the pool itself."""
    x = picture([[0.0, 0.0, 1.0, 5.0], [-3.0, 2.0, 1.0, 1.0]])
    model = nn.Sequential(nn.Identity(), module) if named else module
    subject = open_model(model, x)
    assert "arithmetic" in suitable_views(subject)
    found = draw_arithmetic(subject)
    drawing = found["drawings"][0]
    assert drawing["what"] == ("max" if isinstance(module, nn.MaxPool2d) else "mean")
    assert drawing["channels"][0]["input"][1][:2] == [-3.0, 2.0]
    assert drawing["channels"][0]["sums"][0][0] == drawing["output"][0][0] == expected
    assert drawing["title"].startswith("1, channel 0" if named else f"{type(module).__name__}, channel 0")
    assert found["title"] == "Pooling arithmetic"
    json.dumps(cutaway.look(model, x, view="arithmetic").page, allow_nan=False)


def test_a_model_without_a_window_has_no_arithmetic() -> None:
    assert "arithmetic" not in suitable_views(open_model(nn.Sequential(nn.ReLU()), picture([[1.0, 2.0]])))
    assert "arithmetic" not in suitable_views(open_model(nn.MaxPool2d(2, ceil_mode=True), picture([[1.0], [2.0]])))


@settings(max_examples=40, deadline=None)
@given(
    kind=st.sampled_from([nn.MaxPool2d, nn.AvgPool2d, nn.MaxPool1d, nn.AvgPool1d]),
    kernel=st.integers(1, 4),
    stride=st.integers(1, 3),
    padded=st.booleans(),
    counts=st.booleans(),
    seed=st.integers(0, 100),
)
def test_any_pool_alone_equals_pytorchs(
    kind: Any, kernel: int, stride: int, padded: bool, counts: bool, seed: int
) -> None:
    more = {} if "Max" in kind.__name__ else {"count_include_pad": counts}
    module = kind(kernel, stride, kernel // 2 if padded else 0, **more)
    x = torch.randn(1, 3, *(9, 8)[: 2 if "2d" in kind.__name__ else 1], generator=torch.Generator().manual_seed(seed))
    drawing = draw_arithmetic(open_model(module, x))["drawings"][0]
    for line, own in zip(drawing["channels"][0]["sums"], drawing["output"], strict=True):
        assert line == pytest.approx(own, abs=1e-3)
