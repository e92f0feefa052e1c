"""Experiment trackers: what the real libraries have recorded offline, and runs that are resumed."""

from __future__ import annotations

import json
import math
import struct
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import cutaway
from cutaway.core.errors import CutawayWarning, SettingError, TrainingError
from cutaway.training.checkpoint import TrainingState
from cutaway.training.run_folder import read_metrics
from cutaway.training.trackers import Tracker, end_tracker, start_tracker

from .conftest import stopping

GIVEN: dict[str, Any] = {"threads": 1, "batch_size": 32, "tensorboard": False, "verbose": False}
BLOCK, HEAD = 32768, 7  # bytes of LevelDB's log format


@pytest.fixture(autouse=True)
def _offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    for name in ("WANDB_PROJECT", "WANDB_NAME", "WANDB_DIR", "MLFLOW_EXPERIMENT_NAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")


def recorded_rows(run: cutaway.Run) -> list[dict[str, float]]:
    """The rows of metrics.csv, by column."""
    rows = read_metrics(run.folder / "metrics.csv")
    return [{key: float(value) for key, value in row.items() if value is not None} for row in rows]


# --- Weights & Biases ---------------------------------------------------------------------------------------------


def records(path: Path) -> Iterator[Any]:
    """The records of an offline file of W&B: protocol buffers in LevelDB's log format."""
    pb = pytest.importorskip("wandb.proto.wandb_internal_pb2")
    data, at, parts = path.read_bytes(), HEAD, b""  # after W&B's own header
    while at + HEAD <= len(data):
        if BLOCK - at % BLOCK < HEAD:
            at += BLOCK - at % BLOCK
            continue
        _, size, kind = struct.unpack("<IHB", data[at : at + HEAD])
        parts += data[at + HEAD : at + HEAD + size]
        at += HEAD + size
        if kind in (1, 4):  # full, last
            record = pb.Record()
            record.ParseFromString(parts)
            parts = b""
            yield record


def items(some: Any) -> dict[str, Any]:
    return {item.key or ".".join(item.nested_key): json.loads(item.value_json) for item in some}


def offline_files() -> list[Path]:
    return sorted(Path("wandb").glob("offline-run-*/*.wandb"))


def test_wandb_gets_settings_rows_and_test_metrics() -> None:
    pytest.importorskip("wandb")
    run = cutaway.train("mlp", "wine", epochs=3, tracker="wandb", out="run", **GIVEN)
    (path,) = offline_files()
    found = list(records(path))
    (begun,) = [record.run for record in found if record.HasField("run")]
    assert (begun.run_id, begun.project, begun.display_name) == (run.about["tracker"]["id"], "cutaway", "run")
    config = {item.key: json.loads(item.value_json) for item in begun.config.update}
    assert (config["model"], config["data"], config["lr"]) == ("mlp", "wine", run.about["settings"]["lr"])
    logged = [items(record.history.item) for record in found if record.HasField("history")]
    rows = recorded_rows(run)
    assert len(logged) == len(rows) >= 3
    for seen, row in zip(logged, rows):
        assert seen["_step"] == row["step"]
        for key, value in row.items():
            assert key == "step" or math.isclose(seen[key], value, rel_tol=1e-5)
    summary: dict[str, Any] = {}
    for record in found:
        if record.HasField("summary"):
            summary |= items(record.summary.update)
    assert summary["test_accuracy"] == run.evaluate()["accuracy"].value
    assert summary["test_accuracy_low"] < summary["test_accuracy"]
    (ended,) = [record.exit for record in found if record.HasField("exit")]
    assert ended.exit_code == 0
    whole = path.read_bytes()
    for private in (b"class_0", str(Path.cwd()).encode(), b"requirements.txt"):
        assert private not in whole  # neither classes, nor paths, nor what is installed


def test_a_resumed_run_goes_on_in_the_same_run_of_wandb() -> None:
    pytest.importorskip("wandb")
    with stopping(6):
        cutaway.train("mlp", "wine", epochs=4, tracker="wandb", out="run", **GIVEN)
    run = cutaway.train(resume="run", verbose=False)
    first, second = offline_files()
    assert first.stem == second.stem == f"run-{run.about['tracker']['id']}"
    steps = [
        [items(record.history.item)["_step"] for record in records(path) if record.HasField("history")]
        for path in (first, second)
    ]
    assert steps[0] + steps[1] == [row["step"] for row in recorded_rows(run)]
    codes = [record.exit.exit_code for path in (first, second) for record in records(path) if record.HasField("exit")]
    assert codes == [1, 0]


@pytest.mark.slow
def test_two_processes_are_tracked_once() -> None:
    pytest.importorskip("wandb")
    run = cutaway.train("mlp", "wine", epochs=2, tracker="wandb", processes=2, out="run", **GIVEN)
    (path,) = offline_files()
    logged = [record for record in records(path) if record.HasField("history")]
    assert len(logged) == len(recorded_rows(run))


def test_nothing_is_tracked_without_the_setting() -> None:
    run = cutaway.train("softmax", "iris", epochs=1, out="run", **GIVEN)
    assert "tracker" not in run.about
    assert not Path("wandb").exists()
    code = "import cutaway, sys; cutaway.train; assert not {'wandb', 'mlflow'} & {*sys.modules}"
    subprocess.run([sys.executable, "-c", code], check=True)


# --- MLflow -------------------------------------------------------------------------------------------------------


def test_mlflow_gets_settings_rows_and_test_metrics_and_a_resumed_run() -> None:
    mlflow = pytest.importorskip("mlflow")
    with stopping(6):
        cutaway.train("mlp", "wine", epochs=4, tracker="mlflow", out="run", **GIVEN)
    client = mlflow.MlflowClient()
    known = cutaway.Run("run").about["tracker"]["id"]
    assert client.get_run(known).info.status == "KILLED"
    run = cutaway.train(resume="run", verbose=False)
    experiment = client.get_experiment_by_name("cutaway")
    (found,) = client.search_runs([experiment.experiment_id])
    assert (found.info.run_id, found.info.status, found.info.run_name) == (known, "FINISHED", "run")
    assert found.data.params["model"] == "mlp"
    assert float(found.data.params["lr"]) == run.about["settings"]["lr"]
    rows = recorded_rows(run)
    for key in ("train_loss", "val_accuracy", "lr"):
        history = sorted((point.step, point.value) for point in client.get_metric_history(known, key))
        assert history == [(row["step"], row[key]) for row in rows if key in row], key
    assert found.data.metrics["test_accuracy"] == run.evaluate()["accuracy"].value


# --- TensorBoard --------------------------------------------------------------------------------------------------


def test_tensorboard_is_a_tracker_too() -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    run = cutaway.train("mlp", "wine", epochs=3, out="run", **{**GIVEN, "tensorboard": False}, tracker="tensorboard")
    events = accumulator.EventAccumulator(str(run.folder)).Reload()
    losses = [(point.step, point.value) for point in events.Scalars("train_loss")]
    assert losses == [(row["step"], pytest.approx(row["train_loss"])) for row in recorded_rows(run)]


# --- errors -------------------------------------------------------------------------------------------------------


class Unreachable(Tracker):
    """A tracker whose service is away for the first rows."""

    name, HINT = "unreachable", "Wait."

    def __init__(self, away: int) -> None:
        super().__init__()
        self.away, self.seen, self.status = away, [0.0][:0], ""

    def start(self, folder: Path, about: Any, known: str | None) -> None:
        raise ConnectionError("no route")

    def log(self, row: Any) -> None:
        self.away -= 1
        if self.away >= 0:
            raise ConnectionError("no route")
        self.seen.append(row["step"])

    def finish(self, status: str, metrics: Any) -> None:
        self.status = status


def test_training_goes_on_without_the_service_and_rows_are_logged_later() -> None:
    tracker, state = Unreachable(2), TrainingState()
    tracker.on_train_start(state)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        for step in (1, 2, 3):
            state.history.append({"step": step, "val_loss": None})
            tracker.on_step_end(state)
    assert tracker.seen == [1, 2, 3]
    (said,) = warned
    assert said.category is CutawayWarning
    assert "tracker=unreachable cannot be reached" in str(said.message)
    with pytest.raises(SettingError, match=r"tracker=unreachable cannot start a run: no route\. Wait\."):
        start_tracker(tracker, Path("run"), {})


@pytest.mark.parametrize(("error", "status"), [(TrainingError("x"), "failed"), (KeyboardInterrupt(), "interrupted")])
def test_the_run_of_a_tracker_ends_with_the_training(error: BaseException, status: str) -> None:
    tracker = Unreachable(0)
    with pytest.raises(type(error)), end_tracker(tracker, Path("run")):
        raise error
    assert tracker.status == status


def test_an_unknown_tracker_is_rejected_before_any_work() -> None:
    with pytest.raises(SettingError, match="Invalid tracker=comet: must be one of wandb, mlflow, tensorboard"):
        cutaway.train("mlp", "wine", tracker="comet", out="run", **GIVEN)
    assert not Path("run").exists()
