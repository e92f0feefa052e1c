"""Shared parts of graph models: input validation, selection of nodes, link decoding and pooling."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from ..core.errors import ModelError, check_value
from ..core.spec import Classes, GraphSpec, Links, Value
from ..nn.graphs import CSRPattern, global_pool
from .config import ValidatedConfig

Config = TypeVar("Config", bound=ValidatedConfig)
NODE_TARGETS = (Classes, Value)  # targets of a node or a graph
LINK_TARGETS = (*NODE_TARGETS, Links)  # and targets of a pair of nodes


def config_for_data(name: str, preset: Config, spec: GraphSpec) -> Config:
    """Return the preset's config with the features and outputs of `spec`.

    The targets are nodes, graphs or, if the config has a decoder, links. Raises ModelError for another target.
    """
    decodes, links = hasattr(preset, "decoder"), isinstance(spec.target, Links)
    if not isinstance(spec.target, LINK_TARGETS if decodes else NODE_TARGETS):
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


def validate_heads(graph_level: bool, decoder: str) -> None:
    """Raise ModelError for a network with both a graph-level head and a link decoder."""
    check_value(decoder == "none" or not graph_level, "decoder", decoder, "none with graph_level=true")


def validate_node_features(name: str, x: Tensor, in_features: int) -> None:
    """Raise ModelError if the nodes do not have `in_features` features each."""
    if x.ndim != 2 or x.shape[1] != in_features:
        raise ModelError(
            f"This {name} takes nodes of {in_features} features, (V, {in_features}), and these are {tuple(x.shape)}: "
            "build one with other in_features."
        )


def edge_features_in_order(name: str, edge_attr: Tensor | None, edges: CSRPattern, edge_features: int) -> Tensor | None:
    """Return the edge features (E, D) in the order of the pattern, or None if the model uses none.

    Raises ModelError if the edges do not have `edge_features` features each.
    """
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


def index_nodes(h: Tensor, rows: Tensor | None) -> Tensor:
    """Return the rows of h at the nodes `rows` (n,), or at both ends of pairs (n, 2), (n, 2, F); all rows if None.

    `rows` may be empty.
    """
    if rows is None:
        return h
    rows = rows if rows.dtype == torch.int32 else rows.long()  # torch.tensor([]) is not an integer tensor
    return h.index_select(0, rows.flatten()).view(*rows.shape, *h.shape[1:])


def decode_links(z: Tensor, rows: Tensor | None, decoder: nn.Module) -> Tensor:
    """Return logits (n, 1) for pairs of nodes (n, 2), from embeddings z (V, d).

    For nodes (n,), and for all nodes if `rows` is None, the embeddings themselves are returned.
    """
    ends = index_nodes(z, rows)
    if rows is None or rows.ndim != 2:
        return ends
    logits: Tensor = decoder(ends)
    return logits


def pool(h: Tensor, batch: Tensor | None, pooling: str) -> Tensor:
    """Return one vector for each graph, (n, F); without `batch` all nodes belong to one graph."""
    if batch is None:
        batch = torch.zeros(h.shape[0], dtype=torch.int64, device=h.device)
    return global_pool(h, batch, pooling)
