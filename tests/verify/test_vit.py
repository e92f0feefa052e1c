"""The Vision Transformers beside torchvision's, in further configs, and beside transformers', which splits weights."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from torch import nn

from cutaway.checkpoints.torchvision import FAMILIES, torchvision_key
from cutaway.models.vit import PRESETS, Config, ViT
from cutaway.verify import oracle_for
from cutaway.verify.compare import BOUND, NOISE, compare, difference

from .vit_names import as_transformers

SMALL = Config(image_size=12, patch_size=4, dim=12, layers=2, heads=3, ffn_dim=20, num_classes=5)


@pytest.mark.parametrize("name", FAMILIES["vit"].builders)
def test_renamed_keys_and_shapes_are_torchvisions(name: str) -> None:
    models = pytest.importorskip("torchvision.models")
    with torch.device("meta"):
        ours, theirs = ViT(PRESETS[name]).state_dict(), getattr(models, FAMILIES["vit"].builders[name])().state_dict()
    renamed = {torchvision_key(name, k): v.shape for k, v in ours.items()}
    assert renamed == {k: v.shape for k, v in theirs.items()}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"pooling": "mean"},
        {"in_channels": 1},
        {"pooling": "mean", "in_channels": 2, "patch_size": 3},
        {"dropout": 0.2},
        {"dropout": 0.2, "pooling": "mean"},
        {"layers": 12, "heads": 1},
    ],
    ids=str,
)
def test_outputs_and_gradients_are_torchvisions(changes: dict[str, Any]) -> None:
    pytest.importorskip("torchvision")
    config = dataclasses.replace(SMALL, **changes)
    measured = compare(ViT(config), oracle_for("vit-tiny/16", config), torch.Generator().manual_seed(1))
    assert measured.outputs <= BOUND
    assert measured.gradients <= BOUND, measured.worst


def test_norms_exchanged_are_noticed() -> None:
    pytest.importorskip("torchvision")
    oracle = oracle_for("vit-tiny/16", SMALL)
    keys = dict(oracle.key_map or {})
    first, second = "blocks.0.norm1.weight", "blocks.0.norm2.weight"
    wrong = dataclasses.replace(oracle, key_map=keys | {first: keys[second], second: keys[first]})
    assert not compare(ViT(SMALL), wrong, torch.Generator().manual_seed(1)).equal


# --- transformers -------------------------------------------------------------------------------------------------

HEAD = (r"^head\.", "classifier.")


def both(config: Config) -> tuple[ViT, nn.Module]:
    """Our network and transformers' with the same random weights, in float64."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    ours = ViT(config).double()
    with torch.no_grad():
        for parameter in ours.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    theirs: nn.Module = transformers.ViTForImageClassification(
        transformers.ViTConfig(
            hidden_size=config.dim,
            num_hidden_layers=config.layers,
            num_attention_heads=config.heads,
            intermediate_size=config.ffn_dim,
            hidden_act="gelu",
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
            layer_norm_eps=1e-6,
            image_size=config.image_size,
            patch_size=config.patch_size,
            num_channels=config.in_channels,
            num_labels=config.num_classes,
            attn_implementation="sdpa",  # its eager path takes the softmax in float32
        )
    ).double()
    theirs.load_state_dict(as_transformers(ours.state_dict(), HEAD), strict=True)
    return ours, theirs


@pytest.mark.parametrize("channels", [1, 3])
def test_outputs_and_gradients_are_transformers(channels: int) -> None:
    config = dataclasses.replace(SMALL, in_channels=channels)
    ours, theirs = both(config)
    x = torch.randn(2, channels, 12, 12, dtype=torch.float64)
    found, expected = ours(x), theirs(x).logits
    assert difference(found.detach(), expected.detach()) <= BOUND

    upstream = torch.randn(found.shape, dtype=found.dtype)
    found.backward(upstream)
    expected.backward(upstream)
    ours_by_key = as_transformers({k: p.grad for k, p in ours.named_parameters() if p.grad is not None}, HEAD)
    theirs_by_key = {k: p.grad for k, p in theirs.named_parameters() if p.grad is not None}
    assert ours_by_key.keys() == theirs_by_key.keys()
    largest = max(float(g.abs().max()) for g in theirs_by_key.values())
    for key, gradient in theirs_by_key.items():
        assert difference(ours_by_key[key], gradient, floor=NOISE * largest) <= BOUND, key


@torch.no_grad()
def test_tokens_before_the_head_are_transformers() -> None:
    ours, theirs = both(SMALL)
    x = torch.randn(2, 3, 12, 12, dtype=torch.float64)
    assert difference(ours.norm(ours.tokens(x)), theirs.vit(x).last_hidden_state) <= BOUND  # type: ignore[operator]


@torch.no_grad()
@pytest.mark.parametrize(("height", "width"), [(24, 24), (8, 20), (12, 8), (4, 4)])
def test_images_of_another_size_are_transformers(height: int, width: int) -> None:
    ours, theirs = both(SMALL)
    x = torch.randn(2, 3, height, width, dtype=torch.float64)
    assert difference(ours(x), theirs(x, interpolate_pos_encoding=True).logits) <= BOUND


def test_keys_and_shapes_are_transformers_at_full_size() -> None:
    transformers = pytest.importorskip("transformers")
    with torch.device("meta"):
        ours = ViT(PRESETS["vit-base/16"])
        theirs = transformers.ViTForImageClassification(transformers.ViTConfig(num_labels=1000))
    shapes = {k: v.shape for k, v in as_transformers(ours.state_dict(), HEAD).items()}
    assert shapes == {k: v.shape for k, v in theirs.state_dict().items()}
