"""Quantized layers: the integers of the published scheme, products of them by the equation, and what never changes."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from cutaway.nn.quantized import (
    CONVS,
    QuantizedConv2d,
    QuantizedLinear,
    dequantize_groups,
    dequantize_rows,
    exact_kernels,
    quantize_groups,
    quantize_observed,
    quantize_rows,
)

SLACK = 1e-5  # of a step: what float32 adds to half of one
few = settings(max_examples=25, deadline=None)
seeds = st.integers(0, 10_000)


def weights(seed: int, *shape: int) -> Tensor:
    """Random weights over many orders of magnitude, some of them 0."""
    generator = torch.Generator().manual_seed(seed)
    sizes = torch.randint(-6, 4, (shape[0], *[1] * (len(shape) - 1)), generator=generator).float()
    w = torch.randn(shape, generator=generator) * 10**sizes
    return w * (torch.rand(shape, generator=generator) > 0.2)


@few
@given(seeds, st.integers(1, 9), st.integers(1, 40))
def test_a_weight_is_at_most_half_a_step_off_and_zero_stays_zero(seed: int, rows: int, columns: int) -> None:
    w = weights(seed, rows, columns)
    q, scale = quantize_rows(w)
    back = dequantize_rows(q, scale)
    assert bool(((back - w).abs() <= (0.5 + SLACK * 127) * scale[:, None]).all())
    assert bool((back[w == 0] == 0).all())
    assert torch.equal(quantize_rows(back)[0], q)  # to round again changes nothing


@few
@given(seeds, st.integers(1, 5), st.integers(1, 70), st.integers(2, 33))
def test_groups_of_four_bits_round_trip(seed: int, rows: int, columns: int, group: int) -> None:
    w = weights(seed, rows, columns)
    packed, scale = quantize_groups(w, group)
    assert packed.dtype == torch.uint8
    assert packed.shape == (rows, -(-columns // 2))
    back = dequantize_groups(packed, scale, group, w.shape)
    steps = scale.repeat_interleave(group, 1)[:, :columns]
    assert bool(((back - w).abs() <= (0.5 + SLACK * 8) * steps).all())
    assert bool((back[w == 0] == 0).all())
    again = dequantize_groups(*quantize_groups(back, group), group, w.shape)
    torch.testing.assert_close(again, back, rtol=1e-6, atol=0)  # to round again changes nothing


def test_integers_are_those_of_torchs_own_quantizer() -> None:
    w = torch.randn(7, 5, 3, 3, generator=torch.Generator().manual_seed(0))
    q, scale = quantize_rows(w)
    zeros = torch.zeros(7, dtype=torch.long)
    theirs = torch.fake_quantize_per_channel_affine(w, scale, zeros.int(), 0, -127, 127)
    assert torch.equal(dequantize_rows(q, scale), theirs)
    x = torch.randn(1000, generator=torch.Generator().manual_seed(1))
    ours = (quantize_observed(x, 0.02, 100).float() - 100) * 0.02
    torch.testing.assert_close(ours, torch.fake_quantize_per_tensor_affine(x, 0.02, 100, 0, 255), atol=0.02, rtol=0)
    assert float((ours != torch.fake_quantize_per_tensor_affine(x, 0.02, 100, 0, 255)).float().mean()) < 0.01  # ties


def linear(seed: int = 0, inputs: int = 70, outputs: int = 20, bias: bool = True) -> tuple[nn.Linear, QuantizedLinear]:
    torch.manual_seed(seed)
    whole = nn.Linear(inputs, outputs, bias=bias)
    made = QuantizedLinear.like(whole)
    made.take(whole)
    return whole, made


@pytest.mark.parametrize("bias", [True, False])
def test_a_linear_layer_is_its_equation_in_float64(bias: bool) -> None:
    _, made = linear(bias=bias)
    x = torch.randn(3, 4, 70)
    steps = x.double().abs().amax(-1, keepdim=True) / 127
    q_x, q_w = (x.double() / steps).round(), made.q.double()
    expected = torch.einsum("...i,oi->...o", q_x, q_w) * steps * made.scale.double()
    expected = expected if made.bias is None else expected + made.bias.double()
    with torch.no_grad():
        torch.testing.assert_close(made(x).double(), expected, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(made.double()(x.double()), expected, atol=1e-6, rtol=1e-6)


@few
@given(seeds, st.integers(1, 12))
def test_an_example_does_not_depend_on_its_batch(seed: int, rows: int) -> None:
    _, made = linear()
    x = torch.randn(rows, 70, generator=torch.Generator().manual_seed(seed))
    x[-1] *= 1000
    with torch.no_grad():
        together, alone = made(x), torch.cat([made(x[i : i + 1]) for i in range(rows)])
    assert torch.equal(together, alone)


def test_rows_of_zeros_and_no_rows_at_all() -> None:
    _, made = linear()
    assert made.bias is not None
    with torch.no_grad():
        assert torch.equal(made(torch.zeros(2, 70)), made.bias.expand(2, -1))
        assert made(torch.zeros(0, 70)).shape == (0, 20)


@pytest.mark.parametrize(("dimensions", "groups"), [(1, 1), (2, 1), (2, 2), (2, 8), (3, 1)])
def test_a_convolution_is_its_equation_in_float64(dimensions: int, groups: int) -> None:
    torch.manual_seed(0)
    kind: Any = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[dimensions - 1]
    whole = kind(8, 16, 3, stride=2, padding=1, groups=groups)
    made = CONVS[kind].like(whole)
    made.take(whole)
    x = 2 * torch.randn(3, 8, *[7] * dimensions) + 0.3
    made.observe(-2.0, 4.0)  # what lies beyond is cut off
    scale, zero = float(made.x_scale), int(made.x_zero)
    assert (zero - 0) * scale == pytest.approx(2.0, abs=scale)
    q = quantize_observed(x, scale, zero).double() - zero
    along = (-1, *[1] * dimensions)
    expected = whole._conv_forward(q, made.q.double(), None) * (scale * made.scale.double()).view(along)
    expected = expected + whole.bias.double().view(along)
    with torch.no_grad():
        torch.testing.assert_close(made(x).double(), expected, atol=1e-5, rtol=1e-5)
        alone = torch.cat([made(x[i : i + 1]) for i in range(3)])
        torch.testing.assert_close(made(x), alone, atol=1e-6, rtol=1e-6)


def test_gradients_are_those_of_the_rounded_weights() -> None:
    whole, made = linear()
    rounded = copy.deepcopy(whole)
    with torch.no_grad():
        rounded.weight.copy_(made.weight)
    x = torch.randn(4, 70, requires_grad=True)
    ours = torch.autograd.grad(made(x).sin().sum(), x)[0]
    torch.testing.assert_close(ours, torch.autograd.grad(rounded(x).sin().sum(), x)[0])


def test_a_copy_and_new_weights_are_seen_by_the_kernel() -> None:
    torch.manual_seed(0)
    first, second = nn.Conv2d(3, 4, 3), nn.Conv2d(3, 4, 3)
    x = torch.randn(2, 3, 8, 8)
    made, other = (QuantizedConv2d.like(conv) for conv in (first, second))
    for one, conv in ((made, first), (other, second)):
        one.take(conv)
        one.observe(-3.0, 3.0)
    with torch.no_grad():
        before = made(x)
        assert torch.equal(copy.deepcopy(made)(x), before)
        made.load_state_dict(other.state_dict())
        assert torch.equal(made(x), other(x))
        assert not torch.equal(made(x), before)


PROBE = """
import torch
from torch import nn
from cutaway.nn.quantized import QuantizedConv2d, QuantizedLinear, exact_kernels
x = torch.cat([torch.full((1, 300), 1.0), torch.full((1, 300), -1.0)])
layer = nn.Linear(300, 8, bias=False)
layer.weight.data.fill_(0.5)
conv = nn.Conv2d(16, 8, 3, bias=False)
conv.weight.data.fill_(0.5)
made, convolved = QuantizedLinear.like(layer), QuantizedConv2d.like(conv)
made.take(layer), convolved.take(conv), convolved.observe(0.0, 1.0)
with torch.no_grad():
    assert torch.allclose(made(x), layer(x), rtol=1e-6), made(x)
    ones = torch.ones(1, 16, 5, 5)
    assert torch.allclose(convolved(ones), conv(ones), rtol=1e-5), convolved(ones)
print(exact_kernels())
"""


@pytest.mark.parametrize(
    "has", [{"ATEN_CPU_CAPABILITY": "avx2"}, {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "AVX2"}]
)
@pytest.mark.slow
def test_the_largest_sums_are_right_whatever_the_processor_has(has: dict[str, str]) -> None:
    found = subprocess.run(
        [sys.executable, "-c", PROBE], env={**os.environ, **has}, capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stderr
    if "ONEDNN_MAX_CPU_ISA" in has and exact_kernels():
        assert found.stdout.strip() == "False"  # without the instructions oneDNN's sums overflow, and are not used


@pytest.mark.parametrize("last", [False, True])
def test_a_convolution_keeps_the_memory_format_of_its_input(last: bool) -> None:
    float_layer = nn.Conv2d(3, 4, 3)
    layer: Any = QuantizedConv2d.like(float_layer)
    layer.observe(-1.0, 1.0)
    x = torch.rand(2, 3, 8, 8)
    x = x.contiguous(memory_format=torch.channels_last) if last else x
    with torch.no_grad():
        assert layer(x).is_contiguous() == float_layer(x).is_contiguous() == (not last)
