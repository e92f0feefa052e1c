"""The graph auto-encoder: a graph convolutional network computes node embeddings, from which links are predicted.

After T. N. Kipf, M. Welling, Variational graph auto-encoders, 2016 (NIPS workshop on Bayesian deep learning), where it
is the model without a variational part. <https://arxiv.org/abs/1611.07308>

    Â = σ( Z Zᵀ ),   Z = GCN(X, A)                                                            (section 2)
    GCN(X, A) = Ã ReLU( Ã X W^(0) ) W^(1),   Ã = D^−½ A D^−½, A with every node's loop

The target is the graph itself: A_ij is 1 if i and j are linked, else 0. Messages travel along the training edges only;
the links to be predicted are not among them.

Shapes: x (V, F) and edge_index (2, E); layer 1 (V, hidden), ReLU; layer 2 the embeddings Z (V, dim), with no ReLU; the
decoder gives the logits of the pairs `rows` (n, 2), (n, 1). The convolutions are those of `gcn.py`.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from itertools import pairwise

from torch import Tensor, nn

from ..core.errors import ModelError
from ..core.spec import GraphSpec, Links
from ..nn.graphs import DECODERS, decode_links, index_nodes, link_decoder
from .base import GraphModel, validate_node_features
from .card import Card, Divergence, Published, Result
from .config import ValidatedConfig, choice, fraction, positive
from .gcn import GCNConv


@dataclass(frozen=True)
class Config(ValidatedConfig):
    """Configuration of the network."""

    in_features: int = positive(1433)  # F, number of features of a node
    hidden_dim: int = positive(32)  # dimension of a node between layers
    dim: int = positive(16)  # dimension of an embedding
    layers: int = positive(2)  # number of layers, and of hops that a node sees
    dropout: float = fraction(0.0)  # dropout rate of each layer's input
    decoder: str = choice("dot", DECODERS[1:])  # link decoder: dot or bilinear

    @classmethod
    def for_spec(cls, preset: Config, spec: GraphSpec) -> Config:
        """Return the preset with the features of `spec`. Raises ModelError for data whose target is not links."""
        if not isinstance(spec.target, Links):
            raise ModelError(f"gae predicts the links of a graph, not {spec.target.column}: set links=true.")
        return dataclasses.replace(preset, in_features=spec.features)


class GAE(GraphModel):
    """Nodes (V, F) and edges (2, E) to logits of links (n, 1), or to embeddings (V, dim)."""

    targets = (Links,)

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        widths = (config.in_features, *[config.hidden_dim] * (config.layers - 1), config.dim)
        self.layers = nn.ModuleList(GCNConv(i, o, False, config.dropout) for i, o in pairwise(widths))
        self.head = link_decoder(config.decoder, config.dim)

    def features(self, x: Tensor, edge_index: Tensor, rows: Tensor | None = None) -> Tensor:
        """Return the embeddings of the nodes `rows` (all without them), (n, dim), or of both ends of pairs, (n, 2,
        dim).

        """
        validate_node_features("gae", x, self.config.in_features)
        for layer in self.layers[:-1]:
            x = layer(x, edge_index).relu()
        return index_nodes(self.layers[-1](x, edge_index), rows)

    def forward(self, x: Tensor, edge_index: Tensor, rows: Tensor | None = None, batch: Tensor | None = None) -> Tensor:
        """Return the logits (n, 1) of the pairs of nodes `rows` (n, 2), or the embeddings of nodes (n,).

        Without `rows` the embeddings of all nodes are returned. `batch` is accepted for consistency with graph-level
        networks. Raises ModelError if nodes or edges have other shapes.
        """
        del batch
        return decode_links(self.features(x, edge_index), rows, self.head)


Model = GAE

# Features are those of Cora; a data set sets its own.
PRESETS = {"gae": Config()}

CARD = Card(
    title="Variational graph auto-encoders",
    authors="T. N. Kipf, M. Welling",
    year=2016,
    link="https://arxiv.org/abs/1611.07308",
    family="graph",
    equation="Â = σ(Z Zᵀ), Z = Ã ReLU(Ã X W₀) W₁",
    oracle="torch-geometric's GAE with GCNConv",
    published={
        "gae": Published(46_368, None, (2708, 1433), "computed from the paper's sizes, 32 and 16 values, on Cora")
    },
    divergences=(
        Divergence(
            "negative pairs",
            paper="all of them, with a larger weight of links in the loss; sampling is mentioned as an alternative",
            here="one sampled non-edge per edge, resampled in every epoch: the same weights in expectation",
            common="the same in PyTorch Geometric, which samples both directions of a pair",
        ),
        Divergence(
            "self-loops as targets",
            paper="the diagonal of A is 1 for messages; not stated for the loss",
            here="a node and itself are not a pair",
        ),
        Divergence(
            "weights that are kept",
            paper="those after 200 iterations",
            here="those of the epoch with the best validation AUC, of 200",
        ),
        Divergence("variational part", paper="VGAE and GAE", here="GAE"),
        Divergence("decoder", paper="the dot product", here="the same; model.decoder=bilinear learns a matrix"),
    ),
    results={
        "gae": (
            Result("Cora", {"AUC": 91.0, "average precision": 92.0}, "links, mean of 10 runs", "the paper, table 1"),
        ),
    },
    settings={
        "gae": {
            "optimizer": "adam",
            "lr": 0.01,
            "weight_decay": 0.0,
            "schedule": "constant",
            "epochs": 200,
            "batch_size": 0,
            "links": True,
        }
    },
)
