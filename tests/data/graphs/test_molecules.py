"""Molecules in a table: what is known of atoms and bonds, rows that are none, copies, and new ones."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch

from cutaway.core.errors import DataError, SettingError, UnknownName
from cutaway.core.spec import Classes, GraphSpec, Value
from cutaway.data.dataset_base import DataSet
from cutaway.data.graphs.molecules import ATOM, BOND, read_molecules
from cutaway.data.graphs.transforms import GraphPreprocessing
from cutaway.data.open_data import open_data
from cutaway.data.settings import DataSettings
from cutaway.data.tables.delimited import Form

pytest.importorskip("rdkit")

# Alcohols, acids, rings and salts, whose number is that of their carbons: any will do here.
SMILES = ["CO", "CCO", "CCCO", "CC(=O)O", "c1ccccc1", "Cc1ccccc1", "CC#N", "C1CCCCC1", "[Na+].[Cl-]", "CC(N)C(=O)O"]


def table(folder: Path, smiles: list[str], target: list[str] | None = None, name: str = "m.csv") -> Path:
    path = folder / name
    answers = target or [f"{sum(sign in 'Cc' for sign in one) + k / 100}" for k, one in enumerate(smiles)]
    path.write_text("name,smiles,y\n" + "".join(f"m{k},{s},{y}\n" for k, (s, y) in enumerate(zip(smiles, answers))))
    return path


def opened(path: Path, **changes: object) -> DataSet:
    return open_data(path, DataSettings(**{"smiles": "smiles", "target": "y", "edge_attr": True} | changes))  # type: ignore[arg-type]


def test_atoms_and_bonds(tmp_path: Path) -> None:
    graphs = read_molecules(table(tmp_path, ["CC(=O)[O-] ", "c1cc[nH]c1", "[Na+]"]), "smiles", Form())
    assert graphs.table is not None
    assert graphs.edge_table is not None
    assert graphs.table.columns == [*ATOM]
    assert graphs.edge_table.columns == [*BOND]
    rows = graphs.table.frame.rows()
    assert rows[0] == ("Carbon", "1", "0", "3", "no", "no", "SP3")
    assert rows[3] == ("Oxygen", "1", "-1", "0", "no", "no", "SP2")
    assert rows[7] == ("Nitrogen", "2", "0", "1", "yes", "yes", "SP2")
    assert rows[9][:3] == ("Sodium", "0", "1")
    assert list(graphs.names)[:4] == ["C 1", "C 2", "O 3", "O 4"]
    assert list(graphs.graph_names) == ["CC(=O)[O-]", "c1cc[nH]c1", "[Na+]"]
    assert graphs.graph is not None
    assert graphs.graph.tolist() == [0] * 4 + [1] * 5 + [2]
    bonds = dict(zip(map(tuple, graphs.edges.T.tolist()), graphs.edge_table.frame.rows()))
    assert len(bonds) == 2 * (3 + 5)
    assert bonds[1, 2] == bonds[2, 1] == ("double", "yes", "no")
    assert bonds[4, 5] == bonds[5, 4] == ("aromatic", "yes", "yes")


INSULIN_SIZED = "N[C@@H](CC(C)C)C(=O)" * 55 + "O"  # 55 leucines: 441 atoms, with brackets and branches


@pytest.mark.parametrize(("smiles", "words"), [
    ("C(" * 1001, "1,001 atoms: at most 1,000"),
    ("C" * 1001, "1,001 atoms: at most 1,000"),
    ("[13C@@H]" * 1001, "1,001 atoms: at most 1,000"),
    ("C" + "(" * 10_000, "10,001 characters: at most 10,000"),
    ("*" + "*1*1" * 201, "201 rings: at most 200"),
    ("*" + "*%11*%11" * 201, "201 rings: at most 200"),
    ("*" + "*%(101)*%(101)" * 201, "201 rings: at most 200"),
    ("[#999]", "Atomic number not found"),
])  # fmt: skip
def test_rdkit_is_given_no_molecule_beyond_the_bounds(smiles: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=words) as said:
        read_molecules(table(tmp_path, ["CCO", smiles, "CO"]), "smiles", Form())
    assert [problem.where for problem in said.value.problems] == ["m.csv, line 3, column smiles"]


def test_molecules_at_the_bounds_are_read(tmp_path: Path) -> None:
    large = [INSULIN_SIZED, "C" * 1000, "C(" * 999 + "C" + ")" * 999, "*" + "*1**1" * 200, "C1CC1 " + "a" * 1500]
    graphs = read_molecules(table(tmp_path, large), "smiles", Form())
    assert graphs.graph is not None
    assert torch.tensor(graphs.graph).bincount().tolist() == [441, 1000, 1000, 601, 3]


def test_a_table_becomes_graphs_with_described_edges(tmp_path: Path) -> None:
    data = opened(table(tmp_path, SMILES * 3))
    spec = data.spec
    assert isinstance(spec, GraphSpec)
    assert isinstance(spec.target, Value)
    assert spec.graph_level
    x, edges, rows, batch, edge_attr = next(iter(data.splits["train"].batches([torch.arange(4)]))).inputs
    assert x.shape == (len(batch), spec.features)
    assert edge_attr.shape == (edges.shape[1], spec.edge_features)
    assert len(rows) == 0
    assert torch.equal(batch[edges[0]], batch[edges[1]])
    forth = {pair: tuple(known) for pair, known in zip(map(tuple, edges.t().tolist()), edge_attr.tolist())}
    assert all(forth[b, a] == known for (a, b), known in forth.items())
    for i in (0, 1):
        row = data.splits["test"].row(i)
        assert row is not None
        assert data.splits["test"].name(i) == row["smiles"]
    assert any("Possible leakage by duplicates across splits" in note for note in data.findings)
    kept = GraphPreprocessing.from_json(json.loads(json.dumps(data.preprocessing.to_json())))
    assert kept == data.preprocessing
    new = kept.examples([table(tmp_path, ["CCCCO", "C"], name="new.csv")])
    assert [new.name(i) for i in range(len(new))] == ["CCCCO", "C"]
    assert new.node_names([1]) == ["C 1"]  # type: ignore[union-attr]
    again = kept.labelled(table(tmp_path, SMILES[:3], name="three.csv"))
    assert again.target is not None
    assert len(again.target) == 3


def test_classes_and_models_that_take_atoms_alone(tmp_path: Path) -> None:
    path = table(tmp_path, SMILES * 2, [("wet", "dry")[k % 2] for k in range(20)])
    data = opened(path, edge_attr=None)
    assert isinstance(data.spec.target, Classes)
    assert len(next(iter(data.splits["train"].batches([torch.arange(2)]))).inputs) == 4
    assert any("Attributes of edges are left out, as this model takes none: bond" in note for note in data.notes)


def test_rows_that_are_no_molecule_are_named_or_left_out(tmp_path: Path) -> None:
    bad = [*SMILES * 3, "C1CC", "CO(C)C", "", "hello"]
    with pytest.raises(DataError, match=r"4 of 34 rows of m\.csv cannot be used") as caught:
        opened(table(tmp_path, bad))
    said = list(map(str, caught.value.problems))
    assert said[0].startswith("m.csv, line 32, column smiles: 'C1CC' is not a SMILES string")
    assert "valence" in said[1]
    assert "missing" in said[2]
    data = opened(table(tmp_path, bad), missing="drop")
    assert sum(map(len, data.splits.values())) == 3 * len(SMILES)
    assert any("missing=drop left out 4 of 34 rows of m.csv (11.8%): m.csv, line 32" in note for note in data.notes)
    with pytest.raises(DataError, match=r"missing=drop would leave nothing: 2 of 2 rows of none\.csv"):
        opened(table(tmp_path, ["x", "y"], name="none.csv"), missing="drop")


def test_what_cannot_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = table(tmp_path, SMILES)
    with pytest.raises(UnknownName, match="Similar: smiles"):
        opened(path, smiles="smile")
    with pytest.raises(SettingError, match="smiles=smiles is for graphs"):
        open_data("iris", DataSettings(smiles="smiles"))
    with pytest.raises(SettingError, match="missing=fill is for the cells of tables"):
        opened(path, missing="fill")
    with pytest.raises(SettingError, match="missing=drop is for graphs in files, and these are whole: leave it out"):
        open_data("karate", DataSettings(missing="drop"))
    with pytest.raises(SettingError, match="smiles=x is for tables of molecules"):
        open_data("karate", DataSettings(smiles="x"))
    monkeypatch.setitem(sys.modules, "rdkit", None)
    with pytest.raises(SettingError, match=r"pip install 'cutaway\[molecules\]'"):
        opened(path)
