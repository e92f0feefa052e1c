"""Semantic segmentation data (masks or COCO polygons) and its transforms.

    photos/images/1.jpg with photos/masks/1.png; or train/images/ with train/masks/, and val/ and test/. A mask is a
    PNG file, grey or with a palette, whose pixel values are class numbers. Class names are in classes.txt, one a line,
    the background's first; without it they are "ground", "class 1", …

    photos/annotations.json, or one in each of train/, val/ and test/, with the images in images/ or next to it. Pixels
    outside all polygons are background. Where polygons overlap, the later one is on top.

Pixels with the value 255, or in a crowd (COCO's iscrowd), are unlabelled: they are excluded from loss and metrics.

Images and masks are resized together: images with bilinear, masks with nearest-neighbor interpolation.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import Tensor

from ...core.errors import (
    DataError,
    DataMismatchError,
    FolderLayoutError,
    NotEnoughDataError,
    Problem,
    join,
    shorten,
    shorten_repr,
)
from ...core.extras import require
from ...core.files import parse_json, read_bytes, require_regular_file
from ...core.schema import COUNT, NUMBER, Between, find_mismatch
from ...core.spec import ImageSpec, Mask, Target
from ..dataset_base import Batch, Preprocessing, Split, map_class_ids
from ..findings import Finding, leave_out
from ..folders import IMAGES, NAMED_AT_MOST, SPLIT_FOLDERS, FileLookup, list_entries, normalize_name, subfolders
from ..parallel import Progress
from ..splits import Rows, filter_splits
from ..streaming.webdataset import UsableFiles
from .image_files import (
    DAMAGE,
    Pixels,
    Size,
    as_image,
    as_pixels,
    inspect_images,
    read_image,
    size_within,
    unusable_images_error,
)
from .transforms import FileSplit, ImagePreprocessing, map_in_threads

FAR = 4  # multiple of the image side that a polygon may extend beyond the image, which bounds memory for drawing
IGNORED = 255  # value of unlabelled pixels
NAMES = "classes.txt"
ANNOTATIONS = "annotations.json"
GROUND = "ground"
IN_PLACE = ("1", "L", "P", "I", "I;16", "I;16B")  # image modes with one number per pixel
COVER = 0.6  # opacity of mask colors over the image
FIX = "Correct these files."
DROP = "Correct these files, or leave them out with missing=drop."

Counts = npt.NDArray[np.int64]


@dataclass(frozen=True)
class PolygonMask:
    """The mask of an image as class polygons in drawing order."""

    size: Size  # height and width of the image
    shapes: tuple[tuple[int, Any], ...]  # class, and polygons or a run-length encoding in COCO's format

    @property
    def digest(self) -> str:
        """Return the sha256 of the polygons."""
        return hashlib.sha256(json.dumps([self.size, self.shapes]).encode()).hexdigest()


Source = Path | PolygonMask


@dataclass
class ImageMaskPairs:
    """Images with their masks before any is opened."""

    images: list[Path] = field(default_factory=list)
    masks: list[Source] = field(default_factory=list)
    names: list[str] = field(default_factory=list)  # display names
    split_of: list[str] = field(default_factory=list)  # train, val or test; "" where the data has no splits
    classes: tuple[str, ...] = ()  # class names, if the data declares them
    problems: list[Problem] = field(default_factory=list)  # files without a counterpart
    notes: list[str] = field(default_factory=list)

    def keep(self, rows: Rows, notes: Sequence[str]) -> None:
        """Keep only the images with these indices and their masks."""
        filter_splits(self.splits, rows)
        self.images, self.masks, self.names, self.split_of = (
            [of[i] for i in rows] for of in (self.images, self.masks, self.names, self.split_of)
        )
        self.notes += notes

    @property
    def splits(self) -> dict[str, Rows] | None:
        """Return the images of each split, or None if the data has no splits."""
        of = np.array(self.split_of)
        found = {split: np.flatnonzero(of == split) for split in ("train", "val", "test") if (of == split).any()}
        return found or None


# --- listing ------------------------------------------------------------------------------------------------------


def is_mask_folder(path: Path, targets: Sequence[type[Target]] = ()) -> bool:
    """Return whether a folder holds images with masks, or polygons if masks are among the targets."""
    return any(_has_masks(home) or (Mask in targets and _has_polygons(home)) for home in _homes(path).values())


def find_pairs(path: Path, missing: str = "error") -> ImageMaskPairs:
    """List the images of a folder and their masks without opening them.

    With missing="drop", files without a counterpart are left out and a note counts them. Raises DataError that names
    the files that cannot be used.
    """
    homes, found = _homes(path), ImageMaskPairs()
    if "" not in homes and "train" not in homes:
        raise FolderLayoutError(
            f"{path} has {join([f'{folder.name}/' for folder in homes.values()], 'and')} and no train/.",
            fix="Add train/ with images/ and masks/; or give one folder of both, to be split here.",
        )
    for split, home in homes.items():
        if _has_masks(home):
            _add_files(found, path, home, split)
        else:
            _add_polygons(found, path, home, split)
    if found.problems and missing != "drop":
        raise FolderLayoutError(
            f"{len(found.problems):,} files of {path} have no partner:",
            found.problems,
            fix="Add the missing files, or leave out their partners with missing=drop.",
        )
    if found.problems:
        some = ", ".join(problem.where for problem in found.problems[:NAMED_AT_MOST])
        more = f" and {len(found.problems) - NAMED_AT_MOST} more" if len(found.problems) > NAMED_AT_MOST else ""
        found.notes.append(f"{len(found.problems):,} images or masks without a partner are left out: {some}{more}.")
    if not found.images:
        raise FolderLayoutError(
            f"{path} has no image with a mask.", fix="Masks have the names of their images, and end in .png."
        )
    if not found.classes:
        found.classes = _listed_classes(path)
    return found


def _homes(path: Path) -> dict[str, Path]:
    """Return the folders that hold images with masks by split: the folder itself as "", or its split folders."""
    if _has_masks(path) or _has_polygons(path):
        return {"": path}
    folders = [f for f in subfolders(path) if f.name.lower() in SPLIT_FOLDERS and (_has_masks(f) or _has_polygons(f))]
    found: dict[str, Path] = {}
    for folder in folders:
        split = SPLIT_FOLDERS[folder.name.lower()]
        if split in found:
            raise FolderLayoutError(f"{found[split]} and {folder} are both for {split}.", fix="Remove one of them.")
        found[split] = folder
    return found


def _has_masks(path: Path) -> bool:
    """Return whether images/ and masks/ are the only subfolders, so that they are not class folders."""
    return {folder.name for folder in subfolders(path)} == {"images", "masks"}


def _has_polygons(path: Path) -> bool:
    return (path / ANNOTATIONS).is_file()


def _add_files(found: ImageMaskPairs, path: Path, home: Path, split: str) -> None:
    """Pair the files of images/ and masks/ by file name without suffix."""
    images, twice = _index_by_stem([p for p in list_entries(home / "images") if IMAGES.fits(p)])
    masks, masks_twice = _index_by_stem([p for p in list_entries(home / "masks") if not p.name.startswith(".")])
    if twice or masks_twice:
        raise FolderLayoutError(
            f"Files of {home} have one name but for the suffix:",
            [Problem(str(second), f"it is called as {first.name} is") for first, second in [*twice, *masks_twice]],
            fix="Rename or remove one of each pair.",
        )
    found.problems += [
        Problem(str(file), f"there is no mask {home / 'masks' / stem}.png")
        for stem, file in images.items()
        if stem not in masks
    ]
    found.problems += [
        Problem(str(file), "it is the mask of no image in images/")
        for stem, file in masks.items()
        if stem not in images
    ]
    for stem, image in images.items():
        if stem in masks:
            _add(found, image, masks[stem], str(image.relative_to(path)), split)


def _index_by_stem(files: Sequence[Path]) -> tuple[dict[str, Path], list[tuple[Path, Path]]]:
    """Index the files by NFC-normalised name without suffix, and return the pairs that share a name."""
    found: dict[str, Path] = {}
    twice = []
    for file in files:
        stem = normalize_name(file.stem)
        if stem in found:
            twice.append((found[stem], file))
        found.setdefault(stem, file)
    return found, twice


def _add(found: ImageMaskPairs, image: Path, mask: Source, name: str, split: str) -> None:
    found.images.append(image)
    found.masks.append(mask)
    found.names.append(name)
    found.split_of.append(split)


def _listed_classes(path: Path) -> tuple[str, ...]:
    """Read the names in classes.txt, or return none if there is no such file.

    Raises DataError for duplicate or empty names.
    """
    file = path / NAMES
    if not file.is_file():
        return ()
    try:
        lines = [line.strip() for line in read_bytes(file).decode("utf-8-sig").rstrip().splitlines()]
    except UnicodeDecodeError as error:
        raise DataError(f"{file} is not UTF-8 text.", fix="Save it as UTF-8, a name a line.") from error
    _reject_names(lines, str(file))
    return tuple(lines)


def _reject_names(names: Sequence[str], where: str) -> None:
    """Raise DataError unless the class names are distinct and at least two."""
    wrong = next((name for i, name in enumerate(names) if not name or name in names[:i]), None)
    if wrong is not None or len(names) < 2:
        problem = (
            "names fewer than two classes"
            if wrong is None
            else f"names {wrong!r} twice"
            if wrong
            else "has empty lines"
        )
        raise DataError(
            f"{where} {problem}: it has a name for each value of the masks, the ground's first.",
            fix="Line k + 1 names the pixels of value k.",
        )


# --- polygons -----------------------------------------------------------------------------------------------------


ID = int | str
COCO = {
    "images": [{"id": ID, "file_name": str, "height": Between(1, 2**16), "width": Between(1, 2**16)}],
    "categories": [{"id": ID, "name": str}],
    "annotations": [{"image_id": ID, "category_id": ID, "iscrowd?": int}],
}
FORM = (
    "It has images (id, file_name, height, width), categories (id, name) and annotations (image_id, category_id, "
    "segmentation)."
)


def _add_polygons(found: ImageMaskPairs, path: Path, home: Path, split: str) -> None:
    """Add the images of annotations.json with their polygons. Each category id is a class."""
    file = home / ANNOTATIONS
    try:
        written = parse_json(read_bytes(file), file)
        if fault := find_mismatch(written, COCO):
            raise ValueError(fault)
        by_id = sorted(written["categories"], key=lambda one: (isinstance(one["id"], str), one["id"]))
        categories = {one["id"]: one["name"] for one in by_id}
        images = {one["id"]: one for one in written["images"]}
        sizes = {i: (one["height"], one["width"]) for i, one in images.items()}
        files = {i: one["file_name"] for i, one in images.items()}
        shapes: dict[Any, list[tuple[int, Any]]] = {i: [] for i in images}
        numbers = {category: k for k, category in enumerate(categories, 1)}
        for one in written["annotations"]:
            crowd = bool(one.get("iscrowd", 0))
            if not one.get("segmentation"):
                raise DataError(
                    f"{file}: annotation {shorten(one.get('id'))} of {files[one['image_id']]} has a box and no"
                    " polygon.",
                    fix="Masks are made of polygons: give these under segmentation.",
                )
            _reject_shape(one["segmentation"], sizes[one["image_id"]], f"annotation {shorten(one.get('id'))}")
            shapes[one["image_id"]].append((IGNORED if crowd else numbers[one["category_id"]], one["segmentation"]))
    except KeyError as error:
        raise DataError(
            f"{file} is not as COCO writes annotations: there is no {shorten_repr(error.args[0])}.", fix=FORM
        ) from error
    except ValueError as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{file} is not as COCO writes annotations: {error}.", fix=FORM) from error
    names = (GROUND, *categories.values())
    _reject_names(names, str(file))
    if found.classes and found.classes != names:
        raise DataError(f"{file} has other categories than those of the other splits: {', '.join(names[1:])}.")
    found.classes = names
    folder = home / "images" if (home / "images").is_dir() else home
    lookup, known = FileLookup(home, ("images", ".")), set()
    for i, name in files.items():
        image = lookup.find(name, moved=True)
        if image is None:
            found.problems.append(Problem(str(folder / name), f"{ANNOTATIONS} lists it, and there is no such file"))
        else:
            _add(found, image, PolygonMask(sizes[i], tuple(shapes[i])), str(image.relative_to(path)), split)
            known.add(image)
    found.problems += [
        Problem(str(file), f"{ANNOTATIONS} does not list it")
        for file in list_entries(folder)
        if IMAGES.fits(file) and file not in known
    ]


def _reject_shape(shape: Any, size: Size, where: str) -> None:
    """Raise ValueError for an invalid segmentation, or one that needs too much memory to draw."""
    if isinstance(shape, dict):
        counts = shape.get("counts")
        if shape.get("size") not in (list(size), size) or not isinstance(counts, list | str):
            raise ValueError(
                f"the segmentation of {where} is not a run-length encoding of {size[0]} × {size[1]} pixels"
            )
        if isinstance(counts, list) and (find_mismatch(counts, [COUNT]) or sum(counts) != size[0] * size[1]):
            raise ValueError(f"the counts of {where} are not those of {size[0]} × {size[1]} pixels")
        return
    fault = find_mismatch({"segmentation": shape}, {"segmentation": [[NUMBER, ...], ...]})
    if not fault and any(len(polygon) < 6 or len(polygon) % 2 for polygon in shape):
        fault = "segmentation is not at least three points of x and y each"
    far = FAR * max(size)
    if not fault and any(not -far <= number <= far for polygon in shape for number in polygon):
        fault = f"segmentation reaches beyond {far:,} pixels, and its image has {size[0]} × {size[1]}"
    if fault:
        raise ValueError(f"{fault} ({where})")


def _draw_polygons(outlines: PolygonMask, name: str) -> Pixels:
    """Draw polygons as a mask (H, W)."""
    coco = require("pycocotools.mask", "Reading polygons of annotations.json")
    mask = np.zeros(outlines.size, np.uint8)
    for value, shape in outlines.shapes:
        try:
            encoded = coco.frPyObjects(shape, *outlines.size)
            encoded = coco.merge(encoded) if isinstance(encoded, list) else encoded
            mask[coco.decode(encoded).astype(bool)] = value
        except MemoryError:
            raise
        except DAMAGE as error:
            raise _unusable(name, f"a polygon of it cannot be read ({type(error).__name__} {error})") from error
    return mask


# --- reading ------------------------------------------------------------------------------------------------------


def read_mask(source: Source, name: str = "") -> npt.NDArray[np.int64] | Pixels:
    """Read the values of a mask, (H, W). Raises DataError, with a Problem, if it cannot be read or is in color."""
    if isinstance(source, PolygonMask):
        return _draw_polygons(source, name)
    if source.suffix.lower() != ".png":
        raise _unusable(str(source), "a mask is a PNG file, which preserves class numbers exactly")
    try:
        require_regular_file(source)
        with Image.open(source) as image:
            image.load()
            if image.mode not in IN_PLACE:
                raise _unusable(
                    str(source),
                    f"it is in colour ({image.mode}), and a mask has one number a pixel: save it in grey or with a "
                    "palette, the value of a pixel the number of its class",
                )
            return np.asarray(image).astype(np.int64)
    except (DataError, MemoryError):
        raise
    except DAMAGE as error:
        raise _unusable(str(source), f"it is damaged, cut short or no image ({error})") from error


def inspect_masks(
    pairs: ImageMaskPairs, sizes: Sequence[Size], missing: str = "error", classes: tuple[str, ...] = (), fix: str = DROP
) -> UsableFiles:
    """Read every mask once: the number of pixels of each value, (256,), and its sha256.

    `sizes` are the image sizes. A mask is unusable if it cannot be read, differs in size from its image, or has a value
    outside the classes (those of `pairs`, or those given). Raises DataError as `leave_out` does.
    """
    names = classes or pairs.classes

    def look(i: int) -> tuple[Counts, str] | Problem:
        source = pairs.masks[i]
        where = str(source) if isinstance(source, Path) else pairs.names[i]
        try:
            values = read_mask(source, where)
        except DataError as error:
            return error.problems[0]
        if values.shape != sizes[i]:
            (h, w), (height, width) = values.shape, sizes[i]
            size = "it has" if isinstance(source, Path) else f"{ANNOTATIONS} gives it"
            return Problem(where, f"{size} {h}×{w} pixels (height × width), and its image {height}×{width}")
        found = np.unique(values)
        strange = [int(v) for v in found if v != IGNORED and not 0 <= v < (len(names) or IGNORED)]
        if strange:
            among = f"{len(names)} classes, 0 to {len(names) - 1}" if names else "classes, 0 to 254"
            some = ", ".join(map(str, strange[:NAMED_AT_MOST])) + (", …" if len(strange) > NAMED_AT_MOST else "")
            return Problem(
                where, f"its value{'s' if len(strange) > 1 else ''} {some} is none of the {among} (255: none)"
            )
        digest = source.digest if isinstance(source, PolygonMask) else hashlib.sha256(read_bytes(source)).hexdigest()
        return np.bincount(values.ravel(), minlength=256), digest

    looks = list(map_in_threads(look, range(len(pairs.masks))))
    notes = leave_out([one for one in looks if isinstance(one, Problem)], len(looks), "masks", missing, fix)
    rows = np.array([i for i, one in enumerate(looks) if not isinstance(one, Problem)], np.int64)
    return UsableFiles(rows, [looks[i] for i in rows], notes)


def class_names(pairs: ImageMaskPairs, counts: Counts) -> tuple[str, ...]:
    """Return the declared class names, or names for the values that occur in masks.

    Raises DataError if there is only one class.
    """
    seen = np.flatnonzero(counts[:, :IGNORED].sum(0))
    if len(seen) < 2:
        only = f"the value {seen[0]}" if len(seen) else "no class"
        unlabelled = bool(counts[:, IGNORED].any())
        raise NotEnoughDataError(
            f"The masks have {only} alone{', and 255, which means not labelled' if unlabelled else ''}: at least "
            "two classes are needed.",
            fix="Give the pixels of class k the value k: 0 for the ground, then 1, 2, …",
        )
    return pairs.classes or (GROUND, *(f"class {k}" for k in range(1, int(seen[-1]) + 1)))


def absent_notes(counts: Counts, classes: Sequence[str], indices: Mapping[str, Rows]) -> Iterator[str]:
    """Yield a note on classes that no mask has, and findings on classes absent from a split. `counts` is (n, K)."""
    nowhere = [name for name, pixels in zip(classes, counts.sum(0)) if not pixels]
    if nowhere:
        yield f"No mask has {join(nowhere, 'or')}: nothing is learned of it."
    for split, rows in indices.items():
        absent = [n for n, pixels in zip(classes, counts[rows].sum(0)) if not pixels and n not in nowhere]
        if absent:
            what = "is learned" if split == "train" else "is measured"
            yield Finding(f"The {split} split has no pixel of {', '.join(absent)}: nothing of that {what} there.")


def palette() -> list[int]:
    """Return the PASCAL VOC mask palette: red, green and blue of 256 values, flattened."""
    colours = []
    for value in range(256):
        channels = [0, 0, 0]
        for bit in range(8):
            for channel in range(3):
                channels[channel] |= (value >> (3 * bit + channel) & 1) << (7 - bit)
        colours += channels
    return colours


def overlay_mask(image: Pixels, mask: Pixels, ignored: int = IGNORED) -> Pixels:
    """Overlay the colors of a mask (H, W) on an image (H, W, C), giving (H, W, 3).

    The background is transparent and unlabelled pixels are pale.
    """
    rgb = np.broadcast_to(image, (*image.shape[:2], 3)).astype(np.float64)
    colours = np.array(palette(), np.float64).reshape(256, 3)
    colours[ignored] = 255
    tinted = (1 - COVER) * rgb + COVER * colours[mask]
    shown: Pixels = np.where(mask[:, :, None] == 0, rgb, tinted).round().astype(np.uint8)
    return shown


def concat_images(images: Sequence[Pixels]) -> Image.Image:
    """Concatenate images (H, W, C) of the same size horizontally."""
    return Image.fromarray(np.concatenate([np.broadcast_to(x, (*x.shape[:2], 3)) for x in images], 1))


def _unusable(name: str, what: str) -> DataError:
    return DataError("A mask cannot be used:", [Problem(name, what)], fix=FIX)


@dataclass(frozen=True)
class MaskPreprocessing(ImagePreprocessing):
    """Preprocessing of an image to a tensor (C, H, W) and of its mask to (H, W)."""

    @property
    def target(self) -> Mask:
        """Return the training target."""
        assert isinstance(self.spec.target, Mask)
        return self.spec.target

    def mask(self, values: npt.NDArray[Any]) -> Pixels:
        """Resize mask values (h, w) to H × W. Padding is unlabelled."""
        ignored = self.target.ignored
        return np.asarray(self._fitted(Image.fromarray(values.astype(np.uint8)), Image.Resampling.NEAREST, (ignored,)))

    def pair(self, image: Any, mask: Source, name: str) -> Pixels:
        """Read one image with its mask as the last channel, (H, W, C + 1). Raises DataError if one cannot be read."""
        return np.concatenate([self.pixels(image, name), self.mask(read_mask(mask, name))[:, :, None]], 2)

    def pairs(self, images: Tensor, masks: npt.NDArray[np.uint8]) -> Tensor:
        """Combine in-memory uint8 images (n, C, h, w) and masks (n, h, w) into (n, C + 1, H, W)."""
        rows = images.permute(0, 2, 3, 1).numpy()  # (n, h, w, C)
        fitted = np.stack([as_pixels(self._fitted(as_image(row))) for row in rows])
        whole = np.concatenate([fitted, np.stack([self.mask(mask) for mask in masks])[:, :, :, None]], 3)
        return torch.from_numpy(whole).permute(0, 3, 1, 2)

    def to_pixels(self, inputs: Tensor) -> npt.NDArray[np.uint8]:
        """Convert inputs (n, C, H, W) back to pixels (n, H, W, C)."""
        mean, std = (torch.tensor(v, dtype=torch.float64).view(1, -1, 1, 1) for v in (self.mean, self.std))
        pixels = ((inputs.cpu().double() * std + mean) * 255).round().clamp(0, 255).to(torch.uint8)
        return pixels.permute(0, 2, 3, 1).numpy()

    def restored(self, mask: Pixels, size: Size) -> Pixels:
        """Resize a mask (H, W) to the image's original size (h, w). Pixels outside the network's view are `ignored`."""
        (rows, columns), (height, width) = mask.shape, size
        if self.fit == "pad":
            seen = size_within(size, self.box)
            top, left = (rows - seen[0]) // 2, (columns - seen[1]) // 2
            mask = mask[top : top + seen[0], left : left + seen[1]]
        box = (0, 0, width, height)
        if self.fit == "crop":
            aside = max(0.0, (width - height * columns / rows) / 2)
            above = max(0.0, (height - width * rows / columns) / 2)
            box = (round(aside), round(above), round(width - aside), round(height - above))
        whole = np.full(size, self.target.ignored, np.uint8)
        part = Image.fromarray(mask).resize((box[2] - box[0], box[3] - box[1]), Image.Resampling.NEAREST)
        whole[box[1] : box[3], box[0] : box[2]] = np.asarray(part)
        return whole

    def pictured(self, image: Image.Image, predicted: Tensor) -> Image.Image:
        """Overlay a predicted mask (H, W) on the image, in color. Pixels outside the network's input are pale."""
        mask = self.restored(predicted.numpy(), (image.height, image.width))
        return Image.fromarray(overlay_mask(np.asarray(image.convert("RGB")), mask, self.target.ignored))

    def panels(self, inputs: Tensor, target: Tensor, predicted: Tensor) -> Image.Image:
        """Draw one input image (C, H, W) with its mask (H, W) and with the prediction, side by side."""
        image, masks = self.to_pixels(inputs[None])[0], (target.numpy(), predicted.numpy())
        return concat_images([image, *(overlay_mask(image, mask, self.target.ignored) for mask in masks)])

    def labelled(self, source: str | Path) -> Split:
        """Load the images of a folder with their masks as targets.

        Raises DataError if it holds no masks, or classes that are not in training.
        """
        path = Path(source).expanduser()
        if not path.is_dir() or not is_mask_folder(path, (Mask,)):
            raise FolderLayoutError(
                f"{str(source)!r} is not a folder of images with masks: it has no images/ and masks/.",
                fix="Give a folder as the one that was trained on; of train/, val/ and test/, one.",
            )
        found = find_pairs(path)
        if found.splits is not None:
            raise FolderLayoutError(
                f"{path} has splits of its own.", fix=f"Give one of them: {path / 'test'}, for one."
            )
        names = self.target.names
        if found.classes and found.classes != names:
            raise DataMismatchError(
                f"{path} has the classes {', '.join(found.classes)}, and the model was trained on {', '.join(names)}."
            )
        sizes = [seen.facts.size for seen in inspect_images(found.images)]
        looks = inspect_masks(found, sizes, classes=names, fix=FIX).looks
        counts = np.stack([counts for counts, _ in looks])
        return stream_mask_split(found, np.arange(len(found.images)), counts, self)

    def adopted(self, split: Split, theirs: Preprocessing) -> Split:
        """Convert the images and masks of another data set to this preprocessing.

        Raises DataError for a class that is not in training.
        """
        assert isinstance(theirs, MaskPreprocessing)
        lookup = np.full(256, self.target.ignored, np.uint8)
        ours = map_class_ids(theirs.target.names, self.target.names).numpy()
        lookup[: len(ours)] = ours
        batches = split.batches(torch.split(torch.arange(len(split)), 1))
        masks = [lookup[batch.target[0].numpy()] for batch in batches]
        names, pairs = [split.name(i) for i in range(len(split))], []
        for i, mask in enumerate(masks):
            image = split.image(i)
            assert image is not None, "a split of images has them"
            pairs.append(np.concatenate([self.pixels(image, names[i]), self.mask(mask)[:, :, None]], 2))
        counts = np.stack([np.bincount(mask.ravel(), minlength=256) for mask in masks])
        whole = torch.from_numpy(np.stack(pairs)).permute(0, 3, 1, 2)  # (n, C + 1, H, W)
        return MaskSplit(whole, counts, self, names, split.image)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values that `from_json` accepts."""
        return {**super().to_json(), "form": "masks"}


@dataclass(frozen=True)
class PairTransform:
    """Adapter that lets a FileSplit read images with their masks as an additional channel."""

    own: MaskPreprocessing

    @property
    def spec(self) -> ImageSpec:
        """Return the image specification with the mask as a channel."""
        return replace(self.own.spec, channels=self.own.spec.channels + 1)

    def pixels(self, source: Any, name: str) -> Pixels:
        """Read an image and its mask, (H, W, C + 1)."""
        image, mask = source
        return self.own.pair(image, mask, name)

    def normalise(self, pixels: Tensor) -> Tensor:
        """Return the pixels unchanged: the split separates image and mask first."""
        return pixels


class MaskSplit(Split):
    """A split of images with masks, held as bytes in memory or read from files.

    A batch has inputs (N, C, H, W) and targets (N, H, W) uint8. `target` holds the number of pixels of each class in
    each image, (n, K), because the masks themselves are large.
    """

    def __init__(
        self,
        pairs: FileSplit | Tensor,
        counts: Counts,
        preprocessing: MaskPreprocessing,
        names: Sequence[str],
        image: Callable[[int], Image.Image | None],
    ) -> None:
        """Store the pairs and their pixel counts.

        `pairs` gives uint8 (N, C + 1, H, W), the mask last. `image` returns an original image.
        """
        self.target = torch.from_numpy(counts[:, : len(preprocessing.target.names)])
        self._pairs, self._preprocessing, self._names, self._image = pairs, preprocessing, names, image

    def __len__(self) -> int:
        return len(self._names)

    def batches(self, order: Iterable[Tensor], seed: int | None = None) -> Iterator[Batch]:
        """Yield batches in the given order. The training loop augments whole batches, so none is done here."""
        pairs = self._pairs
        if isinstance(pairs, Tensor):
            read: Iterator[Tensor] = (pairs[index] for index in order)
        else:
            read = (batch.inputs[0] for batch in pairs.batches(order, seed))
        for both in read:
            yield Batch((self._preprocessing.normalise(both[:, :-1]),), both[:, -1].contiguous())

    def name(self, i: int) -> str:
        """Return the display name of example i."""
        return self._names[i]

    def image(self, i: int) -> Image.Image | None:
        """Return the original image of example i."""
        return self._image(i)

    def damaged(self, progress: Progress | None = None) -> list[Problem]:
        """Return a problem for every file that cannot be decoded. In-memory images were decoded before."""
        return self._pairs.damaged(progress) if isinstance(self._pairs, FileSplit) else []


def decode_mask_splits(
    found: ImageMaskPairs, indices: Mapping[str, npt.NDArray[np.int64]], counts: Counts, own: MaskPreprocessing
) -> dict[str, Split]:
    """Decode every file once and keep the splits in memory. Raises DataError that names all undecodable files."""
    used = np.unique(np.concatenate(list(indices.values())))  # `max_samples` may have excluded files
    spec = own.spec
    pairs = np.empty((len(used), spec.height, spec.width, spec.channels + 1), np.uint8)

    def decoded(i: int) -> Pixels | Problem:
        try:
            return own.pair(found.images[i], found.masks[i], str(found.images[i]))
        except DataError as error:
            return error.problems[0]

    problems: list[Problem] = []
    for row, pair in enumerate(map_in_threads(decoded, used.tolist())):
        if isinstance(pair, Problem):
            problems.append(pair)
        else:
            pairs[row] = pair
    if problems:
        raise unusable_images_error(problems, len(used))
    whole = torch.from_numpy(pairs).permute(0, 3, 1, 2)  # (n, C + 1, H, W)
    return {
        name: MaskSplit(
            whole[torch.from_numpy(np.searchsorted(used, rows))],
            counts[rows],
            own,
            [found.names[i] for i in rows],
            lambda i, rows=rows: read_image(found.images[rows[i]], found.names[rows[i]]),  # type: ignore[misc]
        )
        for name, rows in indices.items()
    }


def stream_mask_split(
    found: ImageMaskPairs,
    rows: npt.NDArray[np.int64],
    counts: Counts,
    own: MaskPreprocessing,
    workers: int | None = None,
) -> MaskSplit:
    """Return a split that reads these pairs from files in every epoch."""
    files, names = [found.images[i] for i in rows], [found.names[i] for i in rows]
    sources: list[Any] = [(found.images[i], found.masks[i]) for i in rows]
    read = FileSplit(sources, None, PairTransform(own), names, workers)
    return MaskSplit(read, counts[rows], own, names, lambda i: read_image(files[i], names[i]))
