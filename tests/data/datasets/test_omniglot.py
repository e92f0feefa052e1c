"""Omniglot, whole and in part: what is read, how it is prepared, and which characters are where."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from cutaway.core.errors import DataError
from cutaway.core.spec import Episodes
from cutaway.data.dataset_base import DataSet
from cutaway.data.datasets.few_shot import PART, WHOLE, add_rotations, read_drawings
from cutaway.data.episodes import EpisodeSplit
from cutaway.data.open_data import open_data
from cutaway.data.settings import DataSettings


def archive(path: Path, alphabets: dict[str, int], seed: int = 0, drawings: int = 20) -> None:
    """An archive in the form of the published ones."""
    rng = np.random.default_rng(seed)
    with zipfile.ZipFile(path, "w") as out:
        for alphabet, characters in alphabets.items():
            for c in range(characters):
                for i in range(drawings):
                    content = io.BytesIO()
                    Image.fromarray(rng.random((105, 105)) > 0.1).save(content, "PNG")
                    out.writestr(
                        f"{path.stem}/{alphabet}/character{c + 1:02}/{c:04}_{i + 1:02}.png", content.getvalue()
                    )


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the two small sets; one alphabet is in both, as Greek is."""
    monkeypatch.setenv("CUTAWAY_DATA", str(tmp_path))
    place = tmp_path / "omniglot"
    place.mkdir()
    archive(place / PART[0], {"A": 5, "B": 3}, 0)
    archive(place / PART[1], {"B": 3, "C": 4}, 1)
    return place


def opened(targets: tuple[type[Episodes], ...] = (Episodes,), **given: object) -> DataSet:
    return open_data("omniglot", DataSettings(**{"ways": 2, **given}), targets=targets)  # type: ignore[arg-type]


def kinds(data: DataSet) -> dict[str, set[str]]:
    """The classes of each split."""
    found = {}
    for name, split in data.splits.items():
        assert isinstance(split, EpisodeSplit)
        found[name] = {split.classes[k] for k in split.of_class}
    return found


def test_drawings_are_white_on_black_and_read_once(place: Path) -> None:
    pixels, labels, classes, first = read_drawings([place / name for name in PART])
    assert pixels.shape == (12 * 20, 1, 28, 28)
    assert (len(classes), first) == (12, 8 * 20)
    assert classes[0] == "A/character01"
    assert np.bincount(labels).tolist() == [20] * 12
    assert pixels.mean() < 64  # nine tenths of the paper are white


def test_no_test_character_is_seen_in_training_turned_or_not(place: Path) -> None:
    data = opened()
    found = kinds(data)
    upright = {name: {k.split(" at ")[0] for k in own} for name, own in found.items()}
    assert sum(map(len, upright.values())) == len(set.union(*upright.values())) == 12
    assert len(found["train"]) == 4 * len(upright["train"])
    assert found["val"] == upright["val"]
    assert found["test"] == upright["test"]
    assert any("part of Omniglot" in note for note in data.notes)
    assert any("is not the published file" in note for note in data.notes)


def test_turns_are_counter_clockwise_and_have_classes_of_their_own() -> None:
    pixels = np.arange(3 * 4, dtype=np.uint8).reshape(3, 1, 2, 2)
    images, labels, names, train = add_rotations(pixels, np.array([0, 1, 2]), ["a", "b", "c"], np.array([0, 2]))
    assert names[3:] == ["a at 90°", "c at 90°", "a at 180°", "c at 180°", "a at 270°", "c at 270°"]
    assert labels.tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8]
    assert train.tolist() == [0, 2, 3, 4, 5, 6, 7, 8]
    assert images[3, 0].tolist() == [[1, 3], [0, 2]]


def test_of_the_whole_no_alphabet_is_in_two_splits(place: Path) -> None:
    archive(place / WHOLE[0], {"A": 3, "B": 3, "D": 3, "E": 3}, 2)
    archive(place / WHOLE[1], {"F": 2, "G": 2}, 3)
    data = opened(val=0.3)
    of = {name: {k.split("/")[0] for k in own} for name, own in kinds(data).items()}
    assert of["test"] == {"F", "G"}
    assert of["train"] | of["val"] == {"A", "B", "D", "E"}
    assert not of["train"] & of["val"]
    assert any("Alphabets are split, none is in two splits: train" in note for note in data.notes)


def test_without_episodes_each_character_is_a_class(place: Path) -> None:
    data = opened((), ways=5)
    assert len(data.spec.target.classes) == 12
    assert {name: len(split) for name, split in data.splits.items()} == {"train": 168, "val": 36, "test": 36}


@pytest.mark.parametrize("content", [b"not an archive", b""])
def test_a_damaged_file_is_named(place: Path, content: bytes) -> None:
    (place / PART[1]).write_bytes(content)
    with pytest.raises(DataError, match=r"small2\.zip cannot be read as an archive"):
        opened()


def test_an_archive_of_something_else_is_named(place: Path) -> None:
    with zipfile.ZipFile(place / PART[0], "w") as out:
        out.writestr("readme.txt", "nothing")
    with pytest.raises(DataError, match=r"small1\.zip holds no drawings"):
        opened()


def test_a_drawing_that_is_no_image_is_named(place: Path) -> None:
    with zipfile.ZipFile(place / PART[0], "w") as out:
        out.writestr("set/A/character01/0001_01.png", b"no image")
    with pytest.raises(DataError, match=r"small1\.zip cannot be read"):
        opened()


def test_the_published_files(shared_data: Path) -> None:
    data = opened(ways=5)
    assert not any("is not the published file" in note for note in data.notes)
    upright = [{k.split(" at ")[0] for k in own} for own in kinds(data).values()]
    assert [len(own) for own in upright] == [170, 36, 36]
    assert len(set.union(*upright)) == 242
    test = data.splits["test"]
    (batch,) = test.batches([torch.arange(20)])
    assert batch.inputs[0].shape == (20 * 30, 1, 28, 28)
