"""Our names of torchvision's tensors: with its networks as they are built, at full size and without numbers."""

from __future__ import annotations

import pytest
import torch

from cutaway.checkpoints.torchvision import torchvision_key, torchvision_names
from cutaway.models.registry import preset

from ..verify import conftest  # noqa: F401  # lets torchvision be imported

models = pytest.importorskip("torchvision.models")


@pytest.mark.parametrize("name", sorted(torchvision_names()))
def test_keys_and_shapes_are_those_of_torchvisions_builder(name: str) -> None:
    builder = models.get_model_builder(torchvision_names()[name].rpartition(".")[2])
    # Some fill their weights by hand unless they are told not to, and warn.
    quiet = {"init_weights": False} if builder.__name__ in ("googlenet", "inception_v3") else {}
    detects = builder.__module__.startswith("torchvision.models.detection")
    segments = builder.__module__.startswith("torchvision.models.segmentation")
    if detects or segments:  # they would fetch weights for their backbones
        quiet = {"weights_backbone": None}
    if segments:
        quiet["aux_loss"] = True
    with torch.device("meta"):
        theirs = builder(**quiet).state_dict()
        ours = preset(name).build(preset(name).config).state_dict()
    if detects:  # built without weights, it counts batches, which its published weights, of frozen norms, do not
        theirs = {k: v for k, v in theirs.items() if not k.endswith("num_batches_tracked")}
    assert {torchvision_key(name, k): v.shape for k, v in ours.items()} == {k: v.shape for k, v in theirs.items()}


def test_a_preset_that_torchvision_has_not_keeps_its_names() -> None:
    assert torchvision_key("resnet20", "conv1.weight") == "conv1.weight"
    assert "resnet20" not in torchvision_names()
