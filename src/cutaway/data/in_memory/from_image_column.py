"""Images in a column of a table, as Hugging Face's Datasets hold them: the bytes of a file, or its path."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import polars as pl
from PIL import Image

from ...core.errors import DataError, Problem
from ..images.image_files import read_image
from .container import Images
from .from_dataframe import holds_images


def decoded(frame: pl.DataFrame) -> Images | None:
    """The images of a table that has one column of them and one other, the targets; None where it has no images.

    Raises DataError that names every image that cannot be read, and where there are several other columns.
    """
    columns = [name for name, dtype in frame.schema.items() if holds_images(dtype)]
    if not columns:
        return None
    others = [name for name in frame.columns if name not in columns]
    if len(columns) > 1 or len(others) > 1:
        raise DataError(
            f"Beside a column of images stands one other, the targets; this data has {', '.join(frame.columns)}.",
            fix=f"Choose two, as by dataset.select_columns([{columns[0]!r}, TARGET]).",
        )
    images, problems = [], []
    for i, cell in enumerate(frame[columns[0]]):
        try:
            images.append(_image(cell, f"image {i + 1}"))
        except DataError as error:
            problems += error.problems or [Problem(f"image {i + 1}", str(error))]
    if problems:
        raise DataError(f"{len(problems):,} images cannot be read.", problems)
    return Images(name="dataset", target=frame[others[0]] if others else None, images=tuple(images))


def _image(cell: Any, name: str) -> Image.Image:
    if not cell or (cell["bytes"] is None and cell["path"] is None):
        raise DataError("It is missing.", [Problem(name, "it is missing")])
    if cell["bytes"] is None:
        return read_image(Path(cell["path"]), name)
    try:
        image = Image.open(io.BytesIO(cell["bytes"]))
        image.load()
    except Exception as error:  # a file can be broken in any way, and Pillow raises whatever it then trips over
        raise DataError("Damaged:", [Problem(name, f"it is damaged or of no known form ({error})")]) from error
    return read_image(image, name)
