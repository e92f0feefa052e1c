"""Commands before training: a check of data and model, and an estimate of memory, time and cost, here or on GPUs."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from itertools import groupby
from typing import TYPE_CHECKING, Any, cast

from .arguments import add_positionals, parse_data_args, parse_required_args
from .settings_help import training_settings

if TYPE_CHECKING:
    from ...distributed.dry_run import DryRun, ShardedWeight, ShardMemory
    from ...experiments.planner import Plan, Strategy
    from ...inspect.layers import LayerTable
    from ...training.setup import TrainingSetup

MEMORY_TITLES = {
    "casts": "weights in bfloat16",
    "optimizer": "optimizer state",
    "working": "backward pass",
}  # of memory
EVIDENCE_SHOWN = 3  # examples that a finding lists by name
PROCESS_SETTINGS = ("processes", "parallel")  # settings of training with several processes


def add_check_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.usage = "cutaway check [MODEL] DATA [key=value ...] [--json]"
    add_positionals(parser, said="as for `cutaway train`")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.epilog = "Writes no files and changes nothing."


def check_settings() -> tuple[type, ...]:
    """Return the groups of settings that the command takes."""
    return training_settings()


def run_check(args: argparse.Namespace) -> int:
    """Check the data, trace a batch, estimate the cost and print the results. Exit status 2 if the data has bad rows or
    files."""
    from .output import note_if_slow

    with note_if_slow("Reading the data, building the model and timing a few training steps ..."):
        return _run_check(args)


def _run_check(args: argparse.Namespace) -> int:
    """Check the data, and print or emit the findings and the cost."""
    from ...core.config import shell_command
    from ...core.errors import DataError
    from ...experiments.planner import check
    from .output import emit_json, note

    model, data, given = parse_data_args("check", args.words)
    of_several = {key: given.pop(key) for key in PROCESS_SETTINGS if key in given}
    try:
        checked = check(model, data, given)
    except DataError as error:
        if error.lines:
            for line in error.lines:
                note(line)
            raise DataError(
                f"{data} has problems, which are listed above with the settings that fix them. Several settings can "
                "be combined.",
                code=error.code,
            ) from error
        for problem in error.problems[5:]:  # the message itself names the first five
            note(str(problem))
        raise
    if of_several:
        command = shell_command("plan", checked.ready.preset.name, data, {**given, **of_several})
        note(f"The figures are for one process. `{command}` shows those of several.")
    if args.json:
        emit_json(checked.to_json())
    else:
        _print_check(checked.ready, checked.to_json(), checked.layers)
    return 0


def _print_check(ready: TrainingSetup, found: dict[str, Any], layers: LayerTable) -> None:
    """Print the data, the layers, the cost and the findings of a check."""
    from rich.markup import escape
    from rich.table import Table

    from ...core.memory_budget import format_bytes
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
        f"\nan epoch: {plural(cost['steps'], 'step')} of {_format_step_time(cost['seconds_per_step'])}, about "
        f"{_format_duration(cost['seconds_per_epoch'])} on {ready.place.device}; "
        f"{asked}: about {_format_duration(total_updates * cost['seconds_per_step'])}"
    )
    kinds = ", ".join(
        f"{MEMORY_TITLES.get(kind, kind)} {format_bytes(size)}" for kind, size in found["memory"].items() if size
    )
    flops = cost["flops_per_step"]
    computed = f"; a step computes {flops:.2g} FLOPs" if flops else ""
    out.print(f"memory: about {format_bytes(cost['memory'])} ({kinds}){computed}")
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
    if examples > EVIDENCE_SHOWN:
        out.print(f"\n--json lists all {examples:,} examples.")


def _format_step_time(seconds: float) -> str:
    return f"{1000 * seconds:.3g} ms" if seconds < 0.9995 else _format_duration(seconds)


def _format_duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


MEMORY_ROWS = (  # parts of a device's memory
    ("weights", "weights"),
    ("casts", "weights in bfloat16"),
    ("gradients", "gradients"),
    ("optimizer", "optimizer state"),
    ("activations", "activations"),
    ("outputs", "logits and loss"),
    ("working", "backward pass"),
    ("communication", "communication"),
    ("checkpoint", "checkpoint (copy)"),
    ("workspace", "workspace of products"),
)

PLAN_EXAMPLES = """\
examples:
  cutaway plan lenet5-modern digits
  cutaway plan gpt2 book.txt gpus=8 gpu=h100 price=2.5
  cutaway plan gpt2-xl book.txt gpus=16 gpu=a100 batch_size=64 recompute=full
  cutaway plan resnet50 photos/ processes=2
  cutaway plan gpt2-xl book.txt gpus=256 gpu=h100 batch_size=256 dry_run=true

All other settings are those of `cutaway train`. No model is saved, and nothing
runs on the planned GPUs: a training step is traced with shapes only, so a
model larger than this machine can be planned. Memory is the peak, and the rows
sum to it. With dry_run=true each strategy is also run on a simulated process
group: the shard of each weight on each device, and the communication of a
step.
"""


def add_plan_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.usage = "cutaway plan MODEL DATA [gpu=NAME gpus=N] [key=value ...] [--json]"
    add_positionals(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.epilog = PLAN_EXAMPLES


def plan_settings() -> tuple[type, ...]:
    """Return the groups of settings that the command takes."""
    from ...experiments.settings import PlanSettings

    return PlanSettings, *training_settings()


def run_plan(args: argparse.Namespace) -> int:
    """Compute the plan and print it."""
    from ...api import plan
    from .output import emit_json, note_if_slow

    model, data, given = parse_required_args("plan", args.words)
    with note_if_slow("Reading the data and tracing a training step ..."):
        found = plan(cast(Any, model), data, **given)
    if args.json:
        emit_json(found.to_json())
    else:
        _print_plan(found)
    return 0


def _print_plan(plan: Plan) -> None:
    """Print memory, time and cost of each strategy as a table, then notes and dry runs."""
    from rich.table import Table

    from ...core.memory_budget import format_bytes
    from ...draw.number_format import duration, plural
    from .output import console, say

    out = console()
    sequences = plan.tokens >= 2 * plan.batch  # otherwise a token is an example
    batch = plural(plan.batch, "example") + (f", {plural(plan.tokens, 'token')}" if sequences else "")
    say(f"{plan.model} on {plan.data}: {plural(plan.parameters, 'parameter')}, {batch} a step")
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(plan.device, overflow="fold")
    for strategy in plan.strategies:
        table.add_column(strategy.name, justify="right")
    for field, title in MEMORY_ROWS:
        sizes = [getattr(strategy.memory, field) for strategy in plan.strategies]
        if any(sizes):
            table.add_row(f"  {title}", *(format_bytes(size) if size else "" for size in sizes))
    table.add_row(*_row(plan, "on each device", lambda s: format_bytes(s.memory.total)), style="bold")
    room = plan.strategies[0].room
    if room is not None:
        table.add_row(*_row(plan, f"fits into {format_bytes(room)}", lambda s: "yes" if s.fits else "no"))
    if plan.strategies[0].seconds_per_step is not None:
        table.add_row()
        table.add_row(*_row(plan, "a step", lambda s: format_step_time(s.seconds_per_step or 0)))
        if plan.strategies[0].bound:
            table.add_row(*_row(plan, "limited by", lambda s: s.bound))
        table.add_row(
            *_row(
                plan, f"an epoch, {plural(plan.steps_per_epoch, 'step')}", lambda s: duration(s.seconds_per_epoch or 0)
            )
        )
        end = plural(plan.epochs, "epoch") if plan.steps == plan.epochs * plan.steps_per_epoch else "to the end"
        table.add_row(*_row(plan, f"{end}, {plural(plan.steps, 'step')}", lambda s: duration(s.seconds or 0)))
        if plan.strategies[0].cost is not None:
            table.add_row(*_row(plan, "cost", lambda s: f"{s.cost or 0:,.2f}"))
    out.print(table)
    out.print()
    best = plan.best
    if best is not None and len(plan.strategies) > 1:
        say(f"Fastest strategy that fits: {best.name}, with {plural(best.examples, 'example')} a step on each device.")
    for sentence in (*plan.notes, *(f"Assumed: {said}" for said in plan.assumed)):
        say(sentence, indent=2)
    for name, run in plan.dry_runs.items():
        print_dry_run(name, run)


def _row(plan: Plan, title: str, cell: Callable[[Strategy], str]) -> list[str]:
    return [title, *(cell(strategy) for strategy in plan.strategies)]


def format_step_time(seconds: float) -> str:
    """Format the time of a step: 5.4 ms, 1.2 s."""
    return f"{1000 * seconds:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


KINDS = ("weights", "gradients", "optimizer")


def print_dry_run(strategy: str, run: DryRun) -> None:
    """Print the dry run of a strategy."""
    from rich.table import Table

    from ...core.memory_budget import format_bytes
    from ...draw.number_format import plural
    from .output import console, say

    out = console()
    out.print()
    say(f"{strategy}, by a dry run of {plural(len(run.shares), 'device')}:")
    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("devices", *KINDS, "each"):
        table.add_column(title, justify="left" if title == "devices" else "right")
    for devices, share in group_shares(run.shares):
        table.add_row(devices, *(format_bytes(getattr(share, kind)) for kind in KINDS), format_bytes(share.bytes))
    out.print(table)
    out.print()
    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("weight", "shape", "each holds"):
        table.add_column(title, overflow="fold")
    for name, weight in group_weights(run.weights):
        table.add_row(name, format_shape(weight.shape), format_shape(weight.local_shape(0)))
    out.print(table)
    out.print()
    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("sent in a step", "among", "times", "bytes", "largest"):
        table.add_column(title, justify="left" if title == "sent in a step" else "right")
    for one in run.collectives:
        sizes = (format_bytes(one.bytes), format_bytes(one.largest))
        table.add_row(one.kind, f"{one.processes:,}", f"{one.count:,}", *sizes)
    out.print(table)


def group_shares(shares: tuple[ShardMemory, ...]) -> list[tuple[str, ShardMemory]]:
    """Group consecutive devices with equal shares, labelled by their ranks: `0–7`."""
    found, first = [], 0
    for share, group in groupby(shares):
        last = first + len(list(group)) - 1
        found.append((f"{first:,}" if first == last else f"{first:,}–{last:,}", share))
        first = last + 1
    return found


def group_weights(weights: tuple[ShardedWeight, ...]) -> list[tuple[str, ShardedWeight]]:
    """Group weights of one shape whose names differ only in the number of the block: `blocks.0–47.mlp.fc1.weight`.

    Return the label and the first weight of each group; only the first number of a name may differ.
    """
    found: dict[tuple[str, tuple[int, ...]], list[ShardedWeight]] = {}
    for weight in weights:
        found.setdefault((re.sub(r"\d+", "#", weight.name, count=1), weight.shape), []).append(weight)
    return [(_range_name(name, same), same[0]) for (name, _), same in found.items()]


def _range_name(name: str, same: list[ShardedWeight]) -> str:
    numbers = [match[0] for weight in same if (match := re.search(r"\d+", weight.name))]
    return name.replace("#", numbers[0] if len(numbers) == 1 else f"{numbers[0]}–{numbers[-1]}") if numbers else name


def format_shape(shape: tuple[int, ...]) -> str:
    """Format a shape: 6400×1600."""
    return "×".join(map(str, shape)) or "one number"
