"""What a model that learned links says of a graph: of pairs that are asked for, or its likeliest missing links."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..data.graphs.pairs import LinkSplit, Pairs
from ..data.sets import Batch
from ..errors import DataError
from ..nn.links import Bilinear, DotProduct
from ..nn.modes import resting
from ..tasks.task import Task
from .evaluation import results_of
from .placement import Placement

FOUND = 50  # links that are told
AT_ONCE = 1 << 22  # pairs that are scored at once
MOST_NODES = 100_000  # of which all pairs are scored: 5 · 10⁹


def links_said(model: nn.Module, task: Task, split: LinkSplit, place: Placement) -> list[dict[str, Any]]:
    """One row a pair: whether it is a link, how probable that is, and whether the graph has it already. Where no pairs
    are asked for they are the likeliest that it has not, those first that are surest."""
    asked = len(split) > 0
    pairs = split.rows.numpy() if asked else likeliest(model, split, place)
    if not asked:
        split = split.with_pairs(pairs)
    if not len(split):
        return []
    outputs = results_of(model, split, place, AT_ONCE, task).outputs
    rows = zip(task.predictions(outputs), outputs[:, 0].double().sigmoid().tolist(), split.are_linked(pairs).tolist())
    said = []
    for i, (row, p, known) in enumerate(rows):
        source, target = split.ends(i)
        given = {"source": source, "target": target, **({"in the graph": "yes" if known else "no"} if asked else {})}
        said.append({"input": split.name(i), "link": row["link"], "probability": p, **given})
    return said


@torch.no_grad()
def likeliest(model: Any, split: LinkSplit, place: Placement, most: int = FOUND) -> Pairs:
    """The pairs of nodes without an edge that the model holds most probable, the surest first, (n, 2).

    Every pair is scored, some nodes with all others at a time, so that memory grows with the nodes alone. Raises
    DataError for a graph with too many nodes for that.
    """
    nodes = len(split.x)
    if nodes > MOST_NODES:
        raise DataError(
            f"All pairs of {nodes:,} nodes are too many to score, {MOST_NODES:,} at most.",
            fix="Ask for pairs: cutaway predict RUN GRAPH PAIRS.csv, a table with a source and a target in each row.",
        )
    decoder = model.head
    assert isinstance(decoder, DotProduct | Bilinear), "a model of links has a decoder"
    graph, _ = place.batch(Batch((split.x, split.edges), split.x[:0, 0]))
    with resting(model):
        z: Tensor = model.features(*graph)
    best, where = torch.empty(0), torch.empty((0, 2), dtype=torch.int64)
    rows = max(1, AT_ONCE // max(1, nodes))
    for start in range(0, nodes, rows):
        scores = decoder.between(z[start : start + rows], z).float().cpu()  # (n, V)
        first = torch.arange(start, start + len(scores))
        scores[torch.arange(nodes)[None] <= first[:, None]] = -torch.inf  # each pair once, and no node with itself
        for ends in (split.edges, split.edges.flip(0)):
            own = (ends[0] >= start) & (ends[0] < start + len(scores))
            scores[ends[0][own] - start, ends[1][own]] = -torch.inf
        values, at = scores.flatten().topk(min(most, scores.numel()))
        pairs = torch.stack([at // nodes + start, at % nodes], 1)
        order = torch.cat([best, values]).argsort(descending=True, stable=True)[:most]
        best, where = torch.cat([best, values])[order], torch.cat([where, pairs])[order]
    return np.asarray(where[best > -torch.inf])
