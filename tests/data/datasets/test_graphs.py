"""The named graphs: sizes, classes and splits as published, where their files are here."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from cutaway.core.spec import Classes
from cutaway.data.dataset_base import DataSet
from cutaway.data.datasets.published import GRAPH_OPENERS, GRAPH_SETS
from cutaway.data.graphs.splits import NodeSplit
from cutaway.data.open_data import open_named, where
from cutaway.data.settings import DataSettings


def opened(name: str, **settings: object) -> DataSet:
    return open_named(name, DataSettings(**settings))  # type: ignore[arg-type]


@pytest.fixture
def here(shared_data: Path) -> None:
    for name in ("cora", "mutag"):
        if where(name) is None:
            pytest.skip(f"the files of {name} are not here")


def counts(data: DataSet) -> dict[str, int]:
    assert isinstance(data.spec.target, Classes)
    every = torch.cat([p.target for p in data.splits.values() if p.target is not None])
    return dict(zip(data.spec.target.names, torch.bincount(every).tolist()))


def test_each_has_an_opener() -> None:
    assert set(GRAPH_SETS) == set(GRAPH_OPENERS)
    assert {named.kind for named in GRAPH_SETS.values()} == {"graph"}


def test_cora_is_the_public_one(here: None) -> None:
    data = opened("cora")
    assert {split: len(p) for split, p in data.splits.items()} == {"train": 140, "val": 500, "test": 1000}
    split = data.splits["train"]
    assert isinstance(split, NodeSplit)
    assert split.x.shape == (2708, 1433)
    assert split.edges.shape == (2, 10_556)
    assert int((split.x > 0).sum()) == 49_216
    torch.testing.assert_close(split.x.sum(1), torch.ones(2708))
    assert torch.bincount(split.target).tolist() == [20] * 7
    assert torch.equal(split.rows, torch.arange(140))
    back = {tuple(edge) for edge in split.edges.flip(0).t().tolist()}
    assert back == {tuple(edge) for edge in split.edges.t().tolist()}
    assert not any("not the published file" in note for note in data.notes)


def test_cora_has_its_classes_by_name(here: None) -> None:
    """How many papers each class has is published: the names stand at the right columns."""
    from cutaway.data.graphs.graph_files import read_planetoid

    place = where("cora")
    assert place is not None
    targets = read_planetoid(place).targets
    assert targets is not None
    found = dict(targets.frame["class"].value_counts().iter_rows())
    assert found == {
        "Case_Based": 298,
        "Genetic_Algorithms": 418,
        "Neural_Networks": 818,
        "Probabilistic_Methods": 426,
        "Reinforcement_Learning": 217,
        "Rule_Learning": 180,
        "Theory": 351,
    }


def test_mutag_is_the_published_one(here: None) -> None:
    data = opened("mutag")
    assert counts(data) == {"mutagenic": 125, "not mutagenic": 63}
    assert data.spec.graph_level  # type: ignore[union-attr]
    sizes = data.splits["train"].graphs.nodes  # type: ignore[attr-defined]
    assert (len(sizes), int(sizes.min()), int(sizes.max()), int(sizes.sum())) == (188, 10, 28, 3371)
    assert not any("not the published file" in note for note in data.notes)


def test_the_karate_club() -> None:
    pytest.importorskip("networkx")
    data = opened("karate")
    assert {split: len(p) for split, p in data.splits.items()} == {"train": 2, "val": 8, "test": 24}
    assert [data.splits["train"].name(i) for i in (0, 1)] == ["member 1", "member 34"]
    assert counts(data) == {"Mr. Hi": 17, "Officer": 17}
    split = data.splits["train"]
    assert isinstance(split, NodeSplit)
    assert split.edges.shape == (2, 156)
    assert torch.equal(split.x, torch.eye(34))
