"""Folders of images with captions: what is read, split and prepared, and every way in which such a folder is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from cutaway.core.errors import DataError, SettingError
from cutaway.core.spec import ImageSpec, Tokens
from cutaway.data.dataset_base import IGNORED
from cutaway.data.images import captioning
from cutaway.data.images.captioning import CaptionPreprocessing
from cutaway.data.modalities import preprocessing_from_json
from cutaway.data.open_data import infer_kind, open_data
from cutaway.data.settings import DataSettings

WORDS = ("a dog", "a cat , asleep", "two birds", "an empty street")


def image(path: Path, seed: int = 0) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, (6, 8), np.uint8)).save(path)


def folder(root: Path, count: int = 20, captions: int = 2) -> Path:
    """`count` images, each with so many captions."""
    lines = []
    for i in range(count):
        image(root / f"{i:02}.png", i)
        lines += [f"{i:02}.png\t{WORDS[(i + k) % len(WORDS)]}" for k in range(captions)]
    (root / "captions.tsv").write_text("\n".join(lines) + "\n")
    return root


def add(root: Path, text: str) -> None:
    path = root / "captions.tsv"
    path.write_text(path.read_text() + text)


def test_a_folder_is_told_from_its_captions_and_split_by_image(tmp_path: Path) -> None:
    root = folder(tmp_path / "photos")
    assert infer_kind(root, DataSettings()) == "image"
    data = open_data(root, DataSettings())
    assert isinstance(data.spec, ImageSpec)
    assert isinstance(data.spec.target, Tokens)
    names = {name: {split.name(i) for i in range(len(split))} for name, split in data.splits.items()}
    assert {name: len(of_split) for name, of_split in names.items()} == {"train": 14, "val": 3, "test": 3}
    assert sum(map(len, names.values())) == len(set.union(*names.values())) == 20
    assert {name: len(split) for name, split in data.splits.items()} == {"train": 28, "val": 3, "test": 3}
    assert "2.0 for an image" in " ".join(data.notes)


def test_a_batch_is_an_image_and_its_caption_one_behind(tmp_path: Path) -> None:
    data = open_data(folder(tmp_path), DataSettings())
    split, target = data.splits["train"], data.spec.target
    assert isinstance(target, Tokens)
    order = [torch.tensor([3, 0]), torch.tensor([5])]
    for index, ((images, so_far), answer) in zip(order, split.batches(order)):
        assert images.shape == (len(index), 1, 6, 8)
        assert (so_far[:, 0] == target.begin).all()
        for row, ids, i in zip(so_far, answer, index.tolist()):
            real = ids[ids != IGNORED].tolist()
            assert real[-1] == target.end
            assert row[1 : len(real)].tolist() == real[:-1]
            assert data.preprocessing.words(real) in split.texts(i)  # type: ignore[attr-defined]
            assert real[:-1] in split.references(i)  # type: ignore[attr-defined]
    assert (split.target == target.end).sum() == len(split)


def test_each_image_is_asked_once_and_all_its_captions_are_right(tmp_path: Path) -> None:
    split = open_data(folder(tmp_path, captions=3), DataSettings()).splits["test"]
    assert len({split.name(i) for i in range(len(split))}) == len(split)
    assert all(len(split.references(i)) == 3 for i in range(len(split)))  # type: ignore[attr-defined]
    row = split.row(0)
    assert row is not None
    assert row["also right"].count(";") == 1


def test_what_is_saved_reads_back_and_prepares_alike(tmp_path: Path) -> None:
    data = open_data(folder(tmp_path), DataSettings())
    read = preprocessing_from_json(data.preprocessing.to_json())
    assert isinstance(read, CaptionPreprocessing)
    assert read == data.preprocessing or read.to_json() == data.preprocessing.to_json()
    new = read.examples([tmp_path / "03.png"])
    ((images, so_far), target) = next(new.batches([torch.tensor([0])]))
    assert (images.shape, so_far.shape, target.shape) == ((1, 1, 6, 8), (1, 1), (1, 0))
    assert new.references(0) == []
    again = read.labelled(tmp_path)
    assert (len(again), len(again.references(0))) == (20, 2)
    assert again.image(0) is not None


def test_train_val_and_test_of_a_folder_stay(tmp_path: Path) -> None:
    for name, count in (("train", 6), ("val", 2), ("test", 3)):
        folder(tmp_path / name, count, captions=1)
    data = open_data(tmp_path, DataSettings())
    assert {name: len(split) for name, split in data.splits.items()} == {"train": 6, "val": 2, "test": 3}
    assert data.splits["val"].name(0) == "val/00.png"


def test_a_first_line_may_name_the_columns_and_images_may_lie_deeper(tmp_path: Path) -> None:
    for i in range(8):
        image(tmp_path / "inside" / f"{i}.png", i)
    lines = ["image\tcaption", *(f"inside/{i}.png\ta dog" for i in range(8))]
    (tmp_path / "captions.tsv").write_text("\r\n".join(lines))
    data = open_data(tmp_path, DataSettings())
    assert sum(len(split) for split in data.splits.values()) == 8


def test_every_wrong_line_and_file_is_named_at_once(tmp_path: Path) -> None:
    root = folder(tmp_path / "photos")
    image(root / "alone.png")
    add(root, "gone.png\ta dog\n00.png\t \nno tab\n\n../00.png\ta dog\n01.png\ta\tb\ncaptions.tsv\ta dog\n")
    with pytest.raises(DataError) as caught:
        open_data(root, DataSettings())
    said = [str(problem) for problem in caught.value.problems]
    assert said == [
        "captions.tsv, line 41: there is no image gone.png",
        "captions.tsv, line 42: the caption of 00.png is empty",
        "captions.tsv, line 43: it has no tab",
        "captions.tsv, line 44: it is empty",
        "captions.tsv, line 45: ../00.png leads out of the folder",
        "captions.tsv, line 46: it has 2 tabs",
        "captions.tsv, line 47: captions.tsv is not an image file, by its name",
        "alone.png: no line of captions.tsv names it",
    ]
    assert "missing=drop" in str(caught.value)


def test_drop_leaves_out_what_lacks_its_other_half_and_counts_it(tmp_path: Path) -> None:
    root = folder(tmp_path / "photos")
    image(root / "alone.png")
    image(root / "silent.png")
    add(root, "gone.png\ta dog\n00.png\t\nsilent.png\t\n")
    data = open_data(root, DataSettings(missing="drop"))
    assert sum(len({split.name(i) for i in range(len(split))}) for split in data.splits.values()) == 20
    note = next(note for note in data.notes if "missing=drop" in note)
    for said in ("captions without an image (1)", "empty captions (2)", "images without a caption (2)"):
        assert said in note


def test_a_damaged_image_is_named(tmp_path: Path) -> None:
    root = folder(tmp_path / "photos")
    (root / "02.png").write_bytes((root / "02.png").read_bytes()[:60])
    with pytest.raises(DataError, match=r"02\.png"):
        open_data(root, DataSettings())


def test_words_that_training_does_not_have_are_counted(tmp_path: Path) -> None:
    folder(tmp_path / "train", 6, captions=1)
    folder(tmp_path / "test", 2, captions=1)
    (tmp_path / "test" / "captions.tsv").write_text("00.png\ta zebra\n01.png\ta dog\n")
    data = open_data(tmp_path, DataSettings(val=0.2))
    assert "Captions with words outside the vocabulary, which no answer can give: 1 in test." in data.notes


def test_long_captions_are_left_out_where_a_length_is_given(tmp_path: Path) -> None:
    data = open_data(folder(tmp_path, captions=4), DataSettings(length=3))
    assert "Left out: 20 captions of more than length=3 tokens." in data.notes
    assert max(len(ids) for i in range(3) for ids in data.splits["test"].references(i)) == 3  # type: ignore[attr-defined]


def test_a_caption_that_is_too_long_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (captioning, captioning):
        monkeypatch.setattr(module, "MOST_TOKENS", 4)
    root = folder(tmp_path / "photos")  # "a cat , asleep" has four tokens
    data = open_data(root, DataSettings())
    image(root / "20.png")
    add(root, "20.png\ta dog and a cat\n")
    wrong = "a dog and a cat: it has 5 tokens, at most 4 are read.*length=4"
    with pytest.raises(DataError, match=wrong):
        open_data(root, DataSettings())
    with pytest.raises(DataError, match=wrong):
        data.preprocessing.labelled(root)
    assert "Left out: 1 captions of more than length=4 tokens." in open_data(root, DataSettings(length=4)).notes
    assert len(open_data(root, DataSettings(length=5)).splits)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (DataSettings(mixup=0.2), "mixup=0.2 blends images"),
        (DataSettings(missing="fill"), "missing=fill is for the cells of tables"),
        (DataSettings(pairs=False, target="x"), "target=x is for"),
        (DataSettings(length=1), "length=1 leaves no caption"),
    ],
)
def test_settings_that_cannot_be(tmp_path: Path, settings: DataSettings, said: str) -> None:
    with pytest.raises((SettingError, DataError), match=said):
        open_data(folder(tmp_path), settings)


def test_settings_of_captions_are_not_for_class_folders(tmp_path: Path) -> None:
    for name in ("cat", "dog"):
        for i in range(8):
            image(tmp_path / name / f"{i}.png", i)
    with pytest.raises(SettingError, match="tokenizer=words is for images with captions, and these have none"):
        open_data(tmp_path, DataSettings(tokenizer="words"))


def test_a_preprocessing_without_its_form_is_rejected(tmp_path: Path) -> None:
    """Captions without `form` would be read as images alone, and fail in the first batch."""
    document = json.loads(json.dumps(open_data(folder(tmp_path), DataSettings()).preprocessing.to_json()))
    assert preprocessing_from_json(document).to_json() == document
    del document["form"]
    with pytest.raises(DataError, match="its form is None, and its target Tokens has the form 'captions'"):
        preprocessing_from_json(document)
    document["form"] = "masks"
    with pytest.raises(DataError):
        preprocessing_from_json(document)
