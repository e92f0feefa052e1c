"""Image files with captions: reads captions.tsv and finds its images.

Each line holds the path of an image in the same folder, a tab and a caption. All malformed lines, images without a
caption and captions without an image are collected, and reported together.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ...core.errors import FolderLayoutError, MissingFileError, Problem
from ..folders import CAPTIONS, IMAGES, SPLIT_FOLDERS, FileLookup, list_entries, subfolders
from ..splits import Rows
from ..text.text_files import read_lines

HEADS = ("file", "file_name", "filename", "image", "path")  # first words of a header line
FIX = (
    f"Each line of {CAPTIONS} is the path of an image in the same folder, a tab and a caption. missing=drop "
    "leaves out captions "
    "and images that lack their other half, and counts them."
)
NO_CAPTION, NO_IMAGE, EMPTY = "images without a caption", "captions without an image", "empty captions"


@dataclass
class CaptionedImages:
    """Images and their captions before any file is opened."""

    files: list[Path] = field(default_factory=list)
    names: list[str] = field(default_factory=list)  # display name of each image
    texts: list[list[str]] = field(default_factory=list)  # captions of each image, at least one
    digests: list[str] = field(default_factory=list)  # sha256 of each captions.tsv
    left: dict[str, int] = field(default_factory=dict)  # reason for leaving items out, and their number
    problems: list[Problem] = field(default_factory=list)

    def reject(self, path: Path) -> None:
        """Raise DataError if items cannot be used or there are none."""
        if self.problems:
            raise FolderLayoutError(f"{path} and the images in its folder do not match:", self.problems, FIX)
        if not self.files:
            raise FolderLayoutError(f"{path} names no image with a caption.", fix=FIX)

    def notes(self) -> list[str]:
        """Return a note on the items that were left out."""
        parts = ", ".join(f"{what} ({count:,})" for what, count in self.left.items())
        return [f"Left out, as missing=drop asks: {parts}."] if parts else []

    def keep(self, rows: Rows) -> None:
        """Keep only the images with these indices."""
        self.files = [self.files[i] for i in rows]
        self.names = [self.names[i] for i in rows]
        self.texts = [self.texts[i] for i in rows]

    def add(self, other: CaptionedImages) -> Rows:
        """Append the images of another folder and return their indices."""
        before = len(self.files)
        for mine, theirs in (
            (self.files, other.files), (self.names, other.names), (self.texts, other.texts),
            (self.digests, other.digests), (self.problems, other.problems),
        ):  # fmt: skip
            mine.extend(theirs)  # type: ignore[arg-type]  # matching fields have the same type
        for what, count in other.left.items():
            self.left[what] = self.left.get(what, 0) + count
        return np.arange(before, len(self.files))


def read_folder(path: Path, *, drop: bool) -> tuple[CaptionedImages, dict[str, Rows] | None]:
    """Read the images with captions of a folder, or of its train/, val/ and test/, and the rows of each split.

    With `drop`, captions without an image, images without a caption and empty captions are left out and counted. Raises
    DataError that names every line and file that cannot be used.
    """
    if (path / CAPTIONS).is_file():
        read = read_captions(path, drop=drop)
        read.reject(path / CAPTIONS)
        return read, None
    read, splits = CaptionedImages(), {}
    for folder in subfolders(path):
        split = SPLIT_FOLDERS.get(folder.name.lower())
        if split is None:
            continue
        if split in splits:
            raise FolderLayoutError(
                f"{path} has two folders for {split}, {folder.name}/ among them.", fix="Leave one there."
            )
        splits[split] = read.add(read_captions(folder, f"{folder.name}/", drop=drop))
    read.reject(path / "train" / CAPTIONS)
    return read, splits


def read_captions(folder: Path, prefix: str = "", *, drop: bool = False) -> CaptionedImages:
    """Read the images and captions of one folder, in the order of each image's first line.

    `prefix` is prepended to the names. Items that cannot be used are listed in `problems`. Raises DataError if there is
    no captions.tsv.
    """
    table = folder / CAPTIONS
    if not table.is_file():
        raise MissingFileError(f"There is no {table}: it holds the captions of the images in that folder.", fix=FIX)
    lines, digest = read_lines(table, nonempty=True)
    found: dict[str, list[str]] = {}
    read = CaptionedImages(digests=[digest])

    def strange(what: str, name: str, why: str, *, may_drop: bool) -> None:
        if may_drop and drop:
            read.left[what] = read.left.get(what, 0) + 1
        else:
            read.problems.append(Problem(name, why))

    named: set[str] = set()
    lookup = FileLookup(folder)
    for number, line in enumerate(lines, 1):
        name = f"{prefix}{CAPTIONS}, line {number}"
        cells = [cell.strip() for cell in line.split("\t")]
        if number == 1 and cells[0].lower() in HEADS and not (folder / cells[0]).is_file():
            continue
        if len(cells) != 2:
            tabs = len(cells) - 1
            strange("", name, f"it has {tabs} tabs" if tabs else "it has no tab" if line else "it is empty",
                    may_drop=False)  # fmt: skip
            continue
        file, caption = cells
        path = Path(file)
        if not file or path.is_absolute() or ".." in path.parts:
            why = f"{file} leads out of the folder" if file else "it names no image"
            strange("", name, why, may_drop=False)
            continue
        image = lookup.find(file)
        path = path if image is None else image.relative_to(folder)
        named.add(str(path))
        if image is None:
            strange(NO_IMAGE, name, f"there is no image {file}", may_drop=True)
        elif not IMAGES.fits(path):
            strange("", name, f"{file} is not an image file, by its name", may_drop=False)
        elif not caption:
            strange(EMPTY, name, f"the caption of {file} is empty", may_drop=True)
        else:
            found.setdefault(str(path), []).append(caption)
    for file in _images(folder, folder):
        if file not in named or (drop and file not in found):
            strange(NO_CAPTION, f"{prefix}{file}", f"no line of {CAPTIONS} names it", may_drop=True)
    read.files = [folder / file for file in found]
    read.names = [f"{prefix}{file}" for file in found]
    read.texts = list(found.values())
    return read


def _images(folder: Path, root: Path) -> list[str]:
    """List the visible image files in a folder and its subfolders as paths relative to `root`."""
    own = [str(p.relative_to(root)) for p in list_entries(folder) if IMAGES.fits(p) and p.is_file()]
    return [*own, *(file for inside in subfolders(folder) for file in _images(inside, root))]
