"""Reading graphs: each form as it is written, and every mistake in it named with its place."""

from __future__ import annotations

import pickle
from pathlib import Path
from types import SimpleNamespace

import networkx
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cutaway.core.errors import DataError
from cutaway.data.graphs.graph_files import read_graphs
from cutaway.data.graphs.splits import add_reverse_edges, merge_graphs


def write(folder: Path, **files: str) -> Path:
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)
    return folder


def pairs(edges: np.ndarray) -> list[tuple[int, int]]:
    return sorted(map(tuple, edges.T.tolist()))


NODES = "id,height,kind,side\na,1.5,x,left\nb,2,y,right\nc,0.5,x,\n"


def test_tables(tmp_path: Path) -> None:
    folder = write(tmp_path / "g", nodes__csv=NODES, edges__csv="source,target,weight\na,b,3\nb,c,1\nc,c,1\n")
    graphs = read_graphs(folder, "side")
    assert list(graphs.names) == ["a", "b", "c"]
    assert graphs.columns == ("height", "kind")
    assert pairs(graphs.edges) == [(0, 1), (1, 0), (1, 2), (2, 1), (2, 2)]
    assert not graphs.many
    assert any("2 edges were added that lead back" in note for note in graphs.notes)
    assert graphs.edge_table is not None
    weights = dict(zip(map(tuple, graphs.edges.T.tolist()), graphs.edge_table.frame["weight"]))
    assert weights == {(0, 1): "3", (1, 0): "3", (1, 2): "1", (2, 1): "1", (2, 2): "1"}
    assert graphs.degrees().tolist() == [1, 2, 2]
    turned = write(tmp_path / "t", nodes__csv=NODES, edges__csv="weight,Target,Source\n3,b,a\n")
    assert pairs(read_graphs(turned).edges) == [(0, 1), (1, 0)]
    assert read_graphs(folder, "side").digest != read_graphs(turned, "side").digest


def test_an_edge_to_a_node_that_is_not_there_is_named(tmp_path: Path) -> None:
    folder = write(tmp_path / "g", nodes__csv=NODES, edges__csv="source,target\na,b\nb,z\n,c\n")
    with pytest.raises(
        DataError, match=r"edges\.csv, line 3, column target: 'z' is not a node of nodes\.csv"
    ) as caught:
        read_graphs(folder)
    assert [str(p) for p in caught.value.problems][1].startswith(
        "edges.csv, line 4, column source: the node is missing"
    )


def test_names_of_two_nodes_and_none_are_rejected(tmp_path: Path) -> None:
    folder = write(tmp_path / "g", nodes__csv="id,s\na,1\nb,2\na,3\n ,4\n", edges__csv="source,target\na,b\n")
    with pytest.raises(DataError, match=r"line 4, column id: 'a' is the name of line 2 of nodes\.csv too") as caught:
        read_graphs(folder)
    assert "line 5, column id: the node has no name" in str(caught.value.problems[1])
    (folder / "nodes.csv").unlink()
    with pytest.raises(DataError, match=r"no nodes\.csv"):
        read_graphs(folder)


def test_a_split_column_says_the_parts(tmp_path: Path) -> None:
    nodes = "id,h,side,split\na,1,l,train\nb,2,r,Valid\nc,3,l,\nd,4,r,test\n"
    folder = write(tmp_path / "g", nodes__csv=nodes, edges__csv="source,target\na,b\n")
    graphs = read_graphs(folder, "side")
    assert graphs.splits is not None
    assert {split: rows.tolist() for split, rows in graphs.splits.items()} == {"train": [0], "val": [1], "test": [3]}
    assert graphs.columns == ("h",)
    write(folder, nodes__csv=nodes.replace("Valid", "later"))
    with pytest.raises(DataError, match=r"nodes\.csv, line 3, column split: 'later' is not a split"):
        read_graphs(folder, "side")


def test_many_graphs_in_tables(tmp_path: Path) -> None:
    """Names that differ within a graph alone; targets in graphs.csv, or the same at all nodes of a graph."""
    nodes = "graph,id,h,toxic\nm1,1,5,yes\nm1,2,6,yes\nm2,1,7,no\nm2,2,8,no\n"
    edges = "graph,source,target\nm1,1,2\nm2,2,1\n"
    folder = write(tmp_path / "g", nodes__csv=nodes, edges__csv=edges)
    graphs = read_graphs(folder, "toxic")
    assert graphs.many
    assert list(graphs.graph_names) == ["m1", "m2"]
    assert graphs.graph is not None
    assert graphs.graph.tolist() == [0, 0, 1, 1]
    assert pairs(graphs.edges) == [(0, 1), (1, 0), (2, 3), (3, 2)]
    assert graphs.targets is not None
    assert graphs.targets.frame["toxic"].to_list() == ["yes", "no"]
    assert graphs.columns == ("h",)
    write(folder, nodes__csv=nodes.replace("8,no", "8,yes"))
    with pytest.raises(DataError, match=r"nodes\.csv, line 5, column toxic: 'yes', and the first node of its graph"):
        read_graphs(folder, "toxic")
    write(folder, graphs__csv="graph,toxic,split\nm2,no,test\nm1,yes,train\n")
    listed = read_graphs(folder, "toxic")
    assert listed.targets is not None
    assert listed.targets.frame["toxic"].to_list() == ["yes", "no"]
    assert listed.splits is not None
    assert listed.splits["test"].tolist() == [1]
    write(folder, graphs__csv="graph,toxic\nm1,yes\n")
    with pytest.raises(DataError, match=r"graphs\.csv has no row for the graph 'm2'"):
        read_graphs(folder, "toxic")
    (folder / "graphs.csv").unlink()
    write(folder, nodes__csv="graph,id,h,toxic\nm1,1,5,yes\nm2,2,7,no\n", edges__csv="source,target\n1,2\n")
    with pytest.raises(DataError, match=r"lead from one graph to another.*line 2 of nodes\.csv to line 3"):
        read_graphs(folder, "toxic")


@settings(max_examples=40, deadline=None)
@given(listed=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=12))
def test_both_ways_adds_what_is_missing_and_no_more(listed: list[tuple[int, int]]) -> None:
    edges = np.array(listed, np.int64).reshape(-1, 2).T
    found, origin = add_reverse_edges(edges)
    assert np.array_equal(edges[:, origin], found[::-1, len(listed) :])
    assert len(set(origin)) == len(origin) == found.shape[1] - edges.shape[1]
    got = pairs(found)
    for pair in set(got) | set(listed):
        back = pair[::-1]
        assert got.count(pair) == max(listed.count(pair), listed.count(back))
    again, more = add_reverse_edges(found)
    assert len(more) == 0
    assert pairs(again) == got


def test_graphml(tmp_path: Path) -> None:
    graph = networkx.Graph()
    graph.add_node("a", size=2, side="l")
    graph.add_node("b", size=3, side="r")
    graph.add_node("c", size=4)
    graph.add_edge("a", "b", weight=1.0)
    graph.add_edge("c", "c")
    networkx.write_graphml(graph, tmp_path / "g.graphml")
    found = read_graphs(tmp_path / "g.graphml", "side")
    assert pairs(found.edges) == [(0, 1), (1, 0), (2, 2)]
    assert found.columns == ("size",)
    assert found.targets is not None
    assert found.targets.frame["side"].to_list() == ["l", "r", None]
    assert found.edge_table is not None
    assert found.edge_table.frame["weight"].to_list() == ["1.0", None, "1.0"]  # the way back comes last
    networkx.write_graphml(networkx.DiGraph([(0, 1)]), tmp_path / "d.graphml")
    assert pairs(read_graphs(tmp_path / "d.graphml").edges) == [(0, 1)]
    text = (tmp_path / "g.graphml").read_text()
    (tmp_path / "cut.graphml").write_text(text[: len(text) // 2])
    with pytest.raises(DataError, match=r"cut\.graphml: it is not a complete GraphML file"):
        read_graphs(tmp_path / "cut.graphml")


def test_a_folder_of_graphml_is_many_graphs(tmp_path: Path) -> None:
    for name, toxic, edges in (("one", "yes", [(0, 1)]), ("two", "no", [(0, 1), (1, 2)])):
        graph = networkx.Graph(edges, toxic=toxic)
        networkx.set_node_attributes(graph, 1.5, "h")
        networkx.write_graphml(graph, tmp_path / f"{name}.graphml")
    found = read_graphs(tmp_path, "toxic")
    assert found.many
    assert list(found.graph_names) == ["one.graphml", "two.graphml"]
    assert found.targets is not None
    assert found.targets.frame["toxic"].to_list() == ["yes", "no"]
    assert pairs(found.edges) == [(0, 1), (1, 0), (2, 3), (3, 2), (3, 4), (4, 3)]
    networkx.write_graphml(networkx.Graph(), tmp_path / "none.graphml")
    with pytest.raises(DataError, match=r"1 of 3 graphs cannot .*none\.graphml: it has no nodes\..*missing=drop"):
        read_graphs(tmp_path, "toxic")
    left = read_graphs(tmp_path, "toxic", drop=True)
    assert list(left.graph_names) == ["one.graphml", "two.graphml"]
    assert any("missing=drop left out 1 of 3 graphs (33.3%): " in note for note in left.notes)


def tu(folder: Path, **changed: str) -> Path:
    files = {
        "A": "1, 2\n2, 1\n3, 4\n4, 3\n4, 5\n5, 4\n",
        "graph_indicator": "1\n1\n2\n2\n2\n",
        "graph_labels": "1\n-1\n",
        "node_labels": "0\n1\n0\n0\n1\n",
        "edge_labels": "0\n0\n1\n1\n2\n2\n",
    } | changed
    return write(folder, **{f"SET_{name}__txt": text for name, text in files.items()})


def test_tu(tmp_path: Path) -> None:
    found = read_graphs(tu(tmp_path / "tu"))
    assert found.many
    assert found.graph is not None
    assert found.graph.tolist() == [0, 0, 1, 1, 1]
    assert pairs(found.edges) == [(0, 1), (1, 0), (2, 3), (3, 2), (3, 4), (4, 3)]
    assert (found.target, found.target_kind, found.columns) == ("class", "category", ("node label 1",))
    assert found.edge_table is not None
    assert found.edge_table.frame["edge label 1"].to_list() == [f"label {k}" for k in (0, 0, 1, 1, 2, 2)]
    for changed, said in (
        ({"A": "1, 2\n2, 9\n"}, r"SET_A\.txt, line 2: 2, 9 names a node that is not there"),
        ({"A": "1, 2\n2, 3\n"}, r"SET_A\.txt, line 2: the edge leads from one graph to another"),
        ({"A": "1, 2\n2\n"}, r"SET_A\.txt, line 2: 1 values, 2 expected"),
        ({"A": "1, 2\n2, x\n"}, r"SET_A\.txt, line 2: '2, x' is not 2 whole numbers"),
        ({"graph_labels": "1\n"}, r"SET_graph_labels\.txt has 1 lines, and 2 are expected"),
        ({"graph_indicator": "1\n1\n3\n3\n3\n"}, "no node of graph 2"),
    ):
        with pytest.raises(DataError, match=said):
            read_graphs(tu(tmp_path / "bad", **changed))


def planetoid(folder: Path, order: list[int], graph: dict[int, list[int]]) -> Path:
    """Two training nodes, three more known ones, and test nodes from 5 on."""
    folder.mkdir(exist_ok=True)
    rng = np.random.default_rng(0)

    def csr(rows: int) -> object:
        from scipy.sparse import csr_matrix

        return csr_matrix((rng.random((rows, 4)) < 0.5) * np.arange(1, 5, dtype=np.float32))

    hot = np.eye(2, dtype=np.int32)
    known, tests = csr(5), csr(len(order))
    content = {
        "x": known[:2],  # type: ignore[index]
        "tx": tests,
        "allx": known,
        "y": hot[[0, 1]],
        "ty": hot[[k % 2 for k in range(len(order))]],
        "ally": hot[[0, 1, 0, 1, 0]],
        "graph": graph,
    }
    for name, value in content.items():
        (folder / f"ind.toy.{name}").write_bytes(pickle.dumps(value, 2))
    (folder / "ind.toy.test.index").write_text("".join(f"{i}\n" for i in order))
    return folder


def test_planetoid(tmp_path: Path) -> None:
    """Test rows stand where test.index says; node 6, which it does not list, has neither features nor a class."""
    graph = {0: [1, 1, 5], 1: [0], 5: [0], 2: [7], 3: [3]}
    found = read_graphs(planetoid(tmp_path / "p", [7, 5], graph))
    assert found.nodes == 8
    assert found.splits is not None
    assert {k: v.tolist() for k, v in found.splits.items()} == {"train": [0, 1], "val": [2, 3, 4], "test": [5, 7]}
    assert found.targets is not None
    assert found.targets.frame["class"].to_list() == ["0", "1", "0", "1", "0", "1", None, "0"]
    assert pairs(found.edges) == [(0, 1), (0, 5), (1, 0), (2, 7), (3, 3), (5, 0), (7, 2)]
    assert found.matrix is not None
    assert not found.matrix[6].any()
    first = np.random.default_rng(0)
    first.random((5, 4))
    expected = (first.random((2, 4)) < 0.5) * np.arange(1, 5)
    assert (found.matrix[[7, 5]] == expected).all()
    assert any("1 nodes have neither features nor a class" in note for note in found.notes)
    (tmp_path / "p" / "ind.toy.ally").unlink()
    with pytest.raises(DataError, match=r"lacks ind\.toy\.ally"):
        read_graphs(tmp_path / "p")
    with pytest.raises(DataError, match=r"do not fit together: ValueError an edge leads to a node"):
        read_graphs(planetoid(tmp_path / "q", [7, 5], {0: [99]}))


def test_an_object_in_memory(tmp_path: Path) -> None:
    edges = torch.tensor([[0, 1], [1, 2]])
    data = SimpleNamespace(
        x=torch.ones(3, 2), edge_index=edges, y=torch.tensor([1, -1, 0]), train_mask=torch.tensor([True, False, False])
    )
    found = read_graphs(data)
    assert pairs(found.edges) == [(0, 1), (1, 2)]  # as it is given: nothing is added
    assert found.targets is not None
    assert found.targets.frame["y"].to_list() == ["1", None, "0"]
    assert found.target_kind == "category"
    assert found.splits is not None
    assert found.splits["train"].tolist() == [0]
    with pytest.raises(DataError, match="2 targets, and there are 3 nodes"):
        read_graphs(SimpleNamespace(x=torch.ones(3, 2), edge_index=edges, y=torch.ones(2)))
    with pytest.raises(DataError, match="nodes up to 2, and the graph has 2 nodes"):
        read_graphs(SimpleNamespace(x=torch.ones(2, 2), edge_index=edges))


def test_several_graphs_side_by_side(tmp_path: Path) -> None:
    folder = write(tmp_path / "g", nodes__csv=NODES, edges__csv="source,target\na,b\n")
    one = read_graphs(folder, "side")
    both = merge_graphs([one, one])
    assert pairs(both.edges) == [(0, 1), (1, 0), (3, 4), (4, 3)]
    assert both.nodes == 6
    assert both.table is not None
    assert both.table.frame["kind"].to_list() == ["x", "y", "x"] * 2
    with pytest.raises(DataError, match="of different forms"):
        merge_graphs([one, read_graphs(tu(tmp_path / "tu"))])


def test_what_holds_no_graph_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="holds no graph"):
        read_graphs(tmp_path)
    with pytest.raises(DataError, match="There is no file or folder '"):
        read_graphs(tmp_path / "nowhere")
