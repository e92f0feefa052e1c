"""The graph convolutional network: each layer averages the features of a node and its neighbours with fixed weights.

After T. N. Kipf, M. Welling, Semi-supervised classification with graph convolutional networks, 2016 (ICLR 2017).
<https://arxiv.org/abs/1609.02907>

    H^(l+1) = σ( D̃^−½ Ã D̃^−½ H^(l) W^(l) ),   Ã = A + I,   D̃_ii = Σ_j Ã_ij            (equation 2)
    Z = softmax( Â ReLU( Â X W^(0) ) W^(1) ),   Â = D̃^−½ Ã D̃^−½                        (equation 9)

Node i takes the sum over the edges j → i of H_j W / √(d_i d_j), where d is the number of incoming edges of a node,
including its self-loop. Every node has exactly one self-loop, even if the data lists several or none; other edges count
as often as listed.

Shapes: x (V, F) and edge_index (2, E); layer 1 (V, hidden), ReLU; layer 2 (V, classes), logits of the nodes `rows` (n,
classes). Dropout is applied to the input of each layer. With `graph_level`, examples are whole graphs in one batch:
every layer has `hidden` values and a ReLU, the nodes of each graph are pooled, (n, hidden), and a linear head returns
(n, classes). With a `decoder`, layer 2 returns embeddings (V, hidden), and the decoder the logits of links between the
pairs `rows` (n, 2), (n, 1).

The parts have the names of PyTorch Geometric's GCNConv, whose weights load unchanged.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

from ..core.spec import GraphSpec
from ..nn.graphs import DECODERS, READS, MessagePassing, NodeLinear, build_adjacency, sum_dtype
from .base import GraphModel, validate_node_features
from .card import Card, Divergence, Published, Result
from .config import LINK_TARGETS, ValidatedConfig, choice, fit_graph_model, fraction, positive, validate_heads


@dataclass(frozen=True)
class Config(ValidatedConfig):
    """Configuration of the network."""

    in_features: int = positive(1433)  # F, number of features of a node
    hidden_dim: int = positive(16)  # hidden dimension of a node
    layers: int = positive(2)  # number of layers, and of hops a node receives messages from
    num_classes: int = positive(7)  # size of the output: number of classes, or 1 for a number
    dropout: float = fraction(0.5)  # dropout rate of each layer's input
    bias: bool = False  # bias of each layer, added after the sum
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
        return fit_graph_model("gcn", preset, spec)


class GCNConv(MessagePassing):
    """Â X W + b: (V, in) to (V, out)."""

    def __init__(self, in_features: int, out_features: int, bias: bool, dropout: float) -> None:
        super().__init__()
        self.lin = NodeLinear(in_features, out_features, bias=False, dropout=dropout)
        self.bias = nn.Parameter(torch.zeros(out_features)) if bias else None

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Transform first, then sum over the edges, because messages are then smaller."""
        h: Tensor = self.lin(x)  # X W: (V, out)
        edges = build_adjacency(edge_index, x.shape[0], loops=True)  # Ã = A + I
        weights = edges.gcn_norm(sum_dtype(h))  # 1 / √(d_i d_j) of each edge, (E,)
        y = self.propagate(edges, weights, h)  # Â X W: (V, out)
        return y if self.bias is None else y + self.bias


class GCN(GraphModel):
    """Nodes (V, F) and edges (2, E) to logits: of nodes (n, classes), or of graphs (n, classes)."""

    targets = LINK_TARGETS
    decayed = ("layers.0.lin.weight",)  # the paper's L2 is only on the first layer

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        last = config.hidden_dim if config.graph_level or config.decoder != "none" else config.num_classes
        widths = (config.in_features, *[config.hidden_dim] * (config.layers - 1), last)
        self.layers = nn.ModuleList(GCNConv(i, o, config.bias, config.dropout) for i, o in pairwise(widths))
        self.build_head(config.hidden_dim)

    def forward(self, x: Tensor, edge_index: Tensor, rows: Tensor | None = None, batch: Tensor | None = None) -> Tensor:
        """Return the logits of the nodes `rows` (all by default), or of each graph in `batch` (V,).

        With a decoder return the logits of pairs of nodes (n, 2), (n, 1), or the embeddings of nodes. Raises ModelError
        if nodes or edges have other shapes.
        """
        h = self.hidden(x, edge_index)  # (V, hidden)
        if not self.config.graph_level:
            h = self.layers[-1](h, edge_index)  # (V, classes), or embeddings (V, hidden) for the decoder
        return self.answer(h, rows, batch)

    def hidden(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Return the nodes after all layers with a ReLU, (V, hidden): of nodes and links all but the last."""
        validate_node_features("gcn", x, self.config.in_features)
        for layer in self.layers if self.config.graph_level else self.layers[:-1]:
            x = layer(x, edge_index).relu()
        return x

    def features(
        self, x: Tensor, edge_index: Tensor, rows: Tensor | None = None, batch: Tensor | None = None
    ) -> Tensor:
        """Return the input of the last layer: the nodes `rows`, or each graph, pooled, (n, hidden).

        With a decoder it is the embeddings of both ends of pairs (n, 2), (n, 2, hidden).
        """
        h = self.hidden(x, edge_index)
        return self.read_out(self.layers[-1](h, edge_index) if self.decodes_links else h, rows, batch)


Model = GCN

# Features and classes are those of Cora; a data set sets its own.
PRESETS = {"gcn": Config()}

CARD = Card(
    title="Semi-supervised classification with graph convolutional networks",
    authors="T. N. Kipf, M. Welling",
    year=2016,
    link="https://arxiv.org/abs/1609.02907",
    family="graph",
    equation="H' = σ(D̃^−½ (A + I) D̃^−½ H W)",
    oracle="torch-geometric's GCNConv",
    published={
        "gcn": Published(
            23_040, None, (2708, 1433), "computed from the authors' release on Cora, whose layers have no bias"
        )
    },
    divergences=(
        Divergence(
            "bias",
            paper="none in equation 2",
            here="none; model.bias=true adds 23 parameters on Cora",
            common="none in the authors' release; one in PyTorch Geometric",
        ),
        Divergence(
            "decay",
            paper="L2 of 5e-4, only on the weights of the first layer",
            here="the same",
            common="on all weights in many implementations",
        ),
        Divergence(
            "dropout on sparse features",
            paper="on the entries that are not 0 (the authors' release)",
            here="the same for sparse features; equal in distribution to dropout on all entries",
            common="on all entries",
        ),
        Divergence(
            "early stopping",
            paper="at most 200 epochs, stopped when the validation loss exceeds its mean over 10 epochs",
            here="200 epochs, with the weights of the best epoch on the validation split",
        ),
        Divergence(
            "directed edges", paper="none: Â is symmetric", here="Â is not symmetric if edges have one direction"
        ),
        Divergence("graph-level outputs", paper="none", here="mean, max or sum pooling of nodes, and a linear head"),
    ),
    results={
        "gcn": (
            Result("Cora", {"accuracy": 81.5}, "fixed split", "the paper, table 2"),
            Result("Citeseer", {"accuracy": 70.3}, "fixed split", "the paper, table 2"),
            Result("Pubmed", {"accuracy": 79.0}, "fixed split", "the paper, table 2"),
        ),
    },
    settings={
        "gcn": {
            "optimizer": "adam",
            "lr": 0.01,
            "weight_decay": 5e-4,
            "schedule": "constant",
            "epochs": 200,
            "batch_size": 0,
        }
    },
)
