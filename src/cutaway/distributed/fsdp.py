"""Fully sharded data parallelism: each process stores a part of every weight, its gradient and its optimizer state.

S. Rajbhandari et al., ZeRO: memory optimizations toward training trillion parameter models, 2019
<https://arxiv.org/abs/1910.02054>, stage 3, by PyTorch's `fully_shard`. Weights are DTensors, and each process has some
of their rows. The whole weights of a block exist only while it computes.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import nn
from torch.distributed._composable.replicate_with_fsdp import replicate
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

from ..core.errors import DeviceError
from .ddp import LossModule
from .launch import local_world_size
from .tensor_parallel import TENSOR

LOW_PRECISION_LAYERS = (
    nn.Linear,
    nn.Conv1d,
    nn.Conv2d,
    nn.Conv3d,
)  # layers that autocast computes in low precision, bias included

# The outputs of the loss are only read, so a view is safe.
warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view tensor")


def build_mesh(
    device: torch.device, processes: int, parallel: str, tensor: int = 1, machine: int | None = None
) -> DeviceMesh:
    """Return the mesh of processes.

    Its dimensions are `replicate`, the processes that store the same; `shard`, those that share weights by rows; and
    `tensor`, those that share heads and hidden units. With parallel=hsdp the processes of one machine share one whole
    model, so weights are sent within machines and only gradients between them.

    Args:
        device: Device whose type the mesh has.
        processes: Number of processes that see different examples.
        parallel: Setting `parallel`.
        tensor: Number of processes that share heads and hidden units, for each of `processes`.
        machine: Number of processes of one machine. By default that of this launch.
    """
    within = (machine or local_world_size()) // tensor
    data = {
        "fsdp": {"shard": processes},
        "hsdp": {"replicate": processes // within, "shard": within},
    }.get(parallel, {"replicate": processes})
    sizes = {**data, **({TENSOR: tensor} if tensor > 1 else {})}
    return init_device_mesh(device.type, tuple(sizes.values()), mesh_dim_names=tuple(sizes))


def shard(model: nn.Module, mesh: DeviceMesh, blocks: list[nn.Module], dtype: torch.dtype | None) -> LossModule:
    """Shard the model over the dimensions `replicate` and `shard` of the mesh.

    Args:
        model: Model to shard.
        mesh: Mesh of processes.
        blocks: Modules that are sharded separately. The rest of the model is sharded together.
        dtype: Type in which the weights of linear layers and convolutions in blocks compute and are sent, together for
            each
            block. Normalizations keep their type. Gradients are added in the type of the weights.

    Returns:
        A loss in which the model computes with whole weights. After its backward pass each process has its part of the
        sum of all gradients.

    Raises:
        SettingError: If PyTorch is too old.
    """
    if not hasattr(FSDPModule, "set_reduce_scatter_unused_params"):
        raise DeviceError(
            f"Sharded weights need PyTorch 2.13 or later, and this is {torch.__version__}: update it, "
            "or use parallel=ddp without tensor_parallel."
        )
    loss = LossModule(model)
    data = tuple(name for name in mesh.mesh_dim_names or () if name != TENSOR)
    share, mesh = fully_shard if "shard" in data else replicate, mesh[data]
    policy = MixedPrecisionPolicy(
        param_dtype=dtype, reduce_dtype=next(model.parameters()).dtype, cast_forward_inputs=False
    )
    for block in blocks:
        products = (
            [m for m in block.modules() if isinstance(m, LOW_PRECISION_LAYERS) and not any(m.children())]
            if dtype
            else []
        )
        if products:
            share(products, mesh=mesh, mp_policy=policy)  # type: ignore[arg-type]  # one or a list
        if block not in products:
            share(block, mesh=mesh)
    share(loss, mesh=mesh)
    for module in _sharded(loss):
        module.set_gradient_divide_factor(1.0)  # a sum: the loss is already divided by the count of all processes
        module.set_force_sum_reduction_for_comms(True)
        module.set_reduce_scatter_unused_params(True)  # a batch may leave parts of a model unused
    return loss


def set_gradient_sync(loss: LossModule, now: bool) -> None:
    """Set whether gradients are reduced after the next backward pass or after a later one."""
    for module in _sharded(loss):
        module.set_requires_gradient_sync(now, recurse=False)
        module.set_is_last_backward(now)


def _sharded(loss: LossModule) -> list[Any]:
    return [module for module in loss.modules() if isinstance(module, FSDPModule)]
