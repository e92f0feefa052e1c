"""Fully sharded data parallel: each process holds a part of every weight, its gradient and what the optimizer keeps.

S. Rajbhandari et al., ZeRO: memory optimizations toward training trillion parameter models, 2019
<https://arxiv.org/abs/1910.02054>, stage 3; PyTorch's `fully_shard` does it, with weights as DTensors of which each
process has some rows. A block's whole weights are there while it computes, and gone after it.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import nn
from torch.distributed._composable.replicate_with_fsdp import replicate
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

from ..core.errors import SettingError
from .ddp import Loss
from .dtensors import TENSOR
from .environment import local_world_size

PRODUCTS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)  # what autocast computes in fewer digits, bias and all

# What a loss says of its batch is looked at, never written to.
warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view tensor")


def mesh_of(
    device: torch.device, processes: int, parallel: str, tensor: int = 1, machine: int | None = None
) -> DeviceMesh:
    """The processes in a grid: `replicate` are those that hold the same, `shard` those that share weights by rows, and
    `tensor` those that share heads and hidden units, as many as that says for each of the `processes` that see
    different examples. With parallel=hsdp the processes of a machine, of which it has so many, hold one whole model
    together: so the weights travel within machines, and between them gradients alone."""
    within = (machine or local_world_size()) // tensor
    data = {
        "fsdp": {"shard": processes},
        "hsdp": {"replicate": processes // within, "shard": within},
    }.get(parallel, {"replicate": processes})
    sizes = {**data, **({TENSOR: tensor} if tensor > 1 else {})}
    return init_device_mesh(device.type, tuple(sizes.values()), mesh_dim_names=tuple(sizes))


def shard(model: nn.Module, mesh: DeviceMesh, blocks: list[nn.Module], dtype: torch.dtype | None) -> Loss:
    """Shard the model over the dimensions `replicate` and `shard` of the mesh, each of its `blocks` by itself and what
    is left together; the loss in which it computes with whole weights, and after whose backward pass each process has
    its part of the sum of all gradients. With a `dtype` the weights of linear layers and convolutions in blocks, which
    compute in that, travel in it too, together by block; normalizations, which do not, stay what they are. Gradients
    are added in the weights' own. Raises SettingError where PyTorch is too old for it."""
    if not hasattr(FSDPModule, "set_reduce_scatter_unused_params"):
        raise SettingError(
            f"Weights are shared between processes from PyTorch 2.13 on, and this is {torch.__version__}: update it, "
            "or take parallel=ddp without tensor_parallel."
        )
    loss = Loss(model)
    data = tuple(name for name in mesh.mesh_dim_names or () if name != TENSOR)
    share, mesh = fully_shard if "shard" in data else replicate, mesh[data]
    policy = MixedPrecisionPolicy(
        param_dtype=dtype, reduce_dtype=next(model.parameters()).dtype, cast_forward_inputs=False
    )
    for block in blocks:
        products = [m for m in block.modules() if isinstance(m, PRODUCTS) and not any(m.children())] if dtype else []
        if products:
            share(products, mesh=mesh, mp_policy=policy)  # type: ignore[arg-type]  # one or a list
        if block not in products:
            share(block, mesh=mesh)
    share(loss, mesh=mesh)
    for module in _sharded(loss):
        module.set_gradient_divide_factor(1.0)  # a sum: the loss is divided by what is counted over all processes
        module.set_force_sum_reduction_for_comms(True)
        module.set_reduce_scatter_unused_params(True)  # not all of a model need take part in a batch
    return loss


def collect_gradients(loss: Loss, now: bool) -> None:
    """Whether gradients come together after the next backward pass, or wait for a later one."""
    for module in _sharded(loss):
        module.set_requires_gradient_sync(now, recurse=False)
        module.set_is_last_backward(now)


def _sharded(loss: Loss) -> list[Any]:
    return [module for module in loss.modules() if isinstance(module, FSDPModule)]
