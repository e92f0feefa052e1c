"""The message passing neural network: edge features determine the matrix that multiplies a message.

After J. Gilmer, S. S. Schoenholz, P. F. Riley, O. Vinyals, G. E. Dahl, Neural message passing for quantum chemistry,
2017 (ICML 2017). <https://arxiv.org/abs/1704.01212>

    m_v^(t+1) = Σ_{w → v} A(e_vw) h_w^(t)             A an MLP from e_vw to a matrix (d, d)   (equation 1, edge network)
    h_v^(t+1) = GRU( h_v^(t), m_v^(t+1) )                                                     (equation 2)
    ŷ = R({h_v^(T) : v ∈ G})                          R set2set and an MLP                    (equation 3)

All T steps share their weights, so that the matrices A are computed once. Set2set (O. Vinyals, S. Bengio, M. Kudlur,
Order matters: sequence to sequence for sets, 2015, <https://arxiv.org/abs/1511.06391>) reads the nodes of a graph
several times; each time an LSTM attends to them, given its state so far:

    q_s = LSTM(q*_{s−1}),   a_v = softmax_v( h_v · q_s ),   q*_s = [ q_s ‖ Σ_v a_v h_v ]

Shapes: x (V, F), edge_index (2, E) and edge_attr (E, D); nodes (V, d), matrices (E, d, d); for each graph set2set
returns (n, 2d), an MLP (n, d), and a linear head (n, classes). Without edge features there is one matrix for all edges.
For nodes the head takes h_v^(T) of the nodes `rows`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ..core.spec import GraphSpec
from ..nn.graphs import (
    READS,
    MessagePassing,
    build_adjacency,
    build_membership,
    count_graphs,
    edge_features_in_order,
    edge_softmax,
    global_pool,
    index_nodes,
    spmm,
    sum_dtype,
)
from .base import GraphModel, validate_node_features
from .card import Card, Divergence, Published
from .config import ValidatedConfig, choice, fit_graph_model, min_value, positive


@dataclass(frozen=True)
class Config(ValidatedConfig):
    """Configuration of the network."""

    in_features: int = positive(7)  # F, number of features of a node
    edge_features: int = min_value(0, 0)  # D, number of features of an edge; 0: one matrix for all edges
    hidden_dim: int = positive(64)  # d, dimension of a node
    edge_dim: int = positive(128)  # units of the hidden layer of the edge network
    layers: int = positive(3)  # T, steps of message passing, and hops that a node sees
    num_classes: int = positive(2)  # size of the output: number of classes, or 1 for a number
    graph_level: bool = True  # predict for whole graphs instead of nodes
    pooling: str = choice("set2set", ("set2set", *READS))  # pooling of the nodes of a graph: set2set, mean, max or sum
    set2set_steps: int = positive(3)  # number of times that set2set reads the nodes

    @classmethod
    def for_spec(cls, preset: Config, spec: GraphSpec) -> Config:
        """Return the preset with the features and outputs of `spec`.

        Raises ModelError for a target that it cannot learn.
        """
        return fit_graph_model("mpnn", preset, spec)


class EdgeNetwork(nn.Module):
    """The edge network A(e), which maps edge features (E, D) to the matrices of the messages (E, d, d)."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.dim = config.hidden_dim
        self.fc1 = nn.Linear(config.edge_features, config.edge_dim)
        self.fc2 = nn.Linear(config.edge_dim, self.dim * self.dim)

    def forward(self, edge_attr: Tensor) -> Tensor:
        """Return a row for each value of the source, a column for each value of the message."""
        matrices: Tensor = self.fc2(self.fc1(edge_attr).relu())
        return matrices.view(-1, self.dim, self.dim)  # (E, d, d)


class Step(MessagePassing):
    """One step: messages A(e_vw) h_w are summed at each node, and a GRU takes the sum in. (V, d) to (V, d)."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.edge_features = config.edge_features
        self.network = EdgeNetwork(config) if config.edge_features else None
        shape = (1, config.hidden_dim, config.hidden_dim)
        self.matrix = None if config.edge_features else nn.Parameter(torch.empty(shape))
        self.gru = nn.GRUCell(config.hidden_dim, config.hidden_dim)
        if self.matrix is not None:
            nn.init.xavier_uniform_(self.matrix[0])

    def matrices(self, edge_index: Tensor, nodes: int, edge_attr: Tensor | None) -> Tensor | None:
        """Return a of each edge, (E, d, d), in the order of its pattern: the same in all steps.

        None where one is for all.
        """
        edges = build_adjacency(edge_index, nodes, loops=False)
        attributes = edge_features_in_order("mpnn", edge_attr, edges, self.edge_features)
        if self.network is None or attributes is None:
            return None
        if torch.compiler.is_exporting():  # a format without torch.unique of rows computes each edge by itself
            return self.network(attributes)  # type: ignore[no-any-return]
        kinds, kind = torch.unique(attributes, dim=0, return_inverse=True)  # molecules have few kinds of bonds
        every: Tensor = self.network(kinds).index_select(0, kind)
        return every

    def forward(self, h: Tensor, edge_index: Tensor, matrices: Tensor | None = None) -> Tensor:
        """Compute the messages at the edges, (E, d), and sum them at their targets."""
        edges = build_adjacency(edge_index, h.shape[0], loops=False)
        if self.matrix is not None:
            message = self.propagate(edges, edges.ones(sum_dtype(h)), h @ self.matrix[0])  # (V, d)
        else:
            assert matrices is not None, "edge features are given"
            sent = torch.bmm(h.index_select(0, edges.columns)[:, None], matrices)[:, 0]  # A(e_vw) h_w, (E, d)
            message = self.aggregate(edges, sent)  # (V, d)
        y: Tensor = self.gru(message.to(h.dtype), h)
        return y


class Set2Set(nn.Module):
    """Reads the nodes of each graph `steps` times: (V, d) to (n, 2d)."""

    def __init__(self, dim: int, steps: int) -> None:
        super().__init__()
        self.dim, self.steps = dim, steps
        self.lstm = nn.LSTMCell(2 * dim, dim)

    def forward(self, h: Tensor, batch: Tensor) -> Tensor:
        """Read the nodes of each graph; `batch` (V,) is the graph of each node, from 0."""
        graphs = count_graphs(batch)
        nodes = build_membership(batch, graphs)
        read = h.new_zeros(graphs, 2 * self.dim)
        state: tuple[Tensor, Tensor] | None = None
        for _ in range(self.steps):
            state = self.lstm(read, state)
            q = state[0]  # (n, d)
            scores = (h * q.index_select(0, batch)).sum(1)  # (V,)
            weights = edge_softmax(scores.index_select(0, nodes.columns), nodes)  # of the nodes of each graph
            read = torch.cat([q, spmm(weights, nodes, h).to(q.dtype)], 1)  # (n, 2d)
        return read


class MPNN(GraphModel):
    """A network that maps nodes (V, F), edges (2, E) and edge features (E, D) to logits of graphs or nodes, (n,
    classes).

    """

    edge_attr = True

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        dim = config.hidden_dim
        self.embed = nn.Linear(config.in_features, dim)
        self.step = Step(config)
        if config.graph_level:
            self.read = Set2Set(dim, config.set2set_steps) if config.pooling == "set2set" else None
            self.fc = nn.Linear(2 * dim if self.read is not None else dim, dim)
        self.head = nn.Linear(dim, config.num_classes)

    def features(
        self,
        x: Tensor,
        edge_index: Tensor,
        rows: Tensor | None = None,
        batch: Tensor | None = None,
        edge_attr: Tensor | None = None,
    ) -> Tensor:
        """Return the input of the head: each graph, pooled, (n, d), or the states of the nodes `rows`, (n, d)."""
        validate_node_features("mpnn", x, self.config.in_features)
        h = self.embed(x).relu()  # (V, d)
        matrices = self.step.matrices(edge_index, x.shape[0], edge_attr)
        for _ in range(self.config.layers):
            h = self.step(h, edge_index, matrices)
        if not self.config.graph_level:
            return index_nodes(h, rows)
        if batch is None:
            batch = torch.zeros(h.shape[0], dtype=torch.int64, device=h.device)
        read = global_pool(h, batch, self.config.pooling) if self.read is None else self.read(h, batch)
        state: Tensor = self.fc(read).relu()
        return state

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


Model = MPNN

# The data set determines features and outputs, and the features of edges if it has any.
PRESETS = {"mpnn": Config()}

CARD = Card(
    title="Neural message passing for quantum chemistry",
    authors="J. Gilmer, S. S. Schoenholz, P. F. Riley, O. Vinyals, G. E. Dahl",
    year=2017,
    link="https://arxiv.org/abs/1704.01212",
    family="graph",
    equation="m_v = Σ_{w → v} A(e_vw) h_w, h_v' = GRU(h_v, m_v), ŷ = R({h_v})",
    oracle="torch-geometric's NNConv and Set2Set, torch's GRU",
    published={
        "mpnn": Published(87_618, None, (18, 7), "computed: states of 64 values, on MUTAG's atoms, edges alike")
    },
    divergences=(
        Divergence(
            "initial state of a node",
            paper="x_v, padded with zeros to d values",
            here="a linear layer and a ReLU",
            common="the same in PyTorch Geometric's and DeepGraphLibrary's examples",
        ),
        Divergence(
            "messages",
            paper="A(e_vw) h_w, summed; a master node and towers in some of its models",
            here="the same sum, without a master node or towers",
            common="their mean, and W h_v added to it, in PyTorch Geometric's example",
        ),
        Divergence(
            "input of set2set",
            paper="a linear projection of [h_v^(T) ‖ x_v]",
            here="h_v^(T)",
            common="h_v^(T), three times, as here",
        ),
        Divergence("edges", paper="bonds and distances", here="the edge features of the data; one matrix without them"),
    ),
    settings={
        "mpnn": {
            "optimizer": "adam",
            "lr": 1e-3,
            "weight_decay": 0.0,
            "schedule": "cosine",
            "epochs": 100,
            "batch_size": 32,
        }
    },
)
