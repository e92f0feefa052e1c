"""A network that is built on a classifier begins with that classifier's weights: all of its backbone, nothing else; and
while the backbone is frozen everything after it learns."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from cutaway.checkpoints.saving import save_model
from cutaway.core.errors import FileError
from cutaway.models.registry import create_model, preset
from cutaway.runs.train import train_model
from cutaway.training.optim import backbone_names
from cutaway.training.pretrained_weights import find_weights, load_pretrained
from cutaway.verify.libraries import torchvision_models

NARROW = {"width": 4, "layers": (1, 1, 1), "in_channels": 1}
BUILT = {"fcn-resnet18": "backbone", "deeplabv3-resnet18": "backbone", "fcos-resnet18-small": "body"}


@pytest.fixture
def classifier(tmp_path: Path) -> nn.Module:
    """A narrow ResNet for seven classes that has seen something, which is in the folder `resnet`."""
    torch.manual_seed(1)
    model = create_model("resnet18", num_classes=7, **NARROW)
    model(torch.rand(4, 1, 32, 32))
    save_model(model, tmp_path / "resnet", preset("resnet18"))
    return model


@pytest.mark.parametrize("name", BUILT)
def test_the_backbone_is_that_of_the_classifier(classifier: nn.Module, tmp_path: Path, name: str) -> None:
    own = {k: v for k, v in classifier.state_dict().items() if not k.startswith("fc.")}
    settings = find_weights(str(tmp_path / "resnet"), preset(name)).settings(preset(name))
    assert settings == {"width": 4, "layers": (1, 1, 1)}
    model = create_model(name, **settings, in_channels=1, num_classes=3)
    before = {k: v.clone() for k, v in model.state_dict().items()}
    taken = load_pretrained(model, preset(name), str(tmp_path / "resnet"))
    inside = {k: v for k, v in model.state_dict().items() if k.startswith(f"{BUILT[name]}.")}
    assert {k.partition(".")[2]: v.tolist() for k, v in inside.items()} == {k: v.tolist() for k, v in own.items()}
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items() if k not in inside)
    assert taken.tensors == len(own)
    assert set(taken.new) == {n for n, part in model.named_children() if n != BUILT[name] and part.state_dict()}
    assert "a resnet18" in taken.notes[0]
    assert backbone_names(model) >= {k for k, _ in model.named_parameters() if k in inside}
    assert not any(n in backbone_names(model) for n in taken.new)


@pytest.mark.parametrize("suffix", ["pth", "safetensors"])
def test_a_file_as_torchvision_has_it_is_taken(tmp_path: Path, suffix: str) -> None:
    theirs, file = torchvision_models("resnet").resnet18(num_classes=5).state_dict(), tmp_path / f"resnet.{suffix}"
    torch.save(theirs, file) if suffix == "pth" else save_file(theirs, file)
    built = preset("fcos-resnet18-small")
    settings = find_weights(str(file), built).settings(built)
    assert settings == {"layers": (2, 2, 2, 2), "width": 64}
    model = create_model(built.name, **settings, norm="frozen")  # whose norms count no batches
    load_pretrained(model, built, str(file))
    assert torch.equal(model.get_buffer("body.layer4.1.bn2.running_var"), theirs["layer4.1.bn2.running_var"])
    assert torch.equal(model.get_parameter("body.layer4.1.conv2.weight"), theirs["layer4.1.conv2.weight"])


def test_what_is_no_backbone_is_rejected(tmp_path: Path) -> None:
    save_model(create_model("simplecnn"), tmp_path / "other", preset("simplecnn"))
    with pytest.raises(FileError, match=r"give weights of a fcn-resnet18 or, for its backbone, of a ResNet \(resnet18"):
        find_weights(str(tmp_path / "other"), preset("fcn-resnet18"))
    padded = create_model("resnet18", shortcut="A", **NARROW)
    save_model(padded, tmp_path / "padded", preset("resnet18"))
    with pytest.raises(FileError, match=r"are missing, the first layer2\.0\.downsample"):
        load_pretrained(create_model("fcn-resnet18", **NARROW), preset("fcn-resnet18"), str(tmp_path / "padded"))


def test_all_after_a_frozen_backbone_learns(classifier: nn.Module, tmp_path: Path) -> None:
    given = {"weights": str(tmp_path / "resnet"), "epochs": 1, "freeze_epochs": 1, "color": "gray", "max_samples": 24}
    run = train_model(
        "fcn-resnet18", "digit_scenes_small", {**given, "tensorboard": False, "threads": 1}, tmp_path / "run"
    )
    state, own = run.model.state_dict(), classifier.state_dict()
    torch.manual_seed(run.about["settings"]["seed"])
    first = create_model("fcn-resnet18", **vars(run.model.config))
    for key, value in state.items():
        part, _, name = key.partition(".")
        if part == "backbone":
            assert torch.equal(value, own[name]), key
        elif value.is_floating_point():
            assert not torch.equal(value, first.state_dict()[key]), key
