"""torchvision's checkpoints: in and out bit for bit, and refused with the first wrong key where they do not fit."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from cutaway import create_model
from cutaway.errors import FileError, ModelError, UnknownName
from cutaway.interop.torchvision import read_checkpoint, torchvision_name, write_checkpoint


@pytest.fixture(scope="module")
def state() -> dict[str, Tensor]:
    """What torchvision would save of a resnet18 for grey images of four kinds."""
    return dict(create_model("resnet18", in_channels=1, num_classes=4).state_dict())


def _same(model: nn.Module, state: dict[str, Tensor]) -> bool:
    found = model.state_dict()
    return found.keys() == state.keys() and all(torch.equal(found[k], state[k]) for k in state)


@pytest.mark.parametrize("suffix", [".pth", ".pt", ".safetensors"])
def test_there_and_back_bit_for_bit(tmp_path: Path, state: dict[str, Tensor], suffix: str) -> None:
    source, target = tmp_path / f"in{suffix}", tmp_path / f"out{suffix}"
    if suffix == ".safetensors":
        save_file(state, source)
    else:
        torch.save(state, source)
    loaded = read_checkpoint(source, "resnet18")
    assert (loaded.model.config.in_channels, loaded.model.config.num_classes) == (1, 4)
    assert loaded.notes == ()
    assert loaded.key_map == {k: k for k in state}
    assert not loaded.model.training
    assert _same(loaded.model, state)

    assert write_checkpoint(loaded.model, target) == {k: k for k in state}
    written = load_file(target) if suffix == ".safetensors" else torch.load(target, weights_only=True)
    assert list(written) == list(state) or suffix == ".safetensors"
    assert _same(read_checkpoint(target, "resnet18").model, state)


def test_old_files_without_counters_are_taken_and_it_is_said(tmp_path: Path, state: dict[str, Tensor]) -> None:
    old = {k: v for k, v in state.items() if not k.endswith("num_batches_tracked")}
    torch.save(old, tmp_path / "old.pth")
    loaded = read_checkpoint(tmp_path / "old.pth", "resnet18")
    assert _same(loaded.model, state)
    assert "20 counters num_batches_tracked" in loaded.notes[0]
    assert loaded.key_map == {k: k for k in old}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda s: s.pop("layer3.0.conv1.weight"),
            r"1 of the model's 122 .*missing, the first layer3\.0\.conv1\.weight",
        ),
        (lambda s: s.update({"layer1.2.conv1.weight": torch.zeros(1)}), r"not the model's, the first layer1\.2\.conv1"),
        (lambda s: s.update({"bn1.weight": torch.zeros(65)}), r"bn1\.weight: \(65,\) where the model has \(64,\)"),
        (lambda s: s.pop("fc.weight"), r"missing, the first fc\.weight"),
        (lambda s: s.update({"conv1.weight": torch.zeros(())}), r"conv1\.weight: \(\) where"),
    ],
    ids=["missing", "unexpected", "misshapen", "without a head", "without a stem"],
)
def test_a_checkpoint_that_does_not_fit_is_refused_with_its_first_wrong_key(
    tmp_path: Path, state: dict[str, Tensor], change: Callable[[dict[str, Any]], object], said: str
) -> None:
    wrong = dict(state)
    change(wrong)
    torch.save(wrong, tmp_path / "wrong.pth")
    with pytest.raises(FileError, match=said):
        read_checkpoint(tmp_path / "wrong.pth", "resnet18")


def test_a_checkpoint_of_another_depth_is_refused(tmp_path: Path, state: dict[str, Tensor]) -> None:
    torch.save(state, tmp_path / "18.pth")
    with pytest.raises(FileError, match=r"missing, the first layer1\.2\.conv1\.weight"):
        read_checkpoint(tmp_path / "18.pth", "resnet34")


class Trap:
    """Unpickling this makes a folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return (os.mkdir, (str(self.path),))


def test_a_program_hidden_in_a_checkpoint_is_not_run(tmp_path: Path, state: dict[str, Tensor]) -> None:
    torch.save({**state, "extra": Trap(tmp_path / "sprung")}, tmp_path / "trap.pth")
    with pytest.raises(FileError, match="was not run"):
        read_checkpoint(tmp_path / "trap.pth", "resnet18")
    assert not (tmp_path / "sprung").exists()


def test_files_that_are_no_state_dict_say_what_they_are(tmp_path: Path, state: dict[str, Tensor]) -> None:
    with pytest.raises(FileError, match="There is no file"):
        read_checkpoint(tmp_path / "absent.pth", "resnet18")
    torch.save({"model": state, "epoch": 3}, tmp_path / "nested.pth")
    with pytest.raises(FileError, match=r"holds the keys model, epoch.*state_dict\(\) alone"):
        read_checkpoint(tmp_path / "nested.pth", "resnet18")
    torch.save(torch.zeros(3), tmp_path / "tensor.pth")
    with pytest.raises(FileError, match="holds one Tensor"):
        read_checkpoint(tmp_path / "tensor.pth", "resnet18")
    (tmp_path / "text.pth").write_text("weights")
    (tmp_path / "text.safetensors").write_text("weights")
    torch.save(state, tmp_path / "cut.pth")
    (tmp_path / "cut.pth").write_bytes((tmp_path / "cut.pth").read_bytes()[:9999])
    for name in ("text.pth", "text.safetensors", "cut.pth"):
        with pytest.raises(FileError, match=rf"{name} is not a checkpoint that can be read"):
            read_checkpoint(tmp_path / name, "resnet18")


def test_networks_that_torchvision_has_not_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="the network with other strides: read them as resnet50"):
        read_checkpoint(tmp_path / "x.pth", "resnet50-v1")
    with pytest.raises(ModelError, match="no checkpoint of resnet20"):
        read_checkpoint(tmp_path / "x.pth", "resnet20")
    with pytest.raises(UnknownName):
        read_checkpoint(tmp_path / "x.pth", "resnet19")
    assert torchvision_name(create_model("resnet18", num_classes=2)) == "resnet18"
    for model in (create_model("resnet18", width=8), create_model("resnet20"), nn.Linear(1, 1)):
        with pytest.raises(ModelError, match="torchvision has no network like this"):
            write_checkpoint(model, tmp_path / "x.pth")
    assert not list(tmp_path.iterdir())


def test_a_suffix_must_say_what_to_write(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"\.pth, \.pt, \.safetensors"):
        write_checkpoint(create_model("resnet18"), tmp_path / "x.bin")
