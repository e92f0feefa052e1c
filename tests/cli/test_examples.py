"""cutaway examples."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from cutaway.apps.cli.data import TRY
from cutaway.data.synthetic import EXAMPLES, write_example

from .conftest import Answer

Cli = Callable[..., Answer]


@pytest.fixture(scope="module")
def every(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all of them."""
    folder = tmp_path_factory.mktemp("examples")
    assert all(write_example(name, folder) for name in EXAMPLES)
    return folder


def test_examples_are_written_by_name_and_marked_as_synthetic_or_real(cli: Cli) -> None:
    answer = cli("examples", "wine", "graph/", "visits.csv")
    assert answer.status == 0, answer.err
    assert sorted(path.name for path in Path().iterdir()) == ["graph", "visits.csv", "wine.csv"]
    assert ["(made up)" in line for line in answer.out.splitlines()[1:]] == [False, False, True]


def test_what_is_there_is_left_as_it_is(cli: Cli) -> None:
    Path("wine.csv").write_text("mine")
    answer = cli("examples", "wine", "graph")
    assert answer.status == 0
    assert "wine.csv" in answer.err
    assert "graph" not in answer.err
    assert Path("wine.csv").read_text() == "mine"
    written = json.loads(cli("examples", "wine", "--out", "new", "--json").out)
    assert [row["written"] for row in written] == [True]
    assert Path("new/wine.csv").read_text() != "mine"


def test_a_kill_leaves_nothing_half_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: Path) -> None:
        path.mkdir()
        raise KeyboardInterrupt

    monkeypatch.setitem(EXAMPLES, "graph/", EXAMPLES["graph/"].__class__("graph/", "", fail))
    with pytest.raises(KeyboardInterrupt):
        write_example("graph/", tmp_path)
    assert not list(tmp_path.iterdir())


def test_an_unknown_name_is_rejected_with_the_nearest(cli: Cli) -> None:
    answer = cli("examples", "vine")
    assert answer.status == 2
    assert "wine" in answer.said


def test_a_folder_that_cannot_be_written_is_named(cli: Cli) -> None:
    Path("file").write_text("")
    answer = cli("examples", "wine", "--out", "file")
    assert answer.status == 2
    assert "file/wine.csv could not be written" in answer.said


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(TRY) - {"damaged/"}))
def test_what_to_try_fits_the_data(cli: Cli, every: Path, name: str) -> None:
    for path in every.iterdir():
        Path(path.name).symlink_to(path)
    _, *words = TRY[name].split()
    small = ["batch_size=4"] if name in ("photographs/", "scans/", "videos/", "dates.tsv") else []
    answer = cli("check", *words, *small)  # which times ten steps
    assert answer.status == 0, answer.err


def test_molecules_have_the_listed_weights(every: Path) -> None:
    chem = pytest.importorskip("rdkit.Chem")
    descriptors = pytest.importorskip("rdkit.Chem.Descriptors")
    with (every / "molecules.csv").open(encoding="utf-8", newline="") as file:
        rows = [(chem.MolFromSmiles(row["smiles"]), float(row["weight"])) for row in csv.DictReader(file)]
    assert len({chem.MolToSmiles(molecule) for molecule, _ in rows}) == 800  # each stands there once
    for molecule, weight in rows:  # RDKit rounds some masses otherwise, the 16th atom's too
        assert descriptors.MolWt(molecule) == pytest.approx(weight, abs=16 * 2e-3)


def test_damaged_files_are_named(cli: Cli, every: Path) -> None:
    Path("damaged").symlink_to(every / "damaged")
    answer = cli(*TRY["damaged/"].split())
    assert answer.status == 2
    assert "progressive.jpg" in answer.said
    assert "plain.png" in answer.said


def test_every_example_can_be_tried() -> None:
    assert TRY.keys() == EXAMPLES.keys()


def test_summaries_are_first_lines_of_docstrings(tmp_path: Path) -> None:
    assert write_example("summaries.tsv", tmp_path)
    lines = (tmp_path / "summaries.tsv").read_text(encoding="utf-8").splitlines()
    rows = [tuple(line.split("\t")) for line in lines]
    assert {len(row) for row in rows} == {2}
    assert 1_800 < len(rows) == len({description for description, _ in rows})  # depends on the installed versions
    summary = next(summary for description, summary in rows if description.startswith("load_iris: "))
    assert summary == "Load and return the iris dataset (classification)."
    assert all(summary.endswith(".") and 3 <= len(summary.split()) <= 14 for _, summary in rows)
    assert all(11 <= len(description.split()) <= 41 for description, _ in rows)


def test_a_folder_in_place_of_a_name_is_told_its_option(cli: Cli) -> None:
    answer = cli("examples", ".")
    assert answer.status == 2
    assert "There is no example '.'" in answer.err
    assert "--out ." in answer.err
