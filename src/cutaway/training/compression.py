"""Compression of a model while it is trained: pruning of weights and channels, and quantization-aware training.

Magnitude pruning: a growing fraction of the weights, the smallest ones, is set to 0 and stays 0. After S. Han, J. Pool,
J. Tran, W. Dally, Learning both weights and connections for efficient neural networks, 2015
<https://arxiv.org/abs/1506.02626>; the schedule after M. Zhu, S. Gupta, To prune, or not to prune, 2017, equation 1
<https://arxiv.org/abs/1710.01878>, from no zeros at first to the final fraction s_f:

    s_t = s_f − s_f (1 − t / n)³

Most is pruned early, while many weights are redundant, and little at the end. A weight is pruned if and only if it is
0. Checkpoints and models that were pruned before therefore need no masks, and a run that was killed resumes with
bit-identical results.

In the pattern 2:4 two of each four consecutive inputs are 0, which some hardware multiplies faster: A. Mishra and
others, Accelerating sparse deep neural networks, 2021 <https://arxiv.org/abs/2104.08378>. As there, the smaller two are
pruned at once, and the others are trained further.

Structured pruning: whole channels and hidden units are removed, which makes the network smaller. After H. Li, A. Kadav,
I. Durdanovic, H. Samet, H. P. Graf, Pruning filters for efficient ConvNets, 2016 <https://arxiv.org/abs/1608.08710>:
the filters with the smallest norms are removed, the same fraction in every layer. What depends on a channel (the scale
of its norm, the weights for it in the next layers) is found along the graph of the computation by torch-pruning: G.
Fang, X. Ma, M. Song, M. B. Mi, X. Wang, DepGraph, 2023 <https://arxiv.org/abs/2301.12900>. Every removal is verified:
the pruned network must give the same outputs as the network in which all weights that read the removed channels are 0.
If it does not (a shortcut that pads channels, attention that needs whole heads), these channels are kept.

Quantization-aware training: a model is trained with weights and inputs rounded as in the quantized model. After B.
Jacob et al., 2018 <https://arxiv.org/abs/1712.05877>, with the straight-through estimator of Y. Bengio, N. Léonard, A.
Courville, 2013 <https://arxiv.org/abs/1308.3432>: the forward and the backward pass use rounded numbers, and the
gradient updates the unrounded ones, as if rounding were the identity:

    ŵ = round(w),    w ← w − η ∂L/∂ŵ

Batch normalization is not folded, since each channel of a kernel has its own step, and folding would scale both alike.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from ..core.config import as_text, shorten
from ..core.errors import IncompatibleSettingError, ModelError
from ..core.extras import require
from ..nn.low_precision import layers_for, stored_bits
from ..nn.modules import Shapes, eval_mode, note_resized, tensor_shapes
from ..nn.quantized import (
    SEEN,
    TINY,
    dequantize_groups,
    dequantize_rows,
    dynamic_scales,
    quantize_groups,
    quantize_rows,
)
from .callbacks import Callback
from .checkpoint import TrainingState
from .config import PATTERN, TrainSettings

TIMES = 100  # number of pruning steps in the schedule
IN_PATTERN = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.MultiheadAttention)  # weights are (outputs, inputs, …)
PRUNED = (nn.Linear, nn.modules.conv._ConvNd, nn.RNNBase, nn.RNNCellBase, nn.MultiheadAttention, nn.Bilinear)
NOT_WITH_SPARSITY = {
    "ema": "an average of weights over time is not 0 where they are pruned",
    "average_epochs": "an average of weights over time is not 0 where they are pruned",
    "lora": "LoRA does not change the weights",
    "freeze_epochs": "pruning covers the whole training",
}


class Pruning(Callback):
    """Magnitude pruning of one model during training."""

    def __init__(self, model: nn.Module, sparsity: float, scope: str, until: float, begun: bool) -> None:
        """Initialize the pruning.

        Weights are pruned until a fraction `sparsity` of all weights, or of each layer, is 0 (`scope`: global or
        layer), after a fraction `until` of training. If `begun`, weights that are 0 count as pruned. Raises
        SettingError if the model has no layer that can be pruned.
        """
        self.weights = [weight for weight in prunable_weights(model).values() if weight.requires_grad]
        if not self.weights:
            raise IncompatibleSettingError(
                f"sparsity={sparsity:g} prunes linear, convolutional and recurrent layers, and {type(model).__name__} "
                "has none that learn: leave it out."
            )
        self.sparsity, self.scope, self.until = sparsity, scope, until
        self.masks = [weight != 0 if begun else torch.ones_like(weight, dtype=torch.bool) for weight in self.weights]
        self._looked = -1  # last pruning step

    @property
    def zeros(self) -> int:
        """Return the number of pruned weights."""
        return sum(int((~mask).sum()) for mask in self.masks)

    def on_step_end(self, state: TrainingState) -> None:
        """Prune as scheduled."""
        self.step(self.trainer.phase_progress(self.trainer.phase_steps))

    @torch.no_grad()
    def step(self, done: float) -> None:
        """Prune to the fraction scheduled for progress `done` in [0, 1], and set all pruned weights to 0 again."""
        look = TIMES if done >= self.until else int(TIMES * done / self.until)
        if look > self._looked:
            self._looked = look
            fraction = self.sparsity * (1 - (1 - look / TIMES) ** 3)
            groups = [slice(None)] if self.scope == "global" else [slice(i, i + 1) for i in range(len(self.weights))]
            self.masks = [
                mask for group in groups for mask in magnitude_masks(self.weights[group], self.masks[group], fraction)
            ]
        self._set_to_0()

    def _set_to_0(self) -> None:
        for weight, mask in zip(self.weights, self.masks):
            weight.mul_(mask)


class PatternPruning(Pruning):
    """Pruning in the pattern 2:4, from the start of training."""

    @torch.no_grad()
    def __init__(self, model: nn.Module) -> None:
        """Initialize the masks. Raises SettingError if no trainable layer has a multiple of four inputs."""
        found = prunable_weights(model, IN_PATTERN).values()
        self.weights = [weight for weight in found if weight.requires_grad and weight.shape[1] % 4 == 0]
        if not self.weights:
            raise IncompatibleSettingError(
                f"prune_pattern={PATTERN} prunes linear layers and convolutions by four inputs at a time, and "
                f"{type(model).__name__} has none that learns and has a multiple of four inputs: sparsity=0.5 prunes "
                "single weights instead."
            )
        self.masks = [two_of_four_mask(weight) for weight in self.weights]
        self._set_to_0()

    @torch.no_grad()
    def step(self, done: float) -> None:
        """Reset pruned weights that the update has changed."""
        del done
        self._set_to_0()


def build_pruning(model: nn.Module, settings: TrainSettings, begun: bool) -> Pruning | None:
    """Return the pruning for these settings, or None; `begun` as in `Pruning`."""
    if settings.prune_pattern == PATTERN:
        return PatternPruning(model)
    if not settings.sparsity:
        return None
    return Pruning(model, settings.sparsity, settings.prune_scope, settings.prune_until, begun)


def magnitude_masks(weights: Sequence[Tensor], masks: Sequence[Tensor], fraction: float) -> list[Tensor]:
    """Return masks of the same shapes that are False for a fraction of all these weights.

    Those that are already False come first, then the smallest by absolute value.
    """
    sizes = torch.cat([(weight.abs() * mask).flatten() for weight, mask in zip(weights, masks)])
    pruned = sum(int((~mask).sum()) for mask in masks)
    count = max(pruned, round(fraction * len(sizes)))
    keep = torch.ones_like(sizes, dtype=torch.bool)
    keep[torch.topk(sizes, count, largest=False, sorted=False).indices] = False
    return [part.view_as(mask) for part, mask in zip(torch.split(keep, [mask.numel() for mask in masks]), masks)]


def two_of_four_mask(weight: Tensor) -> Tensor:
    """Return a mask for a weight (outputs, inputs, …), False for the smaller two of each four consecutive inputs."""
    sizes = weight.abs().movedim(1, -1)  # (outputs, …, inputs)
    groups = sizes.reshape(-1, 4)
    keep = torch.zeros_like(groups, dtype=torch.bool).scatter_(1, groups.topk(2, 1).indices, True)
    return keep.view(sizes.shape).movedim(-1, 1)


def prunable_weights(model: nn.Module, layers: tuple[type[nn.Module], ...] = PRUNED) -> dict[str, nn.Parameter]:
    """Return the weights that magnitude pruning applies to, by name.

    These are matrices and kernels of linear, convolutional and recurrent `layers`, without biases, norms and weights
    that are shared with an embedding.
    """
    embedded = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding | nn.EmbeddingBag)}
    found: dict[str, nn.Parameter] = {}
    for name, module in model.named_modules():
        for key, parameter in module.named_parameters(recurse=False) if isinstance(module, layers) else ():
            if parameter.ndim > 1 and id(parameter) not in embedded:
                found[f"{name}.{key}".lstrip(".")] = parameter
    return found


def measure_sparsity(model: nn.Module) -> float:
    """Return the fraction of prunable weights that are 0."""
    weights = prunable_weights(model).values()
    return sum(int((w == 0).sum()) for w in weights) / max(1, sum(w.numel() for w in weights))


def reject_for_pruning(settings: TrainSettings, tasks: bool) -> None:
    """Raise SettingError for settings that are incompatible with pruning, and for a sequence of `tasks`."""
    patterned = settings.prune_pattern == PATTERN
    if not settings.sparsity and not patterned:
        return
    asked = f"prune_pattern={PATTERN}" if patterned else f"sparsity={settings.sparsity:g}"
    if settings.sparsity and patterned:
        raise IncompatibleSettingError(
            f"sparsity={settings.sparsity:g} and {asked} do not go together: the pattern has a sparsity of its own, "
            "one half. Leave one out."
        )
    usual = TrainSettings()
    for key, why in NOT_WITH_SPARSITY.items():
        value = getattr(settings, key)
        if value and value != getattr(usual, key):
            raise IncompatibleSettingError(
                f"{asked} and {key}={shorten(as_text(value))} do not go together: {why}. Leave one out."
            )
    if settings.in_parts:
        raise IncompatibleSettingError(
            f"{asked} looks for the smallest of all weights, and each process would have a part of them alone with "
            "tensor_parallel and parallel=fsdp or hsdp: take parallel=ddp."
        )
    if tasks:
        raise IncompatibleSettingError(
            f"{asked} follows one schedule over the whole training, and tasks have one each."
        )


# --- channels -----------------------------------------------------------------------------------------------------

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
    try:
        norms = pruning.importance.GroupMagnitudeImportance(p=2)(whole)
    except IndexError:  # torch-pruning does not follow the channels through every view, as of q, k and v
        return True
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
    return require("torch_pruning", f"prune_channels={fraction:g}")


# --- quantization-aware training ----------------------------------------------------------------------------------

NEEDS = {"static": "static", "dynamic": "dynamic", "weight-only": "stored"}  # required kind of layer, by method
LAYERS = {"static": "convolution", "dynamic": "linear layer", "weight-only": "layer"}


class FakeQuantization:
    """Weights that are rounded during training, and layers whose inputs are."""

    def __init__(self, model: nn.Module, method: str, group: int) -> None:
        """Initialize from `method`: static, dynamic or weight-only. With a `group` weights have 4 bits, else 8.

        Raises SettingError if the model has no layer for the method.
        """
        layers = layers_for(model, method)
        if NEEDS[method] not in layers.values():
            raise IncompatibleSettingError(
                f"qat={method} is not supported: {type(model).__name__} has no {LAYERS[method]}. Leave it out."
            )
        self.group = group
        whole = {name: model.get_submodule(name) for name in layers}
        kinds = {"static": _round_static, "dynamic": _round_dynamic}
        self.inputs = [(whole[name], kinds[kind]) for name, kind in layers.items() if kind in kinds]
        rounded = {id(layer.weight): (layer.weight, 8) for layer, _ in self.inputs}
        parameters = dict(model.named_parameters(remove_duplicate=False))
        scheme = {"layers": layers, "bits": 4 if group else 8}
        for key, bits in stored_bits(model, scheme).items():
            rounded[id(parameters[key])] = (parameters[key], bits)
        self.weights: list[tuple[Any, int]] = list(rounded.values())

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        """Round weights and inputs within this context, and restore the weights on exit."""
        floats = [weight.data for weight, _ in self.weights]
        handles = [layer.register_forward_pre_hook(partial(_round_input, how)) for layer, how in self.inputs]
        try:
            for weight, bits in self.weights:
                weight.data = self._round_weight(weight.data, bits)
            yield
        finally:
            for (weight, _), before in zip(self.weights, floats):
                weight.data = before
            for handle in handles:
                handle.remove()

    def _round_weight(self, w: Tensor, bits: int) -> Tensor:
        if bits == 4:
            return dequantize_groups(*quantize_groups(w, self.group), self.group, w.shape).to(w.dtype)
        return dequantize_rows(*quantize_rows(w))


def build_fake_quantization(model: nn.Module, settings: TrainSettings) -> FakeQuantization | None:
    """Return the rounding for these settings, or None."""
    return None if settings.qat == "none" else FakeQuantization(model, settings.qat, settings.qat_group)


def _round_input(how: Callable[[Tensor], Tensor], module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
    x, *more = args
    return (x + (how(x.detach()) - x.detach()), *more)  # straight-through: the gradient is that of x


def _round_static(x: Tensor) -> Tensor:
    """Round as a static layer rounds its inputs, over the range of this batch."""
    # `observe` and `quantize_observed` are not used: they convert the range to Python numbers, which synchronizes a
    # GPU in every layer of every step. They also multiply by 1/s in one pass, so inputs halfway between two steps may
    # round differently.
    low, high = (edge.float() for edge in torch.aminmax(x))
    scale = ((high.clamp_min(0) - low.clamp_max(0)) / SEEN).clamp_min(TINY)
    zero = (-low.clamp_max(0) / scale).round()
    return ((torch.floor(x / scale + zero + 0.5).clamp(0, SEEN) - zero) * scale).to(x.dtype)


def _round_dynamic(x: Tensor) -> Tensor:
    """Round as a dynamic layer rounds its inputs."""
    step = dynamic_scales(x)
    return (x / step).round() * step


def reject_for_qat(settings: TrainSettings) -> None:
    """Raise SettingError for settings that are incompatible with quantization-aware training."""
    if settings.qat == "none":
        return
    asked = f"qat={settings.qat}"
    if settings.qat_group and settings.qat != "weight-only":
        raise IncompatibleSettingError(
            f"{asked} and qat_group={settings.qat_group} do not go together: 4 bits are for qat=weight-only."
        )
    if settings.lora is not None:
        raise IncompatibleSettingError(
            f"{asked} and lora={settings.lora} do not go together: weights that are frozen learn none."
        )
    if settings.compile:
        raise IncompatibleSettingError(
            f"{asked} and compile=true do not go together: weights are other ones in every step."
        )
    if settings.in_parts:
        raise IncompatibleSettingError(
            f"{asked} rounds each layer by its largest weights, and each process would have a part of them alone with "
            "tensor_parallel and parallel=fsdp or hsdp: take parallel=ddp."
        )
