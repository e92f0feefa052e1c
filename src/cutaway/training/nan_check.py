"""Finding the layer where values stopped being finite, after the fact, so that good steps cost nothing."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..distributed.dtensors import in_parts, part


@torch.no_grad()
def first_broken(model: nn.Module, inputs: tuple[Tensor, ...]) -> str:
    """Where the first values stand that are not finite: inputs, weights, outputs in the order of computation,
    gradients. Empty where all are finite. Of weights that processes hold in parts, this process's alone, and no
    outputs, which all would have to compute together."""
    if not all(torch.isfinite(x).all() for x in inputs if x.is_floating_point()):
        return "the input"
    for name, p in model.named_parameters():
        if not torch.isfinite(part(p)).all():
            return f"the weights of {name}"
    found: list[str] = []

    def look(name: str) -> object:
        def hook(module: nn.Module, args: object, output: object) -> None:
            if isinstance(output, Tensor) and not torch.isfinite(output).all():
                found.append(name)

        return hook

    hooks = [m.register_forward_hook(look(n)) for n, m in model.named_modules() if n]
    try:
        if inputs and not any(in_parts(p) for p in model.parameters()):
            model(*inputs)
    finally:
        for hook in hooks:
            hook.remove()
    if found:
        return f"the output of {found[0]}"
    for name, p in model.named_parameters():
        if p.grad is not None and not torch.isfinite(part(p.grad)).all():
            return f"the gradient of {name}"
    return ""
