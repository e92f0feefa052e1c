"""Positions: sinusoids, rotations, and buckets of distances."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from cutaway.core.errors import ModelError
from cutaway.nn.attention import causal_mask, merge_masks, scaled_dot_product
from cutaway.nn.position import (
    RelativeBias,
    alibi,
    alibi_slopes,
    distance_buckets,
    grid_sinusoids,
    rotary,
    rotation,
    sinusoids,
)
from cutaway.verify.libraries import make_torchvision_importable


def normal(*shape: int, seed: int = 0) -> Tensor:
    """Float64 numbers from the standard normal distribution."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# --- sinusoids ----------------------------------------------------------------------------------------------------


def test_position_2_of_4_numbers() -> None:
    found = sinusoids(torch.tensor([2]), 4, torch.float64)[0].tolist()
    assert found == pytest.approx([math.sin(2), math.cos(2), math.sin(0.02), math.cos(0.02)], abs=1e-15)
    assert sinusoids(torch.tensor(0), 4).tolist() == [0, 1, 0, 1]


def test_each_number_is_its_formula() -> None:
    table = sinusoids(torch.arange(50), 7, torch.float64)  # an odd number too: the last is a sine
    for p in (0, 1, 49):
        for j in range(7):
            angle = p / 10_000 ** ((j - j % 2) / 7)
            assert table[p, j].item() == pytest.approx(math.cos(angle) if j % 2 else math.sin(angle), abs=1e-12)


@settings(max_examples=40, deadline=None)
@given(dim=st.integers(1, 8).map(lambda n: 2 * n), position=st.integers(0, 5000), shift=st.integers(-200, 200))
def test_a_shift_is_a_linear_map_that_no_position_changes(dim: int, position: int, shift: int) -> None:
    """PE(p + s) = R_s PE(p), R_s a rotation of each pair."""
    places = torch.tensor([0, 1, position])
    before = sinusoids(places, dim, torch.float64).unflatten(-1, (-1, 2))  # (3, dim/2, 2): sine, cosine
    after = sinusoids(places + shift, dim, torch.float64).unflatten(-1, (-1, 2))
    angles = shift / 10_000 ** (torch.arange(0, dim, 2, dtype=torch.float64) / dim)
    turn = torch.stack([angles.cos(), angles.sin(), -angles.sin(), angles.cos()], -1).view(-1, 2, 2)
    torch.testing.assert_close((turn @ before[..., None])[..., 0], after, rtol=1e-9, atol=1e-9)


def test_far_positions_keep_their_digits() -> None:
    far = torch.tensor([100_003])
    assert sinusoids(far, 2)[0, 0].item() == pytest.approx(math.sin(100_003), abs=1e-7)
    assert sinusoids(far.float(), 2, torch.bfloat16).dtype == torch.bfloat16


def test_places_of_a_map_are_told_by_row_and_by_column() -> None:
    found = grid_sinusoids(3, 4, 7, like=torch.empty(0, dtype=torch.float64)).unflatten(0, (3, 4))
    places = torch.arange(4)
    for row in range(3):
        for column in range(4):
            assert torch.equal(found[row, column, :3], sinusoids(places, 3, torch.float64)[row])
            assert torch.equal(found[row, column, 3:], sinusoids(places, 4, torch.float64)[column])


# --- rotary -------------------------------------------------------------------------------------------------------


def test_a_pair_is_turned_by_its_angle() -> None:
    x = torch.zeros(1, 1, 1, 4, dtype=torch.float64)
    x[..., 0] = x[..., 2] = 1
    turned = rotary(x, torch.tensor([2])).flatten().tolist()
    assert turned == pytest.approx([math.cos(2), math.sin(2), math.cos(0.02), math.sin(0.02)], abs=1e-15)


@settings(max_examples=40, deadline=None)
@given(shift=st.integers(0, 3000), half=st.integers(1, 6), seed=st.integers(0, 99))
def test_scores_depend_on_the_distance_alone(shift: int, half: int, seed: int) -> None:
    q, k = normal(2, 3, 5, 2 * half, seed=seed), normal(2, 3, 5, 2 * half, seed=seed + 1)
    places = torch.arange(5)

    def scores(positions: Tensor) -> Tensor:
        return rotary(q, positions) @ rotary(k, positions).mT

    torch.testing.assert_close(scores(places + shift), scores(places), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(rotary(q, places).norm(dim=-1), q.norm(dim=-1))
    assert torch.equal(rotary(q, torch.zeros(5, dtype=torch.long)), q)
    if shift:
        moved = rotary(q, places) @ rotary(k, places + shift).mT
        assert not torch.allclose(moved, scores(places), rtol=1e-6)


def test_rows_can_stand_elsewhere() -> None:
    x, places = normal(2, 3, 4, 6), torch.tensor([[0, 1, 2, 3], [5, 6, 7, 7]])
    found = rotary(x, places)
    for row in (0, 1):
        torch.testing.assert_close(found[row], rotary(x[row : row + 1], places[row])[0])
    assert torch.equal(rotary(x, rotation(places, 6, x.dtype)), found)


def test_few_digits_do_not_blur_the_angle() -> None:
    x, places = normal(1, 1, 3, 4), torch.tensor([1000, 1001, 1002])
    found = rotary(x.bfloat16(), places)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.double(), rotary(x, places), rtol=0.02, atol=0.02)


# --- distances ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("both", [True, False], ids=["encoder", "decoder"])
@pytest.mark.parametrize(("buckets", "furthest"), [(32, 128), (8, 20), (64, 500)])
def test_buckets_are_those_of_transformers_t5(both: bool, buckets: int, furthest: int) -> None:
    make_torchvision_importable()
    t5 = pytest.importorskip("transformers.models.t5.modeling_t5")
    distances = torch.arange(-300, 301)
    theirs = t5.T5Attention._relative_position_bucket(distances, both, buckets, furthest)
    assert torch.equal(distance_buckets(distances, buckets, furthest, both=both), theirs)


@pytest.mark.parametrize("both", [True, False], ids=["encoder", "decoder"])
def test_buckets_grow_with_the_distance(both: bool) -> None:
    before = distance_buckets(-torch.arange(0, 400), both=both)
    exact = 8 if both else 16
    assert before[:exact].tolist() == list(range(exact))
    assert (before.diff() >= 0).all()
    assert before[128:].unique().tolist() == [2 * exact - 1]
    behind = distance_buckets(torch.arange(1, 400), both=both)
    assert torch.equal(behind, before[1:] + 16 if both else torch.zeros(399, dtype=torch.long))


def test_a_bias_is_one_number_for_each_distance_and_head() -> None:
    torch.manual_seed(0)
    layer = RelativeBias(3, 8, 20).double()
    bias = layer(6, 6)
    assert bias.shape == (1, 3, 6, 6)
    for shift in range(-5, 6):
        diagonal = bias[0].diagonal(shift, 1, 2)
        assert torch.equal(diagonal, diagonal[:, :1].expand_as(diagonal))
    assert torch.equal(bias[0, :, 1, 4], layer.table.weight[distance_buckets(torch.tensor(3), 8, 20)])
    assert torch.equal(layer(2, 6), bias[:, :, -2:])


def test_a_bias_learns_only_from_what_is_seen() -> None:
    layer = RelativeBias(2, 8, 20, both=True).double()
    mask = merge_masks(layer(5, 5), causal_mask(5, 5))
    result, _ = scaled_dot_product(normal(1, 2, 5, 4), normal(1, 2, 5, 4, seed=1), normal(1, 2, 5, 4, seed=2), mask)
    result.sum().backward()
    grad = layer.table.weight.grad
    assert grad is not None
    behind = distance_buckets(torch.arange(1, 5), 8, 20).unique()
    assert not grad[behind].any()
    assert grad[distance_buckets(torch.arange(-3, 1), 8, 20)].any(1).all()


@pytest.mark.parametrize(
    ("changes", "field"),
    [({"buckets": 3}, "buckets"), ({"buckets": 1, "both": False}, "buckets"), ({"furthest": 8}, "furthest")],
    ids=str,
)
def test_buckets_that_cannot_be_are_rejected_by_name(changes: dict[str, int], field: str) -> None:
    with pytest.raises(ModelError, match=f"^Invalid {field}="):
        RelativeBias(2, **changes)


def test_an_odd_number_has_no_pairs() -> None:
    with pytest.raises(ModelError, match=r"^Invalid dim=5: must be even"):
        rotary(normal(1, 1, 2, 5), torch.arange(2))


# --- the base -----------------------------------------------------------------------------------------------------


def test_base_sets_the_slowest_angle() -> None:
    table = sinusoids(torch.arange(50), 8, torch.float64, base=16.0)
    for p, i in ((1, 0), (7, 2), (49, 3)):
        assert table[p, 2 * i].item() == pytest.approx(math.sin(p / 16 ** (i / 4)), abs=1e-12)
    assert torch.equal(sinusoids(torch.arange(50), 8, base=10_000.0), sinusoids(torch.arange(50), 8))
    x, places = normal(1, 2, 50, 8), torch.arange(50)
    turned = rotary(x, places, base=16.0)
    assert torch.equal(turned, rotary(x, rotation(places, 8, x.dtype, base=16.0)))
    assert not torch.allclose(turned, rotary(x, places))


# --- ALiBi --------------------------------------------------------------------------------------------------------


def test_slopes_are_those_of_the_paper() -> None:
    assert alibi_slopes(8).tolist() == [2**-i for i in range(1, 9)]  # section 3
    assert alibi_slopes(16).tolist() == pytest.approx([2 ** (-i / 2) for i in range(1, 17)])
    assert alibi_slopes(6).tolist() == pytest.approx([2**-2, 2**-4, 2**-6, 2**-8, 2**-1, 2**-3])
    assert alibi_slopes(1).tolist() == [2**-8]


@pytest.mark.parametrize("heads", [1, 2, 3, 4, 6, 8, 12, 20])
def test_weights_with_alibi_are_those_of_blooms_bias(heads: int) -> None:
    """BLOOM adds slope · position of the key, which is the same for every query up to a constant."""
    make_torchvision_importable()
    from transformers.models.bloom.modeling_bloom import build_alibi_tensor

    mask = torch.tensor([[False, False, True, True, True, True], [True] * 6])
    visible = mask[:, None, None] & causal_mask(6, 6)
    theirs = build_alibi_tensor(mask, heads, torch.float64).view(2, heads, 1, 6)
    q, k, v = (normal(2, heads, 6, 4, seed=i) for i in range(3))
    _, weights = scaled_dot_product(q, k, v, alibi(visible, heads, torch.float64))
    _, expected = scaled_dot_product(q, k, v, merge_masks(theirs, visible))
    torch.testing.assert_close(weights, expected, rtol=1e-5, atol=1e-6)  # their slopes are float32


def test_alibi_is_a_slope_times_the_distance() -> None:
    found = alibi(causal_mask(3, 5)[None, None], 2, torch.float64)
    assert found.shape == (1, 2, 3, 5)
    for t in range(3):
        for s in range(5):
            distance = t + 2 - s
            expected = -(2**-8) * distance if distance >= 0 else -math.inf
            assert found[0, 1, t, s].item() == expected


def test_a_token_that_is_not_visible_adds_no_distance() -> None:
    visible = torch.tensor([[True, False, False, True, True]])[None]  # a branch of a tree, or padding
    assert alibi(visible, 1)[0, 0].mul(2**8).tolist() == [-2, -math.inf, -math.inf, -1, 0]


@pytest.mark.parametrize(("buckets", "furthest", "both"), [(2, 128, True), (1, 128, False), (32, 8, True)])
def test_too_few_buckets_of_distances_are_rejected(buckets: int, furthest: int, both: bool) -> None:
    with pytest.raises(ModelError, match=r"Invalid (buckets|furthest)="):
        distance_buckets(torch.arange(5), buckets, furthest, both=both)
