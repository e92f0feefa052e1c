"""Whole layers of integers beside PyTorch's reference layers and onnxruntime's: off by no more than steps explain."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from cutaway.nn.quantized import QuantizedConv2d, QuantizedLinear


@pytest.fixture(autouse=True)
def seeded() -> Iterator[None]:
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.ao says that it moves to torchao
        yield


def reference(layer: nn.Module, kind: Any, scale: Tensor) -> nn.Module:
    """PyTorch's layer of the same weights, in integers of each output channel, which computes in floats."""
    zeros = torch.zeros(len(scale), dtype=torch.int32)
    per_channel = {"qscheme": torch.per_channel_affine, "dtype": torch.qint8, "scale": scale, "zero_point": zeros}
    made: nn.Module = kind.from_float(layer, {**per_channel, "axis": 0, "quant_min": -127, "quant_max": 127})
    return made


@torch.no_grad()
def test_a_convolution_is_pytorchs_reference() -> None:
    from torch.ao.nn.quantized.reference import Conv2d

    whole, x = nn.Conv2d(6, 10, 3, padding=1, stride=2), torch.rand(4, 6, 9, 9) * 3 - 1
    made = QuantizedConv2d.like(whole)
    made.take(whole)
    made.observe(float(x.min()), float(x.max()))
    step, zero = float(made.x_scale), int(made.x_zero)
    theirs = reference(whole, Conv2d, made.scale)(torch.quantize_per_tensor(x, step, zero, torch.quint8).dequantize())
    # Of the inputs to one output a few lie between two integers, where the two round differently.
    assert float((made(x) - theirs).abs().max()) <= 2 * step * float(whole.weight.abs().max()) + 1e-5
    assert float((made(x) - theirs).norm() / (whole(x) - theirs).norm()) < 0.1
    assert float((whole(x) - theirs).norm()) > 0  # integers they are


@torch.no_grad()
def test_a_linear_layer_is_pytorchs_reference_row_by_row() -> None:
    from torch.ao.nn.quantized.reference import Linear

    whole, x = nn.Linear(70, 20), torch.randn(5, 70) * torch.tensor([[0.01], [1], [3], [100], [1]])
    made = QuantizedLinear.like(whole)
    made.take(whole)
    theirs = reference(whole, Linear, made.scale)
    for row in x:
        step = float(row.abs().max()) / 127
        expected = theirs(torch.quantize_per_tensor(row[None], step, 0, torch.qint8).dequantize())
        ours = made(row[None])
        assert float((ours - expected).abs().max()) <= 2 * step * float(whole.weight.abs().max()) + 1e-5
        assert float((ours - expected).norm() / (whole(row[None]) - expected).norm()) < 0.1


@torch.no_grad()
def test_a_static_convolution_is_as_near_to_floats_as_onnxruntimes(tmp_path: Path) -> None:
    onnx, ort = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
    quantization = pytest.importorskip("onnxruntime.quantization")
    whole, x = nn.Conv2d(6, 10, 3, padding=1), torch.rand(8, 6, 9, 9) * 3 - 1
    helper, numpy = onnx.helper, onnx.numpy_helper
    float32 = onnx.TensorProto.FLOAT
    node = helper.make_node("Conv", ["x", "w", "b"], ["y"], pads=[1, 1, 1, 1])
    kept = [numpy.from_array(p.detach().numpy(), name) for name, p in (("w", whole.weight), ("b", whole.bias))]
    ends = [helper.make_tensor_value_info(name, float32, ["n", c, 9, 9]) for name, c in (("x", 6), ("y", 10))]
    graph = helper.make_graph([node], "conv", ends[:1], ends[1:], kept)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "f.onnx")

    left = iter([{"x": x.numpy()}])

    class Once(quantization.CalibrationDataReader):  # type: ignore[misc, name-defined]  # of a package without types
        def get_next(self) -> Any:
            return next(left, None)

    quantization.quantize_static(tmp_path / "f.onnx", tmp_path / "q.onnx", Once(), per_channel=True)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL  # no kernels that may overflow
    session = ort.InferenceSession(tmp_path / "q.onnx", options, providers=["CPUExecutionProvider"])
    theirs = torch.from_numpy(session.run(None, {"x": x.numpy()})[0])

    made = QuantizedConv2d.like(whole)
    made.take(whole)
    made.observe(float(x.min()), float(x.max()))
    ours, right = made(x), whole(x)
    # Theirs rounds its output to 8 bits too: take that out of what it is off by.
    step = float(right.max() - right.min()) / 255
    assert float((ours - theirs).abs().max()) <= step + float(made.x_scale) * float(
        whole.weight.abs().sum((1, 2, 3)).max()
    )
    assert float((ours - right).norm()) <= float((theirs - right).norm())
    assert float((theirs - right).norm()) < 4 * float((ours - right).norm())
