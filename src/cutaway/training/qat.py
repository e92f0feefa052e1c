"""Quantization-aware training: a model is trained with weights and inputs rounded as in the quantized model.

After B. Jacob et al., 2018 <https://arxiv.org/abs/1712.05877>, with the straight-through estimator of Y. Bengio, N.
Léonard, A. Courville, 2013 <https://arxiv.org/abs/1308.3432>: the forward and the backward pass use rounded numbers,
and the gradient updates the unrounded ones, as if rounding were the identity:

    ŵ = round(w),    w ← w − η ∂L/∂ŵ

Batch normalization is not folded, since each channel of a kernel has its own step, and folding would scale both alike.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ..core.errors import SettingError
from ..nn.low_precision import layers_for, stored_bits
from ..nn.quantized import (
    SEEN,
    TINY,
    dequantize_groups,
    dequantize_rows,
    dynamic_scales,
    quantize_groups,
    quantize_rows,
)
from .config import TrainSettings

NEEDS = {"static": "static", "dynamic": "dynamic", "weight-only": "stored"}  # required kind of layer, by method
LAYERS = {"static": "convolution", "dynamic": "linear layer", "weight-only": "layer"}


class FakeQuantization:
    """Weights that are rounded during training, and layers whose inputs are."""

    def __init__(self, model: nn.Module, method: str, group: int) -> None:
        """Initialize from `method`: static, dynamic or weight-only. With a `group` weights have 4 bits, else 8.

        Raises SettingError if the model has no layer for the method.
        """
        layers = layers_for(model, method)
        if NEEDS[method] not in layers.values():
            raise SettingError(
                f"qat={method} cannot be: {type(model).__name__} has no {LAYERS[method]} that it could be for."
            )
        self.group = group
        whole = {name: model.get_submodule(name) for name in layers}
        kinds = {"static": _round_static, "dynamic": _round_dynamic}
        self.inputs = [(whole[name], kinds[kind]) for name, kind in layers.items() if kind in kinds]
        rounded = {id(layer.weight): (layer.weight, 8) for layer, _ in self.inputs}
        parameters = dict(model.named_parameters(remove_duplicate=False))
        scheme = {"layers": layers, "bits": 4 if group else 8}
        for key, bits in stored_bits(model, scheme).items():
            rounded[id(parameters[key])] = (parameters[key], bits)
        self.weights: list[tuple[Any, int]] = list(rounded.values())

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        """Round weights and inputs within this context, and restore the weights on exit."""
        floats = [weight.data for weight, _ in self.weights]
        handles = [layer.register_forward_pre_hook(partial(_round_input, how)) for layer, how in self.inputs]
        try:
            for weight, bits in self.weights:
                weight.data = self._round_weight(weight.data, bits)
            yield
        finally:
            for (weight, _), before in zip(self.weights, floats):
                weight.data = before
            for handle in handles:
                handle.remove()

    def _round_weight(self, w: Tensor, bits: int) -> Tensor:
        if bits == 4:
            return dequantize_groups(*quantize_groups(w, self.group), self.group, w.shape).to(w.dtype)
        return dequantize_rows(*quantize_rows(w))


def build_fake_quantization(model: nn.Module, settings: TrainSettings) -> FakeQuantization | None:
    """Return the rounding for these settings, or None."""
    return None if settings.qat == "none" else FakeQuantization(model, settings.qat, settings.qat_group)


def _round_input(how: Callable[[Tensor], Tensor], module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
    x, *more = args
    return (x + (how(x.detach()) - x.detach()), *more)  # straight-through: the gradient is that of x


def _round_static(x: Tensor) -> Tensor:
    """Round as a static layer rounds its inputs, over the range of this batch."""
    # `observe` and `quantize_observed` are not used: they convert the range to Python numbers, which synchronizes a
    # GPU in every layer of every step. They also multiply by 1/s in one pass, so inputs halfway between two steps may
    # round differently.
    low, high = (edge.float() for edge in torch.aminmax(x))
    scale = ((high.clamp_min(0) - low.clamp_max(0)) / SEEN).clamp_min(TINY)
    zero = (-low.clamp_max(0) / scale).round()
    return ((torch.floor(x / scale + zero + 0.5).clamp(0, SEEN) - zero) * scale).to(x.dtype)


def _round_dynamic(x: Tensor) -> Tensor:
    """Round as a dynamic layer rounds its inputs."""
    step = dynamic_scales(x)
    return (x / step).round() * step


def reject_for_qat(settings: TrainSettings) -> None:
    """Raise SettingError for settings that are incompatible with quantization-aware training."""
    if settings.qat == "none":
        return
    asked = f"qat={settings.qat}"
    if settings.qat_group and settings.qat != "weight-only":
        raise SettingError(
            f"{asked} and qat_group={settings.qat_group} do not go together: 4 bits are for qat=weight-only."
        )
    if settings.lora is not None:
        raise SettingError(f"{asked} and lora={settings.lora} do not go together: weights that are frozen learn none.")
    if settings.compile:
        raise SettingError(f"{asked} and compile=true do not go together: weights are other ones in every step.")
    if settings.in_parts:
        raise SettingError(
            f"{asked} rounds each layer by its largest weights, and each process would have a part of them alone with "
            "tensor_parallel and parallel=fsdp or hsdp: take parallel=ddp."
        )
