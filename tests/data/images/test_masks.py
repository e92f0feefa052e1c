"""Images with masks: what is found, rejected by name and told; files and polygons, held or streamed, the same."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from cutaway.core.errors import DataError, SettingError
from cutaway.core.spec import ImageSizes, Mask
from cutaway.data.dataset_base import DataSet
from cutaway.data.images.segmentation import (
    MaskPreprocessing,
    MaskSplit,
    PolygonMask,
    is_mask_folder,
    palette,
    read_mask,
)
from cutaway.data.modalities import preprocessing_from_json
from cutaway.data.open_data import infer_kind, open_data
from cutaway.data.settings import DataSettings
from cutaway.models.registry import preset

SIDE = 12


def scene(seed: int, size: tuple[int, int] = (SIDE, SIDE)) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """An RGB image and its mask: a bright rectangle of class 1 or 2, whose red says which."""
    rng = np.random.default_rng(seed)
    image = rng.integers(0, 60, (*size, 3), dtype=np.uint8)
    mask = np.zeros(size, np.uint8)
    top, left = rng.integers(0, 5, 2)
    kind = 1 + seed % 2
    mask[top : top + 5, left : left + 6] = kind
    image[mask > 0] = (255 if kind == 1 else 120, 200, 200)
    return image, mask


def write(folder: Path, count: int = 20, start: int = 0) -> Path:
    """Images and masks, of a palette where their number is even."""
    for part in ("images", "masks"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    for i in range(start, start + count):
        image, mask = scene(i)
        Image.fromarray(image).save(folder / "images" / f"{i}.png")
        classes = Image.fromarray(mask)
        if i % 2 == 0:
            classes.putpalette(palette())
        classes.save(folder / "masks" / f"{i}.png")
    return folder


@pytest.fixture
def own(tmp_path: Path) -> Path:
    return write(tmp_path / "own")


def opened(path: Path, **settings: Any) -> DataSet:
    return open_data(str(path), DataSettings(**settings), ImageSizes(), (Mask,))


def batch(data: DataSet, split: str = "train") -> tuple[torch.Tensor, torch.Tensor]:
    """All of a split."""
    found = data.splits[split]
    (inputs,), target = next(iter(found.batches([torch.arange(len(found))])))
    return inputs, target


def test_a_folder_of_images_and_masks_is_read_as_such(own: Path) -> None:
    assert infer_kind(str(own), DataSettings()) == "image"
    data = opened(own)
    assert data.spec.target == Mask(("ground", "class 1", "class 2"))
    inputs, target = batch(data)
    assert inputs.shape == (14, 3, SIDE, SIDE)
    assert (target.shape, target.dtype) == ((14, SIDE, SIDE), torch.uint8)
    for i, mask in enumerate(target):
        number = int(Path(data.splits["train"].name(i)).stem)
        assert (mask.numpy() == scene(number)[1]).all()
    assert isinstance(data.preprocessing, MaskPreprocessing)
    assert (data.preprocessing.to_pixels(inputs)[0] == np.asarray(data.splits["train"].image(0))).all()
    counts = data.splits["train"].target
    assert counts is not None
    assert counts.tolist() == [np.bincount(m.flatten(), minlength=3).tolist() for m in target]
    assert preprocessing_from_json(json.loads(json.dumps(data.preprocessing.to_json()))) == data.preprocessing
    absent = [name for k, name in enumerate(data.spec.target.names) if not (batch(data, "test")[1] == k).any()]
    assert [all(name in note for name in absent) for note in data.findings] == [True] * bool(absent)


def test_streamed_and_held_are_the_same(own: Path) -> None:
    for settings in ({"image_size": 8}, {"image_size": 16, "resize": "pad"}, {"image_size": 10, "resize": "stretch"}):
        held, streamed = opened(own, **settings), opened(own, **settings, memory=0, workers=0)
        for one, other in zip(batch(held, "test"), batch(streamed, "test")):
            assert torch.equal(one, other)
        assert held.fingerprint == streamed.fingerprint


def test_names_splits_and_what_no_mask_has(own: Path, tmp_path: Path) -> None:
    (own / "classes.txt").write_text("sky\ncat\ndog\ncow\n")
    data = opened(own)
    assert isinstance(data.spec.target, Mask)
    assert data.spec.target.names == ("sky", "cat", "dog", "cow")
    assert any("No mask has cow" in note for note in data.notes)
    assert opened(own).fingerprint == data.fingerprint
    whole = tmp_path / "whole"
    write(whole / "train", 10)
    write(whole / "test", 4, start=10)
    split = opened(whole, val=0.2)
    assert {name: len(s) for name, s in split.splits.items()} == {"train": 8, "val": 2, "test": 4}
    assert split.splits["test"].name(0) == "test/images/10.png"
    tested = data.preprocessing.labelled(whole / "test")
    assert isinstance(tested, MaskSplit)
    assert len(tested) == 4
    with pytest.raises(DataError, match="has splits of its own"):
        data.preprocessing.labelled(whole)
    with pytest.raises(DataError, match=r"not a folder of images with masks"):
        data.preprocessing.labelled(whole / "test" / "images")


def other_size(own: Path) -> None:
    Image.fromarray(np.zeros((3, 4), np.uint8)).save(own / "masks" / "3.png")


def in_colour(own: Path) -> None:
    Image.new("RGB", (SIDE, SIDE)).save(own / "masks" / "3.png")


def damaged(own: Path) -> None:
    file = own / "masks" / "3.png"
    file.write_bytes(file.read_bytes()[:60])


def no_png(own: Path) -> None:
    Image.open(own / "masks" / "3.png").convert("L").save(own / "masks" / "3.jpg")
    (own / "masks" / "3.png").unlink()


def outside(own: Path) -> None:
    (own / "classes.txt").write_text("ground\nclass 1\n")


def image_damaged(own: Path) -> None:
    (own / "images" / "3.png").write_bytes(b"no image")


def alone(own: Path) -> None:
    for file in (own / "masks").iterdir():
        Image.fromarray((np.asarray(Image.open(file)) > 0).astype(np.uint8) * 255).save(file)


def twice(own: Path) -> None:
    (own / "classes.txt").write_text("ground\ncat\ncat\n")


def two_suffixes(own: Path) -> None:
    Image.open(own / "images" / "3.png").save(own / "images" / "3.jpg")


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (other_size, r"1 of 20 masks .*3\.png: it has 3×4 pixels \(height × width\), and its image 12×12"),
        (in_colour, r"3\.png: it is in colour \(RGB\)"),
        (damaged, r"3\.png: it is damaged, cut short"),
        (no_png, r"3\.jpg: a mask is a PNG file"),
        (outside, r"10 of 20 masks .*its value 2 is none of the 2 classes, 0 to 1"),
        (image_damaged, r"1 of 20 image files cannot be used: .*images/3\.png"),
        (alone, r"the value 0 alone, and 255, which means not labelled"),
        (twice, r"classes\.txt names 'cat' twice"),
        (two_suffixes, r"3\.png: it is called as 3\.jpg is"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_what_cannot_be_used_is_named(own: Path, spoil: Callable[[Path], None], said: str) -> None:
    spoil(own)
    with pytest.raises(DataError, match=said):
        opened(own)


def test_what_has_no_partner_is_named_or_left_out_and_counted(own: Path) -> None:
    (own / "masks" / "3.png").unlink()
    (own / "images" / "5.png").unlink()
    with pytest.raises(DataError, match=r"images/3\.png: there is no mask .*masks/5\.png: it is the mask of no image"):
        opened(own)
    data = opened(own, missing="drop")
    assert sum(map(len, data.splits.values())) == 18
    assert any("2 images or masks without a partner are left out" in note for note in data.notes)
    with pytest.raises(SettingError, match="missing=fill is for the cells of tables"):
        opened(own, missing="fill")


def test_missing_and_mixup_are_for_others(own: Path, tmp_path: Path) -> None:
    for key, value in (("mixup", 0.2), ("cutout", 4)):
        with pytest.raises(SettingError, match=f"^{key}="):
            opened(own, **{key: value})
    with pytest.raises(SettingError, match="missing=drop is for files, and this set is whole"):
        open_data("digits", DataSettings(missing="drop"))


def test_models_of_classes_say_who_learns_masks(own: Path) -> None:
    with pytest.raises(Exception, match=r"resnet18 does not learn .* mask: .*unet"):
        preset("resnet18").configure(opened(own).spec)
    assert preset("unet-small").configure(opened(own).spec).num_classes == 3


# --- polygons -----------------------------------------------------------------------------------------------------


def write_polygons(folder: Path, count: int = 10) -> dict[str, Any]:
    """Rectangles as COCO writes polygons, and a crowd as it writes run lengths."""
    folder.mkdir(parents=True)
    images, annotations = [], []
    for i in range(count):
        Image.fromarray(scene(i)[0]).save(folder / f"{i}.png")
        images.append({"id": 100 + i, "file_name": f"{i}.png", "height": SIDE, "width": SIDE})
        polygon = [2, 1, 8, 1, 8, 6, 2, 6]
        annotations.append({"id": i, "image_id": 100 + i, "category_id": 7 + 10 * (i % 2), "segmentation": [polygon]})
    crowd = {"size": [SIDE, SIDE], "counts": [SIDE * (SIDE - 1), SIDE]}  # the last column
    annotations.append({"id": 99, "image_id": 100, "category_id": 7, "iscrowd": 1, "segmentation": crowd})
    categories = [{"id": 17, "name": "dog"}, {"id": 7, "name": "cat"}]
    written = {"images": images, "annotations": annotations, "categories": categories}
    (folder / "annotations.json").write_text(json.dumps(written))
    return written


def test_polygons_are_drawn(tmp_path: Path) -> None:
    folder = tmp_path / "coco"
    write_polygons(folder)
    assert is_mask_folder(folder, (Mask,))
    assert not is_mask_folder(folder)
    data = open_data(str(folder), DataSettings(test=0.2, val=0.2), ImageSizes(), (Mask,))
    assert isinstance(data.spec.target, Mask)
    assert data.spec.target.names == ("ground", "cat", "dog")
    expected = np.zeros((SIDE, SIDE), np.uint8)
    expected[1:6, 2:8] = 1
    seen = set()
    for name, split in data.splits.items():
        for i, mask in enumerate(batch(data, name)[1].numpy()):
            number = int(Path(split.name(i)).stem)
            seen.add(number)
            crowd = np.where(np.arange(SIDE) == SIDE - 1, 255, 0).astype(np.uint8) if number == 0 else 0
            assert (mask == np.maximum(expected * (1 + number % 2), crowd)).all()
    assert seen == set(range(10))


def test_a_polygon_holds_the_pixels_whose_middle_it_holds() -> None:
    corners = [(1.0, 2.0), (40.0, 6.0), (20.0, 45.0)]
    mask = read_mask(PolygonMask((48, 48), ((1, [[x for corner in corners for x in corner]]),)))
    y, x = np.mgrid[:48, :48] + 0.5
    within = np.ones((48, 48), bool)
    for (x1, y1), (x2, y2) in zip(corners, [*corners[1:], corners[0]]):
        within &= (x2 - x1) * (y - y1) - (y2 - y1) * (x - x1) >= 0
    assert (mask != within).sum() <= 0.1 * within.sum() / 4  # but for some at the edges


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda w: w.pop("categories"), "is not as COCO writes annotations: categories is missing"),
        (lambda w: w["annotations"][3].pop("segmentation"), "has a box and no polygon"),
        (lambda w: w["images"][2].update(height=99), r"2\.png: annotations\.json gives it 99×12 pixels .* image 12×12"),
        (lambda w: w["images"].append({**w["images"][0], "id": 5, "file_name": "no.png"}), "there is no such file"),
        (lambda w: w["annotations"][0].update(segmentation=[[1, 2]]), r"not at least three points .* \(annotation 0\)"),
        (lambda w: w["annotations"][0].update(category_id=3), "there is no 3"),
        (lambda w: w["images"][0].update(id=["0"]), r"images\[0\].id is a list, and must be an integer or a string"),
        (lambda w: w["images"][0].update(width=10**12), r"images\[0\].width is 1000000000000"),
        (lambda w: w["annotations"][1].update(segmentation=[[0, 0, 1e9, 0, 9, 9]]), "reaches beyond 48 pixels"),
        (lambda w: w["annotations"][1].update(segmentation=[[0, 0, float("nan"), 0, 9, 9]]), "must be a finite number"),
        (lambda w: w["annotations"][1].update(segmentation={"size": [12, 12], "counts": [2**40]}), "the counts of"),
    ],
)
def test_annotations_that_cannot_be_are_named(tmp_path: Path, change: Callable[[Any], Any], said: str) -> None:
    written = write_polygons(tmp_path / "coco")
    change(written)
    (tmp_path / "coco" / "annotations.json").write_text(json.dumps(written))
    with pytest.raises(DataError, match=said):
        open_data(str(tmp_path / "coco"), DataSettings(), ImageSizes(), (Mask,))


# --- what is varied, and the way back -----------------------------------------------------------------------------


def test_masks_move_with_their_images(own: Path) -> None:
    plain, data = opened(own), opened(own, flip=True, crop=3, color_jitter=0.3)
    assert data.augment is not None
    inputs, target = batch(plain)
    moved, masks = data.augment(inputs, target, torch.Generator().manual_seed(0))
    assert masks.dtype == torch.uint8
    assert (masks == 255).any()  # where the window reached beyond the image
    assert not torch.equal(masks, target)
    bright = moved[:, 1] > moved[:, 1].flatten(1).median(1).values[:, None, None] + 0.8  # the rectangles
    real = masks != 255
    assert (bright[real] == (masks > 0)[real]).double().mean() > 0.99
    jittered, same = opened(own, color_jitter=0.3).augment(inputs, target, torch.Generator())  # type: ignore[misc]
    assert torch.equal(same, target)
    assert not torch.equal(jittered, inputs)


@pytest.mark.parametrize(("resize", "seen"), [("stretch", 1.0), ("crop", 2 / 3), ("pad", 1.0)])
def test_a_mask_is_brought_back_to_where_its_image_was(resize: str, seen: float, own: Path) -> None:
    data = opened(own, resize=resize, image_size=24)
    preprocessing = data.preprocessing
    assert isinstance(preprocessing, MaskPreprocessing)
    values = np.kron(np.arange(6).reshape(2, 3), np.ones((12, 12))).astype(np.uint8)  # (24, 36)
    back = preprocessing.restored(preprocessing.mask(values), values.shape)
    assert back.shape == values.shape
    assert (back != 255).mean() == pytest.approx(seen)
    assert (back == values)[back != 255].mean() > 0.9
    square = values[:, :24]
    assert (preprocessing.restored(preprocessing.mask(square), square.shape) == square).all()


def test_boxes_without_polygons_say_so_alone(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    Image.new("RGB", (8, 8)).save(tmp_path / "images" / "a.png")
    document = {
        "images": [{"id": 1, "file_name": "a.png", "height": 8, "width": 8}],
        "categories": [{"id": 1, "name": "cup"}],
        "annotations": [{"id": 4, "image_id": 1, "category_id": 1, "bbox": [1, 1, 4, 4]}],
    }
    (tmp_path / "annotations.json").write_text(json.dumps(document))
    with pytest.raises(
        DataError, match=r"^\S+annotations\.json: annotation 4 of a\.png has a box and no polygon"
    ) as said:
        open_data(tmp_path, DataSettings(), targets=(Mask,))
    assert "as COCO writes" not in str(said.value)
