"""Grad-CAM: a map of the activations of a convolution that increase the output.

R. R. Selvaraju et al., Grad-CAM: Visual explanations from deep networks via gradient-based localization, 2016.
<https://arxiv.org/abs/1610.02391>

    α_k = 1/Z Σ_ij ∂F/∂A^k_ij,    L = ReLU(Σ_k α_k A^k)                                           (equations 1 and 2)

L has the size of the layer's maps and is resized to that of the input. The default layer is the last one with a map of
more than one position.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...core.errors import ModelError, UnknownName
from .differentiable_input import Entry
from .request import AttributionMap, MethodSettings

KINDS = {
    "image": (4,),
    "video": (4, 5),
    "series": (3,),
}  # axes of a map, (N, C, …); for a video of frames, or over time


def grad_cam(entry: Entry, ask: MethodSettings) -> AttributionMap:
    """Compute maps ≥ 0: (N, H, W), (N, T, H, W) for video, (N, T, F) for series, equal for all variables.

    Raises ModelError if the model has no maps, UnknownName for an unknown layer.
    """
    from captum.attr import LayerGradCam

    name = ask.layer or last_map(entry)
    layer = dict(entry.model.named_modules()).get(name)
    if layer is None or not name:
        raise UnknownName("layer", name, [n for n, _ in entry.model.named_modules() if n])
    _reject_flat(entry, name)
    # captum needs gradients at the layer, which a leaf as input ensures
    z = entry.z.detach().clone().requires_grad_()
    found = LayerGradCam(entry.score, layer).attribute(
        z, additional_forward_args=entry.rows, relu_attributions=True, attr_dim_summation=True
    )
    small = found.detach()  # (M, 1, …), M examples, or frames; (N, 1, T', H', W') of maps over time
    values = _enlarged(small, entry)
    return AttributionMap(values, values.flatten(1).sum(1), based=False, layer=name)


def _enlarged(small: Tensor, entry: Entry) -> Tensor:
    if entry.kind == "series":
        wide = F.interpolate(small, size=entry.z.shape[1], mode="linear", align_corners=False)[:, 0]
        return wide[..., None].expand_as(entry.z).clone()  # (N, T, F)
    size = tuple(entry.z.shape[-2:])
    if small.ndim == 5:
        whole = (entry.z.shape[1], *size)
        return F.interpolate(small, size=whole, mode="trilinear", align_corners=False)[:, 0]  # (N, T, H, W)
    wide = F.interpolate(small, size=size, mode="bilinear", align_corners=False)[:, 0]  # (M, H, W)
    return wide.reshape(*entry.z.shape[: entry.z.ndim - 3], *size)


def maps(entry: Entry) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the modules whose outputs are maps of more than one position, in the order of execution."""
    axes = KINDS.get(entry.kind, ())
    found: dict[str, tuple[int, ...]] = {}

    def watch(name: str) -> Any:
        def hook(module: nn.Module, args: Any, output: Any) -> None:
            if isinstance(output, Tensor) and output.ndim in axes and output[0, 0].numel() > 1:
                found.pop(name, None)
                found[name] = tuple(output.shape)

        return hook

    handles = [m.register_forward_hook(watch(name)) for name, m in entry.model.named_modules() if name]
    try:
        with torch.no_grad():
            entry.score(entry.z, entry.rows)
    finally:
        for handle in handles:
            handle.remove()
    return found


def last_map(entry: Entry) -> str:
    """Return the default layer. Raises ModelError if no convolution gives a map."""
    modules = dict(entry.model.named_modules())
    kinds = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
    if entry.kind in KINDS and any(isinstance(m, kinds) and not _cuts(m) for m in modules.values()):
        found = [name for name in maps(entry) if _convolves(modules, name)]
        if found:
            return found[-1]
    raise ModelError(
        f"Grad-CAM is for maps of convolutions, and {type(entry.model).__name__} has none for {entry.kind} data: "
        "take integrated_gradients or occlusion, or rollout for a Transformer."
    )


def _cuts(conv: nn.Module) -> bool:
    """Return whether a convolution splits an image into patches, like the first layer of a ViT."""
    size, stride = conv.kernel_size, conv.stride
    return bool(size == stride and max(size) > 1)  # type: ignore[arg-type]  # tuples, of a convolution


def _convolves(modules: dict[str, nn.Module], name: str) -> bool:
    """Return whether a map comes from a convolution or a layer after one, and not from a recurrence or attention."""
    module = modules[name]
    return not isinstance(module, nn.RNNBase | nn.LayerNorm | nn.Linear | nn.AdaptiveAvgPool2d | nn.AdaptiveAvgPool3d)


def _reject_flat(entry: Entry, name: str) -> None:
    found = maps(entry)
    if name not in found:
        raise ModelError(
            f"The layer {name} gives no map of more than one place. These do: {', '.join(list(found)[-8:]) or 'none'}."
        )
