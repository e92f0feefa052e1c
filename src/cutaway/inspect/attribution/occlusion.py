"""Occlusion: the decrease of the output when a part of the input is replaced by the baseline.

M. D. Zeiler, R. Fergus, Visualizing and understanding convolutional networks, 2013, section 4.2.
<https://arxiv.org/abs/1311.2901>

    a_S = F(x) − F(x with b in S)

The method uses neither gradients nor weights. On images a window slides, and a pixel gets the mean over the windows
that cover it. In a table each column is replaced, in a text each token, in a graph each node, or each edge is removed.
The values need not sum to the change of the output, because redundant parts replace each other.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...core.errors import ModelError, SettingError
from .differentiable_input import Entry
from .groups import groups, within_reach
from .request import AttributionMap, MethodSettings, copies_per_pass
from .target import explained_outputs

PARTS = 512  # largest number of occluded parts
ACROSS = 8  # windows along a side of an image; twice as many if they overlap
SHORT = 4  # along an axis of a video, in time and space


def occlusion(entry: Entry, ask: MethodSettings) -> AttributionMap:
    """Compute the decrease of the output for each occluded part; elements of a part, such as a node's features, share
    it.
    """
    with torch.no_grad():
        if entry.kind in ("image", "video"):
            found, how = _sliding(entry, ask.window), "first"
        else:
            found, how = _one_by_one(entry), "sum"
    values, beside = entry.laid(found, how)
    total = values.reshape(len(entry.z), -1).sum(1)
    return AttributionMap(values, total if beside is None else total + beside.sum(1), beside)


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
        perturbations_per_eval=min(copies_per_pass(entry), 64),
    )
    return result.to(entry.z.dtype)


def _sizes(entry: Entry) -> tuple[int, ...]:
    """Return (C, H, W), or (T, C, H, W)."""
    return tuple(entry.z.shape[1:])


def _one_by_one(entry: Entry) -> Tensor:
    from captum.attr import FeatureAblation

    mask = groups(entry, PARTS if entry.kind != "graph" else PARTS // 2).to(entry.z.device)
    result: Tensor = FeatureAblation(entry.score).attribute(
        entry.z,
        baselines=entry.baseline,
        feature_mask=mask,
        additional_forward_args=entry.rows,
        perturbations_per_eval=1 if entry.kind == "graph" else min(copies_per_pass(entry), 64),
    )
    count = torch.bincount(mask.flatten())  # a part's value is divided among its elements
    return result.to(entry.z.dtype) / count[mask].to(entry.z.dtype)


@torch.no_grad()
def edges(entry: Entry, ask: MethodSettings) -> AttributionMap:
    """Compute the decrease of the output of a graph when one edge is removed, (E,).

    Edges that lead to no node within reach have no effect and are skipped. Raises ModelError for other data.
    """
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
        outputs = explained_outputs(entry.model, (entry.inputs[0], rest, *entry.inputs[2:4], *beside))
        values[k] = (whole - entry.target.of(outputs, entry.rows))[0]
    return AttributionMap(values, values.sum()[None], based=False)
