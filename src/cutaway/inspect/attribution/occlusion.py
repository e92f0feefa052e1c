"""Occlusion: what the output loses when a part of the input is covered with the baseline.

M. D. Zeiler, R. Fergus, Visualizing and understanding convolutional networks, 2013, section 4.2.
<https://arxiv.org/abs/1311.2901>

    a_S = F(x) − F(x with b in S)

Nothing is differentiated, and no weight is looked at. Over images a window slides; a pixel takes the mean of the
windows that it was under. Of a table each column is covered by itself, of a text each token, of a graph each node, or
each edge is taken out. The values need not add up: two parts that do the same work cover for each other.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...core.errors import ModelError, SettingError
from .differentiable_input import Entry
from .groups import groups, within_reach
from .request import Ask, Found, at_once
from .target import outputs_of

PARTS = 512  # that are covered one after the other, at most
ACROSS = 8  # windows side by side over an image, of which there are twice as many where they overlap
SHORT = 4  # and over a video, in time and space


def occlusion(entry: Entry, ask: Ask) -> Found:
    """The loss of output by each part that is covered. What is covered together, as a node's features, shares it."""
    with torch.no_grad():
        if entry.kind in ("image", "video"):
            found, how = _sliding(entry, ask.window), "first"
        else:
            found, how = _one_by_one(entry), "sum"
    values, beside = entry.laid(found, how)
    total = values.reshape(len(entry.z), -1).sum(1)
    return Found(values, total if beside is None else total + beside.sum(1), beside)


def _sliding(entry: Entry, window: int | None) -> Tensor:
    from captum.attr import Occlusion

    *frames, channels, height, width = _sizes(entry)
    least = min(height, width)
    if window is not None and not 1 <= window <= least:
        raise SettingError(f"window={window} cannot be: it is pixels to a side of what is covered, from 1 to {least}.")
    side = window or -(-least // (SHORT if frames else ACROSS))
    step = max(1, side // 2) if not frames else side
    long = [-(-frames[0] // SHORT)] if frames else []
    result: Tensor = Occlusion(entry.score).attribute(
        entry.z,
        sliding_window_shapes=(*long, channels, side, side),
        strides=(*long, channels, step, step),
        baselines=entry.baseline,
        additional_forward_args=entry.rows,
        perturbations_per_eval=min(at_once(entry), 64),
    )
    return result.to(entry.z.dtype)


def _sizes(entry: Entry) -> tuple[int, ...]:
    """(C, H, W), or (T, C, H, W)."""
    return tuple(entry.z.shape[1:])


def _one_by_one(entry: Entry) -> Tensor:
    from captum.attr import FeatureAblation

    mask = groups(entry, PARTS if entry.kind != "graph" else PARTS // 2).to(entry.z.device)
    result: Tensor = FeatureAblation(entry.score).attribute(
        entry.z,
        baselines=entry.baseline,
        feature_mask=mask,
        additional_forward_args=entry.rows,
        perturbations_per_eval=1 if entry.kind == "graph" else min(at_once(entry), 64),
    )
    count = torch.bincount(mask.flatten())  # a part's loss is divided among its numbers
    return result.to(entry.z.dtype) / count[mask].to(entry.z.dtype)


@torch.no_grad()
def edges(entry: Entry, ask: Ask) -> Found:
    """Of a graph: what the output loses when one edge is taken out, (E,). Those that lead to no node within reach do
    nothing and are not tried. Raises ModelError for what is no graph."""
    if entry.kind != "graph":
        raise ModelError(f"Edges are parts of a graph, and this is {entry.kind} data: take occlusion.")
    pairs = entry.inputs[1]
    whole = entry.score(entry.z, entry.rows)
    near = torch.zeros(entry.z.shape[1], dtype=torch.bool, device=pairs.device)
    near[within_reach(entry)] = True
    values = torch.zeros(pairs.shape[1], dtype=entry.z.dtype, device=pairs.device)
    for k in (near[pairs[0]] & near[pairs[1]]).nonzero()[:, 0].tolist()[:PARTS]:
        rest = torch.cat([pairs[:, :k], pairs[:, k + 1 :]], 1)
        beside = tuple(torch.cat([known[:k], known[k + 1 :]]) for known in entry.inputs[4:])
        outputs = outputs_of(entry.model, (entry.inputs[0], rest, *entry.inputs[2:4], *beside))
        values[k] = (whole - entry.target.of(outputs, entry.rows))[0]
    return Found(values, values.sum()[None], based=False)
