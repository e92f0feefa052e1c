"""Normalization: the formulas are PyTorch's fused functions, and only entries that share a set touch each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from cutaway.core.errors import ModelError
from cutaway.nn.normalization import batch_norm, group_norm, layer_norm, local_response_norm, rms_norm

assert_close = torch.testing.assert_close


def draw(seed: int, *shape: int) -> Tensor:
    """Float64 noise, off centre."""
    return 2 * torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) + 1


def same_with_gradients(call: Callable[..., Tensor], fused: Callable[..., Tensor], *inputs: Tensor) -> None:
    """Equal, and so are the gradients in every input."""
    inputs = tuple(v.clone().requires_grad_() for v in inputs)
    found, expected = call(*inputs), fused(*inputs)
    assert_close(found, expected)
    weights = draw(99, *expected.shape)
    for ours, theirs in zip(*(torch.autograd.grad((y * weights).sum(), inputs) for y in (found, expected))):
        assert_close(ours, theirs)


shapes = st.sampled_from([(4, 3), (2, 3, 5), (3, 2, 4, 3), (1, 4, 2, 2)])


@settings(max_examples=25, deadline=None)
@given(shape=shapes, seed=st.integers(0, 99), eps=st.sampled_from([1e-5, 1e-3]), momentum=st.floats(0, 1))
def test_batch_norm_in_training_moves_its_statistics(
    shape: tuple[int, ...], seed: int, eps: float, momentum: float
) -> None:
    x, weight, bias = draw(seed, *shape), draw(seed + 1, shape[1]), draw(seed + 2, shape[1])
    statistics = [(draw(seed + 3, shape[1]), draw(seed + 4, shape[1]).square()) for _ in range(2)]
    options: dict[str, Any] = {"training": True, "momentum": momentum, "eps": eps}
    found = batch_norm(x, *statistics[0], weight, bias, **options)
    assert_close(found, F.batch_norm(x, *statistics[1], weight, bias, **options))
    for ours, theirs in zip(*statistics):
        assert_close(ours, theirs)
    same_with_gradients(
        lambda x, w, b: batch_norm(x, None, None, w, b, training=True, eps=eps),
        lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True, eps=eps),
        x,
        weight,
        bias,
    )


@settings(max_examples=15, deadline=None)
@given(shape=shapes, seed=st.integers(0, 99))
def test_batch_norm_afterwards_uses_its_statistics(shape: tuple[int, ...], seed: int) -> None:
    mean, var = draw(seed, shape[1]), draw(seed + 1, shape[1]).square()
    before = mean.clone(), var.clone()
    x, weight, bias = draw(seed + 2, *shape), draw(seed + 3, shape[1]), draw(seed + 4, shape[1])
    same_with_gradients(
        lambda x, w, b: batch_norm(x, mean, var, w, b),
        lambda x, w, b: F.batch_norm(x, mean, var, w, b),
        x,
        weight,
        bias,
    )
    assert torch.equal(mean, before[0])
    assert torch.equal(var, before[1])


def test_the_running_variance_is_unbiased_and_the_other_is_not() -> None:
    x = torch.tensor([[0.0], [2.0]])
    mean, var = torch.zeros(1), torch.zeros(1)
    y = batch_norm(x, mean, var, training=True, momentum=1.0, eps=0.0)
    assert y.flatten().tolist() == [-1, 1]  # (x − 1)/√1, of the biased variance 1
    assert (mean.item(), var.item()) == (1, 2)


def test_a_model_of_modules_is_the_same() -> None:
    module, x = nn.BatchNorm2d(3).double(), draw(0, 4, 3, 5, 5)
    mean, var = torch.zeros(3, dtype=torch.float64), torch.ones(3, dtype=torch.float64)
    for seed in range(3):
        x = draw(seed, 4, 3, 5, 5)
        assert_close(batch_norm(x, mean, var, module.weight, module.bias, training=True), module(x))
    assert_close(mean, module.running_mean)
    assert_close(var, module.running_var)
    assert_close(batch_norm(x, mean, var, module.weight, module.bias), module.eval()(x))


@pytest.mark.parametrize("shape", [(3,), (4, 3), (2, 4, 3)])
@pytest.mark.parametrize("affine", [True, False])
def test_layer_norm_is_pytorchs(shape: tuple[int, ...], affine: bool) -> None:
    x, weight, bias = draw(0, 5, 2, 4, 3), draw(1, *shape), draw(2, *shape)
    given_ = (weight, bias) if affine else ()
    same_with_gradients(
        lambda x, *wb: layer_norm(x, shape, *wb), lambda x, *wb: F.layer_norm(x, shape, *wb), x, *given_
    )


@pytest.mark.parametrize("shape", [(3,), (4, 3)])
@pytest.mark.parametrize("eps", [None, 1e-3])
def test_rms_norm_is_pytorchs(shape: tuple[int, ...], eps: float | None) -> None:
    x, weight = draw(0, 5, 4, 3), draw(1, *shape)
    same_with_gradients(
        lambda x, w: rms_norm(x, shape, w, eps=eps), lambda x, w: F.rms_norm(x, shape, w, eps), x, weight
    )
    same_with_gradients(lambda x: rms_norm(x, shape, eps=eps), lambda x: F.rms_norm(x, shape, None, eps), x)


@pytest.mark.parametrize("shape", [(2, 7), (2, 7, 4), (2, 7, 3, 4)])
@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 8, 15])
def test_local_response_norm_is_pytorchs(shape: tuple[int, ...], size: int) -> None:
    if len(shape) == 2:  # PyTorch's takes maps alone
        x = draw(0, *shape)
        expected = F.local_response_norm(x[..., None], size, 0.5, 0.75, 2.0)[..., 0]
        assert_close(local_response_norm(x, size, alpha=0.5, beta=0.75, k=2.0), expected)
        return
    same_with_gradients(
        lambda x: local_response_norm(x, size, alpha=0.5, beta=0.75, k=2.0),
        lambda x: F.local_response_norm(x, size, 0.5, 0.75, 2.0),
        draw(0, *shape),
    )
    assert_close(local_response_norm(draw(0, *shape)), F.local_response_norm(draw(0, *shape), 5))


def test_local_response_norm_as_published() -> None:
    """b_i = a_i / (k + α Σ_j a_j²)^β, j within n/2 of i, with k = 2, n = 5, α = 10⁻⁴, β = 0.75."""
    a = 10 * draw(0, 1, 9)
    published = []
    for i in range(9):
        total = sum(a[0, j].item() ** 2 for j in range(max(0, i - 2), min(8, i + 2) + 1))
        published.append(a[0, i].item() / (2 + 1e-4 * total) ** 0.75)
    found = local_response_norm(a, 5, alpha=5e-4, beta=0.75, k=2.0)
    assert_close(found, torch.tensor([published], dtype=torch.float64))


# --- which entries share what ---------------------------------------------------------------------------------------

SETS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[int, int, int], bool]]] = {
    # One entry at (n, c, i) = (1, 2, 3) of (3, 6, 5): which others does it touch?
    "batch": (lambda x: batch_norm(x, None, None, training=True), lambda n, c, i: c == 2),
    "batch, afterwards": (
        lambda x: batch_norm(x, torch.zeros(6).double(), torch.ones(6).double()),
        lambda n, c, i: (n, c, i) == (1, 2, 3),
    ),
    "layer, of a map": (lambda x: layer_norm(x, (6, 5)), lambda n, c, i: n == 1),
    "layer, of a token": (lambda x: layer_norm(x.mT, (6,)).mT, lambda n, c, i: (n, i) == (1, 3)),
    "RMS, of a token": (lambda x: rms_norm(x.mT, (6,)).mT, lambda n, c, i: (n, i) == (1, 3)),
    "local response": (
        lambda x: local_response_norm(x, 3, alpha=1.0),
        lambda n, c, i: (n, i) == (1, 3) and 1 <= c <= 3,
    ),
}


@pytest.mark.parametrize("name", SETS)
def test_an_entry_touches_those_it_shares_a_set_with(name: str) -> None:
    norm, shares = SETS[name]
    x = draw(0, 3, 6, 5)
    moved = x.clone()
    moved[1, 2, 3] += 1
    touched = (norm(x) - norm(moved)).abs() > 1e-9
    expected = torch.tensor([[[shares(n, c, i) for i in range(5)] for c in range(6)] for n in range(3)])
    assert torch.equal(touched, expected)


@settings(max_examples=25, deadline=None)
@given(scale=st.floats(0.5, 20), shift=st.floats(-5, 5), seed=st.integers(0, 99))
def test_scale_and_shift_are_lost_but_rms_keeps_a_shift(scale: float, shift: float, seed: int) -> None:
    x = draw(seed, 6, 4, 5)
    for norm in (lambda v: batch_norm(v, None, None, training=True, eps=0), lambda v: layer_norm(v, (4, 5), eps=0)):
        assert_close(norm(scale * x + shift), norm(x))
    assert_close(rms_norm(scale * x, (5,), eps=0.0), rms_norm(x, (5,), eps=0.0))
    assert not torch.allclose(rms_norm(x + 1, (5,)), rms_norm(x, (5,)))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: batch_norm(torch.ones(1, 3), None, None, training=True), "larger batch"),
        (lambda: layer_norm(torch.ones(2, 3), (2,)), r"shape=\(2,\)"),
        (lambda: rms_norm(torch.ones(2, 3), ()), r"shape=\(\)"),
        (lambda: local_response_norm(torch.ones(2, 3), 0), "size=0"),
    ],
)
def test_invalid_fields_are_rejected_by_name(call: Callable[[], object], words: str) -> None:
    with pytest.raises(ModelError, match=words):
        call()


@pytest.mark.parametrize("groups", [1, 2, 6])
@pytest.mark.parametrize("shape", [(3, 6), (2, 6, 5), (2, 6, 4, 3)])
def test_group_norm_is_pytorchs(shape: tuple[int, ...], groups: int) -> None:
    if len(shape) == 2 and groups == 6:
        groups = 3  # PyTorch refuses one value in each group
    x, weight, bias = draw(0, *shape), draw(1, 6), draw(2, 6)
    same_with_gradients(
        lambda x, w, b: group_norm(x, groups, w, b, eps=1e-3),
        lambda x, w, b: F.group_norm(x, groups, w, b, eps=1e-3),
        x,
        weight,
        bias,
    )
    assert_close(group_norm(x, groups), F.group_norm(x, groups))


def test_group_norm_of_one_group_is_layer_norm_of_images_with_a_weight_for_each_channel() -> None:
    x, weight, bias = draw(0, 2, 6, 4, 3), draw(1, 6), draw(2, 6)
    by_channel = [v[:, None, None].expand(6, 4, 3) for v in (weight, bias)]
    assert_close(group_norm(x, 1, weight, bias), layer_norm(x, (6, 4, 3), *by_channel))
    assert_close(group_norm(x, 6), F.instance_norm(x))
    with pytest.raises(ValueError, match="groups=4"):
        group_norm(x, 4)
