"""Images to tensors: fitted on the training split, saved as JSON, the same for training and for new files."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from cutaway.core.errors import DataError
from cutaway.core.spec import Classes, ImageSpec
from cutaway.data.images.transforms import ImagePreprocessing, choose_fit, fit_preprocessing
from cutaway.data.modalities import preprocessing_from_json


def noise(n: int, channels: int, height: int, width: int, seed: int = 0) -> Tensor:
    rng = np.random.default_rng(seed)
    return torch.from_numpy(rng.integers(0, 256, (n, channels, height, width), dtype=np.uint8))


def fitted(images: Tensor, size: tuple[int, int], fit: str = "auto") -> ImagePreprocessing:
    spec = ImageSpec(images.shape[1], *size, Classes(("cat", "dog")))
    return fit_preprocessing(spec, [images[:3], images[3:]], fit, (images.shape[2], images.shape[3]))


def test_mean_and_deviation_are_those_of_all_pixels() -> None:
    images = noise(7, 3, 5, 6)
    found = fitted(images, (5, 6))
    pixels = images.double().permute(1, 0, 2, 3).flatten(1) / 255
    assert found.mean == pytest.approx(pixels.mean(1).tolist(), rel=1e-12)
    assert found.std == pytest.approx(pixels.std(1, correction=0).tolist(), rel=1e-12)
    x = found.prepare(images)
    assert x.dtype == torch.float32
    torch.testing.assert_close(x.mean((0, 2, 3)), torch.zeros(3), atol=1e-5, rtol=0)
    torch.testing.assert_close(x.var((0, 2, 3), correction=0), torch.ones(3), atol=1e-5, rtol=0)


def test_a_constant_channel_becomes_nought() -> None:
    images = torch.full((4, 1, 3, 3), 77, dtype=torch.uint8)
    assert torch.equal(fitted(images, (3, 3)).prepare(images), torch.zeros(4, 1, 3, 3))


def test_the_background_is_what_stands_at_the_border() -> None:
    images = torch.full((4, 3, 9, 9), 200, dtype=torch.uint8)
    images[:, :, 1:8, 1:8] = noise(4, 3, 7, 7)
    images[:, 1, :, 0] = 10  # one side of four does not sway the median
    assert fitted(images, (9, 9)).background == (200, 200, 200)


@pytest.mark.parametrize(
    ("own", "size", "expected"),
    [
        ((28, 28), (32, 32), "pad"),  # MNIST to LeNet, as published
        ((32, 32), (40, 40), "pad"),
        ((32, 32), (41, 41), "crop"),  # nine pixels are not a few
        ((8, 8), (10, 10), "pad"),
        ((8, 8), (11, 11), "crop"),  # more than a quarter
        ((8, 8), (32, 32), "crop"),
        ((32, 32), (28, 28), "crop"),
        ((32, 32), (32, 32), "crop"),
        ((30, 32), (32, 30), "crop"),
        (None, (32, 32), "crop"),
    ],
)
def test_auto_pads_where_a_few_pixels_are_missing(
    own: tuple[int, int] | None, size: tuple[int, int], expected: str
) -> None:
    assert choose_fit(own, size) == expected


@pytest.mark.parametrize("fit", ["crop", "stretch", "pad", "auto"])
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(
    ("own", "size"), [((28, 28), (32, 32)), ((8, 8), (32, 32)), ((20, 31), (16, 16)), ((9, 9), (9, 9))]
)
def test_a_file_gives_the_tensor_that_training_had(
    tmp_path: Path, fit: str, channels: int, own: tuple[int, int], size: tuple[int, int]
) -> None:
    images = noise(5, channels, *own)
    preprocessing = fitted(images, size, fit)
    trained_on = preprocessing.prepare(images)
    paths = []
    for i, image in enumerate(images):
        array = image.permute(1, 2, 0).numpy()
        paths.append(tmp_path / f"{i}.png")
        Image.fromarray(array[:, :, 0] if channels == 1 else array).save(paths[-1])
    split = preprocessing.examples([tmp_path])
    assert len(split) == 5
    (batch,) = split.batches([torch.arange(5)])
    assert torch.equal(batch.inputs[0], trained_on)
    assert batch.target.shape == (5, 0)
    arrays = [np.asarray(Image.open(p)) for p in paths]
    for sources in (paths, [str(p) for p in paths], [Image.open(p) for p in paths], arrays):
        (again,) = preprocessing.examples(sources).batches([torch.arange(5)])
        assert torch.equal(again.inputs[0], trained_on)
    one_by_one = torch.cat([b.inputs[0] for b in split.batches(torch.arange(5).split(1))])
    assert torch.equal(one_by_one, trained_on)


def test_both_ways_of_normalising_give_the_same_bits() -> None:
    images = noise(6, 3, 7, 9)
    preprocessing = fitted(images, (7, 9))
    last = images.contiguous(memory_format=torch.channels_last)
    plain, lines = preprocessing.normalise(images), preprocessing.normalise(last)
    assert torch.equal(plain, lines)
    assert plain.is_contiguous()
    assert lines.is_contiguous(memory_format=torch.channels_last)


def test_what_was_saved_comes_back_equal() -> None:
    preprocessing = fitted(noise(5, 3, 28, 28), (32, 32))
    assert preprocessing.fit == "pad"
    assert preprocessing.box == (28, 28)
    read = preprocessing_from_json(json.loads(json.dumps(preprocessing.to_json())))
    assert read == preprocessing


def test_a_picture_of_another_size_is_brought_into_the_box_first() -> None:
    images = noise(5, 1, 28, 28)
    preprocessing = fitted(images, (32, 32))
    large = np.repeat(np.repeat(images[0, 0].numpy(), 4, 0), 4, 1)  # the same digit, four times as large
    (batch,) = preprocessing.examples([large]).batches([torch.tensor([0])])
    assert batch.inputs[0].shape == (1, 1, 32, 32)
    border = batch.inputs[0].clone()
    border[:, :, 2:30, 2:30] = border[0, 0, 0, 0]
    assert (border == border[0, 0, 0, 0]).all()  # two pixels of background all round


def test_new_files_are_named_where_they_cannot_be_used(tmp_path: Path) -> None:
    preprocessing = fitted(noise(5, 3, 8, 8), (8, 8))
    with pytest.raises(DataError, match="No image was given"):
        preprocessing.examples([])
    with pytest.raises(DataError, match=r"no image '.*absent\.png'"):
        preprocessing.examples([tmp_path / "absent.png"])
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(DataError, match=r"notes\.txt is not an image file"):
        preprocessing.examples([tmp_path / "notes.txt"])
    with pytest.raises(DataError, match="folder without image files") as rejected:
        preprocessing.examples([tmp_path])
    assert "Those in its folders" not in str(rejected.value)
    (tmp_path / "all" / "b").mkdir(parents=True)
    (tmp_path / "all" / "a").mkdir()
    (tmp_path / "all" / "b" / "1.png").write_bytes(b"")
    with pytest.raises(DataError, match=r"folder without image files .*where the folder is given: \S+all/b$"):
        preprocessing.examples([tmp_path / "all"])
    (tmp_path / "empty.png").write_bytes(b"")
    (tmp_path / "text.jpg").write_text("hello")
    with pytest.raises(DataError, match="2 of 2 image files cannot be used") as caught:
        preprocessing.examples([tmp_path])
    assert [p.where for p in caught.value.problems] == [str(tmp_path / "empty.png"), str(tmp_path / "text.jpg")]
    with pytest.raises(DataError, match="image 1: it is an array of float64"):
        list(preprocessing.examples([np.zeros((8, 8), np.uint8), np.zeros((8, 8))]).batches([torch.arange(2)]))


def test_class_folders_give_targets(tmp_path: Path) -> None:
    images = noise(4, 3, 8, 8)
    preprocessing = fitted(images, (8, 8))
    for i, name in enumerate(["dog", "cat", "dog", "cat"]):
        (tmp_path / name).mkdir(exist_ok=True)
        Image.fromarray(images[i].permute(1, 2, 0).numpy()).save(tmp_path / name / f"{i}.png")
    split = preprocessing.labelled(tmp_path)
    assert split.target is not None
    assert split.target.tolist() == [0, 0, 1, 1]
    assert [split.name(i) for i in range(4)] == ["cat/1.png", "cat/3.png", "dog/0.png", "dog/2.png"]
    (batch,) = split.batches([torch.tensor([2, 0])])
    assert torch.equal(batch.inputs[0], preprocessing.prepare(images[[0, 1]]))
    assert batch.target.tolist() == [1, 0]
    (tmp_path / "bird").mkdir()
    (tmp_path / "bird" / "0.png").write_bytes((tmp_path / "cat" / "1.png").read_bytes())
    with pytest.raises(DataError, match="the class 'bird', and the model was trained on cat, dog"):
        preprocessing.labelled(tmp_path)
    with pytest.raises(DataError, match="no folder"):
        preprocessing.labelled(tmp_path / "absent")
