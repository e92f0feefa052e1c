"""Fast path for a single token through a block, without calls of the block's modules.

A new token needs little arithmetic. In a small network, calling modules takes more time than computing. Within
`DecodeFastPath`, a block's forward runs with plain functions instead of the block's modules. The functions perform the
same operations on the same numbers in the same order, so the results are bit-identical.

The fast path is for inference, not for training: dropout is skipped, as in evaluation mode. A block keeps its modules
where one of them has a hook or is not of the type that it was built with. So does attention that is being recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules import module as everywhere

from .attention import LinearNoKeyBias, MultiHeadAttention
from .kv_cache import LayerCache
from .position import Rotation, rotary, rotation
from .transformer import MLP, is_block

LISTENERS = ("_forward_hooks", "_forward_pre_hooks")
GLOBAL_LISTENERS = (everywhere._global_forward_hooks, everywhere._global_forward_pre_hooks)


class DecodeFastPath:
    """The blocks of a model and their single-token functions, built once for many tokens.

    lean = DecodeFastPath(model)
    with lean():
        logits, cache = model.extend(token, None, cache)
    """

    def __init__(self, model: nn.Module) -> None:
        blocks = [block for block in model.modules() if is_block(block) and _as_built(block)]
        self.blocks = [(block, partial(type(block).forward, _Parts(block))) for block in blocks]
        parts = [part for block in blocks for part in block.modules() if part is not block]
        self._listeners = [*GLOBAL_LISTENERS, *(getattr(part, name) for part in parts for name in LISTENERS)]

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Run the blocks, which must be in evaluation mode, as functions within the context."""
        lean = self.blocks if not any(self._listeners) else []
        for block, function in lean:
            block.__dict__["forward"] = function
        try:
            yield
        finally:
            for block, _ in lean:
                block.__dict__.pop("forward", None)


class _Parts:
    """A stand-in for a block in its own forward: its modules are functions, all else is the block's."""

    def __init__(self, block: nn.Module) -> None:
        self.__dict__ = {name: _function(part)(part) for name, part in block.named_children()}
        self._block = block

    def __getattr__(self, name: str) -> Any:
        return getattr(self._block, name)


def _as_built(block: nn.Module) -> bool:
    """Return whether every module has a function and none has a custom forward."""
    _, *parts = block.modules()
    return all(_function(part) is not None for part in parts) and all(
        "forward" not in m.__dict__ for m in block.modules()
    )


# Parameters are looked up in the modules on each call, so that a replaced parameter takes effect.


def _linear(layer: nn.Linear) -> Callable[[Tensor], Tensor]:
    own, linear = layer._parameters, F.linear
    return lambda x: linear(x, own["weight"], own["bias"])  # type: ignore[arg-type]  # a linear layer has a weight


def _layer_norm(layer: nn.LayerNorm) -> Callable[[Tensor], Tensor]:
    own, shape, eps = layer._parameters, list(layer.normalized_shape), layer.eps
    return lambda x: torch.layer_norm(x, shape, own["weight"], own["bias"], eps)


def _rms_norm(layer: nn.RMSNorm) -> Callable[[Tensor], Tensor]:
    own, shape, eps = layer._parameters, list(layer.normalized_shape), layer.eps
    return lambda x: torch.rms_norm(x, shape, own["weight"], eps)


def _dropout(layer: nn.Dropout | nn.Identity) -> Callable[[Tensor], Tensor]:
    return lambda x: x


def _mlp(layer: MLP) -> Callable[[Tensor], Tensor]:
    fc1, fc2, activation = _linear(layer.fc1), _linear(layer.fc2), layer.activation
    return lambda x: fc2(activation(fc1(x)))


def _attention(attention: MultiHeadAttention) -> Callable[..., Tensor]:
    """Return the function for one token that attends over its cache and itself, or over a cached source.

    All other calls go through the module.
    """
    cross_attends, heads, kv_heads = attention.cross_attends, attention.heads, attention.kv_heads
    d_k, d_v = attention.key_dim, attention.value_dim
    first = attention.q if cross_attends else attention.qkv
    project, out = FUNCTIONS[type(first)](first), _linear(attention.out)
    alike, shared = heads == kv_heads and d_k == d_v, heads != kv_heads
    sizes = [heads * d_k, kv_heads * d_k, kv_heads * d_v]

    def look(
        x: Tensor,
        source: Tensor | None = None,
        *,
        mask: Tensor | None = None,
        causal: bool = False,
        cache: LayerCache | None = None,
        positions: Tensor | Rotation | None = None,
    ) -> Tensor:
        if cache is None or x.shape[1] != 1 or attention.seen is not None or (cross_attends and cache.keys is None):
            given = (x,) if source is None else (x, source)
            more = {} if positions is None else {"positions": positions}
            whole: Tensor = attention(*given, mask=mask, causal=causal, cache=cache, **more)
            return whole
        n, y = len(x), project(x)
        if cross_attends:
            q, (k, v) = y.view(n, heads, 1, d_k), cache.known()
        else:
            if alike:
                q, k, v = y.view(n, 3, heads, 1, d_k).unbind(1)  # (N, heads, 1, d)
            else:
                q, k, v = torch.split(y, sizes, dim=-1)
                q, k, v = q.view(n, heads, 1, d_k), k.view(n, kv_heads, 1, d_k), v.view(n, kv_heads, 1, d_v)
            if attention.rotates:
                assert positions is not None, "rotary attention needs positions"
                turn = rotation(positions, d_k, q.dtype, attention.base) if isinstance(positions, Tensor) else positions
                q, k = rotary(q, turn), rotary(k, turn)
            k, v = cache.append(k, v)
        y = F.scaled_dot_product_attention(q, k, v, mask, scale=attention.scale, enable_gqa=shared)
        return out(y.reshape(n, 1, -1))

    return look


FUNCTIONS: dict[type[nn.Module], Callable[[Any], Callable[..., Tensor]]] = {
    MLP: _mlp,
    nn.Linear: _linear,
    LinearNoKeyBias: lambda layer: layer.forward,
    nn.LayerNorm: _layer_norm,
    nn.RMSNorm: _rms_norm,
    nn.Dropout: _dropout,
    nn.Identity: _dropout,
}


def _function(part: nn.Module) -> Any:
    """Return the function that makes the fast path of a module, or None if it has none."""
    kind = type(part)
    if isinstance(part, MultiHeadAttention):
        return _attention if vars(kind).get("standard", False) else None
    return FUNCTIONS.get(kind)
