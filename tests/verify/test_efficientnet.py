"""EfficientNet beside torchvision's in further configs, with its stochastic depth."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import pytest
import torch

from cutaway.models.efficientnet import Config, EfficientNet, MBConv
from cutaway.verify import oracle_for
from cutaway.verify.compare import compare

SMALL = Config(width_mult=0.25, depth_mult=0.5, drop_path_rate=0.3, num_classes=5)


@pytest.mark.parametrize(
    "changes",
    [
        *({}, {"in_channels": 1, "stem": "cifar"}, {"depth_mult": 1.1, "drop_path_rate": 0.0}),
        {"width_mult": 0.33},  # the last convolution has 424 channels, not four times the 104 before it
    ],
)
def test_outputs_and_gradients_are_torchvisions(changes: Mapping[str, Any]) -> None:
    config = dataclasses.replace(SMALL, **changes)
    torch.manual_seed(0)
    found = compare(EfficientNet(config), oracle_for("efficientnet-b0", config), torch.Generator().manual_seed(0))
    assert found.equal, found


def test_stochastic_depth_of_another_rate_is_noticed() -> None:
    config = dataclasses.replace(SMALL, depth_mult=1.0)
    torch.manual_seed(0)
    model = EfficientNet(config)
    blocks = [module for module in model.modules() if isinstance(module, MBConv) and module.residual]
    blocks[-1].drop_path_rate += 0.01
    found = compare(model, oracle_for("efficientnet-b0", config), torch.Generator().manual_seed(0))
    assert found.outputs > 1e-6
