"""Reading back the preprocessing that a model was saved with, whatever kind of data it is for."""

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
    """Read a file that holds a preprocessing. Raises FileError where it is no JSON, DataError where it is none."""
    return preprocessing_from_json(read_json(path), path)


def preprocessing_from_json(data: Any, path: Path = Path("preprocessing.json")) -> Preprocessing:
    """Return the preprocessing that `to_json` wrote, and which stands at `path`. Raises DataError, by path and key,
    where the document is none."""
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
    except ValueError as error:  # what a schema cannot say: sizes that do not agree, a tokenizer's own document
        raise DataError(f"{path} cannot be used: {str(error).rstrip('.')}.", fix=FIX) from error
    return preprocessing
