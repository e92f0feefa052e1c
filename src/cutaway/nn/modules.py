"""Modes and sizes of a whole module: evaluation mode within a context, and layers resized by channel pruning.

In evaluation mode dropout is inactive and normalization uses its learned statistics.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """Switch the model to evaluation mode within the context.

    Afterwards each module returns to its own previous mode. Modules may differ, for example when some are frozen.
    """
    training = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, was in training.items():
            module.training = was


NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


@contextmanager
def batch_norm_mode(model: nn.Module, use_batch_statistics: bool = True) -> Iterator[None]:
    """Set all layers to eval mode inside the block, except batch normalization if `use_batch_statistics`.

    Buffers and modes are restored at the end.
    """
    buffers = {buffer: buffer.detach().clone() for buffer in model.buffers()}
    try:
        with eval_mode(model):
            for module in model.modules():
                module.training = isinstance(module, NORMS) and use_batch_statistics
            yield
    finally:
        with torch.no_grad():
            for buffer, before in buffers.items():
                buffer.copy_(before)


Shapes = Mapping[str, tuple[int, ...]]  # shapes of parameters and buffers by name, as in state_dict


def tensor_shapes(model: nn.Module) -> dict[str, tuple[int, ...]]:
    """Return the shape of each parameter and buffer."""
    return {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}


def resized_shapes(model: nn.Module) -> dict[str, tuple[int, ...]]:
    """Return the shapes that differ from those the network was built with, by name."""
    found: dict[str, tuple[int, ...]] = getattr(model, "resized", {})
    return found


def note_resized(model: nn.Module, shapes: Shapes) -> None:
    """Record on the model that these shapes differ from those it was built with."""
    model.resized = {**resized_shapes(model), **shapes}  # type: ignore[assignment]  # no module or tensor


def resize(model: nn.Module, shapes: Shapes) -> None:
    """Resize the named parameters and buffers, and update the sizes of their layers.

    The new tensors are uninitialized until weights are loaded. Layers are linear, convolutional, or norms. Raises
    ValueError for others, and KeyError for an unknown name.
    """
    own: dict[str, Tensor] = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    changed = {}
    for name, shape in shapes.items():
        parent, _, key = name.rpartition(".")
        layer = model.get_submodule(parent)
        fresh = torch.empty(shape, dtype=own[name].dtype, device=own[name].device)
        learns = own[name].requires_grad
        setattr(layer, key, nn.Parameter(fresh, learns) if isinstance(own[name], nn.Parameter) else fresh)
        changed[parent] = layer
    for parent, layer in changed.items():
        _follow(parent, layer)
    if shapes:
        note_resized(model, shapes)


def _follow(name: str, layer: nn.Module) -> None:
    """Update a layer's size attributes to match its weight."""
    weight = getattr(layer, "weight", None)
    if not isinstance(weight, Tensor):
        raise ValueError(f"{name} has no weight")
    if isinstance(layer, nn.Linear):
        layer.out_features, layer.in_features = weight.shape
    elif isinstance(layer, _ConvNd):
        if layer.groups > 1 and layer.groups == layer.in_channels == layer.out_channels:  # depthwise
            layer.groups = len(weight)
        layer.out_channels, layer.in_channels = len(weight), weight.shape[1] * layer.groups
    elif isinstance(layer, _BatchNorm):
        layer.num_features = len(weight)
    elif isinstance(layer, nn.LayerNorm):
        layer.normalized_shape = tuple(weight.shape)
    else:
        raise ValueError(f"{name} is a {type(layer).__name__}, which has no other size")
