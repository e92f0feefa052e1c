"""Image files: finding them in folders, and one look at each before anything is learned from them."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from ...errors import DataError, Problem
from ...files import exists
from ..folders import IMAGES, entries, subfolders
from ..shards.members import Packed, Stored, content
from ..unusable import REPAIR
from .reading import Facts, Size, facts, read_image

Arrays = dict[str, npt.NDArray[Any]]

THREADS = 8  # that look at files: most of their time is spent waiting for the disk


@dataclass(frozen=True)
class Seen:
    """What one look at an image file told."""

    digest: str  # sha256 of its bytes
    facts: Facts


class Looks(Packed[Seen]):
    """What one look at each of many image files told, in arrays."""

    def __init__(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """`arrays` are those of `packed`."""
        super().__init__(np.arange(len(arrays["digest"])))
        self.arrays = arrays

    def item(self, row: int) -> Seen:
        """What the look at one told."""
        height, width, grey, moving = (self.arrays[key][row].item() for key in ("height", "width", "grey", "moving"))
        return Seen(self.arrays["digest"][row].tobytes().hex(), Facts((height, width), grey, moving))

    def column(self, key: str) -> npt.NDArray[Any]:
        """What it told of all: `height`, `width`, `grey` or `moving`, (n,)."""
        return self.arrays[key][self.rows]

    @property
    def sizes(self) -> set[Size]:
        """The sizes that occur."""
        both = np.unique(np.stack([self.column("height"), self.column("width")], 1), axis=0)
        return {(height, width) for height, width in both.tolist()}

    @property
    def alike(self) -> npt.NDArray[np.uint64]:
        """A number for each, (n,), equal where the files are: the first 64 bits of their sums."""
        return np.ascontiguousarray(self.column("digest")[:, :8]).view(np.uint64)[:, 0]


def packed(looks: Sequence[Seen]) -> Arrays:
    """What looks told, as arrays: `digest` (n, 32), `height`, `width`, `grey`, `moving` (n,)."""
    if isinstance(looks, Looks):
        return dict(looks.arrays)
    sizes = np.array([look.facts.size for look in looks], np.int32).reshape(-1, 2)
    return {
        "digest": np.frombuffer(b"".join(bytes.fromhex(look.digest) for look in looks), np.uint8).reshape(-1, 32),
        "height": sizes[:, 0].copy(),
        "width": sizes[:, 1].copy(),
        "grey": np.array([look.facts.grey for look in looks], bool),
        "moving": np.array([look.facts.moving for look in looks], bool),
    }


def image_files(path: Path) -> list[Path]:
    """The image file itself, or those directly in a folder, sorted. Raises DataError where there is none."""
    if path.is_dir():
        found = [p for p in entries(path) if IMAGES.fits(p)]
        if not found:
            inside = next((p for p in subfolders(path) if any(IMAGES.fits(file) for file in entries(p))), None)
            raise DataError(
                f"{path} is a folder without image files ({', '.join(IMAGES.suffixes)}).",
                fix=f"Those in its folders are taken where the folder is given: {inside}" if inside else "",
            )
        return found
    if not exists(path):
        raise DataError(f"There is no image {str(path)!r}, seen from {Path.cwd()}.")
    if not IMAGES.fits(path):
        raise DataError(f"{path} is not an image file: those end in {', '.join(IMAGES.suffixes)}.")
    return [path]


def look_at(paths: Sequence[Path]) -> Looks:
    """Read every file once: its sum and its head. Raises DataError that names every file that is no usable image."""
    with warnings.catch_warnings(), ThreadPoolExecutor(THREADS) as threads:
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # such images are rejected by name instead
        looks = list(threads.map(look, paths))
    if problems := [seen for seen in looks if isinstance(seen, Problem)]:
        raise unusable(problems, len(paths))
    return Looks(packed([seen for seen in looks if isinstance(seen, Seen)]))


def look(source: Path | Stored) -> Seen | Problem:
    """The sum and the head of one file; or why it is no usable image."""
    try:
        data = content(source)
        return Seen(hashlib.sha256(data).hexdigest(), facts(data, str(source)))
    except DataError as error:
        return error.problems[0]
    except OSError as error:
        return Problem(str(source), f"it cannot be read ({error.strerror or error})")


def read_whole(source: Path | Stored, seen: Seen) -> Problem | None:
    """Decode an image; return what is wrong with it, where something is."""
    try:
        read_image(source, str(source))
    except DataError as error:
        return error.problems[0]
    return None


def unusable(problems: Sequence[Problem], total: int) -> DataError:
    """The error that names these of `total` image files."""
    some = f"{len(problems):,} of {total:,} image files" if total > 1 else "The image file"
    return DataError(f"{some} cannot be used:", problems, fix=REPAIR)
