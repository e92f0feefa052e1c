"""GIN with edge features, which are added to the features of the source node in each message.

After W. Hu, B. Liu, J. Gomes, M. Zitnik, P. Liang, V. Pande, J. Leskovec, Strategies for pre-training graph neural
networks, 2019 (ICLR 2020), appendix A. <https://arxiv.org/abs/1905.12265>

    h_v^(0) = W x_v + b
    h_v^(k) = ReLU( BN( MLP^(k)( (1 + ε^(k)) h_v^(k−1) + Σ_{u → v} ReLU( h_u^(k−1) + W_e^(k) e_uv + b_e^(k) ) ) ) )
    h_G = READOUT({h_v^(K) : v ∈ G})

Unlike a plain GIN (`gin.py`), the network distinguishes kinds of bonds. Without edge features the term of the edge is
omitted, and the sum is over ReLU(h_u). The last layer has no ReLU. No self-loop is added; one in the data is an
ordinary edge.

Shapes: x (V, F), edge_index (2, E) and edge_attr (E, D); each layer (V, hidden), an MLP of two linear layers, the first
(V, 2 · hidden) with a ReLU. The nodes of each graph are pooled from the last layer, (n, hidden), and a linear head
returns (n, classes); for nodes the head takes the nodes `rows`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ..core.spec import GraphSpec
from ..nn.graphs import READS, MessagePassing, build_adjacency, dropout, edge_features_in_order
from .base import GraphModel, validate_node_features
from .card import Card, Divergence, Published
from .config import ValidatedConfig, choice, fit_graph_model, fraction, min_value, positive


@dataclass(frozen=True)
class Config(ValidatedConfig):
    """Configuration of the network."""

    in_features: int = positive(7)  # F, number of features of a node
    edge_features: int = min_value(0, 0)  # D, number of features of an edge; 0 for none
    hidden_dim: int = positive(64)  # dimension of a node in every layer
    layers: int = positive(5)  # number of layers, and of hops that a node sees
    num_classes: int = positive(2)  # size of the output: number of classes, or 1 for a number
    dropout: float = fraction(0.0)  # dropout rate of each layer's output
    train_eps: bool = False  # ε of each layer is learned, from 0 on; else it is 0
    graph_level: bool = True  # predict for whole graphs instead of nodes
    pooling: str = choice("mean", READS)  # pooling of the nodes of a graph: mean, max or sum

    @classmethod
    def for_spec(cls, preset: Config, spec: GraphSpec) -> Config:
        """Return the preset with the features and outputs of `spec`.

        Raises ModelError for a target that it cannot learn.
        """
        return fit_graph_model("gine", preset, spec)


class GINEConv(MessagePassing):
    """MLP((1 + ε) h_v + Σ ReLU(h_u + W_e e_uv)): (V, hidden) to (V, hidden)."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        width = config.hidden_dim
        self.eps: Tensor
        if config.train_eps:
            self.eps = nn.Parameter(torch.zeros(1))
        else:
            self.register_buffer("eps", torch.zeros(1))
        self.edge_features = config.edge_features
        self.lin = nn.Linear(config.edge_features, width) if config.edge_features else None
        self.fc1 = nn.Linear(width, 2 * width)
        self.fc2 = nn.Linear(2 * width, width)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor | None = None) -> Tensor:
        """Compute the messages at the edges, (E, hidden), and sum them at their targets."""
        edges = build_adjacency(edge_index, x.shape[0], loops=False)
        attributes = edge_features_in_order("gine", edge_attr, edges, self.edge_features)
        sent = x.index_select(0, edges.columns)  # h_u of each edge, (E, hidden)
        if self.lin is not None:
            sent = sent + self.lin(attributes)
        h = (1 + self.eps) * x + self.aggregate(edges, sent.relu())  # (V, hidden)
        y: Tensor = self.fc2(self.fc1(h).relu())
        return y


class GINE(GraphModel):
    """A network that maps nodes (V, F), edges (2, E) and edge features (E, D) to logits of graphs or nodes, (n,
    classes).

    """

    edge_attr = True

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.embed = nn.Linear(config.in_features, config.hidden_dim)
        self.layers = nn.ModuleList(GINEConv(config) for _ in range(config.layers))
        self.norms = nn.ModuleList(nn.BatchNorm1d(config.hidden_dim) for _ in range(config.layers))
        self.head = nn.Linear(config.hidden_dim, config.num_classes)

    def features(
        self,
        x: Tensor,
        edge_index: Tensor,
        rows: Tensor | None = None,
        batch: Tensor | None = None,
        edge_attr: Tensor | None = None,
    ) -> Tensor:
        """Return the input of the head: each graph, pooled, or the nodes `rows`, (n, hidden)."""
        validate_node_features("gine", x, self.config.in_features)
        h = self.embed(x)  # (V, hidden)
        for k, (layer, norm) in enumerate(zip(self.layers, self.norms)):
            h = norm(layer(h, edge_index, edge_attr))
            h = dropout(h.relu() if k + 1 < len(self.layers) else h, self.config.dropout, self.training)
        return self.read_out(h, rows, batch)

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor,
        rows: Tensor | None = None,
        batch: Tensor | None = None,
        edge_attr: Tensor | None = None,
    ) -> Tensor:
        """Return the logits of each graph in `batch` (V,), or of the nodes `rows` (all by default).

        Raises ModelError if nodes or edges have other shapes.
        """
        logits: Tensor = self.head(self.features(x, edge_index, rows, batch, edge_attr))
        return logits


Model = GINE

# The data set determines features and outputs, and the features of edges if it has any.
PRESETS = {"gine": Config()}

CARD = Card(
    title="Strategies for pre-training graph neural networks",
    authors="W. Hu, B. Liu, J. Gomes, M. Zitnik, P. Liang, V. Pande, J. Leskovec",
    year=2019,
    link="https://arxiv.org/abs/1905.12265",
    family="graph",
    equation="h_v' = MLP( (1 + ε) h_v + Σ_{u → v} ReLU(h_u + W e_uv) )",
    oracle="torch-geometric's GINEConv and BatchNorm",
    published={"gine": Published(84_162, None, (18, 7), "computed: five layers of 64 values, on MUTAG's atoms")},
    divergences=(
        Divergence(
            "messages",
            paper="h_u + e_uv, without ReLU",
            here="ReLU(h_u + e_uv)",
            common="with ReLU in PyTorch Geometric's GINEConv and in the Open Graph Benchmark's GIN; without it in the "
            "authors' release",
        ),
        Divergence(
            "features of atoms and bonds",
            paper="a learned vector for each kind of atom, of chirality and of bond, added up",
            here="one linear layer on all features, which has such a vector for each category",
        ),
        Divergence("width", paper="300 values", here="64", common="300"),
        Divergence("loops", paper="one at each node, with its own bond type", here="none; ε instead"),
        Divergence("dropout", paper="0.2 to 0.5, tuned", here="0; model.dropout sets it"),
    ),
    settings={
        "gine": {
            "optimizer": "adam",
            "lr": 2e-3,
            "weight_decay": 0.0,
            "schedule": "cosine",
            "epochs": 100,
            "batch_size": 32,
        }
    },
)
