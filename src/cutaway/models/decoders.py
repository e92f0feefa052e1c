"""Shared parts of causal language models: config fitting, initialization, and decoding from a KV cache.

Right padding is never attended to, because attention is causal. Other padding is masked, and positions count real
tokens only. Either way padding does not change the result.
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
from ..nn.masks import attention_mask, is_right_padded, normalize_padding_mask, position_ids
from .base import BaseModel

STD = 0.02  # standard deviation of the initialization
HEADS = ("next", "classes")
FittedConfig = TypeVar("FittedConfig")


def config_for_data(preset: FittedConfig, spec: TextSpec) -> FittedConfig:
    """Return a decoder's config with the vocabulary, the length and the target of `spec`.

    The context of a language model is as long as the texts; that of a classifier is at least as long.
    """
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
    """Initialize matrices with standard deviation 0.02 and biases with 0.

    The 2 · `layers` matrices that end a residual branch are scaled by 1/√(2 · layers), so that the variance of their
    sum stays the same.
    """
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            nn.init.zeros_(parameter)
        elif parameter.ndim == 2:
            added = name.endswith(("attention.out.weight", "mlp.fc2.weight"))
            nn.init.normal_(parameter, std=STD / math.sqrt(2 * layers) if added else STD)


def last_token(z: Tensor, mask: Tensor | None) -> Tensor:
    """Return the last real token of each row, (N, dim), of z (N, T, dim); the first token if none is real."""
    if mask is None:
        return z[:, -1]
    places = torch.arange(mask.shape[1], device=mask.device)
    return z[torch.arange(len(z), device=z.device), (mask * places).amax(1)]


class Decoder(BaseModel):
    """The base class of causal language models: `extend`, which continues from a cache, and positions.

    A subclass has a `config` with `context_length` and `layers`, the layer `head`, and `hidden`.
    """

    takes = (TextSpec,)
    targets = (NextToken, Classes, Value)
    context_message = "the model reads at most"  # start of the error message

    config: Any
    head: nn.Module

    def hidden(self, tokens: Tensor, mask: Tensor | None = None, cache: Cache | None = None) -> Tensor:
        """Return the normalized output of the last block, (N, T, dim).

        `mask` (N, T) is True where a token is real. With a `cache` the tokens continue after its end. Raises ModelError
        if the context is exceeded.
        """
        raise NotImplementedError

    def extend(
        self, tokens: Tensor, mask: Tensor | None = None, cache: Cache | None = None, *, every: bool = False
    ) -> tuple[Tensor, Cache]:
        """Return the logits of the next token and the updated cache.

        Args:
            tokens: Token ids, shape (N, T). With a cache they continue after its end, else they are the beginning.
            mask: True where a token is real, shape (N, T); None if all are.
            cache: The keys and values of earlier tokens.
            every: Return logits after every token and not only after the last real one.

        Returns:
            Logits, shape (N, vocab_size), or (N, T, vocab_size) with `every`, and the cache.
        """
        mask = normalize_padding_mask(mask, tokens.shape)
        if cache is None:
            cache = Cache(self.config.layers, self.config.context_length)
        z = self.hidden(tokens, mask, cache)
        return self.head(z if every else last_token(z, mask)), cache

    def position_ids_and_mask(
        self, tokens: Tensor, mask: Tensor | None, cache: Cache | None
    ) -> tuple[Tensor, Tensor | None, bool]:
        """Return the positions of the tokens, (T,) or (N, T), their attention mask or None, and whether attention is
        causal.

        Raises ModelError if the context is exceeded.
        """
        length, context = tokens.shape[1] if cache is None else cache.longest(tokens), self.config.context_length
        if length > context:
            raise ModelError(
                f"{self.context_message} {context:,} tokens, and these are {length:,}: give fewer, or a larger "
                "model.context_length in training."
            )
        mask = normalize_padding_mask(mask, tokens.shape)
        if cache is not None:
            return cache.read(tokens, mask)
        if mask is None or is_right_padded(mask):  # causal attention never reaches right padding
            return torch.arange(tokens.shape[1], device=tokens.device), None, True
        return position_ids(mask), attention_mask(mask, causal=True, length=tokens.shape[1]), False
