"""Sharded tensors (DTensors) and plain tensors behind one interface."""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeGuard

import torch
import torch.distributed as dist
from torch import Tensor, nn

from .group import all_reduce_sum

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import DTensor

TENSOR = "tensor"  # the dimension of a mesh over which layers are split


def is_sharded(tensor: Tensor) -> TypeGuard[DTensor]:
    """Return whether the tensor is sharded.

    If the module of DTensors is not imported, no tensor is sharded. Importing it takes a second.
    """
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)


def full_tensor(tensor: Tensor) -> Tensor:
    """Gather a sharded tensor. All processes must call this. A plain tensor is returned unchanged."""
    if not is_sharded(tensor):
        return tensor
    if not _is_split_twice(tensor):
        return tensor.full_tensor()
    # Weights are split for tensor parallelism first and by rows second, so the rows are gathered first.
    from torch.distributed.tensor import DTensor, Shard

    *data, cut = tensor.placements
    outer, inner = _meshes(tensor)
    shape = [*tensor.shape]
    shape[cut.dim] //= inner.size()  # type: ignore[attr-defined]
    rows = [Shard(p.dim) if hasattr(p, "dim") else p for p in data]
    own = DTensor.from_local(
        tensor.to_local(), outer, rows, run_check=False, shape=torch.Size(shape), stride=_strides(shape)
    ).full_tensor()
    return DTensor.from_local(
        own, inner, [cut], run_check=False, shape=tensor.shape, stride=_strides(tensor.shape)
    ).full_tensor()


def _is_split_twice(tensor: DTensor) -> bool:
    """Return whether a weight is split for tensor parallelism and by rows."""
    return tensor.device_mesh.ndim > 1 and sum(hasattr(p, "dim") for p in tensor.placements) > 1


def _meshes(tensor: DTensor) -> tuple[DeviceMesh, DeviceMesh]:
    """Return the mesh of the processes that share rows, and that of those that share heads and hidden units."""
    *data, cut = tensor.device_mesh.mesh_dim_names or ()
    return tensor.device_mesh[tuple(data)], tensor.device_mesh[cut]


def _strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of a contiguous tensor of that shape."""
    return torch.empty(tuple(shape), device="meta").stride()


def gather_tensors(tensors: Mapping[str, Tensor], keep: bool) -> dict[str, Tensor]:
    """Return the tensors, with sharded ones gathered one by one in CPU memory.

    All processes must call this. A process with `keep=False` gets an empty dictionary.
    """
    found = {}
    for key, tensor in tensors.items():
        one = full_tensor(tensor).cpu() if is_sharded(tensor) else tensor
        if keep:
            found[key] = one
    return found


def local_part(tensor: Tensor) -> Tensor:
    """Return the local part of a tensor."""
    return tensor.to_local() if is_sharded(tensor) else tensor


def local_blocks(tensor: Tensor) -> list[tuple[tuple[int, ...], Tensor]]:
    """Return the local part of a tensor as blocks that are contiguous in the whole tensor.

    Each block has the offset at which it begins in the whole tensor, and a view. Stacked matrices that are split for
    tensor parallelism have one block for each matrix.
    """
    own = local_part(tensor.detach())
    held = [torch.arange(n) for n in tensor.shape]  # the indices in the whole tensor, by dimension
    if is_sharded(tensor):
        mesh = tensor.device_mesh
        names, at = mesh.mesh_dim_names or ("",) * mesh.ndim, [*(mesh.get_coordinate() or ())]
        # Weights are split for tensor parallelism first and by rows second.
        for i in sorted(range(mesh.ndim), key=lambda i: names[i] != TENSOR):
            placement: Any = tensor.placements[i]
            if hasattr(placement, "dim"):
                stacked = getattr(placement, "split_factor", 1) if names[i] == TENSOR else 1
                of_each = [matrix.chunk(mesh.size(i)) for matrix in held[placement.dim].chunk(stacked)]
                held[placement.dim] = torch.cat([x[at[i]] if at[i] < len(x) else x[0][:0] for x in of_each])
    assert [*own.shape] == [len(indices) for indices in held], f"{own.shape} of {tensor}"
    found = []
    for runs in itertools.product(*map(_runs, held)):
        found.append((tuple(begin for begin, _ in runs), own[tuple(there for _, there in runs)]))
    return found


@torch.no_grad()
def load_full_tensors(model: nn.Module, numbers: Iterable[tuple[str, Tensor]]) -> None:
    """Load whole tensors, by name, into a model that may be sharded. Each process copies only its own parts."""
    held = dict(model.named_parameters(remove_duplicate=False)) | dict(model.named_buffers(remove_duplicate=False))
    for name, tensor in numbers:
        for begin, view in local_blocks(held[name]):
            view.copy_(tensor[tuple(slice(b, b + n) for b, n in zip(begin, view.shape))])


def _runs(indices: Tensor) -> list[tuple[int, slice]]:
    """Return the runs without a gap of increasing indices: the first index and the slice of positions of each."""
    ends = [*(1 + (indices.diff() != 1).nonzero().flatten()).tolist(), len(indices)] if len(indices) else []
    return [(int(indices[a]), slice(a, b)) for a, b in zip([0, *ends], ends)]


def global_norm(tensors: Sequence[Tensor]) -> Tensor:
    """Return the norm, shape (), of all values of sharded tensors. All processes must call this."""
    own = torch.stack([torch.linalg.vector_norm(local_part(tensor)) for tensor in tensors])
    once = own.new_tensor([_num_parts(tensor) / dist.get_world_size() for tensor in tensors])
    return all_reduce_sum((own.square() * once).sum()).sqrt()


def _num_parts(tensor: Tensor) -> int:
    """Return the number of parts of a tensor. If there are more processes than parts, several store the same part."""
    if not is_sharded(tensor):
        return 1
    mesh, placements = tensor.device_mesh, tensor.placements
    return math.prod(mesh.size(i) for i, p in enumerate(placements) if hasattr(p, "dim"))


def from_local(held: Tensor, own: Tensor) -> Tensor:
    """Return the sharded tensor with local part `own` and the placement of `held`."""
    if not is_sharded(held):
        return own
    from torch.distributed.tensor import DTensor

    return DTensor.from_local(
        own, held.device_mesh, held.placements, run_check=False, shape=held.shape, stride=_strides(held.shape)
    )


def shard_like(tensor: Tensor, held: Tensor) -> Tensor:
    """Shard a whole tensor as `held`, which has the same shape."""
    if not is_sharded(held) or is_sharded(tensor):
        return tensor
    from torch.distributed.tensor import Shard, distribute_tensor

    tensor = tensor.to(held.device)
    if not _is_split_twice(held):
        return distribute_tensor(tensor, held.device_mesh, held.placements, src_data_rank=None)
    *data, cut = held.placements
    outer, inner = _meshes(held)
    rows = [Shard(p.dim) if hasattr(p, "dim") else p for p in data]
    own = distribute_tensor(tensor, inner, [cut], src_data_rank=None).to_local()
    own = distribute_tensor(own, outer, rows, src_data_rank=None).to_local()
    return from_local(held, own)


def load(model: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Load whole or sharded weights into a model that may be sharded."""
    held = model.state_dict()
    model.load_state_dict(
        {key: shard_like(value, held[key]) if key in held else value for key, value in weights.items()}
    )
