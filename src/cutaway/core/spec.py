"""Specifications of examples and targets, shared by data sets, models and tasks.

A data set describes its examples with a spec; a model's `takes` names the specs that it accepts, and
`Config.for_spec(preset, spec)` fits the model to one. Specs and targets are frozen dataclasses, saved as JSON with a
model.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, TypeVar, get_type_hints

from .errors import SettingError
from .schema import Tagged, fault_in, from_document, schema_of

PLACE = "place in the text"


class Answer:
    """What every target says of itself, unless it says otherwise."""

    order: ClassVar[str] = ""  # that its examples stand in and are split by, never at random: time, for one
    written: ClassVar[bool] = False  # whether the answer is a sequence, which a model writes

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes that the answer to an example is one of; nothing where it is none."""
        return ()


@dataclass(frozen=True)
class Classes(Answer):
    """A target that is one of `names`: class k of the tensors is `names[k]`."""

    cells: ClassVar[str] = "category"  # the type of a table's column that holds it
    names: tuple[str, ...]
    column: str = "class"  # what the data calls the target

    @property
    def classes(self) -> tuple[str, ...]:
        """Their names."""
        return self.names

    @property
    def outputs(self) -> int:
        """How many values the model's head gives: one for each class."""
        return len(self.names)


@dataclass(frozen=True)
class Value(Answer):
    """A target that is a number, learned as (value − mean) / scale; mean and scale come from the training split."""

    cells: ClassVar[str] = "number"
    column: str = "value"
    mean: float = 0.0
    scale: float = 1.0

    @property
    def outputs(self) -> int:
        """How many values the model's head gives: one."""
        return 1


@dataclass(frozen=True)
class Tags(Answer):
    """A target for each token: one of `names`."""

    names: tuple[str, ...]
    column: str = "tag"

    @property
    def outputs(self) -> int:
        """How many values the model's head gives at each token: one for each tag."""
        return len(self.names)


@dataclass(frozen=True)
class Mask(Answer):
    """A target for each pixel of an image: one of `names`, the ground first, or `ignored` where none is known."""

    names: tuple[str, ...]
    column: str = "mask"
    ignored: int = 255  # the value of a pixel that is not labelled

    @property
    def outputs(self) -> int:
        """How many values the model's head gives at each pixel: one for each class."""
        return len(self.names)


class OfTokens(Answer):
    """A target of tokens."""

    vocab_size: int

    @property
    def outputs(self) -> int:
        """How many values the model's head gives at each token: one for each token there is."""
        return self.vocab_size


@dataclass(frozen=True)
class NextToken(OfTokens):
    """The target of each token is the token after it: text for language modelling."""

    order: ClassVar[str] = PLACE
    vocab_size: int
    column: str = "next token"


@dataclass(frozen=True)
class Solution(NextToken):
    """The target is the solution of a problem of the kind `problem`, token by token after the question, up to `end`. It
    is written in one of `forms`; the first is the one by which a model is judged."""

    order: ClassVar[str] = ""
    column: str = "solution"
    problem: str = ""
    forms: tuple[str, ...] = ()
    end: int = 2


@dataclass(frozen=True)
class Masked(OfTokens):
    """The targets are the tokens that were hidden: masked-language modelling. `mask` stands for a hidden token."""

    order: ClassVar[str] = PLACE
    vocab_size: int
    mask: int
    column: str = "masked token"
    mask_prob: float = 0.15  # of the tokens that are chosen to be predicted


@dataclass(frozen=True)
class Context(OfTokens):
    """The targets of each word are the words around it: text for word vectors."""

    order: ClassVar[str] = PLACE
    vocab_size: int
    column: str = "context"
    window: int = 5  # words on either side that a word's context reaches at most


@dataclass(frozen=True)
class Tokens(OfTokens):
    """A target that is itself a sequence of tokens, between the tokens `begin` and `end`."""

    written: ClassVar[bool] = True
    vocab_size: int
    begin: int
    end: int
    longest: int  # tokens of the longest target in training, with `end` and without `begin`
    column: str = "target"
    padding: int = 0  # the id of padding, which is never an answer
    unknown: int | None = 1  # the id that stands for all unknown tokens; none where nothing is unknown
    sentences: bool = False  # whether targets are sentences, of words with blanks between them
    lower: bool = False  # whether they are written in lower case


@dataclass(frozen=True)
class Horizon(Answer):
    """The next `steps` steps of the variables `columns`, each learned as (value − mean) / scale."""

    order: ClassVar[str] = "time"
    steps: int
    columns: tuple[str, ...]
    mean: tuple[float, ...]  # of each column, from the training time
    scale: tuple[float, ...]  # likewise
    season_length: int = 1  # steps after which the series repeats itself; the forecast that repeats is compared with
    naive: tuple[
        float, ...
    ] = ()  # of each column, the mean standardised |y_t − y_{t−season_length}| of the training time
    series: tuple[str, ...] = ()  # the names of several series, each with a scale of its own: mean 0 and scale 1 here

    @property
    def column(self) -> str:
        """The columns by their names."""
        return ", ".join(self.columns)

    @property
    def outputs(self) -> int:
        """How many values the model's head gives: one for each step and column, step after step."""
        return self.steps * len(self.columns)


@dataclass(frozen=True)
class Drawn(Answer):
    """A target that is the image itself, whose distribution is learned, so that new ones can be drawn from it."""

    names: tuple[str, ...] = ()  # the classes that images are of, where they have some: a condition, not the answer
    size: int = 1  # C · H · W, the numbers of an image


@dataclass(frozen=True)
class Image(Drawn):
    """The image itself: learned by a bound on its log-likelihood."""

    column: str = "image"

    @property
    def outputs(self) -> int:
        """How many values the model gives: the bound's two terms."""
        return 2


@dataclass(frozen=True)
class Noise(Drawn):
    """The image itself: learned by predicting noise that was added to it."""

    column: str = "noise in the image"

    @property
    def outputs(self) -> int:
        """How many values the model's head gives: one for each number of the image."""
        return self.size


@dataclass(frozen=True)
class Unlabelled(Answer):
    """The example itself, which a network learns from without labels. `names` are the classes, where there are some, by
    which what was learned is judged."""

    names: tuple[str, ...] = ()
    dim: int = 128  # numbers that the head gives

    @property
    def outputs(self) -> int:
        """How many values the model's head gives: no answer, but what learning goes on with."""
        return self.dim


@dataclass(frozen=True)
class Views(Unlabelled):
    """The image or series itself: learned by telling which two views are of one, by the numbers that the head gives."""

    column: str = "views"


@dataclass(frozen=True)
class Patches(Unlabelled):
    """The image itself: learned by telling patches of it that are masked from the others, of each of which the head
    gives the numbers that a decoder takes."""

    column: str = "masked patches"


@dataclass(frozen=True)
class Episodes(Answer):
    """Which of `ways` classes an example is of, each known from `shots` examples alone; or, with no ways, the value of
    a function that is known at `shots` points. One example is an episode: its support, class by class, and then as many
    queries of each class, by which it is judged."""

    ways: int
    shots: int
    queries: int  # of each class
    inner_lr: float | None = None  # of what is learned from the support by gradient descent; none compares features
    inner_steps: int = 1
    column: str = "class in an episode"

    @property
    def outputs(self) -> int:
        """How many values the model's head gives: one for each class, or one."""
        return self.ways or 1

    @property
    def support(self) -> int:
        """The examples of an episode that are labelled."""
        return self.outputs * self.shots

    @property
    def size(self) -> int:
        """All examples of an episode."""
        return self.outputs * (self.shots + self.queries)


@dataclass(frozen=True)
class Transcript(Answer):
    """A target that is what is said, as characters, without a word on when: token k + 1 is `alphabet[k]`, and token 0
    is the blank, which stands for no character at all."""

    written: ClassVar[bool] = True
    alphabet: tuple[str, ...]  # the characters of the training transcripts, in the order of their code points
    column: str = "transcript"
    lower: bool = False  # whether transcripts are written in lower case

    @property
    def outputs(self) -> int:
        """How many values the model's head gives at each frame: one for each character, and the blank's before them."""
        return 1 + len(self.alphabet)


@dataclass(frozen=True)
class Spelled(Transcript):
    """The same, written token after token: each is learned given those before it. Token 0, which stands for no
    character, stands before a transcript and ends it."""

    longest: int = 1  # characters of the longest transcript in training, and its end

    @property
    def tokens(self) -> Tokens:
        """What is written, as tokens."""
        return Tokens(self.outputs, begin=0, end=0, longest=self.longest, column=self.column, unknown=None)


@dataclass(frozen=True)
class Boxes(Answer):
    """Objects in an image: the box of each, and which of `names` it is."""

    names: tuple[str, ...]
    most: int = 1  # boxes in the training image that has most of them
    column: str = "boxes"

    @property
    def outputs(self) -> int:
        """How many logits the model's head gives at each place: one for each class."""
        return len(self.names)


@dataclass(frozen=True)
class Links(Answer):
    """Whether two nodes of a graph are linked: `names[1]` where they are."""

    names: tuple[str, ...] = ("no link", "link")
    column: str = "link"

    @property
    def outputs(self) -> int:
        """How many values the model gives for a pair of nodes: one, the logit of a link."""
        return 1


Simple = Classes | Value  # one answer for a whole example
# What is learned of an example as a whole, or the whole of it.
OfWhole = Simple | Image | Noise | Views | Patches | Episodes
Target = OfWhole | Tags | Mask | Boxes | Links | NextToken | Masked | Context | Tokens | Horizon | Transcript
TARGETS: dict[str, type[Target]] = {
    "classes": Classes,
    "value": Value,
    "tags": Tags,
    "mask": Mask,
    "next": NextToken,
    "solution": Solution,
    "masked": Masked,
    "context": Context,
    "tokens": Tokens,
    "horizon": Horizon,
    "image": Image,
    "noise": Noise,
    "views": Views,
    "patches": Patches,
    "episodes": Episodes,
    "transcript": Transcript,
    "spelled": Spelled,
    "boxes": Boxes,
    "links": Links,
}


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
