"""Tensor parallelism: several processes share the heads of each attention and the hidden units of each MLP.

M. Shoeybi et al., Megatron-LM: Training multi-billion parameter language models using model parallelism, 2019
<https://arxiv.org/abs/1909.08053>, section 3. Of two consecutive matrices the first is split by columns (in the paper's
notation, x A: by outputs) and the second by rows (by inputs). Each process computes some heads or hidden units, and
each attention and each MLP ends with one sum over the processes:

    y = Σ_p g(x A_p) B_p          A = [A_1 … A_N],  B = [B_1; …; B_N]

PyTorch's `parallelize_module` implements it, with weights as DTensors. Everything else (normalizations, the residual
stream, embeddings, the output layer) is computed by every process of the group, on the same examples.

The first functions give DTensors and plain tensors one interface.
"""

from __future__ import annotations

import functools
import itertools
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeGuard

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel, parallelize_module
from torch.distributed.tensor.placement_types import _StridedShard

from ..core.errors import IncompatibleSettingError, SettingError
from ..nn.attention import MultiHeadAttention
from ..nn.position import RelativeBias
from ..nn.transformer import MLP
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
    for runs in itertools.product(*map(_contiguous_runs, held)):
        found.append((tuple(begin for begin, _ in runs), own[tuple(there for _, there in runs)]))
    return found


@torch.no_grad()
def load_full_tensors(model: nn.Module, numbers: Iterable[tuple[str, Tensor]]) -> None:
    """Load whole tensors, by name, into a model that may be sharded. Each process copies only its own parts."""
    held = dict(model.named_parameters(remove_duplicate=False)) | dict(model.named_buffers(remove_duplicate=False))
    for name, tensor in numbers:
        for begin, view in local_blocks(held[name]):
            view.copy_(tensor[tuple(slice(b, b + n) for b, n in zip(begin, view.shape))])


def _contiguous_runs(indices: Tensor) -> list[tuple[int, slice]]:
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


class StackedColwise(ColwiseParallel):
    """Column-parallel style for a layer whose weight (out, in) stacks several matrices.

    Each process has its rows of each matrix: the queries, keys and values of its heads.
    """

    def __init__(self, matrices: int) -> None:
        super().__init__()
        self.matrices = matrices

    def _partition_linear_fn(self, name: str, module: nn.Module, device_mesh: DeviceMesh) -> None:
        cut = _StridedShard(0, split_factor=self.matrices)
        for key, p in module.named_parameters():
            own = distribute_tensor(p, device_mesh, [cut], src_data_rank=None)
            module.register_parameter(key, nn.Parameter(own, requires_grad=p.requires_grad))

    @staticmethod
    def _prepare_output_fn(output_layouts: Any, use_local: bool, mod: Any, outputs: Any, mesh: Any) -> Tensor:
        found: Tensor = outputs.to_local()  # (N, T, queries, keys and values of its heads)
        return found


# Split of the layers of each module. In cross-attention, queries have a separate layer.
PLAN: dict[type[nn.Module], dict[str, Callable[[], ParallelStyle]]] = {
    MultiHeadAttention: {
        "qkv": lambda: StackedColwise(3),
        "q": ColwiseParallel,
        "kv": lambda: StackedColwise(2),
        "out": RowwiseParallel,
    },
    MLP: {"fc1": ColwiseParallel, "fc2": RowwiseParallel},
    RelativeBias: {"table": ColwiseParallel},  # (buckets, heads)
}


def _parallel_styles(module: nn.Module) -> dict[str, Callable[[], ParallelStyle]]:
    """Return the split of the module's layers; none if the module is not split."""
    standard = isinstance(module, MultiHeadAttention) and vars(type(module)).get("standard", False)
    return PLAN.get(MultiHeadAttention if standard else type(module), {})


def parallelize(model: nn.Module, mesh: DeviceMesh) -> None:
    """Split the model over the processes of a mesh with one dimension.

    The model is whole before, and has passed `reject_for_tensor_parallel`.
    """
    count, rank = mesh.size(), mesh.get_local_rank()
    for module in [*model.modules()]:
        for name, style in _parallel_styles(module).items():
            if isinstance(getattr(module, name, None), nn.Module):
                cut = style()
                cut.src_data_rank = None  # every process has the whole weight and takes its part
                parallelize_module(module, mesh, {name: cut})
        if isinstance(module, MultiHeadAttention):
            module.heads, module.kv_heads = module.heads // count, module.kv_heads // count
            if module.dropout:
                separate_dropout_streams(module, rank)
        elif isinstance(module, MLP) and module.dropout.p:
            separate_dropout_streams(module.dropout, rank)


def separate_dropout_streams(module: nn.Module, rank: int) -> None:
    """Give dropout within the module a separate random stream in each process.

    The module works on heads or hidden units that only this process has. Everything that all processes compute still
    draws the same numbers.
    """
    vars(module)["forward"] = functools.partial(_seeded_forward, module, module.forward, rank)


def _seeded_forward(module: nn.Module, forward: Callable[..., Any], rank: int, *args: Any, **given: Any) -> Any:
    if not module.training:
        return forward(*args, **given)
    with _own_stream(rank):
        return forward(*args, **given)


@contextmanager
def _own_stream(rank: int) -> Iterator[None]:
    """Seed random numbers from the next number of the common stream and from the rank."""
    seed = int(torch.randint(2**62, ()))
    with torch.random.fork_rng([torch.cuda.current_device()] if torch.cuda.is_available() else []):
        torch.manual_seed(seed + rank)
        yield


def reject_for_tensor_parallel(model: nn.Module, name: str, count: int) -> None:
    """Raise SettingError if the layers of the model with that `name` cannot be split over `count` processes."""
    asked = f"tensor_parallel={count}"
    modules = {key: module for key, module in model.named_modules() if _parallel_styles(module)}
    if not any(isinstance(module, MultiHeadAttention) for module in modules.values()):
        raise IncompatibleSettingError(
            f"Invalid {asked}: {name} has no attention or MLPs that it can split. Leave it out, or use parallel=fsdp."
        )
    for key, module in modules.items():
        for layer, held in module.named_children():
            if layer in _parallel_styles(module) and type(held) not in (nn.Linear, nn.Embedding):
                raise IncompatibleSettingError(
                    f"Invalid {asked}: only plain linear layers can be split, and {key}.{layer} of {name} is a "
                    f"{type(held).__name__}. Leave it out."
                )
        if isinstance(module, MultiHeadAttention):
            if module.kv_heads != module.heads:
                raise IncompatibleSettingError(
                    f"Invalid {asked}: grouped-query attention is not supported, and {key} of {name} has "
                    f"{module.kv_heads} key heads for {module.heads} query heads. Leave it out, or use parallel=fsdp."
                )
            if module.heads % count:
                raise SettingError(
                    f"Invalid {asked}: must be a divisor of the {module.heads} heads of {key} of {name}."
                )
        elif isinstance(module, MLP) and module.fc1.out_features % count:
            raise SettingError(
                f"Invalid {asked}: must be a divisor of the {module.fc1.out_features} hidden units of {key} of {name}."
            )
