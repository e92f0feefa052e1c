"""What an example looks like: the words that data sets and models share, with those of targets.py.

A data set says what it holds with one of these; a model's `takes` says which kinds it accepts, and
`Config.for_spec(preset, spec)` fits the model to one. They are plain frozen dataclasses, written to JSON with a model.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, TypeVar, get_type_hints

from .errors import SettingError
from .schema import Tagged, fault_in, from_document, schema_of
from .targets import TARGETS as TARGETS
from .targets import Answer as Answer
from .targets import Boxes as Boxes
from .targets import Classes as Classes
from .targets import Context as Context
from .targets import Drawn as Drawn
from .targets import Episodes as Episodes
from .targets import Horizon as Horizon
from .targets import Image as Image
from .targets import Links as Links
from .targets import Mask as Mask
from .targets import Masked as Masked
from .targets import NextToken as NextToken
from .targets import Noise as Noise
from .targets import OfTokens as OfTokens
from .targets import OfWhole as OfWhole
from .targets import Patches as Patches
from .targets import Simple as Simple
from .targets import Solution as Solution
from .targets import Spelled as Spelled
from .targets import Tags as Tags
from .targets import Target as Target
from .targets import Tokens as Tokens
from .targets import Transcript as Transcript
from .targets import Unlabelled as Unlabelled
from .targets import Value as Value
from .targets import Views as Views


@dataclass(frozen=True)
class TableSpec:
    """Rows of numbers, (N, F): the columns of a table after preprocessing."""

    kind: ClassVar[str] = "table"
    columns: tuple[str, ...]  # a name for each of the F numbers
    target: Simple | Episodes

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one example: (F,)."""
        return (len(self.columns),)


@dataclass(frozen=True)
class ImageSpec:
    """Images, (N, C, H, W); with a caption as the target, ids (N, S) of the caption so far beside them."""

    kind: ClassVar[str] = "image"
    channels: int
    height: int
    width: int
    target: OfWhole | Mask | Boxes | Tokens

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
            self._reject(asked)
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

    def _reject(self, side: int) -> None:
        if side < self.least or side % self.step:
            multiple = f", a multiple of {self.step}" if self.step > 1 else ""
            raise SettingError(
                f"image_size={side} cannot be: this model takes at least {self.enough(1)}{multiple}. "
                f"image_size={self.enough(side)} would do; `cutaway show` lists settings for small images."
            )


ANY_SIZE = ImageSizes()


@dataclass(frozen=True)
class TextSpec:
    """Token ids, (N, T) int64, with a boolean mask, (N, T), True where a token is real.

    Of our own tokenizers id 0 is padding and id 1 stands for every unknown token; others have their own. A text may
    stand in a frame: `begin` before it and `end` after it.
    """

    kind: ClassVar[str] = "text"
    vocab_size: int  # ids are below this
    longest: int  # tokens of the longest example that the model is given, with its frame
    target: Simple | Tags | NextToken | Masked | Context
    begin: int | None = None  # the token before each text, where texts stand in a frame
    end: int | None = None  # the token after it

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the longest example: (T,)."""
        return (self.longest,)


@dataclass(frozen=True)
class PairSpec:
    """Sequences that become others: token ids (N, T) and mask (N, T) of the source, ids (N, S) of the target so far.

    The target so far begins with its `begin`; what is learned at each of its places is the token that comes next.
    """

    kind: ClassVar[str] = "seq2seq"
    vocab_size: int  # of the source
    longest: int  # tokens of the longest source in training
    target: Tokens
    joint_vocab: bool = False  # whether both sides have one vocabulary: an id means the same on either

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the longest source: (T,)."""
        return (self.longest,)


@dataclass(frozen=True)
class SeriesSpec:
    """Signals with a time axis, (N, T, F): T steps of F variables, with one target for the whole.

    Where `known_future` is not 0, so many variables are known in advance for the steps to be forecast: (N, H, K) beside
    it.
    """

    kind: ClassVar[str] = "series"
    steps: int
    features: int
    target: Simple | Horizon | Views
    known_future: int = 0

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one example: (T, F)."""
        return (self.steps, self.features)


@dataclass(frozen=True)
class AudioSpec:
    """Audio as frames of a spectrogram, (N, T, F), with a mask, (N, T), True where a frame is real; with a transcript
    that is spelled, ids (N, S) of the transcript so far beside them."""

    kind: ClassVar[str] = "audio"
    frames: int  # of the longest recording in training
    n_mels: int  # F, the frequencies of each frame
    target: Simple | Transcript

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the longest example: (T, F)."""
        return (self.frames, self.n_mels)


@dataclass(frozen=True)
class VideoSpec:
    """Videos, (N, T, C, H, W), with a mask, (N, T), True where a frame is real."""

    kind: ClassVar[str] = "video"
    frames: int  # of the longest video that the model is given
    channels: int
    height: int
    width: int
    target: Simple

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the longest example: (T, C, H, W)."""
        return (self.frames, self.channels, self.height, self.width)


@dataclass(frozen=True)
class GraphSpec:
    """Graphs: what is known of each node, x (V, F), and edges from source to target, (2, E) int64.

    With one graph, examples are its nodes, and the model is told which of them to answer for, (N,); where links are the
    target, examples are pairs of nodes, (N, 2). With `graph_level`,
    examples are whole graphs that stand in one batch side by side, and the model is told which each node is of, (V,).
    Where `edge_features` is not 0, so many numbers describe each edge: (E, D) beside it.
    """

    kind: ClassVar[str] = "graph"
    features: int  # F
    target: Simple | Links
    graph_level: bool = False
    edge_features: int = 0  # D

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of what is known of one node: (F,)."""
        return (self.features,)


Kind = TypeVar("Kind", bound="Spec")
Spec = TableSpec | ImageSpec | TextSpec | PairSpec | SeriesSpec | AudioSpec | VideoSpec | GraphSpec
KINDS: dict[str, type[Spec]] = {
    s.kind: s for s in (TableSpec, ImageSpec, TextSpec, PairSpec, SeriesSpec, AudioSpec, VideoSpec, GraphSpec)
}
OF_TOKENS = (TextSpec.kind, PairSpec.kind)  # the kinds whose examples are tokens


def _targets(kind: type[Spec]) -> Tagged:
    """The schema of the targets that a kind may have."""
    allowed = get_type_hints(kind)["target"]
    named: dict[str, Any] = {"names": [str, ...]}  # of which the answer is one
    return Tagged(
        "kind",
        {
            name: schema_of(one, **(named if one in (Classes, Tags, Mask, Boxes) else {}))
            for name, one in TARGETS.items()
            if issubclass(one, allowed)
        },
    )


SCHEMA = Tagged("kind", {name: schema_of(kind, target=_targets(kind)) for name, kind in KINDS.items()})
LARGEST = 2**30  # numbers that an example may have: what a damaged document asks for is not set aside

# What fields were called before 0.7, in models that were written then. To be dropped at 1.0.
RENAMED = {
    "bands": "n_mels",
    "known": "known_future",
    "many": "graph_level",
    "season": "season_length",
    "share": "mask_prob",
    "shared": "joint_vocab",
    "vocabulary": "vocab_size",
}

# What kinds of data were called before 0.7, in runs and models that were written then. To be dropped at 1.0.
KINDS_BEFORE = {"pairs": "seq2seq", "sound": "audio"}
TASKS_BEFORE = {"transduction": "sequence-to-sequence"}  # and tasks


def kind_now(kind: Any) -> Any:
    """The kind of data that a document names, as it is called now."""
    return KINDS_BEFORE.get(kind, kind) if isinstance(kind, str) else kind


def to_json(spec: Spec) -> dict[str, Any]:
    """The spec as plain JSON values; `from_json` gives an equal spec back."""
    kind = next(name for name, target in TARGETS.items() if type(spec.target) is target)
    return {"kind": spec.kind, **asdict(spec), "target": {"kind": kind, **asdict(spec.target)}}


def as_now(data: Any) -> Any:
    """Return the document of a spec with the names that its fields have now; what is no object as it is."""
    if not isinstance(data, dict):
        return data
    found = {RENAMED.get(key, key): value for key, value in data.items()} | {"kind": kind_now(data.get("kind"))}
    if isinstance(target := found.get("target"), dict):
        found["target"] = {RENAMED.get(key, key): value for key, value in target.items()}
    return found


def from_json(data: Any) -> Spec:
    """The spec that `to_json` wrote. Raises ValueError, by its key, where the document is not one."""
    data = as_now(data)
    if fault := fault_in(data, SCHEMA):
        raise ValueError(fault)
    target = from_document(TARGETS[data["target"]["kind"]], data["target"])
    spec = from_document(KINDS[data["kind"]], {**data, "target": target})
    if math.prod(spec.shape) > LARGEST:
        raise ValueError(f"an example of shape {spec.shape}, which has more than {LARGEST:,} numbers")
    return spec


def scales(mean: list[float], std: list[float], count: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return means and standard deviations as a document holds them. Raises ValueError where there are not `count` of
    each, or nothing can be divided by one."""
    if len(mean) != count or len(std) != count or not all(one > 0 for one in std):
        raise ValueError(f"mean and std are not {count} numbers each, with every std above 0")
    return tuple(mean), tuple(std)


def read_as(data: Any, kind: type[Kind], target: type[Target] | None = None) -> Kind:
    """The spec that `to_json` wrote, of this kind and with such a target. Raises ValueError where it is another."""
    spec = from_json(data)
    if not isinstance(spec, kind) or not isinstance(spec.target, target or Answer):
        raise ValueError(f"a spec of kind {spec.kind} for {spec.target.column}")
    return spec
