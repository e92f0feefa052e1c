"""Which image of a folder has which captions: captions.tsv, a line for each caption, the file before the tab.

What is no such line, an image without a caption and a caption without an image are told by name, all at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ...errors import DataError, Problem
from ..folders import CAPTIONS, IMAGES, SPLIT_FOLDERS, FileLookup, entries, subfolders
from ..pairs.reading import read_lines
from ..splits import Rows

HEADS = ("file", "file_name", "filename", "image", "path")  # what a first line begins with that names its columns
FIX = (
    f"Each line of {CAPTIONS} is the path of an image beside it, a tab and a caption. missing=drop leaves out captions "
    "and images that lack their other half, and counts them."
)
NO_CAPTION, NO_IMAGE, EMPTY = "images without a caption", "captions without an image", "empty captions"


@dataclass
class Captioned:
    """Images and what is written of them, before any is opened."""

    files: list[Path] = field(default_factory=list)
    names: list[str] = field(default_factory=list)  # what a person calls each
    texts: list[list[str]] = field(default_factory=list)  # the captions of each, one at least
    digests: list[str] = field(default_factory=list)  # sha256 of each captions.tsv
    left: dict[str, int] = field(default_factory=dict)  # what was left out, and how many of it
    problems: list[Problem] = field(default_factory=list)

    def reject(self, path: Path) -> None:
        """Raise DataError where something cannot be used, or nothing is there."""
        if self.problems:
            raise DataError(f"{path} and the images beside it do not go together:", self.problems, FIX)
        if not self.files:
            raise DataError(f"{path} names no image with a caption.", fix=FIX)

    def notes(self) -> list[str]:
        """A sentence on what was left out."""
        said = ", ".join(f"{what} ({count:,})" for what, count in self.left.items())
        return [f"Left out, as missing=drop asks: {said}."] if said else []

    def keep(self, rows: Rows) -> None:
        """Keep the images of these numbers alone."""
        self.files = [self.files[i] for i in rows]
        self.names = [self.names[i] for i in rows]
        self.texts = [self.texts[i] for i in rows]

    def add(self, other: Captioned) -> Rows:
        """Take in those of another folder, and give their numbers."""
        before = len(self.files)
        for mine, theirs in (
            (self.files, other.files), (self.names, other.names), (self.texts, other.texts),
            (self.digests, other.digests), (self.problems, other.problems),
        ):  # fmt: skip
            mine.extend(theirs)  # type: ignore[arg-type]  # each is of the same type as its other
        for what, count in other.left.items():
            self.left[what] = self.left.get(what, 0) + count
        return np.arange(before, len(self.files))


def read_folder(path: Path, *, drop: bool) -> tuple[Captioned, dict[str, Rows] | None]:
    """The images with captions of a folder, or of its train/, val/ and test/, and which are in each of these.

    With `drop` a caption without an image, an image without a caption and an empty caption are left out and counted.
    Raises DataError that names every line and file that cannot be used.
    """
    if (path / CAPTIONS).is_file():
        read = read_captions(path, drop=drop)
        read.reject(path / CAPTIONS)
        return read, None
    read, splits = Captioned(), {}
    for folder in subfolders(path):
        split = SPLIT_FOLDERS.get(folder.name.lower())
        if split is None:
            continue
        if split in splits:
            raise DataError(f"{path} has two folders for {split}, {folder.name}/ among them.", fix="Leave one there.")
        splits[split] = read.add(read_captions(folder, f"{folder.name}/", drop=drop))
    read.reject(path / "train" / CAPTIONS)
    return read, splits


def read_captions(folder: Path, prefix: str = "", *, drop: bool = False) -> Captioned:
    """The images of one folder and their captions, each image in the order of its first line; `prefix` stands before
    their names. What cannot be used is among `problems`. Raises DataError where there is no captions.tsv."""
    table = folder / CAPTIONS
    if not table.is_file():
        raise DataError(f"There is no {table}: images with captions have it beside them.", fix=FIX)
    lines, digest = read_lines(table)
    found: dict[str, list[str]] = {}
    read = Captioned(digests=[digest])

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
            strange("", name, f"{file} is no image file, by its name", may_drop=False)
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
    """The image files in a folder and in those within it, by their paths from `root`; hidden ones left out."""
    own = [str(p.relative_to(root)) for p in entries(folder) if IMAGES.fits(p) and p.is_file()]
    return [*own, *(file for inside in subfolders(folder) for file in _images(inside, root))]
