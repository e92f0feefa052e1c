"""An epoch on Cora, which is one step on the whole graph, beside PyTorch Geometric's layers of the same sizes.

The peer is written as its examples are: dropout on the features as they are given, its layers with their normalised
edges kept (`cached=True`), the same optimizer. Both learn from the same tensors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cutaway.core.spec import GraphSpec
from cutaway.data.dataset_base import Batch
from cutaway.data.open_data import open_data
from cutaway.data.settings import DataSettings
from cutaway.models.registry import preset

from .pairs import Pair, race

STEPS = 5  # in each timed call
LIMIT = 0.8


class Peer(nn.Module):
    """Two of PyTorch Geometric's layers, with dropout and an activation between."""

    def __init__(self, first: nn.Module, second: nn.Module, dropout: float, activation: Callable[..., Tensor]) -> None:
        super().__init__()
        self.first, self.second, self.dropout, self.activation = first, second, dropout, activation

    def forward(self, x: Tensor, edges: Tensor, rows: Tensor) -> Tensor:
        """Logits of the nodes `rows`."""
        h = F.dropout(x, self.dropout, self.training)
        h = self.activation(self.first(h, edges))
        h = F.dropout(h, self.dropout, self.training)
        answers: Tensor = self.second(h, edges)
        return answers[rows]


def peer_of(name: str, config: Any) -> nn.Module:
    """The peer of a preset, in the same sizes."""
    from torch_geometric.nn import GATConv, GCNConv

    width, classes, dropout = config.in_features, config.num_classes, config.dropout
    if name == "gcn":
        layers = [
            GCNConv(i, o, cached=True, bias=config.bias)
            for i, o in ((width, config.hidden_dim), (config.hidden_dim, classes))
        ]
        return Peer(*layers, dropout, F.relu)
    first = GATConv(width, config.hidden_dim, config.heads, dropout=dropout)
    second = GATConv(config.heads * config.hidden_dim, classes, config.out_heads, concat=False, dropout=dropout)
    return Peer(first, second, dropout, F.elu)


def epoch(model: nn.Module, batch: Batch) -> Callable[[], object]:
    """STEPS steps on the whole graph, each time it is called."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, fused=True)
    inputs, target = batch

    def run() -> None:
        model.train()
        for _ in range(STEPS):
            optimizer.zero_grad()
            F.cross_entropy(model(*inputs), target).backward()
            optimizer.step()

    return run


def sides(name: str) -> tuple[Callable[[], object], Callable[[], object]]:
    """Our epoch of a preset and the peer's, each with a model of its own."""
    data = open_data("cora", DataSettings())
    assert isinstance(data.spec, GraphSpec)
    split = data.splits["train"]
    (batch,) = split.batches([torch.arange(len(split))])
    found = preset(name)
    config = found.configure(data.spec)
    torch.manual_seed(0)
    return epoch(found.build(config), batch), epoch(peer_of(name, config), batch)


def rows() -> list[tuple[Pair, float]]:
    """Every case with the most that its ratio may be."""
    return [(race(f"graphs: {name} epoch on Cora", *sides(name)), LIMIT) for name in ("gcn", "gat")]
