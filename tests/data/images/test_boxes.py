"""Folders of images with boxes, in COCO's form and in YOLO's: layouts, what cannot be used, and boxes that move
along."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from cutaway.core.errors import DataError, SettingError
from cutaway.core.spec import Boxes, ImageSpec
from cutaway.data.augment import mirror_boxes, shift_boxes
from cutaway.data.dataset_base import IGNORED, DataSet
from cutaway.data.images.detection import BoxPreprocessing, is_box_folder, parse_yaml_names, read_annotations
from cutaway.data.modalities import preprocessing_from_json
from cutaway.data.open_data import infer_kind, open_data
from cutaway.data.settings import DataSettings

SIZE = (20, 30)  # height and width of the images here
Box = tuple[int, float, float, float, float]  # class, x1, y1, x2, y2
BOXES: list[list[Box]] = [[(0, 2, 3, 12, 9)], [(1, 0, 0, 30, 20), (0, 5.5, 5, 8, 9)], [], [(1, 1, 1, 4, 4)]] * 3
NAMES = ["cat", "dog"]


def images(folder: Path, count: int, size: tuple[int, int] = SIZE, first: int = 0) -> list[str]:
    folder.mkdir(parents=True, exist_ok=True)
    names = [f"{i:02}.png" for i in range(first, first + count)]
    for i, name in enumerate(names, first):
        Image.new("L", size[::-1], 10 * i).save(folder / name)
    return names


def coco(
    folder: Path, boxes: list[list[Box]] = BOXES, first: int = 0, name: str = "annotations.json"
) -> dict[str, Any]:
    """Images with their boxes in COCO's form; the document, to be changed and written again."""
    files = images(folder, len(boxes), first=first)
    document = {
        "images": [{"id": 7 * i, "file_name": f, "height": SIZE[0], "width": SIZE[1]} for i, f in enumerate(files)],
        "categories": [{"id": 3, "name": "cat"}, {"id": 9, "name": "dog"}, {"id": 4, "name": "unseen"}],
        "annotations": [
            {"id": 100 * i + j, "image_id": 7 * i, "category_id": (3, 9)[k], "bbox": [x1, y1, x2 - x1, y2 - y1]}
            for i, own in enumerate(boxes)
            for j, (k, x1, y1, x2, y2) in enumerate(own)
        ],
    }
    (folder / name).write_text(json.dumps(document))
    return document


def yolo(
    folder: Path, boxes: list[list[Box]] = BOXES, homes: tuple[str, str] = ("images", "labels"), first: int = 0
) -> None:
    """Images with their boxes in YOLO's form."""
    files = images(folder / homes[0], len(boxes), first=first)
    (folder / homes[1]).mkdir(parents=True, exist_ok=True)
    (height, width) = SIZE
    for file, own in zip(files, boxes):
        lines = [
            f"{k} {(x1 + x2) / 2 / width} {(y1 + y2) / 2 / height} {(x2 - x1) / width} {(y2 - y1) / height}\n"
            for k, x1, y1, x2, y2 in own
        ]
        (folder / homes[1] / file).with_suffix(".txt").write_text("".join(lines))


def opened(folder: Path, **given: Any) -> DataSet:
    return open_data(folder, DataSettings(**({"val": 0.2, "test": 0.2} | given)))


def all_boxes(data: DataSet) -> dict[str, list[list[float]]]:
    """The boxes of each image by its file."""
    found = {}
    for split in data.splits.values():
        assert split.target is not None
        for i, rows in enumerate(split.target):
            found[Path(split.name(i)).name] = rows[rows[:, 0] != IGNORED].tolist()
    return found


EXPECTED = {f"{i:02}.png": [[*b[1:], b[0]] for b in own] for i, own in enumerate(BOXES)}


def same(found: dict[str, list[list[float]]], expected: dict[str, list[list[float]]] = EXPECTED) -> bool:
    return found.keys() == expected.keys() and all(
        np.allclose(np.array(found[k]).reshape(-1, 5), np.array(expected[k]).reshape(-1, 5), atol=1e-4) for k in found
    )


@pytest.mark.parametrize("form", [coco, yolo])
def test_both_forms_say_the_same(form: Any, tmp_path: Path) -> None:
    form(tmp_path)
    if form is yolo:
        (tmp_path / "classes.txt").write_text("cat\ndog\n")
    assert infer_kind(tmp_path, DataSettings()) == "image"
    data = opened(tmp_path)
    assert data.spec == ImageSpec(1, 20, 30, Boxes(("cat", "dog"), 2))
    assert {k: len(s) for k, s in data.splits.items()} == {"train": 7, "val": 3, "test": 2}
    assert same(all_boxes(data))
    batch = next(data.splits["train"].batches([torch.arange(3)]))
    assert batch.inputs[0].shape == (3, 1, 20, 30)
    assert batch.target.shape == (3, 2, 5)
    assert batch.target.dtype == torch.float32


def test_splits_of_every_layout(tmp_path: Path) -> None:
    coco(tmp_path / "a" / "train", name="_annotations.coco.json")
    coco(tmp_path / "a" / "valid", BOXES[:2], name="_annotations.coco.json", first=20)
    for split, count in (("train2017", 4), ("val2017", 2)):
        document = coco(tmp_path / "b" / split, BOXES[:count], first=count)
        (tmp_path / "b" / split / "annotations.json").unlink()
        (tmp_path / "b" / "annotations").mkdir(exist_ok=True)
        (tmp_path / "b" / "annotations" / f"instances_{split}.json").write_text(json.dumps(document))
    yolo(tmp_path / "c", homes=("train/images", "train/labels"))
    yolo(tmp_path / "c", BOXES[:3], homes=("test/images", "test/labels"), first=30)
    yolo(tmp_path / "d", homes=("images/train", "labels/train"))
    yolo(tmp_path / "d", BOXES[:3], homes=("images/val", "labels/val"), first=30)
    for folder in ("c", "d"):
        (tmp_path / folder / "data.yaml").write_text("nc: 2\nnames: ['cat', \"dog\"]\n")
    sizes = {f: {k: len(v) for k, v in (read_annotations(tmp_path / f).splits or {}).items()} for f in "abcd"}
    assert sizes == {
        "a": {"train": 12, "val": 2},
        "b": {"train": 4, "val": 2},
        "c": {"train": 12, "test": 3},
        "d": {"train": 12, "val": 3},
    }
    assert {k: len(s) for k, s in opened(tmp_path / "a").splits.items()} == {"train": 10, "val": 2, "test": 2}


@pytest.mark.parametrize(
    "text",
    [
        "names: [a, 'b c']",
        "path: x\nnames:\n  - a\n  - 'b c'\nnc: 2",
        "names:\n  0: a\n  1: b c # the second\n",
        "names: {0: a, 1: b c}",
        "names: [a,\n  b c]",
    ],
)
def test_names_stand_in_yaml_in_every_form(text: str) -> None:
    assert parse_yaml_names(text) == ["a", "b c"]
    assert parse_yaml_names("nc: 3") == []


def test_class_folders_and_other_folders_are_none(tmp_path: Path) -> None:
    images(tmp_path / "cats", 2)
    images(tmp_path / "images", 2)
    assert not is_box_folder(tmp_path)


# --- what cannot be used --------------------------------------------------------------------------------------------


def changed(folder: Path, what: str, i: int, **values: Any) -> None:
    """COCO's form with one entry changed."""
    document = coco(folder)
    document[what][i] |= values
    (folder / "annotations.json").write_text(json.dumps(document))


@pytest.mark.parametrize(
    ("what", "values", "words"),
    [
        (
            "annotations",
            {"bbox": [25, 3, 10, 6]},
            r"annotation 2 \(id 100\): the box from 25, 3 to 35, 9 reaches beyond .* 30×20",
        ),
        ("annotations", {"bbox": [5, 3, 0, 6]}, "annotation 2 .*has no area"),
        ("annotations", {"bbox": [5, 3, 6]}, "annotation 2 .*is not four numbers"),
        ("annotations", {"bbox": [5, 3, 6, 10**30]}, "annotation 2 .*is not four numbers"),
        ("annotations", {"bbox": [5, 3, 6, float("nan")]}, "annotation 2 .*is not four numbers"),
        ("annotations", {"image_id": [7]}, "annotation 2 .*it is of image .*7.*, which the file does not list"),
        ("annotations", {"category_id": {"id": 3}}, "annotation 2 .*is none of the categories"),
        ("images", {"id": [7]}, "image 2: it has no file_name or no id"),
        ("images", {"id": True}, "image 2: it has no file_name or no id"),
        ("images", {"file_name": "x" * 5000}, "image 2: there is no file"),
        ("categories", {"id": {"a": 1}}, "category 2: it has no name, or an id that is none"),
        ("annotations", {"bbox": [5, 3, "6", 1]}, "annotation 2 .*is not four numbers"),
        ("annotations", {"category_id": 8}, "annotation 2 .*category_id 8 is none of the categories"),
        ("annotations", {"image_id": 8}, "annotation 2 .*is of image 8, which the file does not list"),
        ("images", {"file_name": "no.png"}, r"image 2: there is no file .*no\.png"),
        (
            "images",
            {"width": 31},
            r"01\.png: its annotations are for 31×20 pixels, and it has 30×20; see .* in annotations.json",
        ),
        ("images", {"id": 0}, "image 2: its id occurs twice"),
    ],
)
def test_what_is_wrong_in_coco_is_named_and_can_be_dropped(
    what: str, values: dict[str, Any], words: str, tmp_path: Path
) -> None:
    changed(tmp_path, what, 1, **values)
    with pytest.raises(DataError, match=f"cannot be used: .*{words}.*missing=drop"):
        opened(tmp_path)
    data = opened(tmp_path, missing="drop")
    assert any(note.startswith("missing=drop left out") for note in data.notes)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("0 0.5 0.5 0.2", "labels/00.txt, line 2: '0 0.5 0.5 0.2' is not five numbers"),
        ("cat 0.5 0.5 0.2 0.1", "line 2: .*is not five numbers"),
        ("0 0.1 0.1 0.2 0.1 0.2 0.2", "the outline of an object, which is not a box"),
        ("2 0.5 0.5 0.2 0.1", "line 2: the class 2 has no name: there are 2, from 0 on"),
        ("0.5 0.5 0.5 0.2 0.1", "line 2: the class 0.5 has no name"),
        ("0 0.5 0.5 0 0.1", "line 2: the box .* has no area"),
        ("0 0.9 0.5 0.5 0.1", "line 2: the box .* reaches beyond the image"),
        ("0 nan 0.5 0.5 0.1", "line 2: the box .* is not a box"),
    ],
)
def test_what_is_wrong_in_yolo_is_named_and_can_be_dropped(line: str, words: str, tmp_path: Path) -> None:
    yolo(tmp_path)
    (tmp_path / "classes.txt").write_text("cat\ndog\n")
    file = tmp_path / "labels" / "00.txt"
    file.write_text(f"{file.read_text()}{line}\n")
    with pytest.raises(DataError, match=f"1 annotation cannot be used: .*{words}"):
        opened(tmp_path)
    data = opened(tmp_path, missing="drop")
    assert same(all_boxes(data))
    assert any("missing=drop left out 1 annotation" in note for note in data.notes)


def test_labels_without_an_image_and_images_without_labels(tmp_path: Path) -> None:
    yolo(tmp_path)
    (tmp_path / "classes.txt").write_text("cat\ndog\n")
    (tmp_path / "labels" / "02.txt").unlink()
    data = opened(tmp_path)
    assert "1 image has no label file, and is taken for one without objects: images/02.png." in data.notes
    assert same(all_boxes(data))
    (tmp_path / "labels" / "99.txt").write_text("0 0.5 0.5 0.1 0.1\n")
    with pytest.raises(DataError, match=r"labels/99\.txt: there is no image of that name"):
        opened(tmp_path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"images": [', "annotations.json is not JSON: .*line 1, column"),
        ("[]", "is not in COCO's form: it is not an object"),
        ('{"images": [], "categories": []}', "it has no list 'annotations'"),
        ('{"images": [], "categories": [], "annotations": [1]}', "it has no list 'annotations' of objects"),
        ('{"images": [], "categories": [], "annotations": []}', "has no box at all"),
    ],
)
def test_a_file_that_is_not_cocos_is_rejected(text: str, words: str, tmp_path: Path) -> None:
    images(tmp_path, 2)
    (tmp_path / "annotations.json").write_text(text)
    with pytest.raises(DataError, match=words):
        opened(tmp_path)


def test_what_leaves_no_choice_is_asked(tmp_path: Path) -> None:
    yolo(tmp_path)
    with pytest.raises(DataError, match=r"says nowhere what its classes are called.*classes\.txt"):
        opened(tmp_path)
    (tmp_path / "classes.txt").write_text("cat\ncat\n")
    with pytest.raises(DataError, match="names the class 'cat' twice"):
        opened(tmp_path)
    coco(tmp_path)
    with pytest.raises(DataError, match="holds boxes in two forms"):
        opened(tmp_path)
    coco(tmp_path / "b")
    coco(tmp_path / "b", name="instances_b.json")
    with pytest.raises(DataError, match=r"several files of annotations: annotations\.json, instances_b\.json"):
        opened(tmp_path / "b")
    coco(tmp_path / "c" / "test")
    with pytest.raises(DataError, match="images for test and none for training"):
        opened(tmp_path / "c")
    with pytest.raises(SettingError, match="missing=fill is for the cells of tables"):
        opened(tmp_path / "c", missing="fill")


def test_what_is_odd_is_told(tmp_path: Path) -> None:
    document = coco(tmp_path)
    document["annotations"][0]["bbox"] = [-0.5, 3, 10, 6]
    document["annotations"][1]["iscrowd"] = 1
    (tmp_path / "annotations.json").write_text(json.dumps(document))
    images(tmp_path, 1, first=50)
    data = opened(tmp_path)
    said = " ".join(data.notes)
    assert "1 box reaches up to a pixel beyond the image, as rounding leaves them, and end there." in said
    assert "1 class that no box is of will not be learned: unseen." in said
    assert "not among those that annotations.json lists: 1 image, 50.png" in said
    boxes = all_boxes(data)
    assert boxes["00.png"] == [[0, 3, 9.5, 9, 0]]
    assert boxes["01.png"][0][4] == -2  # a crowd of dogs


# --- into the network's pixels and back -----------------------------------------------------------------------------


def preprocessing(fit: str, size: tuple[int, int], box: tuple[int, int]) -> BoxPreprocessing:
    spec = ImageSpec(1, *size, Boxes(("cat", "dog")))
    return BoxPreprocessing(spec, (0.5,), (0.5,), fit, box, (0,))


@settings(max_examples=60, deadline=None)
@given(
    fit=st.sampled_from(["pad", "crop", "stretch"]),
    size=st.tuples(st.integers(24, 60), st.integers(24, 60)),
    own=st.tuples(st.integers(20, 90), st.integers(20, 90)),
    corner=st.tuples(st.floats(0.1, 0.5), st.floats(0.1, 0.5)),
)
def test_a_box_stays_around_its_object(
    fit: str, size: tuple[int, int], own: tuple[int, int], corner: tuple[float, float]
) -> None:
    prepared = preprocessing(fit, size, size)
    y1, x1 = int(corner[0] * own[0]), int(corner[1] * own[1])
    y2, x2 = y1 + 8, x1 + 8
    pixels = np.zeros(own, np.uint8)
    pixels[y1:y2, x1:x2] = 255
    seen = prepared.pixels(pixels, "a square")[:, :, 0] > 127
    moved = prepared.moved(np.array([[x1, y1, x2, y2, 1]], np.float32), own)
    if not len(moved):
        assert not seen.any()
        return
    rows, columns = np.nonzero(seen)
    if len(rows):  # the half-bright edge of a scaled square is within a pixel of its box, which has parts of pixels
        edges = [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]
        assert np.abs(moved[0, :4] - edges).max() <= 1.0 + 1e-4
    back = prepared.original(torch.from_numpy(moved[:, :4]), own)
    inside = (moved[0, :4] > 0) & (moved[0, :4] < np.array([size[1], size[0], size[1], size[0]]))
    assert np.abs(back.numpy()[0] - [x1, y1, x2, y2])[inside].max(initial=0) < 1e-3
    assert moved[0, 4] == 1


def test_nothing_is_cut_off_unless_asked_and_the_preprocessing_is_kept(tmp_path: Path) -> None:
    coco(tmp_path)
    data = opened(tmp_path, image_size=40)
    prepared = data.preprocessing
    assert isinstance(prepared, BoxPreprocessing)
    assert prepared.fit == "pad"
    assert prepared.placing(SIZE) == pytest.approx((4 / 3, 0, 27 / 20, 6))  # 30 to 40, 20 to 27, 6 rows above
    assert preprocessing_from_json(json.loads(json.dumps(prepared.to_json()))) == prepared
    assert opened(tmp_path, image_size=40, resize="crop").preprocessing.fit == "crop"  # type: ignore[attr-defined]
    streamed = opened(tmp_path, memory=0, workers=0)
    assert same(all_boxes(streamed))
    batch = next(streamed.splits["train"].batches([torch.tensor([1])]))
    held = next(opened(tmp_path).splits["train"].batches([torch.tensor([1])]))
    assert torch.equal(batch.inputs[0], held.inputs[0])
    assert torch.equal(batch.target, held.target)


def test_other_labelled_data_is_prepared_alike(tmp_path: Path) -> None:
    coco(tmp_path / "a")
    prepared = opened(tmp_path / "a").preprocessing
    coco(tmp_path / "b", BOXES[:2])
    split = prepared.labelled(tmp_path / "b")
    assert split.target is not None
    assert split.target[1, 0].tolist() == [0, 0, 30, 20, 1]
    document = coco(tmp_path / "b", BOXES[:2])
    document["categories"][0]["name"] = "wolf"
    (tmp_path / "b" / "annotations.json").write_text(json.dumps(document))
    with pytest.raises(DataError, match="the class 'wolf' is not one that the model was trained on"):
        prepared.labelled(tmp_path / "b")
    with pytest.raises(DataError, match="is not a folder of images with boxes"):
        prepared.labelled(tmp_path)


# --- augmentation ---------------------------------------------------------------------------------------------------


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6), flip=st.booleans(), crop=st.integers(0, 6))
def test_boxes_go_where_their_objects_go(seed: int, flip: bool, crop: int) -> None:
    from cutaway.data.augment import make_augment

    spec = ImageSpec(1, 20, 30, Boxes(("cat",)))
    augment = make_augment(DataSettings(flip=flip, crop=crop), spec, (0.5,), (0.5,))
    generator = torch.Generator().manual_seed(seed)
    corner = torch.rand(4, 2, generator=generator) * torch.tensor([24.0, 14.0])
    boxes = torch.cat([corner.floor(), corner.floor() + 6, torch.zeros(4, 1)], 1)[:, None]  # (4, 1, 5)
    x = torch.zeros(4, 1, 20, 30)
    for image, box in zip(x, boxes[:, 0].int().tolist()):
        image[0, box[1] : box[3], box[0] : box[2]] = 1
    padded = torch.cat([boxes, torch.full((4, 2, 5), float(IGNORED))], 1)
    assert (augment is None) == (not flip and not crop)
    varied, moved = augment(x, padded, generator) if augment else (x, padded)
    assert (moved[:, 1:] == IGNORED).all()
    for image, box in zip(varied[:, 0], moved[:, 0]):
        rows, columns = image.nonzero(as_tuple=True)
        if not len(rows):
            assert (box == IGNORED).all()
        else:
            edges = [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]
            assert box.tolist() == [float(n) for n in edges] + [0.0]


def test_what_is_cut_is_clipped_what_leaves_is_dropped_and_a_crowd_moves_along() -> None:
    boxes = torch.tensor([[[0.0, 0, 4, 4, 0], [10, 10, 20, 20, -1], [-100] * 5]])
    moved = shift_boxes(boxes, torch.tensor([[-5], [14]]), 20, 30)
    assert moved[0].tolist() == [[-100] * 5, [24, 5, 30, 15, -1], [-100] * 5]
    assert mirror_boxes(boxes, torch.tensor([[True]]), 30)[0].tolist() == [
        [26, 0, 30, 4, 0],
        [10, 10, 20, 20, -1],
        [-100] * 5,
    ]


def test_mixup_is_rejected_by_name(tmp_path: Path) -> None:
    coco(tmp_path)
    with pytest.raises(SettingError, match=r"mixup=0\.2 blends images, and a box of a blend would be half there"):
        opened(tmp_path, mixup=0.2)
    assert opened(tmp_path, color_jitter=0.2, cutout=3).augment is not None
    assert opened(tmp_path).augment is None


def test_scenes_of_digits_have_boxes_around_their_ink() -> None:
    data = open_data("digit_boxes_small", DataSettings(max_samples=5))
    split = data.splits["test"]
    assert split.target is not None
    assert {k: len(s) for k, s in data.splits.items()} == {"train": 5, "val": 150, "test": 300}
    for i in range(5):
        pixels, ink = np.asarray(split.image(i)), np.zeros((48, 48), bool)
        for x1, y1, x2, y2, _ in split.target[i][split.target[i][:, 0] != IGNORED].int().tolist():
            assert (pixels[y1:y2, x1:x2] >= 128).any()
            ink[y1:y2, x1:x2] = True
        assert not pixels[~ink].any()
