"""Graphs as data sets: who is in which split and what it sees, features fitted on training nodes, and new graphs."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from cutaway.core.errors import DataError, SettingError, UnknownName
from cutaway.core.spec import Classes, Value
from cutaway.data.build import DataSource
from cutaway.data.dataset_base import Batch, DataSet
from cutaway.data.graphs.dataset import graph_dataset, open_graph
from cutaway.data.graphs.splits import GraphsSplit, NodeSplit, RawGraphs
from cutaway.data.graphs.transforms import GraphPreprocessing
from cutaway.data.modalities import preprocessing_from_json
from cutaway.data.settings import DataSettings


def people(folder: Path, rows: int = 40, label: Any = None, extra: str = "") -> Path:
    """A ring of people; every tenth has no side."""
    folder.mkdir(exist_ok=True)
    rng = np.random.default_rng(0)
    lines = ["id,age,city,mark,code,side" + (",split" if extra else "")]
    for i in range(rows):
        side = "" if i % 10 == 9 else (label(i) if label else ("left", "right")[i % 2])
        cells = [f"p{i}", f"{rng.normal(40, 9):.2f}", ("rome", "oslo", "lima")[i % 3], str(i % 2), "same", side]
        lines.append(",".join(cells) + (f",{extra.split()[i % len(extra.split())]}" if extra else ""))
    (folder / "nodes.csv").write_text("\n".join(lines) + "\n")
    links = [f"p{i},p{(i + 1) % rows}" for i in range(rows)]
    (folder / "edges.csv").write_text("\n".join(["source,target", *links]) + "\n")
    return folder


def batch(data: DataSet, split: str) -> Batch:
    found = data.splits[split]
    return next(iter(found.batches([torch.arange(len(found))])))


def test_nodes_of_a_folder(tmp_path: Path) -> None:
    data = open_graph(people(tmp_path / "people"), DataSettings(target="side"))
    assert isinstance(data.spec.target, Classes)
    assert (data.name, data.spec.target.names, data.spec.kind) == ("people", ("left", "right"), "graph")
    assert {split: len(p) for split, p in data.splits.items()} == {"train": 25, "val": 6, "test": 5}
    x, edges, rows = batch(data, "train").inputs
    assert x.shape == (40, data.spec.shape[0])
    assert edges.shape == (2, 80)
    assert batch(data, "val").inputs[0] is x
    age, mark = x[:, 0], x[:, 5]  # age, three cities and one for others, mark
    assert age[rows].mean() == pytest.approx(0, abs=1e-6)
    assert age[rows].std(correction=0) == pytest.approx(1, abs=1e-6)
    assert abs(float(age.mean())) > 1e-6, "the others are not looked at"
    assert mark.unique().tolist() == [0.0, 1.0]
    for split in data.splits.values():
        for i in (0, 1):
            row = split.row(i)
            assert row is not None
            assert split.name(i) == row["id"]
            assert data.spec.target.names[int(split.target[i])] == row["side"]  # type: ignore[index]
    said = " ".join(data.notes)
    assert "4 nodes of 40 have no target and are in no split; they stay in the graph." in said
    assert "The column is left out: code" in said
    assert "40 nodes and 80 edges" in said


def test_a_given_split_and_numbers(tmp_path: Path) -> None:
    folder = people(tmp_path / "p", label=lambda i: f"{i * 1.5}", extra="train train val test")
    data = open_graph(folder, DataSettings(target="side"))
    assert isinstance(data.spec.target, Value)
    target = batch(data, "train").target
    assert target.mean() == pytest.approx(0, abs=1e-6)
    assert {split: len(p) for split, p in data.splits.items()} == {"train": 18, "val": 10, "test": 8}
    drawn = open_graph(people(tmp_path / "q", label=lambda i: f"{i * 1.5}"), DataSettings(target="side", max_samples=7))
    assert {split: len(p) for split, p in drawn.splits.items()} == {"train": 7, "val": 6, "test": 5}


def test_inductive_parts_see_no_later_node(tmp_path: Path) -> None:
    folder = people(tmp_path / "p")
    plain = open_graph(folder, DataSettings(target="side"))
    data = open_graph(folder, DataSettings(target="side", inductive=True))
    assert data.split_hash == plain.split_hash
    whole_x, whole_edges, _ = batch(plain, "train").inputs
    seen: list[int] = []
    for split in ("train", "val", "test"):
        (x, edges, rows), target = batch(data, split)
        own = batch(plain, split)
        seen = sorted({*seen, *own.inputs[2].tolist()}) if split != "test" else list(range(40))
        assert torch.equal(x, whole_x[seen])
        assert torch.equal(x[rows], whole_x[own.inputs[2]])
        assert torch.equal(target, own.target)
        back = torch.tensor(seen)[edges]
        inside = [e for e in whole_edges.t().tolist() if e[0] in seen and e[1] in seen]
        assert sorted(back.t().tolist()) == sorted(inside)
    assert any("inductive=true" in note for note in data.notes)
    assert len(batch(data, "train").inputs[0]) == len(data.splits["train"])


def test_settings_that_cannot_be(tmp_path: Path) -> None:
    folder = people(tmp_path / "p")
    with pytest.raises(SettingError, match=r"Which column of nodes\.csv is to be predicted"):
        open_graph(folder, DataSettings())
    with pytest.raises(UnknownName, match="Similar: side"):
        open_graph(folder, DataSettings(target="sid"))
    with pytest.raises(SettingError, match="leave nothing to train on"):
        open_graph(folder, DataSettings(target="side", val=0.6, test=0.6))
    with pytest.raises(SettingError, match="inductive=true hides nodes of one graph"):
        graph_dataset(molecules(), DataSource("m", "m", ""), DataSettings(inductive=True))
    with pytest.raises(SettingError, match="is for one large graph"):
        graph_dataset(molecules(), DataSource("m", "m", ""), DataSettings(num_neighbors=(2,)))


def test_preprocessing_goes_out_and_in_and_prepares_new_graphs_alike(tmp_path: Path) -> None:
    folder = people(tmp_path / "p")
    data = open_graph(folder, DataSettings(target="side"))
    assert isinstance(data.preprocessing, GraphPreprocessing)
    again = GraphPreprocessing.from_json(json.loads(json.dumps(data.preprocessing.to_json())))
    assert again == data.preprocessing
    split = again.examples([folder])
    assert isinstance(split, NodeSplit)
    assert len(split) == 40
    assert torch.equal(split.x, batch(data, "train").inputs[0])
    assert split.name(9) == "p9"
    twice = again.examples([folder, folder])
    assert isinstance(twice, NodeSplit)
    assert torch.equal(twice.x, split.x.repeat(2, 1))
    labelled = again.labelled(folder)
    assert len(labelled) == 36
    assert labelled.target is not None
    text = (folder / "nodes.csv").read_text()
    (folder / "nodes.csv").write_text(text.replace("oslo", "bonn"))
    assert any("count as unknown" in note for note in again.examples([folder]).notes)
    (folder / "nodes.csv").write_text(text.replace("age", "years"))
    with pytest.raises(DataError, match="lacks: 'age'"):
        again.examples([folder])
    (folder / "nodes.csv").write_text(text.replace(",left", ",up"))
    with pytest.raises(DataError, match="a class that training did not know"):
        again.labelled(folder)


def test_nodes_of_which_nothing_is_known(tmp_path: Path) -> None:
    folder = tmp_path / "p"
    people(folder)
    lines = [line.split(",") for line in (folder / "nodes.csv").read_text().splitlines()]
    (folder / "nodes.csv").write_text("\n".join(f"{line[0]},{line[5]}" for line in lines) + "\n")
    data = open_graph(folder, DataSettings(target="side"))
    assert torch.equal(batch(data, "test").inputs[0], torch.eye(40))
    assert any("the model is for this graph alone" in note for note in data.notes)
    other = people(tmp_path / "q", rows=20)
    with pytest.raises(DataError, match="has 20 nodes, and the model knows the 40 nodes"):
        data.preprocessing.examples([other])
    again = preprocessing_from_json(data.preprocessing.to_json())
    head, *rows = (folder / "nodes.csv").read_text().splitlines()
    (folder / "nodes.csv").write_text("\n".join([head, *reversed(rows)]) + "\n")  # the same nodes in another order
    (turned,) = again.examples([folder]).batches([torch.arange(40)])
    assert torch.equal(turned.inputs[0], torch.eye(40).flip(0))
    (folder / "nodes.csv").write_text("\n".join([head, *rows]).replace(rows[7].split(",")[0], "nobody") + "\n")
    edges = (folder / "edges.csv").read_text().replace(rows[7].split(",")[0], "nobody")
    (folder / "edges.csv").write_text(edges)
    with pytest.raises(DataError, match="has a node 'nobody', and the model knows"):
        again.examples([folder])


def molecules(features: bool = True) -> RawGraphs:
    """Twelve graphs of two to four nodes, mixed up; those with three nodes are of another class."""
    import polars as pl

    from cutaway.data.tables.table_files import Table

    sizes = [2, 3, 4] * 4
    graph = np.repeat(np.arange(12), sizes)
    order = np.random.default_rng(0).permutation(len(graph))
    graph = graph[order]
    edges = [
        (int(a), int(b))
        for g in range(12)
        for a in np.flatnonzero(graph == g)
        for b in np.flatnonzero(graph == g)
        if a != b
    ]
    return RawGraphs(
        title="molecules",
        edges=np.array(edges, np.int64).T,
        names=[f"n{i}" for i in range(len(graph))],
        matrix=np.arange(2 * len(graph), dtype=np.float32).reshape(-1, 2) if features else None,
        graph=graph,
        graph_names=[f"m{i}" for i in range(12)],
        targets=Table("", pl.DataFrame({"odd": [str(s == 3) for s in sizes]})),
    )


def test_many_graphs_stand_side_by_side() -> None:
    graphs = molecules()
    data = graph_dataset(graphs, DataSource("m", "m", ""), DataSettings(val=0.25, test=0.25))
    assert data.spec.graph_level  # type: ignore[union-attr]
    assert sum(len(p) for p in data.splits.values()) == 12
    split = data.splits["train"]
    assert isinstance(split, GraphsSplit)
    index = torch.tensor([2, 0, 1])
    (x, edges, rows, of), target = next(iter(split.batches([index])))
    assert rows.shape == (0,)
    assert graphs.graph is not None
    assert graphs.matrix is not None
    for k, i in enumerate(index.tolist()):
        number = int(split.name(i)[1:])
        own = np.flatnonzero(graphs.graph == number)
        assert torch.equal(x[of == k], torch.from_numpy(graphs.matrix[own]))
        assert int((of[edges[1]] == k).sum()) == len(own) * (len(own) - 1)
        assert target[k] == (len(own) == 3)
        assert split.row(i) == {"odd": str(len(own) == 3)}
    assert torch.equal(of[edges[0]], of[edges[1]])


def test_graphs_without_features_have_their_degrees() -> None:
    data = graph_dataset(molecules(features=False), DataSource("m", "m", ""), DataSettings())
    split = data.splits["train"]
    (x, edges, _, of), _ = next(iter(split.batches([torch.arange(len(split))])))
    degrees = torch.bincount(edges[1], minlength=len(of)).float()
    assert x.shape[1] == 1
    assert torch.corrcoef(torch.stack([x[:, 0], degrees]))[0, 1] == pytest.approx(1)
    assert x.mean() == pytest.approx(0, abs=1e-6)
    assert any("how many edges lead to each" in note for note in data.notes)


def test_batches_of_nodes_and_of_all() -> None:
    split = NodeSplit(torch.zeros(9, 1), torch.zeros(2, 0, dtype=torch.int64), torch.arange(9), None, [""] * 9)
    generator = torch.Generator().manual_seed(0)
    assert [len(index) for index in split.plan(4, generator)] == [4, 4, 1]
    assert [len(index) for index in split.plan(9, generator)] == [9]
    assert [index.tolist() for index in split.plan(2, None)] == [list(range(9))]


def test_an_object_of_the_graph_library(tmp_path: Path) -> None:
    torch.manual_seed(0)
    data = SimpleNamespace(x=torch.rand(30, 4), edge_index=torch.randint(30, (2, 60)), y=torch.arange(30) % 3)
    opened = open_graph(data, DataSettings())
    assert isinstance(opened.spec.target, Classes)
    assert opened.spec.target.names == ("0", "1", "2")
    assert torch.equal(batch(opened, "train").inputs[0], data.x)
    assert torch.equal(batch(opened, "train").inputs[1], data.edge_index)
    data.x[3, 1] = torch.nan
    with pytest.raises(DataError, match="node 3 has a feature that is not finite"):
        open_graph(data, DataSettings())


def test_features_by_rows_leave_empty_nodes_empty() -> None:
    graphs = dataclasses.replace(molecules(), scaled="rows")
    data = graph_dataset(graphs, DataSource("m", "m", ""), DataSettings())
    split = data.splits["train"]
    x = next(iter(split.batches([torch.arange(len(split))]))).inputs[0]
    torch.testing.assert_close(x.sum(1), torch.ones(len(x)))
    assert isinstance(data.preprocessing, GraphPreprocessing)
    empty = dataclasses.replace(graphs, matrix=np.zeros_like(graphs.matrix))  # type: ignore[arg-type]
    assert not data.preprocessing.features(empty)[0].any()


def weighed(folder: Path) -> Path:
    """The ring of people, whose links have a strength and a kind."""
    people(folder)
    links = [f"p{i},p{(i + 1) % 40},{i % 7},{'work' if i % 2 else 'home'}" for i in range(40)]
    (folder / "edges.csv").write_text("\n".join(["source,target,weight,kind", *links]) + "\n")
    return folder


def test_what_is_known_of_edges_goes_to_models_that_ask_for_it(tmp_path: Path) -> None:
    folder = weighed(tmp_path / "p")
    plain, data = (open_graph(folder, DataSettings(target="side", edge_attr=asked)) for asked in (None, True))
    assert len(batch(plain, "train").inputs) == 3
    assert "Attributes of edges are left out, as this model takes none: weight, kind." in plain.notes
    x, edges, _, none, edge_attr = batch(data, "train").inputs
    assert len(none) == 0
    assert edge_attr.shape == (80, data.spec.edge_features) == (80, 4)  # a number; two kinds and one for others
    weights = {tuple(sorted(pair)): w for pair, w in zip(edges.t().tolist(), edge_attr[:, 0].tolist())}
    assert weights[0, 1] == weights[7, 8] < weights[6, 7]
    assert (data.split_hash, torch.equal(x, batch(plain, "train").inputs[0])) == (plain.split_hash, True)
    assert data.fingerprint != plain.fingerprint
    kept = GraphPreprocessing.from_json(json.loads(json.dumps(data.preprocessing.to_json())))
    assert kept == data.preprocessing
    again = next(iter(kept.examples([folder]).batches([torch.arange(40)]))).inputs
    assert torch.equal(again[4], edge_attr)
    (folder / "edges.csv").write_text("source,target\np0,p1\n")
    with pytest.raises(DataError, match=r"columns that p lacks: 'weight', 'kind'.*Give edges"):
        kept.examples([folder])
    old = {k: v for k, v in plain.preprocessing.to_json().items() if k not in ("edge_columns", "smiles")}
    assert GraphPreprocessing.from_json(old) == plain.preprocessing


def test_edges_of_an_inductive_split_keep_what_is_known_of_them(tmp_path: Path) -> None:
    folder = weighed(tmp_path / "p")
    data = open_graph(folder, DataSettings(target="side", edge_attr=True, inductive=True))
    for split in ("train", "val", "test"):
        _, edges, _, _, edge_attr = batch(data, split).inputs
        assert edges.shape[1] == len(edge_attr)
    drawn = open_graph(folder, DataSettings(target="side", edge_attr=True, num_neighbors=(2,)))
    assert len(batch(drawn, "train").inputs) == 3
    assert any("edges are drawn without them (num_neighbors): weight" in note for note in drawn.notes)
