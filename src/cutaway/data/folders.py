"""Folders of class folders, whatever they hold: photos/cats/1.jpg, or photos/train/cats/1.jpg beside val/ and test/."""

from __future__ import annotations

import hashlib
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from ..errors import DataError
from .findings import Finding
from .splits import Rows
from .tables.columns import natural_order

SPLIT_FOLDERS = {"train": "train", "val": "val", "valid": "val", "validation": "val", "test": "test"}
CAPTIONS = "captions.tsv"  # what stands beside images that are described in words
NAMED_AT_MOST = 3  # files that a note names
Item = TypeVar("Item", covariant=True)  # a file, or a video in memory


@dataclass(frozen=True)
class FileKind:
    """What class folders hold, one for each example: files of these suffixes, or, with `frames`, folders of images."""

    kind: str  # image
    suffixes: tuple[str, ...]
    frames: tuple[str, ...] = ()  # the suffixes of the files in a folder that is one example too
    several: str = ""  # what they are called, where that is not the kind with an s

    @property
    def plural(self) -> str:
        """What they are called."""
        return self.several or f"{self.kind}s"

    def fits(self, path: Path) -> bool:
        """Whether this is an example, by its name; hidden files are none."""
        if path.name.startswith("."):
            return False
        if self.frames and path.is_dir():
            return any(p.suffix.lower() in self.frames for p in entries(path))
        return path.suffix.lower() in self.suffixes


IMAGES = FileKind("image", (".jpg", ".jpeg", ".jfif", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff"))
AUDIO = FileKind("audio", (".wav",), several="recordings")
TEXTS = FileKind("text", (".txt",))
VIDEOS = FileKind("video", (".avi", ".m4v", ".mkv", ".mov", ".mp4", ".webm"), frames=IMAGES.suffixes)


@dataclass(frozen=True)
class Found(Generic[Item]):
    """The files of a folder of class folders, before any is opened; or what else has a class each."""

    classes: tuple[str, ...]
    files: Sequence[Item]
    names: Sequence[str]  # what a person calls each
    labels: npt.NDArray[Any]  # (n,) the class of each file; (n, M, 5) its boxes
    splits: dict[str, Rows] | None = None  # the files of each split, where they come with one
    notes: Sequence[str] = ()


def holds(path: Path) -> str | None:
    """What a folder's class folders hold: image, audio, video or text; text too where the folder has texts of its own;
    None where it holds none of these."""
    own = [p for p in entries(path) if not p.name.startswith(".")]
    folders = [p for p in own if p.is_dir()]
    classes = [c for f in folders if f.name.lower() in SPLIT_FOLDERS for c in entries(f) if c.is_dir()]
    # Seen from above, class folders of frame folders in train/ look like class folders of images: the deepest first.
    for homes in (classes, folders):
        for kind in (IMAGES, AUDIO, TEXTS, VIDEOS):
            if any(kind.fits(p) for home in homes for p in _each(home)):
                return kind.kind
    return "text" if any(TEXTS.fits(p) for p in own) else None


def is_flat(path: Path, kind: FileKind) -> bool:
    """Whether a folder holds examples itself, and no class folders."""
    return holds(path) is None and any(kind.fits(p) for p in entries(path))


def find_flat(path: Path, kind: FileKind) -> Found[Any]:
    """The files of a folder without class folders, none opened: examples without classes."""
    files = [p for p in entries(path) if kind.fits(p)]
    note = left_note([p for p in entries(path) if not kind.fits(p)], kind)
    labels = np.zeros(len(files), np.int64)
    return Found((), files, [file.name for file in files], labels, notes=[note] if note else [])


def has_captions(path: Path) -> bool:
    """Whether a folder holds images with captions, or train/ does where it is split already."""
    return any((folder / CAPTIONS).is_file() for folder in (path, path / "train"))


def reject_flat(path: Path) -> None:
    """Raise DataError where a folder holds examples, and no class folders that say of which class each is."""
    for kind in (IMAGES, AUDIO, VIDEOS):
        files = [p for p in entries(path) if kind.fits(p)]
        if files:
            speech = "; or, to learn what is said, write transcripts.tsv: file, tab, transcript" * (kind is AUDIO)
            raise DataError(
                f"{path} holds {len(files):,} {kind.kind} file{'s' if len(files) > 1 else ''} and no class folders: "
                "nothing says of which class each is.",
                fix=f"Put them into one folder for each class, as in {path / 'cats' / files[0].name}{speech}"
                f"{f', or write {CAPTIONS} beside them, file, tab, caption' if kind is IMAGES else ''}.",
            )


def find(path: Path, kind: FileKind, least: int = 2, apart: bool = False) -> Found[Any]:
    """The classes and files of a folder, none opened. Raises DataError where they cannot be learned from: fewer than
    `least` classes, for one, or, unless classes of splits are to be `apart`, some without training files."""
    split_folders = _split_folders(path, kind)
    homes = split_folders or {"": path}
    found = {split: class_folders(folder, kind) for split, folder in homes.items()}
    train, _ = found.get("train") or found[""]
    if len(train) < least:
        raise DataError(
            f"{path} holds one class only, {', '.join(train)}: there is nothing to tell apart.",
            fix=f"Add a folder with {kind.plural} of another class.",
        )
    for split, (by_class, _) in found.items():
        for name in by_class:
            if name not in train and not apart:
                raise DataError(
                    f"{homes[split] / name} is a class without training {kind.plural}: there is no "
                    f"{homes['train'] / name}.",
                    fix=f"Add that folder with {kind.plural}, or remove the class.",
                )
    files: list[Path] = []
    labels: list[int] = []
    splits: dict[str, Rows] = {}
    classes = tuple(dict.fromkeys([*train, *(name for by_class, _ in found.values() for name in by_class)]))
    for split, (by_class, _) in found.items():
        start = len(files)
        for name, of_class in by_class.items():
            files += of_class
            labels += [classes.index(name)] * len(of_class)
        splits[split] = np.arange(start, len(files))
    left = [p for _, not_read in found.values() for p in not_read]
    if split_folders:
        left += [p for p in entries(path) if p not in split_folders.values()]
    note = left_note(left, kind)
    names = [str(file.relative_to(path)) for file in files]
    return Found(classes, files, names, np.array(labels), splits if split_folders else None, [note] if note else [])


def class_folders(root: Path, kind: FileKind) -> tuple[dict[str, list[Path]], list[Path]]:
    """The files of each class folder in `root`, by the folder's name, 2 before 10; and what is not read.

    Raises DataError where a class folder holds none.
    """
    classes: dict[str, list[Path]] = {}
    left: list[Path] = []
    for folder in subfolders(root):
        inside = entries(folder)
        classes[folder.name] = [p for p in inside if kind.fits(p)]
        left += [p for p in inside if not kind.fits(p)]
        if not classes[folder.name]:
            raise DataError(
                f"The class folder {folder} holds no {kind.kind} files ({', '.join(kind.suffixes)}).",
                fix=f"Put its {kind.plural} there, or remove the folder.",
            )
    left += [p for p in entries(root) if p.name not in classes]
    return classes, left


def labelled(source: str | Path, kind: FileKind, names: Sequence[str]) -> tuple[list[Path], list[int], list[str]]:
    """The files of a folder of class folders, the class of each by its number in `names`, and what they are called.

    Raises DataError where it holds none, or a class that training did not know.
    """
    path = Path(source).expanduser()
    if not path.is_dir():
        raise DataError(
            f"There is no folder {str(source)!r}, and labelled {kind.plural} come as a folder of class folders."
        )
    by_class, _ = class_folders(path, kind)
    unknown = [name for name in by_class if name not in names]
    if unknown or not by_class:
        raise DataError(
            f"{path} holds {f'the class {unknown[0]!r}' if unknown else 'no class folders'}, and the model was "
            f"trained on {', '.join(names)}.",
            fix="Name the class folders like those; where there are train/, val/ and test/, give one of them.",
        )
    files = [file for name in by_class for file in by_class[name]]
    labels = [names.index(name) for name in by_class for _ in by_class[name]]
    return files, labels, [str(file.relative_to(path)) for file in files]


def fingerprint_of(names: Sequence[str], digests: Sequence[str]) -> str:
    """sha256 of every file's name and content, of which `digests` are the sums."""
    lines = sorted(f"{digest}  {name}\n" for name, digest in zip(names, digests))
    return hashlib.sha256("".join(lines).encode(errors="surrogateescape")).hexdigest()


def absent_notes(labels: Rows, classes: Sequence[str], indices: Mapping[str, Rows], none: str) -> list[str]:
    """A sentence for each split that has no example of some class; `none` is what it has of it: no images."""
    notes: list[str] = []
    for split, rows in indices.items():
        there = set(np.unique(labels[rows]).tolist())
        absent = [name for k, name in enumerate(classes) if k not in there]
        if absent:
            notes.append(
                Finding(f"The {split} split has {none} of {', '.join(absent)}: nothing is measured on them there.")
            )
    return notes


def left_note(left: Iterable[Path], kind: FileKind) -> str | None:
    """A sentence on what was not read, hidden files left aside; None where there is nothing."""
    names = [f"{p}{'/' if p.is_dir() else ''}" for p in left if not p.name.startswith(".")]
    if not names:
        return None
    more = f" and {len(names) - NAMED_AT_MOST} more" if len(names) > NAMED_AT_MOST else ""
    said = ", ".join(names[:NAMED_AT_MOST]) + more
    return f"Not read, because they are no {kind.kind} files in class folders: {said}."


def entries(folder: Path) -> list[Path]:
    """What a folder holds, sorted. Raises DataError where it may not be read."""
    try:
        return sorted(folder.iterdir())
    except OSError as error:
        raise DataError(f"The folder {folder} cannot be read: {error.strerror or error}.") from error


def _each(folder: Path) -> Iterator[Path]:
    """What a folder holds, one after another and in no order: whoever needs one waits for no other. Raises as
    `entries`."""
    try:
        yield from folder.iterdir()
    except OSError as error:
        raise DataError(f"The folder {folder} cannot be read: {error.strerror or error}.") from error


def subfolders(path: Path) -> list[Path]:
    """The folders in a folder, hidden ones left out, 2 before 10.

    Raises DataError where one is a symbolic link that leads back to where it stands, or nowhere.
    """
    found = {p.name: p for p in entries(path) if not p.name.startswith(".") and _is_folder(p)}
    for folder in found.values():
        if folder.is_symlink() and path.resolve().is_relative_to(folder.resolve()):
            raise DataError(
                f"{folder} is a symbolic link to {folder.resolve()}, the folder that it stands in or one above.",
                fix="Remove the link.",
            )
    return [found[name] for name in natural_order(found)]


def _split_folders(path: Path, kind: FileKind) -> dict[str, Path]:
    """The folders that are named like splits and hold folders, by split; none where there are none.

    Raises DataError where two are for one split, or none is for training.
    """
    found: dict[str, Path] = {}
    for folder in subfolders(path):
        split = SPLIT_FOLDERS.get(folder.name.lower())
        if split is None or any(kind.fits(p) for p in entries(folder)):  # examples stand in it: a class of that name
            continue
        if split in found:
            raise DataError(f"{found[split]} and {folder} are both for {split}.", fix="Leave one of them there.")
        found[split] = folder
    if found and "train" not in found:
        raise DataError(
            f"{path} has {', '.join(f'{f.name}/' for f in found.values())} and no train/.",
            fix="Add train/ with the same class folders; or give a folder of class folders, to be split here.",
        )
    return found


def _is_folder(path: Path) -> bool:
    try:
        return stat.S_ISDIR(path.stat().st_mode)
    except OSError as error:
        if path.is_symlink():
            raise DataError(
                f"{path} is a symbolic link that leads nowhere or round in a circle ({error.strerror}).",
                fix="Remove the link.",
            ) from error
        raise DataError(f"{path} cannot be read: {error.strerror or error}.") from error
