"""Inception-v3 beside torchvision's; the preset as it stands is in test_every_model, on smaller images."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from cutaway.checkpoints.torchvision import torchvision_key
from cutaway.models.inception_v3 import PRESETS, InceptionV3
from cutaway.verify import oracle_for
from cutaway.verify.compare import compare

models = pytest.importorskip("torchvision.models")
FULL = PRESETS["inception-v3"]
NARROW = dataclasses.replace(FULL, width=2, num_classes=5)


def test_keys_and_shapes_are_torchvisions() -> None:
    with torch.device("meta"):
        ours, theirs = InceptionV3(FULL).state_dict(), models.inception_v3(init_weights=False).state_dict()
    assert [(torchvision_key("inception-v3", k), v.shape) for k, v in ours.items()] == [
        (k, v.shape) for k, v in theirs.items()
    ]


@pytest.mark.parametrize(
    "changed",
    [{}, {"stem": "small", "in_channels": 1}, {"auxiliary": False}],
    ids=lambda changed: "-".join(changed) or "as published",
)
def test_every_setting_beside_torchvision(changed: dict[str, Any]) -> None:
    """As published, on images of 299×299, torchvision's auxiliary head is its own."""
    config = dataclasses.replace(NARROW, **changed)
    torch.manual_seed(0)
    assert compare(InceptionV3(config), oracle_for("inception-v3", config), torch.Generator().manual_seed(1)).equal


@pytest.mark.slow
def test_less_is_kept_for_the_backward_pass() -> None:
    ours, theirs = InceptionV3(FULL), models.inception_v3(init_weights=False)
    assert kept(ours) < 0.95 * kept(theirs)


def kept(model: nn.Module) -> int:
    """Bytes that the graph of one training step holds, without the weights."""
    weights = {p.untyped_storage().data_ptr() for p in model.parameters()}
    sizes: dict[int, int] = {}

    def note(x: Tensor) -> Tensor:
        storage = x.untyped_storage()
        if storage.data_ptr() not in weights:
            sizes[storage.data_ptr()] = storage.nbytes()
        return x

    with torch.autograd.graph.saved_tensors_hooks(note, lambda x: x):
        answers = model(torch.randn(2, 3, 299, 299))
    assert len(answers) == 2
    return sum(sizes.values())
