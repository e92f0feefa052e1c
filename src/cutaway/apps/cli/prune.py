"""cutaway prune: fewer weights or a smaller network, and the cost in score."""

from __future__ import annotations

import argparse

from .compression_arguments import add_run_and_out, measure_runs, measurements_to_json, parse_run_args, print_comparison

SUMMARY = "prune weights or channels of a run's model and fine-tune it"

NOTES = """\
examples:
  cutaway prune runs/resnet20-cifar10-1 sparse/ sparsity=0.8
  cutaway prune runs/resnet20-cifar10-1 small/ prune_channels=0.5 epochs=10
  cutaway prune runs/mlp-wine-1 sparse/ sparsity=0.9 prune_scope=layer
  cutaway prune runs/textcnn-docs-1 sparse/ prune_pattern=2:4

Magnitude pruning (sparsity=0.8) sets the smallest weights to 0, step by step
(Zhu and Gupta, 2017): the network keeps its shape and is not faster on dense
hardware. The 2:4 pattern (prune_pattern=2:4; Mishra et al., 2021) sets the two
smallest of every four consecutive inputs to 0, which NVIDIA GPUs from Ampere on
can multiply faster with torch.sparse.to_sparse_semi_structured or TensorRT;
here it is a mask without speedup. On an H200, layers of width 4,096 took 0.84
to 0.92 of the time that way, and layers of GPT-2's size more than 1. Structured
pruning (prune_channels=0.5), alone or with either, removes whole channels and
hidden units: the network becomes smaller and faster.

The model is fine-tuned during pruning, on the data and split of the run, for
half as many epochs and at 0.3 times the learning rate, unless set otherwise
with settings of `cutaway train`. OUT is a run. Milliseconds are medians on this
machine, with both models alternating.
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.usage = (
        "cutaway prune RUN OUT sparsity=0.8 [key=value ...] [--json]\n"
        "       cutaway prune RUN OUT prune_channels=0.5 [key=value ...] [--json]"
    )
    add_run_and_out(parser)
    parser.epilog = NOTES


def run(args: argparse.Namespace) -> int:
    """Prune a run, then compare both models."""
    from ...deploy.compression import prune
    from ...reports.run_report import write_layers_and_report
    from ...runs.run import Run
    from .output import emit_json, note

    run_folder, out, given = parse_run_args("cutaway prune RUN OUT sparsity=0.8", args.words)
    before = Run(run_folder)
    after = prune(before, out, given)
    write_layers_and_report(after)
    both = measure_runs([before, after])
    if args.json:
        emit_json(measurements_to_json(both))
        return 0
    for sentence in after.about["data"]["notes"]:
        if sentence.startswith("Channels pruned"):
            note(f"note: {sentence}")
    if both:
        print_comparison(
            both, {"parameters": lambda m: f"{m.parameters:,}", "zeros": lambda m: f"{100 * m.sparsity:.0f} %"}
        )
    return 0
