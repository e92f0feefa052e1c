"""Message passing on a graph: the messages of each layer, the reach of a node, and over-smoothing.

x^(l) are the nodes after layer l, and x^(0) are the inputs. Similarity is the mean cosine of pairs, and the Dirichlet
energy relative to the size of the nodes: 0 if linked nodes are equal, 1 if they are unrelated, 2 if they are opposite.

    Σ_{i→j} ‖x_i − x_j‖² / Σ_{i→j} (‖x_i‖² + ‖x_j‖²)

(T. K. Rusch, M. M. Bronstein, S. Mishra, A survey on oversmoothing in graph neural networks, 2023,
<https://arxiv.org/abs/2303.10993>; as a fraction of size: F. Di Giovanni et al., 2022,
<https://arxiv.org/abs/2206.10991>.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..core.errors import UnknownName
from ..core.spec import Classes
from ..data.graphs.splits import NodeSplit
from ..draw import charts
from ..draw.description import Drawing, View, table
from ..draw.number_format import count, number, percent, plural
from ..inspect.captures import capture
from ..nn.losses import expand_binary_logits
from ..nn.modules import eval_mode
from .json_values import to_lists
from .model_layers import find_message_layers
from .subject import Subject, get_target, graph_index, node_labels, parse_index

SHOWN, LINKS, HEADS = 150, 1500, 8  # most nodes, links and heads that are drawn
NAMED = 40  # most nodes for which all names are shown
TYPES = 20  # most kinds of nodes that are distinguished by colour


@dataclass(frozen=True)
class LayerMessages:
    """The messages of one layer along the edges of the graph."""

    layer: str
    edges: Tensor  # (2, E), with the loops that the layer adds
    weights: Tensor  # (E, heads)
    output: Tensor  # (V, F')


def draw_graph(subject: Subject) -> View:
    """Return the graph with its messages, the reach of its nodes, and their similarity after each layer."""
    net, travels = capture_messages(subject)
    node = _central_node(subject, net)
    hops = hop_distances(net, node)
    shown = _select_nodes(net, node, hops)
    similar = [
        node_similarity("input", net.x, net.edges),
        *(node_similarity(t.layer, t.output, net.edges) for t in travels),
    ]
    reached = compute_reach(net, node, hops, depth=len(travels))
    drawings = [
        _graph(subject, net, travels, node, hops, shown),
        _reach(net, node, reached, len(travels)),
        *_similarity_charts(similar),
    ]
    rows = [
        [one.name, one.linked, one.every, one.energy, reached.own[min(k, len(reached.own) - 1)]]
        for k, one in enumerate(similar)
    ]
    columns = {
        "after": "text",
        "cosine of linked nodes": "number",
        "cosine of all pairs": "number",
        "relative energy": "number",
        f"reach of {net.name(node)}": "fraction",
    }
    return View(
        id="graph",
        title="The graph",
        says="The width of a line is the coefficient of its message; point at a node to see its incoming messages.",
        summary=_summary(net, travels, node, shown, similar, reached),
        table=table(columns, rows),
        drawings=drawings,
    )


def capture_messages(subject: Subject) -> tuple[IndexedGraph, list[LayerMessages]]:
    """Return the selected graph, and the messages of each layer along its edges."""
    x, edges = subject.inputs[:2]
    batch, beside = graph_index(subject.inputs), subject.inputs[4:]  # edge features, if any
    capturing = capture(subject.model, ("messages", "features"), *find_message_layers(subject.model))
    with eval_mode(subject.model), torch.no_grad(), capturing as seen:
        outputs = subject.model(x, edges, None, batch, *beside)
    graphs = int(batch.max()) + 1 if batch is not None and len(batch) else 1
    which = parse_index(subject.options, "example", 0, graphs)
    inside = torch.ones(len(x), dtype=torch.bool) if batch is None else batch == which
    nodes = inside.nonzero()[:, 0]
    place = torch.full((len(x),), -1)
    place[nodes] = torch.arange(len(nodes))

    def within(pairs: Tensor) -> Tensor:
        return inside[pairs[0]] & inside[pairs[1]] if pairs.shape[1] else torch.zeros(0, dtype=torch.bool)

    travels = []
    for name in seen["messages"]:
        pairs = seen["edges"][name]
        own = within(pairs)
        output = seen["features"][name][nodes]
        travels.append(LayerMessages(name, place[pairs[:, own]], seen["messages"][name][own], output))
    if batch is None:
        names, classes = _known(subject, nodes)
    else:
        of_nodes = node_labels(subject)
        names, classes = {i: of_nodes[v] for i, v in enumerate(nodes.tolist())} if of_nodes else {}, None
    classed = isinstance(get_target(subject), Classes) and batch is None
    return (
        IndexedGraph(
            x[nodes],
            place[edges[:, within(edges)].long()],
            nodes,
            names,
            classes,
            expand_binary_logits(outputs).argmax(1) if classed else None,
        ),
        travels,
    )


def _known(subject: Subject, nodes: Tensor) -> tuple[dict[int, str], Tensor | None]:
    """Return names and classes of the nodes, from all splits of the data with the same graph."""
    names: dict[int, str] = {}
    classes = torch.full((len(nodes),), -1)
    parts = list(subject.data.splits.values()) if subject.data is not None else []
    if called := node_labels(subject):  # for link prediction
        return dict(enumerate(called)), None
    for split in (*parts, subject.split):
        if not isinstance(split, NodeSplit) or split.neighbours or len(split.x) != len(nodes):
            continue
        for i, row in enumerate(split.rows.tolist()):
            names[row] = split.name(i)
        if split.target is not None and split.target.dtype == torch.int64 and split.target.ndim == 1:
            classes[split.rows] = split.target
    return names, classes if bool((classes >= 0).any()) else None


def _central_node(subject: Subject, net: IndexedGraph) -> int:
    """Return the selected node, or else the first node of the examples, or else the node with the most edges."""
    asked = subject.options.get("node")
    if asked is not None:
        by_name = {name: node for node, name in net.names.items()}
        if asked in by_name:
            return by_name[asked]
        if asked.strip().isdecimal() and int(asked) < len(net):
            return int(asked)
        raise UnknownName(
            "node", asked, by_name or map(str, range(min(len(net), 1000))), f"The graph has {count(len(net))} nodes."
        )
    rows = subject.inputs[2] if len(subject.inputs) > 2 else torch.empty(0)
    if len(rows) and len(net) == len(subject.inputs[0]):
        return int(rows.flatten()[0])
    return int(torch.bincount(net.edges.flatten(), minlength=len(net)).argmax())


# --- drawing --------------------------------------------------------------------------------------------------


def _select_nodes(net: IndexedGraph, node: int, hops: Tensor) -> list[int]:
    """Return the nodes to draw: all, or those nearest to the central one."""
    near = hop_distances(net, node, undirected=True)
    order = torch.where(near < 0, len(net), near).argsort(stable=True)
    many = min(len(net), SHOWN)
    while many > 2 and links_between(net, order[:many]).shape[1] > LINKS:
        many = int(many * 0.8)
    return order[:many].tolist()


def _graph(
    subject: Subject, net: IndexedGraph, travels: list[LayerMessages], node: int, hops: Tensor, shown: list[int]
) -> Drawing:
    """Return the drawing of the graph: nodes, edges, and the message weights of each layer."""
    place = {v: i for i, v in enumerate(shown)}
    sent = _pair_weights(travels, place)
    pairs = sorted({(min(a, b), max(a, b)) for weights in sent.values() for a, b in weights})
    degree = torch.bincount(net.edges[1], minlength=len(net))
    weights = [
        {"name": name, "values": [[_one(w.get((b, a))), _one(w.get((a, b))) if a != b else None] for a, b in pairs]}
        for name, w in sent.items()
    ]
    nodes = [
        {
            "label": net.name(v),
            "at": at,
            "tip": [f"in-degree {int(degree[v])}", _far(int(hops[v]), net.name(node))],
            "key": str(v),
        }
        for v, at in zip(shown, layout_nodes(pairs, len(shown)))
    ]
    note = f"{count(len(shown))} of {count(len(net))} nodes: the nearest to {net.name(node)}"
    drawing: Drawing = {
        "kind": "graph",
        "title": "Messages along the edges",
        "nodes": nodes,
        "links": [list(pair) for pair in pairs],
        "weights": weights,
        "colours": _colours(subject, net, node, hops, shown),
        "node": place[node],
        "labels": len(shown) <= NAMED,
    }
    return drawing | ({"note": note} if len(shown) < len(net) else {})


def _far(hops: int, middle: str) -> str:
    return "the central node" if hops == 0 else f"{plural(hops, 'hop')} from {middle}" if hops > 0 else "out of reach"


def _pair_weights(travels: list[LayerMessages], place: dict[int, int]) -> dict[str, dict[tuple[int, int], float]]:
    """Return the weight from one shown node to another, by layer and head; duplicate edges are summed."""
    found: dict[str, dict[tuple[int, int], float]] = {}
    for travel in travels:
        where = torch.full((int(travel.edges.max()) + 1 if travel.edges.numel() else 1,), -1)
        for v, i in place.items():
            if v < len(where):
                where[v] = i
        pairs = where[travel.edges]  # (2, E)
        own = (pairs >= 0).all(0)
        heads = travel.weights.shape[1]
        columns = {travel.layer: travel.weights[own].mean(1)}
        if heads > 1:
            columns = {f"{travel.layer}, mean of {heads} heads": travel.weights[own].mean(1)}
            columns |= {f"{travel.layer}, head {k}": travel.weights[own, k] for k in range(min(heads, HEADS))}
        ends = [(int(a), int(b)) for a, b in pairs[:, own].t().tolist()]
        for name, values in columns.items():
            sums = found.setdefault(name, {})
            for end, value in zip(ends, values.tolist()):
                sums[end] = sums.get(end, 0.0) + value
    return found


def _one(value: float | None) -> float | None:
    return None if value is None else to_rounded(torch.tensor(value, dtype=torch.float64))


def _colours(subject: Subject, net: IndexedGraph, node: int, hops: Tensor, shown: list[int]) -> list[dict[str, Any]]:
    """Return the ways to colour the nodes: class, prediction, one-hot feature, and distance."""
    found: list[dict[str, Any]] = []
    target = get_target(subject)
    names = list(target.names) if isinstance(target, Classes) else []
    for title, of in (("class", net.classes), ("prediction", net.predicted)):
        if of is not None and names:
            classes = [int(of[v]) if int(of[v]) >= 0 else None for v in shown]
            found.append({"name": title, "groups": names, "of": classes})
    hot = bool(((net.x == 0) | (net.x == 1)).all()) and bool((net.x.sum(1) == 1).all())
    if not found and hot and 1 < net.x.shape[1] <= TYPES:
        kinds = [f"feature {k}" for k in range(net.x.shape[1])]
        found.append({"name": "feature", "groups": kinds, "of": [int(net.x[v].argmax()) for v in shown]})
    most = max(0, min(HOPS, max(int(hops[v]) for v in shown)))
    groups = [net.name(node), *(plural(hop, "hop") for hop in range(1, most + 1))]
    far = [min(int(hops[v]), most) if int(hops[v]) >= 0 else None for v in shown]
    return [*found, {"name": "hops away", "groups": groups, "of": far, "ordered": True}]


def _reach(net: IndexedGraph, node: int, reached: Reach, depth: int) -> Drawing:
    of_all = f"mean of {count(reached.starts)} nodes" if reached.starts < len(net) else "mean of all nodes"
    series = [
        {"name": name, "points": [[hop, _one(value)] for hop, value in enumerate(values)]}
        for name, values in ((net.name(node), reached.own), (of_all, reached.mean))
    ]
    mark = {"x": depth, "label": f"{plural(depth, 'layer')} of this model"}
    return charts.lines("Fraction of the graph within k hops", "hops k", series, format="fraction", mark=mark)


def _similarity_charts(similar: list[NodeSimilarity]) -> list[Drawing]:
    """Return curves over the layers of the measured quantities."""
    drawings: list[Drawing] = []
    cosines = {"linked nodes": [a.linked for a in similar], "all pairs": [a.every for a in similar]}
    energies = {"": [a.energy for a in similar]}
    for title, curves, zero in (
        ("Mean cosine of nodes after each layer", cosines, False),
        ("Dirichlet energy after each layer, relative", energies, True),
    ):
        known = {name: values for name, values in curves.items() if any(value is not None for value in values)}
        if known:
            series = [
                {"name": name, "points": [[k, v] for k, v in enumerate(values)]} for name, values in known.items()
            ]
            drawings.append(charts.lines(title, "layer", series, zero=zero))
    return drawings


def _summary(
    net: IndexedGraph,
    travels: list[LayerMessages],
    node: int,
    shown: list[int],
    similar: list[NodeSimilarity],
    reached: Reach,
) -> str:
    """Return a summary of the graph, the node's strongest neighbors, its reach and the similarity of nodes."""
    links = links_between(net, torch.arange(len(net)))
    pairs = int((links[0] != links[1]).sum())
    words = [f"{plural(len(net), 'node')} and {plural(pairs, 'link')} between them."]
    if len(shown) < len(net):
        words.append(f"The {count(len(shown))} nearest to {net.name(node)} are drawn.")
    for travel in travels[:1]:
        own = travel.edges[1] == node
        if bool(own.any()):
            weights = travel.weights[own].mean(1)
            k = int(weights.abs().argmax())
            source = int(travel.edges[0][own][k])
            who = "itself" if source == node else net.name(source)
            many = plural(int(own.sum()), "message")
            if len(weights) > 1 and torch.allclose(weights, weights[:1].expand_as(weights)):
                words.append(
                    f"In {travel.layer} all {many} to {net.name(node)} have the coefficient "
                    f"{number(float(weights[0]))}: all are weighted equally."
                )
            else:
                words.append(
                    f"In {travel.layer} the strongest of {many} to {net.name(node)} comes "
                    f"from {who}, with the coefficient {number(float(weights[k]))}."
                )
    depth = len(travels)
    words.append(
        f"After {plural(depth, 'layer')} it reaches {percent(reached.own[depth])} of the graph; the mean over nodes is "
        f"{percent(reached.mean[depth])}."
    )
    first, last = similar[0], similar[-1]
    if first.linked is not None and last.linked is not None:
        words.append(f"The mean cosine of linked nodes goes from {number(first.linked)} to {number(last.linked)}.")
    if first.energy is not None and last.energy is not None:
        words.append(f"Their relative energy goes from {number(first.energy)} to {number(last.energy)}.")
    return " ".join(words)


STARTS = 64  # nodes whose reach is measured
SAMPLED = 50_000  # most edges whose ends are compared
HOPS = 8  # least number of hops, if the graph has as many
MAX_EDGE_VISITS = 20_000_000  # most edges visited when reach is measured


@dataclass(frozen=True)
class IndexedGraph:
    """One graph of a batch, with its nodes numbered from 0."""

    x: Tensor  # (V, F)
    edges: Tensor  # (2, E), as given
    nodes: Tensor  # (V,) their numbers in the batch
    names: dict[int, str]  # names of the nodes that have names
    classes: Tensor | None = None  # (V,) classes, −1 if unknown
    predicted: Tensor | None = None  # (V,)

    def name(self, node: int) -> str:
        """Return the name of a node."""
        return self.names.get(node, f"node {node}")

    def __len__(self) -> int:
        return len(self.x)


def links_between(net: IndexedGraph, nodes: Tensor) -> Tensor:
    """Return the undirected links among those nodes, (2, L), with the smaller number first."""
    inside = torch.zeros(len(net), dtype=torch.bool)
    inside[nodes] = True
    own = net.edges[:, inside[net.edges[0]] & inside[net.edges[1]]]
    pairs: Tensor = own.sort(0).values.unique(dim=1)  # type: ignore[no-untyped-call]
    return pairs


def layout_nodes(pairs: list[tuple[int, int]], nodes: int) -> list[list[float]]:
    """Return the position of each node by a spring layout (T. Fruchterman, E. Reingold, 1991), with a fixed seed."""
    import networkx  # imported here because the import is slow

    net = networkx.Graph()
    net.add_nodes_from(range(nodes))
    net.add_edges_from((a, b) for a, b in pairs if a != b)
    at = networkx.spring_layout(net, seed=0, iterations=100)
    return [to_lists(torch.tensor([float(v) for v in at[i]])) for i in range(nodes)]


# --- reach ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Reach:
    """The fraction of the nodes within 0, 1, 2, … hops of a node."""

    own: list[float]  # of the central node
    mean: list[float]  # over nodes
    starts: int  # number of nodes in the mean


def hop_distances(net: IndexedGraph, node: int, undirected: bool = False) -> Tensor:
    """Return the number of hops from each node to `node` along messages, (V,); −1 for unreachable nodes."""
    sources, targets = (torch.cat([net.edges, net.edges.flip(0)], 1) if undirected else net.edges).long()
    hops = torch.full((len(net),), -1)
    hops[node] = 0
    for hop in range(1, len(net)):
        new = sources[(hops[targets] >= 0) & (hops[sources] < 0)]
        if not len(new):
            break
        hops[new] = hop
    return hops


def compute_reach(net: IndexedGraph, node: int, hops: Tensor, depth: int) -> Reach:
    """Return the fraction of nodes within each number of hops of the node, and the average over other nodes."""
    most = max(depth, min(HOPS, int(hops.max())))
    starts = max(1, min(STARTS, len(net), MAX_EDGE_VISITS // max(1, net.edges.shape[1] * HOPS)))
    chosen = torch.randperm(len(net), generator=torch.Generator().manual_seed(0))[:starts].tolist()

    def within(found: Tensor) -> list[float]:
        return [float(((found >= 0) & (found <= hop)).double().mean()) for hop in range(most + 1)]

    every = [within(hop_distances(net, start)) for start in chosen]
    return Reach(within(hops), [sum(at) / len(every) for at in zip(*every)], len(every))


# --- similarity ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class NodeSimilarity:
    """The similarity of the nodes after a layer; values are None if there are no such pairs."""

    name: str
    linked: float | None  # mean cosine of the two ends of an edge
    every: float | None  # mean cosine of any two nodes
    energy: float | None  # Σ ‖x_i − x_j‖² / Σ (‖x_i‖² + ‖x_j‖²) over the edges


def node_similarity(name: str, x: Tensor, edges: Tensor) -> NodeSimilarity:
    """Compute the similarity of nodes x (V, F) after the layer `name`, with edges (2, E)."""
    x = x.double()
    apart = edges[:, edges[0] != edges[1]]
    if apart.shape[1] > SAMPLED:
        order = torch.randperm(apart.shape[1], generator=torch.Generator().manual_seed(0))
        apart = apart[:, order[:SAMPLED]]
    unit = F.normalize(x, dim=1)
    linked = (unit[apart[0]] * unit[apart[1]]).sum(1)
    nodes = len(x)
    # Σ over pairs i ≠ j of u_i · u_j is |Σ u_i|² less the squares of each.
    every = (unit.sum(0).square().sum() - unit.square().sum()) / (nodes * (nodes - 1)) if nodes > 1 else None
    size = x[apart].square().sum()
    energy = (x[apart[0]] - x[apart[1]]).square().sum() / size if size > 0 else None
    return NodeSimilarity(
        name, to_rounded(linked.mean()) if len(linked) else None, to_rounded(every), to_rounded(energy)
    )


def to_rounded(value: Tensor | None) -> float | None:
    """Return a one-element tensor as a number with the digits of a description."""
    found = None if value is None else to_lists(value)
    assert found is None or isinstance(found, float)
    return found
