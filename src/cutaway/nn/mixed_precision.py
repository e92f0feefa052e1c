"""Layers of 16 bits: weights and inputs in bfloat16 or float16, sums in 32 bits.

bfloat16 has the range of float32 and 8 significant bits; float16 has 11, and ends at 65 504 (P. Micikevicius et al.,
Mixed precision training, 2018 <https://arxiv.org/abs/1710.03740>). Each layer returns the format of its inputs, so that
operations in between, such as norms and softmax, are unchanged.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from ..core.config import HALVES
from .quantized import Quantized, requires_gradients

HALF_DTYPES: dict[str, torch.dtype] = {name: getattr(torch, name) for name in HALVES}


@functools.cache
def has_half(format: str, device: str) -> bool:
    """Return whether the processor or GPU has native products in a format. Emulation saves no time."""
    if device == "cuda":
        return format == "float16" or torch.cuda.is_bf16_supported(including_emulation=False)
    if device != "cpu":
        return True
    cpu = torch.cpu
    if format == "float16":
        return bool(cpu._is_amx_fp16_supported())
    return bool(cpu._is_avx512_bf16_supported() or cpu._is_amx_tile_supported())


class Half(Quantized):
    """Base class of 16-bit layers. `q` has the bits of each weight as int16, which no cast of the model changes."""

    dtype: torch.dtype

    @classmethod
    def like(cls, layer: nn.Module) -> Any:
        """Create an empty layer with the settings of `layer`."""
        made = super().like(layer)
        del made.scale
        made.q = made.q.to(torch.int16)
        return made

    def as_format(self, format: str) -> Any:
        """Set the format, bfloat16 or float16, and return the layer."""
        self.dtype = HALF_DTYPES[format]
        return self

    @property
    def weight(self) -> Tensor:
        """The weights in float32."""
        return self.rounded.float()

    @property
    def rounded(self) -> Tensor:
        """The weights in their 16-bit format."""
        return self.q.view(self.dtype)

    def take(self, layer: nn.Module) -> None:
        """Round the weights of `layer`, and copy its bias unchanged."""
        assert isinstance(layer.weight, Tensor)
        self.q.copy_(layer.weight.detach().to(self.dtype).view(torch.int16))
        self._take_bias(layer)

    def _own_bias(self) -> Tensor | None:
        return None if self.bias is None else self.bias.to(self.dtype)


class HalfLinear(Half, nn.Linear):  # type: ignore[override]  # weights are computed
    """`nn.Linear` in 16 bits."""

    def forward(self, x: Tensor) -> Tensor:
        """Map (…, I) to (…, O)."""
        if requires_gradients(x):
            return F.linear(x, self.weight.to(x.dtype), self.bias)
        return F.linear(x.to(self.dtype), self.rounded, self._own_bias()).to(x.dtype)


class _HalfConv(Half, _ConvNd):  # type: ignore[override]  # weights are computed
    def forward(self, x: Tensor) -> Tensor:
        """Map (N, C, …) to (N, O, …)."""
        if requires_gradients(x):
            return self._conv_forward(x, self.weight.to(x.dtype), self.bias)
        return self._conv_forward(x.to(self.dtype), self.rounded, self._own_bias()).to(x.dtype)


class HalfConv1d(_HalfConv, nn.Conv1d):  # type: ignore[override]  # weights are computed
    """`nn.Conv1d` in 16 bits."""


class HalfConv2d(_HalfConv, nn.Conv2d):  # type: ignore[override]  # weights are computed
    """`nn.Conv2d` in 16 bits."""


class HalfConv3d(_HalfConv, nn.Conv3d):  # type: ignore[override]  # weights are computed
    """`nn.Conv3d` in 16 bits."""


# Exactly these classes: a subclass may use its weights differently.
HALF: dict[type[nn.Module], type[Half]] = {
    nn.Linear: HalfLinear,
    nn.Conv1d: HalfConv1d,
    nn.Conv2d: HalfConv2d,
    nn.Conv3d: HalfConv3d,
}
