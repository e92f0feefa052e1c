"""The residual networks beside torchvision's, the comparison itself, and checkpoints that torchvision wrote."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch
from torch import nn

from cutaway.checkpoints.torchvision import read_checkpoint, write_checkpoint
from cutaway.models.registry import preset
from cutaway.models.resnet import PRESETS, Config, PreActivationBlock, ResNet
from cutaway.verify import Oracle, OracleMissing, images, oracle_for
from cutaway.verify.compare import compare, copy_weights

models = pytest.importorskip("torchvision.models")
BOTTLENECKS = Config(layers=(1, 1, 1, 1), block="bottleneck", num_classes=5)


@pytest.mark.parametrize("shortcut", ["A", "B", "none"])
def test_all_shortcuts_of_the_cifar_family(shortcut: str) -> None:
    config = dataclasses.replace(PRESETS["resnet20"], shortcut=shortcut, in_channels=1, num_classes=4)
    assert compare(ResNet(config), oracle_for("resnet20", config), torch.Generator().manual_seed(1)).equal


@pytest.mark.parametrize("shortcut", ["A", "B", "none"])
@pytest.mark.parametrize("block", ["basic", "bottleneck"])
def test_all_shortcuts_and_blocks_with_order_pre(block: str, shortcut: str) -> None:
    config = Config(
        layers=(2, 2), block=block, width=4, stem="cifar", shortcut=shortcut, order="pre", in_channels=1, num_classes=4
    )
    assert compare(ResNet(config), oracle_for("resnet20-v2", config), torch.Generator().manual_seed(1)).equal


def test_the_oracle_of_order_pre_sees_a_shortcut_from_the_wrong_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PreActivationBlock, "shortcut_path", lambda block, x, a=None: block.downsample(x))
    config = Config(layers=(2, 2), width=4, stem="cifar", order="pre", num_classes=4)
    measured = compare(ResNet(config), oracle_for("resnet20-v2", config), torch.Generator().manual_seed(1))
    assert min(measured.outputs, measured.gradients) > 1e-2


@pytest.mark.slow
def test_the_stride_of_a_bottleneck_makes_another_network_of_the_same_weights() -> None:
    published = dataclasses.replace(BOTTLENECKS, stride_on="1x1")
    for ours, theirs in ((BOTTLENECKS, BOTTLENECKS), (published, published)):
        assert compare(ResNet(ours), oracle_for("resnet50", theirs), torch.Generator().manual_seed(1)).equal
    measured = compare(ResNet(BOTTLENECKS), oracle_for("resnet50", published), torch.Generator().manual_seed(1))
    assert min(measured.outputs, measured.gradients) > 1e-2


@pytest.mark.parametrize("config", [Config(width=32), Config(stem="cifar", block="bottleneck")])
def test_a_network_that_no_library_has_is_said_to_have_no_oracle(config: Config) -> None:
    with pytest.raises(OracleMissing, match="neither torchvision nor"):
        oracle_for("resnet18", config)


class Wrong(nn.Module):
    """A small network, right or wrong in one way."""

    def __init__(self, wrong: str = "") -> None:
        super().__init__()
        self.wrong = wrong
        self.first, self.norm, self.second = nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 3)
        if wrong == "statistics":
            self.norm.momentum = 0.2
        if wrong == "an extra weight":
            self.extra = nn.Parameter(torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.relu(self.norm(self.first(x)))
        y = self.second(hidden.detach() if self.wrong == "a cut gradient" else hidden)
        return y + 1e-7 if self.wrong == "a small output" else y


@pytest.mark.parametrize("wrong", ["", "statistics", "a cut gradient", "a small output"])
def test_the_comparison_sees_what_is_wrong(wrong: str) -> None:
    measured = compare(Wrong(), Oracle(Wrong(wrong), images(6, 4)), torch.Generator().manual_seed(1))
    assert measured.equal == (not wrong)


def test_the_comparison_changes_neither_side() -> None:
    model, oracle = Wrong(), Oracle(Wrong(), images(6, 4))
    before = [v.clone() for m in (model, oracle.module) for v in m.state_dict().values()]
    compare(model, oracle, torch.Generator().manual_seed(1))
    after = [v for m in (model, oracle.module) for v in m.state_dict().values()]
    assert all(torch.equal(a, b) for a, b in zip(before, after))
    assert all(p.dtype == torch.float32 and p.grad is None for p in model.parameters())


def test_every_weight_needs_a_counterpart() -> None:
    with pytest.raises(ValueError, match="extra"):
        copy_weights(Wrong(), Wrong("an extra weight"), {k: k for k in Wrong().state_dict()})
    with pytest.raises(ValueError, match="extra"):
        copy_weights(Wrong("an extra weight"), Wrong(), {k: k for k in Wrong().state_dict()})
    swapped = {k: k for k in Wrong().state_dict()} | {"first.bias": "second.bias", "second.bias": "first.bias"}
    with pytest.raises(ValueError, match="does not fit"):
        copy_weights(Wrong(), Wrong(), swapped)


@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
def test_checkpoints_go_both_ways(tmp_path: Path, suffix: str) -> None:
    theirs = models.resnet18(num_classes=7).eval()
    source = tmp_path / f"theirs{suffix}"
    if suffix == ".pth":
        torch.save(theirs.state_dict(), source)
    else:
        pytest.importorskip("safetensors.torch").save_file(theirs.state_dict(), source)
    ours = read_checkpoint(source, "resnet18").model
    x = torch.randn(2, 3, 40, 40)
    with torch.no_grad():
        assert torch.equal(ours(x), theirs(x))

    write_checkpoint(ours, tmp_path / "ours.pth")
    again = models.resnet18(num_classes=7)
    again.load_state_dict(torch.load(tmp_path / "ours.pth", weights_only=True), strict=True)
    assert all(torch.equal(a, b) for a, b in zip(again.state_dict().values(), theirs.state_dict().values()))
    assert preset("resnet18").config.num_classes == 1000
