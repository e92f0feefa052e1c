"""Attribution by perturbation: occlusion and Shapley values.

Elements are masked in groups: image patches, intervals of steps, tokens and columns.

Occlusion: the decrease of the output when a part of the input is replaced by the baseline.

M. D. Zeiler, R. Fergus, Visualizing and understanding convolutional networks, 2013, section 4.2.
<https://arxiv.org/abs/1311.2901>

    a_S = F(x) − F(x with b in S)

The method uses neither gradients nor weights. On images a window slides, and a pixel gets the mean over the windows
that cover it. In a table each column is replaced, in a text each token, in a graph each node, or each edge is removed.
The values need not sum to the change of the output, because redundant parts replace each other.

Shapley values: the contribution of each part, averaged over all orders in which parts can be added.

S. M. Lundberg, S.-I. Lee, A unified approach to interpreting model predictions, 2017.
<https://arxiv.org/abs/1705.07874>

    φ_i = Σ_{S ∌ i} |S|! (M − |S| − 1)! / M! · [F(x_{S ∪ i}) − F(x_S)]                                (equation 8)

x_S is x in the parts S and the baseline elsewhere. KernelShap estimates φ by a weighted regression on random sets of
parts (theorem 2); its values sum to F(x) − F(b). GradientShap (expected gradients: G. Erion et al., 2019,
<https://arxiv.org/abs/1906.10670>) averages gradients at random points between the input and random background
examples; its values sum to the change in expectation.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from ...core.errors import ConfigError, SettingError
from ...core.extras import require
from .explained_output import Entry, explained_outputs
from .result import AttributionMap, MethodSettings, absolute_sum, copies_per_pass, doubled


def groups(entry: Entry, most: int) -> Tensor:
    """Return the group index of each element of z, (1, …), from 0 to at most `most` − 1.

    All channels of a pixel, and all features of a token, are in one group. In a graph, each node within reach of the
    explained position is a group, the nearest ones if there are many; all others form the last group.
    """
    shape = entry.z.shape[1:]
    if entry.kind == "graph":
        return _nodes(entry, most).view(1, -1, 1).expand(1, *shape)
    if entry.calls:
        return _tokens(entry, most).view(1, -1, 1).expand(1, *shape)
    if entry.kind == "image":
        return _blocks(shape, (1, 2), most)
    if entry.kind == "video":
        return _blocks(shape, (0, 2, 3), most)
    axes = tuple(range(len(shape)))
    if math.prod(shape) > most and len(shape) > 1:
        axes = axes[:1]  # whole steps of a series
    return _blocks(shape, axes, most)


def _blocks(shape: torch.Size, axes: tuple[int, ...], most: int) -> Tensor:
    """Return blocks of about equal sides along `axes`, which span the other axes."""
    sides = {axis: shape[axis] for axis in axes}
    while math.prod(sides.values()) > most:  # reduce the longest axis
        longest = max(sides, key=lambda axis: sides[axis])
        sides[longest] -= 1
    index = torch.zeros(shape, dtype=torch.int64)
    for axis in axes:
        part = torch.arange(shape[axis]) * sides[axis] // shape[axis]
        index = index * sides[axis] + part.view(-1, *[1] * (len(shape) - 1 - axis))
    return index[None]


def _tokens(entry: Entry, most: int) -> Tensor:
    """Return the group of each position, (positions,): that of its token, or of the nearest token for padding."""
    found: list[Tensor] = []
    first = entry.inputs[0].shape[1]
    for call in entry.calls:
        length = entry.inputs[2 * call.side].shape[1]
        place = (torch.arange(call.length) - (call.length - length) // 2).clamp(0, length - 1)
        found.append(place + (first if call.side else 0))
    index = torch.cat(found)
    count = int(index.max()) + 1
    return index if count <= most else index * most // count


def _nodes(entry: Entry, most: int) -> Tensor:
    """Return the group of each node, (V,)."""
    near = within_reach(entry)[: most - 1]
    index = torch.full((entry.z.shape[1],), len(near))
    index[near] = torch.arange(len(near))
    return index if len(near) < len(index) else torch.arange(len(index))


def within_reach(entry: Entry) -> Tensor:
    """Return the nodes that can change the explained number, the nearest first."""
    return reach(entry.model, entry.inputs, int(entry.target.place[0]) if entry.target.place is not None else 0)


def reach(model: nn.Module, inputs: tuple[Tensor, ...], place: int) -> Tensor:
    """Return the nodes on which the output at a position depends, the nearest first.

    These are the nodes of the same graph, or those within as many edges as the network has layers.
    """
    config = getattr(model, "config", None)
    count, edges, more = len(inputs[0]), inputs[1], inputs[2:]
    if getattr(config, "graph_level", False):
        batch = more[1] if len(more) > 1 else torch.zeros(count, dtype=torch.int64)
        return (batch == place).nonzero()[:, 0]
    asked = more[0][place].flatten() if more and len(more[0]) else torch.tensor([place])  # a node, or two of a pair
    seen = torch.zeros(count, dtype=torch.bool, device=edges.device)
    seen[asked] = True
    order = [asked.to(edges.device)]
    for _ in range(getattr(config, "layers", count)):
        new = torch.zeros_like(seen)
        new[edges[0][seen[edges[1]]]] = True
        new &= ~seen
        if not new.any():
            break
        order.append(new.nonzero()[:, 0])
        seen |= new
    return torch.cat(order)


OCCLUSION_PARTS = 512  # largest number of occluded parts
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
    """Occlude one square after another, and return the decrease of the output."""
    Occlusion = require("captum.attr", "Attribution").Occlusion

    *frames, channels, height, width = _sizes(entry)
    least = min(height, width)
    if window is not None and not 1 <= window <= least:
        raise SettingError(
            f"Invalid window={window}: must be the side of the covered square in pixels, from 1 to {least}."
        )
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
    """Occlude one part after another, and return the decrease of the output."""
    FeatureAblation = require("captum.attr", "Attribution").FeatureAblation

    mask = groups(entry, OCCLUSION_PARTS if entry.kind != "graph" else OCCLUSION_PARTS // 2).to(entry.z.device)
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
        raise ConfigError(f"Invalid method 'edges': {entry.kind} data has no edges; use occlusion.")
    pairs = entry.inputs[1]
    whole = entry.score(entry.z, entry.rows)
    near = torch.zeros(entry.z.shape[1], dtype=torch.bool, device=pairs.device)
    near[within_reach(entry)] = True
    values = torch.zeros(pairs.shape[1], dtype=entry.z.dtype, device=pairs.device)
    for k in (near[pairs[0]] & near[pairs[1]]).nonzero()[:, 0].tolist()[:OCCLUSION_PARTS]:
        rest = torch.cat([pairs[:, :k], pairs[:, k + 1 :]], 1)
        beside = tuple(torch.cat([known[:k], known[k + 1 :]]) for known in entry.inputs[4:])
        outputs = explained_outputs(entry.model, (entry.inputs[0], rest, *entry.inputs[2:4], *beside))
        values[k] = (whole - entry.target.of(outputs, entry.rows))[0]
    return AttributionMap(values, values.sum()[None], based=False)


SHAP_PARTS = 64  # largest number of parts of an example, for KernelShap
SETS, FOR_EACH = 224, 5  # random sets of parts, and additional ones per part
FIRST, MOST = 32, 512  # samples of GradientShap
ENOUGH, TOLERANCE = 0.02, 0.1
EXACT = 0.02  # tolerated gap of KernelShap


@torch.no_grad()
def kernel_shap(entry: Entry, ask: MethodSettings) -> AttributionMap:
    """Estimate φ by regression, for at most 64 parts. The elements of a part share its value."""
    KernelShap = require("captum.attr", "Attribution").KernelShap

    mask = groups(entry, SHAP_PARTS).to(entry.z.device)
    parts = int(mask.max()) + 1
    draws = ask.steps or SETS + FOR_EACH * parts
    coefficients = []
    for row in torch.split(entry.rows, 1):
        if parts == 1:
            change = entry.score(entry.z[row], row) - entry.score(entry.baseline[row], row)
            coefficients.append(change)
            continue

        def score(z: Tensor, row: Tensor = row) -> Tensor:
            return entry.score(z, row.expand(len(z)))

        found = KernelShap(score).attribute(
            entry.z[row],
            baselines=entry.baseline[row],
            feature_mask=mask,
            n_samples=draws,
            perturbations_per_eval=1 if entry.kind == "graph" else min(copies_per_pass(entry) * len(entry.z), 64),
            return_input_shape=False,
        )
        coefficients.append(found.flatten().to(entry.z.dtype))
    phi = torch.stack(coefficients)  # (N, parts)
    count = torch.bincount(mask.flatten(), minlength=parts).to(phi.dtype)
    spread = (phi / count)[:, mask[0]]  # (N, …)
    values, beside = entry.laid(spread, "sum")
    return AttributionMap(values, phi.sum(1), beside, tolerance=EXACT, steps=draws)


def gradient_shap(entry: Entry, ask: MethodSettings) -> AttributionMap:
    """Compute expected gradients from the background, or from the baseline without one."""
    GradientShap = require("captum.attr", "Attribution").GradientShap

    background = _background(entry, ask.background)  # per example, (B, …)
    rows = entry.rows
    with torch.no_grad():
        starts = [entry.score(b, row.expand(len(b))).mean() for b, row in zip(background, torch.split(rows, 1))]
        start = torch.stack(starts)  # (N,)
        change = entry.score(entry.z, rows) - start
    values, total, beside, done = entry.z, change, None, 0
    sums = torch.zeros_like(entry.z)
    chunk = min(FIRST, copies_per_pass(entry))
    for draws in (ask.steps,) if ask.steps else doubled(FIRST, MOST):
        while done < draws:
            now = min(chunk, draws - done)
            for k, row in enumerate(torch.split(rows, 1)):
                leaf = entry.z[row].detach().clone().requires_grad_()
                found = GradientShap(entry.score).attribute(
                    leaf, baselines=background[k], n_samples=now, stdevs=0.0, additional_forward_args=row
                )
                sums[row] += found.detach() * now
            done += now
        mean = sums / done
        values, beside = entry.laid(mean, "sum")
        total = mean.flatten(1).sum(1)
        scale = torch.maximum(change.abs(), absolute_sum(values, beside, examples=len(total))).clamp(min=1e-12)
        if bool(((total - change).abs() / scale <= ENOUGH).all()):
            break
    about = None if ask.background is None else f"{len(background[0])} examples of the data"
    return AttributionMap(values, total, beside, start, TOLERANCE, about, steps=done)


def _background(entry: Entry, given: Tensor | None) -> list[Tensor]:
    """Return the background of each example, (B, …)."""
    if given is None:
        return list(torch.split(entry.baseline, 1))
    if entry.calls or entry.kind == "graph" or given.shape[1:] != entry.z.shape[1:] or not len(given):
        raise SettingError(
            f"Invalid background of shape {tuple(given.shape)}: must be numeric examples like the first input, "
            f"{tuple(entry.inputs[0].shape)}; not available for texts and graphs."
        )
    return [given.to(entry.z)] * len(entry.z)
