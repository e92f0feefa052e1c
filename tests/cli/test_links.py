"""Links from the command line: a novel's characters, from files to missing links, the report and what is inside."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

import pytest

import cutaway
from cutaway.core.errors import DataError, ModelError, SettingError
from cutaway.data.synthetic import write_example
from cutaway.runs.run import Run

from .conftest import Answer

Cli = Callable[..., Answer]
QUICK = {"epochs": 30, "tensorboard": False, "threads": 1}


@pytest.fixture(scope="module")
def novel(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run on the characters of Les Misérables."""
    folder = tmp_path_factory.mktemp("novel")
    write_example("novel/", folder)
    (folder / "pairs.csv").write_text("source,target\nJavert,Valjean\nMyriel,Javert\n")
    return cutaway.train("gae", folder / "novel", out=folder / "run", **QUICK)


def test_missing_links_are_told_and_written(novel: Run, cli: Cli, tmp_path: Path) -> None:
    graph = novel.folder.parent / "novel"
    out = tmp_path / "missing.csv"
    answer = cli("predict", novel.folder, graph, "--out", out)
    assert answer.status == 0, answer.err
    with out.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    met = {frozenset(row) for row in csv.reader((graph / "edges.csv").open(encoding="utf-8"))}
    pairs = [frozenset((row["source"], row["target"])) for row in rows]
    assert len(set(pairs)) == 50
    assert not met & set(pairs)
    said = [float(row["probability"]) for row in rows]
    assert said == sorted(said, reverse=True)
    asked = novel.predict([graph, novel.folder.parent / "pairs.csv"])
    assert [(row["source"], row["target"], row["in the graph"]) for row in asked] == [
        ("Javert", "Valjean", "yes"),
        ("Myriel", "Javert", "no"),
    ]
    assert asked[0]["probability"] > asked[1]["probability"]
    # Some nodes at a time are as all at once; characters who meet the same others are equally likely.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("cutaway.runs.predict.PAIRS_PER_CHUNK", 200)
        again = novel.predict(graph)
    assert [row["probability"] for row in again] == pytest.approx(said, rel=1e-5)


def test_a_run_has_its_scores_and_its_report(novel: Run) -> None:
    found = json.loads((novel.folder / "evaluation.json").read_text())
    assert found["watch"] == "auc"
    assert found["metrics"]["auc"]["value"] == novel.evaluate()["auc"].value
    assert found["baseline"]["name"] == "common-neighbors baseline"
    counts = found["links"]["counts"]
    assert sum(counts["link"]) == sum(counts["no link"]) == 25
    held_out = [link for link in found["links"]["graph"]["links"] if link["probability"] is not None]
    assert len(held_out) == 25
    assert not any(link["taught"] for link in held_out)
    page = (novel.folder / "report.html").read_text(encoding="utf-8")
    assert "Links and absent links" in page
    with pytest.raises(DataError, match="was trained on the links of its own graph"):
        novel.evaluate(novel.folder.parent / "novel")


def test_inside_are_the_nodes_by_name(novel: Run) -> None:
    seen = cutaway.look(novel.folder, view=["graph", "embeddings", "attribution", "results"])
    labels = {point["label"] for point in seen["embeddings"]["drawings"][0]["points"]}
    assert len(labels) == 77
    assert "Valjean" in labels
    assert {"Valjean"} <= {node["label"] for node in seen["graph"]["drawings"][0]["nodes"]}
    assert " – " in seen["attribution"]["says"]


def test_karate_is_asked_for_by_its_name(cli: Cli, tmp_path: Path) -> None:
    run = cutaway.train("graphsage", "karate", out=tmp_path / "run", links=True, **{**QUICK, "epochs": 3})
    assert run.about["data"]["splits"] == {"train": 132, "val": 8, "test": 16}
    assert len(run.predict("karate")) == 50
    answer = cli("check", "gat", "karate", "links=true")
    assert answer.status == 0, answer.err
    assert "link prediction, 132 train" in answer.out
    with pytest.raises(ModelError, match=r"link: these models learn it: gae, gat, gcn, graphsage"):
        cutaway.train("gin", "karate", out=tmp_path / "no", links=True)


@pytest.mark.usefixtures("shared_data")
def test_links_are_of_one_graph(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="links=true predicts the edges of one graph, and MUTAG holds 188 graphs"):
        cutaway.train("gcn", "mutag", out=tmp_path / "no", links=True)
