"""Reader of image columns of tables, as in Hugging Face Datasets: the bytes of a file, or its path."""

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


def decode_images(frame: pl.DataFrame) -> Images | None:
    """Return the images of a table with one image column and one target column; None if it has no images.

    Raises DataError that names every unreadable image, or if there are several other columns.
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
    except Exception as error:  # Pillow may raise any exception for a damaged file
        raise DataError("Damaged:", [Problem(name, f"it is damaged or of no known form ({error})")]) from error
    return read_image(image, name)
