"""Folders of class folders: what is found, rejected and told; held in memory or streamed, the same tensors."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from cutaway.core.errors import DataError
from cutaway.core.spec import ImageSizes
from cutaway.data.dataset_base import DataSet, TensorSplit
from cutaway.data.folders import IMAGES, dominant_kind, find_examples
from cutaway.data.images.dataset import find_damaged, open_folder
from cutaway.data.images.transforms import FileSplit, ImagePreprocessing
from cutaway.data.settings import DataSettings


def save(path: Path, seed: int, size: tuple[int, int] = (12, 10), mode: str = "RGB") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 256, (*size, 3), dtype=np.uint8)
    Image.fromarray(pixels).convert(mode).save(path)
    return path


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Two classes of ten photographs of different sizes."""
    for i in range(10):
        save(tmp_path / "photos" / "cat" / f"{i}.png", i, (12 + i, 10))
        save(tmp_path / "photos" / "dog" / f"{i}.jpg", 100 + i, (10, 12 + i))
    return tmp_path / "photos"


@pytest.fixture
def parted(tmp_path: Path) -> Path:
    """The same with a train and a test folder."""
    for i in range(12):
        split = "train" if i < 8 else "test"
        for k, name in enumerate(("cat", "dog")):
            save(tmp_path / "parted" / split / name / f"{i}.png", 100 * k + i)
    return tmp_path / "parted"


def opened(path: Path, image_size: int | None = None, usual: int = 224, **settings: Any) -> DataSet:
    return open_folder(path, DataSettings(**settings), ImageSizes(only=image_size, usual=usual))


def names(data: DataSet, split: str) -> list[str]:
    return [data.splits[split].name(i) for i in range(len(data.splits[split]))]


def everything(data: DataSet, split: str) -> torch.Tensor:
    (batch,) = data.splits[split].batches([torch.arange(len(data.splits[split]))])
    return batch.inputs[0]


def test_what_is_a_folder_of_images(photos: Path, parted: Path, tmp_path: Path) -> None:
    assert dominant_kind(photos) == "image"
    assert dominant_kind(parted) == "image"
    assert dominant_kind(photos / "cat") is None
    (tmp_path / "notes" / "a").mkdir(parents=True)
    (tmp_path / "notes" / "a" / "1.md").write_text("hello")
    assert dominant_kind(tmp_path / "notes") is None
    (tmp_path / "notes" / "a" / "1.txt").write_text("hello")
    assert dominant_kind(tmp_path / "notes") == "text"
    assert dominant_kind(tmp_path / "notes" / "a") == "text"


def test_class_folders_are_split_here(photos: Path) -> None:
    data = opened(photos, 8)
    assert data.name == "photos"
    assert data.spec.shape == (3, 8, 8)
    assert data.spec.target.names == ("cat", "dog")  # type: ignore[union-attr]
    assert {p: len(split) for p, split in data.splits.items()} == {"train": 14, "val": 3, "test": 3}
    assert sorted(n for p in data.splits for n in names(data, p)) == sorted(
        str(f.relative_to(photos)) for f in photos.rglob("*.*")
    )
    for p, split in data.splits.items():
        assert split.target is not None
        assert [n.startswith("dog") for n in names(data, p)] == split.target.bool().tolist()


def test_part_folders_are_the_parts(parted: Path) -> None:
    data = opened(parted)
    assert all(n.startswith("test/") for n in names(data, "test"))
    assert len(data.splits["test"]) == 8
    assert all(n.startswith("train/") for p in ("train", "val") for n in names(data, p))
    assert len(data.splits["val"]) + len(data.splits["train"]) == 16
    for other in ("val", "valid", "validation"):
        (parted / "test").rename(parted / other)
        again = opened(parted)
        assert len(again.splits["val"]) == 8
        assert all(n.startswith("train/") for n in names(again, "test"))
        (parted / other).rename(parted / "test")


@pytest.mark.parametrize("fit", ["auto", "crop", "stretch", "pad"])
def test_memory_and_workers_give_the_same_bits(photos: Path, fit: str) -> None:
    held = opened(photos, 16, resize=fit)
    streams = [opened(photos, 16, resize=fit, memory=0, workers=w) for w in (0, 2)]
    assert isinstance(held.splits["train"], TensorSplit)
    assert all(s.preprocessing == held.preprocessing for s in streams)
    assert all(s.split_hash == held.split_hash and s.fingerprint == held.fingerprint for s in streams)
    order = [torch.tensor([3, 1]), torch.tensor([13, 0, 7]), torch.tensor([5])]
    expected = list(held.splits["train"].batches(order, seed=1))
    state = torch.get_rng_state()
    for stream in streams:
        split = stream.splits["train"]
        assert isinstance(split, FileSplit)
        for _ in range(2):  # a second epoch through the same workers
            found = list(split.batches(iter(order), seed=2))
            assert len(found) == 3
            for a, b in zip(expected, found):
                assert torch.equal(a.inputs[0], b.inputs[0])
                assert torch.equal(a.target, b.target)
        next(iter(split.batches([torch.tensor([0])] * 50)))  # left in the middle
        (found,) = split.batches([torch.tensor([5])])
        assert torch.equal(found.inputs[0], expected[2].inputs[0])
    assert torch.equal(torch.get_rng_state(), state)  # reading draws nothing from the state of training


def test_new_files_are_prepared_as_training_was(photos: Path) -> None:
    data = opened(photos, 16)
    paths = [photos / n for n in names(data, "train")]
    (batch,) = data.preprocessing.examples(paths).batches([torch.arange(len(paths))])
    assert torch.equal(batch.inputs[0], everything(data, "train"))


def test_statistics_come_from_training_files_alone(photos: Path) -> None:
    data = opened(photos, 16)
    for split in ("val", "test"):
        for n in names(data, split):
            Image.new("RGB", (11, 12), "white").save(photos / n)
    again = opened(photos, 16)
    assert again.split_hash == data.split_hash
    assert again.preprocessing == data.preprocessing
    assert again.fingerprint != data.fingerprint
    Image.new("RGB", (11, 12), "white").save(photos / names(data, "train")[0])
    assert opened(photos, 16).preprocessing != data.preprocessing


def test_the_size_comes_from_settings_then_model_then_files_then_habit(photos: Path, parted: Path) -> None:
    assert open_folder(photos, DataSettings(image_size=9), ImageSizes(only=16, usual=20)).spec.shape == (3, 9, 9)
    assert opened(photos, 16, 20).spec.shape == (3, 16, 16)
    assert opened(photos, None, 20).spec.shape == (3, 20, 20)
    assert opened(photos).spec.shape == (3, 224, 224)
    assert opened(parted).spec.shape == (3, 12, 10)  # all have one size
    assert opened(parted, None, 20).spec.shape == (3, 12, 10)


def test_colours_are_what_most_files_have(photos: Path) -> None:
    for file in list((photos / "cat").iterdir()):
        Image.open(file).convert("L").save(file)
    assert opened(photos, 8).spec.shape[0] == 3  # half of them
    for file in list((photos / "dog").iterdir())[:1]:
        Image.open(file).convert("L").save(file)
    data = opened(photos, 8)
    assert data.spec.shape[0] == 1
    assert any("9 of 20 images are coloured and are read in grey" in note for note in data.notes)
    assert opened(photos, 8, color="rgb").spec.shape[0] == 3
    assert opened(photos, 8, color="gray").spec.shape[0] == 1


def test_limit_leaves_validation_and_test_as_they_are(photos: Path) -> None:
    whole, thin = opened(photos, 8), opened(photos, 8, max_samples=4)
    assert len(thin.splits["train"]) == 4
    assert set(names(thin, "train")) < set(names(whole, "train"))
    assert names(thin, "test") == names(whole, "test")
    shown = thin.splits["test"].image(0)
    assert shown is not None
    assert np.array_equal(np.asarray(shown), np.asarray(Image.open(photos / names(thin, "test")[0])))


def test_what_is_not_read_is_told(photos: Path) -> None:
    (photos / "notes.txt").write_text("about them")
    (photos / "cat" / "Thumbs.db").write_bytes(b"x")
    (photos / "cat" / ".hidden.png").write_bytes(b"x")
    save(photos / "dog" / "puppies" / "1.png", 5)
    frames = [Image.new("RGB", (12, 12), c) for c in ("red", "blue")]
    frames[0].save(photos / "dog" / "running.gif", save_all=True, append_images=frames[1:])
    notes = opened(photos, 8).notes
    assert any("notes.txt" in n and "Thumbs.db" in n and "puppies/" in n and ".hidden" not in n for n in notes)
    assert any("1 files have several frames or pages, and the first is read: dog/running.gif" in n for n in notes)


def test_copies_across_splits_are_told(photos: Path) -> None:
    data = opened(photos, 8)
    assert not any("duplicates across splits" in n for n in data.notes)
    train, test = names(data, "train")[0], names(data, "test")[0]
    (photos / test).write_bytes((photos / train).read_bytes())
    assert any(train in n and test in n for n in opened(photos, 8).notes)


def test_every_unusable_file_is_named_at_once(photos: Path) -> None:
    (photos / "cat" / "3.png").write_bytes(b"")
    (photos / "dog" / "4.jpg").write_text("not an image")
    Image.new("1", (10_000, 10_000)).save(photos / "dog" / "5.jpg")
    (photos / "dog" / "6.jpg").unlink()
    (photos / "dog" / "6.jpg").symlink_to(photos / "nowhere.jpg")
    with pytest.raises(DataError, match="4 of 20 image files cannot be used") as caught:
        opened(photos, 8)
    found = {p.where.rpartition("/")[2]: p.what for p in caught.value.problems}
    assert set(found) == {"3.png", "4.jpg", "5.jpg", "6.jpg"}
    assert "empty" in found["3.png"]
    assert "not readable as an image" in found["4.jpg"]
    assert "100 megapixels" in found["5.jpg"]
    assert "cannot be read" in found["6.jpg"]


@pytest.mark.parametrize("memory", [512, 0])
def test_a_file_that_breaks_off_is_named(photos: Path, memory: int) -> None:
    victim = photos / names(opened(photos, 8), "train")[0]
    save(victim, 3, (60, 60))
    victim.write_bytes(victim.read_bytes()[: victim.stat().st_size // 2])
    with pytest.raises(DataError, match="cut short") as caught:
        opened(photos, 8, memory=memory)
    assert [p.where for p in caught.value.problems] == [str(victim)]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_file_that_breaks_off_is_named_while_streaming_and_by_verify(photos: Path, workers: int) -> None:
    data = opened(photos, 8, memory=0, workers=workers)
    split = data.splits["test"]
    assert find_damaged(split) == []
    assert find_damaged(opened(photos, 8).splits["test"]) == []  # in memory: decoded already
    victim = photos / names(data, "test")[1]
    save(victim, 3, (60, 60))
    victim.write_bytes(victim.read_bytes()[: victim.stat().st_size // 2])
    with pytest.raises(DataError, match="cut short") as caught:
        list(split.batches([torch.tensor([0]), torch.tensor([1, 2])]))
    assert [p.where for p in caught.value.problems] == [str(victim)]
    seen: list[tuple[int, int]] = []
    problems = find_damaged(split, lambda done, total: seen.append((done, total)))
    assert [p.where for p in problems] == [str(victim)]
    assert seen == [(1, 3), (2, 3), (3, 3)]


def test_an_empty_class_folder_is_named(photos: Path) -> None:
    (photos / "fox").mkdir()
    with pytest.raises(DataError, match=r"class folder .*fox holds no image files"):
        opened(photos, 8)


def test_one_class_is_nothing_to_learn(photos: Path) -> None:
    for file in (photos / "dog").iterdir():
        file.unlink()
    (photos / "dog").rmdir()
    with pytest.raises(DataError, match="one class only, cat"):
        opened(photos, 8)


def test_parts_must_agree_on_classes(parted: Path) -> None:
    save(parted / "test" / "fox" / "1.png", 1)
    with pytest.raises(DataError, match=r"test/fox is a class without training images"):
        opened(parted)
    save(parted / "train" / "fox" / "1.png", 2)
    save(parted / "train" / "fox" / "2.png", 3)
    assert not any("no images of" in n for n in opened(parted).notes)
    (parted / "test" / "fox" / "1.png").unlink()
    (parted / "test" / "fox").rmdir()
    assert any("The test split has no images of fox" in n for n in opened(parted).notes)


def test_a_class_with_one_image_is_trained_on_or_named(photos: Path) -> None:
    save(photos / "fox" / "1.png", 1)
    notes = opened(photos, 8).notes
    assert [n for n in notes if "The val split has no images of fox" in n]
    assert [n for n in notes if "The test split has no images of fox" in n]
    save(photos / "owl" / "1.png", 2)
    save(photos / "pig" / "1.png", 3)
    with pytest.raises(DataError, match=r"No example of the class '(fox|owl|pig)' is left for training: it has 1"):
        opened(photos, 8)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every folder")
def test_a_folder_that_may_not_be_read_is_named(photos: Path) -> None:
    (photos / "dog").chmod(0)
    try:
        with pytest.raises(DataError, match=r"The folder .*dog cannot be read: Permission denied"):
            opened(photos, 8)
    finally:
        (photos / "dog").chmod(0o700)


def test_part_folders_need_train_and_no_twins(parted: Path) -> None:
    save(parted / "val" / "cat" / "1.png", 1)
    save(parted / "validation" / "cat" / "1.png", 1)
    with pytest.raises(DataError, match=r"val and .*validation are both for val"):
        opened(parted)
    (parted / "validation" / "cat" / "1.png").unlink()
    (parted / "validation" / "cat").rmdir()
    (parted / "validation").rmdir()
    (parted / "train").rename(parted / "training")
    with pytest.raises(DataError, match="and no train/"):
        opened(parted)


def test_a_class_may_be_called_train(tmp_path: Path) -> None:
    for i in range(10):
        for k, name in enumerate(("train", "plane")):
            save(tmp_path / "ways" / name / f"{i}.png", 100 * k + i)
    assert find_examples(tmp_path / "ways", IMAGES).classes == ("plane", "train")


def test_classes_are_sorted_as_people_do(tmp_path: Path) -> None:
    for name in ("10", "2", "1"):
        save(tmp_path / name / "1.png", int(name))
    assert find_examples(tmp_path, IMAGES).classes == ("1", "2", "10")


def test_links_that_lead_back_or_nowhere_are_named(photos: Path, tmp_path: Path) -> None:
    link = photos / "loop"
    for destination, words in (
        (photos, "its own folder"),
        (tmp_path, "or a parent of it"),
        (link, "in a circle"),
    ):
        os.symlink(destination, link)
        with pytest.raises(DataError, match=r"loop is a symbolic link") as caught:
            opened(photos, 8)
        assert words in str(caught.value)
        link.unlink()
    os.symlink(photos / "cat", tmp_path / "other")  # a link to elsewhere is a folder like any other
    for i in range(10):
        save(tmp_path / "kinds" / "fox" / f"{i}.png", 200 + i)
    os.symlink(photos / "cat", tmp_path / "kinds" / "cat")
    assert find_examples(tmp_path / "kinds", IMAGES).classes == ("cat", "fox")


def test_preprocessing_is_of_images(photos: Path) -> None:
    assert isinstance(opened(photos, 8).preprocessing, ImagePreprocessing)


def test_real_jpegs(shared_data: Path) -> None:
    data = opened(shared_data / "cifar10" / "jpg_folders", 32, max_samples=200)
    assert data.spec.shape == (3, 32, 32)
    assert len(data.splits["train"]) == 200
    assert len(data.splits["test"]) == 200
    assert data.spec.target.names[0] == "airplane"  # type: ignore[union-attr]
    x = everything(data, "test")
    assert x.shape == (200, 3, 32, 32)
    assert abs(float(x.mean())) < 0.3
