"""The base class of attention-based encoder–decoders: encode the source once, then decode token by token.

`transformer.py`, `t5.py` and `bart.py` define the embeddings, the positions, the blocks and the order in which they
run. The shared rest is here.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ..core.errors import ModelError
from ..core.spec import PairSpec, Spec, Target, Tokens
from ..nn.kv_cache import Cache
from ..nn.masks import attention_mask, normalize_padding_mask
from .base import BaseModel


class EncoderDecoder(BaseModel):
    """A network that maps source ids (N, T) and the target so far (N, S) to next-token logits (N, S, vocab_size).

    A subclass has `decoder`, a list of blocks with `cross_attention`, and `head`; it implements `encode` and `decode`.
    The source mask (N, T) is True where a token is real; None means that all are. For a source without real tokens,
    cross-attention returns 0.
    """

    takes: ClassVar[tuple[type[Spec], ...]] = (PairSpec,)
    targets: ClassVar[tuple[type[Target], ...]] = (Tokens,)
    joint_vocab = True  # one vocabulary for source and target by default
    decoder: nn.ModuleList
    head: nn.Module

    def encode(self, source: Tensor, mask: Tensor | None) -> Tensor:
        """Return the encoder output (N, T, dim) of source ids (N, T); `mask` (N, 1, 1, T) is True where a token is
        real.

        """
        raise NotImplementedError

    def decode(self, target: Tensor, read: Tensor | None, mask: Tensor | None, cache: Cache | None = None) -> Tensor:
        """Return the input of the head for target ids (N, S), (N, S, dim).

        `read` (N, T, dim) is the encoder output of a source with that `mask` (N, 1, 1, T). With a `cache`, which holds
        the source, the ids continue after its end.
        """
        raise NotImplementedError

    def begin(self, source: Tensor, source_mask: Tensor | None = None) -> Cache:
        """Encode source ids (N, T) and return the state for `step`: the keys and values of every cross-attention.

        Raises ModelError for a source without a real token, because its answer would be made up.
        """
        source_mask = normalize_padding_mask(source_mask, source.shape)
        if not source.shape[1] or (source_mask is not None and not bool(source_mask.any(1).all())):
            raise ModelError("A source without a single token cannot be read: give at least one.")
        cache = Cache(len(self.decoder), cross_attends=True)
        cache.source_mask = attention_mask(source_mask, causal=False, length=source.shape[1])
        read = self.encode(source, cache.source_mask)  # (N, T, dim)
        for block, kept in zip(self.decoder, cache.cross_layers):
            look: Any = block.cross_attention
            look.split(read[:, :1], read, kept)  # it keeps the keys and values; the query is not used
        return cache

    def step(self, token: Tensor, state: Cache) -> tuple[Tensor, Cache]:
        """Return the logits of the next token, (N, vocab_size), and the state after `token` (N,)."""
        y = self.decode(token[:, None], None, state.source_mask, state)  # (N, 1, dim)
        return self.head(y[:, 0]), state


def parse_forward_args(
    src: Tensor, tgt: Tensor | None, src_mask: Tensor | None
) -> tuple[Tensor, Tensor | None, Tensor]:
    """Return the source, its mask and the target so far from the arguments of `forward`.

    Accepts both `model(src, tgt, src_mask)` and the order of a batch of pairs: source, mask or None, target. Token ids
    are integers, so a mask is recognized by its dtype.
    """
    if tgt is None or tgt.dtype == torch.bool or tgt.is_floating_point():
        src_mask, tgt = tgt, src_mask
    if tgt is None:
        raise ModelError("A target so far is needed beside the source: model(src, tgt), with the token that begins it.")
    return src, src_mask, tgt


def target_positions(target: Tensor, cache: Cache | None) -> tuple[Tensor, Tensor | None, bool]:
    """Return the positions (S,) of target ids (N, S), their attention mask or None, and whether attention is causal.

    With a `cache` the ids continue after its end.
    """
    if cache is None:
        return torch.arange(target.shape[1], device=target.device), None, True
    return cache.read(target)


def require_joint_vocab(name: str, spec: PairSpec) -> None:
    """Raise ModelError for data with separate vocabularies for source and target."""
    if not spec.joint_vocab:
        raise ModelError(
            f"{name} needs one vocabulary for source and target, and the two sides of this data are tokenized "
            "separately. Add tokenizer=bpe, which tokenizes both alike, and leave out joint_vocab=false."
        )
