"""The graph isomorphism network: sums over neighbours, followed by a multi-layer perceptron.

After K. Xu, W. Hu, J. Leskovec, S. Jegelka, How powerful are graph neural networks?, 2018 (ICLR 2019).
<https://arxiv.org/abs/1810.00826>

    h_v^(k) = MLP^(k)( (1 + ε^(k)) h_v^(k−1) + Σ_{u → v} h_u^(k−1) ),   h_v^(0) = x_v          (equation 4.1)
    h_G = CONCAT( READOUT({h_v^(k) : v ∈ G}) : k = 0, …, K )                                   (equation 4.2)

A sum, unlike a mean or a maximum, distinguishes any two multisets of neighbours, and an MLP can preserve this: with
enough width the network distinguishes all graphs that the Weisfeiler–Leman test of dimension 1 does. ε is 0 (GIN-0,
which the paper finds to generalize best) or learned (GIN-ε). No self-loop is added; one in the data is an ordinary
edge.

Shapes: x (V, F) and edge_index (2, E); each layer (V, hidden), with two linear layers, each followed by batch
normalization and a ReLU. The nodes of each graph are pooled from all layers, including x, (n, F + layers · hidden), and
a linear head returns (n, classes). For nodes the head takes only the last layer, (n, hidden).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ..core.spec import GraphSpec
from ..nn.graphs import READS, MessagePassing, build_adjacency, dropout, global_pool, index_nodes, sum_dtype
from .base import GraphModel, validate_node_features
from .card import Card, Divergence, Published, Result
from .config import ValidatedConfig, choice, fit_graph_model, fraction, positive


@dataclass(frozen=True)
class Config(ValidatedConfig):
    """Configuration of the network."""

    in_features: int = positive(7)  # F, number of features of a node
    hidden_dim: int = positive(32)  # dimension of a node after each layer, and between the two linear layers of one
    layers: int = positive(4)  # number of layers, and of hops that a node sees
    num_classes: int = positive(2)  # size of the output: number of classes, or 1 for a number
    dropout: float = fraction(0.5)  # dropout rate of the head's input
    train_eps: bool = False  # ε of each layer is learned, from 0 on; else it is 0
    graph_level: bool = True  # predict for whole graphs instead of nodes
    pooling: str = choice("sum", READS)  # pooling of the nodes of a graph: mean, max or sum

    @classmethod
    def for_spec(cls, preset: Config, spec: GraphSpec) -> Config:
        """Return the preset with the features and outputs of `spec`.

        Raises ModelError for a target that it cannot learn.
        """
        return fit_graph_model("gin", preset, spec)


class GINConv(MessagePassing):
    """MLP((1 + ε) X + A X): (V, in) to (V, out)."""

    def __init__(self, in_features: int, out_features: int, train_eps: bool) -> None:
        super().__init__()
        self.eps: Tensor
        if train_eps:
            self.eps = nn.Parameter(torch.zeros(1))
        else:
            self.register_buffer("eps", torch.zeros(1))
        self.fc1 = nn.Linear(in_features, out_features, bias=False)
        self.norm = nn.BatchNorm1d(out_features)
        self.fc2 = nn.Linear(out_features, out_features, bias=False)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Sum over the edges first, then apply the MLP."""
        edges = build_adjacency(edge_index, x.shape[0], loops=False)
        h = (1 + self.eps) * x + self.propagate(edges, edges.ones(sum_dtype(x)), x)  # (V, in)
        y: Tensor = self.fc2(self.norm(self.fc1(h)).relu())
        return y


class GIN(GraphModel):
    """Nodes (V, F) and edges (2, E) to logits: of graphs (n, classes), or of nodes (n, classes)."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        widths = (config.in_features, *[config.hidden_dim] * config.layers)
        self.layers = nn.ModuleList(GINConv(width, config.hidden_dim, config.train_eps) for width in widths[:-1])
        self.norms = nn.ModuleList(nn.BatchNorm1d(width) for width in widths[1:])
        self.head = nn.Linear(sum(widths) if config.graph_level else config.hidden_dim, config.num_classes)

    def features(
        self, x: Tensor, edge_index: Tensor, rows: Tensor | None = None, batch: Tensor | None = None
    ) -> Tensor:
        """Return the input of the head: of each graph all layers, pooled, (n, F + layers · hidden), or of the nodes
        `rows` the last one, (n, hidden).

        """
        validate_node_features("gin", x, self.config.in_features)
        states = [x]
        for layer, norm in zip(self.layers, self.norms):
            states.append(norm(layer(states[-1], edge_index)).relu())  # (V, hidden)
        if self.config.graph_level:
            return torch.cat([global_pool(h, batch, self.config.pooling) for h in states], 1)
        return index_nodes(states[-1], rows)

    def forward(self, x: Tensor, edge_index: Tensor, rows: Tensor | None = None, batch: Tensor | None = None) -> Tensor:
        """Return the logits of each graph in `batch` (V,), or of the nodes `rows` (all by default).

        Raises ModelError if nodes or edges have other shapes.
        """
        h = self.features(x, edge_index, rows, batch)
        logits: Tensor = self.head(dropout(h, self.config.dropout, self.training))
        return logits


Model = GIN

# Features and classes are those of MUTAG; a data set sets its own, and nodes as examples if it has them.
PRESETS = {"gin": Config(), "gin-eps": Config(train_eps=True)}

SETTINGS = {
    "optimizer": "adam",
    "lr": 0.01,
    "weight_decay": 0.0,
    "schedule": "step",
    "milestones": (0.25, 0.5, 0.75),  # halved every 50 epochs
    "gamma": 0.5,
    "epochs": 200,
    "batch_size": 32,
}

CARD = Card(
    title="How powerful are graph neural networks?",
    authors="K. Xu, W. Hu, J. Leskovec, S. Jegelka",
    year=2018,
    link="https://arxiv.org/abs/1810.00826",
    family="graph",
    equation="h_v' = MLP( (1 + ε) h_v + Σ_{u → v} h_u ), h_G = CONCAT_k READOUT({h_v^(k) : v ∈ G})",
    oracle="torch-geometric's GINConv and BatchNorm",
    published={
        "gin": Published(8_176, None, (18, 7), "computed from the paper's sizes on MUTAG"),
        "gin-eps": Published(8_180, None, (18, 7), "computed from the paper's sizes on MUTAG, with an ε in each layer"),
    },
    divergences=(
        Divergence(
            "number of layers",
            paper="5 including the input, so 4 aggregations",
            here="`layers` counts aggregations: 4",
            common="5 aggregations in PyTorch Geometric's examples",
        ),
        Divergence(
            "head on all layers",
            paper="one on the concatenation (equation 4.2)",
            here="the same",
            common="a linear layer on each part, whose outputs are added, in the authors' release: the same but for "
            "the number of biases",
        ),
        Divergence(
            "biases before batch normalization",
            paper="not specified",
            here="none: the normalization removes them",
            common="one for each value in the authors' release and in PyTorch Geometric's examples",
        ),
        Divergence(
            "dropout",
            paper="after the dense layer of the head; 0 or 0.5, as suits a data set",
            here="before it, 0.5",
            common="on the logits of each layer in the authors' release",
        ),
        Divergence(
            "epochs",
            paper="those with the best mean accuracy on the held-out folds themselves",
            here="fixed in advance",
        ),
        Divergence("nodes as examples", paper="h^(K), without experiments", here="h^(K) and the same linear head"),
    ),
    results={
        "gin": (
            Result("MUTAG", {"accuracy": 89.4}, "10-fold cross-validation, best epoch", "the paper, table 1 (GIN-0)"),
        ),
    },
    settings={"gin": SETTINGS, "gin-eps": SETTINGS},
)
