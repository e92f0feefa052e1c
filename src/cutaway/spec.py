"""What an example looks like: the words that data sets and models share.

A data set says what it holds with one of these; a model's `takes` says which kinds it accepts, and
`Config.for_spec(preset, spec)` fits the model to one. They are plain frozen dataclasses, written to JSON with a model.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, ClassVar


@dataclass(frozen=True)
class Classes:
    """A target that is one of `names`: class k of the tensors is `names[k]`."""

    names: tuple[str, ...]
    column: str = "class"  # what the data calls the target

    @property
    def outputs(self) -> int:
        """How many values the model's head gives: one for each class."""
        return len(self.names)


@dataclass(frozen=True)
class Value:
    """A target that is a number, learned as (value − mean) / scale; mean and scale come from the training part."""

    column: str = "value"
    mean: float = 0.0
    scale: float = 1.0

    @property
    def outputs(self) -> int:
        """How many values the model's head gives: one."""
        return 1


Target = Classes | Value


@dataclass(frozen=True)
class TableSpec:
    """Rows of numbers, (N, F): the columns of a table after preprocessing."""

    kind: ClassVar[str] = "table"
    columns: tuple[str, ...]  # a name for each of the F numbers
    target: Target

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one example: (F,)."""
        return (len(self.columns),)


@dataclass(frozen=True)
class ImageSpec:
    """Images, (N, C, H, W)."""

    kind: ClassVar[str] = "image"
    channels: int
    height: int
    width: int
    target: Target

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one example: (C, H, W)."""
        return (self.channels, self.height, self.width)


@dataclass(frozen=True)
class SeriesSpec:
    """Signals with a time axis, (N, T, F): T steps of F variables, with one target for the whole."""

    kind: ClassVar[str] = "series"
    steps: int
    features: int
    target: Target

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one example: (T, F)."""
        return (self.steps, self.features)


Spec = TableSpec | ImageSpec | SeriesSpec
KINDS: dict[str, type[Spec]] = {s.kind: s for s in (TableSpec, ImageSpec, SeriesSpec)}


def to_json(spec: Spec) -> dict[str, Any]:
    """The spec as plain JSON values; `from_json` gives an equal spec back."""
    target = {"kind": "classes" if isinstance(spec.target, Classes) else "value", **asdict(spec.target)}
    return {"kind": spec.kind, **asdict(spec), "target": target}


def from_json(data: dict[str, Any]) -> Spec:
    """The spec that `to_json` wrote. Raises KeyError or TypeError where the document is not one."""
    data = dict(data)
    target = dict(data.pop("target"))
    if target.pop("kind") == "classes":
        data["target"] = Classes(names=tuple(target["names"]), column=target["column"])
    else:
        data["target"] = Value(**target)
    kind = KINDS[data.pop("kind")]
    if kind is TableSpec:
        data["columns"] = tuple(data["columns"])
    return kind(**data)
