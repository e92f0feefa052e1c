"""Oracles of the graph networks: PyTorch Geometric's layers, which gather and scatter where ours multiply.

These modules draw dropout themselves, in the order of our layers (an edge list sorted by target, head by head), so that
training mode can be compared too. PyTorch Geometric applies it.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from itertools import pairwise
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from ..models import gae, gat, gcn, gin, gine, graphconv, graphsage, mpnn
from . import Oracle, OracleMissing, changed

NODES, EDGES, GRAPHS = 23, 60, 4
READS = {"mean": "global_mean_pool", "max": "global_max_pool", "sum": "global_add_pool"}


def _library() -> ModuleType:
    """Import PyTorch Geometric's layers. Raises OracleMissing if it is not installed."""
    try:
        from torch_geometric import nn as layers
    except ImportError as error:
        raise OracleMissing(f"torch-geometric cannot be imported here ({error}).") from error
    library: ModuleType = layers
    return library


def draw_graphs(
    features: int, edge_features: int = 0, pairs: bool = False
) -> Callable[[torch.Generator], tuple[Tensor, ...]]:
    """Return a function that draws a batch of directed graphs with edge features.

    Graphs have repeated edges, self-loops (one twice) and nodes without edges. Requested rows repeat; with `pairs` they
    are two nodes each. The nodes of graphs are interleaved in the batch, and some edge features are equal.
    """

    def draw(generator: torch.Generator) -> tuple[Tensor, ...]:
        x = torch.randn(NODES, features, generator=generator, dtype=torch.float64)
        drawn = torch.randint(NODES - 3, (2, EDGES), generator=generator)  # the last three nodes have no edges
        edges = torch.cat([drawn, drawn[:, :5], torch.tensor([[2, 2, 7], [2, 2, 7]])], 1)
        rows = torch.randint(NODES, (11, 2) if pairs else (11,), generator=generator)
        batch = torch.cat([torch.arange(GRAPHS), torch.randint(GRAPHS, (NODES - GRAPHS,), generator=generator)])
        if not edge_features:
            return x, edges, rows, batch
        kinds = torch.randn(9, edge_features, generator=generator, dtype=torch.float64)
        return x, edges, rows, batch, kinds[torch.randint(9, (edges.shape[1],), generator=generator)]

    return draw


def _dropout(x: Tensor, p: float, training: bool) -> Tensor:
    """Apply inverted dropout with its own mask."""
    if not training or not p:
        return x
    return torch.where(torch.rand_like(x) < p, torch.zeros_like(x), x / (1 - p))


class _Net(nn.Module):
    """Layers in sequence with the readout of whole graphs, as in PyTorch Geometric's examples."""

    def __init__(self, convs: list[nn.Module], head: nn.Module | None, config: Any, nonlinear: str) -> None:
        super().__init__()
        self.convs = nn.ModuleList(convs)
        self.head, self.config, self.nonlinear = head, config, getattr(nn.functional, nonlinear)
        bilinear = getattr(config, "decoder", "none") == "bilinear"
        width: Any = getattr(convs[-1], "out_channels", 0)
        self.bilinear = nn.Linear(width, width, bias=False) if bilinear else None

    def forward(self, x: Tensor, edges: Tensor, rows: Tensor, batch: Tensor) -> Tensor:
        """Return the logits of the nodes `rows`, of each graph, or of pairs of nodes."""
        for i, conv in enumerate(self.convs):
            x = self.convolve(conv, x, edges)
            if self.head is not None or i + 1 < len(self.convs):
                x = self.nonlinear(x)
        if self.head is None:
            return self.scored(x[rows])
        read = getattr(_library(), READS[self.config.pooling])
        answers: Tensor = self.head(_dropout(read(x, batch), self.config.dropout, self.training))
        return answers

    def scored(self, answers: Tensor) -> Tensor:
        """Return the outputs, or for both ends of pairs (n, 2, d) the logits of links (n, 1)."""
        if getattr(self.config, "decoder", "none") == "none":
            return answers
        ends = answers.unbind(1)
        if self.bilinear is None:  # its decoder takes embeddings and pairs of rows and returns logits (n,)
            decode = importlib.import_module("torch_geometric.nn.models.autoencoder").InnerProductDecoder()
            pairs = torch.arange(2 * len(answers)).view(2, -1)
            logits: Tensor = decode(torch.cat(ends), pairs, sigmoid=False)
            return logits[:, None]
        a, b = ends
        both: Tensor = (self.bilinear(a) * b + self.bilinear(b) * a) / 2
        return both.sum(1, keepdim=True)

    def convolve(self, conv: nn.Module, x: Tensor, edges: Tensor) -> Tensor:
        """Apply one layer: dropout on its input, then the convolution."""
        y: Tensor = conv(_dropout(x, self.config.dropout, self.training), edges)
        return y


class _GraphConvNet(_Net):
    def convolve(self, conv: nn.Module, x: Tensor, edges: Tensor) -> Tensor:
        """Apply one layer. Only the output layer has dropout on its input."""
        last = self.head is None and conv is self.convs[-1]
        y: Tensor = conv(_dropout(x, self.config.dropout, self.training and last), edges)
        return y


class _SAGENet(_Net):
    """SAGEConv with ReLU and normalization to unit length, as in the paper.

    The last layer is plain if links are learned.
    """

    def forward(self, x: Tensor, edges: Tensor, rows: Tensor, batch: Tensor) -> Tensor:
        """Return the logits of the nodes `rows`, of each graph, or of pairs of nodes."""
        for i, conv in enumerate(self.convs):
            x = conv(x, edges)
            if self.head is not None or i + 1 < len(self.convs):
                x = nn.functional.normalize(x.relu(), dim=1)
        if self.head is None:
            return self.scored(x[rows])
        read = getattr(_library(), READS[self.config.pooling])
        seen = read(x, batch) if self.config.graph_level else x[rows]
        answers: Tensor = self.head(_dropout(seen, self.config.dropout, self.training))
        return answers


class _GATNet(_Net):
    """Attention over an edge list that has each node's self-loop once, node by node."""

    def convolve(self, conv: Any, x: Tensor, edges: Tensor) -> Tensor:
        """Apply one layer, with dropout on the input, on the transformed features along edges, and on the attention."""
        p, training = self.config.dropout, self.training
        listed = sorted((i, j) for j, i in edges.t().tolist() if i != j)
        listed = sorted(listed + [(i, i) for i in range(len(x))])
        by_target = torch.tensor(listed).t().flip(0)  # (2, E)
        x = _dropout(x, p, training)
        heads, width = conv.heads, conv.out_channels
        # drawn head by head: (K, V, width) and (K, E)
        of_features = _dropout(x.new_ones(heads, len(x), width), p, training).transpose(0, 1)
        of_attention = _dropout(x.new_ones(heads, len(listed)), p, training).t()

        def travelling(module: Any, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
            edge_index, size, given = inputs
            return edge_index, size, given | {"x": tuple(one * of_features for one in given["x"])}

        def attending(module: Any, inputs: tuple[Any, ...], attention: Tensor) -> Tensor:
            return attention * of_attention

        handles = [
            conv.register_propagate_forward_pre_hook(travelling),
            conv.register_edge_update_forward_hook(attending),
        ]
        try:
            y: Tensor = conv(x, by_target)
        finally:
            for handle in handles:
                handle.remove()
        return y


class _GINNet(nn.Module):
    """GINConv with MLPs, each followed by BatchNorm.

    For whole graphs, linear layers act on the node sums of each layer, as in the authors' release.
    """

    def __init__(self, config: gin.Config) -> None:
        super().__init__()
        layers, hidden = _library(), config.hidden_dim
        widths = [config.in_features, *[hidden] * config.layers]
        self.convs = nn.ModuleList(
            layers.GINConv(
                nn.Sequential(nn.Linear(i, o, False), layers.BatchNorm(o), nn.ReLU(), nn.Linear(o, o, False)),
                train_eps=config.train_eps,
            )
            for i, o in pairwise(widths)
        )
        self.norms = nn.ModuleList(layers.BatchNorm(width) for width in widths[1:])
        self.head = nn.Linear(sum(widths) if config.graph_level else hidden, config.num_classes)
        self.config = config

    def forward(self, x: Tensor, edges: Tensor, rows: Tensor, batch: Tensor) -> Tensor:
        """Return the logits of the nodes `rows`, or of each graph."""
        read = getattr(_library(), READS[self.config.pooling])
        parts = [read(x, batch)]
        for conv, norm in zip(self.convs, self.norms):
            x = torch.relu(norm(conv(x, edges)))
            parts.append(read(x, batch))
        h = torch.cat(parts, 1) if self.config.graph_level else x[rows]
        answers: Tensor = self.head(_dropout(h, self.config.dropout, self.training))
        return answers


class _GINENet(nn.Module):
    """GINEConv on embedded nodes, each with an MLP and BatchNorm."""

    def __init__(self, config: gine.Config) -> None:
        super().__init__()
        layers, d = _library(), config.hidden_dim
        self.embed = nn.Linear(config.in_features, d)
        self.convs = nn.ModuleList(
            layers.GINEConv(
                nn.Sequential(nn.Linear(d, 2 * d), nn.ReLU(), nn.Linear(2 * d, d)),
                train_eps=config.train_eps,
                edge_dim=config.edge_features or None,
            )
            for _ in range(config.layers)
        )
        self.norms = nn.ModuleList(layers.BatchNorm(d) for _ in range(config.layers))
        self.head = nn.Linear(d, config.num_classes)
        self.config = config

    def forward(self, x: Tensor, edges: Tensor, rows: Tensor, batch: Tensor, edge_attr: Tensor | None = None) -> Tensor:
        """Return the logits of the nodes `rows`, or of each graph. Missing edge features count as zeros."""
        h = self.embed(x)
        if edge_attr is None:
            edge_attr = h.new_zeros(edges.shape[1], self.config.hidden_dim)
        for k, (conv, norm) in enumerate(zip(self.convs, self.norms)):
            h = norm(conv(h, edges, edge_attr))
            h = _dropout(torch.relu(h) if k + 1 < len(self.convs) else h, self.config.dropout, self.training)
        read = getattr(_library(), READS[self.config.pooling])
        answers: Tensor = self.head(read(h, batch) if self.config.graph_level else h[rows])
        return answers


class _MPNNNet(nn.Module):
    """NNConv without a root matrix, torch's GRU, and Set2Set, as in PyTorch Geometric's example on QM9.

    Without edge features it is GatedGraphConv, which has one matrix and the GRU.
    """

    def __init__(self, config: mpnn.Config) -> None:
        super().__init__()
        layers, d = _library(), config.hidden_dim
        self.embed = nn.Linear(config.in_features, d)
        if config.edge_features:
            parts = (nn.Linear(config.edge_features, config.edge_dim), nn.ReLU(), nn.Linear(config.edge_dim, d * d))
            self.conv = layers.NNConv(d, d, nn.Sequential(*parts), aggr="add", root_weight=False, bias=False)
            self.gru: nn.GRU | None = nn.GRU(d, d)
        else:
            self.conv, self.gru = layers.GatedGraphConv(d, 1), None
        reads = config.graph_level and config.pooling == "set2set"
        self.read = layers.Set2Set(d, processing_steps=config.set2set_steps) if reads else None
        self.fc = nn.Linear(2 * d if reads else d, d) if config.graph_level else None
        self.head = nn.Linear(d, config.num_classes)
        self.config = config

    def forward(self, x: Tensor, edges: Tensor, rows: Tensor, batch: Tensor, edge_attr: Tensor | None = None) -> Tensor:
        """Return the logits of the nodes `rows`, or of each graph."""
        h = self.embed(x).relu()
        for _ in range(self.config.layers):
            h = (
                self.conv(h, edges)
                if self.gru is None
                else self.gru(self.conv(h, edges, edge_attr)[None], h[None])[0][0]
            )
        if self.fc is None:
            return self.answers(h[rows])
        order = batch.argsort(stable=True)  # Set2Set needs the nodes of a graph together
        h, batch = h[order], batch[order]
        pooled = self.read(h, batch) if self.read else getattr(_library(), READS[self.config.pooling])(h, batch)
        return self.answers(self.fc(pooled).relu())

    def answers(self, h: Tensor) -> Tensor:
        """Apply the head."""
        logits: Tensor = self.head(h)
        return logits


def _head(config: Any, width: int) -> nn.Module | None:
    return nn.Linear(width, config.num_classes) if config.graph_level else None


def _head_keys(config: Any) -> dict[str, str]:
    return {f"head.{key}": f"head.{key}" for key in ("weight", "bias")} if config.graph_level else {}


def _decoder_keys(config: Any) -> dict[str, str]:
    return {"head.weight": "bilinear.weight"} if config.decoder == "bilinear" else {}


def geometric_gcn(config: gcn.Config) -> Oracle:
    """Build GCNConv, which adds missing self-loops and normalizes."""
    links = config.decoder != "none"
    last = config.hidden_dim if config.graph_level or links else config.num_classes
    widths = [config.in_features, *[config.hidden_dim] * (config.layers - 1), last]
    convs = [_library().GCNConv(i, o, bias=config.bias) for i, o in pairwise(widths)]
    keys = ["lin.weight", *(["bias"] if config.bias else [])]
    key_map = {f"layers.{n}.{key}": f"convs.{n}.{key}" for n in range(config.layers) for key in keys}
    net = _Net(convs, _head(config, config.hidden_dim), config, "relu")
    return Oracle(
        net, draw_graphs(config.in_features, pairs=links), key_map | _head_keys(config) | _decoder_keys(config)
    )


def geometric_gae(config: gae.Config) -> Oracle:
    """Build GCNConv and the decoder of GAE."""
    widths = [config.in_features, *[config.hidden_dim] * (config.layers - 1), config.dim]
    convs = [_library().GCNConv(i, o, bias=False) for i, o in pairwise(widths)]
    key_map = {f"layers.{n}.lin.weight": f"convs.{n}.lin.weight" for n in range(config.layers)}
    return Oracle(
        _Net(convs, None, config, "relu"), draw_graphs(config.in_features, pairs=True), key_map | _decoder_keys(config)
    )


def geometric_graphsage(config: graphsage.Config) -> Oracle:
    """Build SAGEConv with mean aggregation."""
    links = config.decoder != "none"
    widths = [config.in_features, *[config.hidden_dim] * config.layers]
    convs = [_library().SAGEConv(i, o) for i, o in pairwise(widths)]
    keys = {"lin_l.weight": "lin_l.weight", "lin_r.weight": "lin_r.weight", "bias": "lin_l.bias"}
    key_map = {f"layers.{n}.{ours}": f"convs.{n}.{its}" for n in range(config.layers) for ours, its in keys.items()}
    head = None if links else nn.Linear(config.hidden_dim, config.num_classes)
    rest = _decoder_keys(config) if links else {f"head.{key}": f"head.{key}" for key in ("weight", "bias")}
    return Oracle(_SAGENet(convs, head, config, "relu"), draw_graphs(config.in_features, pairs=links), key_map | rest)


def geometric_gat(config: gat.Config) -> Oracle:
    """Build GATConv for edges that include self-loops."""
    other = changed(config, gat.PRESETS["gat"], negative_slope="negative_slope")
    make = functools.partial(_library().GATConv, add_self_loops=False, **other)
    convs, width = [], config.in_features
    for _ in range(config.layers - (not config.graph_level)):
        convs.append(make(width, config.hidden_dim, heads=config.heads))
        width = config.hidden_dim * config.heads
    links = config.decoder != "none"
    if not config.graph_level:
        convs.append(make(width, width if links else config.num_classes, heads=config.out_heads, concat=False))
    keys = ("lin.weight", "att_src", "att_dst", "bias")
    key_map = {f"layers.{n}.{key}": f"convs.{n}.{key}" for n in range(config.layers) for key in keys}
    net = _GATNet(convs, _head(config, width), config, "elu")
    return Oracle(
        net, draw_graphs(config.in_features, pairs=links), key_map | _head_keys(config) | _decoder_keys(config)
    )


def geometric_graphconv(config: graphconv.Config) -> Oracle:
    """Build GraphConv, which sums over the edges first and then transforms."""
    last = config.hidden_dim if config.graph_level else config.num_classes
    widths = [config.in_features, *[config.hidden_dim] * (config.layers - 1), last]
    convs = [_library().GraphConv(i, o, bias=config.bias) for i, o in pairwise(widths)]
    keys = {"lin_rel.weight": "lin_rel.weight", "lin_root.weight": "lin_root.weight"}
    keys |= {"bias": "lin_rel.bias"} if config.bias else {}
    key_map = {f"layers.{n}.{ours}": f"convs.{n}.{its}" for n in range(config.layers) for ours, its in keys.items()}
    net = _GraphConvNet(convs, _head(config, config.hidden_dim), config, "relu")
    return Oracle(net, draw_graphs(config.in_features), key_map | _head_keys(config))


def geometric_gin(config: gin.Config) -> Oracle:
    """Build GINConv around an MLP of modules."""
    net = _GINNet(config)
    parts = {"fc1": "nn.0", "norm": "nn.1.module", "fc2": "nn.3"}
    modules = {f"layers.{n}.{ours}": f"convs.{n}.{its}" for n in range(config.layers) for ours, its in parts.items()}
    modules |= {f"norms.{n}": f"norms.{n}.module" for n in range(config.layers)}
    key_map = {f"layers.{n}.eps": f"convs.{n}.eps" for n in range(config.layers)}
    for ours, its in modules.items():
        kept = ("bias", "running_mean", "running_var", "num_batches_tracked") if "norm" in ours else ()
        key_map |= {f"{ours}.{key}": f"{its}.{key}" for key in ("weight", *kept)}
    key_map |= {"head.weight": "head.weight", "head.bias": "head.bias"}
    return Oracle(net, draw_graphs(config.in_features), key_map)


def geometric_gine(config: gine.Config) -> Oracle:
    """Build GINEConv around an MLP of modules."""
    net = _GINENet(config)
    parts = {"fc1": "nn.0", "fc2": "nn.2"} | ({"lin": "lin"} if config.edge_features else {})
    modules = {f"layers.{n}.{ours}": f"convs.{n}.{its}" for n in range(config.layers) for ours, its in parts.items()}
    modules |= {"embed": "embed", "head": "head"}
    key_map = {f"{ours}.{key}": f"{its}.{key}" for ours, its in modules.items() for key in ("weight", "bias")}
    for n in range(config.layers):
        key_map[f"layers.{n}.eps"] = f"convs.{n}.eps"
        for key in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked"):
            key_map[f"norms.{n}.{key}"] = f"norms.{n}.module.{key}"
    return Oracle(net, draw_graphs(config.in_features, config.edge_features), key_map)


def geometric_mpnn(config: mpnn.Config) -> Oracle:
    """Build NNConv, or GatedGraphConv without edge features."""
    gates = [f"{kind}_{of}" for kind in ("weight", "bias") for of in ("ih", "hh")]
    modules = {"embed": "embed", "head": "head"} | ({"fc": "fc"} if config.graph_level else {})
    rest = {f"{ours}.{key}": f"{its}.{key}" for ours, its in modules.items() for key in ("weight", "bias")}
    if config.graph_level and config.pooling == "set2set":
        rest |= {f"read.lstm.{key}": f"read.lstm.{key}_l0" for key in gates}
    if not config.edge_features:
        own = {"step.matrix": "conv.weight"} | {f"step.gru.{key}": f"conv.rnn.{key}" for key in gates}
    else:
        own = {f"step.gru.{key}": f"gru.{key}_l0" for key in gates}
        for ours, its in (("fc1", "nn.0"), ("fc2", "nn.2")):
            own |= {f"step.network.{ours}.{key}": f"conv.{its}.{key}" for key in ("weight", "bias")}
    return Oracle(_MPNNNet(config), draw_graphs(config.in_features, config.edge_features), rest | own)


ORACLES = {
    "gae": geometric_gae,
    "gcn": geometric_gcn,
    "gat": geometric_gat,
    "graphconv": geometric_graphconv,
    "graphsage": geometric_graphsage,
    "gin": geometric_gin,
    "gin-eps": geometric_gin,
    "gine": geometric_gine,
    "mpnn": geometric_mpnn,
}
