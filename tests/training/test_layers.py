"""What of a model is its head, what is frozen, and how far a layer stands from the head."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from cutaway.core.errors import SettingError
from cutaway.models.registry import create_model
from cutaway.training.optim import backbone_names, layer_depths, match_frozen, output_layers, set_trainable


class Transformer(nn.Module):
    """The splits of one: positions of its own, patches, blocks that hold nearly everything, a norm, a head."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Linear(2, 32)
        self.positions = nn.Parameter(torch.zeros(1, 4, 32))
        self.blocks = nn.ModuleList(nn.Sequential(nn.LayerNorm(32), nn.Linear(32, 32)) for _ in range(3))
        self.norm = nn.LayerNorm(32)
        self.head = nn.Linear(32, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x) + self.positions  # (N, 4, 32)
        for block in self.blocks:
            x = x + block(x)
        out: Tensor = self.head(self.norm(x).mean(1))
        return out


def by_depth(model: nn.Module) -> list[set[str]]:
    """The children and blocks that stand at each depth."""
    found = layer_depths(model)
    assert list(found) == [name for name, _ in model.named_parameters()]
    return [{n.rsplit(".", 1)[0] for n, d in found.items() if d == depth} for depth in range(max(found.values()) + 1)]


def test_a_resnets_groups_are_its_stages_and_its_stem() -> None:
    model = create_model("resnet20")
    found = layer_depths(model)
    assert output_layers(model) == ["fc"]
    assert {name.split(".")[0]: d for name, d in found.items()} == {
        "conv1": 4, "bn1": 4, "layer1": 3, "layer2": 2, "layer3": 1, "fc": 0,
    }  # fmt: skip


def test_a_transformers_groups_are_its_blocks() -> None:
    groups = by_depth(Transformer())
    assert groups[0] == {"head"}
    assert groups[1] == {"blocks.2.0", "blocks.2.1", "norm"}
    assert groups[2] == {"blocks.1.0", "blocks.1.1"}
    assert groups[4] == {"positions", "patches"}


@pytest.mark.parametrize(
    ("name", "ends", "kept"),
    [
        ("googlenet", ["fc", "aux1.fc2", "aux2.fc2"], "inception5b"),
        ("inception-v3", ["fc", "AuxLogits.fc"], "Mixed_7c"),
    ],
)
def test_auxiliary_heads_are_heads(name: str, ends: list[str], kept: str) -> None:
    with torch.device("meta"):
        model = create_model(name)
    assert sorted(output_layers(model)) == sorted(ends)
    found = layer_depths(model)
    auxiliary = {n for n in found if n.lower().startswith("aux")}
    assert auxiliary
    assert all(found[n] == 0 for n in auxiliary)
    assert auxiliary.isdisjoint(backbone_names(model))
    assert {d for n, d in found.items() if n.startswith(f"{kept}.")} == {1}


def test_a_network_of_convolutions_has_a_head_too() -> None:
    assert output_layers(nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 10, 1), nn.Flatten())) == ["2"]


@pytest.mark.parametrize(
    ("patterns", "meant"),
    [
        (["conv1"], {"conv1.weight"}),
        (["bn*"], {"bn1.weight", "bn1.bias", "bn2.weight", "bn2.bias"}),
        (["*.bias"], {"bn1.bias", "bn2.bias", "head.bias"}),
        (["conv1", "head"], {"conv1.weight", "head.weight", "head.bias"}),
        ([], set()),
    ],
)
def test_patterns_mean_modules_and_parameters(patterns: list[str], meant: set[str]) -> None:
    model = create_model("simplecnn")
    assert match_frozen(model, patterns) & {name for name, _ in model.named_parameters()} == meant


def test_a_name_that_is_no_layers_is_rejected_with_the_nearest() -> None:
    with pytest.raises(SettingError, match=r"freeze=conv1,laier2: .*'laier2'.* layer2"):
        match_frozen(create_model("resnet20"), ["conv1", "laier2"])
    with pytest.raises(SettingError, match=r"conv1, bn1"):
        match_frozen(create_model("simplecnn"), ["?"])


def test_what_is_still_neither_learns_nor_counts() -> None:
    model = create_model("simplecnn").eval()
    model.conv2.weight.requires_grad_(False)
    learnable = {name for name, p in model.named_parameters() if p.requires_grad}
    set_trainable(model, learnable, match_frozen(model, ["bn1.*"]))  # all parameters of the norm
    assert not model.bn1.training
    assert model.bn2.training
    assert {n for n, p in model.named_parameters() if p.requires_grad} == learnable - {"bn1.weight", "bn1.bias"}
    set_trainable(model, learnable, match_frozen(model, ["bn1.bias"]))  # its weight still learns
    assert model.bn1.training
    set_trainable(model, learnable, backbone_names(model))
    assert not model.bn1.training
    assert not model.bn2.training
    assert {n for n, p in model.named_parameters() if p.requires_grad} == {"head.weight", "head.bias"}


def test_a_norm_without_parameters_stands_still_with_the_module_around_it() -> None:
    model = nn.Sequential(nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3, affine=False)), nn.Linear(3, 2))
    names = {name for name, _ in model.named_parameters()}
    set_trainable(model, names, match_frozen(model, ["0"]))
    before = model[0][1].running_mean.clone()
    model(torch.randn(4, 2))
    assert torch.equal(model[0][1].running_mean, before)
