"""cutaway export: a run as one file for other programs."""

from __future__ import annotations

import argparse
from pathlib import Path

SUMMARY = "export a run with its preprocessing to ONNX or torch.export"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("run", metavar="RUN", help="folder of a run")
    parser.add_argument("out", metavar="OUT", type=Path, help="OUT.onnx, for onnxruntime, or OUT.pt2, for torch.export")
    parser.add_argument("--overwrite", action="store_true", help="overwrite OUT if it exists")


def run(args: argparse.Namespace) -> int:
    """Export a run and print the result of the comparison with it."""
    from ...deploy.export import export
    from ...deploy.exported_program import TOLERANCE
    from ...runs.run import Run
    from .output import note

    _, *beside = export(Run(args.run), args.out, args.overwrite)
    for path in beside:
        note(f"{path} is its tokenizer in the format of the tokenizers library.")
    note(f"Verified: outputs of {args.out} equal those of {args.run} for two other batch sizes, within {TOLERANCE:g}.")
    if args.out.suffix == ".onnx":
        note(f"Try it: cutaway predict {args.out} FILE")
    return 0
