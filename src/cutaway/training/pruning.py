"""Magnitude pruning during training: a growing fraction of the weights, the smallest ones, is set to 0 and stays 0.

After S. Han, J. Pool, J. Tran, W. Dally, Learning both weights and connections for efficient neural networks, 2015
<https://arxiv.org/abs/1506.02626>; the schedule after M. Zhu, S. Gupta, To prune, or not to prune, 2017, equation 1
<https://arxiv.org/abs/1710.01878>, from no zeros at first to the final fraction s_f:

    s_t = s_f − s_f (1 − t / n)³

Most is pruned early, while many weights are redundant, and little at the end.

A weight is pruned if and only if it is 0. Checkpoints and models that were pruned before therefore need no masks, and a
run that was killed resumes with bit-identical results.

In the pattern 2:4 two of each four consecutive inputs are 0, which some hardware multiplies faster: A. Mishra and
others, Accelerating sparse deep neural networks, 2021 <https://arxiv.org/abs/2104.08378>. As there, the smaller two are
pruned at once, and the others are trained further.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ..core.config import as_text, shorten
from ..core.errors import SettingError
from .config import PATTERN, TrainSettings

TIMES = 100  # number of pruning steps in the schedule
IN_PATTERN = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.MultiheadAttention)  # weights are (outputs, inputs, …)
PRUNED = (nn.Linear, nn.modules.conv._ConvNd, nn.RNNBase, nn.RNNCellBase, nn.MultiheadAttention, nn.Bilinear)
NOT_WITH_SPARSITY = {
    "ema": "an average of weights over time is not 0 where they are pruned",
    "average_epochs": "an average of weights over time is not 0 where they are pruned",
    "lora": "LoRA learns beside the weights, which stay as they are",
    "freeze_epochs": "what is pruned is decided once, over the whole training",
}


class Pruning:
    """Magnitude pruning of one model during training."""

    def __init__(self, model: nn.Module, sparsity: float, scope: str, until: float, begun: bool) -> None:
        """Initialize the pruning.

        Weights are pruned until a fraction `sparsity` of all weights, or of each layer, is 0 (`scope`: global or
        layer), after a fraction `until` of training. If `begun`, weights that are 0 count as pruned. Raises
        SettingError if the model has no layer that can be pruned.
        """
        self.weights = [weight for weight in prunable_weights(model).values() if weight.requires_grad]
        if not self.weights:
            raise SettingError(
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
            raise SettingError(
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
        raise SettingError(
            f"sparsity={settings.sparsity:g} and {asked} do not go together: the pattern has a sparsity of its own, "
            "one half. Leave one out."
        )
    usual = TrainSettings()
    for key, why in NOT_WITH_SPARSITY.items():
        value = getattr(settings, key)
        if value and value != getattr(usual, key):
            raise SettingError(f"{asked} and {key}={shorten(as_text(value))} do not go together: {why}. Leave one out.")
    if settings.in_parts:
        raise SettingError(
            f"{asked} looks for the smallest of all weights, and each process would have a part of them alone with "
            "tensor_parallel and parallel=fsdp or hsdp: take parallel=ddp."
        )
    if tasks:
        raise SettingError(f"{asked} follows one schedule over the whole training, and tasks have one each.")
