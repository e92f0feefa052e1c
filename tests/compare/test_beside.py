"""Simple models beside the score of one run: which there is time for, what they score, and where it is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from cutaway.apps.cli.train import result_lines
from cutaway.core.files import read_json, write_json
from cutaway.experiments.compare.baselines import MARGIN, MIN_SECONDS, _expected_seconds, baselines_for, score_baselines
from cutaway.reports.run_report import build_report
from cutaway.runs.run import Run
from cutaway.runs.train import train_model
from cutaway.views.run.documents import read_documents


def trained(model: str, data: str, folder: Path, seconds: float) -> Run:
    """A run that is said to have taken so many seconds."""
    run = train_model(model, data, {"epochs": 2, "threads": 1, "tensorboard": False}, out=folder)
    write_json(folder / "run.json", {**read_json(folder / "run.json"), "seconds": seconds})
    return Run(run.folder)


@pytest.mark.parametrize(("data", "model", "key"), [("wine", "softmax", "accuracy"), ("diabetes", "linear", "rmse")])
def test_a_long_training_is_held_against_all_of_them(data: str, model: str, key: str, tmp_path: Path) -> None:
    run = trained(model, data, tmp_path / "run", 3_600.0)
    score_baselines(run)
    simple = read_json(run.folder / "evaluation.json")["simple"]
    opened = run.data()
    split = opened.splits["test"]
    own = {
        baseline.name: run.task.metrics(baseline.fit(opened, 0).outputs(split), split.target)[key].value
        for baseline in baselines_for(opened, run.task)[1:]
    }
    assert {one["name"]: one["value"] for one in simple["models"]} == pytest.approx(own)
    assert simple["left_out"] == []
    values = [one["value"] for one in simple["models"]]
    assert values == sorted(values, reverse=key == "accuracy")
    head = build_report(read_documents(run.folder))["views"][0]
    best = simple["models"][0]["name"]
    assert f"{best} (baseline): " in head["summary"]
    assert best in [row[0] for row in head["table"]["rows"]]
    assert f"; {best}: " in result_lines(run)[0]
    before = (run.folder / "evaluation.json").stat().st_mtime_ns
    score_baselines(run)  # which is known
    assert (run.folder / "evaluation.json").stat().st_mtime_ns == before


def test_a_short_training_is_held_against_none(tmp_path: Path) -> None:
    run = trained("softmax", "wine", tmp_path / "run", 10 * MIN_SECONDS - 0.01)
    score_baselines(run)
    assert "simple" not in read_json(run.folder / "evaluation.json")
    assert "(baseline)" not in build_report(read_documents(run.folder))["views"][0]["summary"]


def test_what_takes_too_long_is_left_out_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = trained("softmax", "wine", tmp_path / "run", 3_600.0)
    timed = iter([0.0, 0.0, 0.0])  # for the first model alone

    def expected(*_: object) -> float:
        return next(timed, 1e9)

    monkeypatch.setattr("cutaway.experiments.compare.baselines._expected_seconds", expected)
    score_baselines(run)
    simple = read_json(run.folder / "evaluation.json")["simple"]
    assert [one["name"] for one in simple["models"]] == ["nearest neighbors"]
    assert simple["left_out"] == ["linear model", "random forest", "gradient boosting"]
    page = str(build_report(read_documents(run.folder))["views"][0]["drawings"])
    assert "Not fitted, to save time: linear model, random forest, gradient boosting." in page


def test_data_that_is_gone_is_no_error(tmp_path: Path) -> None:
    rows = ["a,b,kind", *(f"{i},{i % 7},{'xy'[i % 2]}" for i in range(60))]
    (tmp_path / "some.csv").write_text("\n".join(rows))
    train_model(
        "softmax", str(tmp_path / "some.csv"), {"epochs": 1, "target": "kind", "threads": 1}, out=tmp_path / "run"
    )
    write_json(tmp_path / "run" / "run.json", {**read_json(tmp_path / "run" / "run.json"), "seconds": 3_600.0})
    (tmp_path / "some.csv").unlink()
    score_baselines(Run(tmp_path / "run"))
    assert "simple" not in read_json(tmp_path / "run" / "evaluation.json")


def test_a_fit_takes_what_the_last_two_say() -> None:
    assert _expected_seconds([], 32) == MIN_SECONDS
    assert _expected_seconds([(32, 0.5), (128, 0.5)], 512) == pytest.approx(
        MARGIN * 0.5
    )  # it is the same for any number
    assert _expected_seconds([(100, 1.0), (200, 2.0)], 800) == pytest.approx(MARGIN * 8)  # it is in proportion
    assert _expected_seconds([(32, 0.5), (128, 0.1)], 512) == pytest.approx(MARGIN * 0.1)  # the first was slow to begin
