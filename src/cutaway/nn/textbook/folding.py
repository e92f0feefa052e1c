"""Folding batch normalization into the layer before it, for inference.

In evaluation mode, batch normalization (S. Ioffe, C. Szegedy, 2015, <https://arxiv.org/abs/1502.03167>) is an affine
map of each channel, because its statistics are constants. The layer before it is affine too, so its weights can absorb
it:

    w' = w γ / √(σ² + ε)        b' = β + (b − μ) γ / √(σ² + ε)        per output channel
"""

from __future__ import annotations

import copy
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ..modules import NORMS

# Exactly these classes: a subclass may use its weights in another way.
LAYERS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Linear)


def fold_batch_norm(model: nn.Module, *inputs: Tensor) -> nn.Module:
    """Return a copy of `model` in evaluation mode with batch normalizations folded into the layers before them.

    The copy is faster and has the same outputs up to rounding; `model` is not changed. A batch normalization is folded
    if it is the only consumer of the output of a convolution or linear layer; an `nn.Identity` takes its name.
    Consumers are found by running the model once on meta tensors, not from names. Other normalizations work as before:
    those before their convolution, as in a pre-activation network, those without running statistics, and those whose
    input is also used elsewhere.

    The copy is for inference only. Its weights are no longer the preset's, and training it differs from training the
    model.

    Args:
        model: The model, in any mode.
        *inputs: Example inputs of `model`, of which only the shapes and types matter.

    Returns:
        The copy. Without a batch normalization that can be folded it computes the same as `model.eval()`.

    Example:
        >>> model = nn.Sequential(nn.Conv2d(1, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU()).eval()
        >>> images = torch.randn(2, 1, 8, 8)
        >>> folded = fold_batch_norm(model, images)
        >>> folded[1], tuple(folded[0].bias.shape)
        (Identity(), (4,))
        >>> bool(torch.allclose(folded(images), model(images), atol=1e-5))
        True
    """
    folded = copy.deepcopy(model).eval()
    if not any(type(m) in NORMS for m in folded.modules()):
        return folded
    for layer, norm in _pairs(folded, inputs):
        _fold(folded.get_submodule(layer), folded.get_submodule(norm))
        folded.set_submodule(norm, nn.Identity())
    return folded.eval()


def _fold(layer: Any, norm: Any) -> None:
    """Fold `norm` into the weights of `layer`, one of LAYERS, in double precision."""

    def double(x: Tensor) -> Tensor:
        return x.detach().cpu().double()  # not every accelerator supports float64

    weight: Tensor = layer.weight
    mean = double(norm.running_mean)
    scale = torch.rsqrt(double(norm.running_var) + norm.eps)
    shift = torch.zeros_like(mean)
    if norm.affine:
        scale, shift = scale * double(norm.weight), double(norm.bias)
    bias = torch.zeros_like(mean) if layer.bias is None else double(layer.bias)

    def parameter(like: Tensor, value: Tensor) -> nn.Parameter:
        # A new parameter in the memory format of the old one, which may be shared with another layer.
        return nn.Parameter(torch.empty_like(like).copy_(value), weight.requires_grad)

    rows = scale.reshape(-1, *[1] * (weight.ndim - 1))
    layer.bias = parameter(weight.new_empty(len(mean)), shift + (bias - mean) * scale)
    layer.weight = parameter(weight.detach(), double(weight) * rows)


def _pairs(model: nn.Module, inputs: Sequence[Tensor]) -> list[tuple[str, str]]:
    """Return the names of pairs of a layer and the normalization that is the only consumer of its output."""
    layers: dict[str, list[Tensor]] = defaultdict(list)  # outputs of each, by call
    norms: dict[str, list[Tensor]] = defaultdict(list)  # inputs of each
    handles = []
    for name, module in model.named_modules():
        hooked = module._forward_hooks  # a hook's changes after the layer cannot be folded
        if type(module) in LAYERS and not hooked:
            handles.append(module.register_forward_hook(lambda _, args, gave, name=name: layers[name].append(gave)))
        elif type(module) in NORMS and not hooked and not module._forward_pre_hooks and module.running_mean is not None:
            handles.append(module.register_forward_pre_hook(lambda _, args, name=name: norms[name].append(args[0])))
    tensors = (*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False))
    state = {k: v.detach().to("meta") for k, v in tensors}
    args = tuple(x.to("meta") for x in inputs)
    try:
        with torch.no_grad(), _Uses() as uses:
            result = torch.func.functional_call(model, state, args, tie_weights=False)
    finally:
        for handle in handles:
            handle.remove()

    returned = {id(x) for x in tree_leaves(result)}
    given = {id(calls[0]): (name, calls[0]) for name, calls in layers.items() if len(calls) == 1}
    found = []
    for norm, calls in norms.items():
        layer, output = given.get(id(calls[0]), ("", None))
        if (
            output is not None
            and len(calls) == 1
            and uses.count[id(output)] == 1
            and id(output) not in returned
            and uses.count[id(state[f"{layer}.weight"])] == 1  # else another use of it has no norm after it
            and output.ndim == model.get_submodule(layer).weight.ndim  # else its second axis is not its channels
        ):
            found.append((layer, norm))
    return found


class _Uses(TorchDispatchMode):  # type: ignore[no-untyped-call]  # PyTorch's class has no types
    """A mode that counts the operations that use each tensor."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.count: Counter[int] = Counter()  # by id
        self.alive: list[Any] = []  # keeps tensors alive so that no id is reused

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operation and count its inputs."""
        result = op(*args, **(kwargs or {}))
        self.count.update(id(x) for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor))
        self.alive += [args, kwargs, result]
        return result
