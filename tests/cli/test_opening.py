"""cutaway.load: a run, or one model out of a folder or of torchvision's checkpoint."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
import torch

import cutaway
from cutaway.checkpoints.huggingface.folders import write_folder
from cutaway.checkpoints.saving import save_model
from cutaway.core.errors import FileError, ModelError, UnknownName
from cutaway.models.registry import preset


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A resnet18 for four classes, as torchvision saves it."""
    torch.save(cutaway.create_model("resnet18", num_classes=4).state_dict(), tmp_path / "resnet18.pth")
    return tmp_path / "resnet18.pth"


def test_a_checkpoint_becomes_a_model_that_can_be_used_at_once(checkpoint: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = cutaway.load(str(checkpoint), model="resnet18")
    assert not model.training
    assert model(torch.zeros(2, 3, 40, 40)).shape == (2, 4)


def test_what_should_be_known_of_a_checkpoint_is_warned_of(checkpoint: Path) -> None:
    torch.save({"model": torch.load(checkpoint, weights_only=True)}, checkpoint)
    with pytest.warns(UserWarning, match=r"resnet18\.pth: The weights are those under 'model'") as warned:
        cutaway.load(checkpoint, model="resnet18")
    assert warned[0].filename == __file__


def test_the_model_of_a_run_or_of_a_models_folder(tmp_path: Path) -> None:
    trained = cutaway.create_model("resnet20", num_classes=2)
    save_model(trained, tmp_path / "run" / "model", preset("resnet20"))
    for folder in (tmp_path / "run", tmp_path / "run" / "model"):
        model = cutaway.load(folder, model="resnet20")
        assert not model.training
        assert all(torch.equal(v, trained.state_dict()[k]) for k, v in model.state_dict().items())
        with pytest.raises(FileError, match="holds a resnet20, not a resnet18: ask for resnet20"):
            cutaway.load(folder, model="resnet18")
    with pytest.raises(FileError, match=r'a model without a run.*load\(".*", model=NAME\)'):
        cutaway.load(tmp_path / "run" / "model")


def test_a_hugging_face_folder_says_itself_what_it_is(tmp_path: Path) -> None:
    made = cutaway.create_model("gpt2", vocab_size=40, context_length=8, dim=12, layers=2, heads=2)
    write_folder(made, "gpt2", tmp_path / "hf")
    for name, said in ((None, "It is read as gpt2 with vocab_size=40"), ("gpt2-medium", "It is read as gpt2-medium")):
        with pytest.warns(UserWarning, match=said) as warned:
            model = cutaway.load(tmp_path / "hf", model=name)
        assert warned[0].filename == __file__
        assert not model.training
        assert all(torch.equal(v, made.state_dict()[k]) for k, v in model.state_dict().items())
    with pytest.raises(ModelError, match="holds a gpt2, not a lenet5"):
        cutaway.load(tmp_path / "hf", model="lenet5")


def test_what_cannot_be_opened_is_rejected_with_the_way_out(checkpoint: Path, tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r'is a file, not the folder of a run.*model="resnet18"\)'):
        cutaway.load(checkpoint)
    with pytest.raises(FileError, match="Its tensors are those of resnet18: read it as resnet18"):
        cutaway.load(checkpoint, model="resnet34")
    with pytest.raises(ModelError, match="torchvision has no checkpoint of lenet5"):
        cutaway.load(checkpoint, model="lenet5")
    with pytest.raises(UnknownName, match="resnet18"):
        cutaway.load(checkpoint, model="resnet81")
    for model in (None, "resnet18"):
        with pytest.raises(FileError, match="There is no file or folder"):
            cutaway.load(tmp_path / "absent", model=model)
    with pytest.raises(FileError, match="is not a run"):
        cutaway.load(tmp_path)
    with pytest.raises(FileError, match="is not a model's folder"):
        cutaway.load(tmp_path, model="resnet18")
