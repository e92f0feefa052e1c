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
    found: list[Finding | None] = []
    if spec.kind == "text":
        found += [texts.near(looked), texts.labels(looked, target), *drift.drift(looked, target, (), inputs=False)]
        return [finding for finding in found if finding]
    found.append(near.near(looked, spec.kind, near.continuous(data)))
    if isinstance(looked["train"].split, TableSplit):
        found += columns.columns(data, looked, " ".join(map(str, data.findings)))
        found += crossing.crossing(data, looked)
    if isinstance(target, Classes):
        found.append(labels.wrong(looked, target))
    found += drift.drift(looked, target, spec.columns if isinstance(spec, TableSpec) else ())
    return [finding for finding in found if finding]
