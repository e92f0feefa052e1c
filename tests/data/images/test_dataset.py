"""Image sets in memory: split, fitted on the training split alone, and the same whether held as floats or as bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from cutaway.core.errors import DataError, SettingError
from cutaway.core.spec import ImageSizes
from cutaway.data.build import DataSource
from cutaway.data.dataset_base import DataSet, TensorSplit
from cutaway.data.images import dataset as images_module
from cutaway.data.images.dataset import PixelSplit, convert_color, image_dataset
from cutaway.data.images.image_files import as_image, as_pixels, read_image
from cutaway.data.images.transforms import ImagePreprocessing
from cutaway.data.settings import DataSettings
from cutaway.data.splits import complete_split

LABELS = np.arange(120) % 3


def pixels(channels: int = 3, size: int = 8, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (120, channels, size, size), dtype=np.uint8)


def opened(values: np.ndarray, image_size: int | None = None, splits: Any = None, **settings: Any) -> DataSet:
    return image_dataset(
        values,
        LABELS,
        ["a", "b", "c"],
        DataSource("little", "little", "f"),
        DataSettings(**settings),
        ImageSizes(only=image_size),
        splits=splits,
    )


def inputs(data: DataSet, split: str) -> torch.Tensor:
    held = data.splits[split]
    return next(iter(held.batches([torch.arange(len(held))]))).inputs[0]


def test_every_class_is_in_every_part_in_its_share() -> None:
    data = opened(pixels())
    assert {name: len(split) for name, split in data.splits.items()} == {"train": 84, "val": 18, "test": 18}
    for split in data.splits.values():
        assert split.target is not None
        assert len(set(torch.bincount(split.target).tolist())) == 1
    names = [split.name(i) for split in data.splits.values() for i in range(len(split))]
    assert sorted(names) == sorted(f"image {i}" for i in range(120))


def test_a_set_with_its_own_test_part_keeps_it_and_gives_validation_from_training() -> None:
    given = {"train": np.arange(90), "test": np.arange(90, 120)}
    split = complete_split(LABELS, ["a", "b", "c"], given, DataSettings(val=0.1, test=0.5))
    assert split["test"].tolist() == list(range(90, 120))
    assert sorted([*split["train"], *split["val"]]) == list(range(90))
    assert np.bincount(LABELS[split["val"]]).tolist() == [3, 3, 3]


def test_limit_thins_out_training_alone() -> None:
    whole, thin = (
        complete_split(LABELS, ["a", "b", "c"], None, DataSettings()),
        complete_split(LABELS, ["a", "b", "c"], None, DataSettings(max_samples=9)),
    )
    assert np.bincount(LABELS[thin["train"]]).tolist() == [3, 3, 3]
    assert set(thin["train"]) < set(whole["train"])
    for name in ("val", "test"):
        assert np.array_equal(thin[name], whole[name])


def test_shares_that_leave_a_part_empty_are_rejected() -> None:
    with pytest.raises(SettingError, match=r"val=0.5 and test=0.5 leave nothing"):
        complete_split(LABELS, ["a", "b", "c"], None, DataSettings(val=0.5, test=0.5))
    with pytest.raises(DataError, match=r"The val split gets no example: val=0.001 "):
        complete_split(np.array([0, 1, 0, 1]), ["a", "b"], None, DataSettings(val=0.001))
    split = complete_split(LABELS, ["a", "b", "c"], None, DataSettings(val=0.001))
    assert np.bincount(LABELS[split["val"]]).tolist() == [1, 1, 1]
    assert list(complete_split(LABELS, ["a", "b", "c"], None, DataSettings(val=0.0))) == ["train", "test"]


def test_a_class_without_training_examples_is_named() -> None:
    labels = np.array([0] * 40 + [1] * 40 + [2])
    given = {"train": np.arange(80), "test": np.array([80])}
    with pytest.raises(DataError, match=r"No example of the class 'c' is left for training: it has 1\."):
        complete_split(labels, ["a", "b", "c"], given, DataSettings())
    with pytest.raises(DataError, match="is left for training under max_samples=2: it has 40"):
        complete_split(LABELS, ["a", "b", "c"], None, DataSettings(max_samples=2))


def test_nothing_is_fitted_on_validation_or_test_images() -> None:
    values = pixels()
    data = opened(values)
    changed = values.copy()
    for split in ("val", "test"):
        held = data.splits[split]
        for i in range(len(held)):
            changed[int(held.name(i).split()[1])] = 255
    assert opened(changed).preprocessing == data.preprocessing
    train = values[[int(data.splits["train"].name(i).split()[1]) for i in range(84)]] / 255
    assert isinstance(data.preprocessing, ImagePreprocessing)
    assert data.preprocessing.mean == pytest.approx(train.mean((0, 2, 3)).tolist(), rel=1e-12)
    changed = values.copy()
    changed[int(data.splits["train"].name(0).split()[1])] = 255
    assert opened(changed).preprocessing != data.preprocessing


@pytest.mark.parametrize("image_size", [None, 9, 20, 5])
def test_floats_and_bytes_give_the_same_batches(monkeypatch: pytest.MonkeyPatch, image_size: int | None) -> None:
    floats = opened(pixels(), image_size)
    monkeypatch.setattr(images_module, "FLOAT_BYTES", 0)
    as_bytes = opened(pixels(), image_size)
    order = [torch.tensor([5, 2, 80]), torch.tensor([0])]
    for split in ("train", "val", "test"):
        assert isinstance(floats.splits[split], TensorSplit)
        assert isinstance(as_bytes.splits[split], PixelSplit)
        assert len(as_bytes.splits[split]) == len(floats.splits[split])
        assert as_bytes.splits[split].name(3) == floats.splits[split].name(3)
        some = [index % 18 for index in order]
        for a, b in zip(floats.splits[split].batches(some), as_bytes.splits[split].batches(some)):
            assert torch.equal(a.inputs[0], b.inputs[0])
            assert torch.equal(a.target, b.target)


def test_a_picture_is_the_original() -> None:
    values = pixels()
    data = opened(values, 20)
    for split in data.splits.values():
        shown = split.image(4)
        assert shown is not None
        assert np.array_equal(np.asarray(shown).transpose(2, 0, 1), values[int(split.name(4).split()[1])])
        assert split.row(4) is None


def test_grey_is_what_reading_a_file_in_grey_gives() -> None:
    values = pixels()
    grey = convert_color(torch.from_numpy(values), "gray")
    assert grey.shape == (120, 1, 8, 8)
    for i in range(5):
        read = read_image(as_image(values[i].transpose(1, 2, 0)), "read", 1)
        assert np.array_equal(as_pixels(read)[:, :, 0], grey[i, 0].numpy())
    assert convert_color(grey, "rgb").shape == (120, 3, 8, 8)
    assert convert_color(grey, "auto") is grey


@pytest.mark.parametrize("color", ["rgb", "gray"])
def test_colour_holds_for_new_files_too(color: str) -> None:
    values = pixels(channels=1 if color == "rgb" else 3)
    data = opened(values, color=color)
    assert data.spec.shape == ({"rgb": 3, "gray": 1}[color], 8, 8)
    shown = data.splits["test"].image(0)
    (batch,) = data.preprocessing.examples([shown]).batches([torch.tensor([0])])
    assert torch.equal(batch.inputs[0], inputs(data, "test")[:1])


def test_copies_across_splits_are_told() -> None:
    values = pixels()
    data = opened(values)
    assert data.notes == []
    twin = int(data.splits["train"].name(0).split()[1])
    values[int(data.splits["test"].name(0).split()[1])] = values[twin]
    (note,) = opened(values).notes
    assert f"image {twin}" in note


def test_augmentation_comes_with_the_set() -> None:
    assert opened(pixels()).augment is None
    augment = opened(pixels(), flip=True).augment
    assert augment is not None
    x, target = augment(inputs(opened(pixels()), "train"), torch.zeros(84), torch.Generator().manual_seed(0))
    assert x.shape == (84, 3, 8, 8)
    assert target.shape == (84,)


def test_image_size_of_the_settings_wins_over_the_models() -> None:
    data = image_dataset(
        pixels(),
        LABELS,
        ["a", "b", "c"],
        DataSource("little", "little", "f"),
        DataSettings(image_size=12),
        ImageSizes(only=20),
    )
    assert data.spec.shape == (3, 12, 12)
    assert inputs(data, "val").shape == (18, 3, 12, 12)


def test_a_picture_of_one_channel_is_grey() -> None:
    shown = opened(pixels(1)).splits["train"].image(0)
    assert isinstance(shown, Image.Image)
    assert shown.mode == "L"
