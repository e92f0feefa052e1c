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
from cutaway.core.errors import FileError, ModelError, SettingError, UnknownName
from cutaway.core.files import read_json, write_json
from cutaway.core.schema import validate_document
from cutaway.core.spec import Horizon
from cutaway.experiments.compare.candidates import metric_for_task, select_candidates
from cutaway.experiments.compare.comparison_page import build_report
from cutaway.experiments.compare.result import PRINTED_SCHEMA, Comparison, read_comparison
from cutaway.experiments.compare.runner import train_all
from cutaway.experiments.compare.workers import Job, is_finished
from cutaway.models.registry import preset
from cutaway.statistics.intervals import too_few_windows
from cutaway.tasks.forecasting import Forecasting

pytestmark = pytest.mark.slow  # processes, or runs that are trained

SHORT: dict[str, Any] = {"epochs": 3, "seeds": 2, "threads": 1, "jobs": 1}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    folder = tmp_path_factory.mktemp("compared") / "wine"
    return cutaway.compare("mlp,softmax,resnet20", "wine", out=folder, **SHORT)


@pytest.mark.slow
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


def test_the_page_says_it_and_asks_for_nothing(found: Comparison) -> None:
    page = found.report.read_text(encoding="utf-8")
    assert "http://" not in page.replace("http://www.w3.org", "")
    for said in (
        "Significance of differences",
        "Cost",
        "gradient boosting",
        "cutaway compare mlp,softmax,resnet20",
    ):
        assert said in page


def test_nothing_on_the_page_is_off_its_scale(found: Comparison) -> None:
    drawings = [one for view in build_report(found)["views"] for one in view["drawings"] if one["kind"] == "rows"]
    assert len(drawings) == 2  # scores and differences
    for drawing in drawings:
        low, high = drawing["columns"][0]["domain"]
        for cell in (row["cells"][0] for row in drawing["rows"]):
            assert low <= cell["low"] <= cell["value"] <= cell["high"] <= high


def test_joules_are_told_or_why_they_are_not(found: Comparison) -> None:
    def said(joules: float | None, **result: Any) -> tuple[str, list[str]]:
        about = found.about
        models = [{**row, "joules": joules} for row in found.results[0]["models"]]
        other = Comparison(found.folder)
        other.about = {**about, "results": [{**found.results[0], "models": models, **result}]}
        (view,) = (view for view in build_report(other)["views"] if view["id"] == "costs")
        options = view["drawings"][0]["options"]
        return view["drawings"][-1]["sentences"][0], [option["name"] for option in options]

    assert said(None, tells_joules=False)[0] == "Energy: not available on this machine."
    assert "Set jobs=1 to measure it" in said(None, tells_joules=True, jobs=2)[0]
    sentence, options = said(12.5, tells_joules=True, jobs=1)
    assert sentence.startswith("Joules are those of the processors")
    assert {"training", "memory", "joules"} <= set(options)


@pytest.mark.slow
def test_what_is_trained_is_kept_and_more_seeds_are_added(found: Comparison) -> None:
    runs = {path: path.stat().st_mtime_ns for path in found.folder.glob("wine/*/*/run.json")}
    again = cutaway.compare(resume=found.folder, seeds=3)
    assert all(path.stat().st_mtime_ns == then for path, then in runs.items())
    assert len(list(found.folder.glob("wine/*/*/run.json"))) == len(runs) + 2
    assert all(len(row["scores"]) == 3 for row in again.results[0]["models"] if not row["simple"])


@pytest.mark.slow
def test_two_at_a_time_killed_and_resumed_one_at_a_time_is_the_same(found: Comparison, tmp_path: Path) -> None:
    """Scores depend neither on how many are trained at a time nor on a kill; what had ended is not trained again."""
    folder = tmp_path / "killed"
    words = ["mlp,softmax", "wine", "epochs=3", "seeds=2", "jobs=2", "threads=1", "baselines=false"]
    command = [sys.executable, "-m", "cutaway", "compare", *words, "--out", str(folder)]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, start_new_session=True)
    ended: list[Path] = []
    end = time.monotonic() + 600  # of a machine that much else may run on
    while not ended and process.poll() is None and time.monotonic() < end:
        time.sleep(0.01)
        ended = [path.parent for path in folder.glob("wine/*/*/run.json") if is_finished(path.parent)]
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    before = {path: (path / "run.json").stat().st_mtime_ns for path in ended}
    assert before
    resumed = cutaway.compare(resume=folder, jobs=1)  # the workers end when their parent has
    assert {path: (path / "run.json").stat().st_mtime_ns for path in ended} == before
    assert read_comparison(folder)["status"] == "finished"
    for row in resumed.results[0]["models"]:
        assert row["scores"] == next(one["scores"] for one in found.results[0]["models"] if one["name"] == row["name"])
        for path in row["runs"]:
            same = found.folder / Path(path).relative_to(folder)
            one, other = (cutaway.load(run).model.state_dict() for run in (path, same))
            assert all(torch.equal(one[name], other[name]) for name in one)


def test_each_model_is_tried_before_on_the_validation_split(tmp_path: Path) -> None:
    pytest.importorskip("optuna", reason="trials are Optuna's")
    rng = np.random.default_rng(0)
    x = rng.standard_normal((90, 3)).astype(np.float32)
    data = x, (x[:, 0] > 0).astype(np.int64)
    how = {**SHORT, "seeds": 1, "trials": 2, "baselines": False}
    compared = cutaway.compare("softmax", data, out=tmp_path / "tried", **how)
    (result,) = compared.results
    chosen = result["chosen"]["softmax"]
    assert set(chosen) == {"lr", "weight_decay"}
    run = cutaway.load(result["models"][0]["runs"][0])
    assert run.about["settings"]["lr"] == pytest.approx(chosen["lr"])
    search = read_json(compared.folder / "data" / "softmax" / "search" / "search.json")
    assert search["trials"] == 2
    assert search["tested"] == []
    rows = [row for view in build_report(compared)["views"] if view["id"] == "method" for row in view["table"]["rows"]]
    assert ["softmax, by its trials", f"lr={chosen['lr']:g}, weight_decay={chosen['weight_decay']:g}"] in rows
    with pytest.raises(SettingError, match="was passed in Python: pass it again"):
        cutaway.compare(resume=compared.folder)
    with pytest.raises(SettingError, match="has changed since"):
        cutaway.compare(data=(x, (x[:, 1] > 0).astype(np.int64)), resume=compared.folder, seeds=2)
    again = cutaway.compare(data=data, resume=compared.folder, seeds=1)  # trials that have ended are not made again
    assert again.results[0]["models"][0]["scores"] == result["models"][0]["scores"]
    assert again.results[0]["chosen"]["softmax"] == chosen


@pytest.mark.slow
def test_several_data_sets_are_ranked(tmp_path: Path) -> None:
    both = cutaway.compare(["softmax"], ["wine", "iris"], out=tmp_path / "both", **{**SHORT, "seeds": 1})
    assert [result["data"] for result in both.results] == ["wine", "iris"]
    assert set(both.ranks) >= {"softmax", "gradient boosting", "linear model"}
    assert sum(rank.value for rank in both.ranks.values()) == pytest.approx(len(both.ranks) * (len(both.ranks) + 1) / 2)


@pytest.mark.slow
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


def test_a_training_that_fails_is_named_and_the_others_go_on(tmp_path: Path) -> None:
    how = {"epochs": 1, "threads": 1, "tensorboard": False}
    sources = {"bad": str(tmp_path / "none.csv"), "good": "wine"}
    jobs = [Job(preset("softmax"), source, how, tmp_path / name, alone=True) for name, source in sources.items()]
    told: list[Path] = []
    failed = train_all(jobs, 1, lambda job, why: told.append(job.folder))
    assert list(failed) == jobs[:1]
    assert "none.csv" in failed[jobs[0]]
    assert told == [job.folder for job in jobs]
    assert is_finished(tmp_path / "good")


def test_macs_are_a_budget() -> None:
    found, _ = select_candidates([preset("softmax"), preset("mlp")], "wine", {"batch_size": 32}, 1e7)
    macs = {one.model: one.given["max_steps"] * 32 * (one.macs or 0) for one in found}
    assert macs["softmax"] == pytest.approx(1e7, rel=0.01)
    assert macs["mlp"] == pytest.approx(1e7, rel=0.3)  # which is few steps, and steps are whole


@pytest.mark.parametrize(
    ("models", "data", "given", "error", "said"),
    [
        ("mlp,resnet99", "wine", {}, UnknownName, "resnet99"),
        ("mlp", "wines", {}, UnknownName, "wine"),
        ("", "wine", {}, SettingError, "Missing models or data"),
        ("mlp", "wine", {"seed": 3}, SettingError, "seeds=5 trains each"),
        ("mlp", "wine", {"epoch": 3}, UnknownName, "epochs"),
        ("mlp", "wine", {"model.hidden_dims": 4}, SettingError, "a comparison has the same settings for all models"),
        ("resnet20,gpt2", "wine", {}, ModelError, "takes image data"),
        ("mlp", "wine", {"target": "colour"}, UnknownName, "no column"),
    ],
)
def test_what_cannot_be_compared_is_said(
    models: str, data: str, given: dict[str, Any], error: type[Exception], said: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=said):
        cutaway.compare(models, data, out=tmp_path / "out", **given)


def test_another_comparison_is_not_overwritten(found: Comparison) -> None:
    with pytest.raises(SettingError, match="holds another comparison"):
        cutaway.compare("mlp", "wine", out=found.folder, **SHORT)
    with pytest.raises(SettingError, match="cannot change"):
        cutaway.compare(resume=found.folder, epochs=9)
    with pytest.raises(FileError, match="is not a comparison"):
        cutaway.compare(resume=found.folder / "wine")


def test_a_document_that_was_edited_is_rejected_by_its_key(found: Comparison, tmp_path: Path) -> None:
    about = read_json(found.folder / "compare.json")
    about["results"][0]["models"][1]["seconds"] = "long"
    write_json(tmp_path / "compare.json", about)
    with pytest.raises(FileError, match=r"results\[0\].models\[1\].seconds is a string, and must be a number"):
        Comparison(tmp_path)
    about["results"][0]["models"][1]["seconds"] = 1.5
    about["compare"]["seeds"] = ["3"]
    write_json(tmp_path / "compare.json", about)
    with pytest.raises(FileError, match=r"compare.seeds is a list, and must be an integer"):
        Comparison(tmp_path)


def test_what_is_typed_is_what_is_printed(found: Comparison, capsys: pytest.CaptureFixture[str]) -> None:
    from cutaway.apps.cli import main

    assert main(["compare", "--resume", str(found.folder), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    validate_document(document, PRINTED_SCHEMA, found.folder, "")
    assert document["results"][0]["models"][0]["name"] == found.best["name"]
    assert main(["compare", "--resume", str(found.folder)]) == 0
    assert "95 % interval" in capsys.readouterr().out


@pytest.mark.parametrize(("series", "few"), [((), 15), (("a", "b", "c"), 47)])
def test_forecasts_are_compared_by_the_blocks_of_their_evaluation(series: tuple[str, ...], few: int) -> None:
    """Windows that overlap, of all series, are of one block; what too few of them say has no interval in either."""
    task = Forecasting(Horizon(1, ("load",), (50.0,), (4.0,), series=series))
    compared = metric_for_task(task)
    outputs = torch.randn(200, 1, generator=torch.Generator().manual_seed(2), dtype=torch.float64).cumsum(0)
    target = torch.zeros_like(outputs)
    target[3] = torch.nan
    blocks = compared.per_example(outputs, target)
    assert len(blocks) == 12
    assert np.sqrt(blocks.mean()) == pytest.approx(task.metrics(outputs, target)["rmse"].value)
    found = task.metrics(outputs[:few], target[:few])["rmse"]
    assert compared.per_example(outputs[:few], target[:few]).shape == (1,)
    assert found.note == f"no interval: {too_few_windows(few, compared.overlap)}"
    more = outputs[: few + 1]
    assert len(compared.per_example(more, target[: few + 1])) == 8
    assert not task.metrics(more, target[: few + 1])["rmse"].note


def test_a_comparison_without_trials_needs_no_optuna(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['optuna'] = None; import cutaway; "
        f"cutaway.compare('softmax', 'iris', out={str(tmp_path / 'a')!r}, epochs=1, seeds=1, jobs=1)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "a" / "report.html").is_file()
