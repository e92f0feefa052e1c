"""Runner of a comparison: it selects candidates, trains them (several at a time if possible) and compares them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from ...checkpoints.factory import ModuleBuilder, build_custom_module, to_builder
from ...core.config import as_text, build, exact_text, field_names, pick, unknown_setting
from ...core.errors import (
    CutawayError,
    IncompatibleSettingError,
    MissingSettingError,
    ResumeError,
    SettingError,
    shorten,
)
from ...core.files import write_text
from ...core.metric_names import metric
from ...core.version import __version__
from ...data.settings import DataSettings
from ...draw.number_format import format_value
from ...models.registry import Preset, preset
from ...runs.run import Run
from ...training.config import TrainSettings
from ...training.run_folder import lock_run
from ..experiment import (
    REPORT,
    ExperimentInterrupted,
    absolute_location,
    create_experiment_folder,
    fixed_threads,
    reject_other_out,
    remove_failed_start,
)
from ..settings import CompareSettings
from .candidates import Candidate, apply_budget, select_candidates, tune_settings
from .comparison_page import render_report
from .result import DOCUMENT, CompareProgress, Comparison, read_comparison, write_comparison
from .scoring import score_models
from .workers import Job, is_finished, num_parallel_trainings, threads_per_training, train_all

UNSUPPORTED_SETTINGS = {
    "seed": "seeds=5 trains each model with seeds 0 to 4",
    "processes": "jobs=2 trains two at a time",
}
CHANGEABLE_SETTINGS = ("seeds", "jobs")


def compare(
    models: Sequence[Any],
    sources: Sequence[Any],
    given: Mapping[str, Any],
    out: str | Path | None = None,
    resume: str | Path | None = None,
    progress: CompareProgress | None = None,
) -> Comparison:
    """Train each model on each data set with several seeds and compare them with each other and with baselines.

    With `resume`, or if `out` contains the same comparison already, that one is continued, and finished trainings are
    kept.

    Args:
        models: Names of presets, or functions that build custom modules, as for `maker`.
        sources: Data sets.
        given: Settings of the comparison, and of training and data, the same for all models.
        out: Folder of the comparison.
        resume: Folder of a comparison to continue.
        progress: Progress output.

    Returns:
        The comparison.

    Raises:
        ExperimentInterrupted: If the user stops it.
        CutawayError: For errors that the user can fix.
    """
    progress = progress or CompareProgress()
    asked = _parse_models(models)
    if resume is not None:
        folder = Path(resume)
        about = _resume_document(read_comparison(folder), asked, sources, given, folder, out)
    else:
        about = _new_document(asked, sources, given)
        name = "-".join([*(_as_path(m) for m in about["models"][:3]), _data_name(sources[0])])
        folder = create_experiment_folder(out, "compare", name, DOCUMENT)
        if (folder / DOCUMENT).is_file():
            about = _existing_document(read_comparison(folder), about, folder)
    objects = {_data_name(source): source for source in sources if not isinstance(source, str | Path)}
    if missing := [name for name in about["in_memory"] if name not in objects]:
        raise ResumeError(
            f"The {missing[0]} of {folder} was passed in Python: pass it again, e.g. "
            f"cutaway.compare(data=(X, y), resume={str(folder)!r})."
        )
    made = {one.name: one for one in asked if isinstance(one, ModuleBuilder)}
    presets = [made[name] if name in made else preset(name) for name in about["models"]]
    with remove_failed_start(folder, DOCUMENT), lock_run(folder):
        before = read_comparison(folder) if (folder / DOCUMENT).is_file() else None
        begun = about["results"]
        write_comparison(folder, about)
        try:
            for source in about["data"]:
                if not any(result["data"] == source and result["done"] for result in about["results"]):
                    _compare_on_data(folder, about, presets, objects.get(source, source), source, progress)
        except KeyboardInterrupt:
            raise ExperimentInterrupted(folder, "compare") from None
        except CutawayError:
            if before is not None and about["results"] is begun:  # settings of a failed start are not kept
                write_comparison(folder, before)
            raise
        about = read_comparison(folder)
        write_comparison(folder, {**about, "status": "finished"})
    found = Comparison(folder)
    write_text(folder / REPORT, render_report(found))
    return found


# --- settings ---------------------------------------------------------------------------------------------------------


def _parse_models(models: Sequence[Any]) -> list[Preset]:
    """Return presets and makers of custom modules."""
    found = [preset(one) if isinstance(one, str) else to_builder(one) for one in models]
    twins = [
        one.name
        for i, one in enumerate(found)
        if isinstance(one, ModuleBuilder) and one.name in {f.name for f in found[:i]}
    ]
    if twins:
        raise SettingError(f'Two models have the name {twins[0]}: rename one, e.g. ("{twins[0]}-2", make).')
    return list({one.name: one for one in found}.values())


def _new_document(models: Sequence[Preset], sources: Sequence[Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return compare.json of a new comparison."""
    if not models or not sources:
        raise MissingSettingError(
            "Missing models or data: cutaway compare MODEL,MODEL DATA. `cutaway list` shows the models."
        )
    for key, why in UNSUPPORTED_SETTINGS.items():
        if key in given:
            raise IncompatibleSettingError(
                f"Invalid {key}={shorten(as_text(given[key]))}: not a setting of a comparison; {why}."
            )
    how = pick(given, CompareSettings)
    rest = {key: value for key, value in given.items() if key not in how}
    known = field_names(TrainSettings, DataSettings)
    for key in rest:
        if key.startswith("model."):
            raise IncompatibleSettingError(
                f"Invalid {key}={shorten(as_text(rest[key]))}: a comparison has the same settings for all models. "
                "Leave it out, or pass a function that builds the model in Python, e.g. "
                f'("mine", lambda: cutaway.create_model(NAME, {key.removeprefix("model.")}=…)).'
            )
        if key not in known:
            raise unknown_setting(key, [*field_names(CompareSettings), *known])
    build(TrainSettings, pick(rest, TrainSettings))
    build(DataSettings, pick(rest, DataSettings))
    settings = build(CompareSettings, how)
    return {
        "models": [one.name for one in models],
        **({"own": own} if (own := {one.name: one.path for one in models if isinstance(one, ModuleBuilder)}) else {}),
        "data": [
            absolute_location(source) if isinstance(source, str) else _data_name(source)
            for source in map(_to_str, sources)
        ],
        "in_memory": [_data_name(source) for source in sources if not isinstance(source, str | Path)],
        "given": {key: exact_text(value) for key, value in rest.items()},
        "compare": asdict(settings),
        "threads": threads_per_training(int(rest["threads"]) if rest.get("threads") else None),
        "status": "running",
        "cutaway": __version__,
        "torch": torch.__version__,
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "results": [],
    }


def _to_str(source: Any) -> Any:
    return str(source) if isinstance(source, Path) else source


def _data_name(source: Any) -> str:
    """Return the name of data in a folder name."""
    return Path(source).stem if isinstance(source, str | Path) else "data"


def _resume_document(
    about: dict[str, Any],
    models: Sequence[Preset],
    sources: Sequence[Any],
    given: Mapping[str, Any],
    folder: Path,
    out: str | Path | None,
) -> dict[str, Any]:
    """Return compare.json of a comparison that is continued. Raises SettingError for settings that cannot change."""
    reject_other_out(folder, out)
    own, made = about.get("own", {}), {one.name for one in models if isinstance(one, ModuleBuilder)}
    if missing := [name for name in own if name not in made]:
        raise ResumeError(
            f"The {missing[0]} of {folder} is built by {own[missing[0]]}: pass it again, e.g. "
            f'cutaway.compare([("{missing[0]}", make)], resume={str(folder)!r}).'
        )
    others = [one for one in models if one.name not in (about["models"] if own else ())]
    if others or any(isinstance(source, str) for source in sources):
        raise ResumeError("--resume uses the models and data of the comparison: leave both out.")
    for key, value in given.items():
        if key not in CHANGEABLE_SETTINGS:
            raise ResumeError(
                f"Invalid {key}={shorten(as_text(value))}: cannot change when a comparison is resumed. Settings that "
                f"can: {', '.join(CHANGEABLE_SETTINGS)}."
            )
    settings = asdict(build(CompareSettings, {**about["compare"], **given}))
    more = settings["seeds"] != about["compare"]["seeds"]
    results = [{**result, "done": result["done"] and not more} for result in about["results"]]
    return {**about, "compare": settings, "results": results, "status": "running"}


def _existing_document(there: dict[str, Any], here: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return the comparison of a folder if it is the requested one. Raises SettingError if it is not."""
    for key in ("models", "own", "data", "given", "compare"):
        then = there.get(key)
        if then != here.get(key):
            raise ResumeError(
                f"{folder} holds another comparison: its {key} are {shorten(str(then))}. Choose another --out, or "
                f"resume it: cutaway compare --resume {folder}"
            )
    return {**there, "status": "running"}


# --- one data set -----------------------------------------------------------------------------------------------------


def _compare_on_data(
    folder: Path,
    about: dict[str, Any],
    models: Sequence[Preset],
    source: Any,
    name: str,
    progress: CompareProgress,
) -> None:
    """Compare the models on one data set and write the result to compare.json."""
    settings = CompareSettings(**about["compare"])
    given = {**about["given"], "threads": about["threads"], "tensorboard": False}
    with fixed_threads(about["threads"]):
        found, excluded = select_candidates(models, source, given, settings.macs)
        _, budget = apply_budget(given, settings.macs, len(found[0].data.splits["train"]))
        for one in found:
            one.given, _ = apply_budget(one.given, settings.macs, len(one.data.splits["train"]))
        for other in excluded:
            progress.note(f"{other.model} is skipped: {other.why}")
        own = folder / _folder_name(name, about["data"])
        own.mkdir(exist_ok=True)
        _reject_other_data(own, found[0].data.fingerprint, name)
        chosen = {
            one.model: tune_settings(one, source, own / _as_path(one.model), settings.trials, progress)
            for one in (found if settings.trials else ())
        }
        for one in found:
            one.given |= chosen.get(one.model, {})
        # Data and modules in memory cannot be passed to other processes.
        here = not isinstance(source, str) or any(isinstance(one, ModuleBuilder) for one in models)
        together = (
            1 if here else num_parallel_trainings(settings.jobs, about["threads"], max(one.bytes for one in found))
        )
        if here and settings.jobs and settings.jobs > 1:
            progress.note(
                f"jobs={settings.jobs}: models and data passed in Python are trained one at a time, in this process."
            )
        runs = {
            (one.model, seed): Job(
                one.preset,
                source,
                {**one.given, "seed": seed},
                own / _as_path(one.model) / f"seed-{seed}",
                alone=together == 1,
            )
            for seed in range(settings.seeds)
            for one in found
        }
        failed = _train_unfinished(list(runs.values()), together, found, progress)
        out = {job.model: why for job, why in failed.items()}
        left = [one for one in found if one.model not in out]
        of_model = {
            one.model: [_open_run(job) for (model, _), job in runs.items() if model == one.model] for one in left
        }
        result = score_models(left, of_model, settings, progress)
    result |= {
        "data": name,
        "budget": budget,
        "chosen": chosen,
        "done": not failed,
        "excluded": [asdict(one) for one in excluded]
        + [{"model": m, "why": why} for m, why in out.items()]
        + result["excluded"],
        "jobs": together,
    }
    before = [other for other in read_comparison(folder)["results"] if other["data"] != name]
    write_comparison(folder, {**about, "results": [*before, result]})
    about["results"] = [*before, result]


def _open_run(job: Job) -> Run:
    """Open the run of a training. A custom module is built again."""
    return Run(job.folder, build_custom_module(job.preset, job.given))


def _reject_other_data(own: Path, fingerprint: str, name: str) -> None:
    """Raise SettingError if an earlier training in this folder used different data of the same name."""
    for folder in own.glob("*/seed-*"):
        if is_finished(folder) and Run(folder).about["data"]["fingerprint"] != fingerprint:
            raise ResumeError(
                f"{name} has changed since {folder} was trained. Choose another --out to train everything again."
            )


def _train_unfinished(
    jobs: list[Job], together: int, found: list[Candidate], progress: CompareProgress
) -> dict[Job, str]:
    """Train the jobs that are not finished yet, and return the errors of failed trainings."""
    waiting = [job for job in jobs if not is_finished(job.folder)]
    progress.begin(len(jobs), len(jobs) - len(waiting))
    watch = {one.model: one.compared.key for one in found}

    def trained(job: Job, why: str) -> None:
        if why:
            progress.trained(f"{job.model}, seed {job.given['seed']}: {why}")
            return
        about = Run(job.folder).about
        best, key = about["best"], watch[job.model]
        said = f"{metric(best['metric'])[0]} {format_value(best['value'], metric(best['metric'])[1])}" if best else key
        progress.trained(f"{job.model}, seed {job.given['seed']}: validation {said}, {about['seconds']:.1f} s")

    return train_all(waiting, together, trained)


def _folder_name(name: str, all_names: Sequence[str]) -> str:
    """Return the folder of the runs on a data set: its name, with a number if two have the same."""
    stem = _data_name(name)
    twins = [other for other in all_names if _data_name(other) == stem]
    return stem if len(twins) == 1 else f"{stem}-{twins.index(name) + 1}"


def _as_path(model: str) -> str:
    return model.replace("/", "-")
