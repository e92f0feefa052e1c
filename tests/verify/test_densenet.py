"""The densely connected networks beside torchvision's and beside a plain one, setting by setting."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from cutaway.checkpoints.torchvision import FAMILIES, torchvision_key, torchvision_names
from cutaway.models.densenet import PRESETS, Config, DenseNet
from cutaway.verify import OracleMissing, oracle_for
from cutaway.verify.compare import compare

models = pytest.importorskip("torchvision.models")

SMALL = Config(layers=(2, 3, 2), growth_rate=4, stem="cifar", stem_channels=5, num_classes=4)


@pytest.mark.parametrize("name", FAMILIES["densenet"].builders)
def test_keys_and_shapes_are_torchvisions(name: str) -> None:
    with torch.device("meta"):
        ours, theirs = DenseNet(PRESETS[name]).state_dict(), getattr(models, torchvision_names()[name])().state_dict()
    assert [(torchvision_key(name, k), v.shape) for k, v in ours.items()] == [(k, v.shape) for k, v in theirs.items()]


@pytest.mark.parametrize("bottleneck", [True, False])
@pytest.mark.parametrize(
    "changes",
    [{}, {"compression": 1.0}, {"compression": 0.7}, {"dropout": 0.2}, {"recompute": True}, {"in_channels": 1}],
    ids=lambda changes: "-".join(changes),
)
def test_every_setting_of_the_cifar_family(bottleneck: bool, changes: dict[str, Any]) -> None:
    config = dataclasses.replace(SMALL, bottleneck=bottleneck, **changes)
    oracle = oracle_for("densenet-40-12", config)
    assert compare(DenseNet(config), oracle, torch.Generator().manual_seed(1)).equal


@pytest.mark.parametrize("recompute", [False, True])
def test_torchvisions_other_shapes(recompute: bool) -> None:
    config = Config(layers=(1, 2), growth_rate=3, stem_channels=5, num_classes=2, recompute=recompute)
    assert compare(DenseNet(config), oracle_for("densenet121", config), torch.Generator().manual_seed(1)).equal


def test_new_weights_are_distributed_as_torchvisions() -> None:
    """Of each convolution the standard deviation, of all else the values."""
    config = Config(layers=(2, 2), growth_rate=16, num_classes=3)
    torch.manual_seed(0)
    ours = DenseNet(config).state_dict()
    oracle = oracle_for("densenet121", config)
    assert oracle.key_map is not None
    theirs = {k: oracle.module.state_dict()[oracle.key_map[k]] for k in ours}
    for key, value in ours.items():
        if "conv" in key:
            assert value.std().item() == pytest.approx(theirs[key].std().item(), rel=0.1), key
        elif key == "classifier.weight":
            assert value.abs().max().item() == pytest.approx(theirs[key].abs().max().item(), rel=0.1)
        else:
            assert torch.equal(value, theirs[key]), key


@pytest.mark.parametrize("changes", [{"bottleneck": False}, {"compression": 1.0}, {"dropout": 0.2}])
def test_a_network_that_no_library_has_is_said_to_have_no_oracle(changes: dict[str, Any]) -> None:
    with pytest.raises(OracleMissing, match="neither torchvision nor"):
        oracle_for("densenet121", dataclasses.replace(SMALL, stem="imagenet", **changes))
