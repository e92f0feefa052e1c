"""Class folders of any kind of files: photos/cats/1.jpg, or photos/train/cats/1.jpg with val/ and test/ folders."""

from __future__ import annotations

import hashlib
import os
import re
import stat
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from pathlib import Path, PureWindowsPath
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from ..core.errors import (
    DataError,
    DataMismatchError,
    FolderLayoutError,
    NotEnoughDataError,
    UnsupportedDataError,
    join,
)
from ..core.files import exists, missing_file_error
from .findings import Finding, similar_name_hint
from .splits import Rows, filter_splits
from .tables.column_types import natural_order

SPLIT_FOLDERS = {"train": "train", "val": "val", "valid": "val", "validation": "val", "test": "test"}
CAPTIONS = "captions.tsv"  # the captions of the images in its folder
NAMED_AT_MOST = 3  # files that a note names
PER_FOLDER, IN_ALL, FRAMES = 200, 5_000, 20  # files counted to infer the kind of a folder
CLEAR = 4  # a kind is dominant if every other kind of media has at most 1/CLEAR as many files
# Files that describe data: they do not count when the kind of a folder is inferred, and are not read as text.
SIDE_FILE = re.compile(
    r"((readme|licen[cs]e|copying|notice|citation|changelog|changes|authors|contributing|source|attribution)"
    r"([._ -].*)?|(md5|sha\d+|crc)(sums?)?(\.txt)?|checksums?(\.\w+)?|classes\.txt|class_names\.txt|requirements\.txt"
    r"|thumbs\.db|desktop\.ini|.*\.(md|rst|md5|sha1|sha256|sha512|gitignore|url))",
    re.IGNORECASE,
)
SIDE_FOLDERS = ("__MACOSX", "__pycache__", "@eaDir", "$RECYCLE.BIN")
ARCHIVES = (".zip", ".tar", ".gz", ".tgz", ".bz2", ".xz", ".7z", ".rar")  # often what the files were unpacked from
ANNOTATIONS = (".txt", ".json", ".xml", ".csv", ".tsv", ".yaml", ".yml", ".html", ".log")  # often one beside each file
Item = TypeVar("Item", covariant=True)  # a file, or a video in memory


@dataclass(frozen=True)
class FileKind:
    """The kind of example in class folders: files of these suffixes, or, with `frames`, folders of images."""

    kind: str  # image
    suffixes: tuple[str, ...]
    frames: tuple[str, ...] = ()  # the suffixes of the files in a folder that is one example too
    several: str = ""  # the plural, if it is not the kind with an s

    @property
    def plural(self) -> str:
        """The plural of the kind's name."""
        return self.several or f"{self.kind}s"

    def fits(self, path: Path) -> bool:
        """Return whether a path is an example, by its name. Hidden files and files that describe data are not."""
        if path.name.startswith(".") or is_side_file(path.name):
            return False
        if self.frames and path.is_dir():
            return any(p.suffix.lower() in self.frames for p in list_entries(path))
        return path.suffix.lower() in self.suffixes


IMAGES = FileKind("image", (".jpg", ".jpeg", ".jfif", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff"))
AUDIO = FileKind("audio", (".wav", ".flac", ".ogg", ".mp3"), several="recordings")
TEXTS = FileKind("text", (".txt",))
VIDEOS = FileKind("video", (".avi", ".m4v", ".mkv", ".mov", ".mp4", ".webm"), frames=IMAGES.suffixes)
KINDS = (IMAGES, AUDIO, TEXTS, VIDEOS)


@dataclass(frozen=True)
class FolderContents(Generic[Item]):
    """The files of class folders before any is opened, or other examples that have one class each."""

    classes: tuple[str, ...]
    files: Sequence[Item]
    names: Sequence[str]  # the name of each
    labels: npt.NDArray[Any]  # (n,) the class of each file; (n, M, 5) its boxes
    splits: dict[str, Rows] | None = None  # the files of each split, where they come with one
    notes: Sequence[str] = ()

    def part(self, rows: Rows, notes: Sequence[str] = ()) -> FolderContents[Item]:
        """Return the examples with these numbers, with more `notes`. Raises DataError if a split or a class becomes
        empty.
        """
        taught = self.labels if self.splits is None else self.labels[self.splits["train"]]
        splits, labels = filter_splits(self.splits, rows), self.labels[rows]
        left = labels if splits is None else labels[splits["train"]]
        if self.labels.ndim == 1 and (lost := np.setdiff1d(taught, left)).size:
            raise NotEnoughDataError(
                f"missing=drop would leave nothing of the class {self.classes[int(lost[0])]!r} to learn from.",
                fix="Repair some of its files.",
            )
        names = [self.names[i] for i in rows]
        return FolderContents(self.classes, [self.files[i] for i in rows], names, labels, splits, [*self.notes, *notes])


@dataclass
class Tally:
    """Number and bytes of the files of each kind in some folders; other files count under their suffix."""

    count: Counter[str] = field(default_factory=Counter)
    size: Counter[str] = field(default_factory=Counter)
    first: dict[str, Path] = field(default_factory=dict)  # a file of each
    folders: int = 0  # that were looked into

    def add(self, path: Path) -> None:
        """Count one file, or one folder of frames, unless it is hidden or describes data."""
        if path.name.startswith(".") or is_side_file(path.name):
            return
        if folder := path.is_dir():
            if not any(IMAGES.fits(p) for p in _first_entries(path, FRAMES)):
                return
            key = VIDEOS.kind
        else:
            suffix = path.suffix.lower()
            key = next((kind.kind for kind in KINDS if suffix in kind.suffixes), suffix)
        self.count[key] += 1
        self.size[key] += 0 if folder else _size(path)
        self.first.setdefault(key, path)

    @property
    def dominant(self) -> str | None:
        """The kind or suffix of most files and most bytes; None if there are no files or the result is ambiguous.

        Annotations next to images, recordings or videos do not count, however many there are; neither does an archive
        next to other files. Of two kinds of media, one is dominant if the other has at most 1/CLEAR as many files.
        """
        if not self.count:
            return None
        keys = [key for key in self.count if key not in ARCHIVES] or list(self.count)
        by_count = max(keys, key=lambda key: (self.count[key], self.size[key]))
        by_size = max(keys, key=lambda key: (self.size[key], self.count[key]))
        media = [kind.kind for kind in (IMAGES, AUDIO, VIDEOS)]
        annotated = by_size in media and (by_count in ANNOTATIONS or by_count == TEXTS.kind)
        if by_size != by_count and not annotated:
            return None
        others = [kind for kind in media if kind != by_size]
        if by_size in media and any(CLEAR * self.count[kind] > self.count[by_size] for kind in others):
            return None
        return by_size

    def words(self) -> str:
        """Return the numbers of files, the largest first: 316 files (314 .csv, 2 .txt)."""
        most = self.count.most_common(4)
        named = [f"{count:,} {self.first[key].suffix.lower() or 'without a suffix'}" for key, count in most]
        more = ", …" if len(self.count) > 4 else ""
        total = self.count.total()
        least = "at least " if total >= IN_ALL else ""
        return f"{least}{total:,} file{'s' if total > 1 else ''} ({', '.join(named)}{more})"


def is_side_file(name: str) -> bool:
    """Return whether a file of that name describes data (README, LICENSE, checksums, …) and is not data itself."""
    return SIDE_FILE.fullmatch(name) is not None


def normalize_name(name: str) -> str:
    """Return the name in Unicode's NFC, in which names are compared: macOS writes é as two characters."""
    return unicodedata.normalize("NFC", name)


def tally(folders: Sequence[Path]) -> Tally:
    """Count files and folders of frames directly in these folders, at most PER_FOLDER in one and IN_ALL in total."""
    found, left = Tally(folders=len(folders)), IN_ALL
    each = min(PER_FOLDER, max(1, IN_ALL // max(1, len(folders))))
    for folder in folders:
        for path in _first_entries(folder, min(each, left)):
            found.add(path)
            left -= 1
    return found


def tallies(path: Path) -> list[Tally]:
    """Count the files in class folders of splits, in class folders, and in the folder itself."""
    own = [p for p in list_entries(path) if _may_hold(p)]
    classes = [c for f in own if f.name.lower() in SPLIT_FOLDERS for c in list_entries(f) if _may_hold(c)]
    # Class folders of frame folders in train/ look like class folders of images one level higher: deepest first.
    files = Tally()
    for file in _first_entries(path, IN_ALL):
        if not file.is_dir():
            files.add(file)
    return [tally(classes), tally(own), files]


def dominant_kind(path: Path) -> str | None:
    """Return the dominant kind of a folder's class folders: image, audio, video or text; None if it is another or
    ambiguous.

    Text is also returned if texts dominate in the folder itself.
    """
    known = [kind.kind for kind in KINDS]
    *class_folders, own = tallies(path)
    for found in class_folders:
        if any(kind in known for kind in found.count):
            # Folders of images in a single folder are class folders one level too deep, not videos of one class.
            nested = found.dominant == VIDEOS.kind and found.folders == 1 and found.first[VIDEOS.kind].is_dir()
            return found.dominant if found.dominant in known and not nested else None
    return TEXTS.kind if own.dominant == TEXTS.kind else None


def _may_hold(path: Path) -> bool:
    """Return whether a path is a folder that may hold examples."""
    return path.is_dir() and not path.name.startswith(".") and path.name not in SIDE_FOLDERS


def is_flat(path: Path, kind: FileKind) -> bool:
    """Return whether examples dominate in a folder itself, and it holds no class folders."""
    return dominant_kind(path) is None and tallies(path)[-1].dominant == kind.kind


def find_flat(path: Path, kind: FileKind) -> FolderContents[Any]:
    """List the examples of a folder without class folders; no file is opened."""
    files = [p for p in list_entries(path) if kind.fits(p)]
    note = unread_note([p for p in list_entries(path) if not kind.fits(p)], f"no {kind.kind} files")
    labels = np.zeros(len(files), np.int64)
    return FolderContents((), files, [file.name for file in files], labels, notes=[note] if note else [])


def has_captions(path: Path) -> bool:
    """Return whether a folder, or its train/ folder, holds images with captions."""
    return any((folder / CAPTIONS).is_file() for folder in (path, path / "train"))


def find_examples(path: Path, kind: FileKind, least: int = 2, apart: bool = False) -> FolderContents[Any]:
    """List the classes and files of a folder; no file is opened.

    Raises DataError if they cannot be learned from, for example with fewer than `least` classes. Unless classes of
    splits are `apart`, it also raises DataError for a class without training files.
    """
    split_folders = _split_folders(path, kind)
    homes = split_folders or {"": path}
    found = {split: class_folders(folder, kind) for split, folder in homes.items()}
    train, _ = found.get("train") or found[""]
    if least > 1 and all(name.lower() in SPLIT_FOLDERS for name in train):
        raise FolderLayoutError(
            f"{path} has {join([f'{name}/' for name in train], 'and')} with {kind.plural} directly in them, without "
            "a class for each.",
            fix=f"Put them into one folder for each class there, as in {path / next(iter(train)) / 'cats'}.",
        )
    if len(train) < least:
        raise NotEnoughDataError(
            f"{path} holds one class only, {', '.join(train)}: at least two are needed.",
            fix=f"Add a folder with {kind.plural} of another class.",
        )
    for split, (by_class, _) in found.items():
        for name in by_class:
            if name not in train and not apart:
                raise NotEnoughDataError(
                    f"{homes[split] / name} is a class without training {kind.plural}: there is no "
                    f"{homes['train'] / name}.{similar_name_hint(name, train)}",
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
        left += [p for p in list_entries(path) if p not in split_folders.values()]
    note = unread_note(left, f"no {kind.kind} files in class folders")
    names = [str(file.relative_to(path)) for file in files]
    return FolderContents(
        classes, files, names, np.array(labels), splits if split_folders else None, [note] if note else []
    )


def class_folders(root: Path, kind: FileKind) -> tuple[dict[str, list[Path]], list[Path]]:
    """Return the files of each class folder in `root`, and the paths that are not read.

    Folder names are in NFC and in natural order, 2 before 10. Raises DataError if a class folder holds no example.
    """
    classes: dict[str, list[Path]] = {}
    left: list[Path] = []
    folders = subfolders(root)
    for folder in folders:
        inside = list_entries(folder)
        fitting = [p for p in inside if kind.fits(p)]
        classes.setdefault(normalize_name(folder.name), []).extend(fitting)
        left += [p for p in inside if not kind.fits(p)]
        if not fitting:
            raise FolderLayoutError(
                f"The class folder {folder} holds no {kind.kind} files ({', '.join(kind.suffixes)}).",
                fix=f"Put its {kind.plural} there, or remove the folder.",
            )
    left += [p for p in list_entries(root) if p not in folders]
    return classes, left


def find_labelled(source: str | Path, kind: FileKind, names: Sequence[str]) -> tuple[list[Path], list[int], list[str]]:
    """Return the files of class folders, the class of each as an index into `names`, and the names of the files.

    Raises DataError if there are no class folders, or a class is not in `names`.
    """
    path = Path(source).expanduser()
    if not exists(path):
        raise missing_file_error(path, "folder", f"Labelled {kind.plural} are a folder of class folders.")
    if not path.is_dir():
        raise UnsupportedDataError(f"{path} is a file, and labelled {kind.plural} are a folder of class folders.")
    by_class, _ = class_folders(path, kind)
    number = {normalize_name(name): k for k, name in enumerate(names)}
    unknown = [name for name in by_class if name not in number]
    if unknown or not by_class:
        raise DataMismatchError(
            f"{path} holds {f'the class {unknown[0]!r}' if unknown else 'no class folders'}, and the model was "
            f"trained on {', '.join(names)}.{similar_name_hint(unknown[0], names) if unknown else ''}",
            fix="Name the class folders like those; where there are train/, val/ and test/, give one of them.",
        )
    files = [file for name in by_class for file in by_class[name]]
    labels = [number[name] for name in by_class for _ in by_class[name]]
    return files, labels, [str(file.relative_to(path)) for file in files]


def fingerprint_files(names: Sequence[str], digests: Sequence[str]) -> str:
    """Return the sha256 of all files' names and contents; `digests` are the hashes of the contents."""
    lines = sorted(f"{digest}  {name}\n" for name, digest in zip(names, digests))
    return hashlib.sha256("".join(lines).encode(errors="surrogateescape")).hexdigest()


class FileLookup:
    """A lookup of files in a folder by the names in a table.

    A name is tried as written, then with / for Windows' backslashes, then in any Unicode form.
    """

    def __init__(self, folder: Path, inside: Sequence[str] = (".",)) -> None:
        """Initialize with the subfolders `inside` that names may be relative to."""
        self._homes = [folder / name for name in inside]

    def find(self, name: str, moved: bool = False) -> Path | None:
        """Return the file of that name, or None. With `moved`, the folders in the name are ignored."""
        for written in dict.fromkeys((name, name.replace("\\", "/"), *[PureWindowsPath(name).name] * moved)):
            for home in self._homes:
                path = home / written
                if exists(path) and path.is_file():
                    return path
                if not name.isascii() and (found := self._names.get(normalize_name(str(path)))):
                    return found
        return None

    @cached_property
    def _names(self) -> dict[str, Path]:
        """Every file in the folders by its path in NFC; listed once, when first needed."""
        files = (Path(at, name) for home in self._homes for at, _, names in os.walk(home) for name in names)
        return {normalize_name(str(file)): file for file in files}


def missing_class_notes(labels: Rows, classes: Sequence[str], indices: Mapping[str, Rows], none: str) -> list[str]:
    """Return a finding for each split without examples of some class; `none` is the noun, such as "no images"."""
    notes: list[str] = []
    for split, rows in indices.items():
        there = set(np.unique(labels[rows]).tolist())
        absent = [name for k, name in enumerate(classes) if k not in there]
        if absent:
            notes.append(
                Finding(f"The {split} split has {none} of {', '.join(absent)}: nothing is measured on them there.")
            )
    return notes


def unread_note(left: Iterable[Path], why: str) -> str | None:
    """Return a sentence on paths that are not read because they are `why`, without hidden files; None if there are
    none.
    """
    names = [f"{p}{'/' if p.is_dir() else ''}" for p in left if not p.name.startswith(".")]
    if not names:
        return None
    more = f" and {len(names) - NAMED_AT_MOST} more" if len(names) > NAMED_AT_MOST else ""
    said = ", ".join(names[:NAMED_AT_MOST]) + more
    return f"Not read, because they are {why}: {said}."


def list_entries(folder: Path) -> list[Path]:
    """List the paths in a folder, sorted. Raises DataError if the folder cannot be read."""
    try:
        return sorted(folder.iterdir())
    except OSError as error:
        raise _unreadable_folder(folder, error) from error


def _first_entries(folder: Path, most: int) -> list[Path]:
    """Return at most `most` of a folder's entries, in no particular order. Raises as `entries`."""
    try:
        with os.scandir(folder) as found:
            return [Path(entry.path) for entry in islice(found, most)]
    except OSError as error:
        raise _unreadable_folder(folder, error) from error


def _unreadable_folder(folder: Path, error: OSError) -> Exception:
    if isinstance(error, FileNotFoundError):
        return missing_file_error(folder)
    return DataError(f"The folder {folder} cannot be read: {error.strerror or error}.", code="CUT-302")


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def subfolders(path: Path) -> list[Path]:
    """List the folders in a folder without hidden ones, in natural order (2 before 10).

    Raises DataError if one is a symbolic link to a parent folder, or a broken link.
    """
    own = [p for p in list_entries(path) if not p.name.startswith(".") and p.name not in SIDE_FOLDERS]
    found = {p.name: p for p in own if _is_folder(p)}
    for folder in found.values():
        if folder.is_symlink() and path.resolve().is_relative_to(folder.resolve()):
            raise FolderLayoutError(
                f"{folder} is a symbolic link to {folder.resolve()}, its own folder or a parent of it.",
                fix="Remove the link.",
            )
    return [found[name] for name in natural_order(found)]


def _split_folders(path: Path, kind: FileKind) -> dict[str, Path]:
    """Return the folders that are named like splits and hold folders, by split; empty if there are none.

    Raises DataError if two folders are for the same split, or none is for training.
    """
    found: dict[str, Path] = {}
    for folder in subfolders(path):
        split = SPLIT_FOLDERS.get(folder.name.lower())
        if split is None or any(kind.fits(p) for p in list_entries(folder)):  # it holds examples: a class of that name
            continue
        if split in found:
            raise FolderLayoutError(f"{found[split]} and {folder} are both for {split}.", fix="Remove one of them.")
        found[split] = folder
    if found and "train" not in found:
        raise FolderLayoutError(
            f"{path} has {', '.join(f'{f.name}/' for f in found.values())} and no train/.",
            fix="Add train/ with the same class folders; or give a folder of class folders, to be split here.",
        )
    return found


def _is_folder(path: Path) -> bool:
    try:
        return stat.S_ISDIR(path.stat().st_mode)
    except OSError as error:
        if path.is_symlink():
            raise FolderLayoutError(
                f"{path} is a symbolic link that leads nowhere or round in a circle ({error.strerror}).",
                fix="Remove the link.",
            ) from error
        raise _unreadable_folder(path, error) from error
