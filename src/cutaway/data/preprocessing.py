"""Reading back the preprocessing that a model was saved with, whatever kind of data it is for."""

from __future__ import annotations

from typing import Any

from ..errors import DataError
from .sets import Preprocessing


def preprocessing_from_json(data: dict[str, Any]) -> Preprocessing:
    """The preprocessing that `to_json` wrote. Raises DataError where the document is none."""
    kind = data.get("kind") if isinstance(data, dict) else None
    try:
        if kind == "table":
            from .tables.preprocessing import TablePreprocessing

            return TablePreprocessing.from_json(data)
        if kind == "image":
            from .images.preprocessing import ImagePreprocessing

            return ImagePreprocessing.from_json(data)
        if kind == "series":
            from .series_preprocessing import SeriesPreprocessing

            return SeriesPreprocessing.from_json(data)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError(
            f"The preprocessing of {kind} data is not complete: {type(error).__name__} {error}.",
            mend="Was preprocessing.json edited? Take it from a copy, or train again.",
        ) from error
    raise DataError(
        f"A preprocessing of kind {kind!r} is not known here; table, image and series are.",
        mend="It may come from a newer version of cutaway, or not be one.",
    )
