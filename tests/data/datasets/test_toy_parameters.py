"""Points in the plane drawn with another noise, and as many as are asked for."""

from __future__ import annotations

import pytest
import torch

from cutaway.core.errors import SettingError
from cutaway.data.datasets.toy_data import TOY_NOISE, TOY_POINTS, TOYS, toy_parameters
from cutaway.data.open_data import open_data
from cutaway.data.settings import DataSettings


def inputs(name: str, **given: float) -> torch.Tensor:
    """All inputs of a set, its splits one after another."""
    data = open_data(name, DataSettings(scale="none", **given))  # type: ignore[arg-type]
    return torch.cat([split.inputs if hasattr(split, "inputs") else _all(split) for split in data.splits.values()])


def _all(split: object) -> torch.Tensor:
    (batch,) = split.batches([torch.arange(len(split))])  # type: ignore[attr-defined, arg-type]
    (x,) = batch.inputs
    return x


@pytest.mark.parametrize("name", TOYS)
def test_as_many_points_as_are_asked_for(name: str) -> None:
    assert len(inputs(name, count=120)) == 120


@pytest.mark.parametrize("name", TOY_NOISE)
def test_what_is_not_asked_for_is_as_it_was(name: str) -> None:
    assert torch.equal(inputs(name), inputs(name, noise=TOY_NOISE[name], count=TOY_POINTS))


@pytest.mark.parametrize("name", TOYS)
def test_noise_moves_points_by_its_deviation(name: str) -> None:
    still = inputs(name, noise=0.0, count=2000)
    moved = inputs(name, noise=0.2, count=2000) - still
    assert moved.std().item() == pytest.approx(0.2, rel=0.1)
    assert moved.mean().abs().item() < 0.02


def test_xor_is_its_truth_table_unless_points_are_asked_for() -> None:
    assert toy_parameters("xor", DataSettings()) == (0.0, 4)
    assert len(inputs("xor")) == 3 * 4  # every split holds all rows
    corners = inputs("xor", noise=0.0, count=40)
    assert {tuple(point) for point in corners.tolist()} == {(0, 0), (0, 1), (1, 0), (1, 1)}


@pytest.mark.parametrize("name", ["iris", "digits", "karate"])
@pytest.mark.parametrize(("key", "value"), [("noise", 0.1), ("count", 50)])
def test_they_mean_nothing_for_other_data(name: str, key: str, value: float) -> None:
    with pytest.raises(SettingError, match=key):
        open_data(name, DataSettings(**{key: value}))
