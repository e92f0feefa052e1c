"""Structured pruning: whole channels and hidden units are removed, which makes the network smaller.

After H. Li, A. Kadav, I. Durdanovic, H. Samet, H. P. Graf, Pruning filters for efficient ConvNets, 2016
<https://arxiv.org/abs/1608.08710>: the filters with the smallest norms are removed, the same fraction in every layer.
What depends on a channel (the scale of its norm, the weights for it in the next layers) is found along the graph of the
computation by torch-pruning: G. Fang, X. Ma, M. Song, M. B. Mi, X. Wang, DepGraph, 2023
<https://arxiv.org/abs/2301.12900>.

Every removal is verified: the pruned network must give the same outputs as the network in which all weights that read
the removed channels are 0. If it does not (a shortcut that pads channels, attention that needs whole heads), these
channels are kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from ..core.errors import ModelError, SettingError
from ..nn.eval_mode import eval_mode
from ..nn.resizing import Shapes, note_resized, tensor_shapes

TOLERANCE = 1e-4  # of the largest output: sums of float32 in another order
READS = "prune_in_channels"  # dependency of a layer that reads the channels


def prune_channels(model: nn.Module, inputs: tuple[Tensor, ...], fraction: float) -> Shapes:
    """Remove a fraction of the channels and hidden units of every layer of `model` in place.

    Returns the shapes that changed, which depend on `fraction` and the architecture alone, not on the weights. Channels
    are removed where this does not change the outputs in any other way. `inputs` are an example of the inputs of its
    forward. Raises SettingError if torch-pruning is not installed, and ModelError if nothing can be removed.
    """
    pruning = _import_torch_pruning(fraction)
    before = tensor_shapes(model)
    with eval_mode(model), torch.enable_grad():
        graph = _graph(pruning, model, inputs)
        for root, count in _groups(graph, model):
            if not _remove_channels(pruning, graph, model, inputs, root, int(fraction * count)):
                graph = _graph(pruning, model, inputs)  # the graph is out of date after a rollback
    after = tensor_shapes(model)
    changed = {name: shape for name, shape in after.items() if shape != before[name]}
    if not changed:
        raise ModelError(
            f"prune_channels={fraction:g} finds no channels in {type(model).__name__} that can be taken out: "
            "sparsity=0.8 prunes single weights instead."
        )
    note_resized(model, changed)
    return changed


def _graph(pruning: Any, model: nn.Module, inputs: tuple[Tensor, ...]) -> Any:
    """Return the dependency graph of one forward pass."""
    return pruning.DependencyGraph().build_dependency(model, example_inputs=inputs, forward_fn=_forward)


def _groups(graph: Any, model: nn.Module) -> list[tuple[str, int]]:
    """Return the names of the layers whose output channels other layers read, with the number of these channels."""
    names = {module: name for name, module in model.named_modules()}
    found = []
    for group in graph.get_all_groups(root_module_types=[nn.Linear, _ConvNd]):
        dependency, channels = group[0]
        if any(part.handler.__name__ == READS for part, _ in group):
            found.append((names[dependency.target.module], len(channels)))
    return found


def _remove_channels(
    pruning: Any, graph: Any, model: nn.Module, inputs: tuple[Tensor, ...], root: str, count: int
) -> bool:
    """Remove the `count` output channels of layer `root` with the smallest norms, and everything that depends on them.

    If the outputs would change in any other way, restore the layers and return False.
    """
    if not count:
        return True
    layer = model.get_submodule(root)
    make = pruning.prune_linear_out_channels if isinstance(layer, nn.Linear) else pruning.prune_conv_out_channels
    size = len(layer.weight) if isinstance(layer, nn.Linear | _ConvNd) else 0
    whole = graph.get_pruning_group(layer, make, idxs=list(range(size)))
    norms = pruning.importance.GroupMagnitudeImportance(p=2)(whole)
    if norms is None or len(norms) != size:
        return True
    group = graph.get_pruning_group(layer, make, idxs=sorted(norms.argsort()[:count].tolist()))
    with _rollback_unless(group) as kept, torch.no_grad():
        _zero_readers(group)
        expected = _forward(model, inputs)
        try:
            group.prune()
            got = _forward(model, inputs)
        except (RuntimeError, IndexError, ValueError):  # shapes that no longer fit
            return False
        scale = expected.abs().max().item()
        if got.shape == expected.shape and (got - expected).abs().max().item() <= TOLERANCE * scale:
            kept.append(True)
    return bool(kept)


def _zero_readers(group: Any) -> None:
    """Set the weights that read the channels of the group to 0."""
    for dependency, channels in group:
        if dependency.handler.__name__ == READS:
            weight = dependency.target.module.weight  # (out, in, …)
            weight[:, list(channels)] = 0


@contextmanager
def _rollback_unless(group: Any) -> Iterator[list[bool]]:
    """Restore the layers of a group on exit, unless something was appended to the list."""
    layers = {dependency.target.module for dependency, _ in group}
    before = [(m, dict(m.__dict__), dict(m._parameters), dict(m._buffers)) for m in layers]
    content = [(p, p.detach().clone()) for m in layers for p in m.parameters(recurse=False)]
    kept: list[bool] = []
    yield kept
    if not kept:
        for module, attributes, parameters, buffers in before:
            module.__dict__.update(attributes)
            module._parameters, module._buffers = parameters, buffers
        with torch.no_grad():
            for parameter, was in content:
                parameter.copy_(was)


def _forward(model: nn.Module, inputs: tuple[Tensor, ...]) -> Tensor:
    outputs: Tensor = model(*inputs)
    return outputs


def _import_torch_pruning(fraction: float) -> Any:
    """Import torch-pruning, which is an optional dependency."""
    try:
        import torch_pruning
    except ImportError as error:
        raise SettingError(
            f"prune_channels={fraction:g} needs torch-pruning, which is not here ({error}): pip install "
            "'cutaway[prune]'."
        ) from error
    return torch_pruning
