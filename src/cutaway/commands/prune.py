"""cutaway prune: fewer weights, or a smaller network, and what that costs in score."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from .words import sort_words

if TYPE_CHECKING:
    from ..compression.measured import Measured

SUMMARY = "take weights or channels out of a run's model while it learns on"

NOTES = """\
examples:
  cutaway prune runs/resnet20-cifar10-1 sparse/ sparsity=0.8
  cutaway prune runs/resnet20-cifar10-1 small/ prune_channels=0.5 epochs=10
  cutaway prune runs/mlp-wine-1 sparse/ sparsity=0.9 prune_scope=layer

Two ways, which can go together. Magnitude pruning (sparsity=0.8) sets the
smallest weights to 0, step by step (Zhu and Gupta, 2017): the network keeps its
shape, and dense hardware runs it no faster. Structured pruning
(prune_channels=0.5) takes whole channels and hidden units out: the network that
is left is smaller and faster.

The model learns on meanwhile, on the run's own data and split, for half as many
epochs and at 0.3 times the learning rate, unless other settings of `cutaway
train` are given. OUT is a run like any other. Milliseconds are medians on this
machine, of both models in turns.
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """What can be typed."""
    parser.usage = (
        "cutaway prune RUN OUT sparsity=0.8 [key=value ...] [--json]\n"
        "       cutaway prune RUN OUT prune_channels=0.5 [key=value ...] [--json]"
    )
    parser.add_argument("words", nargs="*", metavar="RUN OUT [key=value ...]", help="a run, the new run, settings")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.epilog = NOTES


def run(args: argparse.Namespace) -> int:
    """Prune, then print the two models beside one another."""
    from ..compression.measured import beside
    from ..compression.pruned import prune
    from ..errors import SettingError
    from ..report.writing import report_on
    from ..training.run import Run
    from .output import emit_json, note

    names, given = sort_words(args.words, names=2)
    if len(names) < 2:
        raise SettingError("A run and a new folder are needed: cutaway prune RUN OUT sparsity=0.8.")
    before = Run(names[0])
    after = prune(before, names[1], given)
    report_on(after)
    both = beside([before, after])
    if args.json:
        emit_json({"before": both[0].to_json(), "after": both[1].to_json()})
        return 0
    for sentence in after.about["data"]["notes"]:
        if sentence.startswith("Channels pruned"):
            note(f"note: {sentence}")
    print_beside(both)
    return 0


def print_beside(models: list[Measured]) -> None:
    """Print what models score and cost, a row each."""
    from ..models.memory import in_bytes
    from ..terms import metric
    from .tables import print_table
    from .train import figure

    watch = models[0].metric
    sizes = [f"batch {size}" for size in models[0].milliseconds]
    titles = ("", metric(watch)[0], "parameters", "zeros", "file", *sizes)
    rows = [
        (
            m.run,
            figure(watch, m.score.value),
            f"{m.parameters:,}",
            f"{100 * m.sparsity:.0f} %",
            in_bytes(m.bytes),
            *(f"{ms:.2f} ms" for ms in m.milliseconds.values()),
        )
        for m in models
    ]
    print_table(titles, rows, right=titles[1:])
