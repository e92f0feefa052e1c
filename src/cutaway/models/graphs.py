"""What the models that take graphs share: what they are given, the nodes that they predict for, and pooling."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from ..core.errors import ModelError, require
from ..core.spec import Classes, GraphSpec, Links, Value
from ..nn.graphs import Pattern, read_out
from .fields import Checked

Config = TypeVar("Config", bound=Checked)
LEARNED = (Classes, Value)  # targets of a node or a graph
LINKED = (*LEARNED, Links)  # and of a pair of nodes


def fitted(name: str, preset: Config, spec: GraphSpec) -> Config:
    """The preset's config with the features and outputs of `spec`, for its nodes, its graphs or, where it has a
    decoder, its links. Raises ModelError for another target."""
    decodes, links = hasattr(preset, "decoder"), isinstance(spec.target, Links)
    if not isinstance(spec.target, LINKED if decodes else LEARNED):
        raise ModelError(
            f"{name} learns a class or a number for each node or graph{', or links' if decodes else ''}, and "
            f"{spec.target.column} is {'none of them' if decodes else 'neither'}."
        )
    fits: Any = {"in_features": spec.features, "num_classes": spec.target.outputs, "graph_level": spec.graph_level}
    if decodes:
        asked = getattr(preset, "decoder")  # noqa: B009  # a Checked has no such field, some have
        fits["decoder"] = ("dot" if asked == "none" else asked) if links else "none"
    if hasattr(preset, "edge_features"):
        fits["edge_features"] = spec.edge_features
    return dataclasses.replace(preset, **fits)  # type: ignore[type-var]  # a Config is a dataclass


def reject_two_answers(graph_level: bool, decoder: str) -> None:
    """Raise ModelError for a network that would answer for whole graphs and for links."""
    require(decoder == "none" or not graph_level, "decoder", decoder, "none with graph_level=true")


def reject_features(name: str, x: Tensor, in_features: int) -> None:
    """Raise ModelError where the nodes are not described by so many numbers."""
    if x.ndim != 2 or x.shape[1] != in_features:
        raise ModelError(
            f"This {name} takes nodes of {in_features} features, (V, {in_features}), and these are {tuple(x.shape)}: "
            "build one with other in_features."
        )


def described(name: str, edge_attr: Tensor | None, edges: Pattern, edge_features: int) -> Tensor | None:
    """What is known of edges (E, D), in the order of the pattern; None where the model takes nothing of them. Raises
    ModelError where the edges are not described by so many numbers."""
    wanted = (edges.columns.shape[0], edge_features)
    if edge_features and (edge_attr is None or edge_attr.shape != wanted):
        given = "none are given" if edge_attr is None else f"these are {tuple(edge_attr.shape)}"
        raise ModelError(
            f"This {name} takes edges of {edge_features} features, edge_attr of shape {wanted}, and {given}: build one "
            "with other edge_features."
        )
    if not edge_features or edge_attr is None or edges.order is None:
        return None
    return edge_attr.index_select(0, edges.order)


def chosen(h: Tensor, rows: Tensor | None) -> Tensor:
    """What stands at the nodes `rows` (n,), of which there may be none, or at both ends of pairs (n, 2), (n, 2, F); at
    all nodes without them."""
    if rows is None:
        return h
    rows = rows if rows.dtype == torch.int32 else rows.long()  # torch.tensor([]) has no whole numbers
    return h.index_select(0, rows.flatten()).view(*rows.shape, *h.shape[1:])


def decoded(z: Tensor, rows: Tensor | None, decoder: nn.Module) -> Tensor:
    """Logits (n, 1) of pairs of nodes (n, 2), from embeddings z (V, d); the embeddings themselves of nodes (n,), and of
    all nodes without rows."""
    ends = chosen(z, rows)
    if rows is None or rows.ndim != 2:
        return ends
    logits: Tensor = decoder(ends)
    return logits


def pooled(h: Tensor, batch: Tensor | None, pooling: str) -> Tensor:
    """One vector for each graph, (n, F); without `batch` all nodes are of one."""
    if batch is None:
        batch = torch.zeros(h.shape[0], dtype=torch.int64, device=h.device)
    return read_out(h, batch, pooling)
