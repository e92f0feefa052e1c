"""The curves of a run, as its report has them."""

from __future__ import annotations

from pathlib import Path

import pytest

import cutaway
from cutaway.views.inspect_page import build_page
from cutaway.views.registry import suits
from cutaway.views.run import training
from cutaway.views.run.documents import read_documents
from cutaway.views.run.training import curves as of_report
from cutaway.views.subject import open_preset, open_run


def test_the_view_is_that_of_the_report(tmp_path: Path) -> None:
    run = cutaway.train("softmax", "iris", epochs=20, tensorboard=False, out=tmp_path / "run")
    documents = read_documents(run.folder)
    assert training.draw_curves(open_run(run)) == of_report(documents.run, documents.metrics)
    loss = training.draw_curves(open_run(run))["drawings"][0]
    assert [len(series["points"]) for series in loss["series"]] == [20, 20]


@pytest.mark.parametrize("missing", ["metrics.csv", "evaluation.json"])
def test_a_run_without_the_documents_has_no_such_view(tmp_path: Path, missing: str) -> None:
    run = cutaway.train("softmax", "iris", epochs=1, tensorboard=False, out=tmp_path / "run")
    (run.folder / missing).unlink()
    names = [view["id"] for view in build_page(open_run(run))["views"]]
    assert ("curves" in names) == (missing != "metrics.csv")
    assert ("results" in names) == (missing != "evaluation.json")


def test_a_preset_has_none() -> None:
    assert not suits("curves", open_preset("softmax"))
