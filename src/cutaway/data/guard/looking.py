"""The guard's one door."""

from __future__ import annotations

from ...spec import AudioSpec, Classes, ImageSpec, SeriesSpec, TableSpec, TextSpec, Value
from ..findings import Finding
from ..sets import DataSet
from ..tables.preprocessing import TableSplit
from . import columns, crossing, drift, labels, near, texts
from .seen import seen_of


def guard(data: DataSet) -> list[Finding]:
    """What in this data makes scores lie, besides what was found as it was opened. It is of kinds whose examples stand
    for themselves, with a class or a value each: rows, images, texts, recordings and series."""
    spec, target = data.spec, getattr(data.spec, "target", None)
    if data.tasks is not None or not isinstance(target, Classes | Value):
        return []
    if not isinstance(spec, TableSpec | ImageSpec | TextSpec | AudioSpec | SeriesSpec):
        return []
    seen = {name: seen_of(split, spec.kind) for name, split in data.splits.items()}
    looked = {name: some for name, some in seen.items() if some is not None}
    if len(looked) < len(data.splits) or "train" not in looked or any(some.target.ndim > 1 for some in looked.values()):
        return []
    if spec.kind == "text":
        return [*texts.near(looked), *texts.labels(looked, target)]
    numbers = {name: some.vectors for name, some in looked.items()}
    found = near.near(numbers, looked, spec.kind, near.continuous(data))
    if isinstance(looked["train"].split, TableSplit):
        told = " ".join(map(str, data.findings))
        found += columns.alone(data, looked, told)
        found += crossing.crossing(data, looked)
    if isinstance(target, Classes):
        found += labels.wrong(numbers, looked, target)
    return found + drift.drift(numbers, spec.columns if isinstance(spec, TableSpec) else ())
