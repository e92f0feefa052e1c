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
    """Base class of targets.

    `order` and `written` are attributes of the class: the order by which examples are split, and whether the model
    generates the answer token by token.

    Example:
        >>> Value().classes, Classes(("no", "yes")).classes
        ((), ('no', 'yes'))
        >>> NextToken(100).order, Tokens(100, begin=2, end=3, longest=20).written
        ('position in the text', True)
    """

    order: ClassVar[str] = ""  # the order by which examples are split, such as "time"; empty for a random split
    written: ClassVar[bool] = False  # whether the answer is a sequence that the model generates

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes; empty if the target has no classes."""
        return ()


@dataclass(frozen=True)
class Classes(BaseTarget):
    """A class, one of `names`. In tensors it is its index k, int64.

    Example:
        >>> target = Classes(("no", "yes"), column="survived")
        >>> target.outputs, target.accepts_one_logit
        (2, True)
    """

    cells: ClassVar[str] = "category"  # the type of the table column that holds the target
    names: tuple[str, ...]  # the classes in the order of their indices
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
        """True for two classes: the head may have a single output, the logit of the second."""
        return len(self.names) == 2


@dataclass(frozen=True)
class Value(BaseTarget):
    """A number. The model learns the standardized value, (value − mean) / scale.

    Example:
        >>> target = Value("price", mean=200.0, scale=50.0)
        >>> output = 1.5  # of the model, for one example
        >>> target.outputs, output * target.scale + target.mean
        (1, 275.0)
    """

    cells: ClassVar[str] = "number"  # the type of the table column that holds the target
    column: str = "value"  # the name of the target in the data
    mean: float = 0.0  # mean of the training split, in the units of the data
    scale: float = 1.0  # standard deviation of the training split, in the units of the data

    @property
    def outputs(self) -> int:
        """Number of outputs of the model's head: one."""
        return 1


@dataclass(frozen=True)
class Tags(BaseTarget):
    """A tag for each token, one of `names`.

    Example:
        >>> target = Tags(("O", "B-PER", "I-PER"))
        >>> target.outputs  # the model returns (N, T, 3)
        3
    """

    names: tuple[str, ...]  # the tags in the order of their indices
    column: str = "tag"  # the name of the target in the data

    @property
    def outputs(self) -> int:
        """Number of outputs of the model's head per token: one per tag."""
        return len(self.names)


@dataclass(frozen=True)
class Mask(BaseTarget):
    """A class for each pixel of an image, one of `names`, or `ignored` for a pixel without a label.

    Example:
        >>> target = Mask(("background", "cell"))
        >>> target.outputs, target.ignored  # the model returns (N, 2, H, W)
        (2, 255)
    """

    names: tuple[str, ...]  # the classes in the order of their indices; the background first
    column: str = "mask"  # the name of the target in the data
    ignored: int = 255  # the value of pixels without a label, which are left out of the loss and the metrics

    @property
    def outputs(self) -> int:
        """Number of outputs of the model's head per pixel: one per class."""
        return len(self.names)


class TokenTarget(BaseTarget):
    """Base class of targets that are tokens.

    Example:
        >>> isinstance(Masked(100, mask=4), TokenTarget), Masked(100, mask=4).outputs
        (True, 100)
    """

    vocab_size: int  # number of tokens; ids are below this

    @property
    def outputs(self) -> int:
        """Number of outputs of the model's head per token: the size of the vocabulary."""
        return self.vocab_size


@dataclass(frozen=True)
class NextToken(TokenTarget):
    """The token after each token, for language modelling.

    Example:
        >>> target = NextToken(vocab_size=50_257)
        >>> target.outputs  # the model returns (N, T, 50257)
        50257
    """

    order: ClassVar[str] = PLACE
    vocab_size: int  # number of tokens; ids are below this
    column: str = "next token"  # the name of the target in messages


@dataclass(frozen=True)
class Solution(NextToken):
    """The solution of a problem, which the model writes token by token after the question.

    Example:
        >>> target = Solution(40, problem="countdown", forms=("steps", "tree"))
        >>> target.outputs, target.forms[0]  # the form of the solutions in an evaluation
        (40, 'steps')
    """

    order: ClassVar[str] = ""
    column: str = "solution"  # the name of the target in messages
    problem: str = ""  # the kind of problem
    forms: tuple[str, ...] = ()  # the forms in which solutions are written; evaluation uses the first one
    end: int = 2  # id of the token that ends a solution


@dataclass(frozen=True)
class Masked(TokenTarget):
    """The tokens that masked-language modelling hides.

    Example:
        >>> target = Masked(vocab_size=30_522, mask=103)
        >>> target.outputs, target.mask_prob
        (30522, 0.15)
    """

    order: ClassVar[str] = PLACE
    vocab_size: int  # number of tokens; ids are below this
    mask: int  # id of the token that replaces a hidden token
    column: str = "masked token"  # the name of the target in messages
    mask_prob: float = 0.15  # the fraction of the tokens that are predicted


@dataclass(frozen=True)
class Context(TokenTarget):
    """The words around each word, for training word vectors.

    Example:
        >>> Context(vocab_size=10_000, window=2).outputs
        10000
    """

    order: ClassVar[str] = PLACE
    vocab_size: int  # number of words, with padding and the unknown word; ids are below this
    column: str = "context"  # the name of the target in messages
    window: int = 5  # largest distance of a context word, in words on either side


@dataclass(frozen=True)
class Tokens(TokenTarget):
    """A sequence of tokens, such as a translation, which the model writes after `begin` and ends with `end`.

    Example:
        >>> target = Tokens(8000, begin=2, end=3, longest=40, column="german")
        >>> target.outputs, target.padding  # the model returns (N, S, 8000)
        (8000, 0)
    """

    written: ClassVar[bool] = True
    vocab_size: int  # number of tokens; ids are below this
    begin: int  # id of the token before the first one
    end: int  # id of the token after the last one
    longest: int  # tokens of the longest target in training, with `end` and without `begin`
    column: str = "target"  # the name of the target in the data
    padding: int = 0  # id of padding, which is never an answer
    unknown: int | None = 1  # id of the unknown token; None if every text can be encoded
    sentences: bool = False  # whether targets are sentences, whose words are separated by blanks
    lower: bool = False  # whether targets are in lower case


@dataclass(frozen=True)
class Horizon(BaseTarget):
    """The next steps of a series: `steps` steps of each of `columns`, each learned as (value − mean) / scale.

    Example:
        >>> target = Horizon(24, ("load", "price"), mean=(50.0, 30.0), scale=(10.0, 5.0), season_length=24)
        >>> target.outputs, target.column
        (48, 'load, price')
    """

    order: ClassVar[str] = "time"
    steps: int  # number of steps to forecast, H
    columns: tuple[str, ...]  # the forecast variables
    mean: tuple[float, ...]  # mean of each column over the training steps
    scale: tuple[float, ...]  # standard deviation of each column over the training steps
    season_length: int = 1  # steps of one season; the seasonal naive baseline repeats the last season
    naive: tuple[float, ...] = ()  # scaled seasonal naive error of each column in training, for MASE; empty if unknown
    series: tuple[str, ...] = ()  # the names of several series; each has its own scale, so mean is 0 and scale 1 here

    @property
    def column(self) -> str:
        """The names of the columns, separated by commas."""
        return ", ".join(self.columns)

    @property
    def outputs(self) -> int:
        """Number of outputs of the model's head: one per step and column, step after step."""
        return self.steps * len(self.columns)


@dataclass(frozen=True)
class GeneratedImage(BaseTarget):
    """Base class of the targets of generative models, which learn the distribution of the images.

    Example:
        >>> target = Noise(names=("cat", "dog"), size=3 * 32 * 32)
        >>> isinstance(target, GeneratedImage), target.classes
        (True, ())
    """

    names: tuple[str, ...] = ()  # the classes on which images are conditioned; empty without classes
    size: int = 1  # number of values of an image, C · H · W


@dataclass(frozen=True)
class Image(GeneratedImage):
    """The image itself, learned by the evidence lower bound (ELBO), for variational autoencoders.

    Example:
        >>> Image(size=28 * 28).outputs  # the reconstruction and the KL term
        2
    """

    column: str = "image"  # the name of the target in messages

    @property
    def outputs(self) -> int:
        """Number of outputs of the model: the two terms of the bound."""
        return 2


@dataclass(frozen=True)
class Noise(GeneratedImage):
    """The noise that was added to the image, for diffusion models.

    Example:
        >>> Noise(size=3 * 32 * 32).outputs
        3072
    """

    column: str = "noise in the image"  # the name of the target in messages

    @property
    def outputs(self) -> int:
        """Number of outputs of the model's head: one per value of the image."""
        return self.size


@dataclass(frozen=True)
class ImageTokens(GeneratedImage):
    """The image as one token for each pixel in row-major order, each predicted from the tokens before it.

    A token is the index of the nearest colour of a palette of k colours. The first input is a start token: k + c for
    class c of K classes, or k + K for no class. A caption stands before the start token, padded to the longest caption;
    its words have ids above k + K.

    Example:
        >>> target = ImageTokens(names=("cat", "dog"), cells=(1,) * 16, words=10, caption=4)
        >>> target.outputs, target.no_class, target.prefix, target.vocab_size
        (16, 18, 5, 29)
    """

    column: str = "image tokens"  # the name of the target in messages
    cells: tuple[int, ...] = (1,)  # number of pixel values that each colour of the palette replaces
    words: int = 0  # size of the vocabulary of captions, with padding; 0 without captions
    caption: int = 0  # number of tokens of the longest caption

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
    """Base class of the targets of self-supervised learning, which needs no labels.

    Example:
        >>> isinstance(Views(("cat", "dog")), Unlabelled), Views(dim=64).outputs
        (True, 64)
    """

    names: tuple[str, ...] = ()  # the classes by which the learned features are evaluated; empty without classes
    dim: int = 128  # dimension of the embedding that the head returns

    @property
    def outputs(self) -> int:
        """Number of outputs of the model's head: the dimension of the embedding."""
        return self.dim


@dataclass(frozen=True)
class Views(Unlabelled):
    """Two augmented views of an image or a series, which the model matches by their embeddings (SimCLR).

    Example:
        >>> target = Views(names=("cat", "dog"), dim=128)
        >>> target.outputs, target.column
        (128, 'views')
    """

    column: str = "views"  # the name of the target in messages


@dataclass(frozen=True)
class Patches(Unlabelled):
    """The masked patches of an image, predicted from the other patches (masked autoencoders).

    The head returns the inputs of the decoder, one vector of `dim` numbers for each patch.

    Example:
        >>> Patches(dim=256).outputs
        256
    """

    column: str = "masked patches"  # the name of the target in messages


@dataclass(frozen=True)
class Episodes(BaseTarget):
    """Few-shot learning: one of `ways` classes, of each of which the model gets `shots` labelled examples.

    One example of the data is an episode: the support set, class by class, followed by `queries` examples of each
    class, which are predicted. With `ways=0` an episode is a function: the model gets its values at `shots` points, and
    predicts those at `queries` points.

    Example:
        >>> target = Episodes(ways=5, shots=1, queries=15)
        >>> target.outputs, target.support, target.size
        (5, 5, 80)
    """

    ways: int  # classes of an episode; 0 for functions
    shots: int  # labelled examples of each class
    queries: int  # predicted examples of each class
    inner_lr: float | None = None  # learning rate on the support set (MAML); None compares features (prototypes)
    inner_steps: int = 1  # gradient steps on the support set
    column: str = "class in an episode"  # the name of the target in messages

    @property
    def outputs(self) -> int:
        """Number of outputs of the model's head: one per class, or one for functions."""
        return self.ways or 1

    @property
    def support(self) -> int:
        """Number of labelled examples in an episode."""
        return self.outputs * self.shots

    @property
    def size(self) -> int:
        """Number of examples in an episode, labelled and predicted."""
        return self.outputs * (self.shots + self.queries)


@dataclass(frozen=True)
class Transcript(BaseTarget):
    """A transcript as characters, learned by connectionist temporal classification (CTC).

    Token k + 1 is `alphabet[k]`, and token 0 is the blank of CTC.

    Example:
        >>> target = Transcript(tuple(" abc"))
        >>> target.outputs  # the model returns (N, T, 5)
        5
    """

    written: ClassVar[bool] = True
    alphabet: tuple[str, ...]  # the characters of the training transcripts, in the order of their code points
    column: str = "transcript"  # the name of the target in the data
    lower: bool = False  # whether transcripts are in lower case

    @property
    def outputs(self) -> int:
        """Number of outputs of the model's head per frame: one per character, after one for the blank."""
        return 1 + len(self.alphabet)


@dataclass(frozen=True)
class Spelled(Transcript):
    """A transcript as characters, each predicted from the audio and the characters before it.

    Token k + 1 is `alphabet[k]`. Token 0 stands before the first character and after the last one.

    Example:
        >>> target = Spelled(tuple(" abc"), longest=20)
        >>> target.tokens.vocab_size, target.tokens.begin, target.tokens.end
        (5, 0, 0)
    """

    longest: int = 1  # tokens of the longest transcript in training, with the end

    @property
    def tokens(self) -> Tokens:
        """The same target as a sequence of tokens."""
        return Tokens(self.outputs, begin=0, end=0, longest=self.longest, column=self.column, unknown=None)


@dataclass(frozen=True)
class Boxes(BaseTarget):
    """The objects in an image: the bounding box of each, and its class, one of `names`.

    Example:
        >>> Boxes(("cat", "dog"), most=12).outputs
        2
    """

    names: tuple[str, ...]  # the classes in the order of their indices
    most: int = 1  # largest number of boxes in a training image
    column: str = "boxes"  # the name of the target in the data

    @property
    def outputs(self) -> int:
        """Number of logits of the model's head per location: one per class."""
        return len(self.names)


@dataclass(frozen=True)
class Links(BaseTarget):
    """The presence of a link between two nodes of a graph, for link prediction.

    Example:
        >>> Links().names, Links().outputs
        (('no link', 'link'), 1)
    """

    names: tuple[str, ...] = ("no link", "link")  # the names of the two answers
    column: str = "link"  # the name of the target in messages

    @property
    def outputs(self) -> int:
        """Number of outputs of the model for a pair of nodes: one, the logit of a link between them."""
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
    """Rows of a table after preprocessing, (N, F).

    Example:
        >>> spec = TableSpec(("age", "sex=female", "sex=male"), Classes(("no", "yes"), "survived"))
        >>> spec.shape, spec.kind, spec.target.outputs
        ((3,), 'table', 2)
    """

    kind: ClassVar[str] = "table"  # the kind of data
    columns: tuple[str, ...]  # a name for each of the F numbers
    target: Simple | Episodes  # the target of a row

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one example: (F,)."""
        return (len(self.columns),)


@dataclass(frozen=True)
class ImageSpec:
    """Images, (N, C, H, W). If the target is a caption, the model also gets the ids of the caption so far, (N, S).

    Example:
        >>> spec = ImageSpec(channels=3, height=32, width=32, target=Classes(("cat", "dog")))
        >>> spec.shape
        (3, 32, 32)
    """

    kind: ClassVar[str] = "image"  # the kind of data
    channels: int  # C
    height: int  # H, in pixels
    width: int  # W, in pixels
    target: OfWhole | Mask | Boxes | Tokens  # the target of an image

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one example: (C, H, W)."""
        return (self.channels, self.height, self.width)


@dataclass(frozen=True)
class ImageSizes:
    """Image sizes that a model accepts, in pixels. Data is resized to one of them before the model is adapted to it."""

    only: int | None = None  # height and width of the only accepted size; None if there are several
    least: int = 1  # the smallest accepted height and width
    step: int = 1  # heights and widths are multiples of this
    usual: int = 224  # height and width to which images of several sizes are resized

    def choose(self, asked: int | None, own: tuple[int, int] | None) -> tuple[int, int]:
        """Return the height and width to which images are resized.

        This is the size `asked` for, or else the only size of the model, or else the images' own size, enlarged if it
        is too small. Images of several sizes get the usual size. Raises SettingError if the model does not accept
        `asked`.
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
    """Texts as token ids, (N, T) int64, with a boolean mask, (N, T), True where a token is valid.

    Tokenizers fitted by Cutaway use id 0 for padding and id 1 for unknown tokens. Pretrained tokenizers have their own
    ids.

    Example:
        >>> spec = TextSpec(vocab_size=5000, longest=128, target=Classes(("negative", "positive")))
        >>> spec.shape
        (128,)
    """

    kind: ClassVar[str] = "text"  # the kind of data
    vocab_size: int  # number of tokens; ids are below this
    longest: int  # tokens of the longest example, T, with its special tokens
    target: Simple | Tags | NextToken | Masked | Context  # the target of a text or of its tokens
    begin: int | None = None  # id of the special token before each text, such as [CLS]; None for none
    end: int | None = None  # id of the special token after each text, such as [SEP]; None for none

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the longest example: (T,)."""
        return (self.longest,)


@dataclass(frozen=True)
class PairSpec:
    """Pairs of sequences: ids (N, T) and mask (N, T) of the source, and ids (N, S) of the target so far.

    The target so far starts with the token `target.begin`. At each of its positions the model predicts the next token.

    Example:
        >>> target = Tokens(8000, begin=2, end=3, longest=40)
        >>> spec = PairSpec(vocab_size=6000, longest=50, target=target)
        >>> spec.shape, spec.target.outputs
        ((50,), 8000)
    """

    kind: ClassVar[str] = "seq2seq"  # the kind of data
    vocab_size: int  # number of tokens of the source; its ids are below this
    longest: int  # tokens of the longest source in training, T
    target: Tokens  # the target sequence
    joint_vocab: bool = False  # whether source and target share one vocabulary

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the longest source: (T,)."""
        return (self.longest,)


@dataclass(frozen=True)
class SeriesSpec:
    """Time series, (N, T, F): T steps of F variables.

    If `known_future` is K > 0, the model also gets the K variables that are known in advance, such as the weekday, for
    the H steps of the forecast, (N, H, K).

    Example:
        >>> target = Horizon(24, ("load",), mean=(50.0,), scale=(10.0,))
        >>> spec = SeriesSpec(steps=168, features=3, target=target)
        >>> spec.shape, spec.target.outputs
        ((168, 3), 24)
    """

    kind: ClassVar[str] = "series"  # the kind of data
    steps: int  # T
    features: int  # F
    target: Simple | Horizon | Views  # the target of a series: a class, a value, or its next steps
    known_future: int = 0  # K, the number of variables that are known in advance

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one example: (T, F)."""
        return (self.steps, self.features)


@dataclass(frozen=True)
class AudioSpec:
    """Audio as frames of a mel spectrogram, (N, T, F), with a mask, (N, T), True where a frame is valid.

    If the target is `Spelled`, the model also gets the ids of the transcript so far, (N, S).

    Example:
        >>> spec = AudioSpec(frames=400, n_mels=80, target=Transcript(tuple(" abc")))
        >>> spec.shape
        (400, 80)
    """

    kind: ClassVar[str] = "audio"  # the kind of data
    frames: int  # frames of the longest recording in training, T
    n_mels: int  # frequency bands of each frame, F
    target: Simple | Transcript  # the target of a recording

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the longest example: (T, F)."""
        return (self.frames, self.n_mels)


@dataclass(frozen=True)
class VideoSpec:
    """Videos, (N, T, C, H, W), with a mask, (N, T), True where a frame is valid.

    Example:
        >>> VideoSpec(frames=16, channels=3, height=64, width=64, target=Classes(("run", "walk"))).shape
        (16, 3, 64, 64)
    """

    kind: ClassVar[str] = "video"  # the kind of data
    frames: int  # frames of the longest video that the model gets, T
    channels: int  # C
    height: int  # H, in pixels
    width: int  # W, in pixels
    target: Simple  # the target of a video

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the longest example: (T, C, H, W)."""
        return (self.frames, self.channels, self.height, self.width)


@dataclass(frozen=True)
class GraphSpec:
    """Graphs: node features, (V, F), and edges from source to target, (2, E) int64.

    By default the data is one graph and its nodes are the examples; the model also gets the indices of the nodes to
    predict, (N,). If the target is `Links`, the examples are pairs of nodes, (N, 2). With `graph_level`, the examples
    are whole graphs, which are concatenated in a batch; the model also gets the graph of each node, (V,). If
    `edge_features` is D > 0, the model also gets the features of the edges, (E, D).

    Example:
        >>> spec = GraphSpec(features=1433, target=Classes(("theory", "practice")))
        >>> spec.shape, spec.graph_level
        ((1433,), False)
    """

    kind: ClassVar[str] = "graph"  # the kind of data
    features: int  # number of features of a node, F
    target: Simple | Links  # the target of a node, a graph or a pair of nodes
    graph_level: bool = False  # whether the examples are whole graphs
    edge_features: int = 0  # number of features of an edge, D

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
    """Return a spec as a JSON document.

    Args:
        spec: The spec.

    Returns:
        A dictionary of JSON values, from which `from_json` restores an equal spec.

    Example:
        >>> to_json(TableSpec(("age",), Value("price")))["target"]
        {'kind': 'value', 'column': 'price', 'mean': 0.0, 'scale': 1.0}
    """
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
    """Restore a spec from a JSON document.

    Args:
        data: A document of `to_json`, also of an earlier version of Cutaway.

    Returns:
        The spec.

    Raises:
        ValueError: If the document is not a spec, if its examples or outputs are empty, or if a token id is not in the
            vocabulary. The message names the key.

    Example:
        >>> spec = TableSpec(("age",), Value("price"))
        >>> from_json(to_json(spec)) == spec
        True
        >>> from_json({"kind": "table"})
        Traceback (most recent call last):
        ValueError: columns is missing
    """
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
