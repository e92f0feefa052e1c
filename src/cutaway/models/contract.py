"""What every model of the catalog offers, and what some can do besides.

A model file has a `Config`, a `Network` under the name `Model`, `PRESETS` and a `CARD`; the registry finds it by these.
Whoever trains, generates or looks inside asks for what stands here, by type: a misspelt hook is an error of the type
checker, and never a hook that nobody calls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Protocol, runtime_checkable

from torch import Tensor, nn

from ..nn.cache import Cache
from ..spec import Classes, Spec, Target, Value


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

    # What data is asked for, unless a person asks otherwise.
    special_tokens: ClassVar[bool] = False  # a text stands between two tokens, [CLS] and [SEP]
    joint_vocab: ClassVar[bool] = False  # one vocabulary for source and target

    def initialize_from(self, images: Tensor) -> None:
        """Take what is initialized from data from these training images, before the first step."""

    def constrain(self) -> None:
        """Bring the weights back to where they may be, after each step of the optimizer."""

    def adapt_state(self, tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """The tensors of a file as this network can take them: positions of another size, for one."""
        return tensors


@runtime_checkable
class Extends(Protocol):
    """A language model that goes on from a KV cache."""

    def extend(self, tokens: Tensor, mask: Tensor | None = None, cache: Cache | None = None) -> tuple[Tensor, Cache]:
        """Logits after the last token (N, vocab_size) of tokens (N, T), and the cache that knows them now."""


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
        """The state before the first token: the source (N, T), encoded."""

    def step(self, token: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Logits after the token (N,), and the next state."""


def contract_of(model: nn.Module) -> Network:
    """The model, to be asked for what a Network has; for a module that is none, one that has the defaults."""
    return model if isinstance(model, Network) else Network()
