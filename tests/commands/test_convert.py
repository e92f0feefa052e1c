"""cutaway convert."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from cutaway import create_model
from cutaway.models.registry import preset
from cutaway.models.saving import load_model, save_model

from .conftest import Answer

Cli = Callable[..., Answer]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run that holds a resnet18."""
    torch.manual_seed(0)
    save_model(create_model("resnet18", num_classes=3), tmp_path / "run" / "model", preset("resnet18"))
    return tmp_path / "run"


def test_there_and_back(cli: Cli, folder: Path, tmp_path: Path) -> None:
    answer = cli("convert", folder, tmp_path / "out.pth", "--to", "torchvision")
    assert answer.status == 0
    assert answer.out.splitlines()[0].split() == ["conv1.weight", "conv1.weight"]
    assert "122 tensors of resnet18" in answer.said
    state = torch.load(tmp_path / "out.pth", weights_only=True)
    assert state["fc.weight"].shape == (3, 512)

    answer = cli("convert", tmp_path / "out.pth", tmp_path / "back", "--to", "cutaway", "--model", "resnet18")
    assert answer.status == 0
    back, first = load_model(tmp_path / "back")[0].state_dict(), load_model(folder / "model")[0].state_dict()
    assert all(torch.equal(back[k], first[k]) for k in first)


def test_the_key_map_is_printed_where_names_differ(cli: Cli, tmp_path: Path) -> None:
    model = create_model("densenet121", num_classes=3)
    save_model(model, tmp_path / "dense", preset("densenet121"))
    there = cli("convert", tmp_path / "dense", tmp_path / "out.safetensors", "--to", "torchvision")
    back = cli("convert", tmp_path / "out.safetensors", tmp_path / "back", "--to", "cutaway", "--model", "densenet121")
    assert (there.status, back.status) == (0, 0)
    pairs = [line.split() for line in there.out.splitlines()]
    assert pairs[0] == ["conv0.weight", "features.conv0.weight"]
    assert pairs[-1] == ["classifier.bias", "classifier.bias"]
    assert len(pairs) == len(model.state_dict())
    assert sorted([theirs, ours] for ours, theirs in pairs) == sorted(line.split() for line in back.out.splitlines())


def test_what_an_old_file_lacks_is_said(cli: Cli, folder: Path, tmp_path: Path) -> None:
    state = load_model(folder / "model")[0].state_dict()
    torch.save({k: v for k, v in state.items() if "num_batches" not in k}, tmp_path / "old.pth")
    answer = cli("convert", tmp_path / "old.pth", tmp_path / "new", "--to", "cutaway", "--model", "resnet18")
    assert answer.status == 0
    assert "20 counters num_batches_tracked" in answer.said


def test_nothing_is_written_over(cli: Cli, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "out.pth").write_text("mine")
    answer = cli("convert", folder, tmp_path / "out.pth", "--to", "torchvision")
    assert answer.status == 2
    assert "exists and is not written over" in answer.said
    assert (tmp_path / "out.pth").read_text() == "mine"


def test_what_cannot_be_converted_is_refused_in_words(cli: Cli, folder: Path, tmp_path: Path) -> None:
    state = tmp_path / "state.pth"
    torch.save(create_model("resnet18").state_dict(), state)
    unknown = tmp_path / "unknown.pth"
    torch.save({"weight": torch.zeros(3)}, unknown)
    save_model(create_model("resnet20"), tmp_path / "small", preset("resnet20"))
    shutil.copytree(folder / "model", tmp_path / "broken")
    (tmp_path / "broken" / "model.safetensors").write_bytes(b"\x80\x04pickle")
    out = tmp_path / "out.pth"
    for words, said in (
        ((folder, out, "--to", "huggingface"), "No model here has a Hugging Face form yet"),
        ((tmp_path / "absent", out, "--to", "torchvision"), "There is no file or folder"),
        ((state, out, "--to", "torchvision"), "is a file already"),
        ((folder, out, "--to", "cutaway"), "one of Cutaway's folders already"),
        ((state, out, "--to", "cutaway"), "its tensors are resnet18's: add --model resnet18."),
        ((unknown, out, "--to", "cutaway"), "does not say which network it is for: add --model NAME."),
        ((state, out, "--to", "cutaway", "--model", "resnet50-v1"), "read them as resnet50"),
        ((state, out, "--to", "cutaway", "--model", "resnet34"), "the first layer1.2.conv1.weight"),
        ((tmp_path / "small", out, "--to", "torchvision"), "torchvision has no network like this ResNet"),
        ((folder, out, "--to", "torchvision", "--model", "resnet34"), "holds a resnet18, not a resnet34"),
        ((tmp_path / "broken", out, "--to", "torchvision"), "is a pickle"),
        ((folder, tmp_path / "out.bin", "--to", "torchvision"), ".pth, .pt, .safetensors"),
    ):
        answer = cli("convert", *words)
        assert (answer.status, answer.out) == (2, ""), words
        assert said in answer.said, words
        assert not out.exists()
