"""cutaway check: a check of data, model and cost before training."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from .arguments import add_positionals, parse_required_args
from .settings_help import training_settings

if TYPE_CHECKING:
    from ...inspect.layers import LayerTable
    from ...training.setup import TrainingSetup

SUMMARY = "check the data, trace a batch, estimate time and memory"

TITLES = {"casts": "weights in bfloat16", "optimizer": "optimizer state", "working": "backward pass"}  # of memory
NAMED = 3  # examples that a finding lists by name
SHARED = ("processes", "parallel")  # settings of training with several processes


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.usage = "cutaway check MODEL DATA [key=value ...] [--json]"
    add_positionals(parser, said="as for `cutaway train`")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.epilog = "Writes no files and changes nothing."


def settings() -> tuple[type, ...]:
    """Return the groups of settings that the command takes."""
    return training_settings()


def run(args: argparse.Namespace) -> int:
    """Check the data, trace a batch, estimate the cost and print the results. Exit status 2 if the data has bad rows or
    files."""
    from .output import note_if_slow

    with note_if_slow("Reading the data, building the model and timing a few training steps ..."):
        return _run(args)


def _run(args: argparse.Namespace) -> int:
    from ...core.errors import DataError
    from ...experiments.planner import check
    from .output import emit_json, note

    model, data, given = parse_required_args("check", args.words)
    of_several = [f"{key}={given.pop(key)}" for key in SHARED if key in given]
    if of_several:
        note(
            f"The figures are for one process. `cutaway plan {model} {data} {' '.join(of_several)}` shows those "
            "of several."
        )
    try:
        checked = check(model, data, given)
    except DataError as error:
        for problem in error.problems[5:]:  # the message itself names the first five
            note(str(problem))
        raise
    if args.json:
        emit_json(checked.to_json())
    else:
        _print(checked.ready, checked.to_json(), checked.layers)
    return 0


def _print(ready: TrainingSetup, found: dict[str, Any], layers: LayerTable) -> None:
    from rich.markup import escape
    from rich.table import Table

    from ...draw.number_format import plural
    from ...inspect.layers import block_range_name, group_equal_blocks
    from ...training.objectives.choice import total_epochs
    from .output import console

    out, data, cost = console(), found["data"], found["cost"]
    splits = ", ".join(f"{n} {name}" for name, n in data["splits"].items())
    source = escape(data["source"])
    out.print(f"[bold]{ready.preset.name}[/] on [bold]{source}[/]: {data['kind']}, {found['task']}, {splits}")
    for sentence in data["notes"]:
        if sentence not in data["findings"]:
            out.print(f"  {sentence}", markup=False)
    if data["columns"]:
        table = Table(box=None, pad_edge=False, header_style="dim")
        for title in data["columns"][0]:
            table.add_column(title, overflow="fold")
        for row in data["columns"]:
            table.add_row(*(escape(str(value)) for value in row.values()))
        out.print()
        out.print(table)
    out.print(f"\none batch, {' and '.join('×'.join(map(str, s)) for s in found['batch'])}, through the model:")
    table = Table(box=None, pad_edge=False, header_style="dim")
    for title, justify in (("layer", "left"), ("type", "left"), ("output", "left"), ("parameters", "right")):
        table.add_column(title, justify=justify, overflow="fold")  # type: ignore[arg-type]
    for (_, first), *others in group_equal_blocks(layers.rows):
        for row in first:
            shape = "×".join(map(str, row.shape[1:]))
            table.add_row(row.name, row.type, shape, f"{row.parameters:,}" if row.parameters else "")
        if others:  # of consecutive identical blocks, only the first is shown in full
            parameters = sum(row.parameters for _, inside in others for row in inside)
            table.add_row(block_range_name(others), "the same", "", f"{parameters:,}")
    out.print(table)
    epochs, updates = total_epochs(ready.settings, ready.data), ready.settings.max_steps
    total_updates = epochs * cost["steps"] if updates is None else min(updates, epochs * cost["steps"])
    asked = plural(epochs, "epoch") if updates is None else plural(total_updates, "update")
    out.print(
        f"\nan epoch: {plural(cost['steps'], 'step')} of {_step_time(cost['seconds_per_step'])}, about "
        f"{_duration(cost['seconds_per_epoch'])} on {ready.place.device}; "
        f"{asked}: about {_duration(total_updates * cost['seconds_per_step'])}"
    )
    kinds = ", ".join(f"{TITLES.get(kind, kind)} {_size(size)}" for kind, size in found["memory"].items() if size)
    flops = cost["flops_per_step"]
    computed = f"; a step computes {flops:.2g} FLOPs" if flops else ""
    out.print(f"memory: about {_size(cost['memory'])} ({kinds}){computed}")
    if flops:
        out.print("See `cutaway plan` for details and GPUs: gpu=h100 gpus=8")
    if data["findings"]:
        _print_findings(data["findings"], sum(len(found["examples"]) for found in data["evidence"]))
    else:
        out.print("No problems found in the data.")


def _print_findings(findings: list[str], examples: int) -> None:
    """Print findings about the data. A terminal shows the part before the colon in bold."""
    from rich.table import Table
    from rich.text import Text

    from ...core.errors import printable
    from ...draw.number_format import plural
    from .output import console

    out = console()
    out.print(f"\n{plural(len(findings), 'finding')} in the data:")
    for number, sentence in enumerate(findings, 1):
        if not out.is_terminal:
            out.print(f"  {sentence}", markup=False)
            continue
        title, colon, rest = printable(sentence).partition(": ")
        row = Table.grid(padding=(0, 2, 0, 0))
        row.add_row(Text(f"{number}", "yellow"), Text.assemble((title + colon, "bold"), rest))
        out.print()
        out.print(row)
    if examples > NAMED:
        out.print(f"\n--json lists all {examples:,} examples.")


def _step_time(seconds: float) -> str:
    return f"{1000 * seconds:.3g} ms" if seconds < 0.9995 else _duration(seconds)


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _size(count: int) -> str:
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            break
        size /= 1024
    return f"{size:.3g} {unit}"
