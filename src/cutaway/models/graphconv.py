"""Graph convolution with two matrices: one for the node itself, one for the sum over its neighbours.

After C. Morris, M. Ritzert, M. Fey, W. L. Hamilton, J. E. Lenssen, G. Rattan, M. Grohe, Weisfeiler and Leman go neural:
higher-order graph neural networks, 2018 (AAAI 2019). <https://arxiv.org/abs/1810.02244>

    f_i^(t) = σ( f_i^(t−1) W_1 + Σ_{j → i} f_j^(t−1) W_2 )            (equation 1)

The sum is neither weighted nor divided by the number of neighbours, so that the network can count them: with enough
width it distinguishes exactly the nodes that the Weisfeiler–Leman test of dimension 1 distinguishes. No self-loop is
added: the node has its own matrix, and a self-loop in the data is an ordinary edge.

Shapes: x (V, F) and edge_index (2, E); each layer (V, hidden), ReLU; the last one gives the logits of the nodes `rows`,
(n, classes). With `graph_level`, as in the paper, examples are whole graphs in one batch: every layer has
`hidden` values and a ReLU, the nodes of each graph are pooled, (n, hidden), and a linear head gives (n, classes).

The matrices have the names of PyTorch Geometric's GraphConv, where the bias belongs to `lin_rel`.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

from ..core.spec import GraphSpec
from ..nn.graphs import READS, MessagePassing, NodeLinear, build_adjacency, dropout, sum_dtype
from .base import GraphModel, validate_node_features
from .card import Card, Divergence, Published
from .config import ValidatedConfig, choice, fit_graph_model, fraction, positive


@dataclass(frozen=True)
class Config(ValidatedConfig):
    """Configuration of the network."""

    in_features: int = positive(1433)  # F, number of features of a node
    hidden_dim: int = positive(64)  # dimension of a node between layers
    layers: int = positive(3)  # number of layers, and of hops that a node sees
    num_classes: int = positive(7)  # size of the output: number of classes, or 1 for a number
    dropout: float = fraction(0.5)  # dropout rate of the last layer's input
    bias: bool = True  # bias of each layer
    graph_level: bool = False  # predict for whole graphs instead of nodes
    pooling: str = choice("mean", READS)  # pooling of the nodes of a graph: mean, max or sum

    @classmethod
    def for_spec(cls, preset: Config, spec: GraphSpec) -> Config:
        """Return the preset with the features and outputs of `spec`.

        Raises ModelError for a target that it cannot learn.
        """
        return fit_graph_model("graphconv", preset, spec)


class GraphConv(MessagePassing):
    """X W_1 + A X W_2 + b: (V, in) to (V, out)."""

    def __init__(self, in_features: int, out_features: int, bias: bool) -> None:
        super().__init__()
        self.lin_rel = NodeLinear(in_features, out_features, bias=False)  # W_2, of the neighbours
        self.lin_root = NodeLinear(in_features, out_features, bias=False)  # W_1, of the node itself
        self.bias = nn.Parameter(torch.zeros(out_features)) if bias else None

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Transform before or after the sum over the edges, whichever moves fewer values: both are equal."""
        edges = build_adjacency(edge_index, x.shape[0], loops=False)
        ones = edges.ones(sum_dtype(x))  # (E,)
        if self.lin_rel.out_features <= self.lin_rel.in_features:
            total = self.propagate(edges, ones, self.lin_rel(x))  # (V, out)
        else:
            total = self.lin_rel(self.propagate(edges, ones, x))  # (V, out)
        y: Tensor = total + self.lin_root(x)
        return y if self.bias is None else y + self.bias


class GraphConvNet(GraphModel):
    """Nodes (V, F) and edges (2, E) to logits: of graphs (n, classes), or of nodes (n, classes)."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        last = config.hidden_dim if config.graph_level else config.num_classes
        widths = (config.in_features, *[config.hidden_dim] * (config.layers - 1), last)
        self.layers = nn.ModuleList(GraphConv(i, o, config.bias) for i, o in pairwise(widths))
        self.build_head(config.hidden_dim)

    def forward(self, x: Tensor, edge_index: Tensor, rows: Tensor | None = None, batch: Tensor | None = None) -> Tensor:
        """Return the logits of each graph in `batch` (V,), or of the nodes `rows` (all by default).

        Raises ModelError if nodes or edges have other shapes.
        """
        h = self.hidden(x, edge_index)  # (V, hidden)
        if not self.config.graph_level:
            h = dropout(h, self.config.dropout, self.training)
            h = self.layers[-1](h, edge_index)  # (V, classes)
        return self.answer(h, rows, batch)

    def hidden(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Return the nodes after all layers with a ReLU, (V, hidden): of nodes all but the last."""
        validate_node_features("graphconv", x, self.config.in_features)
        for layer in self.layers if self.config.graph_level else self.layers[:-1]:
            x = layer(x, edge_index).relu()
        return x

    def features(
        self, x: Tensor, edge_index: Tensor, rows: Tensor | None = None, batch: Tensor | None = None
    ) -> Tensor:
        """Return the input of the last layer: each graph, pooled, (n, hidden), or the nodes `rows`."""
        return self.read_out(self.hidden(x, edge_index), rows, batch)


Model = GraphConvNet

# Features and classes are those of Cora; a data set sets its own, and graphs as examples if it has them.
PRESETS = {"graphconv": Config()}

CARD = Card(
    title="Weisfeiler and Leman go neural: higher-order graph neural networks",
    authors="C. Morris, M. Ritzert, M. Fey, W. L. Hamilton, J. E. Lenssen, G. Rattan, M. Grohe",
    year=2018,
    link="https://arxiv.org/abs/1810.02244",
    family="graph",
    equation="h_i' = σ(W h_i + Σ_{j → i} U h_j + b)",
    oracle="torch-geometric's GraphConv",
    published={
        "graphconv": Published(
            192_647, None, (2708, 1433), "computed: three layers, 64 values between them, on Cora's sizes"
        )
    },
    divergences=(
        Divergence(
            "higher-order networks",
            paper="networks on sets of two and three nodes (2-GNN, 3-GNN), and on nodes",
            here="only nodes (1-GNN)",
        ),
        Divergence("bias", paper="none in equation 1", here="one for each value", common="one, as here"),
        Divergence(
            "head",
            paper="nodes pooled, then a multi-layer perceptron",
            here="nodes pooled by mean, max or sum, dropout, and one linear layer",
        ),
        Divergence("initialization", paper="not specified", here="Glorot's", common="uniform in ±1/√fan-in"),
    ),
    settings={
        "graphconv": {
            "optimizer": "adam",
            "lr": 0.01,
            "weight_decay": 0.0,
            "schedule": "cosine",
            "epochs": 100,
            "batch_size": 32,
        }
    },
)
