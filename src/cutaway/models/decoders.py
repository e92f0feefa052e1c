"""What language models with causal blocks share: their fitting to data, initialization, and reading on from a cache.

Padding that stands after what is real is where a causal model never looks. Elsewhere no token looks at it, and
positions are counted over the real ones: either way it changes nothing.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from ..core.errors import ModelError
from ..core.spec import Classes, NextToken, TextSpec, Value
from ..nn.kv_cache import Cache
from ..nn.masks import places_among_real, real_first, real_places, visible
from .base import Network

STD = 0.02  # standard deviation of the initialization
HEADS = ("next", "classes")
FittedConfig = TypeVar("FittedConfig")


def fitted(preset: FittedConfig, spec: TextSpec) -> FittedConfig:
    """A decoder's config with the vocabulary, the length and the target of `spec`: a language model reads as many
    tokens as the texts have, a classifier at least as many."""
    known: Any = preset
    if isinstance(spec.target, NextToken):
        known = dataclasses.replace(known, vocab_size=spec.vocab_size, context_length=spec.longest, head="next")
    else:
        known = dataclasses.replace(
            known,
            vocab_size=spec.vocab_size,
            context_length=max(known.context_length, spec.longest),
            head="classes",
            num_classes=spec.target.outputs,
        )
    fit: FittedConfig = known
    return fit


@torch.no_grad()
def initialize(model: nn.Module, layers: int) -> None:
    """Draw matrices with standard deviation 0.02, and those that a residual branch ends in, of which there are
    2 · `layers`, smaller by the root of that number: their sum keeps its variance. Biases are 0."""
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            nn.init.zeros_(parameter)
        elif parameter.ndim == 2:
            added = name.endswith(("attention.out.weight", "mlp.fc2.weight"))
            nn.init.normal_(parameter, std=STD / math.sqrt(2 * layers) if added else STD)


def last_real(z: Tensor, mask: Tensor | None) -> Tensor:
    """The last real token of each row, (N, dim), of z (N, T, dim). Of a row that has none it is the first."""
    if mask is None:
        return z[:, -1]
    places = torch.arange(mask.shape[1], device=mask.device)
    return z[torch.arange(len(z), device=z.device), (mask * places).amax(1)]


class Decoder(Network):
    """What a language model has beside its forward: `extend`, which reads on from a cache, and where tokens stand.

    A child has a `config` with `context_length` and `layers`, the layer `head`, and `hidden`.
    """

    takes = (TextSpec,)
    targets = (NextToken, Classes, Value)
    limit = "the model reads at most"  # what is said of the context where there are more tokens

    config: Any
    head: nn.Module

    def hidden(self, tokens: Tensor, mask: Tensor | None = None, cache: Cache | None = None) -> Tensor:
        """What leaves the last block, normalized, (N, T, dim). `mask` (N, T) is True where a token is real; with a
        `cache` the tokens go on where it ends. Raises ModelError beyond the context."""
        raise NotImplementedError

    def extend(
        self, tokens: Tensor, mask: Tensor | None = None, cache: Cache | None = None, *, every: bool = False
    ) -> tuple[Tensor, Cache]:
        """Logits of the token after the last real one of each row, (N, vocab_size), or after `every` one, (N, T,
        vocab_size), and the cache, which knows `tokens` (N, T) now. Without a cache the tokens are the beginning."""
        mask = real_places(mask, tokens.shape)
        if cache is None:
            cache = Cache(self.config.layers, self.config.context_length)
        z = self.hidden(tokens, mask, cache)
        return self.head(z if every else last_real(z, mask)), cache

    def place(self, tokens: Tensor, mask: Tensor | None, cache: Cache | None) -> tuple[Tensor, Tensor | None, bool]:
        """The positions of the tokens, (T,) or (N, T), and what their attention is told: a mask or none, and whether it
        is causal. Raises ModelError beyond the context."""
        length, context = tokens.shape[1] if cache is None else cache.longest(tokens), self.config.context_length
        if length > context:
            raise ModelError(
                f"{self.limit} {context:,} tokens, and these are {length:,}: give fewer, or a larger "
                "model.context_length in training."
            )
        mask = real_places(mask, tokens.shape)
        if cache is not None:
            return cache.read(tokens, mask)
        if mask is None or real_first(mask):  # no token looks past itself, where padding stands
            return torch.arange(tokens.shape[1], device=tokens.device), None, True
        return places_among_real(mask), visible(mask, causal=True, length=tokens.shape[1]), False
