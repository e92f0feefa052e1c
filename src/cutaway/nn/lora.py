"""Low-rank adaptation (LoRA): a linear layer learns by two thin matrices beside its own, which stays as it is.

After E. J. Hu, Y. Shen, P. Wallis, Z. Allen-Zhu, Y. Li, S. Wang, L. Wang, W. Chen, LoRA: low-rank adaptation of large
language models, 2021, equation 3. <https://arxiv.org/abs/2106.09685>

    h = W x + b + (α / r) B A x,   W (d, k) frozen, A (r, k), B (d, r) with r small, B = 0 at first: h begins as it was

What learns, and what its optimizer remembers, are r (d + k) numbers a layer instead of d k. Afterwards W + (α / r) B A
is a matrix like any other (`merge`), and costs nothing when the network answers.
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
    """(…, k) to (…, d): a linear layer with `lora_A` and `lora_B` beside its frozen matrix and bias."""

    def __init__(self, linear: nn.Linear, rank: int, alpha: float) -> None:
        """The layer takes over the matrix and the bias of `linear`; A is drawn as a linear layer's matrix is."""
        nn.Module.__init__(self)
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.weight, self.bias = linear.weight, linear.bias
        self.scale = alpha / rank
        self.lora_A = nn.Parameter(linear.weight.new_empty(rank, linear.in_features))
        self.lora_B = nn.Parameter(linear.weight.new_zeros(linear.out_features, rank))
        nn.init.kaiming_uniform_(self.lora_A, a=math.sqrt(5))

    def forward(self, x: Tensor) -> Tensor:
        """W x + b + (α / r) B A x."""
        beside = F.linear(F.linear(x, self.lora_A), self.lora_B)  # (…, r), then (…, d)
        return F.linear(x, self.weight, self.bias) + self.scale * beside

    @torch.no_grad()
    def merged(self) -> nn.Linear:
        """One linear layer that gives the same."""
        device, dtype = self.weight.device, self.weight.dtype
        linear = nn.Linear(self.in_features, self.out_features, self.bias is not None, device, dtype)
        linear.weight.copy_(self.weight + self.scale * self.lora_B @ self.lora_A)
        if self.bias is not None:
            linear.bias.copy_(self.bias)
        return linear.train(self.training)


def adaptable(model: nn.Module, patterns: tuple[str, ...] = ()) -> list[str]:
    """The names of the linear layers that `patterns` mean; without any, those that make queries, keys and values."""
    if not patterns:
        return [f"{name}.{child}" for name, child, _ in _of_attention(model)]
    named = [name for name, module in model.named_modules() if isinstance(module, nn.Linear)]
    return [name for name in named if any(fnmatchcase(name, pattern) for pattern in patterns)]


def adapt(model: nn.Module, names: list[str], rank: int, alpha: float) -> None:
    """Give the linear layers of these names A and B, and freeze all that the model had."""
    model.requires_grad_(False)
    for name in names:
        linear = model.get_submodule(name)
        assert isinstance(linear, nn.Linear)
        model.set_submodule(name, LoRALinear(linear, rank, alpha))


def merge(model: nn.Module) -> None:
    """Make each adapted layer one matrix again. Numbers that were frozen may learn again."""
    layers = [name for name, module in model.named_modules() if isinstance(module, LoRALinear)]
    for name in layers:
        adapted = model.get_submodule(name)
        assert isinstance(adapted, LoRALinear)
        model.set_submodule(name, adapted.merged())
    if layers:
        model.requires_grad_(True)


def _of_attention(model: nn.Module) -> Iterator[tuple[str, str, nn.Linear]]:
    """The layer, the child's name and the child, of what comes before the scores."""
    for name, layer in model.named_modules():
        if isinstance(layer, Attention):
            for child, linear in layer.named_children():
                if isinstance(linear, nn.Linear) and child != "out":
                    yield name, child, linear
