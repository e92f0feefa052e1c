"""Groups of input elements that are masked together: image patches, intervals of steps, tokens and columns."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from .differentiable_input import Entry


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
