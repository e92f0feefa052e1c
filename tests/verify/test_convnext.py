"""ConvNeXt beside torchvision's in further configs, with its stochastic depth, and beside transformers'."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor

from cutaway.models.convnext import Block, Config, ConvNeXt
from cutaway.verify import oracle_for
from cutaway.verify.compare import BOUND, NOISE, compare, difference

SMALL = Config(layers=(1, 2, 1), width=4, patch_size=2, drop_path_rate=0.3, num_classes=5)


@pytest.mark.parametrize(
    "changes", [{}, {"in_channels": 1, "patch_size": 3}, {"layers": (2,), "layer_scale": 0.5}, {"drop_path_rate": 0.0}]
)
def test_outputs_and_gradients_are_torchvisions(changes: Mapping[str, Any]) -> None:
    config = dataclasses.replace(SMALL, **changes)
    torch.manual_seed(0)
    found = compare(ConvNeXt(config), oracle_for("convnext-micro", config), torch.Generator().manual_seed(0))
    assert found.equal, found


def test_stochastic_depth_of_another_rate_is_noticed() -> None:
    torch.manual_seed(0)
    model = ConvNeXt(SMALL)
    block = next(module for module in model.modules() if isinstance(module, Block) and module.drop_path_rate)
    block.drop_path_rate += 0.01
    found = compare(model, oracle_for("convnext-micro", SMALL), torch.Generator().manual_seed(0))
    assert found.outputs > 1e-6


RENAMES = (
    (r"^stages\.0\.downsample\.conv\.", "convnext.embeddings.patch_embeddings."),
    (r"^stages\.0\.downsample\.norm\.", "convnext.embeddings.layernorm."),
    (r"^stages\.(\d+)\.downsample\.norm\.", r"convnext.encoder.stages.\1.downsampling_layer.0."),
    (r"^stages\.(\d+)\.downsample\.conv\.", r"convnext.encoder.stages.\1.downsampling_layer.1."),
    (r"^stages\.(\d+)\.blocks\.", r"convnext.encoder.stages.\1.layers."),
    (r"\.depthwise\.", ".dwconv."),
    (r"\.norm\.", ".layernorm."),
    (r"\.expand\.", ".pwconv1."),
    (r"\.project\.", ".pwconv2."),
    (r"\.layer_scale$", ".layer_scale_parameter"),
    (r"^norm\.", "convnext.layernorm."),
    (r"^head\.", "classifier."),
)


def as_transformers(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Our tensors, weights or gradients, under transformers' names; layer scale is (C) there."""
    found = {}
    for key, tensor in tensors.items():
        for pattern, replacement in RENAMES:
            key = re.sub(pattern, replacement, key)
        found[key] = tensor.flatten() if key.endswith("layer_scale_parameter") else tensor
    return found


def test_outputs_and_gradients_are_transformers() -> None:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    ours = ConvNeXt(SMALL).double().eval()
    with torch.no_grad():
        for parameter in ours.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    settings = transformers.ConvNextConfig(
        num_stages=len(SMALL.layers),
        depths=list(SMALL.layers),
        hidden_sizes=[4, 8, 16],
        patch_size=SMALL.patch_size,
        num_labels=SMALL.num_classes,
        layer_norm_eps=1e-6,
    )
    theirs = transformers.ConvNextForImageClassification(settings).double().eval()
    theirs.load_state_dict(as_transformers(ours.state_dict()), strict=True)
    x = torch.randn(2, 3, 16, 20, dtype=torch.float64)
    found, expected = ours(x), theirs(x).logits
    assert difference(found.detach(), expected.detach()) <= BOUND

    upstream = torch.randn(found.shape, dtype=found.dtype)
    found.backward(upstream)
    expected.backward(upstream)
    gradients = as_transformers({k: p.grad for k, p in ours.named_parameters() if p.grad is not None})
    expected_by_key = {k: p.grad for k, p in theirs.named_parameters()}
    assert gradients.keys() == expected_by_key.keys()
    largest = max(float(g.abs().max()) for g in expected_by_key.values())
    for key, gradient in expected_by_key.items():
        assert difference(gradients[key], gradient, floor=NOISE * largest) <= BOUND, key
