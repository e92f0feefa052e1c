"""A dry run: what each of many processes would hold of a model, and what a step would send, found in one process.

PyTorch's fake process group has as many processes as one says and sends nothing; the model is shapes without numbers.
The model is shared and a step is made as in training, so that what is listed is what would be done, and not what a
formula says. Nothing is materialized: GPT-2 XL on 1 024 processes takes the memory of its layers' names.

A batch's activations do not depend on the number of processes: `training.memory_check` tells of them.
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
from .dtensors import TENSOR, part
from .fsdp import mesh_of, shard
from .tensor_parallel import parallelize, reject_for_tensor_parallel

# What the operations are called that send something, by what is called so.
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
    """One kind of sending in a step, among so many processes each time."""

    kind: str  # all-gather, reduce-scatter or all-reduce
    processes: int
    count: int  # in a step
    bytes: int  # of what is whole before it or after it, summed over them
    largest: int  # bytes of one of them, at most


@dataclass(frozen=True)
class Share:
    """What one process holds, in bytes."""

    weights: int
    gradients: int
    optimizer: int  # what the optimizer keeps of each weight

    @property
    def bytes(self) -> int:
        """All of it."""
        return self.weights + self.gradients + self.optimizer


@dataclass(frozen=True)
class HeldWeight:
    """How one weight is held: over the processes that share its rows, and those that share heads and hidden units."""

    name: str
    shape: tuple[int, ...]  # of the whole
    itemsize: int
    rows: tuple[int, int] | None  # the dimension that is cut for the first, and in how many parts
    cut: tuple[int, int] | None  # likewise for the second
    copies: int  # tensors of its shape that the optimizer keeps
    beside: int  # bytes that it keeps besides

    def held(self, index: int) -> tuple[int, ...]:
        """The shape of what the process holds that is at that place among those that share the rows."""
        shape = [*self.shape]
        if self.cut:
            shape[self.cut[0]] //= self.cut[1]
        if self.rows:
            dim, count = self.rows
            size = math.ceil(shape[dim] / count)  # as torch.chunk has it: the last have fewer, or none
            shape[dim] = max(0, min(size, shape[dim] - index * size))
        return tuple(shape)

    def bytes(self, index: int) -> int:
        """And its bytes."""
        return math.prod(self.held(index)) * self.itemsize


@dataclass(frozen=True)
class DryRun:
    """What was found."""

    parameters: int  # of the whole model
    shares: tuple[Share, ...]  # of each process, in the order of their ranks
    largest: tuple[str, int]  # of the parts of weights that a process holds: its name and bytes
    collectives: tuple[Collective, ...]
    weights: tuple[HeldWeight, ...]  # in the model's order


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
    """What `processes` would hold and send in one step.

    `build` makes the model, on the meta device (`core.memory_budget.shaped`); `step` is given it and gives the loss of
    a batch, whose inputs it makes: they have shapes alone. `blocks` are shared each by itself. `parallel` and
    `tensor_parallel` are the settings of those names, `machine` the processes of one machine, for hsdp; weights of
    blocks travel as `dtype`. Both passes are made `within` that context (`training.recompute`), by the process of that
    `rank`; `carry_out` makes an operation on tensors without numbers. Dropout is off, which sends nothing.

    Raises SettingError for a number of processes that the grid does not divide, a model that cannot be shared so, and
    in a process that is one of several.
    """
    if dist.is_initialized():
        raise SettingError("A dry run plays all processes in one, and this is one of several: start it by itself.")
    if processes % tensor_parallel or (parallel == "hsdp" and (processes % machine or machine % tensor_parallel)):
        of_machines = f", {machine} on each machine," if parallel == "hsdp" else ""
        raise SettingError(
            f"{processes} processes{of_machines} are no grid for parallel={parallel} and "
            f"tensor_parallel={tensor_parallel}: give a multiple."
        )
    with _fake_group(rank, processes):
        model = build().eval()
        count = sum(p.numel() for p in model.parameters())
        mesh = mesh_of(torch.device("cpu"), processes // tensor_parallel, parallel, tensor_parallel, machine)
        if tensor_parallel > 1:
            reject_for_tensor_parallel(model, type(model).__name__, tensor_parallel)
            parallelize(model, mesh[TENSOR])
        loss = shard(model, mesh, blocks(model), dtype)
        sent = _Sent(carry_out)
        with FakeTensorMode(allow_non_fake_inputs=True):
            loss.to_empty(device="cpu")  # without numbers: a fake one
            learning = optimizers(model)
            loss.loss = lambda: step(model)
            with within(), sent:
                loss().backward()
            with sent:
                for optimizer in learning:
                    optimizer.step()
        kept = {p: values for optimizer in learning for p, values in optimizer.state.items()}
        parts = [_part_of(name, p, kept.get(p, {}).values()) for name, p in model.named_parameters() if p.requires_grad]
        sharing = dict(zip(mesh.mesh_dim_names or (), mesh.shape)).get("shard", 1)
        own = sum(part(p).nbytes for p in model.parameters() if p.requires_grad)
    shares = [_share(parts, index) for index in range(sharing)]
    of_each = tuple(shares[r // tensor_parallel % sharing] for r in range(processes))
    assert of_each[rank].weights == own, "what is told of all processes is what this one has"
    largest = max(parts, key=lambda p: p.bytes(0))
    return DryRun(count, of_each, (largest.name, largest.bytes(0)), sent.found(), tuple(parts))


@contextmanager
def _fake_group(rank: int, processes: int) -> Iterator[None]:
    """Within it this process is one of so many, none of which is there."""
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=processes)
    try:
        yield
    finally:
        dist.destroy_process_group()


def _part_of(name: str, parameter: Any, kept: Iterable[Any]) -> HeldWeight:
    """How the weight is held, and what the optimizer has `kept` of it."""
    mesh, placements = parameter.device_mesh, parameter.placements
    found = {
        key: (p.dim, mesh.size(i))
        for i, (key, p) in enumerate(zip(mesh.mesh_dim_names, placements))
        if hasattr(p, "dim")
    }
    own = [part(x) for x in kept if isinstance(x, Tensor)]
    alike = [x for x in own if x.shape == part(parameter).shape]
    return HeldWeight(
        name, tuple(parameter.shape), parameter.element_size(), found.get("shard"), found.get(TENSOR), len(alike),
        sum(x.nbytes for x in own) - sum(x.nbytes for x in alike),
    )  # fmt: skip


def _share(parts: Sequence[HeldWeight], index: int) -> Share:
    """What the process at that place among those that share rows holds."""
    weights = sum(p.bytes(index) for p in parts)
    return Share(weights, weights, sum(p.copies * p.bytes(index) + p.beside for p in parts))


class _Sent(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Within this context what is sent is counted, and what follows from a batch alone keeps its numbers."""

    def __init__(self, carry_out: Callable[[OpOverload, Any, Any], Any]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._carry_out = carry_out
        self._sizes: dict[tuple[str, int], list[int]] = defaultdict(list)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """The operation, carried out."""
        kwargs = kwargs or {}
        given = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        if given and not any(isinstance(x, FakeTensor) for x in given) and "c10d" not in func.namespace:
            with unset_fake_temporarily():
                return func(*args, **kwargs)
        kind = KINDS.get(func.overloadpacket.__name__) if "c10d" in func.namespace else None
        if kind is not None:
            sizes = [x.nbytes for x in tree_leaves(args) if isinstance(x, Tensor)]
            # What gradients and rows travel by is given its group; what DTensors send, such as activations, its name.
            named = dict(zip((argument.name for argument in func._schema.arguments), args))
            if (group := named.get("process_group")) is not None:
                count = dist.ProcessGroup.unbox(group).size()
            else:
                count = _resolve_process_group(named["group_name"]).size()
                if kind == "all-gather":  # which is given a part
                    sizes = [count * max(sizes)]
            self._sizes[kind, count].append(max(sizes))
        return self._carry_out(func, args, kwargs)

    def found(self) -> tuple[Collective, ...]:
        """What there was, the most bytes first."""
        found = [Collective(*key, len(sizes), sum(sizes), max(sizes)) for key, sizes in self._sizes.items()]
        return tuple(sorted(found, key=lambda one: -one.bytes))
