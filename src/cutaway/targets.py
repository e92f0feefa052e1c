"""What is learned of an example: the words that data sets, models and tasks share. They stand in specs (spec.py)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

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
