"""Training of a run, from the name of a model and a data source to the run's folder: everything around the loop."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import math
import os
import platform
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from ..checkpoints.custom import CustomPreset, preset_for
from ..checkpoints.deferred_init import allocate_meta_tensors
from ..checkpoints.huggingface.lora_adapters import write_adapter
from ..checkpoints.saving import save_model
from ..core.config import as_text, shell_command
from ..core.errors import (
    FileError,
    IncompatibleSettingError,
    LostProcess,
    MissingSettingError,
    ResumeError,
    WeightsMismatchError,
    WriteError,
    printable,
)
from ..core.files import RUN, is_unmoved, write_json
from ..core.log import log
from ..core.spec import Unlabelled
from ..core.version import __version__
from ..data.dataset_base import IN_MEMORY, DataSet
from ..data.findings import terminal_lines
from ..data.in_memory.source import InMemorySource, to_source
from ..data.modalities import KINDS as MODALITIES
from ..data.open_data import NAMED
from ..data.text.tokenizer_files import AUTO
from ..data.text.tokenizers import KINDS
from ..distributed.group import process_group, rank_zero_only
from ..distributed.group import rank_and_size as group_place
from ..distributed.launch import LaunchInterrupted, is_launched, launch, launch_id, restart_count
from ..training.batches import epochs_for_steps
from ..training.callbacks import (
    AverageRecord,
    Callback,
    Interrupted,
    MetricsFile,
    Progress,
    TensorBoardWriter,
    check_callbacks,
    reject_missing,
)
from ..training.checkpoint import TrainingState, latest_checkpoint, load_weights
from ..training.config import TrainSettings
from ..training.device import cpu_capability, environment_changes, restore_threads, single_process_context
from ..training.memory import reject_beyond_memory, resolve_parallel
from ..training.objectives.choice import remove_training_modules
from ..training.parallel import (
    add_resume_hint,
    find_launched_run,
    process_settings,
    reject_beyond_machine,
    reject_small_batches,
)
from ..training.proposal import propose_model
from ..training.run_folder import (
    LOCK,
    clear_leftovers,
    clear_run,
    create_run_folder,
    data_source,
    lock_run,
    write_evaluation,
)
from ..training.setup import TrainingSetup, resolve_config, setup_training, unusual_setting_notes
from ..training.trackers import build_tracker, end_tracker, require_tracker, start_tracker
from ..training.trainer import Trainer
from .evaluation import evaluation_document, perceptron_summary
from .run import Run

# A finished run continues if one of these is changed.
LENGTH_SETTINGS = ("epochs", "max_steps", "minutes", "patience")
ADAPTER = "adapter"  # folder next to the model with the LoRA weights alone
MAY_CHANGE = (
    *LENGTH_SETTINGS, "save_minutes", "workers", "threads", "processes", "parallel", "tensor_parallel", "recompute",
    "max_restarts", "device", "tensorboard", "tracker", "memory_fraction",
)  # fmt: skip
WORKER = "cutaway.runs.worker"
UNNAMED = (
    "Missing data: cutaway train [MODEL] DATA. `cutaway list` shows the models, `cutaway data` the data sets; tables, "
    "files and folders of your own are named by their path."
)


def train_model(
    model: str | nn.Module | None,
    source: Any,
    given: Mapping[str, Any],
    out: str | Path | None = None,
    resume: str | Path | None = None,
    progress: Progress | None = None,
    overwrite: bool = False,
    judged: bool = True,
    callbacks: Sequence[Callback] = (),
) -> Run:
    """Train a model, and return the run, whose folder holds everything to repeat, resume, evaluate and predict.

    If no model is named, one is proposed for the data.
    Your own module is trained in place and has the run's final weights at the end. With `resume` that run is continued:
    model, data and settings are its own, and only the settings in `MAY_CHANGE` may be given. With `overwrite` the run
    in `out` is replaced. Unless `judged` is set, the test split is not opened and no evaluation is written. The run is
    locked against other processes. `callbacks` are objects of subclasses of Callback. If several `processes` are
    requested they are started here, and a process that torchrun started joins the others. Raises Interrupted if
    training is stopped, after writing the checkpoint, and CutawayError for errors that the user can fix.
    """
    if model is not None and not isinstance(model, str):
        model = preset_for(model).custom_module  # type: ignore[attr-defined]  # it is a CustomPreset, since others are rejected
    source, callbacks = to_source(source)[0], check_callbacks(callbacks)
    if model is None and resume is None and source is not None:
        proposal = propose_model(source, given)
        model = proposal.name
        if progress is None or progress.shown:
            log(str(proposal))
    known = Run(resume).about["settings"] if resume is not None else {}
    several = process_settings(given, known)
    require_tracker(given, known)
    if not is_launched() and several.processes == 1:
        return _train_in_process(model, source, given, out, resume, progress, overwrite, judged, callbacks)
    name = launch_id() or uuid.uuid4().hex
    try:
        if is_launched():
            with process_group():
                begun = (
                    rank_zero_only(lambda: find_launched_run(name, out)) if restart_count() and resume is None else None
                )
                if begun is not None:  # before the restart
                    own = None if isinstance(model, str) else model
                    return _train_in_process(own, None, {}, None, begun, progress, False, True, callbacks)
                return _train_in_process(model, source, given, out, resume, progress, overwrite, judged, callbacks)
        reject_beyond_machine(several)
        if resume is None:  # report invalid settings before processes are started
            if model is None or source is None:
                raise MissingSettingError(UNNAMED)
            asked_of = resolve_config(preset_for(model), source, given, resumed=False).training
            if asked_of.batch_size and not asked_of.batch_tokens:
                reject_small_batches(asked_of, asked_of.batch_size, several.processes, asked_of.tensor_parallel)
        if isinstance(model, nn.Module):
            raise IncompatibleSettingError(
                f"processes={several.processes} starts processes that build the model by its name, but "
                f"{type(model).__name__} exists only in this process: leave processes out, or start your script "
                f"with torchrun --nproc-per-node={several.processes} SCRIPT.py."
            )
        if callbacks:
            raise IncompatibleSettingError(
                f"Invalid callbacks: processes={several.processes} starts other processes, which have no access to the "
                "objects of this one. Leave processes out, or start your script with torchrun --nproc-per-node="
                f"{several.processes} SCRIPT.py."
            )
        asked = {
            "model": model,
            "source": source,
            "given": {key: value if isinstance(value, str) else as_text(value) for key, value in given.items()},
            "out": None if out is None else str(out),
            "resume": None if resume is None else str(resume),
            "overwrite": overwrite,
            "shown": progress is None or progress.shown,
        }
        return Run(launch(WORKER, asked, name, several.processes, several.max_restarts))
    except LostProcess as lost:
        raise add_resume_hint(lost, Path(resume) if resume is not None else find_launched_run(name, out)) from None
    except LaunchInterrupted as stopped:
        raise Interrupted(Path(str(stopped))) from None


def _train_in_process(
    model: str | nn.Module | None,
    source: Any,
    given: Mapping[str, Any],
    out: str | Path | None,
    resume: str | Path | None,
    progress: Progress | None,
    overwrite: bool,
    judged: bool = True,
    callbacks: Sequence[Callback] = (),
) -> Run:
    """Train in this process, which may be one of several: all run the same code, and only the first writes files."""
    rank, processes = group_place()
    if processes > 1 or "processes" in given or is_launched():
        given = {**given, "processes": processes}
    typed = given
    own = model if isinstance(model, nn.Module) else None
    home = next((p.device for p in own.parameters()), None) if own is not None else None
    earlier = Run(resume, own) if resume is not None else None
    with contextlib.ExitStack() as held:
        held.callback(torch.set_num_threads, torch.get_num_threads())
        # With an explicit number MKL never uses fewer threads, neither now nor in a resumed run.
        torch.set_num_threads(torch.get_num_threads())
        before: dict[str, Any] = {}
        notes: list[str] = []
        if earlier:
            _reject_folder(earlier.folder, out, overwrite)
            rank_zero_only(lambda: held.enter_context(lock_run(earlier.folder)))
            before = rank_zero_only(lambda: earlier.about)
            earlier.reject_other_module()
            as_many = before["settings"].get("processes", 1) == processes
            model, source, given = _resume_arguments(before, model, source, given)
            given = earlier.with_own_tokenizer(given)
            if not as_many and "parallel" not in typed:
                given["parallel"] = "auto"
            notes = [] if given.get("threads") or not as_many else restore_threads(before)
        if model is None or source is None:
            raise MissingSettingError(UNNAMED)
        goes_on = earlier is not None and latest_checkpoint(earlier.folder / "checkpoints") is not None
        ready = setup_training(model, source, given, resumed=goes_on)
        if not earlier or "max_steps" in typed:
            set_epochs_from_steps(ready, typed, cut=before.get("resumed", 0) + 1 if earlier else 0)
        resolve_parallel(ready)
        notes += reject_beyond_memory(ready)
        notes += unusual_setting_notes(ready, typed)
        if earlier:
            earlier.reject_other(ready.data, "or start a new run.")
            _reject_other_epochs(ready.settings, ready.data, before)
            _reject_other_files(before, ready)
            notes += environment_changes(before, ready.place)
            folder = earlier.folder
        else:
            name = f"{ready.preset.file_name}-{ready.data.name}"

            def create_folder() -> Path:
                folder = create_run_folder(out, name, overwrite, _input_paths(ready))
                held.enter_context(lock_run(folder))
                clear_run(folder)
                for line in terminal_lines(ready.data.findings) if progress is None or progress.shown else ():
                    log(printable(f"Found in the data: {line}"), logging.WARNING)  # before training starts
                return folder

            folder = rank_zero_only(create_folder)
        rank_zero_only(lambda: clear_leftovers(folder))
        bar = progress or Progress(shown=rank == 0)
        try:
            _train_in_folder(folder, ready, before, given, goes_on, notes, bar, judged, callbacks)
        except FileError as error:
            if not is_unmoved(folder) or not (
                (folder / RUN).is_file() or (folder / LOCK).exists()
            ):  # they existed before
                raise WriteError(
                    f"{folder}, the folder of this run, was deleted or renamed while the model was trained: nothing "
                    "is left there to resume. Train again, and leave the folder where it is until training ends."
                ) from error
            if (folder / RUN).is_file() and isinstance(error.__cause__, OSError):  # such as a full disk
                error.args = (f"{error} Then go on with the run: cutaway train --resume {folder}",)
            raise
        if own is not None:
            own.eval().to(home)
        run = Run(folder, own)
        return run.set_data(source) if isinstance(source, InMemorySource) else run


def _train_in_folder(
    folder: Path,
    ready: TrainingSetup,
    before: Mapping[str, Any],
    given: Mapping[str, Any],
    goes_on: bool,
    notes: list[str],
    progress: Progress,
    judged: bool,
    callbacks: Sequence[Callback],
) -> None:
    """Train in the locked folder of the run, from the start or from its checkpoint.

    `before` is run.json of earlier sessions, and `notes` are the notes on this one.
    """
    settings = {**asdict(ready.data_settings), **asdict(ready.settings)}
    about = {**(before or run_document(ready, given)), "settings": settings, "status": "running"}
    about["launch"] = launch_id()
    if before:
        about["machine"] = {**before["machine"], "threads": torch.get_num_threads()}
        about["notes"] = [*before.get("notes", ()), *notes]
    writes, known = ready.place.writes, run_id(about)
    if writes and not goes_on:
        write_json(folder / "run.json", about)

    tracker = build_tracker(ready.settings.tracker) if writes else None
    events = writes and (ready.settings.tracker == "tensorboard" or ready.settings.tensorboard)
    with contextlib.ExitStack() as session:
        with progress as bar, TensorBoardWriter(folder, events) as board:
            for sentence in notes:
                bar.note(sentence)

            rows = MetricsFile(folder / "metrics.csv")
            loggers = [board, rows] if tracker is None else [board, rows, tracker]
            trainer = Trainer(
                ready.model, ready.data, ready.task, ready.settings, ready.place, folder / "checkpoints", bar,
                callbacks=callbacks, loggers=loggers if writes else [], teacher=ready.teacher, deferred=ready.deferred,
            )  # fmt: skip
            if not goes_on:
                trainer.begin()
            else:
                trainer.resume()
                if trainer.state.run not in ("", known):
                    raise WeightsMismatchError(
                        f"{latest_checkpoint(folder / 'checkpoints')} is the checkpoint of another run, of other data "
                        "or with other settings. Resume with the run's own checkpoint, from a copy of its folder, or "
                        "start a new run."
                    )
                reject_missing(callbacks, trainer.state.callbacks)
                if writes:  # the checkpoint has been loaded
                    write_json(folder / "run.json", about)
                trainer.state.resumed += 1
                if any(before["settings"].get(key) != settings[key] for key in LENGTH_SETTINGS):
                    trainer.state.stopped = ""
            trainer.state.run = known
            rank_zero_only(lambda: start_tracker(tracker, folder, about))
            session.enter_context(end_tracker(tracker, folder))
            if tracker is not None:
                write_json(folder / "run.json", about)
            try:
                state = trainer.fit()
            except Interrupted:
                if writes:
                    save_run(folder, about, ready, trainer.state, "interrupted")
                raise
            finally:
                if writes:
                    rows.write(trainer.state)
        if writes:  # evaluates without the other processes
            ready.place = single_process_context(ready.place, ready.model, ready.settings.memory_fraction)
            save_run(folder, about, ready, state, "finished", trainer.mean, judged)


def run_document(ready: TrainingSetup, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of run.json at the start of training: everything needed to repeat the run."""
    data, spec = ready.data, ready.data.spec
    return {
        "cutaway": __version__,
        "model": ready.preset.name,
        "own": ready.preset.path if isinstance(ready.preset, CustomPreset) else None,
        "data": {
            "source": data.source,
            "path": absolute_source(data.source),
            "name": data.name,
            "kind": spec.kind,
            "fingerprint": data.fingerprint,
            "split_hash": data.split_hash,
            "splits": {k: len(p) for k, p in data.splits.items()},
            "notes": data.notes,
            "findings": data.findings,  # notes on problems of the data
            "evidence": data.evidence,
            "columns": data.columns,
            "distributions": data.distributions(),
            "licence": data.licence,
            "example": "graph" if getattr(spec, "graph_level", False) else None,  # if it is not the usual one
            "image_sizes": asdict(ready.sizes) if "sizes" in MODALITIES[spec.kind].asks else None,
        },
        "task": ready.task.name,
        "loss": ready.task.loss_name,
        "model_settings": ready.model_settings,
        "weights": asdict(ready.taken) if ready.taken else None,
        "teacher": ready.teacher.about if ready.teacher else None,
        "seed": ready.settings.seed,
        "command": _command(ready, given),
        "parameters": sum(p.numel() for p in ready.model.parameters() if p.requires_grad),
        "versions": {
            "cutaway": __version__,
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": np.__version__,
        },
        "machine": {
            "device": str(ready.place.device),
            "precision": str(ready.place.autocast_dtype or ready.place.dtype).removeprefix("torch."),
            "cpu": platform.processor() or platform.machine(),
            "cores": os.cpu_count(),
            "instructions": cpu_capability(),
            "threads": torch.get_num_threads(),
            "platform": platform.platform(),
        },
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def run_id(about: Mapping[str, Any]) -> str:
    """Return an id of the run for its checkpoints: the SHA-256 of the entries of run.json that never change."""
    data = [about["data"][key] for key in ("fingerprint", "split_hash")]
    kept = [about[key] for key in ("model", "model_settings", "seed", "command")]
    return hashlib.sha256(json.dumps([data, kept], sort_keys=True).encode()).hexdigest()


def _command(ready: TrainingSetup, given: Mapping[str, Any]) -> str:
    """Return the command that repeats this training, or the Python call for your own module or data from Python."""
    own, in_memory = isinstance(ready.preset, CustomPreset), ready.data.source == IN_MEMORY
    if own or in_memory:
        named = {k: v for k, v in given.items() if k.isidentifier()}
        others = {k: v for k, v in given.items() if k not in named}
        model = f"{ready.preset.name}()" if own else repr(ready.preset.name)
        data = "data" if in_memory else repr(ready.data.source)
        words = [model, data, *(f"{k}={v!r}" for k, v in named.items()), *([f"**{others!r}"] if others else [])]
        return f"cutaway.train({', '.join(words)})"
    return shell_command("train", ready.preset.name, ready.data.source, given)


def absolute_source(source: str) -> str | None:
    """Return the absolute path of a file or folder, or of two files separated by a comma.

    The result is None for a named data set and for data from Python.
    """
    if source in NAMED or source == IN_MEMORY:
        return None
    if Path(source).expanduser().exists():
        return str(Path(source).expanduser().resolve())
    return ",".join(str(Path(one).expanduser().resolve()) for one in source.split(","))


def set_epochs_from_steps(ready: TrainingSetup, typed: Mapping[str, Any], cut: int = 0) -> None:
    """Set the number of epochs to what `max_steps` takes, if that is set and the user has not set epochs.

    `cut` is the number of epochs that may have ended early.
    """
    split, settings = ready.data.splits["train"], ready.settings
    if settings.max_steps and "epochs" not in typed:
        epochs = epochs_for_steps(split, settings, epochs=settings.max_steps)[0]  # an epoch has at least one
        ready.settings = replace(settings, epochs=max(epochs + cut, settings.freeze_epochs or 0))


def save_run(
    folder: Path,
    about: dict[str, Any],
    ready: TrainingSetup,
    state: TrainingState,
    status: str,
    mean: AverageRecord | None = None,
    judged: bool = True,
) -> None:
    """Save the best weights, or the mean of the last ones, as the run's model, and write run.json.

    When training is finished, and `judged` is set, the model is evaluated on the test split, once.
    """
    kept = folder / "checkpoints" / ("average.safetensors" if mean else "best.safetensors")
    if kept.exists():
        allocate_meta_tensors(ready.model)
        ready.model.load_state_dict(load_weights(kept, ready.model))
        if ready.settings.lora and ready.settings.weights:
            write_adapter(ready.model, ready.preset.name, folder / "model" / ADAPTER, ready.settings.weights)
        remove_training_modules(ready.place.model(ready.model), ready.settings)
        save_model(ready.model, folder / "model", ready.preset)
        write_json(folder / "model" / "preprocessing.json", ready.data.preprocessing.to_json())
    about |= {
        "status": status,
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": round(state.seconds, 3),
        "epochs_done": state.epoch,
        "stopped": state.stopped or "interrupted",
        "best": {
            "epoch": state.best_epoch,
            "metric": ready.settings.monitor or ready.task.default_monitor,
            "value": _finite(state.best_score),
        },
        "average": {**asdict(mean), "score": _finite(mean.score)} if mean else None,  # saved in place of the best
        "resumed": state.resumed,
        "summary": None,
    }
    if status == "finished" and judged:
        about["summary"] = perceptron_summary(ready, state)
        write_run_evaluation(ready, folder)
    write_json(folder / "run.json", about)


def write_run_evaluation(ready: TrainingSetup, folder: Path) -> None:
    """Write evaluation.json of a run for the test split, or the validation or training split otherwise.

    A model that was trained without classes cannot be evaluated, and no file is written.
    """
    splits, target = ready.data.splits, ready.data.spec.target
    if isinstance(target, Unlabelled) and len(target.names) < 2:
        return
    name = next(one for one in ("test", "val", "train") if one in splits)
    write_evaluation(folder, evaluation_document(ready, name, folder))


def _finite(score: float | None) -> float | None:
    """Return the score if it is finite, which JSON requires, else None. A perplexity can be infinite."""
    return score if score is not None and math.isfinite(score) else None


def _input_paths(ready: TrainingSetup) -> list[str]:
    """Return the paths that the run reads: data, weights, vectors and tokenizer."""
    settings, source = ready.settings, absolute_source(ready.data.source)
    tokenizer = ready.data_settings.tokenizer
    named = [settings.weights, settings.vectors, tokenizer if tokenizer not in (AUTO, *KINDS) else None]
    return [one for one in (*(source.split(",") if source else ()), *named) if one is not None]


def _reject_folder(folder: Path, out: str | Path | None, overwrite: bool) -> None:
    """Raise SettingError if a resumed run is to be moved to another folder or replaced."""
    if out is not None and Path(out).resolve() != folder.resolve():
        raise ResumeError(
            f"A run is resumed where it stands, in {folder}, and --out {out} names another folder: leave --out out, or "
            f"copy the run's folder to {out} and resume the copy."
        )
    if overwrite:
        raise ResumeError("--resume continues a run and --overwrite replaces one: give only one of them.")


def _reject_other_epochs(settings: TrainSettings, data: DataSet, before: Mapping[str, Any]) -> None:
    """Raise SettingError if a run of several tasks is resumed with another number of epochs than `before`."""
    if data.tasks is not None and settings.epochs != before["settings"]["epochs"]:
        raise IncompatibleSettingError(
            f"epochs={settings.epochs} cannot change in a run of tasks, each of which has "
            f"{before['settings']['epochs']}: leave it out, or start a new run."
        )


def _reject_other_files(about: Mapping[str, Any], ready: TrainingSetup) -> None:
    """Raise FileError if the teacher of a resumed run has changed.

    The same holds for the initial weights of a run that was stopped before its first checkpoint.
    """
    if ready.taken and ready.taken.sha256 != about["weights"]["sha256"]:
        raise FileError(
            f"{ready.taken.path} has changed since this run began, and the run has no checkpoint yet: "
            "restore the file, or start a new run."
        )
    if ready.teacher and ready.teacher.sha256 != about["teacher"]["sha256"]:
        raise FileError(
            f"The teacher {ready.teacher.run.folder} has changed since this run began: restore it, or start a new run."
        )


def _resume_arguments(
    about: dict[str, Any], model: str | nn.Module | None, source: Any, given: Mapping[str, Any]
) -> tuple[str | nn.Module, Any, dict[str, Any]]:
    """Return model, source and settings of a resumed run, with the changes that are allowed.

    A run of your own module requires that module again.
    """
    if "quantized" in about:
        raise ResumeError(
            "This run is quantized and cannot be trained further: resume the original run "
            f"{about['quantized']['from']}, and quantize it again."
        )
    own = model if isinstance(model, nn.Module) else None
    model = None if own is not None else model
    then = about["data"]["source"]
    if then == IN_MEMORY:
        if not isinstance(source, InMemorySource):
            raise ResumeError("This run's data was given in Python: give it again, as train(data=DATA, resume=RUN).")
        source, given_again = IN_MEMORY, source
    elif isinstance(source, InMemorySource):
        raise ResumeError(f"This run's data is {then}, which is opened automatically: leave data out.")
    else:
        given_again = data_source(about["data"])
    for what, now, before in (("model", model, about["model"]), ("data", source, then)):
        if now is not None and now != before:
            raise ResumeError(f"This run's {what} is {before}, not {now}. Leave MODEL and DATA out with --resume.")
    for key in given:
        if key not in MAY_CHANGE:
            raise ResumeError(
                f"{key} cannot change when a run is resumed; these can: {', '.join(MAY_CHANGE)}. "
                "For another setting, start a new run."
            )
    before = {**about["settings"], **{f"model.{k}": v for k, v in about["model_settings"].items()}}
    return own or about["model"], given_again, {**before, **given}
