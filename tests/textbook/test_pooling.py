"""Pooling: windows looked at one by one are PyTorch's fused functions; k-max keeps the order."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from cutaway.core.errors import ModelError
from cutaway.nn.textbook.pooling import (
    adaptive_average_pool,
    adaptive_cells,
    adaptive_max_pool,
    average_pool,
    dynamic_k,
    dynamic_k_max,
    k_max,
    max_pool,
    pooled_size,
)

assert_close = torch.testing.assert_close
IMAGE = torch.tensor([[[[2.0, 0, 1, 1], [0, -1, 2, 2], [-2, 3, 0, 0], [0, 1, -3, 2]]]])


def draw(seed: int, *shape: int) -> Tensor:
    """Small whole numbers in float64, so that many are equal: a gradient must choose as PyTorch's does."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-3, 4, shape, generator=generator).double().requires_grad_()


def same_with_gradients(x: Tensor, found: Tensor, expected: Tensor) -> None:
    """Equal, and so are the gradients in x of a weighted sum."""
    assert_close(found, expected)
    weights = torch.rand(expected.shape, generator=torch.Generator().manual_seed(0), dtype=expected.dtype)
    ours, theirs = (torch.autograd.grad((y * weights).sum(), x)[0] for y in (found, expected))
    assert_close(ours, theirs)


def test_the_worked_example() -> None:
    assert max_pool(IMAGE, 2)[0, 0].tolist() == [[2, 2], [3, 2]]
    assert average_pool(IMAGE, 2)[0, 0].tolist() == [[0.25, 1.5], [0.5, -0.25]]


@settings(max_examples=100, deadline=None)
@given(
    size=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    k=st.integers(1, 4),
    s=st.none() | st.integers(1, 5),
    data=st.data(),
    ceil=st.booleans(),
    count_padding=st.booleans(),
    axes=st.integers(1, 2),
    seed=st.integers(0, 99),
)
def test_windows_are_pytorchs(
    size: tuple[int, int],
    k: int,
    s: int | None,
    data: st.DataObject,
    ceil: bool,
    count_padding: bool,
    axes: int,
    seed: int,
) -> None:
    p = data.draw(st.integers(0, k // 2))
    x = draw(seed, 2, 3, *size[:axes])
    counts = [pooled_size(n, k, s, p, ceil=ceil) for n in size[:axes]]
    if min(counts) == 0:
        with pytest.raises(ModelError, match="too few"):
            max_pool(x, k, s, p, ceil=ceil)
        return
    largest, mean = (F.max_pool1d, F.avg_pool1d) if axes == 1 else (F.max_pool2d, F.avg_pool2d)
    same_with_gradients(x, max_pool(x, k, s, p, ceil=ceil), largest(x, k, s, p, ceil_mode=ceil))
    found = average_pool(x, k, s, p, ceil=ceil, count_padding=count_padding)
    same_with_gradients(x, found, mean(x, k, s, p, ceil_mode=ceil, count_include_pad=count_padding))
    assert list(found.shape[2:]) == counts


def test_windows_may_differ_from_axis_to_axis() -> None:
    x = draw(0, 1, 2, 9, 8)
    assert_close(max_pool(x, (3, 2), (2, 3), (1, 0)), F.max_pool2d(x, (3, 2), (2, 3), (1, 0)))
    assert_close(average_pool(x, (3, 2), (2, 3), (1, 0)), F.avg_pool2d(x, (3, 2), (2, 3), (1, 0)))


@settings(max_examples=100, deadline=None)
@given(n=st.integers(1, 60), k=st.integers(1, 9), s=st.integers(1, 9), data=st.data())
def test_sizes_are_rounded_down_or_up(n: int, k: int, s: int, data: st.DataObject) -> None:
    p = data.draw(st.integers(0, k // 2))
    down, up = (pooled_size(n, k, s, p, ceil=ceil) for ceil in (False, True))
    assert down == max(0, math.floor((n + 2 * p - k) / s) + 1)
    begins = [i for i in range(-p, n) if (i + p) % s == 0]
    if down:
        # Up: also the first window that hangs over the end, if it begins before the padding there does.
        assert up == min(len(begins), math.ceil((n + 2 * p - k) / s) + 1)
    assert down <= up <= down + 1


def test_caffe_gives_a_row_more() -> None:
    assert pooled_size(112, 3, 2) == 55
    assert pooled_size(112, 3, 2, ceil=True) == 56  # GoogLeNet's maps
    assert pooled_size(6, 3, 2) == 2
    assert pooled_size(6, 3, 2, ceil=True) == 3


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 7, 9, 12])
def test_adaptive_cells_are_pytorchs(size: int) -> None:
    x = draw(size, 2, 2, 9, 7)
    same_with_gradients(x, adaptive_average_pool(x, (size, 3)), F.adaptive_avg_pool2d(x, (size, 3)))
    same_with_gradients(x, adaptive_max_pool(x, (3, size)), F.adaptive_max_pool2d(x, (3, size)))
    x = draw(size, 2, 2, 9)
    same_with_gradients(x, adaptive_average_pool(x, size), F.adaptive_avg_pool1d(x, size))
    same_with_gradients(x, adaptive_max_pool(x, size), F.adaptive_max_pool1d(x, size))


@given(n=st.integers(1, 40), count=st.integers(1, 40))
def test_adaptive_cells_cover_everything_and_are_nearly_equal(n: int, count: int) -> None:
    cells = adaptive_cells(n, count)
    sizes = {cell.stop - cell.start for cell in cells}
    assert set().union(*(range(cell.start, cell.stop) for cell in cells)) == set(range(n))
    assert max(sizes) - min(sizes) <= 1 + (n % count > 0)
    if n % count == 0:
        assert sizes == {n // count}


# --- k-max ----------------------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(values=st.lists(st.integers(-3, 3), min_size=1, max_size=9), data=st.data())
def test_k_max_keeps_the_largest_in_their_order(values: list[int], data: st.DataObject) -> None:
    k = data.draw(st.integers(1, len(values)))
    kept = sorted(sorted(range(len(values)), key=lambda i: (-values[i], i))[:k])
    x = torch.tensor(values, dtype=torch.float64, requires_grad=True)
    y = k_max(x, k)
    assert y.tolist() == [values[i] for i in kept]
    (gradient,) = torch.autograd.grad(y.sum(), x)
    assert gradient.nonzero().flatten().tolist() == kept
    assert k_max(x, len(values)).tolist() == values
    assert k_max(x, 1).item() == max(values)


def test_k_max_along_any_axis() -> None:
    x = draw(0, 2, 5, 3)
    assert_close(k_max(x, 2, dim=1), k_max(x.transpose(1, 2), 2).transpose(1, 2))
    assert k_max(x, 2, dim=1).shape == (2, 2, 3)


def test_dynamic_k_of_the_paper() -> None:
    assert [dynamic_k(layer, 3, 18, 3) for layer in (1, 2, 3)] == [12, 6, 3]
    assert dynamic_k(1, 2, 7, 4) == 4  # ⌈7/2⌉: the ceiling
    assert dynamic_k(1, 2, 9, 4) == 5
    x = draw(0, 2, 4, 22)
    assert dynamic_k_max(x, 1, 3, 18, 3).shape == (2, 4, 12)
    assert_close(dynamic_k_max(x, 3, 3, 18, 3), k_max(x, 3))


@given(layers=st.integers(1, 9), length=st.integers(1, 200), k_top=st.integers(1, 9))
def test_dynamic_k_is_the_formula_and_ends_with_k_top(layers: int, length: int, k_top: int) -> None:
    ks = [dynamic_k(layer, layers, length, k_top) for layer in range(1, layers + 1)]
    assert ks == sorted(ks, reverse=True)
    assert ks[-1] == k_top
    for layer, k in enumerate(ks, start=1):
        assert k >= k_top
        share = (layers - layer) * length  # of L: compared without dividing
        assert k == k_top or (k - 1) * layers < share <= k * layers


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: max_pool(IMAGE, 2, padding=2), "padding=2.*half"),
        (lambda: max_pool(IMAGE, 5), "4 entries.*windows of 5"),
        (lambda: max_pool(IMAGE[0, 0], 2), "x="),
        (lambda: average_pool(IMAGE, (2, 2, 2)), "kernel"),
        (lambda: average_pool(IMAGE, 2, stride=0), "stride"),
        (lambda: adaptive_max_pool(IMAGE, 0), "count=0"),
        (lambda: k_max(IMAGE, 5), "k=5.*at most the 4"),
        (lambda: k_max(IMAGE, 0), "k=0"),
        (lambda: dynamic_k(4, 3, 18, 3), "layer=4"),
        (lambda: dynamic_k(1, 3, 0, 3), "length=0"),
        (lambda: dynamic_k(1, 3, 18, 0), "k_top=0"),
    ],
)
def test_invalid_arguments_are_rejected(call: Callable[[], object], words: str) -> None:
    with pytest.raises(ModelError, match=words):
        call()


def test_pooling_over_frames_too_is_pytorchs() -> None:
    x = torch.randn(2, 3, 5, 6, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    torch.testing.assert_close(max_pool(x, (2, 3, 2), 2, 1), F.max_pool3d(x, (2, 3, 2), 2, 1))
    torch.testing.assert_close(average_pool(x, 3, 2, 1), F.avg_pool3d(x, 3, 2, 1))
    torch.testing.assert_close(adaptive_average_pool(x, (2, 1, 3)), F.adaptive_avg_pool3d(x, (2, 1, 3)))
