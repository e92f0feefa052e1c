"""Conversion of PyTorch tensors to NumPy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ..core.errors import DataError


def to_numpy(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    """Return a tensor as an array. Raises DataError for a tensor that NumPy cannot represent."""
    if tensor.is_meta:
        raise DataError("A tensor on the meta device has a shape and no numbers.", fix="Give a tensor on the CPU.")
    if tensor.is_nested:
        raise DataError("A nested tensor is not read as data.", fix="Give a list of tensors: tensor.unbind().")
    if tensor.is_quantized:
        raise DataError("A quantized tensor is not read as data.", fix="Give tensor.dequantize().")
    if tensor.layout != torch.strided:
        raise DataError("A sparse tensor is not read as data.", fix="Give tensor.to_dense().")
    tensor = tensor.detach().cpu()
    if tensor.is_floating_point() and tensor.dtype not in (torch.float32, torch.float64):
        tensor = tensor.float()  # NumPy has no bfloat16 and no float8
    return tensor.resolve_conj().resolve_neg().numpy()
