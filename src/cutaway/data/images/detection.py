"""Object detection data in COCO and YOLO format, and its transforms.

    COCO   photos/annotations.json (or _annotations.coco.json, instances_*.json) next to the images; or one in each of
           train/, val/ and test/; or annotations/instances_train2017.json with the images in train2017/
    YOLO   photos/images/1.jpg with photos/labels/1.txt; or images/train/ with labels/train/; or train/images/ with
           train/labels/. Class names are in classes.txt, one a line, or under `names` of data.yaml

A COCO box is [x, y, width, height] in pixels. A YOLO line is a class number, then the center, width and height of a box
as fractions of the image. Here a box is a row (x1, y1, x2, y2, class) in pixels of the upright image. A crowd (COCO's
iscrowd) of class k has the class −1 − k: it is not learned, and detections inside it count neither as correct nor as
false.

A batch's target is (N, M, 5) float32: x1, y1, x2, y2 in pixels of the network's input and the class, −1 − k for a crowd
of class k. Padding rows are filled with IGNORED.
"""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from ...core.errors import DataError, FolderLayoutError, NotEnoughDataError, Problem, shorten, shorten_repr
from ...core.files import read_bytes
from ...core.spec import Boxes, ImageSpec
from ..dataset_base import IGNORED, Preprocessing, Split, map_class_ids
from ..findings import Finding
from ..folders import IMAGES, NAMED_AT_MOST, SPLIT_FOLDERS, FileLookup, list_entries, normalize_name, subfolders
from ..settings import DataSettings
from ..splits import Rows, filter_splits
from .image_files import Size, inspect_images, size_covering, size_within
from .segmentation import palette
from .transforms import FileSplit, ImagePreprocessing, choose_fit, fit_preprocessing

Rectangles = npt.NDArray[np.float32]  # (m, 5): x1, y1, x2, y2, class

COCO = re.compile(r"annotations\.json|_annotations\.coco\.json|instances_.*\.json")
OFFICIAL = re.compile(r"instances_((train|val|test).*)\.json")  # in annotations/, of the images in the folder \1
ROUNDED = 1.0  # pixels that a box may exceed its image by due to rounding; it is clipped there
FIX = "Correct these files, or leave them out with missing=drop."


@dataclass(frozen=True)
class BoxAnnotation:
    """A box annotation of one image, before the image's size is known."""

    where: str  # labels/1.txt, line 3
    image: int  # its index
    name: str  # class name
    numbers: tuple[float, float, float, float]  # x1, y1, x2, y2
    fractions: bool = False  # True if the numbers are fractions of the image's sides and not pixels
    crowd: bool = False


@dataclass
class AnnotatedImages:
    """Images and their box annotations before any image is opened."""

    files: list[Path] = field(default_factory=list)
    names: list[str] = field(default_factory=list)  # display names
    sizes: list[Size | None] = field(default_factory=list)  # height and width, if the annotations give them
    split_of: list[str] = field(default_factory=list)  # train, val or test; "" where the data has no splits
    annotations: list[BoxAnnotation] = field(default_factory=list)
    declared: list[str] = field(default_factory=list)  # all declared classes in their order
    problems: list[Problem] = field(default_factory=list)  # annotations that cannot be used
    notes: list[str] = field(default_factory=list)
    coco_files: dict[str, str] = field(default_factory=dict)  # the COCO file of each split, as in messages

    @property
    def classes(self) -> tuple[str, ...]:
        """Return the classes that have at least one box."""
        found = {a.name for a in self.annotations}
        return tuple(name for name in self.declared if name in found)

    @property
    def splits(self) -> dict[str, Rows] | None:
        """Return the images of each split, or None if the data has no splits."""
        if not any(self.split_of):
            return None
        of = np.array(self.split_of)
        return {split: np.flatnonzero(of == split) for split in ("train", "val", "test") if (of == split).any()}

    def keep(self, rows: Rows, notes: Sequence[str]) -> None:
        """Keep only the images with these indices and their boxes."""
        filter_splits(self.splits, rows)
        number = {int(i): k for k, i in enumerate(rows)}
        self.files, self.names, self.sizes, self.split_of = (
            [of[i] for i in rows] for of in (self.files, self.names, self.sizes, self.split_of)
        )
        self.annotations = [replace(a, image=number[a.image]) for a in self.annotations if a.image in number]
        self.notes += notes

    def boxes(self, sizes: Sequence[Size], classes: Sequence[str], drop: bool) -> tuple[list[Rectangles], list[str]]:
        """Return the boxes of each image in pixels, and notes.

        `sizes` are the image sizes, and class k is `classes[k]`. Raises DataError that names every annotation that
        cannot be used; with `drop` these are left out and counted.
        """
        found: list[list[tuple[float, ...]]] = [[] for _ in self.files]
        problems, cut = list(self.problems), 0
        for name, split, declared, size in zip(self.names, self.split_of, self.sizes, sizes):
            if declared is not None and declared != size:
                what = f"its annotations are for {declared[1]}×{declared[0]} pixels, and it has {size[1]}×{size[0]}"
                problems.append(Problem(name, f"{what}; see its width and height in {self.coco_files[split]}"))
        for a in self.annotations:
            height, width = sizes[a.image]
            scale = (width, height, width, height) if a.fractions else (1.0, 1.0, 1.0, 1.0)
            x1, y1, x2, y2 = (n * s for n, s in zip(a.numbers, scale))
            if what := _wrong(x1, y1, x2, y2, width, height) or _unknown(a.name, classes):
                problems.append(Problem(a.where, what))
                continue
            within = (max(x1, 0.0), max(y1, 0.0), min(x2, width), min(y2, height))
            cut += max(abs(n - m) for n, m in zip(within, (x1, y1, x2, y2))) > 1e-3
            k = classes.index(a.name)
            found[a.image].append((*within, -1 - k if a.crowd else k))
        if problems and not drop:
            raise DataError(f"{_count_noun(len(problems), 'annotation')} cannot be used:", problems, fix=FIX)
        notes = list(self.notes)
        if problems:
            named = "; ".join(map(str, problems[:NAMED_AT_MOST]))
            notes.append(f"missing=drop left out {_count_noun(len(problems), 'annotation')}, for example {named}.")
        if cut:
            reach = "box reaches" if cut == 1 else "boxes reach"
            notes.append(f"{cut:,} {reach} up to a pixel beyond the image, as rounding leaves them, and end there.")
        return [np.array(rows, np.float32).reshape(-1, 5) for rows in found], notes


def is_box_folder(path: Path) -> bool:
    """Return whether a folder holds images with boxes, judged by its file names."""
    return bool(_coco_files(path) or _yolo_folders(path))


def read_annotations(path: Path) -> AnnotatedImages:
    """List the images of a folder and their boxes without opening images.

    Raises DataError if the annotations cannot be read.
    """
    found, coco = AnnotatedImages(), _coco_files(path)
    if coco and (yolo := _yolo_folders(path)):
        raise FolderLayoutError(
            f"{path} holds boxes in two forms, {coco[0][1]} and {yolo[0][2]}.", fix="Leave one of them."
        )
    for split, file, folder in coco:
        _read_coco(found, path, split, file, folder)
    if not coco:
        _read_yolo(found, path)
    present = {split for split in found.split_of if split}
    if present and "train" not in present:
        raise FolderLayoutError(
            f"{path} has images for {', '.join(sorted(present))} and none for training.", fix="Add train/."
        )
    if not found.annotations and not found.problems:
        raise NotEnoughDataError(f"{path} has no box at all: there is nothing to learn.", fix="Add annotations.")
    idle = [name for name in found.declared if name not in found.classes]
    if idle:
        named = ", ".join(idle[:5]) + (", …" if len(idle) > 5 else "")
        found.notes.append(
            f"{_count_noun(len(idle), 'class', 'classes')} that no box is of will not be learned: {named}."
        )
    return found


def absent_notes(boxes: Sequence[Rectangles], classes: Sequence[str], indices: dict[str, Rows]) -> list[str]:
    """Return a finding for each split that has no box of some class."""
    notes: list[str] = []
    for split, rows in indices.items():
        there = {int(k) for i in rows for k in boxes[i][:, 4]}
        absent = [name for k, name in enumerate(classes) if k not in there]
        if absent:
            meant = "it cannot be learned" if split == "train" else "nothing is measured on them there"
            notes.append(Finding(f"The {split} split has no box of {', '.join(absent)}: {meant}."))
    return notes


def _wrong(x1: float, y1: float, x2: float, y2: float, width: int, height: int) -> str:
    """Return why a box is invalid in an image of this size, or an empty string."""
    box = f"the box from {x1:g}, {y1:g} to {x2:g}, {y2:g}"
    if not all(map(math.isfinite, (x1, y1, x2, y2))):
        return f"{box} is not a box"
    if x2 <= x1 or y2 <= y1:
        return f"{box} has no area"
    if min(x1, y1) < -ROUNDED or x2 > width + ROUNDED or y2 > height + ROUNDED:
        return f"{box} reaches beyond the image, which has {width}×{height} pixels"
    if min(x2, width) <= max(x1, 0) or min(y2, height) <= max(y1, 0):
        return f"{box} has no area within the image"
    return ""


def _unknown(name: str, classes: Sequence[str]) -> str:
    return "" if name in classes else f"the class {shorten_repr(name)} is not one that the model was trained on"


# --- COCO ---------------------------------------------------------------------------------------------------------


def _coco_files(path: Path) -> list[tuple[str, Path, Path]]:
    """Return split, annotation file and image folder of each COCO file.

    The split is empty if one file describes all images. Raises DataError if several files are ambiguous.
    """

    def own(folder: Path) -> list[Path]:
        return [p for p in list_entries(folder) if COCO.fullmatch(p.name) and p.is_file()]

    folders = [path, *(f for f in subfolders(path) if f.name.lower() in SPLIT_FOLDERS)]
    found = [(SPLIT_FOLDERS.get(f.name.lower(), "") if f != path else "", f, own(f)) for f in folders]
    for _, folder, files in found:
        if len(files) > 1:
            raise FolderLayoutError(
                f"{folder} holds several files of annotations: {', '.join(f.name for f in files[:4])}.",
                fix="Leave one, or give each split a folder of its own: train/, val/, test/.",
            )
    named = [(split, files[0], folder) for split, folder, files in found if files]
    if not named and (path / "annotations").is_dir():
        for file in list_entries(path / "annotations"):
            if match := OFFICIAL.fullmatch(file.name):
                homes = [p for p in (path / match[1], path / "images" / match[1]) if p.is_dir()]
                named += [(match[2], file, homes[0])] if homes else []
    if len({split for split, _, _ in named}) < len(named) or (len(named) > 1 and not all(s for s, _, _ in named)):
        several = ", ".join(str(file.relative_to(path)) for _, file, _ in named)
        raise FolderLayoutError(
            f"{path} has several files of annotations for the same images: {several}.", fix="Leave one."
        )
    return named


def _read_coco(found: AnnotatedImages, root: Path, split: str, file: Path, folder: Path) -> None:
    """Add the images and boxes of one annotation file."""
    name = found.coco_files[split] = str(file.relative_to(root))
    document = _json(file)
    lists = {key: document.get(key) for key in ("images", "annotations", "categories")}
    for key, rows in lists.items():
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise DataError(
                f"{file} is not in COCO's form: it has no list {key!r} of objects.",
                fix="It needs images, annotations and categories, as https://cocodataset.org/#format-data says.",
            )
    categories: dict[Any, str] = {}
    for i, row in enumerate(lists["categories"] or (), 1):
        if _is_id(row.get("id")) and isinstance(row.get("name"), str):
            categories[row["id"]] = row["name"]
        else:
            found.problems.append(Problem(f"{name}, category {i}", "it has no name, or an id that is none"))
    found.declared += [c for c in dict.fromkeys(categories.values()) if c not in found.declared]
    lookup = FileLookup(folder, (".", "images"))
    numbers: dict[Any, int | None] = {}  # image id → index; None if the file is missing
    for i, row in enumerate(lists["images"] or (), 1):
        where, given = f"{name}, image {i}", row.get("file_name")
        if not isinstance(given, str) or not _is_id(row.get("id")) or row["id"] in numbers:
            known = _is_id(row.get("id")) and row["id"] in numbers
            found.problems.append(Problem(where, "its id occurs twice" if known else "it has no file_name or no id"))
            continue
        path = lookup.find(given, moved=True)
        numbers[row["id"]] = len(found.files) if path else None
        if path is None:
            found.problems.append(Problem(where, f"there is no file {shorten(folder / given, 200)}"))
            continue
        size = (row.get("height"), row.get("width"))
        found.files.append(path)
        found.names.append(str(path.relative_to(root)) if path.is_relative_to(root) else str(path))
        found.sizes.append((int(size[0]), int(size[1])) if all(isinstance(s, int) and s > 0 for s in size) else None)
        found.split_of.append(split)
    for i, row in enumerate(lists["annotations"] or (), 1):
        where = f"{name}, annotation {i}" + (f" (id {shorten(row['id'])})" if "id" in row else "")
        box, image, category = row.get("bbox"), row.get("image_id"), row.get("category_id")
        what = ""
        if not _is_id(image) or image not in numbers:
            what = f"it is of image {shorten_repr(image)}, which the file does not list"
        elif not _is_id(category) or category not in categories:
            what = f"its category_id {shorten_repr(category)} is none of the categories"
        elif not (isinstance(box, list) and len(box) == 4 and all(_is_number(n) for n in box)):
            what = f"its bbox {shorten_repr(box)} is not four numbers, [x, y, width, height]"
        if what:
            found.problems.append(Problem(where, what))
        elif (number := numbers[image]) is not None:
            x, y, width, height = map(float, box)
            corners = (x, y, x + width, y + height)
            crowd = bool(row.get("iscrowd"))
            found.annotations.append(BoxAnnotation(where, number, categories[category], corners, crowd=crowd))
    listed = {file.resolve() for file in found.files}
    _note_unread(
        found, [p for p in list_entries(folder) if IMAGES.fits(p) and p.resolve() not in listed], f"{name} lists"
    )


def _json(file: Path) -> dict[str, Any]:
    try:
        document = json.loads(read_bytes(file).decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise DataError(f"{file} is not written in UTF-8: byte {error.start:,} is none of it.") from error
    except json.JSONDecodeError as error:
        raise DataError(
            f"{file} is not JSON: {error.msg}, in line {error.lineno}, column {error.colno}.",
            fix="It may be cut short: write it again, or restore it from a copy.",
        ) from error
    except ValueError as error:  # a number of more digits than Python reads
        raise DataError(f"{file} is not in COCO's form: it holds a number of thousands of digits.") from error
    except RecursionError as error:
        raise DataError(f"{file} is not in COCO's form: its lists are nested too deeply.") from error
    if not isinstance(document, dict):
        raise DataError(f"{file} is not in COCO's form: it is not an object with images, annotations and categories.")
    return document


def _is_number(value: Any) -> bool:
    """Return whether the value can be a box coordinate: a finite number that is exact as a float."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= 2**53


def _is_id(value: Any) -> bool:
    return isinstance(value, int | str) and not isinstance(value, bool)


# --- YOLO ---------------------------------------------------------------------------------------------------------


def _yolo_folders(path: Path) -> list[tuple[str, Path, Path]]:
    """Return split, image folder and label folder of each part. The split is empty if the data has no splits."""

    def both(images: Path, labels: Path) -> bool:
        """Return whether both folders exist and the first one holds image files."""
        return images.is_dir() and labels.is_dir() and any(IMAGES.fits(p) for p in list_entries(images))

    if both(path / "images", path / "labels") and any(p.suffix == ".txt" for p in list_entries(path / "labels")):
        return [("", path / "images", path / "labels")]
    found: list[tuple[str, Path, Path]] = []
    for name, split in SPLIT_FOLDERS.items():
        for images, labels in (("images/" + name, "labels/" + name), (name + "/images", name + "/labels")):
            if both(path / images, path / labels):
                found.append((split, path / images, path / labels))
    return found


def _read_yolo(found: AnnotatedImages, root: Path) -> None:
    """Add the images and boxes of YOLO label files."""
    found.declared += _class_names(root)
    for split, images, labels in _yolo_folders(root):
        files = [p for p in list_entries(images) if IMAGES.fits(p)]
        first, stems = len(found.files), [normalize_name(p.stem) for p in files]
        found.files += files
        found.names += [str(p.relative_to(root)) for p in files]
        found.sizes += [None] * len(files)
        found.split_of += [split] * len(files)
        written = {
            normalize_name(p.stem): p for p in list_entries(labels) if p.suffix == ".txt" and p.name != "classes.txt"
        }
        for i, stem in enumerate(stems, first):
            if stem in written:
                _read_labels(found, written[stem], str(written[stem].relative_to(root)), i)
        found.problems += [
            Problem(str(file.relative_to(root)), f"there is no image of that name in {images}")
            for stem, file in written.items()
            if stem not in stems
        ]
        without = [str(p.relative_to(root)) for p in files if normalize_name(p.stem) not in written]
        if without:
            named = ", ".join(without[:NAMED_AT_MOST]) + (", …" if len(without) > NAMED_AT_MOST else "")
            kind = "image has no label file, and is taken for one" if len(without) == 1 else "images have no label file"
            also = "" if len(without) == 1 else ", and are taken for images"
            found.notes.append(f"{len(without):,} {kind}{also} without objects: {named}.")


def _read_labels(found: AnnotatedImages, file: Path, name: str, image: int) -> None:
    """Add the boxes of one label file."""
    try:
        text = read_bytes(file).decode("utf-8-sig")
    except UnicodeDecodeError:
        found.problems.append(Problem(name, "it is not text"))
        return
    for i, line in enumerate(text.splitlines(), 1):
        words, where = line.split(), f"{name}, line {i}"
        if not words:
            continue
        try:
            numbers = [float(word) for word in words]
        except ValueError:
            numbers = []
        if len(numbers) != 5:
            polygon = len(numbers) > 6 and len(numbers) % 2
            also = ": the outline of an object, which is not a box" if polygon else ""
            found.problems.append(Problem(where, f"{shorten_repr(line)} is not five numbers{also}"))
        elif not numbers[0].is_integer() or not 0 <= numbers[0] < len(found.declared):
            problem = f"the class {words[0]} has no name: there are {len(found.declared)}, from 0 on"
            found.problems.append(Problem(where, problem))
        else:
            x, y, width, height = numbers[1:]
            corners = (x - width / 2, y - height / 2, x + width / 2, y + height / 2)
            found.annotations.append(
                BoxAnnotation(where, image, found.declared[int(numbers[0])], corners, fractions=True)
            )


def _class_names(root: Path) -> list[str]:
    """Read the class names in the order of their numbers."""
    for file in (root / "classes.txt", root / "labels" / "classes.txt"):
        if file.is_file():
            lines = read_bytes(file).decode("utf-8-sig", errors="replace").splitlines()
            return _reject_repeated_names([line.strip() for line in lines if line.strip()], file)
    for file in (p for p in list_entries(root) if p.suffix in (".yaml", ".yml")):
        if names := parse_yaml_names(read_bytes(file).decode("utf-8-sig", errors="replace")):
            return _reject_repeated_names(names, file)
    raise FolderLayoutError(
        f"{root} says nowhere what its classes are called.",
        fix="Add a file classes.txt there with a name in each line, the first for class 0; or data.yaml with `names`.",
    )


def _reject_repeated_names(names: list[str], file: Path) -> list[str]:
    twice = next((name for i, name in enumerate(names) if name in names[:i]), None)
    if twice is not None:
        raise FolderLayoutError(f"{file} names the class {twice!r} twice.", fix="Give each class a name of its own.")
    return names


def parse_yaml_names(text: str) -> list[str]:
    """Parse `names` of a data.yaml: a list [a, b], lines `- a`, or lines `0: a`. Returns an empty list if absent.

    Other YAML is not parsed, so that no YAML library is needed.
    """
    lines = [line.split(" #")[0].rstrip() for line in text.splitlines()]
    at = next((i for i, line in enumerate(lines) if re.match(r"names\s*:", line)), None)
    if at is None:
        return []
    inline = " ".join(lines[at:]).split(":", 1)[1].strip()
    if inline.startswith(("[", "{")):
        inner = inline[1 : inline.index("]" if inline[0] == "[" else "}")] if re.search(r"[\]}]", inline) else ""
        items = [item.strip() for item in inner.split(",") if item.strip()]
        return [_unquoted(item.split(":", 1)[1] if inline[0] == "{" else item) for item in items]
    found: dict[int, str] = {}
    for line in lines[at + 1 :]:
        if match := re.match(r"\s*-\s+(.+)$", line):
            found[len(found)] = _unquoted(match[1])
        elif match := re.match(r"\s+(\d+)\s*:\s*(.+)$", line):
            found[int(match[1])] = _unquoted(match[2])
        elif line.strip():
            break
    return [found[k] for k in sorted(found)] if sorted(found) == list(range(len(found))) else []


def _unquoted(word: str) -> str:
    word = word.strip()
    return str(ast.literal_eval(word)) if re.fullmatch(r"'[^'\\]*'|\"[^\"\\]*\"", word) else word


# --- messages -------------------------------------------------------------------------------------------------------


def _note_unread(found: AnnotatedImages, left: Iterable[Path], why: str) -> None:
    names = [p.name for p in left]
    if names:
        named = ", ".join(names[:NAMED_AT_MOST]) + (", …" if len(names) > NAMED_AT_MOST else "")
        found.notes.append(
            f"Not read, because not among those that {why}: {_count_noun(len(names), 'image')}, {named}."
        )


def _count_noun(count: int, noun: str, nouns: str = "") -> str:
    return f"{count:,} {noun if count == 1 else nouns or noun + 's'}"


READABLE = 256  # smallest side in pixels of a picture that labels are drawn on
ONE = ("image",)  # images with boxes have no class to stratify a split by


@dataclass(frozen=True)
class BoxPreprocessing(ImagePreprocessing):
    """Preprocessing of an image and its boxes."""

    @property
    def names(self) -> tuple[str, ...]:
        """Return the class names."""
        assert isinstance(self.spec.target, Boxes)
        return self.spec.target.names

    def placing(self, size: Size) -> tuple[float, float, float, float]:
        """Return (a, b, c, d) of the coordinate map (x, y) → (x · a + b, y · c + d) for an image of this size."""
        (height, width), whole = size, (self.spec.height, self.spec.width)
        drawn = whole
        if self.fit == "pad":
            drawn = size_within(size, self.box)
        elif self.fit == "crop":
            # One side fits exactly; the other is cropped on both ends (`image_files.crop_to`).
            scale = max(whole[0] / height, whole[1] / width)
            fits = size_covering(size, whole) == size
            left, top = (width * scale - whole[1]) / 2, (height * scale - whole[0]) / 2
            return (scale, -float(left // 1 if fits else left), scale, -float(top // 1 if fits else top))
        left, top = (whole[1] - drawn[1]) // 2, (whole[0] - drawn[0]) // 2
        return drawn[1] / width, float(left), drawn[0] / height, float(top)

    def moved(self, boxes: Rectangles, size: Size) -> Rectangles:
        """Map boxes of an image of this size to pixels of the network's input, clipped, without boxes outside it."""
        a, b, c, d = self.placing(size)
        found = boxes * np.array([a, c, a, c, 1], np.float32) + np.array([b, d, b, d, 0], np.float32)
        found[:, 0:4:2] = found[:, 0:4:2].clip(0, self.spec.width)
        found[:, 1:4:2] = found[:, 1:4:2].clip(0, self.spec.height)
        kept: Rectangles = found[(found[:, 2] > found[:, 0]) & (found[:, 3] > found[:, 1])]
        return kept

    def original(self, boxes: Tensor, size: Size) -> Tensor:
        """Map boxes (m, 4) in pixels of the network's input to pixels of the original image: the inverse of `moved`."""
        a, b, c, d = self.placing(size)
        found = (boxes.double() - boxes.new_tensor([b, d, b, d])) / boxes.new_tensor([a, c, a, c])
        return found.clamp(min=0).minimum(found.new_tensor([size[1], size[0], size[1], size[0]]))

    def fractions(self, boxes: Tensor, size: Size) -> Tensor:
        """Map boxes (m, 4) in pixels of the network's input to fractions of the original image's sides."""
        height, width = size
        return self.original(boxes, size) / torch.tensor([width, height, width, height])

    def pictured(self, image: Image.Image, predicted: Tensor) -> Image.Image:
        """Draw predicted boxes (m, 6) with classes and scores on the image, in color.

        Small images are enlarged so that the labels do not hide them.
        """
        times = math.ceil(READABLE / min(image.size))
        picture = image.convert("RGB").resize((image.width * times, image.height * times), Image.Resampling.NEAREST)
        pen = ImageDraw.Draw(picture)
        thick = max(2, min(picture.size) // 150)
        font = ImageFont.load_default(max(10, min(picture.size) // 24))
        colours = [tuple(palette()[3 * k : 3 * k + 3]) for k in range(1, 256)]
        corners = self.original(predicted[:, :4], (image.height, image.width)) * times
        for (x1, y1, x2, y2), (kind, score) in zip(corners.flip(0).tolist(), predicted[:, 4:].flip(0).tolist()):
            colour, words = colours[int(kind) % len(colours)], f"{self.names[int(kind)]}: {100 * score:.0f} %"
            pen.rectangle((x1, y1, x2, y2), outline=colour, width=thick)
            left, top, right, bottom = pen.textbbox((0, 0), words, font)
            x, y = min(x1, picture.width - right), max(y1 - bottom - 1, 0)
            pen.rectangle((x + left, y + top - 1, x + right, y + bottom + 1), fill=colour)
            pen.text((x, y), words, "white" if sum(colour) < 384 else "black", font)
        return picture

    def adopted(self, split: Split, theirs: Preprocessing) -> Split:
        """Convert the images and boxes of another data set to this preprocessing.

        Raises DataError for a class that is not in training.
        """
        assert isinstance(theirs, BoxPreprocessing)
        assert split.target is not None, "sets to evaluate on have targets"
        images = [split.image(i) for i in range(len(split))]
        ours = map_class_ids(theirs.names, self.names)
        rows = []
        for own, image in zip(split.target, images):
            assert image is not None, "a split of images has them"
            boxes = own[own[:, 0] != IGNORED].clone()
            boxes[:, :4] = theirs.original(boxes[:, :4], (image.height, image.width)).float()
            kind = boxes[:, 4].long()
            boxes[:, 4] = torch.where(kind < 0, -1 - ours[(-1 - kind).clamp(min=0)], ours[kind.clamp(min=0)]).float()
            rows.append(self.moved(boxes.numpy(), (image.height, image.width)))
        prepared = self.examples(images)
        prepared.target = torch.from_numpy(pad_boxes(rows))
        return prepared

    def labelled(self, source: str | Path) -> FileSplit:
        """Load all images of a folder with boxes or, if it has splits, those of its test or else val split.

        Raises DataError if it has no boxes, or a class that is not in training.
        """
        path = Path(source).expanduser()
        if not path.is_dir() or not is_box_folder(path):
            raise FolderLayoutError(
                f"{source} is not a folder of images with boxes.",
                fix="Give one with annotations.json, or with images/ and labels/, as it was trained on.",
            )
        found = read_annotations(path)
        seen = inspect_images(found.files)
        rows, _ = found.boxes([s.facts.size for s in seen], self.names, drop=False)
        splits = found.splits or {"": np.arange(len(found.files))}
        chosen = next(splits[split] for split in ("test", "val", "train", "") if split in splits)
        target = pad_boxes([self.moved(rows[i], seen[i].facts.size) for i in chosen])
        return FileSplit(
            [found.files[i] for i in chosen], torch.from_numpy(target), self, [found.names[i] for i in chosen]
        )

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values that `from_json` accepts."""
        return {**super().to_json(), "form": "boxes"}


def fit_boxes(spec: ImageSpec, images: Any, settings: DataSettings, own_size: Size | None) -> BoxPreprocessing:
    """Fit the preprocessing on training images. See `fit_preprocessing`.

    Objects at the edge of an image count as much as those in the middle. Unless the setting says otherwise, nothing is
    cropped and images are padded to the target aspect ratio.
    """
    size = (spec.height, spec.width)
    fitted = vars(fit_preprocessing(spec, images, "pad" if settings.resize == "auto" else settings.resize, own_size))
    few = own_size is not None and choose_fit(own_size, size) == "pad"
    return BoxPreprocessing(**{**fitted, "box": fitted["box"] if few or settings.resize == "pad" else size})


def pad_boxes(boxes: Sequence[Rectangles]) -> Rectangles:
    """Pad the boxes of n images to one array (n, M, 5), with M the largest number of boxes of an image."""
    target = np.full((len(boxes), max(1, *map(len, boxes)) if boxes else 1, 5), IGNORED, np.float32)
    for row, own in zip(target, boxes):
        row[: len(own)] = own
    return target


def build_box_target(classes: Sequence[str], boxes: Sequence[Rectangles], train: Rows) -> Boxes:
    """Return the training target. Raises DataError if no training image has a box."""
    most = max(len(boxes[i]) for i in train)
    if most == 0:
        raise NotEnoughDataError(
            "No training image has a box: there is nothing to learn.", fix="Add annotations to some."
        )
    return Boxes(tuple(classes), most)
