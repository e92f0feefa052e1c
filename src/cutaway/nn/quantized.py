"""Quantized layers: weights and inputs as integers of few bits.

B. Jacob et al., Quantization and training of neural networks for efficient integer-arithmetic-only inference, 2018
<https://arxiv.org/abs/1712.05877>; R. Krishnamoorthi, Quantizing deep convolutional networks for efficient inference,
2018 <https://arxiv.org/abs/1806.08342>. A number x is represented by an integer q, with scale s and zero point z:

    q = clamp(round(x / s) + z, least, most)        x ≈ s (q − z)

Weights are symmetric, z = 0, and each output channel has its own s = max|w| / 127. The error of a weight is at most
s/2, and 0 stays 0. With 4 bits, each group of weights along the inputs has its own s = max|w| / 7.5 (T. Dettmers,
L. Zettlemoyer, 2022 <https://arxiv.org/abs/2212.09720>). A product then uses integer arithmetic only:

    y_o = s_x s_o Σ_i (q_x,i − z_x) q_o,i + b_o

Inputs are quantized on the fly (dynamic: each row has its own s_x, so that examples are independent), or with s_x and
z_x from observed ranges (static). Gradients are those of the layer with rounded weights and unrounded inputs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

MOST = 127  # largest integer of a weight, and of a dynamically quantized input
SEEN = 255  # largest integer of a statically quantized input; the smallest is 0
TINY = 1e-12  # smallest scale: for rows of zeros
ON_GRID = 1e-4  # tolerance, in steps, for floats that are already on the grid


# --- conversion to integers and back ----------------------------------------------------------------------------------


def quantize_rows(w: Tensor) -> tuple[Tensor, Tensor]:
    """Quantize each row: return q int8, of the shape of w (O, …), and the scales s (O,), with w ≈ s q."""
    scale = (w.flatten(1).abs().amax(1) / MOST).clamp_min(TINY)
    return (w / _along(scale, w)).round_().clamp_(-MOST, MOST).to(torch.int8), scale


def dequantize_rows(q: Tensor, scale: Tensor) -> Tensor:
    """Return s q, of the shape of q."""
    return q.to(scale.dtype) * _along(scale, q)


def quantize_groups(w: Tensor, group: int) -> tuple[Tensor, Tensor]:
    """Quantize weights w (O, …) with I weights per row to 4 bits, two in a byte.

    The result is uint8 (O, ⌈I/2⌉) and the scale of each group, (O, ⌈I/group⌉).
    """
    rows = w.flatten(1)
    padded = F.pad(rows, (0, -rows.shape[1] % group)).view(len(rows), -1, group)  # (O, groups, group)
    largest = padded.abs().amax(2)
    scale = (largest / 7.5).clamp_min(TINY)
    for most in (7, 8):  # weights that were rounded before are on a grid already; keep that grid
        step = (largest / most).clamp_min(TINY)
        q = padded / step[..., None]
        stands = ((q - q.round()).abs().amax(2) < ON_GRID) & (q.amax(2) < 7.5)
        scale = torch.where(stands, step, scale)
    q = (padded / scale[..., None]).round_().clamp_(-8, 7).add_(8).to(torch.uint8).flatten(1)[:, : rows.shape[1]]
    q = F.pad(q, (0, rows.shape[1] % 2))
    return q[:, 0::2] | q[:, 1::2] << 4, scale


def dequantize_groups(packed: Tensor, scale: Tensor, group: int, shape: torch.Size) -> Tensor:
    """Return the weights that `quantize_groups` packed, in the given shape."""
    columns = shape[1:].numel()
    q = torch.stack([packed & 15, packed >> 4], dim=2).flatten(1)[:, :columns]  # (O, I)
    steps = scale.repeat_interleave(group, dim=1)[:, :columns]
    return ((q.to(scale.dtype) - 8) * steps).view(shape)


def dynamic_scales(x: Tensor) -> Tensor:
    """Return the scale of each row of dynamically quantized inputs, max|x| / 127, (…, 1)."""
    return (x.abs().amax(-1, keepdim=True) / MOST).clamp_min_(TINY)


def quantize_observed(x: Tensor, scale: float, zero: int) -> Tensor:
    """Return q = clamp(⌊x / s + z + ½⌋, 0, 255) as uint8, in the memory format of x."""
    return torch.add(x.new_tensor(zero + 0.5), x, alpha=1 / scale).clamp_(0, SEEN).to(torch.uint8)


def _along(scale: Tensor, w: Tensor) -> Tensor:
    return scale.view(-1, *(1,) * (w.ndim - 1))


# --- kernels ----------------------------------------------------------------------------------------------------------


@functools.cache
def exact_kernels() -> bool:
    """Return whether this processor's kernels add 8-bit products exactly, even for the largest values.

    Kernels without VNNI instructions (AVX-512 and AVX; oneDNN) add pairs of products in 16 bits. Two products of 255 ·
    127 overflow there without an error. The function therefore computes a sum with a known result.
    """
    inputs, weights = torch.full((4, 64), MOST, dtype=torch.int8), torch.full((16, 64), MOST, dtype=torch.int8)
    try:
        sums = torch._int_mm(inputs, weights.t())
        kernels = weights.view(16, 16, 2, 2)
        conv = _packed_conv(kernels, torch.ones(16), 1.0, 0, ([1, 1], [0, 0], [1, 1], 1))
        over = conv(torch.full((1, 16, 2, 2), SEEN, dtype=torch.uint8), None)
    except (RuntimeError, AttributeError):  # no such kernel in this build of PyTorch
        return False
    return bool((sums == 64 * MOST**2).all()) and bool((over == 64 * SEEN * MOST).all())


Places = tuple[list[int], list[int], list[int], int]  # stride, padding, dilation, groups


def _packed_conv(
    q: Tensor, scale: Tensor, x_scale: float, x_zero: int, places: Places
) -> Callable[[Tensor, Tensor | None], Tensor]:
    """Return oneDNN's convolution of uint8 inputs with these int8 kernels, a function of (q_x, bias) to float32."""
    ops = torch.ops.onednn
    weight = ops.qconv_prepack(q, scale, x_scale, x_zero, *places, None)
    zeros = torch.zeros(len(q), dtype=torch.int32)

    def conv(x: Tensor, bias: Tensor | None) -> Tensor:
        given = (x, x_scale, x_zero, weight, scale, zeros, bias, *places)
        y: Tensor = ops.qconv_pointwise(*given, 1.0, 0, torch.float32, "none", [], "")
        return y

    return conv


# --- layers -----------------------------------------------------------------------------------------------------------


class Quantized(nn.Module):
    """Base class of quantized layers: integers `q` (O, …) and `scale` (O,) in place of the weight."""

    q: Tensor
    scale: Tensor
    bias: Any  # as in the original layer: a Parameter or None

    @classmethod
    def like(cls, layer: nn.Module) -> Any:
        """Create an empty layer with the settings of `layer`."""
        made: Any = cls.__new__(cls)
        nn.Module.__init__(made)
        vars(made).update({key: value for key, value in vars(layer).items() if not key.startswith("_")})
        weight, bias = layer.weight, layer.bias
        assert isinstance(weight, Tensor)
        made.register_buffer("q", torch.zeros_like(weight, dtype=torch.int8))
        made.register_buffer("scale", torch.ones(len(weight)))
        made.register_parameter("bias", nn.Parameter(torch.zeros(len(weight))) if bias is not None else None)
        if isinstance(layer, _ConvNd):
            made._reversed_padding_repeated_twice = layer._reversed_padding_repeated_twice
        made.forget()
        return made

    @property
    def weight(self) -> Tensor:
        """The dequantized weights."""
        return dequantize_rows(self.q, self.scale)

    def take(self, layer: nn.Module) -> None:
        """Quantize the weights of `layer`, and copy its bias unchanged."""
        assert isinstance(layer.weight, Tensor)
        q, scale = quantize_rows(layer.weight.detach().float())
        self.q.copy_(q)
        self.scale.copy_(scale)
        self._take_bias(layer)
        self.forget()

    def _take_bias(self, layer: nn.Module) -> None:
        if self.bias is not None:
            assert isinstance(layer.bias, Tensor)
            self.bias.data.copy_(layer.bias.detach())

    def forget(self) -> None:
        """Drop the packed kernel, because the integers or their device have changed."""
        self._kernel: Any = None

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        self.forget()

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        self.forget()
        return super()._apply(fn, recurse)  # type: ignore[no-untyped-call]

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_kernel": None}  # a packed kernel cannot be copied

    def _uses_kernel(self, x: Tensor) -> bool:
        return x.device.type == "cpu" and x.dtype == torch.float32 and exact_kernels()


def requires_gradients(x: Tensor) -> bool:
    """Return whether gradients with respect to x are required."""
    return torch.is_grad_enabled() and x.requires_grad


class QuantizedLinear(Quantized, nn.Linear):  # type: ignore[override]  # weights are computed
    """A linear layer with int8 weights and dynamically quantized inputs.

    y = s_x s_o (q_x · q_o) + b_o, with s_x = max|x| / 127 of each row.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Map (…, I) to (…, O)."""
        if requires_gradients(x):
            return F.linear(x, self.weight, self.bias)
        rows = x.reshape(-1, x.shape[-1])  # (n, I)
        steps = dynamic_scales(rows)  # s_x, (n, 1)
        q = (rows / steps).round_()
        if self._uses_kernel(x) and len(rows):
            sums = torch._int_mm(q.to(torch.int8), self.q.t()).to(x.dtype)
        else:
            sums = F.linear(q.double(), self.q.double()).to(x.dtype)
        y = sums.mul_(steps).mul_(self.scale)
        if self.bias is not None:
            y += self.bias
        return y.view(*x.shape[:-1], len(self.q))


class _QuantizedConv(Quantized, _ConvNd):  # type: ignore[override]  # weights are computed
    """A convolution with int8 kernels and an observed input range, `x_scale` and `x_zero`.

    Inputs beyond the range are clipped.
    """

    x_scale: Tensor
    x_zero: Tensor

    @classmethod
    def like(cls, layer: nn.Module) -> Any:
        """Create an empty layer with the settings of `layer`."""
        made = super().like(layer)
        made.register_buffer("x_scale", torch.ones(()))
        made.register_buffer("x_zero", torch.zeros((), dtype=torch.int32))
        return made

    def observe(self, low: float, high: float) -> None:
        """Set the input range. It is extended to include 0, which padding requires to be representable."""
        low, high = min(low, 0.0), max(high, 0.0)
        scale = max((high - low) / SEEN, TINY)
        self.x_scale.fill_(scale)
        self.x_zero.fill_(round(-low / scale))
        self.forget()

    def forward(self, x: Tensor) -> Tensor:
        """Map (N, C, …) to (N, O, …)."""
        if requires_gradients(x):
            return self._conv_forward(x, self.weight, self.bias)
        if self._kernel is None:
            places = ([*self.stride], [*self.padding], [*self.dilation], self.groups)
            scale, zero = float(self.x_scale), int(self.x_zero)
            fast = self._uses_kernel(x)
            self._kernel = (scale, zero, _packed_conv(self.q, self.scale, scale, zero, places) if fast else None)
        scale, zero, conv = self._kernel
        if conv is not None and self._uses_kernel(x) and x.ndim == self.q.ndim and x.numel():
            y: Tensor = conv(quantize_observed(x, scale, zero), self.bias)  # channels-last for any x
            plain = x.ndim == 4 and x.is_contiguous() and self.q.is_contiguous()  # as nn.Conv2d returns it
            return y.contiguous() if plain else y
        q = quantize_observed(x, scale, zero).double() - zero
        y = self._conv_forward(q, self.q.double(), None)
        y = y * _along(scale * self.scale.double(), self.q[0])
        return (y if self.bias is None else y + _along(self.bias.double(), self.q[0])).to(x.dtype)


class QuantizedConv1d(_QuantizedConv, nn.Conv1d):  # type: ignore[override]  # weights are computed
    """`nn.Conv1d` with integer arithmetic."""


class QuantizedConv2d(_QuantizedConv, nn.Conv2d):  # type: ignore[override]  # weights are computed
    """`nn.Conv2d` with integer arithmetic."""


class QuantizedConv3d(_QuantizedConv, nn.Conv3d):  # type: ignore[override]  # weights are computed
    """`nn.Conv3d` with integer arithmetic."""


# Exactly these classes: a subclass may use its weights differently.
CONVS: dict[type[nn.Module], type[_QuantizedConv]] = {
    nn.Conv1d: QuantizedConv1d,
    nn.Conv2d: QuantizedConv2d,
    nn.Conv3d: QuantizedConv3d,
}
LINEAR: dict[type[nn.Module], type[Quantized]] = {nn.Linear: QuantizedLinear}


def is_quantizable_conv(layer: nn.Module) -> bool:
    """Return whether a layer is a convolution with an integer form: zero padding with explicit sizes."""
    return type(layer) in CONVS and layer.padding_mode == "zeros" and not isinstance(layer.padding, str)
