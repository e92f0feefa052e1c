"""Image files: finding them in folders, and one look at each before anything is learned from them."""

from __future__ import annotations

import hashlib
import stat
import warnings
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from ...errors import DataError, Problem
from ..tables.columns import natural_order
from .pictures import MEND, SUFFIXES, Facts, facts

THREADS = 8  # that look at files: most of their time is spent waiting for the disk
NAMED_AT_MOST = 3  # files that a note names


@dataclass(frozen=True)
class Seen:
    """What one look at an image file told."""

    digest: str  # sha256 of its bytes
    facts: Facts


def is_image(path: Path) -> bool:
    """Whether the name is that of an image file; hidden files are none."""
    return path.suffix.lower() in SUFFIXES and not path.name.startswith(".")


def entries(folder: Path) -> list[Path]:
    """What a folder holds, sorted. Raises DataError where it may not be read."""
    try:
        return sorted(folder.iterdir())
    except OSError as error:
        raise DataError(f"The folder {folder} cannot be read: {error.strerror or error}.") from error


def image_files(path: Path) -> list[Path]:
    """The image file itself, or those directly in a folder, sorted. Raises DataError where there is none."""
    if path.is_dir():
        found = [p for p in entries(path) if is_image(p)]
        if not found:
            raise DataError(f"{path} is a folder without image files ({', '.join(SUFFIXES)}).")
        return found
    if not path.exists():
        raise DataError(f"There is no image {str(path)!r}, seen from {Path.cwd()}.")
    if not is_image(path):
        raise DataError(f"{path} is not an image file: those end in {', '.join(SUFFIXES)}.")
    return [path]


def subfolders(path: Path) -> list[Path]:
    """The folders in a folder, hidden ones left out, 2 before 10.

    Raises DataError where one is a symbolic link that leads back to where it stands, or nowhere.
    """
    found = {p.name: p for p in entries(path) if not p.name.startswith(".") and _is_folder(p)}
    for folder in found.values():
        if folder.is_symlink() and path.resolve().is_relative_to(folder.resolve()):
            raise DataError(
                f"{folder} is a symbolic link to {folder.resolve()}, the folder that it stands in or one above.",
                mend="Remove the link.",
            )
    return [found[name] for name in natural_order(found)]


def class_folders(root: Path) -> tuple[dict[str, list[Path]], list[Path]]:
    """The image files of each class folder in `root`, by the folder's name, 2 before 10; and what is not read.

    Raises DataError where a class folder holds no image.
    """
    classes: dict[str, list[Path]] = {}
    left: list[Path] = []
    for folder in subfolders(root):
        inside = entries(folder)
        classes[folder.name] = [p for p in inside if is_image(p)]
        left += [p for p in inside if not is_image(p)]
        if not classes[folder.name]:
            raise DataError(
                f"The class folder {folder} holds no image files ({', '.join(SUFFIXES)}).",
                mend="Put its images there, or remove the folder.",
            )
    left += [p for p in entries(root) if p.name not in classes]
    return classes, left


def left_note(left: Iterable[Path]) -> str | None:
    """A sentence on what was not read, hidden files left aside; None where there is nothing."""
    names = [f"{p}{'/' if p.is_dir() else ''}" for p in left if not p.name.startswith(".")]
    if not names:
        return None
    more = f" and {len(names) - NAMED_AT_MOST} more" if len(names) > NAMED_AT_MOST else ""
    return f"Not read, because they are no image files in class folders: {', '.join(names[:NAMED_AT_MOST])}{more}."


def look_at(paths: Sequence[Path]) -> list[Seen]:
    """Read every file once: its sum and its head. Raises DataError that names every file that is no usable image."""

    def look(path: Path) -> Seen | Problem:
        try:
            data = path.read_bytes()
            return Seen(hashlib.sha256(data).hexdigest(), facts(data, str(path)))
        except DataError as error:
            return error.problems[0]
        except OSError as error:
            return Problem(str(path), f"it cannot be read ({error.strerror or error})")

    with warnings.catch_warnings(), ThreadPoolExecutor(THREADS) as threads:
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # such images are refused by name instead
        looks = list(threads.map(look, paths))
    if problems := [seen for seen in looks if isinstance(seen, Problem)]:
        raise unusable(problems, len(paths))
    return [seen for seen in looks if isinstance(seen, Seen)]


def unusable(problems: Sequence[Problem], total: int) -> DataError:
    """The error that names these of `total` image files."""
    some = f"{len(problems):,} of {total:,} image files" if total > 1 else "The image file"
    return DataError(f"{some} cannot be used:", problems, mend=MEND)


def _is_folder(path: Path) -> bool:
    try:
        return stat.S_ISDIR(path.stat().st_mode)
    except OSError as error:
        if path.is_symlink():
            raise DataError(
                f"{path} is a symbolic link that leads nowhere or round in a circle ({error.strerror}).",
                mend="Remove the link.",
            ) from error
        raise DataError(f"{path} cannot be read: {error.strerror or error}.") from error
