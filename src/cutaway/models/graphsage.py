"""GraphSAGE: each layer concatenates a node and the mean of its neighbours, which also works for unseen nodes.

After W. L. Hamilton, R. Ying, J. Leskovec, Inductive representation learning on large graphs, 2017 (NeurIPS 2017).
<https://arxiv.org/abs/1706.02216>

    h_N(i)^k = mean_{j → i} h_j^(k−1)                                                        (algorithm 1, line 4)
    h_i^k = σ( W^k [h_i^(k−1) ‖ h_N(i)^k] ),   then h_i^k / ‖h_i^k‖₂                         (lines 5 and 7)

W [a ‖ b] is the sum of two products, one with each half of W. A node without neighbours has the mean 0. No self-loop is
added; edges count once per listing. For graphs that are too large, `num_neighbors=25,10` samples that many
neighbours of each node, as in the paper.

Shapes: x (V, F) and edge_index (2, E); each layer (V, hidden), ReLU, normalized to length 1; a linear head gives the
logits of the nodes `rows`, (n, classes). With `graph_level`, examples are whole graphs in one batch, and
the head sees the nodes of each graph pooled, (n, hidden). With a `decoder` the last layer has neither ReLU nor length
1: it gives embeddings (V, hidden), and the decoder the logits of links between the pairs `rows` (n, 2), (n, 1).

The matrices have the names of PyTorch Geometric's SAGEConv, where the bias belongs to `lin_l`.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..core.spec import GraphSpec
from ..nn.graphs import (
    DECODERS,
    READS,
    MessagePassing,
    NodeLinear,
    build_adjacency,
    decode_links,
    link_decoder,
    sum_dtype,
)
from .base import GraphModel, validate_node_features
from .card import Card, Divergence, Published
from .config import LINK_TARGETS, ValidatedConfig, choice, fit_graph_model, fraction, positive, validate_heads


@dataclass(frozen=True)
class Config(ValidatedConfig):
    """Configuration of the network."""

    in_features: int = positive(1433)  # F, number of features of a node
    hidden_dim: int = positive(128)  # dimension of a node after each layer
    layers: int = positive(2)  # K, number of layers and of hops that a node sees
    num_classes: int = positive(7)  # size of the output: number of classes, or 1 for a number
    dropout: float = fraction(0.5)  # dropout rate of the head's input
    graph_level: bool = False  # predict for whole graphs instead of nodes
    pooling: str = choice("mean", READS)  # pooling of the nodes of a graph: mean, max or sum
    decoder: str = choice("none", DECODERS)  # link decoder, for targets of pairs of nodes: dot or bilinear

    def __post_init__(self) -> None:
        super().__post_init__()
        validate_heads(self.graph_level, self.decoder)

    @classmethod
    def for_spec(cls, preset: Config, spec: GraphSpec) -> Config:
        """Return the preset with the features and outputs of `spec`.

        Raises ModelError for a target that it cannot learn.
        """
        return fit_graph_model("graphsage", preset, spec)


class SAGEConv(MessagePassing):
    """W [x ‖ mean of the neighbours] + b: (V, in) to (V, out)."""

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.lin_l = NodeLinear(in_features, out_features, bias=False)  # the half of W that meets the neighbours
        self.lin_r = NodeLinear(in_features, out_features, bias=False)  # the half that meets the node itself
        self.bias = nn.Parameter(torch.zeros(out_features))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Transform before or after the mean over the edges, whichever moves fewer values: both are equal."""
        edges = build_adjacency(edge_index, x.shape[0], loops=False)
        shares = edges.degrees(sum_dtype(x)).reciprocal()[edges.rows]  # 1 / the number of neighbours, for each edge
        if self.lin_l.out_features <= self.lin_l.in_features:
            mean = self.propagate(edges, shares, self.lin_l(x))  # (V, out)
        else:
            mean = self.lin_l(self.propagate(edges, shares, x))  # (V, out)
        y: Tensor = mean + self.lin_r(x) + self.bias
        return y


class GraphSAGE(GraphModel):
    """Nodes (V, F) and edges (2, E) to logits: of nodes or of graphs (n, classes), or of links (n, 1)."""

    targets = LINK_TARGETS

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        widths = (config.in_features, *[config.hidden_dim] * config.layers)
        self.layers = nn.ModuleList(SAGEConv(i, o) for i, o in pairwise(widths))
        if config.decoder != "none":
            self.head = link_decoder(config.decoder, config.hidden_dim)
        else:
            self.head = NodeLinear(config.hidden_dim, config.num_classes, dropout=config.dropout)

    def features(
        self, x: Tensor, edge_index: Tensor, rows: Tensor | None = None, batch: Tensor | None = None
    ) -> Tensor:
        """Return the input of the head: of the nodes `rows`, (n, hidden), of each graph, pooled, (n, hidden), or of
        both ends of pairs (n, 2), (n, 2, hidden).

        """
        validate_node_features("graphsage", x, self.config.in_features)
        for layer in self.layers[:-1] if self.decodes_links else self.layers:
            x = F.normalize(layer(x, edge_index).relu(), dim=1)  # (V, hidden)
        if self.decodes_links:
            x = self.layers[-1](x, edge_index)  # embeddings, of any length
        return self.read_out(x, rows, batch)

    def forward(self, x: Tensor, edge_index: Tensor, rows: Tensor | None = None, batch: Tensor | None = None) -> Tensor:
        """Return the logits of the nodes `rows` (all by default), or of each graph in `batch` (V,).

        With a decoder return the logits of pairs of nodes (n, 2), (n, 1), or the embeddings of nodes. Raises ModelError
        if nodes or edges have other shapes.
        """
        if self.decodes_links:
            return decode_links(self.features(x, edge_index), rows, self.head)
        logits: Tensor = self.head(self.features(x, edge_index, rows, batch))
        return logits


Model = GraphSAGE

# Features and classes are those of Cora; a data set sets its own.
PRESETS = {"graphsage": Config()}

CARD = Card(
    title="Inductive representation learning on large graphs",
    authors="W. L. Hamilton, R. Ying, J. Leskovec",
    year=2017,
    link="https://arxiv.org/abs/1706.02216",
    family="graph",
    equation="h_i' = σ(W [h_i ‖ mean_{j → i} h_j]), divided by its length",
    oracle="torch-geometric's SAGEConv",
    published={
        "graphsage": Published(
            400_775, None, (2708, 1433), "computed: two layers of 128 values and a linear head, on Cora's sizes"
        )
    },
    divergences=(
        Divergence(
            "aggregator",
            paper="mean, LSTM or max-pooling over an MLP",
            here="mean",
            common="mean by default in PyTorch Geometric",
        ),
        Divergence("bias", paper="none in algorithm 1", here="one for each value", common="one, as here"),
        Divergence(
            "normalization to length 1",
            paper="after σ, in every layer",
            here="the same; not in the last layer of link prediction, whose dot products would be in [0, 1]",
            common="before σ, and only with normalize=True, in PyTorch Geometric",
        ),
        Divergence(
            "neighbours",
            paper="25 and 10 are sampled per node, with repetition if there are fewer",
            here="all; with num_neighbors=25,10 at most that many, without repetition",
        ),
        Divergence("loss", paper="also unsupervised, with random walks", here="for classes, numbers or links"),
        Divergence("whole graphs", paper="none", here="nodes pooled by mean, max or sum, and the linear head"),
        Divergence("initialization", paper="not specified", here="Glorot's", common="uniform in ±1/√fan-in"),
    ),
    settings={
        "graphsage": {
            "optimizer": "adam",
            "lr": 0.01,
            "weight_decay": 5e-4,
            "schedule": "constant",
            "epochs": 200,
            "batch_size": 0,
        }
    },
)
