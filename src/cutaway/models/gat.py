"""Graph attention: each node weights its neighbours by the features of both.

After P. Veličković, G. Cucurull, A. Casanova, A. Romero, P. Liò, Y. Bengio, Graph attention networks, 2017 (ICLR 2018).
<https://arxiv.org/abs/1710.10903>

    e_ij = LeakyReLU( aᵀ [W h_i ‖ W h_j] ),   α_ij = exp(e_ij) / Σ_{k → i} exp(e_ik)          (equations 1 to 3)
    h'_i = ‖_k σ( Σ_{j → i} α_ij^k W^k h_j )        between layers: heads concatenated        (equation 5)
    h'_i = σ( 1/K Σ_k Σ_{j → i} α_ij^k W^k h_j )    in the last layer: heads averaged         (equation 6)

aᵀ[W h_i ‖ W h_j] is a sum of two numbers, one for each node, so that the scores of E edges cost V products and E sums.
The neighbours of a node are the sources of its incoming edges and the node itself, exactly once, even if the data lists
its self-loop several times or not at all; other edges count once per listing.

Shapes: x (V, F) and edge_index (2, E); layer 1: 8 heads of 8, (V, 64), ELU; layer 2: one head, (V, classes), logits of
the nodes `rows` (n, classes). All heads are one product with a sparse matrix (K·V, K·V) of K blocks. Dropout is applied
to the input of each layer, to W h before the sum, and to α. With `graph_level`, examples are whole graphs in one batch:
the heads of every layer are concatenated, the nodes of each graph are pooled, and a linear head returns (n, classes).
With a `decoder`, layer 2 returns embeddings (V, heads · hidden), and the decoder the logits of links between the pairs
`rows` (n, 2), (n, 1).

The parts have the names and shapes of PyTorch Geometric's GATConv, whose weights load unchanged.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..core.spec import GraphSpec
from ..nn.graphs import (
    DECODERS,
    READS,
    CSRPattern,
    MessagePassing,
    NodeLinear,
    attend_in_groups,
    build_adjacency,
    dropout,
    edge_scores,
    edge_softmax,
    spmm,
)
from .base import GraphModel, validate_node_features
from .card import Card, Divergence, Published, Result
from .config import (
    LINK_TARGETS,
    ValidatedConfig,
    choice,
    fit_graph_model,
    fraction,
    min_value,
    positive,
    validate_heads,
)


@dataclass(frozen=True)
class Config(ValidatedConfig):
    """Configuration of the network."""

    in_features: int = positive(1433)  # F, number of features of a node
    hidden_dim: int = positive(8)  # dimension of a node in each head, between layers
    heads: int = positive(8)  # attention heads between layers, concatenated
    out_heads: int = positive(1)  # attention heads of the last layer, averaged; unused with graph_level
    layers: int = positive(2)  # number of layers, and of hops a node receives messages from
    num_classes: int = positive(7)  # size of the output: number of classes, or 1 for a number
    dropout: float = fraction(0.6)  # dropout rate of inputs, transformed features and attention weights
    negative_slope: float = min_value(0, 0.2)  # of LeakyReLU below 0
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
        return fit_graph_model("gat", preset, spec)


class GATConv(MessagePassing):
    """Attention of `heads` heads: (V, in) to (V, heads · width), or to their mean (V, width)."""

    def __init__(self, in_features: int, width: int, heads: int, concat: bool, config: Config) -> None:
        super().__init__()
        self.heads, self.width, self.concat = heads, width, concat
        self.dropout, self.slope = config.dropout, config.negative_slope
        self.lin = NodeLinear(in_features, heads * width, bias=False, dropout=config.dropout)
        self.att_src = nn.Parameter(torch.empty(1, heads, width))  # the half of a for W h_j
        self.att_dst = nn.Parameter(torch.empty(1, heads, width))  # the half of a for W h_i
        self.bias = nn.Parameter(torch.zeros(heads * width if concat else width))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialize each head with Glorot's uniform weights."""
        for weight in self.lin.weight.view(self.heads, self.width, -1):
            nn.init.xavier_uniform_(weight)
        for half in (self.att_src, self.att_dst):
            bound = (6 / (self.width + 1)) ** 0.5  # a maps `width` values to one
            nn.init.uniform_(half, -bound, bound)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Transform the nodes, and sum the neighbours of each, weighted by attention."""
        h = self.lin(x).view(-1, self.heads, self.width).transpose(0, 1)  # W h of each head: (K, V, width)
        edges = build_adjacency(edge_index, x.shape[0], loops=True)
        halves = torch.cat([self.att_dst, self.att_src]).permute(1, 2, 0)  # (K, width, 2)
        scores = h @ halves  # the parts of aᵀ [W h_i ‖ W h_j] by target and by source: (K, V, 2)
        h = dropout(h, self.dropout, self.training)
        y = attend_in_groups(self.attend, scores, h, edges)  # Σ_j α_ij W h_j: (K, V, width)
        y = y.transpose(0, 1).flatten(1) if self.concat else y.mean(0)  # (V, K · width) or (V, width)
        return y + self.bias

    def attend(self, scores: Tensor, h: Tensor, edges: CSRPattern, first: int) -> Tensor:
        """Return Σ_j α_ij h_j of k heads, from `first` on: scores (k, V, 2), h (k, V, width) to (k, V, width)."""
        blocks = edges.blocks(len(h))  # one matrix (k·V, k·V) for all heads
        by_target, by_source = scores.flatten(0, 1).unbind(1)  # (k·V,) each
        e = F.leaky_relu(edge_scores(by_target, by_source, blocks), self.slope)  # (k·E,)
        alpha = edge_softmax(e, blocks)  # over the edges that lead to a node: (k·E,)
        alpha = self.apply_edge_hook(alpha.view(len(h), -1), edges, first).flatten()
        alpha = dropout(alpha, self.dropout, self.training)
        return spmm(alpha, blocks, h.flatten(0, 1)).view(h.shape)


class GAT(GraphModel):
    """Nodes (V, F) and edges (2, E) to logits: of nodes (n, classes), or of graphs (n, classes)."""

    targets = LINK_TARGETS

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        between = config.heads * config.hidden_dim
        inner = config.layers if config.graph_level else config.layers - 1
        widths = [config.in_features, *[between] * inner]
        self.layers = nn.ModuleList(
            GATConv(width, config.hidden_dim, config.heads, True, config) for width in widths[:inner]
        )
        if not config.graph_level:
            last = config.num_classes if config.decoder == "none" else between
            self.layers.append(GATConv(widths[-1], last, config.out_heads, False, config))
        self.build_head(between)

    def forward(self, x: Tensor, edge_index: Tensor, rows: Tensor | None = None, batch: Tensor | None = None) -> Tensor:
        """Return the logits of the nodes `rows` (all by default), or of each graph in `batch` (V,).

        With a decoder return the logits of pairs of nodes (n, 2), (n, 1), or the embeddings of nodes. Raises ModelError
        if nodes or edges have other shapes.
        """
        h = self.hidden(x, edge_index)  # (V, heads · hidden)
        if not self.config.graph_level:
            h = self.layers[-1](h, edge_index)  # (V, classes), or embeddings (V, heads · hidden) for the decoder
        return self.answer(h, rows, batch)

    def hidden(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Return the nodes after all layers with an ELU, (V, heads · hidden): of nodes and links all but the last."""
        validate_node_features("gat", x, self.config.in_features)
        for layer in self.layers if self.config.graph_level else self.layers[:-1]:
            x = F.elu(layer(x, edge_index))
        return x

    def features(
        self, x: Tensor, edge_index: Tensor, rows: Tensor | None = None, batch: Tensor | None = None
    ) -> Tensor:
        """Return the input of the last layer: the nodes `rows`, or each graph, pooled, (n, heads · hidden).

        With a decoder it is the embeddings of both ends of pairs (n, 2), (n, 2, hidden).
        """
        h = self.hidden(x, edge_index)
        return self.read_out(self.layers[-1](h, edge_index) if self.decodes_links else h, rows, batch)


Model = GAT

# Features and classes are those of Cora; a data set sets its own.
PRESETS = {"gat": Config()}

CARD = Card(
    title="Graph attention networks",
    authors="P. Veličković, G. Cucurull, A. Casanova, A. Romero, P. Liò, Y. Bengio",
    year=2017,
    link="https://arxiv.org/abs/1710.10903",
    family="graph",
    equation="α_ij = softmax_j LeakyReLU(aᵀ[W h_i ‖ W h_j]), h'_i = ‖_k σ(Σ_j α_ij^k W^k h_j)",
    oracle="torch-geometric's GATConv",
    published={
        "gat": Published(
            92_373, None, (2708, 1433), "computed from the paper's sizes on Cora: no bias within attention"
        )
    },
    divergences=(
        Divergence(
            "bias within attention",
            paper="none",
            here="none",
            common="two for each head in the authors' release, 18 parameters on Cora; none in PyTorch Geometric",
        ),
        Divergence(
            "dropout",
            paper="on the inputs of both layers and on the attention",
            here="also on W h before the sum, as in the authors' release",
            common="not on W h (PyTorch Geometric)",
        ),
        Divergence(
            "initialization",
            paper="Glorot",
            here="Glorot for each head separately",
            common="Glorot for all heads together (PyTorch Geometric)",
        ),
        Divergence(
            "early stopping",
            paper="validation loss and accuracy, with a patience of 100 epochs",
            here="the monitored validation metric of the task, with the same patience",
        ),
        Divergence("graph-level outputs", paper="none", here="mean, max or sum pooling of nodes, and a linear head"),
    ),
    results={
        "gat": (
            Result("Cora", {"accuracy": 83.0}, "fixed split, mean of 100 runs", "the paper, table 2"),
            Result("Citeseer", {"accuracy": 72.5}, "fixed split, mean of 100 runs", "the paper, table 2"),
            Result("Pubmed", {"accuracy": 79.0}, "fixed split, mean of 100 runs", "the paper, table 2"),
        ),
    },
    settings={
        "gat": {
            "optimizer": "adam",
            "lr": 0.005,
            "weight_decay": 5e-4,
            "schedule": "constant",
            "epochs": 1000,
            "patience": 100,
            "batch_size": 0,
        }
    },
)
