"""Quantization of a model: choice of the method, calibration of ranges, and conversion."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ..core.errors import SettingError
from ..nn.low_precision import layers_for, quantization_scheme, quantize_layers
from ..nn.mixed_precision import HALF_DTYPES
from ..nn.quantized import is_quantizable_conv
from ..nn.textbook.folding import fold_batch_norm

Inputs = Sequence[tuple[Tensor, ...]]  # inputs of the model's forward, one tuple for each batch


def choose_method(model: nn.Module, bits: int) -> str:
    """Return the method that suits a model.

    It is static for convolutions, dynamic for linear layers that are large enough to become faster, and otherwise
    weight-only.
    """
    kinds = set(layers_for(model, "static").values())
    return "weight-only" if bits < 8 or kinds == {"stored"} else "static" if "static" in kinds else "dynamic"


def reject_method(model: nn.Module, name: str, method: str, bits: int) -> None:
    """Raise SettingError for a method that does not suit the model with that `name`.

    The message names one that does.
    """
    if (scheme := quantization_scheme(model)) is not None:
        raise SettingError(
            f"{name} is already quantized ({scheme['method']}, {scheme['bits']} bits): "
            "quantize the run that it was quantized from."
        )
    layers = layers_for(model, "static")
    if not layers:
        raise SettingError(
            f"{name} has no weights that can be quantized: it has no linear, convolutional or recurrent layer, and no "
            "embedding."
        )
    if any(p.dtype != torch.float32 for p in model.parameters()):
        raise SettingError(f"{name} has weights that are not float32: train with precision=float32 to quantize them.")
    if method in HALF_DTYPES:
        if bits < 8:
            raise SettingError(
                f"Invalid bits={bits} with method={method}, which has 16 bits: leave bits out, or use "
                "method=weight-only."
            )
        most = torch.finfo(HALF_DTYPES[method]).max
        large = [key for key, p in model.named_parameters() if float(p.detach().abs().max()) > most]
        if large:
            raise SettingError(f"Invalid method={method}: {large[0]} has weights larger than {most:g}. Use bfloat16.")
    if method != "weight-only" and bits < 8:
        raise SettingError(
            f"Invalid bits={bits} with method={method}: must be 8, because processors multiply 8-bit integers. "
            f"bits={bits} needs method=weight-only."
        )
    lacks = {"static": "no convolution", "dynamic": "no linear layer"}
    if method in lacks and method not in layers_for(model, method).values():
        raise SettingError(
            f"Invalid method={method}: {name} has {lacks[method]}. Use method={choose_method(model, bits)}."
        )


@torch.no_grad()
def quantize_model(model: nn.Module, method: str, bits: int, group: int, inputs: Inputs) -> nn.Module:
    """Return a quantized copy of a model in evaluation mode.

    Only the static method needs `inputs`, to calibrate ranges.
    """
    made = fold_batch_norm(model, *inputs[0]) if method == "static" else copy.deepcopy(model).eval()
    before = dict(model.named_modules())
    after = dict(made.named_modules())
    scheme = {
        "method": method,
        "bits": 16 if method in HALF_DTYPES else bits,
        "group": group,
        "layers": layers_for(made, method),
        "folded": [k for k, m in after.items() if isinstance(m, nn.Identity) and type(before[k]) is not nn.Identity],
        "biased": [k for k, m in after.items() if _has_bias(m) and not _has_bias(before[k])],
    }
    quantize_layers(made, scheme, observe_ranges(made, inputs) if method == "static" else {})
    return made


def observe_ranges(model: nn.Module, inputs: Inputs) -> dict[str, tuple[float, float]]:
    """Return the minimum and maximum input of each convolution over all batches."""
    found: dict[str, tuple[float, float]] = {}

    def see(name: str, x: Tensor) -> None:
        low, high = found.get(name, (0.0, 0.0))
        least, largest = torch.aminmax(x.detach())
        found[name] = min(low, float(least)), max(high, float(largest))

    handles = [
        module.register_forward_pre_hook(lambda _, args, name=name: see(name, args[0]))
        for name, module in model.named_modules()
        if is_quantizable_conv(module)
    ]
    try:
        for batch in inputs:
            model(*batch)
    finally:
        for handle in handles:
            handle.remove()
    return found


def _has_bias(module: Any) -> bool:
    return isinstance(getattr(module, "bias", None), Tensor)
