"""Omniglot: characters of many alphabets, each drawn once by 20 people, for few-shot learning.

The files hold a PNG of 105 × 105 pixels, black on white, for each drawing: SET/ALPHABET/CHARACTER/NUMBER.png. As in A.
Santoro, S. Bartunov, M. Botvinick, D. Wierstra, T. Lillicrap, Meta-learning with memory-augmented neural networks,
2016, section 4.1 <https://arxiv.org/abs/1605.06065>, and later work, drawings are resized to 28 × 28 and inverted. For
episodes each training character rotated by 90°, 180° and 270° is a separate class.

Papers sample 1 200 of all 1 623 characters at random for training. The split of the whole set here is its author's: no
alphabet is in two splits. This is harder, because the characters of a test alphabet have no related ones in training.
The two small sets have only eight alphabets, and the score would depend on the choice of test alphabets, so characters
are sampled at random instead.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

from ...core.errors import DataError
from ...core.spec import Episodes
from ..build import DataSource
from ..dataset_base import DataSet
from ..episodes import split_by_class
from ..images.build import image_dataset
from ..splits import Rows
from .catalog import NamedSet, Request, remote_files
from .published import file_hashes, hash_fingerprint, unpublished_notes

SIDE = 28
TURNS = (90, 180, 270)  # degrees
WHOLE = ("images_background.zip", "images_evaluation.zip")
PART = ("images_background_small1.zip", "images_background_small2.zip")
SHOWN = 10  # alphabets listed in a note

Drawings = npt.NDArray[np.uint8]

NAMED = {
    "omniglot": NamedSet(
        title="Omniglot: handwritten characters of many alphabets",
        kind="image",
        task="classification",
        sizes="1 623 characters of 50 alphabets, 20 drawings of each, 28 × 28, grey; the two small background sets "
        "alone: 242 of 8",
        licence="MIT",
        citation="B. M. Lake, R. Salakhutdinov, J. B. Tenenbaum, Human-level concept learning through probabilistic "
        "program induction, Science 350, 2015",
        folder="omniglot",
        files=remote_files(
            "https://raw.githubusercontent.com/brendenlake/omniglot/057f034baf2ecb8530bc5710e5a23584d2a519cc/python/",
            (WHOLE[0], 9_464_212, "ad41ab679c8b5d90b271ef46be6987cc81211774a695c29dcc5367b2b26ee640"),
            (WHOLE[1], 6_462_886, "1f61a8f3366785b057fc117d9228e78a16e3d976c8953b2a10fcc74cf0609cee"),
            (PART[0], 1_319_022, "f38eb80f801274ac2b4dff5b24289016bfaba4a7d5bb50deebf27104ad6cb8a4"),
            (PART[1], 1_580_917, "3ccaa407515a8778e5d0861875af38b17e418f301ad5bb3b5a6b65d901a41c7f"),
        ),
        enough=PART,
    )
}


def open_omniglot(request: Request) -> DataSet:
    """Load Omniglot, or the two small background sets if the whole is not available.

    For episodes, the split is by alphabet for the whole set and by character for the small ones. Otherwise each
    character is a class, and its drawings are split.
    """
    place, settings = request.place, request.settings
    whole = all((place / file).is_file() for file in WHOLE)
    files = WHOLE if whole else PART
    pixels, labels, classes, first = read_drawings([place / file for file in files])
    sums = file_hashes(place, files)
    notes = unpublished_notes(request.named, sums)
    if not whole:
        notes.append(
            f"This is a part of Omniglot, its two small background sets: {len(classes)} of 1,623 characters. Scores do "
            "not compare with published ones."
        )
    splits = None
    if Episodes in request.targets:
        given, alphabets = None, None
        if whole:
            given = {"train": np.arange(first), "test": np.arange(first, len(labels))}
            alphabets = np.unique([name.split("/")[0] for name in classes], return_inverse=True)[1]
        splits, _ = split_by_class(labels, classes, given, settings, alphabets)
        if whole:
            notes.append(_alphabets(labels, classes, splits))
        settings = replace(settings, fold=None, max_samples=None)
        pixels, labels, classes, splits["train"] = add_rotations(pixels, labels, classes, splits["train"])
        notes.append("Each training character turned by 90°, 180° and 270° is a class of its own.")
    origin = DataSource(request.name, request.name, hash_fingerprint(sums), notes)
    return image_dataset(pixels, labels, classes, origin, settings, request.sizes, splits, request.targets)


def read_drawings(files: Sequence[Path]) -> tuple[Drawings, Rows, list[str], int]:
    """Read drawings (n, 1, 28, 28), white on black, their classes, the class names and the size of the first file.

    Class names are ALPHABET/CHARACTER. A character in several files is read once. Raises DataError for a file that is
    not an archive of such drawings.
    """
    found: dict[str, list[Drawings]] = {}
    counts = []
    for file in files:
        try:
            with zipfile.ZipFile(file) as archive:
                images = sorted(name for name in archive.namelist() if name.endswith(".png") and name.count("/") == 3)
                before = set(found)
                for name in images:
                    character = "/".join(name.split("/")[1:3])
                    if character not in before:
                        found.setdefault(character, []).append(_drawing(archive.read(name)))
        except (zipfile.BadZipFile, OSError, ValueError) as error:
            raise DataError(
                f"{file} cannot be read as an archive of Omniglot's drawings: {error}.",
                fix="Take the file from its source again.",
            ) from error
        if not images:
            raise DataError(f"{file} holds no drawings, SET/ALPHABET/CHARACTER/NUMBER.png.")
        counts.append(sum(map(len, found.values())))
    pixels = np.stack([drawing for drawings in found.values() for drawing in drawings])[:, None]
    labels = np.repeat(np.arange(len(found)), [len(drawings) for drawings in found.values()])
    return pixels, labels, list(found), counts[0]


def add_rotations(
    pixels: Drawings, labels: Rows, classes: Sequence[str], train: Rows
) -> tuple[Drawings, Rows, list[str], Rows]:
    """Append rotated training drawings at each of the TURNS as additional classes, and return the training rows too."""
    own = np.unique(labels[train])
    number = np.zeros(len(classes), np.int64)
    number[own] = np.arange(len(own))
    all_pixels, all_labels, names = [pixels], [labels], list(classes)
    for k, degrees in enumerate(TURNS, 1):
        all_pixels.append(np.rot90(pixels[train], k, (2, 3)))
        all_labels.append(len(names) + number[labels[train]])
        names += [f"{classes[c]} at {degrees}°" for c in own]
    more = np.arange(len(labels), len(labels) + len(TURNS) * len(train))
    return np.concatenate(all_pixels), np.concatenate(all_labels), names, np.concatenate([train, more])


def _drawing(content: bytes) -> Drawings:
    """Decode one drawing (28, 28), white on black."""
    with Image.open(io.BytesIO(content)) as image:
        small = image.convert("L").resize((SIDE, SIDE), Image.Resampling.LANCZOS)
    return 255 - np.asarray(small, np.uint8)


def _alphabets(labels: Rows, classes: Sequence[str], splits: dict[str, Rows]) -> str:
    """Return a note on the alphabets of each split."""
    parts = []
    for split, rows in splits.items():
        names = list(dict.fromkeys(classes[k].split("/")[0] for k in np.unique(labels[rows])))
        more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
        parts.append(f"{split} {', '.join(names[:SHOWN])}{more}")
    return f"Alphabets are split, none is in two splits: {'; '.join(parts)}."


OPENERS = {"omniglot": open_omniglot}
