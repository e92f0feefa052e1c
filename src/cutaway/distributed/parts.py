"""Tensors that several processes hold in parts (DTensors), beside those that each holds whole."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeGuard

from torch import Tensor, nn

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor


def in_parts(tensor: Tensor) -> TypeGuard[DTensor]:
    """Whether the tensor is held in parts. Where that module has not been imported, which takes a second, none is."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)


def whole(tensor: Tensor) -> Tensor:
    """The tensor that is held in parts: all processes ask for it. One that is not, as it is."""
    return tensor.full_tensor() if in_parts(tensor) else tensor


def gathered(tensors: Mapping[str, Tensor], keep: bool) -> dict[str, Tensor]:
    """The tensors, those that are held in parts put together one after another, in the memory of the machine. All
    processes ask for it; those that do not `keep` it have nothing."""
    found = {}
    for key, tensor in tensors.items():
        one = tensor.full_tensor().cpu() if in_parts(tensor) else tensor
        if keep:
            found[key] = one
    return found


def part(tensor: Tensor) -> Tensor:
    """What this process holds of a tensor."""
    return tensor.to_local() if in_parts(tensor) else tensor


def like(tensor: Tensor, held: Tensor) -> Tensor:
    """A whole tensor in the parts in which `held`, of that shape, is held."""
    if not in_parts(held) or in_parts(tensor):
        return tensor
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(tensor.to(held.device), held.device_mesh, held.placements, src_data_rank=None)


def load(model: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Put whole weights, or such parts, into a model that may be sharded."""
    held = model.state_dict()
    model.load_state_dict({key: like(value, held[key]) if key in held else value for key, value in weights.items()})
