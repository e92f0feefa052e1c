"""Example data: a small, reproducible file or folder for every supported format.

Real data comes with the libraries that Cutaway depends on; generated data is described as such.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ...core.errors import WriteError
from ...core.extras import MissingPackageError, is_installed, missing_package_text
from . import examples, shape_scenes


@dataclass(frozen=True)
class Example:
    """An example file, or a folder if the name ends in a slash."""

    name: str
    what: str
    write: Callable[[Path], None]  # to a path that does not exist yet
    needs: str = ""  # the module of an optional library that writes it


EXAMPLES = {
    example.name: example
    for example in (
        Example("wine.csv", "178 wines, 13 measurements of each, and the cultivar", examples.wine),
        Example("visits.csv", "visits to a shop, hour by hour (made up)", examples.visits),
        Example("shops.csv", "visits to four shops of different sizes, day by day (made up)", examples.shops),
        Example("scans/", "1 797 handwritten digits, in folders zero to nine", examples.scans),
        Example("docs.tsv", "2 400 sentences of documentation, and of which library", examples.docs),
        Example("help.txt", "3 000 plain sentences of documentation, blank lines between", examples.help_text),
        Example("days.txt", "3 000 sentences of everyday life (made up)", examples.days),
        Example("topics.tsv", "600 others, and what each is about (made up)", examples.topics),
        Example("dates.tsv", "3 000 dates as people write them, and in ISO 8601 (made up)", examples.dates),
        Example(
            "summaries.tsv",
            "2 350 descriptions of functions and classes, and their summaries",
            examples.summaries,
        ),
        Example("masks/", "900 scenes of handwritten digits, and which digit each pixel is of", examples.masks),
        Example(
            "captions/",
            "3 000 scenes of two handwritten digits, and which stands where (made up)",
            examples.captions,
        ),
        Example(
            "shapes/",
            "4 704 scenes of two coloured shapes, described in words (made up)",
            shape_scenes.write_shapes,
        ),
        Example("sounds/", "the tones of a telephone's keys on a noisy line (made up)", examples.sounds, "soundfile"),
        Example(
            "spelled/", "numbers dialled key by key on a noisy line, and which (made up)", examples.spelled, "soundfile"
        ),
        Example("scenes/", "digits in scenes with a box around each, as COCO writes them (made up)", examples.scenes),
        Example("videos/", "handwritten digits that move left, right, up or down (made up)", examples.videos, "av"),
        Example("graph/", "the 34 members of a karate club that split, and who met whom", examples.karate),
        Example(
            "novel/", "the 77 characters of Les Misérables, linked if they appear in the same chapter", examples.novel
        ),
        Example("molecules.csv", "800 molecules and their molar masses (made up)", examples.molecules),
        Example(
            "photographs/",
            "two images in every form that people's folders hold (made up)",
            examples.write_photo_folder,
        ),
        Example("damaged/", "the same, and two of the files are cut short (made up)", examples.write_damaged_folder),
    )
}


def example_hint(name: str) -> str:
    """Return how to write the example of this name; empty if there is none, or `name` is a path of several parts.

    Raises:
        MissingPackageError: If the library that writes the example is not installed.
    """
    found = {Path(one).name: one for one in EXAMPLES}.get(name.removeprefix("./").rstrip("/"))
    if found is None:
        return ""
    example, short = EXAMPLES[found], found.rstrip("/")
    if example.needs and not is_installed(example.needs):
        text = missing_package_text(example.needs, f"There is no {name!r} in {Path.cwd()}. The example {found}")
        raise MissingPackageError(f"{text} Then `cutaway examples {short}` writes it.")
    return f"`cutaway examples {short}` writes the example of this name."


def write_example(name: str, folder: Path) -> bool:
    """Write the example of this name into a folder, completely or not at all.

    Returns False, and leaves it unchanged, if that name exists already. Raises FileError if the folder cannot be
    written.
    """
    path = folder / name
    if path.is_symlink() or path.exists():
        return False
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        EXAMPLES[name].write(temporary)
        temporary.rename(path)
    except OSError as error:
        raise WriteError(
            f"{path} could not be written: {error.strerror or error}. Give another folder (--out DIR), or free some "
            "space."
        ) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
    return True
