"""Weights of a file go into a model of the same kind whole, but for a head of other classes; or they are rejected."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from cutaway.checkpoints.saving import save_model
from cutaway.core.errors import FileError, ModelError
from cutaway.models.registry import create_model, preset
from cutaway.training import pretrained_weights
from cutaway.training.pretrained_weights import LoadedWeights, load_pretrained


def made(name: str, seed: int, **settings: Any) -> nn.Module:
    """A model whose every tensor is its own, buffers too."""
    torch.manual_seed(seed)
    model = create_model(name, **settings)
    with torch.no_grad():
        for tensor in model.state_dict().values():
            if tensor.is_floating_point():
                tensor.add_(torch.rand_like(tensor))
    return model


@pytest.fixture
def saved(tmp_path: Path) -> nn.Module:
    """A simple CNN for five classes, which is in the folder `model`."""
    model = made("simplecnn", 1, num_classes=5, in_channels=1)
    save_model(model, tmp_path / "model", preset("simplecnn"))
    return model


def differing(a: nn.Module, b: nn.Module) -> set[str]:
    mine, other = a.state_dict(), b.state_dict()
    same = {k for k in mine.keys() & other.keys() if mine[k].shape == other[k].shape and torch.equal(mine[k], other[k])}
    return mine.keys() - same


def take(model: nn.Module, name: str, path: Path) -> LoadedWeights:
    return load_pretrained(model, preset(name), str(path))


@pytest.mark.parametrize("given", ["model", "model/model.safetensors"])
def test_everything_is_taken_from_a_folder_or_its_file(saved: nn.Module, tmp_path: Path, given: str) -> None:
    model = made("simplecnn", 2, num_classes=5, in_channels=1)
    taken = take(model, "simplecnn", tmp_path / given)
    assert not differing(model, saved)
    file = tmp_path / "model" / "model.safetensors"
    assert (taken.path, taken.sha256) == (str(file), hashlib.sha256(file.read_bytes()).hexdigest())
    assert (taken.tensors, taken.new) == (len(model.state_dict()), ())
    assert "the head too" in taken.notes[0]


def test_a_head_of_other_classes_stays_new_and_is_named(saved: nn.Module, tmp_path: Path) -> None:
    model, untouched = (made("simplecnn", 2, num_classes=3, in_channels=1) for _ in "ab")
    taken = take(model, "simplecnn", tmp_path / "model")
    assert taken.new == ("head",)
    assert differing(model, saved) == {"head.weight", "head.bias"}
    assert torch.equal(model.head.weight, untouched.head.weight)  # type: ignore[union-attr,arg-type]
    assert "head (5 outputs there, 3 here)" in taken.notes[0]


def test_other_settings_of_the_same_shapes_are_said(tmp_path: Path) -> None:
    save_model(made("mlp", 1, activation="tanh"), tmp_path, preset("mlp"))
    taken = take(made("mlp", 2, activation="relu"), "mlp", tmp_path)
    assert taken.notes[1] == "The model of these weights had other settings: activation tanh there, relu here."


@pytest.mark.parametrize(
    ("name", "settings", "said"),
    [
        ("simplecnn", {"in_channels": 3}, r"in_channels=1, and these have in_channels=3: .*conv1.*color=gray"),
        (
            "simplecnn",
            {"in_channels": 1, "widths": (32, 48)},
            r"5 have another shape, the first conv2\.weight: \(64, 32",
        ),
        ("resnet20", {"in_channels": 1}, r"holds a simplecnn, and this is a resnet20"),
    ],
)
def test_what_does_not_fit_is_rejected(
    saved: nn.Module, tmp_path: Path, name: str, settings: dict[str, Any], said: str
) -> None:
    model, untouched = (made(name, 2, **settings) for _ in "ab")
    with pytest.raises(FileError, match=said):
        take(model, name, tmp_path / "model")
    assert not differing(model, untouched)


def test_tables_of_other_columns_are_rejected(tmp_path: Path) -> None:
    save_model(made("mlp", 1, in_features=4), tmp_path, preset("mlp"))
    with pytest.raises(FileError, match="learned from 4 inputs an example, and this data has 13"):
        take(made("mlp", 2, in_features=13), "mlp", tmp_path)


def test_the_first_missing_and_unexpected_tensors_are_named(tmp_path: Path) -> None:
    save_model(made("mlp", 1, hidden_dims=(8, 8)), tmp_path, preset("mlp"))
    with pytest.raises(FileError, match=r"2 are not the model's, the first hidden\.1\.linear"):
        take(made("mlp", 2, hidden_dims=(8,)), "mlp", tmp_path)
    with pytest.raises(FileError, match=r"2 of the model's 8 tensors are missing, the first hidden\.2\.linear"):
        take(made("mlp", 2, hidden_dims=(8, 8, 8)), "mlp", tmp_path)


def test_what_is_no_weights_is_rejected(saved: nn.Module, tmp_path: Path) -> None:
    model = made("simplecnn", 2)
    with pytest.raises(FileError, match=r"There is no file or folder '.*nowhere'"):
        take(model, "simplecnn", tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileError, match=r"without a model: it has no model\.safetensors"):
        take(model, "simplecnn", tmp_path / "empty")
    file = tmp_path / "model" / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"\x01")
    with pytest.raises(FileError, match="checksum differs"):
        take(model, "simplecnn", file)
    torch.save(saved.state_dict(), tmp_path / "simple.pth")
    with pytest.raises(ModelError, match="torchvision has no checkpoint of simplecnn"):
        take(model, "simplecnn", tmp_path / "simple.pth")


def test_torchvisions_checkpoint_is_taken(tmp_path: Path) -> None:
    torch.manual_seed(0)
    theirs, model = create_model("resnet18", num_classes=7), create_model("resnet18", num_classes=2)
    torch.save(theirs.state_dict(), tmp_path / "r.pth")  # its names are torchvision's own
    model.bn1.running_mean += 1  # type: ignore[union-attr,operator]
    state = torch.get_rng_state()
    taken = take(model, "resnet18", tmp_path / "r.pth")
    assert torch.equal(torch.get_rng_state(), state)
    assert differing(model, theirs) == {"fc.weight", "fc.bias"}
    assert taken.new == ("fc",)


class TwoHeaded(nn.Module):
    """The names of a network with an auxiliary head."""

    def __init__(self, classes: int, auxiliary: bool = True) -> None:
        super().__init__()
        self.body = nn.Linear(4, 4)
        if auxiliary:
            self.aux1 = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, classes))
        self.fc = nn.Linear(4, classes)


@pytest.mark.parametrize(
    ("there", "here", "new"),
    [
        (TwoHeaded(5), TwoHeaded(3), {"aux1.1", "fc"}),
        (TwoHeaded(5), TwoHeaded(3, auxiliary=False), {"fc"}),
        (TwoHeaded(3, auxiliary=False), TwoHeaded(3), {"aux1"}),
    ],
    ids=["both", "left out", "not in the file"],
)
def test_auxiliary_heads_are_replaced_left_out_or_new(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, there: nn.Module, here: nn.Module, new: set[str]
) -> None:
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setattr(pretrained_weights, "_read", lambda *given: (there.state_dict(), ()))
    taken = take(here, "mlp", tmp_path / "file")
    assert set(taken.new) == new
    assert differing(here, there) == {k for k in here.state_dict() if k.startswith(tuple(f"{name}." for name in new))}


def test_positions_of_another_image_size_are_adapted_first(tmp_path: Path) -> None:
    small = {"dim": 12, "layers": 1, "heads": 2, "ffn_dim": 8, "patch_size": 4, "num_classes": 2}
    theirs = made("vit-tiny/16", 1, image_size=8, **small)
    save_model(theirs, tmp_path, preset("vit-tiny/16"))
    model = made("vit-tiny/16", 2, image_size=16, **small)
    taken = take(model, "vit-tiny/16", tmp_path)
    assert taken.new == ()
    assert differing(model, theirs) == {"positions"}
    adapted = model.adapt_state(theirs.state_dict())["positions"]  # type: ignore[operator]
    assert torch.equal(model.positions, adapted)  # type: ignore[arg-type]
