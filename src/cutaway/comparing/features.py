"""Examples as simple models take them: one row of numbers each, whatever the network sees."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from ..data.sets import Split
from ..spec import AudioSpec, GraphSpec, ImageSpec, SeriesSpec, Spec, TableSpec, VideoSpec
from ..training.evaluation import batches_in_order

AT_ONCE = 256  # examples that are read together
SIDE = 32  # pixels of a side that images are averaged to, where they have more
VIDEO_SIDE = 16  # of the mean frame of a video
MOST_STEPS = 128  # steps that series are averaged to, where they have more

Rows = NDArray[np.float32]


def rows_of(split: Split, spec: Spec, index: NDArray[np.int64] | None = None) -> Rows:
    """The examples as rows (n, D), in their order; or those that `index` names, in its order."""
    describe = DESCRIBED[type(spec)]
    numbers = torch.arange(len(split)) if index is None else torch.from_numpy(index)
    plan = batches_in_order(split, AT_ONCE) if index is None else torch.split(numbers, AT_ONCE)
    read = torch.cat(list(plan))
    described = torch.cat([describe(*batch.inputs) for batch in split.batches(plan)])
    place = torch.empty(len(split), dtype=torch.int64)
    place[read] = torch.arange(len(read))
    found: Rows = described[place[numbers]].numpy()
    return found


def pixels(x: Tensor, *beside: Tensor) -> Tensor:
    """Images (N, C, H, W) as their pixels, averaged to at most 32×32: (N, C·h·w)."""
    del beside
    return _smaller(x, SIDE).flatten(1)


def mean_frame(x: Tensor, mask: Tensor) -> Tensor:
    """Videos (N, T, C, H, W) as the mean of their frames and how much pixels vary over time, at most 16×16 each."""
    real = mask[:, :, None, None, None].float()
    count = real.sum(1)
    mean = (x * real).sum(1) / count  # (N, C, H, W)
    spread = ((x - mean[:, None]).square() * real).sum(1).div(count).sqrt()
    return torch.cat([_smaller(part, VIDEO_SIDE).flatten(1) for part in (mean, spread)], dim=1)


def spectrum(x: Tensor, mask: Tensor) -> Tensor:
    """Recordings (N, T, F) as mean and standard deviation of each band over real frames: (N, 2F)."""
    real = mask[..., None].float()
    count = real.sum(1)
    mean = (x * real).sum(1) / count  # (N, F)
    return torch.cat([mean, ((x - mean[:, None]).square() * real).sum(1).div(count).sqrt()], dim=1)


def steps(x: Tensor, *beside: Tensor) -> Tensor:
    """Series (N, T, F) as their steps, averaged to at most 128: (N, t·F)."""
    del beside
    if x.shape[1] > MOST_STEPS:
        x = F.adaptive_avg_pool1d(x.mT, MOST_STEPS).mT
    return x.flatten(1)


def bag_of_nodes(x: Tensor, edges: Tensor, rows: Tensor, batch: Tensor, *edge_attr: Tensor) -> Tensor:
    """Graphs side by side, x (V, F), as the sum and the mean of what is known of their nodes, how many nodes and edges
    they have, and the sum of what is known of the edges, where something is: (N, 2F + 2 + D)."""
    del rows
    count = int(batch.max()) + 1
    nodes = torch.bincount(batch, minlength=count).float()[:, None]
    links = torch.bincount(batch[edges[1]], minlength=count).float()[:, None]
    total = x.new_zeros(count, x.shape[1]).index_add_(0, batch, x)
    parts = [total, total / nodes, nodes, links]
    for of_edges in edge_attr:
        parts.append(of_edges.new_zeros(count, of_edges.shape[1]).index_add_(0, batch[edges[1]], of_edges))
    return torch.cat(parts, dim=1)


def _smaller(x: Tensor, side: int) -> Tensor:
    height, width = x.shape[-2:]
    return F.adaptive_avg_pool2d(x, (min(side, height), min(side, width))) if max(height, width) > side else x


DESCRIBED: dict[type[Spec], Callable[..., Tensor]] = {
    TableSpec: lambda x: x,
    ImageSpec: pixels,
    VideoSpec: mean_frame,
    AudioSpec: spectrum,
    SeriesSpec: steps,
    GraphSpec: bag_of_nodes,
}
