"""Attention rollout: the product of the attention of all layers.

S. Abnar, W. Zuidema, Quantifying attention flow in transformers, 2020, section 3. <https://arxiv.org/abs/2005.00928>

    Ã_l = ½ W_l + ½ I,    R_l = Ã_l R_{l−1},    R_0 = I

W_l is the mean over the heads; I is the residual connection. Row t of R has the share of each token in token t after
the last layer, under the assumption that only attention mixes tokens. For an encoder and a decoder, the decoder's share
of the source is tracked: self-attention gives y ← ½ W y + ½ y, cross-attention y ← ½ y + ½ C R_encoder.

The method uses neither the values nor the output: the map is the same for every class.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from ...core.errors import ModelError
from ...models.base import as_base_model
from ...nn.attention import Attention, recording
from .differentiable_input import Entry
from .request import AttributionMap, MethodSettings


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
            f"Roll-out is for layers of attention over what is put in, and {type(entry.model).__name__} has none for "
            f"{entry.kind} data: take integrated_gradients or occlusion."
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
        raise ModelError(f"{type(entry.model).__name__} has no decoder of attention: roll-out cannot be read there.")
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
    assert place is not None, "a decoder answers at each place"
    return of_source[entry.rows, place], of_target[entry.rows, place]
