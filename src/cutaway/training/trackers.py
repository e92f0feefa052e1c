"""Experiment trackers: Weights & Biases and MLflow, which get the learning curves, settings and metrics of a run.

    cutaway train lenet5 digits tracker=wandb        # or WANDB_MODE=offline cutaway train …
    cutaway train lenet5 digits tracker=mlflow       # to MLFLOW_TRACKING_URI

A tracker is a callback that the setting `tracker` adds. Nothing is sent without it. It gets the rows of metrics.csv as
they are written, the settings, the names of model and data, and the metrics of evaluation.json at the end. Data, code,
weights and facts about the machine are not sent. Accounts, projects and addresses are those of the tracker's own
environment variables: WANDB_MODE, WANDB_PROJECT, WANDB_ENTITY; MLFLOW_TRACKING_URI, MLFLOW_EXPERIMENT_NAME.

run.json has the tracker's id of the run, so that a resumed run continues it. Of several processes the first one tracks.

W&B: https://docs.wandb.ai/ref/python. MLflow: https://mlflow.org/docs/latest/ml/tracking.
"""

from __future__ import annotations

import math
import os
import time
import uuid
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

from ..core.config import build
from ..core.errors import CutawayWarning, IncompatibleSettingError, SettingError
from ..core.extras import require
from .callbacks import Callback
from .checkpoint import TrainingState
from .config import TrainSettings
from .run_folder import read_evaluation

PROJECT = "cutaway"  # project of W&B and experiment of MLflow, unless the environment names one
PARAMETERS = 100  # MLflow takes this many in one request
VALUE = 500  # characters of a parameter


class Tracker(Callback):
    """Base class of the trackers, which logs each new row of the history."""

    name: ClassVar[str]
    HINT: ClassVar[str]  # what to do if it cannot start
    id = ""  # of the run in the tracker

    def __init__(self) -> None:
        self._rows = 0  # rows that were logged
        self._warned = False

    def start(self, folder: Path, about: Mapping[str, Any], known: str | None) -> None:
        """Start a run, or continue the run with the id `known`, and log the settings."""
        raise NotImplementedError

    def log(self, row: Mapping[str, float]) -> None:
        """Log the numbers of a row of metrics.csv at its step."""
        raise NotImplementedError

    def finish(self, status: str, metrics: Mapping[str, float]) -> None:
        """End the run as finished, interrupted or failed, with its metrics on the test split."""
        raise NotImplementedError

    def on_train_start(self, state: TrainingState) -> None:
        """Skip the rows of earlier sessions."""
        self._rows = len(state.history)

    def on_step_end(self, state: TrainingState) -> None:
        """Log new rows. If the tracker cannot be reached, they are logged with the next ones."""
        for row in state.history[self._rows :]:
            try:
                self.log({key: value for key, value in row.items() if value is not None})
            except Exception as error:  # of the tracker's library
                self.warn(error)
                return
            self._rows += 1

    def on_epoch_end(self, state: TrainingState) -> None:
        """Log new rows."""
        self.on_step_end(state)

    def warn(self, error: Exception) -> None:
        """Report once that the tracker cannot be reached."""
        if not self._warned:
            self._warned = True
            said = f"tracker={self.name} cannot be reached, and training continues without it: {error}"
            warnings.warn(said, CutawayWarning, stacklevel=2)


class WandB(Tracker):
    """Run of Weights & Biases."""

    name = "wandb"
    HINT = "Log in with `wandb login`, set WANDB_MODE=offline, or leave tracker out."

    def start(self, folder: Path, about: Mapping[str, Any], known: str | None) -> None:
        """Start or continue a run, in the mode of WANDB_MODE."""
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        wandb = require("wandb", "tracker=wandb")
        self.id = known or uuid.uuid4().hex[:12]
        private = {"disable_git": True, "save_code": False, "console": "off", "x_disable_stats": True}
        private |= {"x_disable_meta": True, "x_disable_machine_info": True, "x_save_requirements": False}
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT") or PROJECT,
            id=self.id,
            name=os.environ.get("WANDB_NAME") or folder.resolve().name,
            config=run_config(about),
            dir=os.environ.get("WANDB_DIR") or os.getcwd(),  # in which W&B makes a folder wandb
            resume="allow" if known else None,
            reinit="create_new",  # beside a run that the program has started itself
            settings=wandb.Settings(**private),
        )

    def log(self, row: Mapping[str, float]) -> None:
        """Log a row."""
        self._run.log({key: value for key, value in row.items() if key != "step"}, step=int(row["step"]))

    def finish(self, status: str, metrics: Mapping[str, float]) -> None:
        """End the run."""
        for key, value in metrics.items():
            self._run.summary[key] = value
        self._run.finish(exit_code=0 if status == "finished" else 1)


class MLflow(Tracker):
    """Run of MLflow, in the experiment MLFLOW_EXPERIMENT_NAME at MLFLOW_TRACKING_URI."""

    name = "mlflow"
    HINT = "Set MLFLOW_TRACKING_URI to your server or folder, or leave tracker out."
    STATUS: ClassVar = {"finished": "FINISHED", "interrupted": "KILLED", "failed": "FAILED"}

    def start(self, folder: Path, about: Mapping[str, Any], known: str | None) -> None:
        """Start or continue a run."""
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        self._mlflow = require("mlflow", "tracker=mlflow")
        self._client = self._mlflow.MlflowClient()
        if known:
            self._client.update_run(known, status="RUNNING")
            self.id = known
            return
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or PROJECT
        experiment = self._client.get_experiment_by_name(name)
        number = experiment.experiment_id if experiment else self._client.create_experiment(name)
        self.id = self._client.create_run(number, run_name=folder.resolve().name).info.run_id
        make = self._mlflow.entities.Param
        params = [make(key, str(value)[:VALUE]) for key, value in run_config(about).items()]
        for first in range(0, len(params), PARAMETERS):
            self._client.log_batch(self.id, params=params[first : first + PARAMETERS])

    def log(self, row: Mapping[str, float]) -> None:
        """Log a row."""
        self._log({key: value for key, value in row.items() if key != "step"}, int(row["step"]))

    def finish(self, status: str, metrics: Mapping[str, float]) -> None:
        """End the run."""
        self._log(metrics, 0)
        self._client.set_terminated(self.id, self.STATUS[status])

    def _log(self, values: Mapping[str, float], step: int) -> None:
        make, now = self._mlflow.entities.Metric, round(time.time() * 1000)
        if values:
            self._client.log_batch(self.id, metrics=[make(key, value, now, step) for key, value in values.items()])


TRACKERS: dict[str, type[Tracker]] = {"wandb": WandB, "mlflow": MLflow}


def require_tracker(given: Mapping[str, Any], known: Mapping[str, Any]) -> None:
    """Raise MissingPackageError, before any work, if the library of the tracker is not installed.

    The tracker is that of the `given` settings, or of the `known` ones of a resumed run. Raises SettingError for an
    unknown one.
    """
    settings = build(TrainSettings, {"tracker": {**known, **given}.get("tracker")})
    if settings.tracker is not None:
        require(settings.tracker, f"tracker={settings.tracker}")


def build_tracker(name: str | None) -> Tracker | None:
    """Return the tracker of that name; None for TensorBoard, which has its own writer, and without a tracker."""
    return TRACKERS[name]() if name in TRACKERS else None


def start_tracker(tracker: Tracker | None, folder: Path, about: dict[str, Any]) -> None:
    """Start the tracker's run, or continue that of an earlier session, and note its id in `about`.

    `about` is the content of run.json. Raises SettingError if the tracker cannot start.
    """
    if tracker is None:
        return
    earlier = about.get("tracker") or {}
    known = earlier.get("id") if earlier.get("name") == tracker.name else None
    try:
        tracker.start(folder, about, known)
    except SettingError:
        raise
    except Exception as error:  # of the tracker's library, such as a login that is missing
        raise IncompatibleSettingError(f"tracker={tracker.name} cannot start a run: {error}. {tracker.HINT}") from error
    about["tracker"] = {"name": tracker.name, "id": tracker.id}


@contextmanager
def end_tracker(tracker: Tracker | None, folder: Path) -> Iterator[None]:
    """End the tracker's run after this context, with the metrics of evaluation.json if there was no error."""
    status = "failed"
    try:
        yield
        status = "finished"
    except KeyboardInterrupt:
        status = "interrupted"
        raise
    finally:
        if tracker is not None:
            try:
                tracker.finish(status, evaluation_metrics(folder) if status == "finished" else {})
            except Exception as error:  # the run itself is complete
                tracker.warn(error)


def run_config(about: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration of a run for a tracker: names, sizes and settings."""
    data = about["data"]
    return {
        "model": about["model"],
        "data": data["name"],
        "data_fingerprint": data["fingerprint"],
        "parameters": about["parameters"],
        "cutaway": about["cutaway"],
        **{key: value for key, value in about["settings"].items() if value is not None},
        **{f"model.{key}": value for key, value in about["model_settings"].items()},
    }


def evaluation_metrics(folder: Path) -> dict[str, float]:
    """Return the metrics of evaluation.json with their intervals: test_accuracy, test_accuracy_low, …"""
    evaluation = read_evaluation(folder)
    found: dict[str, float] = {}
    for key, metric in (evaluation["metrics"] if evaluation else {}).items():
        name = f"{evaluation['split']}_{key}" if evaluation else key
        for suffix, end in (("", "value"), ("_low", "low"), ("_high", "high")):
            if metric[end] is not None and math.isfinite(metric[end]):
                found[name + suffix] = metric[end]
    return found
