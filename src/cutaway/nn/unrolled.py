"""A token alone through a block, without calling the block's parts one by one.

A new token asks for little arithmetic: of a small network more time goes into calling modules than into their sums.
Within `Unrolled` a block that is given one token, and the cache of those before it, writes all its parts out in one
function. The operations are those of `Block.forward`, on the same numbers in the same order, so the results are equal
to the last bit; everything else goes through `Block.forward` as ever.

It is for answering, not for learning: dropout is left out, as in evaluation mode. A block keeps to its modules where
somebody listens to one of them by a hook or records its attention, and where one of them is not what it was built with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules import module as everywhere

from .attention import MultiHeadAttention
from .cache import Slot
from .position import Rotation, rotary, rotation
from .transformer import MLP, Block

PARTS = (Block, MultiHeadAttention, MLP, nn.Linear, nn.LayerNorm, nn.RMSNorm, nn.Dropout)
LISTENERS = ("_forward_hooks", "_forward_pre_hooks")
GLOBAL_LISTENERS = (everywhere._global_forward_hooks, everywhere._global_forward_pre_hooks)


class Unrolled:
    """The blocks of a model, and their functions for a token alone, made once for many tokens.

    lean = Unrolled(model)
    with lean():
        logits, cache = model.extend(token, None, cache)
    """

    def __init__(self, model: nn.Module) -> None:
        blocks = [block for block in model.modules() if isinstance(block, Block) and _as_built(block)]
        self.blocks = [(block, _lean(block)) for block in blocks]
        parts = [part for block in blocks for part in block.modules() if part is not block]
        self._listeners = [*GLOBAL_LISTENERS, *(getattr(part, name) for part in parts for name in LISTENERS)]

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Within it the blocks, which must be in evaluation mode, answer a token alone by one function each."""
        lean = self.blocks if not any(self._listeners) else []
        for block, function in lean:
            block.__dict__["forward"] = function
        try:
            yield
        finally:
            for block, _ in lean:
                block.__dict__.pop("forward", None)


def _as_built(block: Block) -> bool:
    """Whether all parts are what the block was built with, and none has a forward of its own."""
    return all(type(part) in PARTS and "forward" not in part.__dict__ for part in block.modules())


def _lean(block: Block) -> Callable[..., Tensor]:
    """`block.forward`, which writes its parts out for a token alone."""
    look, norm1, mlp = _look(block.attention), _norm(block.norm1), _mlp(block.mlp)
    pre, parallel = block.order == "pre", block.order == "parallel"
    norm2 = norm1 if parallel else _norm(block.norm2)
    crosses = hasattr(block, "cross_attention")
    look_over, cross_norm = (_look_over(block.cross_attention), _norm(block.cross_norm)) if crosses else (look, norm1)
    first, second = block.strengths

    def add(x: Tensor, y: Tensor, strength: float) -> Tensor:
        return x + (y if strength == 1.0 else strength * y)

    def forward(
        x: Tensor,
        mask: Tensor | None = None,
        *,
        causal: bool = False,
        cache: Slot | None = None,
        positions: Tensor | Rotation | None = None,
        source: Tensor | None = None,
        source_mask: Tensor | None = None,
        crossing: Slot | None = None,
    ) -> Tensor:
        seen = block.attention.seen is not None or (crosses and block.cross_attention.seen is not None)
        if cache is None or x.shape[1] != 1 or seen or (crosses and (crossing is None or crossing.keys is None)):
            return Block.forward(
                block,
                x,
                mask,
                causal=causal,
                cache=cache,
                positions=positions,
                source=source,
                source_mask=source_mask,
                crossing=crossing,
            )
        if parallel:
            y = norm1(x)
            return add(add(x, look(y, mask, cache, positions), first), mlp(y), second)
        if pre:
            x = add(x, look(norm1(x), mask, cache, positions), first)
            if crosses:
                x = x + look_over(cross_norm(x), source_mask, crossing)
            return add(x, mlp(norm2(x)), second)
        x = norm1(add(x, look(x, mask, cache, positions), first))
        if crosses:
            x = cross_norm(x + look_over(x, source_mask, crossing))
        return norm2(add(x, mlp(x), second))

    return forward


# Parameters are looked up where the modules keep them, each time: who replaces one is answered by the new one.


def _linear(layer: nn.Linear) -> Callable[[Tensor], Tensor]:
    own, linear = layer._parameters, F.linear
    return lambda x: linear(x, own["weight"], own["bias"])  # type: ignore[arg-type]  # a linear layer has a weight


def _norm(layer: nn.Module) -> Callable[[Tensor], Tensor]:
    own: Any = layer._parameters
    shape, eps = list(layer.normalized_shape), layer.eps  # type: ignore[arg-type]  # both norms have them
    if isinstance(layer, nn.RMSNorm):
        return lambda x: torch.rms_norm(x, shape, own["weight"], eps)  # type: ignore[arg-type]
    return lambda x: torch.layer_norm(x, shape, own["weight"], own["bias"], eps)  # type: ignore[arg-type]


def _mlp(layer: MLP) -> Callable[[Tensor], Tensor]:
    fc1, fc2, activation = _linear(layer.fc1), _linear(layer.fc2), layer.activation
    return lambda x: fc2(activation(fc1(x)))


def _look(attention: MultiHeadAttention) -> Callable[..., Tensor]:
    """Attention of a token over those in its cache and itself."""
    qkv, out = _linear(attention.qkv), _linear(attention.out)
    heads, kv_heads, d_k, d_v = attention.heads, attention.kv_heads, attention.key_dim, attention.value_dim
    alike, shared = heads == kv_heads and d_k == d_v, heads != kv_heads
    sizes = [heads * d_k, kv_heads * d_k, kv_heads * d_v]

    def look(x: Tensor, mask: Tensor | None, cache: Slot, positions: Tensor | Rotation | None) -> Tensor:
        n, y = len(x), qkv(x)
        if alike:
            q, k, v = y.view(n, 3, heads, 1, d_k).unbind(1)  # (N, heads, 1, d)
        else:
            q, k, v = torch.split(y, sizes, dim=-1)
            q, k, v = q.view(n, heads, 1, d_k), k.view(n, kv_heads, 1, d_k), v.view(n, kv_heads, 1, d_v)
        if attention.rotates:
            assert positions is not None, "rotary attention needs positions"
            turn = rotation(positions, d_k, q.dtype) if isinstance(positions, Tensor) else positions
            q, k = rotary(q, turn), rotary(k, turn)
        k, v = cache.append(k, v)
        y = F.scaled_dot_product_attention(q, k, v, mask, scale=attention.scale, enable_gqa=shared)
        return out(y.reshape(n, 1, -1))

    return look


def _look_over(attention: MultiHeadAttention) -> Callable[..., Tensor]:
    """Attention of a token over a source whose keys and values are known."""
    ask, out = _linear(attention.q), _linear(attention.out)
    heads, d_k, shared = attention.heads, attention.key_dim, attention.heads != attention.kv_heads

    def look(x: Tensor, mask: Tensor | None, cache: Slot) -> Tensor:
        n = len(x)
        k, v = cache.known()
        q = ask(x).view(n, heads, 1, d_k)
        y = F.scaled_dot_product_attention(q, k, v, mask, scale=attention.scale, enable_gqa=shared)
        return out(y.reshape(n, 1, -1))

    return look
