"""The VGG networks beside torchvision's, in further configs."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from cutaway.checkpoints.torchvision import FAMILIES, torchvision_key
from cutaway.models.vgg import PRESETS, VGG, Config
from cutaway.verify import oracle_for
from cutaway.verify.compare import compare

models = pytest.importorskip("torchvision.models")
SMALL = Config(stages=(1, 2), width=3, pool_to=2, hidden_dim=10, num_classes=5)


def test_every_preset_is_torchvisions() -> None:
    assert set(FAMILIES["vgg"].builders) == set(PRESETS)


@pytest.mark.parametrize("name", FAMILIES["vgg"].builders)
def test_keys_and_shapes_are_torchvisions(name: str) -> None:
    with torch.device("meta"):
        ours, theirs = VGG(PRESETS[name]).state_dict(), getattr(models, FAMILIES["vgg"].builders[name])().state_dict()
    assert [(torchvision_key(name, k), v.shape) for k, v in ours.items()] == [(k, v.shape) for k, v in theirs.items()]


@pytest.mark.parametrize("batch_norm", [False, True])
@pytest.mark.parametrize(("pool_to", "channels"), [(1, 1), (2, 3), (7, 2)])
def test_the_small_head_and_other_channels(batch_norm: bool, pool_to: int, channels: int) -> None:
    config = dataclasses.replace(SMALL, batch_norm=batch_norm, pool_to=pool_to, in_channels=channels)
    assert compare(VGG(config), oracle_for("vgg11", config), torch.Generator().manual_seed(1)).equal


@pytest.mark.slow
def test_vgg11_of_the_published_widths() -> None:
    """All that is published but the number of units after the convolutions: with 4 096 they would take 7 GB."""
    whole = dataclasses.replace(PRESETS["vgg11"], hidden_dim=512)
    assert compare(VGG(whole), oracle_for("vgg11", whole), torch.Generator().manual_seed(1)).equal


def test_normalization_makes_another_network() -> None:
    with pytest.raises(ValueError, match="no counterpart"):
        compare(VGG(SMALL), oracle_for("vgg11", dataclasses.replace(SMALL, batch_norm=True)), torch.Generator())
