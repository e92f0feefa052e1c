"""What every encoder–decoder of attention offers beside its forward: a source read once, then token after token.

`transformer.py`, `t5.py` and `bart.py` say how tokens are looked up, where they stand, what the blocks are, and how a
sequence goes through all of them. The rest is here, as it is the same.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ..core.errors import ModelError
from ..core.spec import PairSpec, Spec, Target, Tokens
from ..nn.kv_cache import Cache
from ..nn.masks import real_places, visible
from .base import Network


class EncoderDecoder(Network):
    """Source ids (N, T) and the target so far (N, S) to logits of the tokens that come next, (N, S, vocab_size).

    A network of this kind has `decoder`, a list of blocks with `cross_attention`, and `head`; it writes `encode` and
    `decode`. The source's mask (N, T) is True where a token is real, which it is everywhere where there is none. Of a
    source without a real token the decoder takes nothing: its cross-attention gives 0.
    """

    takes: ClassVar[tuple[type[Spec], ...]] = (PairSpec,)
    targets: ClassVar[tuple[type[Target], ...]] = (Tokens,)
    joint_vocab = True  # data is read with one vocabulary for both sides, unless it is told otherwise
    decoder: nn.ModuleList
    head: nn.Module

    def encode(self, source: Tensor, mask: Tensor | None) -> Tensor:
        """What the encoder makes of source ids (N, T), (N, T, dim); `mask` (N, 1, 1, T) is True where one is real."""
        raise NotImplementedError

    def decode(self, target: Tensor, read: Tensor | None, mask: Tensor | None, cache: Cache | None = None) -> Tensor:
        """What the head sees at each place of the target ids (N, S), (N, S, dim), over what was `read` (N, T, dim) of
        a source with that `mask` (N, 1, 1, T). With a `cache` the ids go on where it ends, and it knows the source."""
        raise NotImplementedError

    def begin(self, source: Tensor, source_mask: Tensor | None = None) -> Cache:
        """Read source ids (N, T): the state for `step`, with the keys and values of every block's cross-attention.

        Raises ModelError for a source without a real token: an answer to nothing is made up.
        """
        source_mask = real_places(source_mask, source.shape)
        if not source.shape[1] or (source_mask is not None and not bool(source_mask.any(1).all())):
            raise ModelError("A source without a single token cannot be read: give at least one.")
        cache = Cache(len(self.decoder), cross_attends=True)
        cache.source_mask = visible(source_mask, causal=False, length=source.shape[1])
        read = self.encode(source, cache.source_mask)  # (N, T, dim)
        for block, kept in zip(self.decoder, cache.cross_layers):
            look: Any = block.cross_attention
            look.split(read[:, :1], read, kept)  # it keeps the keys and values; the query is not used
        return cache

    def step(self, token: Tensor, state: Cache) -> tuple[Tensor, Cache]:
        """Logits of the next token, (N, vocab_size), and the state after `token` (N,)."""
        y = self.decode(token[:, None], None, state.source_mask, state)  # (N, 1, dim)
        return self.head(y[:, 0]), state


def sides(src: Tensor, tgt: Tensor | None, src_mask: Tensor | None) -> tuple[Tensor, Tensor | None, Tensor]:
    """The source, its mask and the target so far, of a call as `model(src, tgt, src_mask)`, or of one with what a batch
    of pairs holds, in its order: source, mask or None, target. Token ids are whole numbers, and no mask."""
    if tgt is None or tgt.dtype == torch.bool or tgt.is_floating_point():
        src_mask, tgt = tgt, src_mask
    if tgt is None:
        raise ModelError("A target so far is needed beside the source: model(src, tgt), with the token that begins it.")
    return src, src_mask, tgt


def placed(target: Tensor, cache: Cache | None) -> tuple[Tensor, Tensor | None, bool]:
    """The positions of target ids (N, S), (S,), and what their attention is told: a mask or None, and whether it is
    causal. With a `cache` they go on where it ends."""
    if cache is None:
        return torch.arange(target.shape[1], device=target.device), None, True
    return cache.read(target)


def reject_apart(name: str, spec: PairSpec) -> None:
    """Raise ModelError for data whose sides have a vocabulary each."""
    if not spec.joint_vocab:
        raise ModelError(
            f"{name} needs one vocabulary for source and target, and the two sides of this data are tokenized "
            "separately. Add tokenizer=bpe, which tokenizes both alike, and leave out joint_vocab=false."
        )
