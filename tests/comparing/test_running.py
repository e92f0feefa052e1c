"""Comparisons: what is trained, once; what is found; how they are stopped, go on and say what cannot be."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import cutaway
from cutaway.comparing.contestants import contestants
from cutaway.comparing.result import Comparison
from cutaway.comparing.storage import read_about
from cutaway.comparing.worker import finished
from cutaway.errors import FileError, ModelError, SettingError, UnknownName

SHORT: dict[str, Any] = {"epochs": 3, "seeds": 2, "threads": 1, "jobs": 1}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    folder = tmp_path_factory.mktemp("compared") / "wine"
    return cutaway.compare("mlp,softmax,resnet20", "wine", out=folder, **SHORT)


def test_every_model_has_its_score_and_every_pair_its_difference(found: Comparison) -> None:
    (result,) = found.results
    rows = {row["name"]: row for row in result["models"]}
    assert {"mlp", "softmax", "gradient boosting", "nearest neighbors"} <= set(rows)
    for name in ("mlp", "softmax"):
        runs = [cutaway.load(folder) for folder in rows[name]["runs"]]
        assert [run.about["seed"] for run in runs] == [0, 1]
        own = [run.evaluate()["accuracy"].value for run in runs]
        assert rows[name]["scores"] == pytest.approx(own)
        assert rows[name]["value"] == pytest.approx(np.mean(own))
        assert rows[name]["low"] <= rows[name]["value"] <= rows[name]["high"]
    values = [row["value"] for row in result["models"]]
    assert values == sorted(values, reverse=True)
    assert len(result["differences"]) == len(rows) * (len(rows) - 1) // 2
    one, other = found.difference("mlp", "softmax"), found.difference("softmax", "mlp")
    assert one is not None
    assert other is not None
    assert one["value"] == pytest.approx(rows["mlp"]["value"] - rows["softmax"]["value"]) == -other["value"]
    assert one["probability"] == pytest.approx(1 - other["probability"])


def test_a_model_that_cannot_take_the_data_is_named_and_the_others_go_on(found: Comparison) -> None:
    (left_out,) = found.results[0]["excluded"]
    assert left_out["model"] == "resnet20"
    assert "takes image data" in left_out["why"]


def test_costs_are_measured(found: Comparison) -> None:
    for row in found.results[0]["models"]:
        assert row["seconds"] > 0
        assert row["milliseconds"] > 0
    mlp = next(row for row in found.results[0]["models"] if row["name"] == "mlp")
    assert mlp["parameters"] == sum(p.numel() for p in cutaway.load(mlp["runs"][0]).model.parameters())
    assert mlp["macs"] == 13 * 256 + 256 * 256 + 256 * 3


def test_scores_do_not_depend_on_how_many_are_trained_at_a_time(found: Comparison, tmp_path: Path) -> None:
    alone = cutaway.compare("softmax", "wine", out=tmp_path / "two", **{**SHORT, "jobs": 2, "baselines": False})
    for seed in range(2):
        (one, other) = (
            cutaway.load(folder / "wine" / "softmax" / f"seed-{seed}").model.state_dict()
            for folder in (alone.folder, found.folder)
        )
        assert all(torch.equal(one[name], other[name]) for name in one)


def test_the_page_says_it_and_asks_for_nothing(found: Comparison) -> None:
    page = found.report.read_text(encoding="utf-8")
    assert "http://" not in page.replace("http://www.w3.org", "")
    for said in (
        "What can be told apart",
        "What it costs",
        "gradient boosting",
        "cutaway compare mlp,softmax,resnet20",
    ):
        assert said in page


def test_what_is_trained_is_kept_and_more_seeds_are_added(found: Comparison) -> None:
    runs = {path: path.stat().st_mtime_ns for path in found.folder.glob("wine/*/*/run.json")}
    again = cutaway.compare(resume=found.folder, seeds=3)
    assert all(path.stat().st_mtime_ns == then for path, then in runs.items())
    assert len(list(found.folder.glob("wine/*/*/run.json"))) == len(runs) + 2
    assert all(len(row["scores"]) == 3 for row in again.results[0]["models"] if not row["simple"])


def test_a_comparison_that_was_killed_goes_on(tmp_path: Path) -> None:
    folder = tmp_path / "killed"
    words = ["mlp,softmax", "wine", "epochs=40", "seeds=2", "jobs=1", "threads=1", "baselines=false"]
    command = [sys.executable, "-m", "cutaway", "compare", *words, "--out", str(folder)]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, start_new_session=True)
    first = folder / "wine" / "mlp" / "seed-0"
    end = time.monotonic() + 60
    while not finished(first) and process.poll() is None and time.monotonic() < end:
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    before = (first / "run.json").stat().st_mtime_ns
    for _ in range(200):  # the worker ends when its parent has
        try:
            resumed = cutaway.compare(resume=folder)
            break
        except FileError:
            time.sleep(0.05)
    assert (first / "run.json").stat().st_mtime_ns == before
    assert read_about(folder)["status"] == "finished"
    assert all(len(row["scores"]) == 2 for row in resumed.results[0]["models"])


def test_several_data_sets_are_ranked(tmp_path: Path) -> None:
    both = cutaway.compare(["softmax"], ["wine", "iris"], out=tmp_path / "both", **{**SHORT, "seeds": 1})
    assert [result["data"] for result in both.results] == ["wine", "iris"]
    assert set(both.ranks) >= {"softmax", "gradient boosting", "linear model"}
    assert sum(rank.value for rank in both.ranks.values()) == pytest.approx(len(both.ranks) * (len(both.ranks) + 1) / 2)


def test_numbers_are_compared_by_their_error(tmp_path: Path) -> None:
    compared = cutaway.compare("linear", "diabetes", out=tmp_path / "numbers", **{**SHORT, "epochs": 20, "jobs": 1})
    (result,) = compared.results
    assert result["metric"] == "rmse"
    assert not result["higher_is_better"]
    row = next(row for row in result["models"] if row["name"] == "linear")
    own = [cutaway.load(folder).evaluate()["rmse"].value for folder in row["runs"]]
    assert row["scores"] == pytest.approx(own)
    values = [row["value"] for row in result["models"]]
    assert values == sorted(values)


def test_macs_are_a_budget() -> None:
    found, _ = contestants(["softmax", "mlp"], "wine", {"batch_size": 32}, 1e7)
    macs = {one.model: one.given["max_steps"] * 32 * (one.macs or 0) for one in found}
    assert macs["softmax"] == pytest.approx(1e7, rel=0.01)
    assert macs["mlp"] == pytest.approx(1e7, rel=0.3)  # which is few steps, and steps are whole


@pytest.mark.parametrize(
    ("models", "data", "given", "error", "said"),
    [
        ("mlp,resnet99", "wine", {}, UnknownName, "resnet99"),
        ("mlp", "wines", {}, UnknownName, "wine"),
        ("", "wine", {}, SettingError, "Models and data are needed"),
        ("mlp", "wine", {"seed": 3}, SettingError, "seeds=5 trains each"),
        ("mlp", "wine", {"epoch": 3}, UnknownName, "epochs"),
        ("resnet20,gpt2", "wine", {}, ModelError, "takes image data"),
        ("mlp", "wine", {"target": "colour"}, UnknownName, "no column"),
    ],
)
def test_what_cannot_be_compared_is_said(
    models: str, data: str, given: dict[str, Any], error: type[Exception], said: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=said):
        cutaway.compare(models, data, out=tmp_path / "out", **given)


def test_objects_are_compared_and_known_by_what_they_hold(tmp_path: Path) -> None:
    x, y = np.random.default_rng(0).normal(size=(60, 3)), np.arange(60) % 2
    given: dict[str, Any] = {**SHORT, "epochs": 1, "seeds": 1, "baselines": False, "out": tmp_path / "out"}
    compared = cutaway.compare("softmax", (x, y), test=(x[:20], y[:20]), **given)
    assert len(compared.results) == 1
    others: dict[str, Any] = {"data": (x, 1 - y), "test": (x[:20], y[:20])}
    with pytest.raises(SettingError, match="holds another comparison"):
        cutaway.compare("softmax", **others, **given)
    for again in ({}, others):
        with pytest.raises(SettingError, match=r"data was given in Python, arrays-.*give it again"):
            cutaway.compare(**again, resume=tmp_path / "out", seeds=2)
    more = cutaway.compare(data=(x, y), test=(x[:20], y[:20]), resume=tmp_path / "out", seeds=2)
    assert len(more.results[0]["models"][0]["runs"]) == 2
    with pytest.raises(SettingError, match="Linear is a module of one's own"):
        cutaway.compare([torch.nn.Linear(3, 2)], (x, y))  # type: ignore[list-item]


def test_another_comparison_is_not_overwritten(found: Comparison) -> None:
    with pytest.raises(SettingError, match="holds another comparison"):
        cutaway.compare("mlp", "wine", out=found.folder, **SHORT)
    with pytest.raises(SettingError, match="cannot change"):
        cutaway.compare(resume=found.folder, epochs=9)
    with pytest.raises(FileError, match="is no comparison"):
        cutaway.compare(resume=found.folder / "wine")


def test_what_is_typed_is_what_is_printed(found: Comparison, capsys: pytest.CaptureFixture[str]) -> None:
    from cutaway.commands import main

    assert main(["compare", "--resume", str(found.folder), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["results"][0]["models"][0]["name"] == found.best["name"]
    assert main(["compare", "--resume", str(found.folder)]) == 0
    assert "95 % interval" in capsys.readouterr().out
