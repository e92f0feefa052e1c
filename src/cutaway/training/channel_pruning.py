"""Structured pruning: whole channels and hidden units are taken out, and the network that is left is smaller.

After H. Li, A. Kadav, I. Durdanovic, H. Samet, H. P. Graf, Pruning filters for efficient ConvNets, 2016
<https://arxiv.org/abs/1608.08710>: the filters of the smallest norm go, the same fraction of every layer. What else has
to go with a channel (its norm's scale, the next layers' weights for it) is found along the graph of the computation, by
torch-pruning: G. Fang, X. Ma, M. Song, M. B. Mi, X. Wang, DepGraph, 2023 <https://arxiv.org/abs/2301.12900>.

No layer is trusted to have been pruned rightly: the network without its channels must say what it says where all that
reads them is 0. Where it does not (a shortcut that pads channels, attention that has to have whole heads), these
channels stay.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from ..core.errors import ModelError, SettingError
from ..nn.eval_mode import resting
from ..nn.resizing import Shapes, note_resized, shapes_of

TOLERANCE = 1e-4  # of the largest output: sums of float32 in another order
READS = "prune_in_channels"  # of a group: a layer that reads the channels


def prune_channels(model: nn.Module, inputs: tuple[Tensor, ...], fraction: float) -> Shapes:
    """Take that fraction of the channels and hidden units of every layer out of `model`, in place, where it can be
    done without touching what the network says otherwise; the shapes that changed, which depend on `fraction` and the
    network alone, not on its weights.

    `inputs` are an example of what its forward takes. Raises SettingError where torch-pruning is not installed,
    ModelError where nothing can be taken out.
    """
    pruning = _library(fraction)
    before = shapes_of(model)
    with resting(model), torch.enable_grad():
        graph = _graph(pruning, model, inputs)
        for root, count in _groups(graph, model):
            if not _taken_out(pruning, graph, model, inputs, root, int(fraction * count)):
                graph = _graph(pruning, model, inputs)  # it knows of channels that are back now
    after = shapes_of(model)
    changed = {name: shape for name, shape in after.items() if shape != before[name]}
    if not changed:
        raise ModelError(
            f"prune_channels={fraction:g} finds no channels in {type(model).__name__} that can be taken out: "
            "sparsity=0.8 prunes single weights instead."
        )
    note_resized(model, changed)
    return changed


def _graph(pruning: Any, model: nn.Module, inputs: tuple[Tensor, ...]) -> Any:
    """What depends on what, as one forward shows it."""
    return pruning.DependencyGraph().build_dependency(model, example_inputs=inputs, forward_fn=_forward)


def _groups(graph: Any, model: nn.Module) -> list[tuple[str, int]]:
    """The layers that make channels which others read, by name, and how many they make."""
    names = {module: name for name, module in model.named_modules()}
    found = []
    for group in graph.get_all_groups(root_module_types=[nn.Linear, _ConvNd]):
        dependency, channels = group[0]
        if any(part.handler.__name__ == READS for part, _ in group):
            found.append((names[dependency.target.module], len(channels)))
    return found


def _taken_out(pruning: Any, graph: Any, model: nn.Module, inputs: tuple[Tensor, ...], root: str, count: int) -> bool:
    """Take out the `count` channels of the layer `root` that have the smallest norms, with all that hangs on them; or
    leave everything as it was, where the network would say something else then. False where it was pruned and brought
    back."""
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
    with _undone_unless(group) as kept, torch.no_grad():
        _silence(group)
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


def _silence(group: Any) -> None:
    """Set to 0 what reads the group's channels."""
    for dependency, channels in group:
        if dependency.handler.__name__ == READS:
            weight = dependency.target.module.weight  # (out, in, …)
            weight[:, list(channels)] = 0


@contextmanager
def _undone_unless(group: Any) -> Iterator[list[bool]]:
    """Bring the layers of a group back to what they were, unless something is put into the list."""
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


def _library(fraction: float) -> Any:
    """torch-pruning, which is an extra."""
    try:
        import torch_pruning
    except ImportError as error:
        raise SettingError(
            f"prune_channels={fraction:g} needs torch-pruning, which is not here ({error}): pip install "
            "'cutaway[prune]'."
        ) from error
    return torch_pruning
