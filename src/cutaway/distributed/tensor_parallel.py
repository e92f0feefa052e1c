"""Tensor parallelism: several processes share the heads of each attention and the hidden units of each MLP.

M. Shoeybi et al., Megatron-LM: Training multi-billion parameter language models using model parallelism, 2019
<https://arxiv.org/abs/1909.08053>, section 3. Of two consecutive matrices the first is split by columns (in the paper's
notation, x A: by outputs) and the second by rows (by inputs). Each process computes some heads or hidden units, and
each attention and each MLP ends with one sum over the processes:

    y = Σ_p g(x A_p) B_p          A = [A_1 … A_N],  B = [B_1; …; B_N]

PyTorch's `parallelize_module` implements it, with weights as DTensors. Everything else (normalizations, the residual
stream, embeddings, the output layer) is computed by every process of the group, on the same examples.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel, parallelize_module
from torch.distributed.tensor.placement_types import _StridedShard

from ..core.errors import SettingError
from ..nn.attention import MultiHeadAttention
from ..nn.position import RelativeBias
from ..nn.transformer import MLP


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


def parallelize(model: nn.Module, mesh: DeviceMesh) -> None:
    """Split the model over the processes of a mesh with one dimension.

    The model is whole before, and has passed `reject_for_tensor_parallel`.
    """
    count, rank = mesh.size(), mesh.get_local_rank()
    for module in [*model.modules()]:
        for name, style in PLAN.get(type(module), {}).items():
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
    modules = {key: module for key, module in model.named_modules() if type(module) in PLAN}
    if not any(isinstance(module, MultiHeadAttention) for module in modules.values()):
        raise SettingError(
            f"{asked} shares the attention and MLPs of Transformers, and {name} has none that it knows: leave it out, "
            "or take parallel=fsdp."
        )
    for key, module in modules.items():
        for layer, held in module.named_children():
            if layer in PLAN[type(module)] and type(held) not in (nn.Linear, nn.Embedding):
                raise SettingError(
                    f"{asked} cuts plain linear layers, and {key}.{layer} of {name} is more than one "
                    f"({type(held).__name__}): leave it out."
                )
        if isinstance(module, MultiHeadAttention):
            if module.kv_heads != module.heads:
                raise SettingError(
                    f"{asked} cuts queries, keys and values alike, and {key} of {name} has {module.kv_heads} heads of "
                    f"keys for {module.heads} of queries: leave it out, or take parallel=fsdp."
                )
            if module.heads % count:
                raise SettingError(
                    f"{asked} shares heads, and {key} of {name} has {module.heads}, which it does not divide: take a "
                    "divisor of that."
                )
        elif isinstance(module, MLP) and module.fc1.out_features % count:
            raise SettingError(
                f"{asked} shares hidden units, and {key} of {name} has {module.fc1.out_features}, which it does not "
                "divide: take a divisor of that."
            )
