"""Attention roll-out: the attention of all layers, multiplied through.

S. Abnar, W. Zuidema, Quantifying attention flow in transformers, 2020, section 3. <https://arxiv.org/abs/2005.00928>

    Ã_l = ½ W_l + ½ I,    R_l = Ã_l R_{l−1},    R_0 = I

W_l is the mean over the heads; the half is the way around the attention. Row t of R says how much of each token is in
token t after the last layer, if attention were all that mixes them. Of an encoder and a decoder, what the decoder
takes of the source is carried along: over itself y ← ½ W y + ½ y, over the source y ← ½ y + ½ C R_encoder.

It knows neither the values nor the output: the map is the same for every class.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from ...core.errors import ModelError
from ...models.base import contract_of
from ...nn.attention import Attention, recording
from .differentiable_input import Entry
from .request import Ask, Found


@torch.no_grad()
def rollout(entry: Entry, ask: Ask) -> Found:
    """The share of each token, patch or place in what is read at the end; of an image, spread over its pixels.

    Raises ModelError where the model has no attention, or not over what is put in.
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
        return Found(source, source.sum(1) + target.sum(1), target, based=False)
    rolled = rolled_out([w for calls in weights.values() for w in calls])  # (N, T, T)
    row = _read(entry, rolled)  # (N, T)
    values = row if entry.kind == "text" else _on_pixels(row, entry)
    return Found(values, row.sum(1), based=False)


def rolled_out(weights: list[Tensor]) -> Tensor:
    """R of the layers' weights, each (N, T, T): rows sum to 1."""
    rolled = torch.eye(weights[0].shape[-1], dtype=weights[0].dtype, device=weights[0].device).expand_as(weights[0])
    for w in weights:
        rolled = _residual(w) @ rolled
    return rolled


def _residual(w: Tensor) -> Tensor:
    """½ W + ½ I, its rows divided by their sums: of a token that looks nowhere the row is its own."""
    mixed = (w + torch.eye(w.shape[-1], dtype=w.dtype, device=w.device)) / 2
    return mixed / mixed.sum(-1, keepdim=True)


def _read(entry: Entry, rolled: Tensor) -> Tensor:
    """The rows that the head reads, (N, T)."""
    config = getattr(entry.model, "config", None)
    rows = entry.rows
    if entry.target.place is not None:
        return rolled[rows, entry.target.place]
    if entry.kind == "image":
        return rolled[:, 0] if getattr(config, "pooling", "") == "token" else rolled.mean(1)
    causal = not contract_of(entry.model).special_tokens
    mask = entry.inputs[1] if len(entry.inputs) > 1 else torch.ones_like(entry.inputs[0], dtype=torch.bool)
    last = (mask * torch.arange(mask.shape[1], device=mask.device)).amax(1)
    return rolled[rows, last if causal else torch.zeros_like(last)]  # a decoder reads the last token, BERT the first


def _on_pixels(row: Tensor, entry: Entry) -> Tensor:
    """Shares of patches as shares of their pixels, (N, T) to (N, H, W); a class token's own is left out."""
    height, width = entry.z.shape[-2:]
    before = 1 if getattr(getattr(entry.model, "config", None), "pooling", "") == "token" else 0
    patches = row[:, before:]
    down = max(1, round(math.sqrt(patches.shape[1] * height / width)))  # rows of patches
    grid = patches.view(len(row), 1, down, -1)  # (N, 1, H/P, W/P)
    spread = F.interpolate(grid, size=(height, width), mode="nearest")[:, 0]
    return spread * (patches.sum(1) / spread.sum((1, 2)).clamp(min=1e-12))[:, None, None]


def _both(entry: Entry, weights: dict[str, list[Tensor]]) -> tuple[Tensor, Tensor]:
    """Of an encoder and a decoder: the shares of the source's tokens and of the target's, (N, T) and (N, S)."""
    layers = dict(entry.model.named_modules())
    encoder = [w for name, calls in weights.items() if not name.startswith("decoder") for w in calls]
    read = rolled_out(encoder)  # (N, T, T)
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
