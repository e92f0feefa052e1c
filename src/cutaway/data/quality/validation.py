"""Entry point of the data quality checks."""

from __future__ import annotations

from ...core.spec import AudioSpec, Classes, ImageSpec, SeriesSpec, TableSpec, TextSpec, Value
from ..dataset_base import DataSet
from ..findings import Finding
from ..tables.transforms import TableSplit
from . import drift, labels, leakage, near_duplicates, text_duplicates
from .embeddings import extract_features


def validate_dataset(data: DataSet) -> list[Finding]:
    """Run the data quality checks and return the findings beyond those made when the data was loaded.

    The checks support independent examples with a class or a value: rows, images, texts, recordings and series.
    """
    spec, target = data.spec, getattr(data.spec, "target", None)
    if data.tasks is not None or not isinstance(target, Classes | Value):
        return []
    if not isinstance(spec, TableSpec | ImageSpec | TextSpec | AudioSpec | SeriesSpec):
        return []
    seen = {name: extract_features(split, spec.kind) for name, split in data.splits.items()}
    looked = {name: some for name, some in seen.items() if some is not None}
    if len(looked) < len(data.splits) or "train" not in looked or any(some.target.ndim > 1 for some in looked.values()):
        return []
    found: list[Finding | None] = []
    if spec.kind == "text":
        found += [
            text_duplicates.check_near_duplicate_texts(looked),
            text_duplicates.check_text_labels(looked, target),
            *drift.check_drift(looked, target, (), inputs=False),
        ]
        return [finding for finding in found if finding]
    found.append(near_duplicates.check_near_duplicates(looked, spec.kind, near_duplicates.continuous_columns(data)))
    if isinstance(looked["train"].split, TableSplit):
        found += leakage.check_target_leakage(data, looked, " ".join(map(str, data.findings)))
        found += leakage.check_group_leakage(data, looked)
    if isinstance(target, Classes):
        found.append(labels.check_labels(looked, target))
    found += drift.check_drift(looked, target, spec.columns if isinstance(spec, TableSpec) else ())
    return [finding for finding in found if finding]
