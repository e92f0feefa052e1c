"""Links as examples: no held-out link is in what the model is given, and absent links are none."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cutaway.core.errors import DataError, SettingError
from cutaway.core.spec import Links
from cutaway.data.build import DataSource
from cutaway.data.dataset_base import Batch, DataSet
from cutaway.data.graphs.dataset import LinkBuilder
from cutaway.data.graphs.splits import LinkSplit, RawGraphs, encode_pairs, links_from_edges, sample_absent_links
from cutaway.data.graphs.transforms import GraphPreprocessing
from cutaway.data.modalities import KINDS
from cutaway.data.open_data import open_data
from cutaway.data.settings import DataSettings

LINKS = DataSettings(links=True, val=0.05, test=0.1)


def drawn(seed: int, nodes: int = 40, edges: int = 160) -> RawGraphs:
    """A directed graph with loops and edges that are listed twice, or both ways."""
    rng = np.random.default_rng(seed)
    listed = rng.integers(0, nodes, (2, edges))
    listed = np.concatenate([listed, listed[:, :9], listed[::-1, :20], [[3, 3], [3, 3]]], axis=1)
    matrix = rng.random((nodes, 5)).astype(np.float32)
    return RawGraphs("drawn", listed, [f"n{i}" for i in range(nodes)], matrix=matrix)


def opened(graphs: RawGraphs, **changes: object) -> DataSet:
    settings = dataclasses.replace(LINKS, **changes)  # type: ignore[arg-type]
    return LinkBuilder(graphs, DataSource("drawn", "drawn", "0"), settings).build()


def batch(split: LinkSplit, seed: int | None = None) -> Batch:
    return next(iter(split.batches([torch.arange(len(split))], seed)))


def both_ways(pairs: torch.Tensor) -> set[tuple[int, int]]:
    return {(a, b) for a, b in pairs.tolist()} | {(b, a) for a, b in pairs.tolist()}


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_no_held_out_link_is_in_the_message_graph(seed: int) -> None:
    graphs = drawn(seed)
    data = opened(graphs, split_seed=seed)
    edges = {(int(a), int(b)) for a, b in graphs.edges.T}
    every, seen = both_ways(torch.from_numpy(links_from_edges(graphs.edges, graphs.nodes))), set()
    for name, split in data.splits.items():
        assert isinstance(split, LinkSplit)
        for draw in (None, 1, 2) if name == "train" else (None, 1):
            (_, message, rows), target = batch(split, draw)
            travelled = {(int(a), int(b)) for a, b in message.t()}
            linked, absent = rows[target == 1], rows[target == 0]
            if name == "train":
                taught = both_ways(linked)
                assert travelled == {e for e in edges if e in taught or e[0] == e[1]}
                assert not both_ways(absent) & taught
            else:
                assert not travelled & both_ways(linked)
                assert not both_ways(absent) & every
            assert len(both_ways(absent)) == 2 * len(absent) == 2 * len(linked)
        assert not seen & both_ways(linked)
        seen |= both_ways(linked)
    assert seen == {(a, b) for a, b in every if a != b}


def test_absent_links_are_drawn_anew_in_training_alone() -> None:
    data = opened(drawn(0))
    train, test = data.splits["train"], data.splits["test"]
    assert isinstance(train, LinkSplit)
    assert isinstance(test, LinkSplit)
    first, again, second = (batch(train, seed).inputs[2] for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert torch.equal(first[: train.links], second[: train.links])
    assert not torch.equal(first, second)
    assert torch.equal(batch(test, 1).inputs[2], batch(test, 2).inputs[2])
    assert len(data.splits["test"]) == 2 * round(0.1 * len(links_from_edges(drawn(0).edges, 40)))
    other = opened(drawn(0), split_seed=1).splits["test"]
    assert not torch.equal(test.rows, other.rows)  # type: ignore[attr-defined]


def test_features_that_tell_of_held_out_links_are_of_the_message_graph() -> None:
    """Nothing is known of the nodes but their edges: those that are held out are not counted."""
    graphs = dataclasses.replace(drawn(0, 5000, 9000), matrix=None)
    data = opened(graphs)
    x, message, _ = batch(data.splits["test"]).inputs  # type: ignore[arg-type]
    degree = torch.bincount(message[1], minlength=5000).double()
    assert abs(float(torch.corrcoef(torch.stack([x[:, 0].double(), degree]))[0, 1])) == pytest.approx(1)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 1000), nodes=st.integers(2, 60), count=st.integers(0, 500), listed=st.booleans())
def test_absent_pairs_are_absent_and_different(seed: int, nodes: int, count: int, listed: bool) -> None:
    rng = np.random.default_rng(seed)
    linked = encode_pairs(links_from_edges(rng.integers(0, nodes, (2, nodes)), nodes), nodes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("cutaway.data.graphs.splits.LISTED", 10**6 if listed else 0)
        found = encode_pairs(sample_absent_links(linked, nodes, count, rng), nodes)
    assert len(np.unique(found)) == len(found) == min(count, nodes * (nodes - 1) // 2 - len(linked))
    assert not np.isin(found, linked).any()
    assert (found // nodes < found % nodes).all()


def test_neighbours_are_drawn_around_both_nodes() -> None:
    whole = opened(drawn(0)).splits["test"]
    near = opened(drawn(0), num_neighbors=(100, 100)).splits["test"]
    (x, _, rows), _ = batch(near)  # type: ignore[arg-type]
    assert rows.shape == (len(near), 2)
    assert torch.equal(x[rows], batch(whole).inputs[0][batch(whole).inputs[2]])  # type: ignore[arg-type]


def test_a_preprocessing_goes_out_and_in_and_reads_pairs(tmp_path: Path) -> None:
    folder = tmp_path / "friends"
    folder.mkdir()
    names = [f"p{i}" for i in range(30)]
    (folder / "nodes.csv").write_text("name,age\n" + "".join(f"{n},{20 + i % 7}\n" for i, n in enumerate(names)))
    ends = [(names[i], names[(i * k) % 30]) for i in range(30) for k in (2, 7)]
    (folder / "edges.csv").write_text("source,target,since\n" + "".join(f"{a},{b},2001\n" for a, b in ends))
    data = open_data(folder, DataSettings(links=True))
    assert any("Attributes of edges are left out: since." in note for note in data.notes)
    text = data.preprocessing
    assert isinstance(text, GraphPreprocessing)
    assert KINDS["graph"].member("transforms.GraphPreprocessing").from_json(text.to_json()) == text
    assert isinstance(text.spec.target, Links)
    (tmp_path / "pairs.csv").write_text("source,target\np3,p1\n")
    asked = text.examples([folder, tmp_path / "pairs.csv"])
    assert isinstance(asked, LinkSplit)
    assert (asked.name(0), asked.rows.tolist()) == ("p3 – p1", [[3, 1]])
    other = text.labelled(folder)
    assert isinstance(other, LinkSplit)
    assert not other.are_linked(other.rows.numpy()).any()
    (tmp_path / "bad.csv").write_text("source,target\np3,p1\np3,anna\n")
    with pytest.raises(DataError, match=r"1 end of edges of bad\.csv lead to nodes that are not there") as found:
        text.examples([folder, tmp_path / "bad.csv"])
    assert "line 3, column target: 'anna' is not a node of nodes.csv" in str(found.value)
    with pytest.raises(DataError, match=r"bad\.csv is a table of pairs without a graph"):
        text.examples([tmp_path / "bad.csv"])
    with pytest.raises(DataError, match="Links are predicted for one graph at a time"):
        text.examples([folder, folder])


@pytest.mark.parametrize(
    ("graphs", "changes", "says"),
    [
        (drawn(0, 3, 0), {}, "drawn has 0 edges between two nodes: too few"),
        (dataclasses.replace(drawn(0), graph=np.arange(40), graph_names=["g"] * 40), {}, "predicts the edges of one"),
        (drawn(0), {"target": "side"}, "links=true predicts edges, and target=side a column"),
        (drawn(0), {"inductive": True}, "leave inductive out"),
        (drawn(0, 4, 200), {}, "all nodes are linked to each other"),
    ],
)
def test_what_cannot_be_split_is_told(graphs: RawGraphs, changes: dict[str, object], says: str) -> None:
    if "too few" in says:
        graphs = dataclasses.replace(graphs, edges=graphs.edges[:, -2:])
    with pytest.raises((DataError, SettingError), match=says):
        opened(graphs, **changes)
