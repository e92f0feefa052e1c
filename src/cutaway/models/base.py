"""What every model of the catalog offers, and what some can do besides.

A model file has a `Config`, a `Network` under the name `Model`, `PRESETS` and a `CARD`; the registry finds it by these.
Whoever trains, generates or looks inside asks for what stands here, by type: a misspelt hook is an error of the type
checker, and never a hook that nobody calls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fnmatch import fnmatch
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

from torch import Tensor, nn

from ..core.spec import Classes, Spec, Target, Value
from ..nn.kv_cache import Cache


class Dense(NamedTuple):
    """A layer of a fully connected network, by the names of its modules."""

    linear: str
    gives: str  # whose output the next layer sees
    norm: str = ""  # between the linear map and the activation, where there is one
    activation: str = "identity"  # one of nn/activations.py

    @property
    def sums(self) -> str:
        """Whose output the activation sees."""
        return self.norm or self.linear


class TokenGrid(NamedTuple):
    """How the tokens of an image lie: row by row, as its patches or places do, after the first `before` of them."""

    rows: int
    columns: int
    before: int = 0


class SeriesPatches(NamedTuple):
    """How a series is read in patches or steps, each variable by itself or all together."""

    variables: int  # so many are read by themselves, the first ones; 1 where all are read together
    spans: list[tuple[int, int]]  # the first and the last step of each token
    seen: int | None = None  # steps of the window where there are tokens after it, for the steps to be forecast


class Network(nn.Module):
    """A model: `Network(config)` keeps its `config`; `forward` takes plain tensors and gives the head's raw outputs. A
    Config is a `Checked` dataclass with `for_spec(preset, spec)`, the preset fitted to a data set.
    """

    takes: ClassVar[tuple[type[Spec], ...]]  # the kinds of data that it accepts
    targets: ClassVar[tuple[type[Target], ...]] = (Classes, Value)  # what it can learn of them
    features: Callable[..., Tensor]  # as `forward`: what the head sees

    # What training asks.
    loss: ClassVar[str] = ""  # of classes, where the paper has another than cross-entropy
    decayed: ClassVar[tuple[str, ...]] = ("*",)  # patterns of what weight decay is for, of two dimensions or more
    auxiliary_weight: ClassVar[float] = 0.0  # of the loss of each auxiliary head, which answers in training

    # What weights are asked for: the child that is another network but for its head, with that network's Config as its
    # `config`, and the class of that network, whose weights it takes too.
    built_on: ClassVar[tuple[str, type[Network]] | None] = None

    # What data is asked for, unless a person asks otherwise.
    special_tokens: ClassVar[bool] = False  # a text stands between two tokens, [CLS] and [SEP]
    joint_vocab: ClassVar[bool] = False  # one vocabulary for source and target
    edge_attr: ClassVar[bool] = False  # what is known of each edge of a graph, beside that of its nodes

    def output_frames(self, frames: Tensor) -> Tensor:
        """How many frames it answers at, (n,), of recordings of so many frames, (n,): fewer where it takes strides."""
        return frames

    # What attribution asks.
    def explained(self, outputs: Tensor) -> Tensor:
        """What is explained of the outputs of a batch, (N, …) with one number for each answer: of a model that
        answers at every place of an image, one for each class."""
        return outputs

    # What views ask.
    block_passes: int = 1  # how often `forward` runs each of `blocks`
    over_frames: ClassVar[tuple[str, ...]] = ()  # patterns of attention that looks from frame to frame of a video

    def dense_layers(self) -> list[Dense]:
        """The layers of a fully connected network, first to last; none of any other."""
        return []

    def token_grid(self, height: int, width: int) -> TokenGrid | None:
        """How the tokens that the network makes of an image lie, `blocks` giving them where it has some; of a video
        those of a frame."""
        return None

    def series_patches(self) -> SeriesPatches | None:
        """How the network reads a series in patches, where it does, each variable a row of its batches."""
        return None

    def attends_over_frames(self, name: str) -> bool:
        """Whether the attention of that name looks from frame to frame of a video, each place by itself."""
        return any(fnmatch(name, pattern) for pattern in self.over_frames)

    def position_tables(self, places: int) -> dict[str, Tensor]:
        """The vectors that tell places apart, (places, dim) from the first on, by the name of their table: of learned
        tables all, of computed ones as many as asked."""
        embeddings = ((name, module) for name, module in self.named_modules() if isinstance(module, nn.Embedding))
        return {name: module.weight for name, module in embeddings if name.endswith("positions")}

    def initialize_from(self, images: Tensor) -> None:
        """Take what is initialized from data from these training images, (N, C, H, W), before the first step."""

    def constrain(self) -> None:
        """Bring the weights back to where they may be, after each step of the optimizer."""

    def adapt_state(self, tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """The tensors of a file, by name, in the shapes that this network has: positions of another size, for one."""
        return tensors


@runtime_checkable
class Extends(Protocol):
    """A language model that goes on from a KV cache."""

    def extend(
        self, tokens: Tensor, mask: Tensor | None = None, cache: Cache | None = None, *, every: bool = False
    ) -> tuple[Tensor, Cache]:
        """Logits after the last of tokens (N, T), (N, vocab_size), or after `every` one of them, (N, T, vocab_size);
        and the cache that knows them now."""


@runtime_checkable
class Advances(Protocol):
    """A network with a state that is carried from step to step: truncated back-propagation through time."""

    def advance(
        self, x: Tensor, mask: Tensor | None = None, state: tuple[Tensor, ...] | None = None
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Answers at each step of x (N, T), and the state after the last."""


@runtime_checkable
class Decodes(Protocol):
    """An encoder–decoder, which writes a target token by token."""

    def begin(self, source: Tensor, source_mask: Tensor | None = None) -> Any:
        """The state before the first token: the source, ids (N, T) with a mask or images (N, C, H, W), encoded. What
        `forward` takes is the source, its mask where it has one, and the target so far."""

    def step(self, token: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Logits after the token (N,), and the next state."""


@runtime_checkable
class DrawsImages(Protocol):
    """A network that makes images out of noise."""

    def draw(self, noise: Tensor, **process: Any) -> Tensor:
        """Images (N, C, H, W), from −1 to 1, of `noise` of that shape; `process` says how, where it goes step by
        step."""


@runtime_checkable
class Encodes(Protocol):
    """A network that holds an image as a code of few numbers, each with a normal distribution."""

    def encode(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and ln of the variance of the codes of images (N, C, H, W), (N, d) each."""

    def decode(self, z: Tensor) -> Tensor:
        """The images (N, C, H, W), from −1 to 1 as a rule, of codes (N, d)."""


@runtime_checkable
class EncodesPatches(Protocol):
    """A network of images that answers for some of their patches, and computes no others: masked autoencoding."""

    def encode_patches(self, x: Tensor, kept: Tensor) -> Tensor:
        """What leaves the last block of the patches `kept` (N, K) of images (N, C, H, W), by their numbers in the token
        grid: (N, K, D), normalized, with the tokens before those of patches before them."""


@runtime_checkable
class Residual(Protocol):
    """A network of blocks that add what they compute to what comes in."""

    def reduced(self, fraction: float) -> Any:
        """A new one with that fraction of the blocks, narrow, for small RGB images of ten classes."""

    def residual_blocks(self) -> list[nn.Module]:
        """The blocks in the order in which they run: each adds what its module `downsample` makes of its input."""


@runtime_checkable
class Convolves(Protocol):
    """A module that is a convolution of stride 1 without padding, and holds its kernel in a form of its own."""

    def dense_kernel(self) -> Tensor:
        """The kernel (O, C, *size), zeros where there are no weights."""


@runtime_checkable
class ComparesByAddition(Protocol):
    """An attention with the scores vᵀ tanh(q + k), one query a call."""

    def compared(self, *args: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """q (N, d), k (N, S, d), the values (N, S, d_v), the mask (N, S) and v (d,), of what `forward` takes."""


def contract_of(model: nn.Module) -> Network:
    """The model, to be asked for what a Network has; for a module that is none, one that has the defaults."""
    return model if isinstance(model, Network) else Network()
