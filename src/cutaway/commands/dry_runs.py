"""What `cutaway plan … dry_run=true` prints: what each device holds of each weight, and what a step sends."""

from __future__ import annotations

import re
from itertools import groupby
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..distributed.dry_run import DryRun, HeldWeight, Share

KINDS = ("weights", "gradients", "optimizer")


def print_dry_run(strategy: str, run: DryRun) -> None:
    """Print the dry run of a strategy."""
    from rich.table import Table

    from ..draw.words import plural
    from ..models.memory import in_bytes
    from .output import console, say

    out = console()
    out.print()
    say(f"{strategy}, by a dry run of {plural(len(run.shares), 'device')}:")
    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("devices", *KINDS, "each"):
        table.add_column(title, justify="left" if title == "devices" else "right")
    for devices, share in alike_in(run.shares):
        table.add_row(devices, *(in_bytes(getattr(share, kind)) for kind in KINDS), in_bytes(share.bytes))
    out.print(table)
    out.print()
    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("weight", "shape", "each holds"):
        table.add_column(title, overflow="fold")
    for name, weight in alike_weights(run.weights):
        table.add_row(name, as_shape(weight.shape), as_shape(weight.held(0)))
    out.print(table)
    out.print()
    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("sent in a step", "among", "times", "bytes", "largest"):
        table.add_column(title, justify="left" if title == "sent in a step" else "right")
    for one in run.collectives:
        sizes = (in_bytes(one.bytes), in_bytes(one.largest))
        table.add_row(one.kind, f"{one.processes:,}", f"{one.count:,}", *sizes)
    out.print(table)


def alike_in(shares: tuple[Share, ...]) -> list[tuple[str, Share]]:
    """Devices after one another that hold as much, by their ranks: `0–7`."""
    found, first = [], 0
    for share, group in groupby(shares):
        last = first + len(list(group)) - 1
        found.append((f"{first:,}" if first == last else f"{first:,}–{last:,}", share))
        first = last + 1
    return found


def alike_weights(weights: tuple[HeldWeight, ...]) -> list[tuple[str, HeldWeight]]:
    """Weights of one name but for the number of their block, and of one shape: `blocks.0–47.mlp.fc1.weight`."""
    found: dict[tuple[str, tuple[int, ...]], list[HeldWeight]] = {}
    for weight in weights:
        found.setdefault((re.sub(r"\d+", "#", weight.name, count=1), weight.shape), []).append(weight)
    return [(_name_of(name, same), same[0]) for (name, _), same in found.items()]


def _name_of(name: str, same: list[HeldWeight]) -> str:
    numbers = [match[0] for weight in same if (match := re.search(r"\d+", weight.name))]
    return name.replace("#", numbers[0] if len(numbers) == 1 else f"{numbers[0]}–{numbers[-1]}") if numbers else name


def as_shape(shape: tuple[int, ...]) -> str:
    """A shape as people read it: 6400×1600."""
    return "×".join(map(str, shape)) or "one number"
