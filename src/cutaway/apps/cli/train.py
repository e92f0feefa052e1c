"""cutaway train: training of a model on data."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from .arguments import add_output_options, add_positionals, parse_args
from .settings_help import training_settings

if TYPE_CHECKING:
    from ...runs.run import Run


TRAIN_EXAMPLES = """\
examples:
  cutaway train digits                 (without MODEL, one is proposed)
  cutaway train lenet5-modern digits
  cutaway train mlp houses.csv target=price epochs=50 lr=3e-4
  cutaway train resnet18 photos/ image_size=128
  cutaway train textcnn reviews.tsv text=review target=label
  cutaway train lstm book.txt
  cutaway train lstm visits.csv forecast=visits known_future=holiday horizon=24
  cutaway train gcn graph/ target=club
  cutaway train mlp titanic @settings.toml model.hidden_dims=64,64
  cutaway train --resume runs/lenet5-modern-digits-1

A model's card may have other defaults for these settings (hyperparameters):
`cutaway show MODEL` prints them. Settings that you give take precedence.
"""


def add_train_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.usage = (
        "cutaway train [MODEL] DATA [key=value ...]\n"
        "                     [--out DIR [--overwrite]] [--open] [--json]\n"
        "       cutaway train --resume RUN [key=value ...] [--open] [--json]"
    )
    add_positionals(parser)
    add_output_options(
        parser,
        "folder of the run",
        "MODEL-DATA",
        ("RUN", "resume a run that was stopped or killed"),
    )
    parser.add_argument(
        "--overwrite", action="store_true", help="allow --out DIR to be an existing run, and replace its files"
    )
    parser.epilog = TRAIN_EXAMPLES


def train_settings() -> tuple[type, ...]:
    """Return the groups of settings that the command takes."""
    return training_settings()


def run_train(args: argparse.Namespace) -> int:
    """Train a model, then print its results and its folder."""
    from ...api import train
    from ...core.errors import FileError
    from ...distributed.launch import rank
    from ...training.run_folder import RunExists
    from .output import console, emit_json, note, open_page

    model, data, given = parse_args(args.words)
    try:
        result = train(cast(Any, model), data, out=args.out, resume=args.resume, overwrite=args.overwrite, **given)
    except RunExists as error:
        raise FileError(f"{error} To replace the run, add --overwrite.", code=error.code) from None
    if rank() > 0:  # only the first process of torchrun prints the result
        return 0
    if args.open:
        open_page(result.folder / "report.html")
    if args.json:
        emit_json(summary(result))
        return 0
    begun = result.about.get("weights") or {"notes": []}
    said = result.about["data"].get("findings", ())  # before training began
    for sentence in (*result.about["data"]["notes"], *begun["notes"]):
        if sentence in said:
            continue
        note(f"note: {sentence}")
    for line in (*result_lines(result), next_line(result)):
        console().print(line)
    return 0


def summary(run: Run) -> dict[str, Any]:
    """Return the result of a run as one JSON document."""
    from ...runs.summary import warnings
    from ...training.run_folder import read_evaluation

    evaluation = read_evaluation(run.folder)
    assert evaluation is not None, "finished training is evaluated"
    return {
        "run": str(run.folder),
        "report": str(run.folder / "report.html"),
        "split": evaluation["split"],
        "count": evaluation["count"],
        "metrics": evaluation["metrics"],
        "baseline": evaluation.get("baseline"),
        "simple": evaluation.get("simple"),
        "warnings": warnings(run.about, evaluation),
        **{k: run.about[k] for k in ("model", "epochs_done", "seconds", "stopped", "summary")},
    }


def next_line(run: Run) -> str:
    """Return the commands that use a new run, as a line with rich markup."""
    from rich.markup import escape

    from ...core.spec import GeneratedImage, NextToken

    generates = isinstance(run.spec.target, GeneratedImage | NextToken)
    folder = escape(str(run.folder))
    use = f"cutaway generate {folder}" if generates else f"cutaway predict {folder} FILE"
    return f"next    {use}, or cutaway inspect {folder}"


def result_lines(run: Run) -> list[str]:
    """Return the result and the path of a run as lines with rich markup."""
    from rich.markup import escape

    from ...core.metric_names import metric
    from ...draw.number_format import plural
    from ...tasks.task import headline_metric

    result = summary(run)
    watch = headline_metric(run.task)
    found, baseline, name = result["metrics"][watch], result["baseline"], escape(metric(watch)[0])
    about = run.about
    compared = f"; {baseline['name']}: {format_metric(watch, baseline['value'])}" if baseline else ""
    if (simple := result["simple"]) and simple["metric"] == watch:
        compared += f"; {simple['models'][0]['name']}: {format_metric(watch, simple['models'][0]['value'])}"
    how_sure = [plural(result["count"], "example")]
    if found["low"] is not None and found["high"] is not None:
        how_sure.insert(
            0, f"95 % interval {format_metric(watch, found['low'])} to {format_metric(watch, found['high'])}"
        )
    elif found.get("note"):
        how_sure.append(escape(found["note"]))
    said = [
        f"{result['split']} {name} [bold]{format_metric(watch, found['value'])}[/] ({', '.join(how_sure)}){compared}",
        f"{plural(about['epochs_done'], 'epoch')} in {about['seconds']:.1f} s: {about['stopped']}",
    ]
    if kept := _describe_kept(about):
        said.append(kept)
    said += [f"[yellow]{escape(line)}[/]" for line in result["warnings"]]
    if about["summary"]:
        said.append(escape(about["summary"]))
    folder = escape(str(run.folder))  # a bracket in a name must not be read as markup
    said += [f"run     {folder}", f"report  {folder}/report.html"]
    return said


def _describe_kept(about: Mapping[str, Any]) -> str:
    """Describe the weights that were kept: the epoch, or the average, the monitored metric and its value."""
    from rich.markup import escape

    from ...core.metric_names import metric

    best = about["best"]
    if about.get("average"):
        return f"Kept the {_describe_average(about['average'], best['metric'])} (monitor={best['metric']})"
    if not best["epoch"]:
        return ""
    epoch = f"Kept epoch {best['epoch']} of {about['epochs_done']}"
    if about["settings"].get("tasks"):
        return f"{epoch}: the last epoch of the last task"
    if best["value"] is None:
        ends = "the last epoch, because there is no validation split" if "val" not in about["data"]["splits"] else ""
        return f"{epoch}: {ends}" if ends else epoch
    score = format_metric(best["metric"], best["value"])
    if about["settings"].get("sparsity"):
        epoch += " among the sparsest"
    return f"{epoch}: best validation {escape(metric(best['metric'])[0])} {score} (monitor={best['metric']})"


def _describe_average(average: dict[str, Any], watch: str) -> str:
    """Describe the average of the weights of the last epochs."""
    from rich.markup import escape

    from ...core.metric_names import metric

    score = ""
    if average["score"] is not None:
        score = f", validation {escape(metric(watch)[0])} {format_metric(watch, average['score'])}"
    epochs = f"epochs {average['first']} to {average['last']}"
    if average["first"] == average["last"]:
        return f"weights after epoch {average['last']}, the only one to average{score}"
    return f"mean of the weights after {epochs}{score}"


def format_metric(name: str, value: float | None) -> str:
    """Format a metric: fractions in per cent, other values with five digits."""
    from ...core.metric_names import metric
    from ...draw.number_format import UNKNOWN

    if value is None:
        return UNKNOWN
    return f"{100 * value:.2f} %" if metric(name)[1] == "fraction" else f"{value:.5g}"
