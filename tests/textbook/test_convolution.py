"""Convolution: every way of computing it is the same sum, SciPy's and PyTorch's; and what follows from it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import scipy.linalg
import scipy.signal
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from cutaway.core.errors import ModelError, UnknownName
from cutaway.nn.textbook.convolution import (
    METHODS,
    binomial,
    convolution_matrix,
    convolve,
    correlate,
    correlation_matrix,
    output_size,
    sobel_x,
    sobel_y,
)

WAYS = sorted(METHODS)
assert_close = torch.testing.assert_close

IMAGE = torch.tensor([[2.0, 0, 1, 1, 3], [0, -1, 2, 2, 0], [-2, 3, 0, 0, 1], [0, 1, -3, 2, 3], [1, 1, -2, 0, -1]])
KERNEL = torch.tensor([[1.0, 0, -1], [0, 2, 0], [0, 1, 2]])


def draw(seed: int, *shape: int) -> Tensor:
    """Float64 noise."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# --- the definition -----------------------------------------------------------------------------------------------


def by_hand(x: Tensor, w: Tensor, p: int, s: int, d: int, turned: bool) -> Tensor:
    """The sum as the textbook writes it, entry by entry of numbers, along one axis."""
    n, k = len(x), len(w)
    count = (n + 2 * p - d * (k - 1) - 1) // s + 1
    total = []
    for i in range(count):
        places = [(a, s * i + d * a - p) for a in range(k)]
        total.append(sum(float(w[k - 1 - a if turned else a]) * float(x[j]) for a, j in places if 0 <= j < n))
    return torch.tensor(total, dtype=torch.float64)


@pytest.mark.parametrize("way", WAYS)
@settings(max_examples=40, deadline=None)
@given(
    n=st.integers(1, 12),
    k=st.integers(1, 5),
    p=st.integers(0, 4),
    s=st.integers(1, 3),
    d=st.integers(1, 3),
    seed=st.integers(0, 99),
)
def test_both_are_the_sum_by_hand(way: str, n: int, k: int, p: int, s: int, d: int, seed: int) -> None:
    x, w = draw(seed, n), draw(seed + 100, k)
    if output_size(n, k, s, p, d) == 0:
        with pytest.raises(ModelError, match="too few"):
            correlate(x, w, padding=p, stride=s, dilation=d, method=way)
        return
    for function, turned in ((correlate, False), (convolve, True)):
        found = function(x, w, padding=p, stride=s, dilation=d, method=way)
        assert_close(found, by_hand(x, w, p, s, d, turned))
        assert len(found) == output_size(n, k, s, p, d)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("axes", [1, 2])
@settings(max_examples=25, deadline=None)
@given(
    data=st.data(),
    groups=st.integers(1, 3),
    inputs=st.integers(1, 2),
    outputs=st.integers(1, 2),
    seed=st.integers(0, 99),
)
def test_a_layer_is_pytorchs(
    way: str, axes: int, data: st.DataObject, groups: int, inputs: int, outputs: int, seed: int
) -> None:
    each = [st.integers(*bounds) for bounds in ((5, 8), (1, 3), (0, 2), (1, 3), (1, 2))]
    n, k, p, s, d = (tuple(data.draw(one) for _ in range(axes)) for one in each)
    x, w = draw(seed, 2, inputs * groups, *n), draw(seed + 100, outputs * groups, inputs, *k)
    x.requires_grad_()
    w.requires_grad_()
    conv = F.conv1d if axes == 1 else F.conv2d
    expected = conv(x, w, None, s, p, d, groups)
    settings_ = {"padding": p, "stride": s, "dilation": d, "groups": groups, "method": way}
    found = correlate(x, w, **settings_)
    assert_close(found, expected)
    assert_close(convolve(x, w.flip(*range(2, 2 + axes)), **settings_), expected)
    weights = draw(seed + 200, *expected.shape)
    for ours, theirs in zip(*(torch.autograd.grad((y * weights).sum(), (x, w)) for y in (found, expected))):
        assert_close(ours, theirs)


@pytest.mark.filterwarnings("ignore:Using padding='same'")
@pytest.mark.parametrize("k", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("way", WAYS)
def test_words_of_padding_are_pytorchs_and_scipys(way: str, k: int) -> None:
    x, w = draw(0, 12, 11), draw(1, k, k)
    for word in ("valid", "same", "full"):
        expected = torch.from_numpy(scipy.signal.convolve(x.numpy(), w.numpy(), word))
        assert_close(convolve(x, w, padding=word, method=way), expected)
    for word in ("valid", "same"):
        assert_close(correlate(x, w, padding=word, method=way)[None], F.conv2d(x[None], w[None, None], padding=word))
        assert_close(
            correlate(x, w, padding=word, dilation=2, method=way)[None],
            F.conv2d(x[None], w[None, None], padding=word, dilation=2),
        )
    for word in ("valid", "same", "full") if k % 2 else ("valid", "full"):
        expected = torch.from_numpy(scipy.signal.correlate(x.numpy(), w.numpy(), word))
        assert_close(correlate(x, w, padding=word, method=way), expected)


def test_of_an_even_kernel_scipys_same_correlation_is_one_to_the_right() -> None:
    """PyTorch takes entry ⌊(k − 1)/2⌋ for the middle, SciPy entry ⌊k/2⌋."""
    x, w = draw(0, 9), draw(1, 4)
    theirs = torch.from_numpy(scipy.signal.correlate(x.numpy(), w.numpy(), "same"))
    assert_close(correlate(x, w, padding="same")[:-1], theirs[1:])


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("n", "k"), [(7, 3), (6, 4), (3, 5), (2, 7)])
def test_circular_is_the_product_of_spectra(way: str, n: int, k: int) -> None:
    x, w = draw(0, n), draw(1, k)
    wrapped = torch.zeros(n, dtype=torch.float64).index_add(0, torch.arange(k) % n, w)
    product = torch.fft.ifft(torch.fft.fft(x) * torch.fft.fft(wrapped)).real
    assert_close(convolve(x, w, padding="circular", method=way), product.roll(-((k - 1) // 2)))
    if k <= n:
        padded = F.pad(x[None], ((k - 1) // 2, k // 2), mode="circular")
        assert_close(correlate(x, w, padding="circular", method=way)[None], F.conv1d(padded[None], w[None, None])[0])


@pytest.mark.parametrize("way", WAYS)
def test_a_bare_kernel_takes_each_signal_by_itself(way: str) -> None:
    x, w = draw(0, 2, 3, 8), draw(1, 3)
    found = correlate(x, w, padding="same", method=way)
    assert found.shape == (2, 3, 8)
    for i in range(2):
        for j in range(3):
            assert_close(found[i, j], correlate(x[i, j], w, padding="same", method=way))
    assert correlate(x, draw(1, 2, 2), method=way).shape == (2, 2, 7)


def test_no_signals_give_none() -> None:
    assert correlate(torch.ones(2, 0, 9), torch.ones(3)).shape == (2, 0, 7)


def test_whole_numbers_stay_whole() -> None:
    x, w = IMAGE.long(), KERNEL.long()
    for way in ("direct", "toeplitz"):
        assert correlate(x, w, method=way).tolist() == correlate(IMAGE, KERNEL).tolist()
        assert correlate(x, w, method=way).dtype == torch.int64


# --- worked examples ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
def test_the_worked_example_is_a_correlation(way: str) -> None:
    """The textbook's figures are those without turning the kernel; a convolution gives others."""
    correlated = torch.tensor([[2.0, 3, 4], [-1, -2, 10], [-3, -5, 1]])
    convolved = torch.tensor([[4.0, 2, 8], [2, 1, 12], [-2, -1, 5]])
    assert_close(correlate(IMAGE, KERNEL, method=way), correlated, rtol=0, atol=1e-5)
    assert_close(convolve(IMAGE, KERNEL, method=way), convolved, rtol=0, atol=1e-5)
    assert_close(convolved, torch.from_numpy(scipy.signal.convolve2d(IMAGE.numpy(), KERNEL.numpy(), "valid")))


def test_the_gaussian_in_whole_numbers() -> None:
    assert (16 * binomial()).tolist() == [1, 4, 6, 4, 1]
    for size in range(1, 12):
        row, places = binomial(size).double(), torch.arange(size) - (size - 1) / 2
        assert row.sum() == 1
        assert (row * places**2).sum().item() == pytest.approx((size - 1) / 4)
    assert_close(convolve(binomial(3), binomial(3), padding="full"), binomial(5), rtol=0, atol=0)
    plane = torch.outer(binomial(), binomial())
    image = draw(0, 9, 9).float()
    one_by_one = convolve(convolve(image, binomial()[:, None]), binomial()[None])
    assert_close(convolve(image, plane), one_by_one)
    with pytest.raises(ModelError, match="size"):
        binomial(0)


def test_sobel_is_named_after_its_derivative_and_turning_changes_its_sign_alone() -> None:
    y, x = torch.meshgrid(torch.arange(6.0), torch.arange(6.0), indexing="ij")
    for ramp, along_x, along_y in ((x, 8.0, 0.0), (y, 0.0, 8.0), (3 * x - y, 24.0, -8.0)):
        for kernel, slope in ((sobel_x(), along_x), (sobel_y(), along_y)):
            assert correlate(ramp, kernel).unique().tolist() == [slope]
            assert convolve(ramp, kernel).unique().tolist() == [-slope]
    assert sobel_x().sum() == sobel_y().sum() == 0  # not with all signs alike: that is a blur
    assert torch.equal(sobel_x(), torch.outer(4 * binomial(3), torch.tensor([-1.0, 0, 1])))
    edge = (x >= 3).float()  # a vertical edge
    assert correlate(edge, sobel_x()).abs().max() == 4
    assert correlate(edge, sobel_y()).abs().max() == 0


# --- the size -----------------------------------------------------------------------------------------------------


@settings(max_examples=100, deadline=None)
@given(n=st.integers(1, 60), k=st.integers(1, 9), p=st.integers(0, 5), s=st.integers(1, 5), d=st.integers(1, 4))
def test_the_output_size_counts_the_windows(n: int, k: int, p: int, s: int, d: int) -> None:
    inside = [i for i in range(n + 2 * p) if i % s == 0 and i + d * (k - 1) < n + 2 * p]
    assert output_size(n, k, s, p, d) == len(inside)
    if inside:
        x = torch.zeros(1, 1, n, device="meta")
        layer = F.conv1d(x, torch.zeros(1, 1, k, device="meta"), None, s, p, d)
        assert layer.shape[2] == output_size(n, k, s, p, d)


# --- the matrix ---------------------------------------------------------------------------------------------------


@settings(max_examples=30, deadline=None)
@given(n=st.integers(1, 9), k=st.integers(1, 5), word=st.sampled_from(["valid", "same", "full"]))
def test_the_matrix_is_scipys_and_toeplitz(n: int, k: int, word: str) -> None:
    if k > n:  # SciPy then changes the roles of the two
        return
    w = draw(k, k)
    matrix = convolution_matrix(w, n, padding=word)
    assert_close(matrix, torch.from_numpy(scipy.linalg.convolution_matrix(w.numpy(), n, mode=word)))
    rows, columns = matrix.shape
    for offset in range(1 - rows, columns):
        assert matrix.diagonal(offset).unique().numel() == 1


def test_entries_of_the_matrix_are_the_kernels() -> None:
    w, (a, b, c) = torch.tensor([1.0, 2, 3]), (1, 2, 3)
    assert correlation_matrix(w, 5).tolist() == [[a, b, c, 0, 0], [0, a, b, c, 0], [0, 0, a, b, c]]
    assert convolution_matrix(w, 5).tolist() == [[c, b, a, 0, 0], [0, c, b, a, 0], [0, 0, c, b, a]]
    assert correlation_matrix(w, 3, padding="circular").tolist() == [[b, c, a], [a, b, c], [c, a, b]]
    assert correlation_matrix(w, 5, stride=2).tolist() == [[a, b, c, 0, 0], [0, 0, a, b, c]]
    assert correlation_matrix(w, 5, dilation=2).tolist() == [[a, 0, b, 0, c]]


def test_the_matrix_of_a_layer_is_the_layer() -> None:
    x, w = draw(0, 3, 4, 6, 5), draw(1, 6, 2, 3, 2)
    matrix = correlation_matrix(w, (6, 5), padding=1, stride=2, dilation=(1, 2), groups=2)
    expected = F.conv2d(x, w, None, 2, 1, (1, 2), 2)
    assert_close((x.flatten(1) @ matrix.T).view_as(expected), expected)
    outputs, inputs = matrix.shape
    assert matrix[: outputs // 2, inputs // 2 :].abs().max() == 0  # nothing between the groups


def test_the_transpose_of_a_valid_correlation_is_the_full_convolution() -> None:
    w = draw(0, 3, 2)
    back = convolution_matrix(w, (4, 4), padding="full")
    assert_close(correlation_matrix(w, (6, 5)).T, back)


# --- what is true of convolution and not of correlation -------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
def test_convolution_commutes_and_an_impulse_gives_the_kernel(way: str) -> None:
    a, b, c = draw(0, 5, 4), draw(1, 3, 2), draw(2, 2, 3)

    def full(x: Tensor, w: Tensor) -> Tensor:
        return convolve(x, w, padding="full", method=way)

    assert_close(full(a, b), full(b, a))
    assert_close(full(full(a, b), c), full(a, full(b, c)))
    impulse = torch.zeros(5, 5, dtype=torch.float64)
    impulse[2, 2] = 1
    w = draw(3, 3, 3)
    assert_close(convolve(impulse, w, padding="same", method=way)[1:4, 1:4], w)
    assert_close(correlate(impulse, w, padding="same", method=way)[1:4, 1:4], w.flip(0, 1))


# --- shift equivariance, with its conditions ------------------------------------------------------------------------


def zero_shift(x: Tensor, by: tuple[int, int]) -> Tensor:
    """x moved down and to the right by `by`, zeros behind it: what moves out is lost."""
    return F.pad(x, (by[1], -by[1], by[0], -by[0]))


SHIFTS = {"by": st.tuples(st.integers(-4, 4), st.integers(-4, 4)), "seed": st.integers(0, 99)}
KERNELS = {"k": st.tuples(st.integers(1, 4), st.integers(1, 4)), "d": st.integers(1, 2)}


@settings(max_examples=40, deadline=None)
@given(**SHIFTS, **KERNELS)
def test_circular_is_equivariant_to_every_shift(by: tuple[int, int], seed: int, k: tuple[int, int], d: int) -> None:
    x, w = draw(seed, 8, 7), draw(seed + 1, *k)
    for function in (correlate, convolve):
        y = function(x, w, padding="circular", dilation=d)
        assert_close(function(x.roll(by, (0, 1)), w, padding="circular", dilation=d), y.roll(by, (0, 1)))


@settings(max_examples=40, deadline=None)
@given(**SHIFTS, **KERNELS)
def test_full_is_equivariant_while_nothing_is_pushed_out(
    by: tuple[int, int], seed: int, k: tuple[int, int], d: int
) -> None:
    x, w = F.pad(draw(seed, 3, 3), (4, 4, 4, 4)), draw(seed + 1, *k)  # room for the shift
    for function in (correlate, convolve):
        y = function(x, w, padding="full", dilation=d)
        assert_close(function(zero_shift(x, by), w, padding="full", dilation=d), zero_shift(y, by))


@pytest.mark.parametrize("padding", ["same", "valid"])
@settings(max_examples=40, deadline=None)
@given(**SHIFTS, **KERNELS)
def test_others_are_equivariant_away_from_borders(
    padding: str, by: tuple[int, int], seed: int, k: tuple[int, int], d: int
) -> None:
    """Where neither window, before or after the shift, touches a border: 4 entries of shift, d(k − 1) of window."""
    x, w = draw(seed, 32, 32), draw(seed + 1, *k)
    for function in (correlate, convolve):
        y = function(x, w, padding=padding, dilation=d)
        moved = function(zero_shift(x, by), w, padding=padding, dilation=d)
        far = tuple(slice(4 + d * (n - 1), m - 4 - d * (n - 1)) for n, m in zip(k, y.shape))
        assert moved[far].numel() >= 16
        assert_close(moved[far], zero_shift(y, by)[far])


def test_at_borders_same_is_not_equivariant() -> None:
    x = torch.ones(6)
    y = correlate(x, torch.ones(3), padding="same")
    assert y.tolist() == [2, 3, 3, 3, 3, 2]
    assert correlate(x.roll(1), torch.ones(3), padding="same").tolist() != y.roll(1).tolist()


@settings(max_examples=40, deadline=None)
@given(**SHIFTS, **KERNELS, s=st.integers(2, 4))
def test_a_stride_is_equivariant_to_its_multiples(
    by: tuple[int, int], seed: int, k: tuple[int, int], d: int, s: int
) -> None:
    """x moved by s·m moves y by m, where the circle has a whole number of strides."""
    x, w = draw(seed, 3 * s, 4 * s), draw(seed + 1, *k)
    y = correlate(x, w, padding="circular", stride=s, dilation=d)
    moved = correlate(x.roll((s * by[0], s * by[1]), (0, 1)), w, padding="circular", stride=s, dilation=d)
    assert_close(moved, y.roll(by, (0, 1)))


@pytest.mark.parametrize("s", [2, 3])
def test_a_stride_is_not_equivariant_to_other_shifts(s: int) -> None:
    x, w = draw(0, 12), draw(1, 3)
    y = correlate(x, w, padding="circular", stride=s)
    moved = correlate(x.roll(1), w, padding="circular", stride=s)
    assert all(not torch.allclose(moved, y.roll(m)) for m in range(len(y)))


# --- the transform ------------------------------------------------------------------------------------------------

SHAPES: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "long signal, long kernel": ((20_000,), (500,), {"padding": "same"}),
    "long signal, short kernel": ((20_000,), (3,), {"padding": "full"}),
    "short signal": ((50,), (20,), {}),
    "image, large kernel": ((2, 200, 190), (31, 30), {"padding": "full", "stride": 2}),
    "image, small kernel": ((2, 200, 190), (3, 3), {"padding": 1}),
    "layer, large kernel": ((2, 1, 128, 128), (2, 1, 21, 21), {"padding": "circular"}),
    "grouped layer": ((1, 2, 6_000), (2, 1, 1_500), {"groups": 2, "dilation": 2}),
    "layer of many channels": ((2, 32, 32, 32), (32, 32, 3, 3), {"padding": 1}),
}


@pytest.mark.parametrize("name", SHAPES)
def test_the_transform_is_the_sum_with_its_gradients(name: str) -> None:
    shape, kernel, asked = SHAPES[name]
    x, w = draw(0, *shape).requires_grad_(), draw(1, *kernel).requires_grad_()
    found, expected = (convolve(x, w, **asked, method=method) for method in ("fft", "fused"))
    assert_close(found, expected)
    weights = draw(2, *expected.shape)
    for ours, theirs in zip(*(torch.autograd.grad((y * weights).sum(), (x, w)) for y in (found, expected))):
        assert_close(ours, theirs)


def test_the_transform_rounds_relative_to_the_largest() -> None:
    x, w = draw(0, 20_000).float(), draw(1, 500).float()
    exact = convolve(x.double(), w.double(), method="fft")
    error = (convolve(x, w, method="fft") - exact).abs().max() / exact.abs().max()
    assert error < 1e-6


# --- what is rejected ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: correlate(IMAGE, KERNEL, padding="reflect"), "padding='reflect'.*circular"),
        (lambda: correlate(IMAGE, KERNEL, padding=-1), "padding=-1"),
        (lambda: correlate(IMAGE, KERNEL, stride=0), "stride=0"),
        (lambda: correlate(IMAGE, KERNEL, dilation=(1, 1, 1)), "dilation"),
        (lambda: correlate(IMAGE, torch.ones(6, 6)), "5 entries.*windows of 6"),
        (lambda: correlate(IMAGE[:, 0], KERNEL), "x=.*at least 2 axes"),
        (lambda: correlate(IMAGE, torch.ones(1, 1, 1, 1, 1)), "kernel of shape"),
        (lambda: correlate(IMAGE, torch.ones(0)), "kernel of shape"),
        (lambda: correlate(torch.ones(1, 3, 5), torch.ones(2, 2, 3)), r"does not fit.*\(N, 2, n\)"),
        (lambda: correlate(torch.ones(1, 4, 5), torch.ones(3, 2, 3), groups=2), "groups=2.*divisor of the outputs, 3"),
        (lambda: correlate(IMAGE, KERNEL, groups=2), "groups=2"),
        (lambda: correlate(torch.ones(2, 0), torch.ones(1), padding="full"), "0 entries"),
        (lambda: correlation_matrix(torch.ones(3), 2), "too few"),
        (lambda: convolution_matrix(torch.ones(3), 0), "size=0"),
        (lambda: correlation_matrix(torch.ones(3, 1, 3), 5, groups=2), "groups=2"),
    ],
)
def test_invalid_arguments_are_rejected(call: Callable[[], object], words: str) -> None:
    with pytest.raises(ModelError, match=words):
        call()


def test_an_unknown_way_is_rejected_with_those_there_are() -> None:
    with pytest.raises(UnknownName, match="toeplitz"):
        correlate(IMAGE, KERNEL, method="toplitz")


@pytest.mark.parametrize("method", METHODS)
def test_a_layer_over_frames_too_is_pytorchs_and_scipys(method: str) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, 4, 5, 6, 7, generator=generator, dtype=torch.float64)
    w = torch.randn(6, 2, 3, 2, 3, generator=generator, dtype=torch.float64)
    found = correlate(x, w, padding=1, stride=(1, 2, 2), dilation=(2, 1, 1), groups=2, method=method)
    expected = torch.nn.functional.conv3d(x, w, None, (1, 2, 2), 1, (2, 1, 1), 2)
    torch.testing.assert_close(found, expected)
    alone = correlate(x[:1, :1], w[:1, :1], method=method)[0, 0]
    torch.testing.assert_close(alone, torch.from_numpy(scipy.signal.correlate(x[0, 0], w[0, 0], mode="valid")))


@pytest.mark.parametrize("padding", ["same", "circular"])
def test_a_linear_operation_equivariant_to_circular_shifts_is_the_convolution_with_its_impulse_response(
    padding: str,
) -> None:
    """Only `circular` is equivariant on a ring: with `same` the response to one impulse does not predict the rest."""
    g = torch.Generator().manual_seed(0)
    w, x = (torch.randn(n, generator=g, dtype=torch.float64) for n in (5, 16))

    def operation(signal: Tensor) -> Tensor:
        return correlate(correlate(signal, w, padding=padding), w.flip(0) + 1, padding=padding)

    impulse = torch.zeros(16, dtype=torch.float64)
    impulse[0] = 1
    h = operation(impulse)
    predicted = torch.stack([x[j] * h.roll(j) for j in range(16)]).sum(0)
    assert torch.allclose(operation(x), predicted) == (padding == "circular")
    if padding == "circular":
        spectra = torch.fft.fft(x) * torch.fft.fft(h)
        assert torch.allclose(operation(x), torch.fft.ifft(spectra).real)


def test_the_matrix_of_an_integral_operator_with_a_kernel_of_differences_is_the_convolution_matrix() -> None:
    dt = 1 / 8
    t = torch.arange(-4, 4, dt, dtype=torch.float64)
    f = torch.exp(-(t**2))

    def decay(t: Tensor) -> Tensor:
        return torch.where(t >= 0, torch.exp(-t.clamp(min=0)), 0.0)

    H = decay(t[:, None] - t[None, :])  # H(u, t) = g(u − t)
    lags = torch.arange(-(len(t) - 1), len(t), dtype=torch.float64) * dt
    matrix = convolution_matrix(decay(lags), len(t), padding="full")[len(t) - 1 : 2 * len(t) - 1]
    assert torch.allclose(H, matrix)
    assert torch.allclose(H @ f * dt, convolve(f, decay(lags), padding="full")[len(t) - 1 : 2 * len(t) - 1] * dt)
