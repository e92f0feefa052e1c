"""Dry run of distributed training: the memory of each process and the traffic of a step, computed in one process.

PyTorch's fake process group has any number of processes and sends nothing. The model has shapes but no values. It is
sharded, and a step is run, as in training, so the result describes the training itself and not a formula.
Nothing is materialized: GPT-2 XL on 1,024 processes needs only the memory of its layers' names.

The activations of a batch do not depend on the number of processes. `training.memory` estimates them.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._C._distributed_c10d import _resolve_process_group
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, unset_fake_temporarily
from torch.optim import AdamW, Optimizer
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ..core.errors import SettingError
from .fsdp import build_mesh, shard
from .tensor_parallel import TENSOR, local_part, parallelize, reject_for_tensor_parallel

# Names of the operations that send data → name of the collective.
KINDS = {
    "_allgather_base_": "all-gather",
    "all_gather_into_tensor": "all-gather",
    "_reduce_scatter_base_": "reduce-scatter",
    "reduce_scatter_tensor": "reduce-scatter",
    "allreduce_": "all-reduce",
    "all_reduce": "all-reduce",
}


@dataclass(frozen=True)
class Collective:
    """All collectives of one kind in a step, among groups of the same size."""

    kind: str  # all-gather, reduce-scatter or all-reduce
    processes: int
    count: int  # in a step
    bytes: int  # size of the whole tensors, summed over all calls
    largest: int  # bytes of the largest call


@dataclass(frozen=True)
class ShardMemory:
    """Memory of one process, in bytes."""

    weights: int
    gradients: int
    optimizer: int  # optimizer state

    @property
    def bytes(self) -> int:
        """Return the sum of weights, gradients and optimizer state."""
        return self.weights + self.gradients + self.optimizer


@dataclass(frozen=True)
class ShardedWeight:
    """Placement of one weight.

    It is split by rows for data parallelism, and by heads or hidden units for tensor parallelism.
    """

    name: str
    shape: tuple[int, ...]  # of the whole weight
    itemsize: int
    rows: tuple[int, int] | None  # dimension that is split by rows, and the number of parts
    cut: tuple[int, int] | None  # the same for tensor parallelism
    copies: int  # optimizer tensors of the same shape
    beside: int  # bytes of all other optimizer state

    def local_shape(self, index: int) -> tuple[int, ...]:
        """Return the shape of the part of the process with that index among those that share the rows."""
        shape = [*self.shape]
        if self.cut:
            shape[self.cut[0]] //= self.cut[1]
        if self.rows:
            dim, count = self.rows
            size = math.ceil(shape[dim] / count)  # as torch.chunk: the last parts are smaller or empty
            shape[dim] = max(0, min(size, shape[dim] - index * size))
        return tuple(shape)

    def bytes(self, index: int) -> int:
        """Return the bytes of that part."""
        return math.prod(self.local_shape(index)) * self.itemsize


@dataclass(frozen=True)
class DryRun:
    """Result of a dry run."""

    parameters: int  # of the whole model
    shares: tuple[ShardMemory, ...]  # of each process, in the order of their ranks
    largest: tuple[str, int]  # name and bytes of the largest part of a weight
    collectives: tuple[Collective, ...]
    weights: tuple[ShardedWeight, ...]  # in the order of the model


def dry_run(
    build: Callable[[], nn.Module],
    step: Callable[[nn.Module], Tensor],
    blocks: Callable[[nn.Module], list[nn.Module]],
    *,
    processes: int,
    parallel: str = "fsdp",
    tensor_parallel: int = 1,
    machine: int = 8,
    dtype: torch.dtype | None = None,
    optimizers: Callable[[nn.Module], list[Optimizer]] = lambda model: [AdamW(model.parameters())],
    within: Callable[[], AbstractContextManager[object]] = nullcontext,
    carry_out: Callable[[OpOverload, Any, Any], Any] = lambda op, args, kwargs: op(*args, **kwargs),
    rank: int = 0,
) -> DryRun:
    """Return what each of `processes` would store and send in one step.

    Dropout is off; it sends nothing.

    Args:
        build: Builds the model on the meta device (`core.memory_budget.build_on_meta`).
        step: Computes the loss of a batch from the model. It makes its own inputs, which have shapes only.
        blocks: Returns the modules of the model that are sharded separately.
        processes: Number of processes.
        parallel: Setting `parallel`.
        tensor_parallel: Setting `tensor_parallel`.
        machine: Number of processes of one machine, for hsdp.
        dtype: Type in which the weights of blocks are sent.
        optimizers: Builds the optimizers of the model.
        within: Context in which both passes are run (`training.parallel`).
        carry_out: Runs one operation on tensors without values.
        rank: Rank of the process that runs the passes.

    Returns:
        Memory of each process and the collectives of a step.

    Raises:
        SettingError: If the number of processes does not fit the grid, if the model cannot be sharded this way, or in a
            process that is one of several.
    """
    if dist.is_initialized():
        raise SettingError("A dry run simulates all processes in one: start it in a single process.")
    if parallel == "hsdp" and machine % tensor_parallel:
        raise SettingError(
            f"Invalid number of processes on each machine, {machine}, for parallel=hsdp: must be a multiple of "
            f"tensor_parallel={tensor_parallel}."
        )
    if processes % (machine if parallel == "hsdp" else tensor_parallel):
        divisor = f"the {machine} on each machine" if parallel == "hsdp" else f"tensor_parallel={tensor_parallel}"
        raise SettingError(
            f"Invalid number of processes, {processes}, for parallel={parallel}: must be a multiple of {divisor}."
        )
    with _fake_group(rank, processes):
        model = build().eval()
        count = sum(p.numel() for p in model.parameters())
        mesh = build_mesh(torch.device("cpu"), processes // tensor_parallel, parallel, tensor_parallel, machine)
        if tensor_parallel > 1:
            reject_for_tensor_parallel(model, type(model).__name__, tensor_parallel)
            parallelize(model, mesh[TENSOR])
        loss = shard(model, mesh, blocks(model), dtype)
        sent = _Traffic(carry_out)
        with FakeTensorMode(allow_non_fake_inputs=True):
            loss.to_empty(device="cpu")  # a fake tensor, without values
            learning = optimizers(model)
            loss.loss = lambda: step(model)
            with within(), sent:
                loss().backward()
            with sent:
                for optimizer in learning:
                    optimizer.step()
        kept = {p: values for optimizer in learning for p, values in optimizer.state.items()}
        parts = [
            _describe_weight(name, p, kept.get(p, {}).values())
            for name, p in model.named_parameters()
            if p.requires_grad
        ]
        sharing = dict(zip(mesh.mesh_dim_names or (), mesh.shape)).get("shard", 1)
        own = sum(local_part(p).nbytes for p in model.parameters() if p.requires_grad)
    shares = [_shard_memory(parts, index) for index in range(sharing)]
    of_each = tuple(shares[r // tensor_parallel % sharing] for r in range(processes))
    assert of_each[rank].weights == own, "the plan of this process matches its shards"
    largest = max(parts, key=lambda p: p.bytes(0))
    return DryRun(count, of_each, (largest.name, largest.bytes(0)), sent.collectives(), tuple(parts))


@contextmanager
def _fake_group(rank: int, processes: int) -> Iterator[None]:
    """Make this process one of `processes`, without starting the others."""
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=processes)
    try:
        yield
    finally:
        dist.destroy_process_group()


def _describe_weight(name: str, parameter: Any, kept: Iterable[Any]) -> ShardedWeight:
    """Return the placement of a weight. `kept` are the values that the optimizer stores for it."""
    mesh, placements = parameter.device_mesh, parameter.placements
    found = {
        key: (p.dim, mesh.size(i))
        for i, (key, p) in enumerate(zip(mesh.mesh_dim_names, placements))
        if hasattr(p, "dim")
    }
    own = [local_part(x) for x in kept if isinstance(x, Tensor)]
    alike = [x for x in own if x.shape == local_part(parameter).shape]
    return ShardedWeight(
        name, tuple(parameter.shape), parameter.element_size(), found.get("shard"), found.get(TENSOR), len(alike),
        sum(x.nbytes for x in own) - sum(x.nbytes for x in alike),
    )  # fmt: skip


def _shard_memory(parts: Sequence[ShardedWeight], index: int) -> ShardMemory:
    """Return the memory of the process with that index among those that share rows."""
    weights = sum(p.bytes(index) for p in parts)
    return ShardMemory(weights, weights, sum(p.copies * p.bytes(index) + p.beside for p in parts))


class _Traffic(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Context that counts the bytes of collectives; PyTorch's `CommDebugMode` counts their calls only.

    Operations without fake inputs keep their values.
    """

    def __init__(self, carry_out: Callable[[OpOverload, Any, Any], Any]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._carry_out = carry_out
        self._sizes: dict[tuple[str, int], list[int]] = defaultdict(list)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operation, and record its size if it is a collective."""
        kwargs = kwargs or {}
        given = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        if given and not any(isinstance(x, FakeTensor) for x in given) and "c10d" not in func.namespace:
            with unset_fake_temporarily():
                return func(*args, **kwargs)
        kind = KINDS.get(func.overloadpacket.__name__) if "c10d" in func.namespace else None
        if kind is not None:
            sizes = [x.nbytes for x in tree_leaves(args) if isinstance(x, Tensor)]
            # FSDP collectives receive a process group; those of DTensors, such as activations, the group's name.
            named = dict(zip((argument.name for argument in func._schema.arguments), args))
            if (group := named.get("process_group")) is not None:
                count = dist.ProcessGroup.unbox(group).size()
            else:
                count = _resolve_process_group(named["group_name"]).size()
                if kind == "all-gather":  # its input is one part
                    sizes = [count * max(sizes)]
            self._sizes[kind, count].append(max(sizes))
        return self._carry_out(func, args, kwargs)

    def collectives(self) -> tuple[Collective, ...]:
        """Return the collectives, those with the most bytes first."""
        found = [Collective(*key, len(sizes), sum(sizes), max(sizes)) for key, sizes in self._sizes.items()]
        return tuple(sorted(found, key=lambda one: -one.bytes))
