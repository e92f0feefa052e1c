"""Reading back the preprocessing that a model was saved with, whatever kind of data it is for."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ..errors import DataError
from ..spec import kind_now
from .sets import Preprocessing

# Kind and form of the document → module beside this one and class. Modules are imported when they are needed.
CLASSES: dict[tuple[Any, Any], tuple[str, str]] = {
    ("table", None): ("tables.preprocessing", "TablePreprocessing"),
    ("image", None): ("images.preprocessing", "ImagePreprocessing"),
    ("text", "classes"): ("text.preprocessing", "TextPreprocessing"),
    ("text", "tags"): ("text.tags", "TagPreprocessing"),
    ("text", "running"): ("text.running_preprocessing", "RunningPreprocessing"),
    ("text", "masked"): ("text.masked", "MaskedPreprocessing"),
    ("text", "context"): ("text.context", "ContextPreprocessing"),
    ("seq2seq", None): ("pairs.preprocessing", "PairPreprocessing"),
    ("series", None): ("series.signals", "SeriesPreprocessing"),
    ("series", "signal"): ("series.signals", "SeriesPreprocessing"),
    ("series", "forecast"): ("series.preprocessing", "ForecastPreprocessing"),
    ("audio", None): ("audio.preprocessing", "AudioPreprocessing"),
    ("video", None): ("video.preprocessing", "VideoPreprocessing"),
    **{("graph", f): ("graphs.preprocessing", "GraphPreprocessing") for f in ("columns", "matrix", "number", "degree")},
}


def preprocessing_from_json(data: dict[str, Any]) -> Preprocessing:
    """The preprocessing that `to_json` wrote. Raises DataError where the document is none."""
    kind, form = (kind_now(data.get("kind")), data.get("form")) if isinstance(data, dict) else (None, None)
    if (kind, form) not in CLASSES:
        known = ", ".join(dict.fromkeys(kind for kind, _ in CLASSES))
        raise DataError(
            f"A preprocessing of kind {kind!r}{f' and form {form!r}' if form else ''} is not known here; the kinds are "
            f"{known}.",
            fix="It may come from a newer version of cutaway, or not be one.",
        )
    module, name = CLASSES[kind, form]
    try:
        preprocessing: Preprocessing = getattr(import_module(f".{module}", __package__), name).from_json(data)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError(
            f"The preprocessing of {kind} data is not complete: {type(error).__name__} {error}.",
            fix="Was preprocessing.json edited? Take it from a copy, or train again.",
        ) from error
    return preprocessing
