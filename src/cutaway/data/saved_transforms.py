"""Loading of the preprocessing that was saved with a model, for every kind of data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..core import spec as specs
from ..core.errors import DataError, shorten_repr
from ..core.files import read_json
from ..core.schema import find_mismatch
from ..core.spec import current_kind
from .dataset_base import Preprocessing
from .modalities import KINDS

FIX = "Take it from a copy, or train again."


def read_preprocessing(path: Path) -> Preprocessing:
    """Read a preprocessing file. Raises FileError if it is not JSON, and DataError if it is not a preprocessing."""
    return preprocessing_from_json(read_json(path), path)


def preprocessing_from_json(data: Any, path: Path = Path("preprocessing.json")) -> Preprocessing:
    """Restore the preprocessing that `to_json` wrote to `path`.

    Raises DataError, with path and key, if the document is not a valid preprocessing.
    """
    kind, form = (current_kind(data.get("kind")), data.get("form")) if isinstance(data, dict) else (None, None)
    known = KINDS.get(kind) if isinstance(kind, str) else None
    if known is None or not isinstance(form, str | None) or form not in known.classes:
        raise DataError(
            f"{path}: a preprocessing of kind {shorten_repr(kind)}{f' and form {shorten_repr(form)}' if form else ''}"
            f" is not known here; the kinds are {', '.join(KINDS)}.",
            fix="It may come from a newer version of cutaway.",
        )
    found = known.member(known.classes[form])
    if "spec" in data:
        data = {**data, "spec": specs.upgrade_spec(data["spec"])}
    if fault := find_mismatch(data, found.SCHEMA):
        raise DataError(f"{path}: {fault}.", fix=FIX)
    try:
        preprocessing: Preprocessing = found.from_json(data)
    except ValueError as error:  # beyond the schema: inconsistent sizes, an invalid tokenizer
        raise DataError(f"{path} cannot be used: {str(error).rstrip('.')}.", fix=FIX) from error
    return preprocessing
