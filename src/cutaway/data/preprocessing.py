"""Reading back the preprocessing that a model was saved with, whatever kind of data it is for."""

from __future__ import annotations

from typing import Any

from ..errors import DataError
from ..spec import kind_now
from .kinds import KINDS
from .sets import Preprocessing


def preprocessing_from_json(data: dict[str, Any]) -> Preprocessing:
    """The preprocessing that `to_json` wrote. Raises DataError where the document is none."""
    kind, form = (kind_now(data.get("kind")), data.get("form")) if isinstance(data, dict) else (None, None)
    known = KINDS.get(kind)
    if known is None or form not in known.classes:
        raise DataError(
            f"A preprocessing of kind {kind!r}{f' and form {form!r}' if form else ''} is not known here; the kinds are "
            f"{', '.join(KINDS)}.",
            fix="It may come from a newer version of cutaway, or not be one.",
        )
    try:
        preprocessing: Preprocessing = known.member(known.classes[form]).from_json(data)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError(
            f"The preprocessing of {kind} data is not complete: {type(error).__name__} {error}.",
            fix="Restore preprocessing.json from a copy, or train again.",
        ) from error
    return preprocessing
