"""Search for the layer with the first non-finite values, after the fact, so that normal steps cost nothing."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..distributed.dtensors import is_sharded, local_part


@torch.no_grad()
def find_nonfinite(model: nn.Module, inputs: tuple[Tensor, ...]) -> str:
    """Return where the first non-finite values are: inputs, weights, outputs in order of computation, or gradients.

    The result is empty if all values are finite. For sharded weights only those of this process are checked, and
    outputs are skipped, since all processes would have to compute them together.
    """
    if not all(torch.isfinite(x).all() for x in inputs if x.is_floating_point()):
        return "the input"
    for name, p in model.named_parameters():
        if not torch.isfinite(local_part(p)).all():
            return f"the weights of {name}"
    found: list[str] = []

    def look(name: str) -> object:
        def hook(module: nn.Module, args: object, output: object) -> None:
            if isinstance(output, Tensor) and not torch.isfinite(output).all():
                found.append(name)

        return hook

    hooks = [m.register_forward_hook(look(n)) for n, m in model.named_modules() if n]
    try:
        if inputs and not any(is_sharded(p) for p in model.parameters()):
            model(*inputs)
    finally:
        for hook in hooks:
            hook.remove()
    if found:
        return f"the output of {found[0]}"
    for name, p in model.named_parameters():
        if p.grad is not None and not torch.isfinite(local_part(p.grad)).all():
            return f"the gradient of {name}"
    return ""
