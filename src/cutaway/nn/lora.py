"""Low-rank adaptation (LoRA): a frozen linear layer with two small trainable matrices.

After E. J. Hu, Y. Shen, P. Wallis, Z. Allen-Zhu, Y. Li, S. Wang, L. Wang, W. Chen, LoRA: low-rank adaptation of large
language models, 2021, equation 3. <https://arxiv.org/abs/2106.09685>

    h = W x + b + (α / r) B A x,   W (d, k) frozen, A (r, k), B (d, r) with r small, initially B = 0: h is unchanged

A layer has r (d + k) trainable parameters, and optimizer states, instead of d k. After training, W + (α / r) B A is an
ordinary matrix (`merge`), which adds no cost at inference.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from fnmatch import fnmatchcase

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .attention import Attention


class LoRALinear(nn.Linear):
    """A linear layer, (…, k) to (…, d), with frozen weight and bias and trainable `lora_A` and `lora_B`."""

    def __init__(self, linear: nn.Linear, rank: int, alpha: float) -> None:
        """Take over weight and bias of `linear`; A is initialized like the weight of a linear layer."""
        nn.Module.__init__(self)
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.weight, self.bias = linear.weight, linear.bias
        self.scale = alpha / rank
        self.lora_A = nn.Parameter(linear.weight.new_empty(rank, linear.in_features))
        self.lora_B = nn.Parameter(linear.weight.new_zeros(linear.out_features, rank))
        nn.init.kaiming_uniform_(self.lora_A, a=math.sqrt(5))

    def forward(self, x: Tensor) -> Tensor:
        """Compute W x + b + (α / r) B A x."""
        beside = F.linear(F.linear(x, self.lora_A), self.lora_B)  # (…, r), then (…, d)
        return F.linear(x, self.weight, self.bias) + self.scale * beside

    @torch.no_grad()
    def merged(self) -> nn.Linear:
        """Return one linear layer with the same outputs."""
        device, dtype = self.weight.device, self.weight.dtype
        linear = nn.Linear(self.in_features, self.out_features, self.bias is not None, device, dtype)
        linear.weight.copy_(self.weight + self.scale * self.lora_B @ self.lora_A)
        if self.bias is not None:
            linear.bias.copy_(self.bias)
        return linear.train(self.training)


def adaptable(model: nn.Module, patterns: tuple[str, ...] = ()) -> list[str]:
    """Return the names of the linear layers that match `patterns`; by default the query, key and value projections."""
    if not patterns:
        return [f"{name}.{child}" for name, child, _ in _of_attention(model)]
    named = [name for name, module in model.named_modules() if isinstance(module, nn.Linear)]
    return [name for name in named if any(fnmatchcase(name, pattern) for pattern in patterns)]


def adapt(model: nn.Module, names: list[str], rank: int, alpha: float) -> None:
    """Add A and B to the linear layers with the given names, and freeze all other parameters."""
    model.requires_grad_(False)
    for name in names:
        linear = model.get_submodule(name)
        assert isinstance(linear, nn.Linear)
        model.set_submodule(name, LoRALinear(linear, rank, alpha))


def merge(model: nn.Module) -> None:
    """Merge each adapted layer into one matrix. All parameters become trainable again."""
    layers = [name for name, module in model.named_modules() if isinstance(module, LoRALinear)]
    for name in layers:
        adapted = model.get_submodule(name)
        assert isinstance(adapted, LoRALinear)
        model.set_submodule(name, adapted.merged())
    if layers:
        model.requires_grad_(True)


def _of_attention(model: nn.Module) -> Iterator[tuple[str, str, nn.Linear]]:
    """Yield the layer name, child name and child of each projection before the attention scores."""
    for name, layer in model.named_modules():
        if isinstance(layer, Attention):
            for child, linear in layer.named_children():
                if isinstance(linear, nn.Linear) and child != "out":
                    yield name, child, linear
