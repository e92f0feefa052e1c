"""What an example looks like: the words that data sets and models share.

A data set says what it holds with one of these; a model's `takes` says which kinds it accepts, and
`Config.for_spec(preset, spec)` fits the model to one. They are plain frozen dataclasses, written to JSON with a model.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from .errors import SettingError


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
class ImageSizes:
    """Which sizes of images a model takes, in pixels: what data is brought to before the model is fitted to it."""

    only: int | None = None  # height and width of the one size that it takes, if there is but one
    least: int = 1  # the smallest height and width that leave it something to see
    step: int = 1  # heights and widths are multiples of this
    usual: int = 224  # what photographs of many sizes are brought to

    def choose(self, asked: int | None, own: tuple[int, int] | None) -> tuple[int, int]:
        """Height and width that images are brought to: what was asked for, else the one size that the model takes,
        else their own, enlarged where that is too small; the usual size where they have no one size of their own.

        Raises SettingError where what was asked for cannot be.
        """
        if asked is not None:
            self._refuse(asked)
        side = asked or self.only or (self.enough(self.usual) if own is None else None)
        if side:
            return side, side
        assert own is not None
        return self.enough(own[0]), self.enough(own[1])

    def note(self, own: tuple[int, int] | None, chosen: tuple[int, int], asked: int | None) -> str | None:
        """What a person should know where their images are enlarged though nobody asked; None where they are not."""
        if asked is not None or self.only is not None or own is None or own == chosen:
            return None
        return (
            f"The images have {own[0]}×{own[1]} pixels and are brought to {chosen[0]}×{chosen[1]}, the smallest size "
            "that the model takes; `cutaway show` lists its settings for small images."
        )

    def enough(self, side: int) -> int:
        """The smallest side that the model takes and that is not smaller than `side`."""
        return -(-max(side, self.least) // self.step) * self.step

    def _refuse(self, side: int) -> None:
        if side < self.least or side % self.step:
            multiple = f", a multiple of {self.step}" if self.step > 1 else ""
            raise SettingError(
                f"image_size={side} cannot be: this model takes at least {self.enough(1)}{multiple}. "
                f"image_size={self.enough(side)} would do; `cutaway show` lists settings for small images."
            )


ANY_SIZE = ImageSizes()


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
