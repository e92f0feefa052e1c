"""Loading of the preprocessing that was saved with a model, for every kind of data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..core import spec as specs
from ..core.errors import DataError, brief
from ..core.files import read_json
from ..core.schema import fault_in
from ..core.spec import kind_now
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
    kind, form = (kind_now(data.get("kind")), data.get("form")) if isinstance(data, dict) else (None, None)
    known = KINDS.get(kind) if isinstance(kind, str) else None
    if known is None or not isinstance(form, str | None) or form not in known.classes:
        raise DataError(
            f"{path}: a preprocessing of kind {brief(kind)}{f' and form {brief(form)}' if form else ''} is not known "
            f"here; the kinds are {', '.join(KINDS)}.",
            fix="It may come from a newer version of cutaway.",
        )
    found = known.member(known.classes[form])
    if "spec" in data:
        data = {**data, "spec": specs.as_now(data["spec"])}
    if fault := fault_in(data, found.SCHEMA):
        raise DataError(f"{path}: {fault}.", fix=FIX)
    try:
        preprocessing: Preprocessing = found.from_json(data)
    except ValueError as error:  # beyond the schema: inconsistent sizes, an invalid tokenizer
        raise DataError(f"{path} cannot be used: {str(error).rstrip('.')}.", fix=FIX) from error
    return preprocessing
