"""Image files: finding them in folders, and one look at each before anything is learned from them."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from ...errors import DataError, Problem
from ...files import exists, read_bytes
from ..folders import IMAGES, entries
from .reading import FIX, Facts, facts

THREADS = 8  # that look at files: most of their time is spent waiting for the disk


@dataclass(frozen=True)
class Seen:
    """What one look at an image file told."""

    digest: str  # sha256 of its bytes
    facts: Facts


def image_files(path: Path) -> list[Path]:
    """The image file itself, or those directly in a folder, sorted. Raises DataError where there is none."""
    if path.is_dir():
        found = [p for p in entries(path) if IMAGES.fits(p)]
        if not found:
            raise DataError(f"{path} is a folder without image files ({', '.join(IMAGES.suffixes)}).")
        return found
    if not exists(path):
        raise DataError(f"There is no image {str(path)!r}, seen from {Path.cwd()}.")
    if not IMAGES.fits(path):
        raise DataError(f"{path} is not an image file: those end in {', '.join(IMAGES.suffixes)}.")
    return [path]


def look_at(paths: Sequence[Path]) -> list[Seen]:
    """Read every file once: its sum and its head. Raises DataError that names every file that is no usable image."""

    def look(path: Path) -> Seen | Problem:
        try:
            data = read_bytes(path)
            return Seen(hashlib.sha256(data).hexdigest(), facts(data, str(path)))
        except DataError as error:
            return error.problems[0]
        except OSError as error:
            return Problem(str(path), f"it cannot be read ({error.strerror or error})")

    with warnings.catch_warnings(), ThreadPoolExecutor(THREADS) as threads:
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # such images are rejected by name instead
        looks = list(threads.map(look, paths))
    if problems := [seen for seen in looks if isinstance(seen, Problem)]:
        raise unusable(problems, len(paths))
    return [seen for seen in looks if isinstance(seen, Seen)]


def unusable(problems: Sequence[Problem], total: int) -> DataError:
    """The error that names these of `total` image files."""
    some = f"{len(problems):,} of {total:,} image files" if total > 1 else "The image file"
    return DataError(f"{some} cannot be used:", problems, fix=FIX)
