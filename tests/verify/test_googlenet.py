"""GoogLeNet beside torchvision's and beside a plain one; every preset in test_every_model."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from cutaway.checkpoints.torchvision import torchvision_key
from cutaway.models.googlenet import PRESETS, GoogLeNet
from cutaway.verify import OracleMissing, oracle_for
from cutaway.verify.compare import compare
from cutaway.verify.inception import GoogLeNetOutputs

NARROW = dataclasses.replace(PRESETS["googlenet"], width=8, num_classes=5)
PUBLISHED = dataclasses.replace(PRESETS["googlenet-2014"], width=8, num_classes=5)


def test_keys_and_shapes_are_torchvisions() -> None:
    models = pytest.importorskip("torchvision.models")
    with torch.device("meta"):
        ours, theirs = GoogLeNet(PRESETS["googlenet"]).state_dict(), models.googlenet(init_weights=False).state_dict()
    assert [(torchvision_key("googlenet", k), v.shape) for k, v in ours.items()] == [
        (k, v.shape) for k, v in theirs.items()
    ]


@pytest.mark.parametrize(
    "changed",
    [{"stem": "small", "in_channels": 1}, {"large_kernel": 5}, {"auxiliary": False}],
    ids=lambda changed: "-".join(changed),
)
def test_every_setting_beside_torchvision(changed: dict[str, Any]) -> None:
    pytest.importorskip("torchvision.models")
    config = dataclasses.replace(NARROW, **changed)
    torch.manual_seed(0)
    assert compare(GoogLeNet(config), oracle_for("googlenet", config), torch.Generator().manual_seed(1)).equal


@pytest.mark.parametrize(
    "changed",
    [{"stem": "small", "in_channels": 1}, {"auxiliary_pool": "equal"}, {"auxiliary": False, "large_kernel": 3}],
    ids=lambda changed: "-".join(changed),
)
def test_every_setting_beside_the_plain_network(changed: dict[str, Any]) -> None:
    config = dataclasses.replace(PUBLISHED, **changed)
    torch.manual_seed(0)
    assert compare(GoogLeNet(config), oracle_for("googlenet-2014", config), torch.Generator().manual_seed(1)).equal


def test_the_windows_of_the_auxiliary_heads_make_another_network() -> None:
    equal = dataclasses.replace(PUBLISHED, auxiliary_pool="equal")
    measured = compare(GoogLeNet(PUBLISHED), oracle_for("googlenet-2014", equal), torch.Generator().manual_seed(1))
    assert min(measured.outputs, measured.gradients) > 1e-3


def test_torchvisions_answers_are_put_in_our_order() -> None:
    models = pytest.importorskip("torchvision.models.googlenet")
    theirs = models.GoogLeNet(num_classes=5, init_weights=False)
    with torch.no_grad():
        theirs.aux1.fc2.bias.fill_(100.0)
        theirs.aux2.fc2.bias.fill_(200.0)
    x = torch.randn(2, 3, 33, 33)
    answers = GoogLeNetOutputs(theirs)(x)
    assert [round(y.detach().mean().item(), -2) for y in answers] == [0.0, 100.0, 200.0]
    assert GoogLeNetOutputs(theirs).eval()(x).shape == (2, 5)


def test_a_network_that_no_library_has_is_said_to_have_no_oracle() -> None:
    with pytest.raises(OracleMissing, match="equal parts"):
        oracle_for("googlenet", dataclasses.replace(NARROW, auxiliary_pool="5x5"))
