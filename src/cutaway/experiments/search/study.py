"""Search loop: draw and train trials until there are enough, then train and test the winner once."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import optuna
import torch
from optuna.trial import FrozenTrial, TrialState

from ...checkpoints.factory import ModuleBuilder, build_custom_module, new_model
from ...core.config import as_text
from ...core.errors import ModelError, SettingError, shorten
from ...core.files import write_json
from ...core.version import __version__
from ...data.in_memory.source import InMemorySource
from ...reports.run_report import write_layers_and_report
from ...runs.train import train_model
from ...tasks.task import HIGHER_IS_BETTER
from ...training.batches import mix_seeds
from ...training.callbacks import Progress
from ...training.checkpoint import latest_checkpoint
from ...training.run_folder import RunInUse, lock_run
from ...training.setup import TrainingSetup
from . import darts
from .progress import SearchProgress
from .result import Search, best_row, trial_rows
from .samplers import FixedValuesSampler, distributions, draw_value, pruner_for, sampler_for
from .search_page import write_search_report
from .spec import Plan, new_plan, resumed_plan
from .storage import (
    ABOUT,
    BEST,
    CELL,
    DRAW,
    OUTCOME,
    draw_lock,
    fail_killed_trials,
    new_search_folder,
    open_study,
    read_about,
    trial_folder,
)
from .trial import DIVERGED, FINISHED, PRUNED, REJECTED, DataCache, Limits, Outcome, Trials, drop_unused_settings

GIVE_UP = 50  # consecutive draws that are rejected without training
PROBES = 20  # draws of which one must fit the data before the search begins


class SearchInterrupted(KeyboardInterrupt):
    """The user or the system stopped the search. Every trial that had ended is kept."""

    command = "search"  # that resumes it


def search(
    model: Any,
    source: Any,
    given: Mapping[str, Any],
    space: Mapping[str, Any] | None = None,
    out: str | Path | None = None,
    resume: str | Path | None = None,
    progress: SearchProgress | None = None,
    crowned: bool = True,
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
        crowned: Whether the winner is trained as a run and tested. Otherwise the test split is not used.

    Returns:
        The search.

    Raises:
        SearchInterrupted: If the user stops it.
        CutawayError: For errors that the user can fix.
    """
    progress = progress or SearchProgress()
    if resume is not None:
        plan, folder = resumed_plan(Path(resume), model, source, given, space, out), Path(resume)
    else:
        plan, folder = new_plan(model, source, given, space), None
    with contextlib.ExitStack() as held:
        held.callback(torch.set_num_threads, torch.get_num_threads())
        torch.set_num_threads(torch.get_num_threads())  # set explicitly, as in `train`
        trials = Trials(
            plan.found,
            plan.source,
            plan.fixed,
            Limits(plan.settings.max_macs, plan.settings.max_parameters),
            DataCache(),
        )
        ready = _probe(plan, trials)
        name = f"{plan.found.file_name}-{ready.data.name}"
        folder = folder if folder is not None else new_search_folder(out, name)
        about = _open_document(folder, plan, ready)
        pruner = pruner_for("none" if plan.settings.sampler == "nsga2" else plan.settings.pruner, ready.settings.epochs)
        study = open_study(folder, about["directions"], pruner)
        at_work = _TrialLoop(folder, plan, trials, study, about, progress)
        with progress:
            try:
                at_work.until_done()
            except KeyboardInterrupt:
                _write_page(folder)
                raise SearchInterrupted(folder) from None
        if at_work.others:
            progress.note("Another process runs the last trials of this search and will train the best one.")
        elif crowned:
            _train_winner(folder, plan, study, about, progress)
        _write_page(folder)
    made = plan.found if isinstance(plan.found, ModuleBuilder) else None
    return Search(folder, plan.source if isinstance(plan.source, InMemorySource) else None, made)


# --- before the first trial -------------------------------------------------------------------------------------------


def _probe(plan: Plan, trials: Trials) -> TrainingSetup:
    """Prepare model and data of a random draw, so that errors are raised before the search begins."""
    source, error = random.Random(plan.seed), None
    for _ in range(PROBES):
        parts = {name: draw_value(one, source) for name, one in distributions(plan.space).items()}
        try:
            return trials.ready(plan.space.given(parts))
        except (SettingError, ModelError) as refused:
            error = refused
    assert error is not None, "there are draws"
    raise error


def _open_document(folder: Path, plan: Plan, ready: TrainingSetup) -> dict[str, Any]:
    """Write search.json, or read it if the folder has the same search.

    Raises SettingError for another search or other data.
    """
    metric = ready.settings.monitor or ready.task.default_monitor
    best = "maximize" if metric in HIGHER_IS_BETTER else "minimize"
    document = {
        **plan.document(),
        "typed": {key: as_text(value) for key, value in plan.how.items()},
        "trials": plan.settings.trials,
        "metric": metric,
        "directions": [best, "minimize"] if plan.settings.sampler == "nsga2" else [best],
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
    with draw_lock(folder):
        if (folder / ABOUT).is_file():
            about = read_about(folder)
            for key in (*plan.document(), "fingerprint", "split_hash"):
                then = about.get(key)
                if then != document[key]:
                    raise SettingError(
                        f"{folder} holds a search with another {key}: {_diff_text(then, document[key])}. Choose "
                        "another --out, use the same settings, or --resume it."
                    )
            document = about | {"trials": plan.settings.trials}
        write_json(folder / ABOUT, document)
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
        plan: Plan,
        trials: Trials,
        study: optuna.Study,
        about: Mapping[str, Any],
        progress: SearchProgress,
    ) -> None:
        self.folder, self.plan, self.trials, self.study = folder, plan, trials, study
        self.metric, self.progress = str(about["metric"]), progress
        self.others = 0  # trials of other processes when none is left to start

    def until_done(self) -> None:
        """Run trials until there are enough. Raises SettingError if none can be trained."""
        space = self.plan.space
        self.progress.begin(self.plan.settings.trials, self.metric, trial_rows(self.study, space, self.metric))
        while True:
            with contextlib.ExitStack() as held:
                trial = self._next(held)
                if trial is None:
                    break
                self._run(trial)
            self.progress.trial_done(trial_rows(self.study, space, self.metric))

    def _next(self, held: contextlib.ExitStack) -> optuna.Trial | None:
        """Draw and lock the next trial. None if there are enough trials or all combinations are used."""
        settings, space = self.plan.settings, self.plan.space
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
            seed = mix_seeds(self.plan.seed, draw)
            if settings.sampler == "darts":
                trial = self.study.ask()
            else:
                self.study.sampler = sampler_for(settings, space, seed, [t.params for t in there])
                trial = self.study.ask(fixed_distributions=distributions(space))
            own = trial_folder(self.folder, trial.number)
            own.mkdir(parents=True, exist_ok=True)
            held.callback(_clear, own)
            held.enter_context(lock_run(own))
            trial.set_user_attr(DRAW, draw)
        return trial

    def _should_give_up(self, ended: list[FrozenTrial], trained: list[FrozenTrial]) -> bool:
        """Return whether too many consecutive draws were rejected. Raises SettingError if no trial was ever trained."""
        last = ended[-GIVE_UP:]
        states = [t.user_attrs[OUTCOME]["state"] for t in last]
        if len(last) < GIVE_UP or any(state != REJECTED for state in states):
            return False
        why = last[-1].user_attrs[OUTCOME]["why"]
        if trained:
            self.progress.note(f"The search stops: the last {GIVE_UP} samples were rejected before training ({why}).")
            return True
        parameters = [t.user_attrs[OUTCOME]["parameters"] for t in last if t.user_attrs[OUTCOME]["parameters"]]
        macs = [t.user_attrs[OUTCOME]["macs"] for t in last if t.user_attrs[OUTCOME]["macs"]]
        least = [f"{min(values):,} {what}" for values, what in ((macs, "MACs"), (parameters, "parameters")) if values]
        said = f" The smallest had {' and '.join(least)}." if least else ""
        raise SettingError(
            f"None of {GIVE_UP} samples can be trained: {why.rstrip('.')}.{said} Widen the space or limits."
        )

    def _run(self, trial: optuna.Trial) -> None:
        """Train one trial and store its outcome."""
        if self.plan.settings.sampler == "darts":
            work, seconds = self._propose(trial)
        else:
            work, seconds = 0.0, 0.0
        given = self.plan.space.given(trial.params)
        two = len(self.study.directions) > 1

        def judge(epoch: int, score: float) -> bool:
            if two:
                return True
            trial.report(score, epoch)
            self.progress.epoch(trial.number, epoch, score)
            return not trial.should_prune()

        self.progress.trial(trial.number, given)
        outcome = self.trials.run(given, trial_folder(self.folder, trial.number), judge)
        outcome.work += work
        outcome.seconds = round(outcome.seconds + seconds, 3)
        with draw_lock(self.folder):  # no process may look for killed trials between the end of a trial and its outcome
            self._record(trial, outcome)

    def _propose(self, trial: optuna.Trial) -> tuple[float, float]:
        """Find the cell of a trial with DARTS and return its multiply-adds and seconds."""
        began = datetime.now(UTC)
        ready = self.trials.ready({})
        seed = mix_seeds(self.plan.seed, trial.user_attrs[DRAW])
        found = darts.find_cell(ready, self.plan.settings, seed, self.progress.supernet)
        self.study.sampler = FixedValuesSampler(found.parts)
        for name, one in distributions(self.plan.space).items():
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


def _clear(folder: Path) -> None:
    """Remove the empty folder of a trial that ended."""
    with contextlib.suppress(OSError):
        folder.rmdir()


# --- the winner -------------------------------------------------------------------------------------------------------


def _train_winner(
    folder: Path, plan: Plan, study: optuna.Study, about: dict[str, Any], progress: SearchProgress
) -> None:
    """Train the settings of the best trial as a run in best/ and test it, unless that is done already."""
    metric = str(about["metric"])
    finished = [row for row in trial_rows(study, plan.space, metric) if row["state"] == FINISHED]
    best = best_row(finished, metric, metric in HIGHER_IS_BETTER)
    if best is None:
        raise SettingError("No trial finished: each was pruned or diverged. Widen the space, or set pruner=none.")
    try:
        with lock_run(folder):
            tested: list[int] = read_about(folder)["tested"]
            run = folder / BEST
            done = (run / "evaluation.json").is_file()
            if tested and tested[-1] == best["trial"] and done:
                return
            progress.note(f"Trial {best['trial']} is the best: it is trained again as a run and tested.")
            given = {key: best[key] for key in plan.space.texts()}
            given = {**plan.fixed, **drop_unused_settings(given, plan.fixed, plan.found)}
            went_on = tested and tested[-1] == best["trial"] and latest_checkpoint(run / "checkpoints") is not None
            if not went_on:
                with draw_lock(folder):
                    write_json(folder / ABOUT, read_about(folder) | {"tested": [*tested, best["trial"]]})
            if went_on:
                again = plan.source if isinstance(plan.source, InMemorySource) else None
                own = build_custom_module(plan.found, given)
                winner = train_model(own, again, {}, resume=run, progress=Progress(shown=progress.shown))
            else:
                model, given = new_model(plan.found, given)
                winner = train_model(
                    model,
                    plan.source,
                    given,
                    out=run,
                    overwrite=(run / "run.json").is_file(),
                    progress=Progress(shown=progress.shown),
                )
            write_layers_and_report(winner)
    except RunInUse:
        progress.note("Another process trains the best trial.")
    except KeyboardInterrupt:
        raise SearchInterrupted(folder) from None


def _write_page(folder: Path) -> None:
    """Write the report if there are trials."""
    found = Search(folder)
    if found.trials:
        write_search_report(found)
