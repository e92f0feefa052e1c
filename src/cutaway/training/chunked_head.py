"""Chunked output heads: losses and outputs of token models without holding all logits in memory.

A batch of N texts of T tokens has N·T·V logits: for 8 × 1 024 tokens and a vocabulary of 50 257, 1.6 GB, which the
usual computation holds four times. The input of the head is only D numbers a token, and the loss and its gradients are
computed from them chunk by chunk (`nn.losses.linear_cross_entropy`). Tokens without a target are left out before the
product: 85 % of them in masked language modelling, and the padding of texts of different lengths.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from ..data.dataset_base import IGNORED
from ..models.base import SupportsState
from ..nn.losses import linear_cross_entropy
from ..tasks.language import Language
from ..tasks.sequences import SequenceToSequence
from ..tasks.task import Task

# From this number of logits on (16 MiB of float32) chunks are faster too, as measured on one core.
MIN_CHUNKED_LOGITS = 2**22
LOGITS_PER_CHUNK = 2**23  # logits in a chunk, if it then has at least FEWEST tokens
MIN_CHUNK_TOKENS = 256
ON_GPU = 8  # factor on the tokens of a chunk on a GPU; more take memory and save no time
MAX_EVALUATION_LOGITS = 2**24  # logits held at once in evaluation


class ChunkedHead:
    """Logits of a model at each token of its texts, computed in chunks."""

    def __init__(
        self, features: Callable[..., Tensor], head: nn.Module, task: Language | SequenceToSequence, chunk: int | None
    ) -> None:
        """Initialize from `features`, which returns the input (N, T, D) of `head`. `chunk` is loss_chunk."""
        self.features, self.head, self.task = features, head, task
        self.vocab_size = task.target.outputs
        self.decides = chunk is None
        self.chunk = (
            max(MIN_CHUNK_TOKENS, LOGITS_PER_CHUNK // self.vocab_size) if chunk is None else chunk
        )  # tokens at a time
        self.gpu = False  # use the chunks of a GPU on any device, for a plan

    def should_chunk(self, target: Tensor) -> bool:
        """Return whether to compute the loss for this target (N, T) in chunks.

        It is as `loss_chunk` says or, if that is unset, from MIN_CHUNKED_LOGITS logits on.
        """
        return target.numel() * self.vocab_size >= MIN_CHUNKED_LOGITS if self.decides else self.chunk > 0

    def loss(self, inputs: tuple[Tensor, ...], target: Tensor) -> Tensor:
        """Return the task's loss, (), for `inputs`. Without a mask every position must have a target."""
        target = target.flatten()  # (N·T,)
        # `nonzero` synchronizes with the GPU, so it is called before the GPU is busy.
        real = (target != IGNORED).nonzero()[:, 0] if len(inputs) > 1 else None  # (n,)
        x = self.features(*inputs).flatten(0, 1)  # (N·T, D)
        if real is not None:
            x, target = x[real], target[real]  # (n, D), (n,): the tokens that are learned from
        found = last_layer_inputs(self.head, x)
        if found is None:
            return self.task.loss(self.head(x)[None], target[None])
        chunk = self.chunk * ON_GPU if self.decides and (self.gpu or x.is_cuda) else self.chunk
        return linear_cross_entropy(*found, target, label_smoothing=self.task.label_smoothing, chunk=chunk)

    def outputs(self, inputs: tuple[Tensor, ...]) -> Iterator[tuple[slice, Tensor]]:
        """Yield slices of the texts with their logits (n, T, V)."""
        seen = self.features(*inputs)  # (N, T, D)
        texts = max(1, MAX_EVALUATION_LOGITS // (seen.shape[1] * self.vocab_size))
        for start in range(0, len(seen), texts):
            rows = slice(start, start + texts)
            yield rows, self.head(seen[rows])


def build_chunked_head(
    model: nn.Module, task: Task | None, chunk: int | None = None, compiled: bool = False
) -> ChunkedHead | None:
    """Return the chunked head of the model, if the task predicts tokens and the outputs are `head(features)`.

    The result is None for other models. Recurrent networks are among these: they apply dropout between the two, or
    carry a state.
    """
    whole = hasattr(model, "features") and isinstance(getattr(model, "head", None), nn.Module)
    if not whole or isinstance(model, SupportsState) or not isinstance(task, Language | SequenceToSequence):
        return None
    features: Any = model.features
    return ChunkedHead(torch.compile(features) if compiled else features, model.head, task, chunk)  # type: ignore[arg-type]


def last_layer_inputs(head: nn.Module, x: Tensor) -> tuple[Tensor, Tensor, Tensor | None] | None:
    """Return the input (n, D) of the last layer of a head for x (n, D), and the layer's weight and bias.

    The head must be a linear layer, or have a method `last`. The result is None for others.
    """
    if type(head) is nn.Linear:  # subclasses may compute more
        return x, head.weight, head.bias
    last = getattr(head, "last", None)
    return last(x) if last is not None else None
