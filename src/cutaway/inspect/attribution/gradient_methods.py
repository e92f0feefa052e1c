"""Attribution by gradients and attention: saliency, integrated gradients, Grad-CAM and attention rollout.

    gradient                ∂F/∂x                                    K. Simonyan, A. Vedaldi, A. Zisserman, 2013,
                                                                     <https://arxiv.org/abs/1312.6034>
    input × gradient        x ∂F/∂x                                  A. Shrikumar et al., 2016,
                                                                     <https://arxiv.org/abs/1605.01713>
    integrated gradients    (x − b) ∫₀¹ ∂F/∂x (b + t (x − b)) dt     M. Sundararajan, A. Taly, Q. Yan, 2017, equation 1,
                                                                     <https://arxiv.org/abs/1703.01365>

Integrated gradients sum to F(x) − F(b) (proposition 1), up to the error of the numerical integral. The number of
Gauss–Legendre points is doubled until that error is small. The gradient of a pixel is that of the channel with the
largest absolute value. The gradient of a token is the norm of the gradient of its embedding, which has no sign.

Grad-CAM: a map of the activations of a convolution that increase the output.

R. R. Selvaraju et al., Grad-CAM: Visual explanations from deep networks via gradient-based localization, 2016.
<https://arxiv.org/abs/1610.02391>

    α_k = 1/Z Σ_ij ∂F/∂A^k_ij,    L = ReLU(Σ_k α_k A^k)                                           (equations 1 and 2)

L has the size of the layer's maps and is resized to that of the input. The default layer is the last one with a map of
more than one position.

Attention rollout: the product of the attention of all layers.

S. Abnar, W. Zuidema, Quantifying attention flow in transformers, 2020, section 3. <https://arxiv.org/abs/2005.00928>

    Ã_l = ½ W_l + ½ I,    R_l = Ã_l R_{l−1},    R_0 = I

W_l is the mean over the heads; I is the residual connection. Row t of R has the share of each token in token t after
the last layer, under the assumption that only attention mixes tokens. For an encoder and a decoder, the decoder's share
of the source is tracked: self-attention gives y ← ½ W y + ½ y, cross-attention y ← ½ y + ½ C R_encoder.

The method uses neither the values nor the output: the map is the same for every class.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...core.errors import ModelError, UnknownName
from ...core.extras import require
from ...models.base import as_base_model
from ...nn.attention import Attention, recording
from .explained_output import Entry
from .result import AttributionMap, MethodSettings, absolute_sum, copies_per_pass, doubled

FIRST, MOST = 32, 256  # points of the integral
ENOUGH = 0.01  # relative gap at which the doubling stops
TOLERANCE = 0.05


def gradient(entry: Entry, ask: MethodSettings) -> AttributionMap:
    """Compute ∂F/∂x with its sign; for the tokens of a text, its norm."""
    Saliency = require("captum.attr", "Attribution").Saliency

    found = Saliency(entry.score).attribute(_leaf(entry), abs=False, additional_forward_args=entry.rows).detach()
    values, beside = entry.laid(found, "norm" if entry.calls else "largest")
    return AttributionMap(values, found.flatten(1).sum(1), beside, based=False)


def input_x_gradient(entry: Entry, ask: MethodSettings) -> AttributionMap:
    """Compute x ∂F/∂x, summed over channels and over the features of an embedding."""
    InputXGradient = require("captum.attr", "Attribution").InputXGradient

    found = InputXGradient(entry.score).attribute(_leaf(entry), additional_forward_args=entry.rows).detach()
    return AttributionMap(*_summed(entry, found), based=False)


def integrated_gradients(entry: Entry, ask: MethodSettings) -> AttributionMap:
    """Compute the mean gradient on the path from the baseline, times the difference to the baseline."""
    IntegratedGradients = require("captum.attr", "Attribution").IntegratedGradients

    method = IntegratedGradients(entry.score)
    with torch.no_grad():
        change = entry.score(entry.z, entry.rows) - entry.score(entry.baseline, entry.rows)
    values, total, beside, steps = entry.z, change, None, 0
    for steps in (ask.steps,) if ask.steps else doubled(FIRST, MOST):
        found = method.attribute(
            _leaf(entry),
            baselines=entry.baseline,
            additional_forward_args=entry.rows,
            n_steps=steps,
            internal_batch_size=max(1, copies_per_pass(entry)) * len(entry.z),
        ).detach()
        values, total, beside = _summed(entry, found)
        scale = torch.maximum(change.abs(), absolute_sum(values, beside, examples=len(total))).clamp(min=1e-12)
        if bool(((total - change).abs() / scale <= ENOUGH).all()):
            break
    return AttributionMap(values, total, beside, tolerance=TOLERANCE, steps=steps)


def _leaf(entry: Entry) -> torch.Tensor:
    """Return the input as a leaf for differentiation."""
    return entry.z.detach().clone().requires_grad_()


def _summed(entry: Entry, found: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    values, beside = entry.laid(found, "sum")
    return values, found.flatten(1).sum(1), beside


KINDS = {
    "image": (4,),
    "video": (4, 5),
    "series": (3,),
}  # axes of a map, (N, C, …); for a video of frames, or over time


def grad_cam(entry: Entry, ask: MethodSettings) -> AttributionMap:
    """Compute maps ≥ 0: (N, H, W), (N, T, H, W) for video, (N, T, F) for series, equal for all variables.

    Raises ModelError if the model has no maps, UnknownName for an unknown layer.
    """
    LayerGradCam = require("captum.attr", "Attribution").LayerGradCam

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
        f"Grad-CAM needs convolutional feature maps, and {type(entry.model).__name__} has none for {entry.kind} data: "
        "use integrated_gradients or occlusion, or rollout for a Transformer."
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
            f"Invalid layer {name}: has no feature map. Layers with one: {', '.join(list(found)[-8:]) or 'none'}."
        )


@torch.no_grad()
def rollout(entry: Entry, ask: MethodSettings) -> AttributionMap:
    """Compute the share of each token, patch or position in the final representation; for images, spread over the
    pixels.

    Raises ModelError if the model has no attention over its input.
    """
    with recording(entry.model) as seen:
        entry.score(entry.z, entry.rows)
    weights = {name: [s.weights.mean(1) for s in calls] for name, calls in seen.items() if calls}  # (N, T, S)
    if not weights or entry.kind not in ("image", "text", "seq2seq"):
        raise ModelError(
            f"Rollout needs self-attention over the input, and {type(entry.model).__name__} has none for "
            f"{entry.kind} data: use integrated_gradients or occlusion."
        )
    if entry.kind == "seq2seq":
        source, target = _both(entry, weights)
        return AttributionMap(source, source.sum(1) + target.sum(1), target, based=False)
    rolled = multiply_attention([w for calls in weights.values() for w in calls])  # (N, T, T)
    row = _read(entry, rolled)  # (N, T)
    values = row if entry.kind == "text" else _on_pixels(row, entry)
    return AttributionMap(values, row.sum(1), based=False)


def multiply_attention(weights: list[Tensor]) -> Tensor:
    """Return R of the layers' weights, each (N, T, T): rows sum to 1."""
    rolled = torch.eye(weights[0].shape[-1], dtype=weights[0].dtype, device=weights[0].device).expand_as(weights[0])
    for w in weights:
        rolled = _residual(w) @ rolled
    return rolled


def _residual(w: Tensor) -> Tensor:
    """Return ½ W + ½ I with normalized rows; a token that attends to nothing keeps its own row."""
    mixed = (w + torch.eye(w.shape[-1], dtype=w.dtype, device=w.device)) / 2
    return mixed / mixed.sum(-1, keepdim=True)


def _read(entry: Entry, rolled: Tensor) -> Tensor:
    """Return the rows that the head uses, (N, T)."""
    config = getattr(entry.model, "config", None)
    rows = entry.rows
    if entry.target.place is not None:
        return rolled[rows, entry.target.place]
    if entry.kind == "image":
        return rolled[:, 0] if getattr(config, "pooling", "") == "token" else rolled.mean(1)
    causal = not as_base_model(entry.model).special_tokens
    mask = entry.inputs[1] if len(entry.inputs) > 1 else torch.ones_like(entry.inputs[0], dtype=torch.bool)
    last = (mask * torch.arange(mask.shape[1], device=mask.device)).amax(1)
    return rolled[rows, last if causal else torch.zeros_like(last)]  # a decoder uses the last token, BERT the first


def _on_pixels(row: Tensor, entry: Entry) -> Tensor:
    """Spread the shares of patches over their pixels, (N, T) to (N, H, W), without a class token."""
    height, width = entry.z.shape[-2:]
    before = 1 if getattr(getattr(entry.model, "config", None), "pooling", "") == "token" else 0
    patches = row[:, before:]
    down = max(1, round(math.sqrt(patches.shape[1] * height / width)))  # rows of patches
    grid = patches.view(len(row), 1, down, -1)  # (N, 1, H/P, W/P)
    spread = F.interpolate(grid, size=(height, width), mode="nearest")[:, 0]
    return spread * (patches.sum(1) / spread.sum((1, 2)).clamp(min=1e-12))[:, None, None]


def _both(entry: Entry, weights: dict[str, list[Tensor]]) -> tuple[Tensor, Tensor]:
    """Return the shares of source and target tokens of an encoder–decoder model, (N, T) and (N, S)."""
    layers = dict(entry.model.named_modules())
    encoder = [w for name, calls in weights.items() if not name.startswith("decoder") for w in calls]
    read = multiply_attention(encoder)  # (N, T, T)
    decoder = {name: calls[0] for name, calls in weights.items() if name.startswith("decoder")}
    if not decoder:
        raise ModelError(f"{type(entry.model).__name__} has no attention decoder, which rollout needs for this target.")
    first = next(iter(decoder.values()))
    of_target = torch.eye(first.shape[1], dtype=first.dtype, device=first.device).expand(len(first), -1, -1)
    of_source = first.new_zeros(len(first), first.shape[1], read.shape[1])
    for name, w in decoder.items():
        layer = layers[name]
        if isinstance(layer, Attention) and layer.cross_attends:
            of_target, of_source = of_target / 2, of_source / 2 + w @ read / 2
        else:
            of_target, of_source = _residual(w) @ of_target, _residual(w) @ of_source
    place = entry.target.place
    assert place is not None, "a decoder has an output at each position"
    return of_source[entry.rows, place], of_target[entry.rows, place]
