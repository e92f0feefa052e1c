"""The graph: messages, reach and likeness as computed by hand, and a drawing of any graph."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import cutaway
from cutaway.core.errors import SettingError, UnknownName
from cutaway.views import message_passing
from cutaway.views.message_passing import IndexedGraph, compute_reach, hop_distances, node_similarity
from cutaway.views.subject import Subject, open_model, open_run
from tests.inspect.test_probes import traces
from tests.small import DIFFERENT, GRAPHS

from .suited import suited

# A chain 0 → 1 → 2 → 3 and back, with a branch 3 → 4 one way, and 5 alone.
CHAIN = torch.tensor([[0, 1, 1, 2, 2, 3, 3], [1, 0, 2, 1, 3, 2, 4]])


def opened(name: str, x: torch.Tensor, edges: torch.Tensor, *more: torch.Tensor, **options: str) -> Subject:
    torch.manual_seed(0)
    model = cutaway.create_model(name, in_features=x.shape[1], num_classes=2, graph_level=bool(more))
    return open_model(model, x, edges, *more, options=options)


def chain(name: str = "gcn", **options: str) -> Subject:
    return opened(name, torch.randn(6, 3, generator=torch.Generator().manual_seed(0)), CHAIN, **options)


def network(subject: Subject) -> dict[str, Any]:
    found: dict[str, Any] = message_passing.draw_graph(subject)["drawings"][0]
    return found


def test_which_models_are_graphs() -> None:
    known = {name for family in GRAPHS.values() for name in family.PRESETS}
    assert {*suited("graph")} == {*DIFFERENT} & {*known, "gae"}


@pytest.mark.parametrize("name", GRAPHS)
def test_links_carry_the_layers_coefficients(name: str) -> None:
    subject = chain(name, node="3")
    _, travels = message_passing.capture_messages(subject)
    found = network(subject)
    assert found["nodes"][found["node"]]["label"] == "node 3"
    numbers = {node["key"]: i for i, node in enumerate(found["nodes"])}
    place = {i: int(key) for key, i in numbers.items()}
    heads = travels[0].weights.shape[1]
    names = [w["name"] for w in found["weights"]]
    if heads > 1:
        assert names[:3] == ["layers.0, mean of 8 heads", "layers.0, head 0", "layers.0, head 1"]
    else:
        assert names == [t.layer for t in travels]
    for travel in travels:
        weights = {
            (int(s), int(t)): float(w) for (s, t), w in zip(travel.edges.t().tolist(), travel.weights.mean(1).tolist())
        }
        drawn = next(w for w in found["weights"] if w["name"].startswith(travel.layer))
        for (a, b), (to_a, to_b) in zip(found["links"], drawn["values"]):
            u, v = place[a], place[b]
            for value, edge in ((to_a, (v, u)), (to_b, (u, v))):
                if value is None:
                    assert edge not in weights or u == v
                else:
                    assert value == pytest.approx(weights[edge], rel=1e-3)
    assert (3, 4) in [tuple(sorted((place[a], place[b]))) for a, b in found["links"]]
    assert not traces(subject.model)


def test_reach_follows_the_messages() -> None:
    """A node sees those from which edges lead to it: 4 sees 3, and nobody sees 4."""
    net = message_passing.capture_messages(chain())[0]
    assert hop_distances(net, 4).tolist() == [4, 3, 2, 1, 0, -1]
    assert hop_distances(net, 0).tolist() == [0, 1, 2, 3, -1, -1]
    assert hop_distances(net, 5).tolist() == [-1] * 5 + [0]
    reached = compute_reach(net, 4, hop_distances(net, 4), depth=2)
    assert reached.own == pytest.approx([1 / 6, 2 / 6, 3 / 6, 4 / 6, 5 / 6])
    # after one hop: 0 sees 2 nodes, 1 and 2 see 3, 3 sees 2, 4 sees 2, 5 sees 1
    assert reached.mean[1] == pytest.approx((2 + 3 + 3 + 2 + 2 + 1) / 36)


@settings(max_examples=25, deadline=None)
@given(st.integers(2, 12), st.data())
def test_reach_is_where_a_nudge_arrives(nodes: int, data: st.DataObject) -> None:
    """After L layers the answer of a node moves with exactly the nodes within L hops."""
    pairs = data.draw(st.lists(st.tuples(st.integers(0, nodes - 1), st.integers(0, nodes - 1)), max_size=20))
    edges = torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2).t().contiguous()
    model = cutaway.create_model("gcn", in_features=2, hidden_dim=4, num_classes=1).eval().double()
    with torch.no_grad():
        for p in model.parameters():
            p.fill_(1.0)  # all positive: nothing cancels out
    x = torch.ones(nodes, 2, dtype=torch.float64, requires_grad=True)
    node = data.draw(st.integers(0, nodes - 1))
    model(x, edges)[node].sum().backward()
    assert x.grad is not None
    hops = hop_distances(IndexedGraph(x, edges, torch.arange(nodes), {}), node)
    assert torch.equal((x.grad != 0).any(1), (hops >= 0) & (hops <= 2))


def test_likeness_by_hand() -> None:
    """Three nodes: 0 and 1 alike in direction, 2 at a right angle; edges 0 – 1 and 1 – 2."""
    x = torch.tensor([[1.0, 0.0], [2.0, 0.0], [0.0, 1.0]])
    edges = torch.tensor([[0, 1, 1, 2, 1], [1, 0, 2, 1, 1]])  # the loop of 1 counts for nothing
    found = node_similarity("x", x, edges)
    assert found.linked == pytest.approx(0.5)
    assert found.every == pytest.approx(1 / 3, rel=1e-3)
    # ‖x_0 − x_1‖² = 1 of 1 + 4, ‖x_1 − x_2‖² = 5 of 4 + 1, each twice
    assert found.energy == pytest.approx(12 / 20)
    same = node_similarity("x", torch.ones(3, 2), edges)
    assert (same.linked, same.every, same.energy) == (1.0, 1.0, 0.0)
    alone = node_similarity("x", torch.ones(1, 2), torch.empty(2, 0, dtype=torch.int64))
    assert (alone.linked, alone.every, alone.energy) == (None, None, None)
    assert node_similarity("x", torch.zeros(3, 2), edges).energy is None


def test_many_layers_smooth() -> None:
    """Averages of averages: behind 12 layers the nodes of a connected graph are all but one."""
    ring = torch.stack([torch.arange(8), (torch.arange(8) + 1) % 8])
    torch.manual_seed(0)
    model = cutaway.create_model("gcn", in_features=4, hidden_dim=8, num_classes=3, layers=12)
    found = message_passing.draw_graph(open_model(model, torch.randn(8, 4), torch.cat([ring, ring.flip(0)], 1)))
    energies = [row[3] for row in found["table"]["rows"]]
    assert energies[-1] < 0.01 < 0.3 < energies[0]


def test_one_of_many_graphs() -> None:
    x, edges = torch.randn(5, 3), torch.tensor([[0, 1, 2, 3], [1, 0, 3, 4]])
    batch = torch.tensor([0, 0, 1, 1, 1])
    none = torch.empty(0, dtype=torch.int64)
    first, second = (opened("graphconv", x, edges, none, batch, example=str(i)) for i in range(2))
    assert [node["label"] for node in network(first)["nodes"]] == ["node 0", "node 1"]
    net, travels = message_passing.capture_messages(second)
    assert torch.equal(net.x, x[2:])
    assert net.edges.tolist() == [[0, 1], [1, 2]]
    assert [t.weights.shape[0] for t in travels] == [2] * len(travels)
    with pytest.raises(SettingError, match="Invalid example=2"):
        message_passing.draw_graph(opened("graphconv", x, edges, none, batch, example="2"))


def test_large_graphs_are_drawn_around_a_node() -> None:
    torch.manual_seed(0)
    edges = torch.randint(400, (2, 3000))
    found = message_passing.draw_graph(opened("gat", torch.randn(400, 3), edges, node="7"))
    drawn = found["drawings"][0]
    assert 2 < len(drawn["nodes"]) <= message_passing.SHOWN
    assert len(drawn["links"]) <= message_passing.LINKS + len(drawn["nodes"])  # the layer's loops
    assert drawn["nodes"][drawn["node"]]["key"] == "7"
    assert "of 400 nodes" in drawn["note"]
    assert len(json.dumps(found, allow_nan=False)) < 2_000_000
    net = message_passing.capture_messages(opened("gat", torch.randn(400, 3), edges))[0]
    near = hop_distances(net, 7, undirected=True)
    far = torch.where(near < 0, len(net), near)
    shown = [int(node["key"]) for node in drawn["nodes"]]
    left_out = [v for v in range(400) if v not in shown]
    assert far[shown].max() <= far[left_out].min()


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("nodes", [1, 2])
def test_tiny_graphs_without_edges(name: str, nodes: int) -> None:
    none = torch.empty(2, 0, dtype=torch.int64)
    found = message_passing.draw_graph(opened(name, torch.randn(nodes, 3), none))
    json.dumps(found, allow_nan=False)
    places = [node["at"] for node in found["drawings"][0]["nodes"]]
    assert len(places) == nodes
    assert all(math.isfinite(v) for at in places for v in at)


def test_the_same_graph_is_drawn_the_same_way() -> None:
    first, again = (json.dumps(message_passing.draw_graph(chain("gat"))) for _ in range(2))
    assert first == again


@pytest.mark.parametrize("asked", ["6", "-1", "nobody", "1.5"])
def test_a_node_that_is_not_there_is_rejected(asked: str) -> None:
    with pytest.raises(UnknownName, match="no node"):
        message_passing.draw_graph(chain(node=asked))


def test_a_run_knows_names_classes_and_what_the_model_says(tmp_path: Path) -> None:
    run = cutaway.train("gcn", "karate", epochs=2, out=tmp_path / "run")
    subject = open_run(run)
    found = message_passing.draw_graph(subject)
    drawn = found["drawings"][0]
    assert {node["label"] for node in drawn["nodes"]} == {f"member {i}" for i in range(1, 35)}
    colours = {c["name"]: c for c in drawn["colours"]}
    assert set(colours) == {"class", "prediction", "hops away"}
    assert colours["class"]["groups"] == ["Mr. Hi", "Officer"]
    assert None not in colours["class"]["of"]
    with torch.no_grad():
        said = subject.model(*subject.inputs[:2]).argmax(1).tolist()
    assert [said[int(node["key"])] for node in drawn["nodes"]] == colours["prediction"]["of"]
    by_name = message_passing.draw_graph(open_run(run, options={"node": "member 34"}))["drawings"][0]
    assert by_name["nodes"][by_name["node"]]["label"] == "member 34"


def test_kinds_of_nodes_have_colours() -> None:
    x = torch.eye(3)[[0, 1, 1, 2]]
    found = network(opened("gcn", x, torch.tensor([[0, 1], [1, 2]])))
    colours = found["colours"][0]
    assert colours["name"] == "feature"
    kinds = {node["key"]: kind for node, kind in zip(found["nodes"], colours["of"])}
    assert kinds == {"0": 0, "1": 1, "2": 1, "3": 2}


def test_messages_that_all_weigh_the_same_have_no_strongest() -> None:
    assert (
        "the coefficient 1: all are weighted equally"
        in message_passing.draw_graph(chain("graphconv", node="2"))["summary"]
    )
    assert "the strongest of" in message_passing.draw_graph(chain("gat", node="2"))["summary"]
