"""The page of a search: its views, from its trials."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cutaway.draw.description import View
from cutaway.experiments.search.result import Search, SearchProgress
from cutaway.experiments.search.search_page import build_report
from cutaway.experiments.search.study import search
from cutaway.models.cellnet import LARGEST


def views(found: Search) -> dict[str, View]:
    return {view["id"]: view for view in build_report(found)["views"]}


def test_the_page_says_what_the_rows_say(small: Callable[..., Search]) -> None:
    found = small(trials=6, max_macs=100, sampler="random")
    best, page = found.best, views(found)
    assert best is not None
    assert list(page) == ["result", "front", "so-far", "importance", "trials"]
    assert f"Trial {best['trial']} is the best" in page["result"]["summary"]
    assert "evaluated once, for the winner" in json.dumps(page["result"]["drawings"])
    assert [row[0] for row in page["front"]["table"]["rows"]] == [row["trial"] for row in found.front]
    (chosen,) = page["front"]["drawings"]
    shown = chosen["options"][1]["drawings"][0]
    assert len(shown["dots"]) == len(found.finished)
    assert shown["steps"] == [[row["macs"], row["accuracy"]] for row in found.front]
    assert shown["dots"][shown["chosen"]]["y"] == best["accuracy"]
    steps = page["so-far"]["drawings"][0]["steps"]
    assert steps[-1][1] == best["accuracy"]
    assert [y for _, y in steps] == sorted({y for _, y in steps})
    table = page["trials"]["table"]["rows"]
    assert len(table) == len(found.trials)
    assert table[0][0] == best["trial"]
    assert {row[1] for row in table} == {"finished", "rejected"}
    slices = page["importance"]["drawings"][-1]["options"]
    assert {one["name"] for one in slices} == set(found.space.parts())


def test_of_an_error_less_is_better(tmp_path: Path) -> None:
    given = {"trials": 5, "epochs": 2, "tensorboard": False, "pruner": "none", "lr": "1e-3..1e-1:log"}
    found = search("mlp", "diabetes", given, out=tmp_path / "search", progress=SearchProgress(shown=False))
    best = found.best
    assert best is not None
    assert best["rmse"] == min(row["rmse"] for row in found.finished)
    steps = views(found)["so-far"]["drawings"][0]["steps"]
    assert [y for _, y in steps] == sorted((y for _, y in steps), reverse=True)
    assert steps[-1][1] == best["rmse"]


def test_cells_that_the_gradient_found_are_shown(tmp_path: Path) -> None:
    given: dict[str, Any] = {
        "model.arch": "cells", "sampler": "darts", "trials": 1, "darts_epochs": 1, "epochs": 1, "max_samples": 60,
        "tensorboard": False, "model.channels": 2,
    }  # fmt: skip
    found = search("cellnet-small", "digits", given, out=tmp_path / "search", progress=SearchProgress(shown=False))
    page = views(found)
    best = found.best
    assert best is not None
    assert best["model.arch"] in page["weights"]["summary"]
    assert best["model.arch"] != LARGEST
    for row in page["weights"]["table"]["rows"]:
        assert sum(row[1:]) == pytest.approx(1)
    assert best["work"] > 60 * best["macs"], "the supernet is counted too"
    assert found.run.about["model_settings"]["arch"] == best["model.arch"]
