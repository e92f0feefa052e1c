"""Specifications of examples and targets, shared by data sets, models and tasks.

A data set describes its examples with a spec. A model's `takes` names the specs that it accepts, and
`Config.for_spec(preset, spec)` adapts the model to one. Specs and targets are frozen dataclasses, saved as JSON with a
model.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, TypeVar, get_type_hints

from .errors import SettingError
from .schema import Tagged, dataclass_schema, find_mismatch, from_document

PLACE = "position in the text"


class BaseTarget:
    """Base class of targets, with the default properties."""

    order: ClassVar[str] = ""  # the order by which examples are split, such as time, instead of at random
    written: ClassVar[bool] = False  # whether the answer is a sequence that the model generates

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes, one of which is the answer; empty if the target has no classes."""
        return ()


@dataclass(frozen=True)
class Classes(BaseTarget):
    """A target that is one of `names`: class k of the tensors is `names[k]`."""

    cells: ClassVar[str] = "category"  # the type of a table's column that holds it
    names: tuple[str, ...]
    column: str = "class"  # the name of the target in the data

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes."""
        return self.names

    @property
    def outputs(self) -> int:
        """Number of outputs of the model's head: one per class."""
        return len(self.names)

    @property
    def accepts_one_logit(self) -> bool:
        """Return whether a head may have one output, the logit of the second class of two."""
        return len(self.names) == 2


@dataclass(frozen=True)
class Value(BaseTarget):
    """A target that is a number, learned as (value − mean) / scale; mean and scale come from the training split."""

    cells: ClassVar[str] = "number"
    column: str = "value"
    mean: float = 0.0
    scale: float = 1.0

    @property
    def outputs(self) -> int:
        """Number of outputs of the model's head: one."""
        return 1


@dataclass(frozen=True)
class Tags(BaseTarget):
    """A target for each token: one of `names`."""

    names: tuple[str, ...]
    column: str = "tag"

    @property
    def outputs(self) -> int:
        """Number of outputs of the model's head per token: one per tag."""
        return len(self.names)


@dataclass(frozen=True)
class Mask(BaseTarget):
    """A target for each pixel of an image: one of `names`, the background first, or `ignored` where none is known."""

    names: tuple[str, ...]
    column: str = "mask"
    ignored: int = 255  # the value of a pixel that is not labelled

    @property
    def outputs(self) -> int:
        """Number of outputs of the model's head per pixel: one per class."""
        return len(self.names)


class TokenTarget(BaseTarget):
    """Base class of targets that are tokens."""

    vocab_size: int

    @property
    def outputs(self) -> int:
        """Number of outputs of the model's head per token: the size of the vocabulary."""
        return self.vocab_size


@dataclass(frozen=True)
class NextToken(TokenTarget):
    """The target of each token is the token after it: text for language modelling."""

    order: ClassVar[str] = PLACE
    vocab_size: int
    column: str = "next token"


@dataclass(frozen=True)
class Solution(NextToken):
    """The solution of a problem of the kind `problem`, token by token after the question, up to `end`.

    It is written in one of `forms`. The first form is used for evaluation.
    """

    order: ClassVar[str] = ""
    column: str = "solution"
    problem: str = ""
    forms: tuple[str, ...] = ()
    end: int = 2


@dataclass(frozen=True)
class Masked(TokenTarget):
    """The hidden tokens of masked-language modelling. `mask` replaces a hidden token."""

    order: ClassVar[str] = PLACE
    vocab_size: int
    mask: int
    column: str = "masked token"
    mask_prob: float = 0.15  # of the tokens that are chosen to be predicted


@dataclass(frozen=True)
class Context(TokenTarget):
    """The words around each word, for training word vectors."""

    order: ClassVar[str] = PLACE
    vocab_size: int
    column: str = "context"
    window: int = 5  # words on either side that a word's context reaches at most


@dataclass(frozen=True)
class Tokens(TokenTarget):
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
class Horizon(BaseTarget):
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
        """The names of the columns."""
        return ", ".join(self.columns)

    @property
    def outputs(self) -> int:
        """Number of outputs of the model's head: one per step and column, step after step."""
        return self.steps * len(self.columns)


@dataclass(frozen=True)
class GeneratedImage(BaseTarget):
    """The image itself, whose distribution is learned so that new images can be sampled from it."""

    names: tuple[str, ...] = ()  # the classes that images are of, where they have some: a condition, not the answer
    size: int = 1  # C · H · W, the numbers of an image


@dataclass(frozen=True)
class Image(GeneratedImage):
    """The image itself, learned by a bound on its log-likelihood."""

    column: str = "image"

    @property
    def outputs(self) -> int:
        """Number of outputs of the model: the two terms of the bound."""
        return 2


@dataclass(frozen=True)
class Noise(GeneratedImage):
    """The image itself, learned by predicting noise that was added to it."""

    column: str = "noise in the image"

    @property
    def outputs(self) -> int:
        """Number of outputs of the model's head: one per number of the image."""
        return self.size


@dataclass(frozen=True)
class ImageTokens(GeneratedImage):
    """The image itself, as one token for each pixel in row-major order, each learned given the tokens before it.

    A token is the nearest colour of a palette. The first input is a start token: k + c for class c, or k + K without a
    class, with k colours and K classes. A caption is written before it, in tokens of its own after k + K, and is padded
    to the longest.
    """

    column: str = "image tokens"
    cells: tuple[int, ...] = (1,)  # the number of colours that each token stands for
    words: int = 0  # the size of the vocabulary of captions, with padding; 0 without captions
    caption: int = 0  # the number of tokens of the longest caption

    @property
    def outputs(self) -> int:
        """Number of outputs of the model's head per pixel: one per colour of the palette."""
        return len(self.cells)

    @property
    def no_class(self) -> int:
        """The start token of an image without a class."""
        return len(self.cells) + len(self.names)

    @property
    def prefix(self) -> int:
        """Number of inputs before the first pixel: the caption and the start token."""
        return self.caption + 1

    @property
    def vocab_size(self) -> int:
        """Number of tokens, including the start tokens and the words of captions."""
        return self.no_class + 1 + self.words


@dataclass(frozen=True)
class Unlabelled(BaseTarget):
    """The example itself, from which a network learns without labels.

    `names` are the classes, if there are any, that evaluate the learned features.
    """

    names: tuple[str, ...] = ()
    dim: int = 128  # numbers that the head gives

    @property
    def outputs(self) -> int:
        """Number of outputs of the model's head: the dimension of the embedding that the objective uses."""
        return self.dim


@dataclass(frozen=True)
class Views(Unlabelled):
    """The image or series itself, learned by matching the two views of one example by their embeddings."""

    column: str = "views"


@dataclass(frozen=True)
class Patches(Unlabelled):
    """The image itself, learned by predicting its masked patches from the others. The head outputs the decoder's inputs
    for each patch.
    """

    column: str = "masked patches"


@dataclass(frozen=True)
class Episodes(BaseTarget):
    """One of `ways` classes, each known only from `shots` examples; with no ways, the value of a function known at
    `shots` points.

    One example is an episode: its support, class by class, followed by `queries` examples of each class, on which it is
    evaluated.
    """

    ways: int
    shots: int
    queries: int  # of each class
    inner_lr: float | None = None  # of what is learned from the support by gradient descent; none compares features
    inner_steps: int = 1
    column: str = "class in an episode"

    @property
    def outputs(self) -> int:
        """Number of outputs of the model's head: one per class, or one."""
        return self.ways or 1

    @property
    def support(self) -> int:
        """Number of labelled examples in an episode."""
        return self.outputs * self.shots

    @property
    def size(self) -> int:
        """Number of all examples in an episode."""
        return self.outputs * (self.shots + self.queries)


@dataclass(frozen=True)
class Transcript(BaseTarget):
    """A transcript as characters, without timing. Token k + 1 is `alphabet[k]`, and token 0 is the blank, which is no
    character.
    """

    written: ClassVar[bool] = True
    alphabet: tuple[str, ...]  # the characters of the training transcripts, in the order of their code points
    column: str = "transcript"
    lower: bool = False  # whether transcripts are written in lower case

    @property
    def outputs(self) -> int:
        """Number of outputs of the model's head per frame: one per character, after one for the blank."""
        return 1 + len(self.alphabet)


@dataclass(frozen=True)
class Spelled(Transcript):
    """A transcript written token after token, each learned given those before it.

    Token 0, which is not a character, begins a transcript and ends it.
    """

    longest: int = 1  # characters of the longest transcript in training, and its end

    @property
    def tokens(self) -> Tokens:
        """The transcript as a target of tokens."""
        return Tokens(self.outputs, begin=0, end=0, longest=self.longest, column=self.column, unknown=None)


@dataclass(frozen=True)
class Boxes(BaseTarget):
    """Objects in an image: the bounding box of each, and its class among `names`."""

    names: tuple[str, ...]
    most: int = 1  # boxes in the training image that has most of them
    column: str = "boxes"

    @property
    def outputs(self) -> int:
        """Number of logits of the model's head per location: one per class."""
        return len(self.names)


@dataclass(frozen=True)
class Links(BaseTarget):
    """The existence of a link between two nodes of a graph: `names[1]` if they are linked."""

    names: tuple[str, ...] = ("no link", "link")
    column: str = "link"

    @property
    def outputs(self) -> int:
        """Number of outputs of the model for a pair of nodes: one, the logit of a link."""
        return 1


Simple = Classes | Value  # one answer for a whole example
# Targets of a whole example, or the whole example as the target.
OfWhole = Simple | Image | Noise | ImageTokens | Views | Patches | Episodes
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
    "image-tokens": ImageTokens,
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
    """Images, (N, C, H, W); for captions, also the ids (N, S) of the caption so far."""

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
    """Image sizes that a model accepts, in pixels. Data is resized to one of them before the model is adapted to it."""

    only: int | None = None  # height and width of the one size that it takes, if there is but one
    least: int = 1  # the smallest height and width that leave it something to see
    step: int = 1  # heights and widths are multiples of this
    usual: int = 224  # what photographs of many sizes are brought to

    def choose(self, asked: int | None, own: tuple[int, int] | None) -> tuple[int, int]:
        """Return the height and width to which images are resized.

        The size is `asked` if given, else the model's only size, else the images' own size, enlarged if it is too
        small. Images of several sizes get the usual size. Raises SettingError if `asked` is not possible.
        """
        if asked is not None:
            self._reject(asked)
        side = asked or self.only or (self.enough(self.usual) if own is None else None)
        if side:
            return side, side
        assert own is not None
        return self.enough(own[0]), self.enough(own[1])

    def note(self, own: tuple[int, int] | None, chosen: tuple[int, int], asked: int | None) -> str | None:
        """Return a note if images are enlarged without being asked for; None otherwise."""
        if asked is not None or self.only is not None or own is None or own == chosen:
            return None
        return (
            f"The images have {own[0]}×{own[1]} pixels and are resized to {chosen[0]}×{chosen[1]}, the smallest size "
            "that the model supports; `cutaway show` lists its settings for small images."
        )

    def enough(self, side: int) -> int:
        """Return the smallest side that the model accepts and that is at least `side`."""
        return -(-max(side, self.least) // self.step) * self.step

    def _reject(self, side: int) -> None:
        if side < self.least or side % self.step:
            multiple = f", a multiple of {self.step}" if self.step > 1 else ""
            raise SettingError(
                f"Invalid image_size={side}: must be at least {self.enough(1)}{multiple} for this model, e.g. "
                f"image_size={self.enough(side)}; `cutaway show` lists settings for small images."
            )


ANY_SIZE = ImageSizes()


@dataclass(frozen=True)
class TextSpec:
    """Token ids, (N, T) int64, with a boolean mask, (N, T), True where a token is real.

    In Cutaway's tokenizers id 0 is padding and id 1 is the unknown token; other tokenizers have their own ids. A text
    may be enclosed by special tokens: `begin` before it and `end` after it.
    """

    kind: ClassVar[str] = "text"
    vocab_size: int  # ids are below this
    longest: int  # tokens of the longest example, including its special tokens
    target: Simple | Tags | NextToken | Masked | Context
    begin: int | None = None  # the special token before each text, if any
    end: int | None = None  # the special token after it, if any

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the longest example: (T,)."""
        return (self.longest,)


@dataclass(frozen=True)
class PairSpec:
    """Pairs of sequences: token ids (N, T) and mask (N, T) of the source, and ids (N, S) of the target so far.

    The target so far starts with its `begin`. At each position the model learns the next token.
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
    """Signals with a time axis, (N, T, F): T steps of F variables, with one target for the whole signal.

    If `known_future` K is not 0, the model also gets K variables known in advance for the H steps to be forecast, (N,
    H, K).
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
    """Audio as frames of a spectrogram, (N, T, F), with a mask, (N, T), True where a frame is real.

    For a spelled transcript, also the ids (N, S) of the transcript so far.
    """

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
    """Graphs: node features x (V, F), and edges from source to target, (2, E) int64.

    With one graph, examples are its nodes, and the model gets the indices of the nodes to predict, (N,). If links are
    the target, examples are pairs of nodes, (N, 2). With `graph_level`, examples are whole graphs, concatenated in a
    batch, and the model gets the graph index of each node, (V,). If `edge_features` D is not 0, it also gets edge
    features, (E, D).
    """

    kind: ClassVar[str] = "graph"
    features: int  # F
    target: Simple | Links
    graph_level: bool = False
    edge_features: int = 0  # D

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one node's features: (F,)."""
        return (self.features,)


Kind = TypeVar("Kind", bound="Spec")
Spec = TableSpec | ImageSpec | TextSpec | PairSpec | SeriesSpec | AudioSpec | VideoSpec | GraphSpec
KINDS: dict[str, type[Spec]] = {
    s.kind: s for s in (TableSpec, ImageSpec, TextSpec, PairSpec, SeriesSpec, AudioSpec, VideoSpec, GraphSpec)
}
OF_TOKENS = (TextSpec.kind, PairSpec.kind)  # kinds of data whose examples are tokens


def _targets(kind: type[Spec]) -> Tagged:
    """Return the schema of the targets that a kind of spec accepts."""
    allowed = get_type_hints(kind)["target"]
    named: dict[str, Any] = {"names": [str, ...]}  # of which the answer is one
    return Tagged(
        "kind",
        {
            name: dataclass_schema(one, **(named if one in (Classes, Tags, Mask, Boxes) else {}))
            for name, one in TARGETS.items()
            if issubclass(one, allowed)
        },
    )


SCHEMA = Tagged("kind", {name: dataclass_schema(kind, target=_targets(kind)) for name, kind in KINDS.items()})
LARGEST = 2**30  # maximum numbers of an example: protects against allocating what a damaged document names

SPECIAL = ("begin", "end", "mask")  # fields that are token ids

# Names of fields before 0.7, in models saved then. To be dropped at 1.0.
RENAMED = {
    "bands": "n_mels",
    "known": "known_future",
    "many": "graph_level",
    "season": "season_length",
    "share": "mask_prob",
    "shared": "joint_vocab",
    "vocabulary": "vocab_size",
}

# Names of kinds of data before 0.7, in runs and models saved then. To be dropped at 1.0.
KINDS_BEFORE = {"pairs": "seq2seq", "sound": "audio"}
TASKS_BEFORE = {"transduction": "sequence-to-sequence"}  # and tasks


def current_kind(kind: Any) -> Any:
    """Return the current name of the kind of data that a document names."""
    return KINDS_BEFORE.get(kind, kind) if isinstance(kind, str) else kind


def to_json(spec: Spec) -> dict[str, Any]:
    """Return the spec as plain JSON values; `from_json` restores an equal spec."""
    kind = next(name for name, target in TARGETS.items() if type(spec.target) is target)
    return {"kind": spec.kind, **asdict(spec), "target": {"kind": kind, **asdict(spec.target)}}


def upgrade_spec(data: Any) -> Any:
    """Return the document of a spec with its current field names; a value that is no object is returned unchanged."""
    if not isinstance(data, dict):
        return data
    found = {RENAMED.get(key, key): value for key, value in data.items()} | {"kind": current_kind(data.get("kind"))}
    if isinstance(target := found.get("target"), dict):
        found["target"] = {RENAMED.get(key, key): value for key, value in target.items()}
    return found


def from_json(data: Any) -> Spec:
    """Restore the spec that `to_json` wrote. Raises ValueError, naming the key, if the document is not a spec."""
    data = upgrade_spec(data)
    if fault := find_mismatch(data, SCHEMA):
        raise ValueError(fault)
    target = from_document(TARGETS[data["target"]["kind"]], data["target"])
    spec = from_document(KINDS[data["kind"]], {**data, "target": target})
    if 0 in spec.shape:
        raise ValueError(f"an example of shape {spec.shape}, which is empty")
    if target.outputs == 0:
        raise ValueError(f"a target of kind {data['target']['kind']} without outputs")
    if math.prod(spec.shape) > LARGEST:
        raise ValueError(f"an example of shape {spec.shape}, which has more than {LARGEST:,} numbers")
    for holder, where in ((spec, ""), (target, "target.")):
        size = getattr(holder, "vocab_size", None)
        for key in SPECIAL:
            token = getattr(holder, key, None)
            if size is not None and token is not None and not 0 <= token < size:
                raise ValueError(f"{where}{key}={token}: must be a token id, from 0 to {size - 1:,}")
    return spec


def validate_scales(mean: list[float], std: list[float], count: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return means and standard deviations as tuples.

    Raises ValueError if there are not `count` of each, or if a standard deviation is not positive.
    """
    if len(mean) != count or len(std) != count or not all(one > 0 for one in std):
        raise ValueError(f"mean and std are not {count} numbers each, with every std above 0")
    return tuple(mean), tuple(std)


def read_spec(data: Any, kind: type[Kind], target: type[Target] | None = None) -> Kind:
    """Restore the spec that `to_json` wrote, of this kind and target. Raises ValueError if it is a different one."""
    spec = from_json(data)
    if not isinstance(spec, kind) or not isinstance(spec.target, target or BaseTarget):
        raise ValueError(f"a spec of kind {spec.kind} for {spec.target.column}")
    return spec
