"""Search: draw and train trials until there are enough, then train and test the winner once.

A trial draws settings, prepares model and data, counts costs and trains, without the test split. Only its outcome is
kept: the winner is trained again as a run. On one machine the same settings and seed give the same weights.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import random
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import optuna
from optuna.trial import FrozenTrial, TrialState

from ...checkpoints.factory import ModuleBuilder, build_custom_module, new_model
from ...core.config import as_text
from ...core.errors import IncompatibleSettingError, ModelError, ResumeError, SettingError, TrainingError, shorten
from ...core.files import write_json
from ...core.version import __version__
from ...data.in_memory.source import InMemorySource
from ...models.registry import Preset
from ...reports.run_report import write_layers_and_report
from ...runs.train import set_epochs_from_steps, train_model
from ...tasks.task import HIGHER_IS_BETTER
from ...training.batches import mix_seeds
from ...training.callbacks import Callback, Progress
from ...training.checkpoint import TrainingState, latest_checkpoint
from ...training.config import TrainSettings
from ...training.memory import reject_step_beyond_memory
from ...training.run_folder import RunInUse, lock_run
from ...training.setup import FOR_OPTIMIZERS, FOR_SCHEDULES, TrainingSetup, setup_training
from ...training.trainer import Trainer
from ..cost import count_cost
from ..experiment import DataCache, ExperimentInterrupted, fixed_threads
from ..settings import UNPRUNED, SearchSettings
from . import darts
from .result import Search, SearchProgress, best_row, trial_rows
from .samplers import FixedValuesSampler, distributions, draw_value, pruner_for, sampler_for
from .search_page import write_search_report
from .storage import (
    BEST,
    CELL,
    DIVERGED,
    DOCUMENT,
    DRAW,
    FINISHED,
    OUTCOME,
    PRUNED,
    REJECTED,
    SearchSpec,
    draw_lock,
    fail_killed_trials,
    new_search_folder,
    new_spec,
    open_study,
    read_search,
    resume_spec,
    trial_folder,
)

MAX_REJECTED_DRAWS = 50  # consecutive draws that are rejected without training
PROBE_DRAWS = 20  # draws of which one must fit the data before the search begins


def search(
    model: Any,
    source: Any,
    given: Mapping[str, Any],
    space: Mapping[str, Any] | None = None,
    out: str | Path | None = None,
    resume: str | Path | None = None,
    progress: SearchProgress | None = None,
    train_winner: bool = True,
) -> Search:
    """Search settings that are ranges or choices, or are given in `space`, and write a folder.

    With `resume`, or if `out` contains the same search already, that one is continued. Other processes may work on it
    at the same time.

    Args:
        model: Name of a preset, or a function that builds custom modules, as for `maker`.
        source: Data.
        given: Settings of the search, and of training, data and model.
        space: Searched settings.
        out: Folder of the search.
        resume: Folder of a search to continue.
        progress: Progress output.
        train_winner: Whether the winner is trained as a run and tested. Otherwise the test split is not used.

    Returns:
        The search.

    Raises:
        ExperimentInterrupted: If the user stops it.
        CutawayError: For errors that the user can fix.
    """
    progress = progress or SearchProgress()
    if resume is not None:
        spec, folder = resume_spec(Path(resume), model, source, given, space, out), Path(resume)
    else:
        spec, folder = new_spec(model, source, given, space), None
    with contextlib.ExitStack() as held:
        held.enter_context(fixed_threads())
        trials = TrialRunner(spec)
        ready = _prepare_random_draw(trials)
        name = f"{spec.model.file_name}-{ready.data.name}"
        folder = folder if folder is not None else new_search_folder(out, name)
        about = _open_document(folder, spec, ready)
        unpruned = spec.settings.sampler in UNPRUNED
        pruner = pruner_for("none" if unpruned else spec.settings.pruner, ready.settings.epochs)
        study = open_study(folder, about["directions"], pruner)
        loop = _TrialLoop(folder, trials, study, about, progress)
        with progress:
            try:
                loop.until_done()
            except KeyboardInterrupt:
                _write_report(folder)
                raise ExperimentInterrupted(folder, "search") from None
        if loop.others:
            progress.note("Another process runs the last trials of this search and will train the best one.")
        elif train_winner:
            _train_winner(folder, spec, study, about, progress)
        _write_report(folder)
    made = spec.model if isinstance(spec.model, ModuleBuilder) else None
    return Search(folder, spec.source if isinstance(spec.source, InMemorySource) else None, made)


# --- before the first trial -------------------------------------------------------------------------------------------


def _prepare_random_draw(trials: TrialRunner) -> TrainingSetup:
    """Prepare model and data of a random draw, so that errors are raised before the search begins."""
    spec, error = trials.spec, None
    source = random.Random(spec.seed)
    for _ in range(PROBE_DRAWS):
        parts = {name: draw_value(one, source) for name, one in distributions(spec.space).items()}
        try:
            return trials.prepare(spec.space.to_settings(parts))
        except (SettingError, ModelError) as refused:
            error = refused
    assert error is not None, "there are draws"
    raise error


def _open_document(folder: Path, spec: SearchSpec, ready: TrainingSetup) -> dict[str, Any]:
    """Write search.json, or read it if the folder has the same search.

    Raises SettingError for another search or other data.
    """
    metric = ready.settings.monitor or ready.task.default_monitor
    best = "maximize" if metric in HIGHER_IS_BETTER else "minimize"
    document = {
        **spec.document(),
        "typed": {key: as_text(value) for key, value in spec.search_settings.items()},
        "trials": spec.settings.trials,
        "metric": metric,
        "directions": [best, "minimize"] if spec.settings.sampler == "nsga2" else [best],
        "task": ready.task.name,
        "data_name": ready.data.name,
        "splits": {name: len(split) for name, split in ready.data.splits.items()},
        "fingerprint": ready.data.fingerprint,
        "split_hash": ready.data.split_hash,
        "cutaway": __version__,
        "optuna": optuna.__version__,
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "tested": [],  # trials whose settings were tested
    }
    usual = dataclasses.asdict(SearchSettings())
    with draw_lock(folder):
        if (folder / DOCUMENT).is_file():
            about = read_search(folder)
            for key in (*spec.document(), "fingerprint", "split_hash"):
                then: Any = about.get(key)
                if key == "search":  # a setting that is newer than the search has its default
                    then = {name: then.get(name, usual[name]) for name in document[key]}
                if then != document[key]:
                    raise ResumeError(
                        f"{folder} holds a search with another {key}: {_diff_text(then, document[key])}. Choose "
                        "another --out, use the same settings, or --resume it."
                    )
            document = about | {"trials": spec.settings.trials}
        write_json(folder / DOCUMENT, document)
    return document


def _diff_text(then: Any, now: Any) -> str:
    """Return the difference between two values of search.json in a few words."""
    if not isinstance(then, dict) or not isinstance(now, dict):
        return f"{shorten(then)} there, {shorten(now)} here"
    key = next(key for key in (*then, *now) if then.get(key) != now.get(key))
    return f"{key}={shorten(then.get(key, 'none'))} there, {key}={shorten(now.get(key, 'none'))} here"


# --- the trials -------------------------------------------------------------------------------------------------------


class _TrialLoop:
    """Worker loop of one process of a search."""

    def __init__(
        self,
        folder: Path,
        trials: TrialRunner,
        study: optuna.Study,
        about: Mapping[str, Any],
        progress: SearchProgress,
    ) -> None:
        self.folder, self.spec, self.trials, self.study = folder, trials.spec, trials, study
        self.metric, self.progress = str(about["metric"]), progress
        self.others = 0  # trials of other processes when none is left to start

    def until_done(self) -> None:
        """Run trials until there are enough. Raises SettingError if none can be trained."""
        space = self.spec.space
        self.progress.begin(self.spec.settings.trials, self.metric, trial_rows(self.study, space, self.metric))
        while True:
            with contextlib.ExitStack() as held:
                trial = self._next(held)
                if trial is None:
                    break
                self._run(trial)
            self.progress.trial_done(trial_rows(self.study, space, self.metric))

    def _next(self, held: contextlib.ExitStack) -> optuna.Trial | None:
        """Draw and lock the next trial. None if there are enough trials or all combinations are used."""
        settings, space = self.spec.settings, self.spec.space
        with draw_lock(self.folder):
            running = fail_killed_trials(self.study, self.folder)
            there = [t for t in self.study.get_trials(deepcopy=False) if t.state != TrialState.FAIL]
            ended = [t for t in there if t.state != TrialState.RUNNING]
            trained = [t for t in ended if t.user_attrs[OUTCOME]["state"] != REJECTED]
            combinations = space.size() if settings.sampler == "grid" else float("inf")
            enough = len(trained) + len(running) >= settings.trials or len(there) >= combinations
            if enough or self._should_give_up(ended, trained):
                self.others = len(running)
                return None
            taken = {t.user_attrs.get(DRAW) for t in there}
            draw = next(n for n in range(len(taken) + 1) if n not in taken)
            seed = mix_seeds(self.spec.seed, draw)
            if settings.sampler == "darts":
                trial = self.study.ask()
            else:
                self.study.sampler = sampler_for(settings, space, seed, [t.params for t in there], self.spec.seed)
                trial = self.study.ask(fixed_distributions=distributions(space))
            own = trial_folder(self.folder, trial.number)
            own.mkdir(parents=True, exist_ok=True)
            held.callback(_remove_empty_folder, own)
            held.enter_context(lock_run(own))
            trial.set_user_attr(DRAW, draw)
        return trial

    def _should_give_up(self, ended: list[FrozenTrial], trained: list[FrozenTrial]) -> bool:
        """Return whether too many consecutive draws were rejected. Raises SettingError if no trial was ever trained."""
        last = ended[-MAX_REJECTED_DRAWS:]
        states = [t.user_attrs[OUTCOME]["state"] for t in last]
        if len(last) < MAX_REJECTED_DRAWS or any(state != REJECTED for state in states):
            return False
        why = last[-1].user_attrs[OUTCOME]["why"]
        if trained:
            self.progress.note(
                f"The search stops: the last {MAX_REJECTED_DRAWS} samples were rejected before training ({why})."
            )
            return True
        parameters = [t.user_attrs[OUTCOME]["parameters"] for t in last if t.user_attrs[OUTCOME]["parameters"]]
        macs = [t.user_attrs[OUTCOME]["macs"] for t in last if t.user_attrs[OUTCOME]["macs"]]
        least = [f"{min(values):,} {what}" for values, what in ((macs, "MACs"), (parameters, "parameters")) if values]
        said = f" The smallest had {' and '.join(least)}." if least else ""
        raise SettingError(
            f"None of {MAX_REJECTED_DRAWS} samples can be trained: {why.rstrip('.')}.{said} Widen the space or limits."
        )

    def _run(self, trial: optuna.Trial) -> None:
        """Train one trial and store its outcome."""
        if self.spec.settings.sampler == "darts":
            work, seconds = self._propose(trial)
        else:
            work, seconds = 0.0, 0.0
        given = self.spec.space.to_settings(trial.params)
        two = len(self.study.directions) > 1

        def judge(epoch: int, score: float) -> bool:
            if two:
                return True
            trial.report(score, epoch)
            self.progress.epoch(trial.number, epoch, score)
            return not trial.should_prune()

        self.progress.trial(trial.number)
        outcome = self.trials.run(given, trial_folder(self.folder, trial.number), judge)
        outcome.work += work
        outcome.seconds = round(outcome.seconds + seconds, 3)
        with draw_lock(self.folder):  # no process may look for killed trials between the end of a trial and its outcome
            self._record(trial, outcome)

    def _propose(self, trial: optuna.Trial) -> tuple[float, float]:
        """Find the cell of a trial with DARTS and return its multiply-adds and seconds."""
        began = datetime.now(UTC)
        ready = self.trials.prepare({})
        seed = mix_seeds(self.spec.seed, trial.user_attrs[DRAW])
        found = darts.search_cell(ready, self.spec.settings, seed, self.progress.supernet)
        self.study.sampler = FixedValuesSampler(found.parts)
        for name, one in distributions(self.spec.space).items():
            trial._suggest(name, one)
        trial.set_user_attr(CELL, darts.weight_rows(found.weights))
        return found.work, (datetime.now(UTC) - began).total_seconds()

    def _record(self, trial: optuna.Trial, outcome: Outcome) -> None:
        trial.set_user_attr(OUTCOME, outcome.to_json())
        if outcome.state == REJECTED:
            trial.set_constraint("rejected", 1.0)
        if outcome.state == FINISHED:
            two = len(self.study.directions) > 1
            values = [outcome.value, float(outcome.macs or 0)] if two else [outcome.value]
            self.study.tell(trial, [float(value or 0.0) for value in values])
        elif outcome.state in (PRUNED, DIVERGED, REJECTED):
            self.study.tell(trial, state=TrialState.PRUNED)


def _remove_empty_folder(folder: Path) -> None:
    """Remove the empty folder of a trial that ended."""
    with contextlib.suppress(OSError):
        folder.rmdir()


# --- the winner -------------------------------------------------------------------------------------------------------


def _train_winner(
    folder: Path, spec: SearchSpec, study: optuna.Study, about: dict[str, Any], progress: SearchProgress
) -> None:
    """Train the settings of the best trial as a run in best/ and test it, unless that is done already."""
    metric = str(about["metric"])
    finished = [row for row in trial_rows(study, spec.space, metric) if row["state"] == FINISHED]
    best = best_row(finished, metric, metric in HIGHER_IS_BETTER)
    if best is None:
        raise SettingError("No trial finished: each was pruned or diverged. Widen the space, or set pruner=none.")
    try:
        with lock_run(folder):
            tested: list[int] = read_search(folder)["tested"]
            run = folder / BEST
            done = (run / "evaluation.json").is_file()
            if tested and tested[-1] == best["trial"] and done:
                return
            progress.note(f"Trial {best['trial']} is the best: it is trained again as a run and tested.")
            given = {key: best[key] for key in spec.space.texts()}
            given = {**spec.fixed, **drop_unused_settings(given, spec.fixed, spec.model)}
            resumed = tested and tested[-1] == best["trial"] and latest_checkpoint(run / "checkpoints") is not None
            if not resumed:
                with draw_lock(folder):
                    write_json(folder / DOCUMENT, read_search(folder) | {"tested": [*tested, best["trial"]]})
            if resumed:
                again = spec.source if isinstance(spec.source, InMemorySource) else None
                own = build_custom_module(spec.model, given)
                winner = train_model(own, again, {}, resume=run, progress=Progress(shown=progress.shown))
            else:
                model, given = new_model(spec.model, given)
                winner = train_model(
                    model,
                    spec.source,
                    given,
                    out=run,
                    overwrite=(run / "run.json").is_file(),
                    progress=Progress(shown=progress.shown),
                )
            write_layers_and_report(winner)
    except RunInUse:
        progress.note("Another process trains the best trial.")
    except KeyboardInterrupt:
        raise ExperimentInterrupted(folder, "search") from None


def _write_report(folder: Path) -> None:
    """Write the report if there are trials."""
    found = Search(folder)
    if found.trials:
        write_search_report(found)


# --- one trial --------------------------------------------------------------------------------------------------------


@dataclass
class Outcome:
    """Outcome of a trial."""

    state: str  # finished, pruned, rejected or diverged
    value: float | None = None  # metric on the validation split in the best epoch
    epochs: int = 0
    seconds: float = 0.0  # of training
    macs: int | None = None  # multiply-adds of an example; None if unknown
    parameters: int | None = None
    work: float = 0.0  # multiply-adds of all forward passes of training
    why: str = ""  # why it was rejected or ended

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values, without the value, which Optuna stores."""
        return {key: value for key, value in dataclasses.asdict(self).items() if key != "value"}


class _Pruned(Exception):
    """The trial is pruned."""


class _PruneCallback(Callback):
    """Callback that ends a trial whose scores are not good enough."""

    def __init__(self, judge: Callable[[int, float], bool]) -> None:
        self.judge = judge

    def on_epoch_end(self, state: TrainingState) -> None:
        """Raise _Pruned if the trial is not worth going on with."""
        score = self.trainer.scores.get(self.trainer.monitor)
        if score is not None and not self.judge(state.epoch, score) and state.epoch < self.trainer.settings.epochs:
            raise _Pruned


@dataclass
class TrialRunner:
    """Preparation and training of the trials of a search."""

    spec: SearchSpec
    opened: DataCache = field(default_factory=DataCache)

    def prepare(self, given: Mapping[str, Any]) -> TrainingSetup:
        """Prepare model and data with these settings. Raises SettingError if there is no validation split."""
        preset, fixed = self.spec.model, self.spec.fixed
        model, settings = new_model(preset, {**fixed, **drop_unused_settings(given, fixed, preset)})
        ready = setup_training(model, self.spec.source, settings, opened=self.opened)
        if "val" not in ready.data.splits:
            raise IncompatibleSettingError(
                "Invalid val=0: a search needs a validation split. Set e.g. val=0.2, or leave it out."
            )
        set_epochs_from_steps(ready, settings)
        return ready

    def run(self, given: Mapping[str, Any], folder: Path, judge: Callable[[int, float], bool]) -> Outcome:
        """Train with the settings `given` and the fixed ones.

        `judge` is called with each epoch and its score, and returns whether to continue. Files in `folder` are removed
        at the end.
        """
        try:
            ready = self.prepare(given)
            outcome = self.check_limits(ready)
            if outcome.why:
                return outcome
            reject_step_beyond_memory(ready)
        except (SettingError, ModelError) as error:
            return Outcome(REJECTED, why=str(error))
        checkpoints = folder / "checkpoints"
        try:
            return _train(ready, checkpoints, judge, outcome)
        finally:
            shutil.rmtree(checkpoints, ignore_errors=True)

    def check_limits(self, ready: TrainingSetup) -> Outcome:
        """Return parameters and multiply-adds of an example, as in the report.

        `why` names the limit that is exceeded.
        """
        macs, parameters = count_cost(ready.model, ready.data.spec)
        counted = Outcome(FINISHED, macs=macs, parameters=parameters)
        for what, name, value in (("MACs", "max_macs", macs), ("parameters", "max_parameters", parameters)):
            most = getattr(self.spec.settings, name)
            if most is not None and value is None:
                raise IncompatibleSettingError(
                    f"Invalid {name}: the multiply-adds of {self.spec.model.name} are not fully known. Leave it out."
                )
            if most is not None and value is not None and value > most:
                return dataclasses.replace(
                    counted, state=REJECTED, why=f"{value:,} {what} are more than {name}={most:,}"
                )
        return counted


def _train(ready: TrainingSetup, checkpoints: Path, judge: Callable[[int, float], bool], counted: Outcome) -> Outcome:
    """Train a prepared model and return its outcome, with the costs that were counted before."""
    trainer = Trainer(
        ready.model, ready.data, ready.task, ready.settings, ready.place, checkpoints, Progress(shown=False),
        callbacks=[_PruneCallback(judge)], teacher=ready.teacher,
    )  # fmt: skip
    state, why = FINISHED, ""
    try:
        trainer.begin()
        trainer.fit()
        why = trainer.state.stopped
    except _Pruned:
        state = PRUNED
    except TrainingError as error:
        state, why = DIVERGED, str(error)
    reached = trainer.mean.score if trainer.mean else trainer.state.best_score
    if state == FINISHED and (reached is None or not math.isfinite(reached)):
        state, why = DIVERGED, f"its validation {trainer.monitor} is not finite"
    an_epoch = max(1, len(trainer.epoch_batches(0)))
    seen = len(ready.data.splits["train"]) * (trainer.state.epoch + trainer.state.batch / an_epoch)
    return dataclasses.replace(
        counted,
        state=state,
        why=why,
        value=reached if reached is not None and math.isfinite(reached) else None,
        epochs=trainer.state.epoch,
        seconds=round(trainer.state.seconds, 3),
        work=seen * (counted.macs or 0),
    )


def drop_unused_settings(given: Mapping[str, Any], fixed: Mapping[str, Any], found: Preset) -> dict[str, Any]:
    """Return the drawn settings that the optimizer and schedule use, without momentum for adam, for example."""
    usual, card = TrainSettings(), found.card.settings
    dropped: set[str] = set()
    for what, wanting in (("optimizer", FOR_OPTIMIZERS), ("schedule", FOR_SCHEDULES)):
        this = as_text({**card, **fixed, **given}.get(what, getattr(usual, what)))
        dropped |= {key for key, fit in wanting.items() if this not in fit}
    return {key: value for key, value in given.items() if key not in dropped}
