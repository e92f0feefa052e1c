"""Export of a model trained in the studio: as a run, and as the command and Python code that train the same model."""

from __future__ import annotations

import dataclasses
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from ...core.config import shell_command
from ...core.errors import SettingError
from ...core.files import write_csv, write_json
from ...data.open_data import open_data
from ...reports.run_report import write_layers_and_report
from ...runs import train
from ...runs.run import Run
from ...training.checkpoint import save_weights
from ...training.config import TrainSettings
from ...training.run_folder import atomic_run
from ...training.setup import TrainingSetup
from .state import ALWAYS, USUAL, Opening
from .trainer import LiveTrainer

SAME = (
    "It takes the same {step:,} steps: the weights in its checkpoints/last are bit-identical on this machine with the "
    "same number of threads. The saved model is that of the best validation epoch."
)
TASKS = "A sequence of tasks needs whole epochs, and this training stopped within one: only the studio can repeat it."
BY_HAND = "Changes by hand during training are not settings of a command: the studio repeats them at the same steps."


def reproduction_code(live: LiveTrainer, opening: Opening, source: str, shared: str) -> dict[str, Any]:
    """Return the command and Python code that train the same model, and a sentence on the differences.

    `source` is the name of the data, `shared` the command that opens the studio's state.
    """
    if live.log or opening.run is not None:
        return {
            "command": shared,
            "python": "",
            "says": BY_HAND if live.log else "It continues from the weights of the run.",
        }
    if live.ready.data.tasks is not None:
        return {"command": shared, "python": "", "says": TASKS}
    given = {**USUAL, **opening.given, "max_steps": str(max(1, live.step))}
    keywords = [f"        {key!r}: {value!r}," for key, value in given.items()]
    call = ["run = cutaway.train(", f"    {opening.model!r},", f"    {source!r},", "    **{", *keywords, "    },", ")"]
    python = "\n".join(["import cutaway", "", *call, "run.evaluate()", ""])
    return {
        "command": shell_command("train", opening.model, source, given),
        "python": python,
        "says": SAME.format(step=max(1, live.step)),
    }


def save(live: LiveTrainer, opening: Opening, shared: str) -> Path:
    """Write a run's folder, runs/MODEL-DATA-N, with the current weights; training can continue afterwards.

    `evaluate`, `predict`, `inspect`, `generate` and `train --resume` can read it. Raises SettingError before the first
    step, FileError if the folder cannot be written.
    """
    if live.step == 0:
        raise SettingError("The model is not trained yet: press Play or take a step before you save.")
    trainer, state = live.trainer, live.trainer.state
    weights, history, stopped, kept_at = live.layout.copy(), state.history, state.stopped, trainer.checkpoints
    best = state.best_epoch, state.best_score, state.best_loss
    ready = dataclasses.replace(live.ready, settings=_run_settings(live))
    name = f"{ready.preset.file_name}-{ready.data.name}"
    try:
        with atomic_run(None, name) as folder, torch.random.fork_rng([]):
            ready = _copy_uploaded_data(ready, folder, opening)
            again = reproduction_code(live, opening, ready.data.source, shared)
            about = train.run_document(ready, {})
            about |= {
                "settings": {**asdict(ready.data_settings), **asdict(ready.settings)},
                "command": again["command"],
                "studio": {"step": live.step, "changes": [str(change) for change in live.log]},
            }
            scores = trainer.validate(trainer.val) if trainer.val is not None else {}
            state.history = [*live.rows, live.row(scores)]
            state.best_epoch = max(1, state.epoch)
            state.best_score, state.best_loss = scores.get(trainer.monitor), scores.get("loss")
            state.stopped = f"saved in the studio at step {live.step:,}"
            state.run = train.run_id(about)
            trainer.checkpoints = folder / "checkpoints"
            trainer.checkpoint_now()
            save_weights(folder / "checkpoints" / "best.safetensors", trainer.weights())
            write_csv(folder / "metrics.csv", state.history)
            write_json(folder / "run.json", {**about, "status": "running"})
            train.save_run(folder, about, ready, state, "finished")
            write_layers_and_report(Run(folder))
    finally:
        live.layout.read(weights)
        state.history, state.stopped, trainer.checkpoints = history, stopped, kept_at
        state.best_epoch, state.best_score, state.best_loss = best
    return folder


def _run_settings(live: LiveTrainer) -> TrainSettings:
    """Return the settings with the number of epochs begun, and without those that only the studio sets."""
    usual = {f.name: f.default for f in dataclasses.fields(TrainSettings) if f.name in ALWAYS}
    epochs = live.state.epoch + (live.state.batch > 0)
    return dataclasses.replace(live.settings, **usual, epochs=max(1, epochs))  # type: ignore[arg-type]


def _copy_uploaded_data(ready: TrainingSetup, folder: Path, opening: Opening) -> TrainingSetup:
    """Copy an uploaded file into the run's folder and use the copy; the studio deletes the original at the end."""
    path = Path(ready.data.source)
    if opening.run is not None or not opening.uploaded:
        return ready
    (folder / "data").mkdir()
    copied = Path(shutil.copyfile(path, folder / "data" / path.name))
    data = open_data(copied, ready.data_settings, ready.sizes, ready.preset.targets)
    return dataclasses.replace(ready, data=data)
