"""cutaway convert: checkpoints to and from other formats."""

from __future__ import annotations

import argparse
from pathlib import Path

SUMMARY = "checkpoints and word vectors to and from other formats"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    sources = "a run's or model's folder, a Hugging Face folder, hub:ORG/NAME, diffusers' folder, or torchvision's file"
    parser.add_argument("source", metavar="IN", type=Path, help=sources)
    parser.add_argument("target", metavar="OUT", type=Path, help="what to write; a folder must not exist")
    formats = ("torchvision", "huggingface", "diffusers", "cutaway", "word2vec")
    parser.add_argument("--to", required=True, choices=formats, help="the format of OUT")
    parser.add_argument("--overwrite", action="store_true", help="let OUT replace a file that exists")
    parser.add_argument(
        "--adapter", metavar="DIR", type=Path, help="LoRA: add what this adapter of PEFT has learned to IN's weights"
    )
    parser.add_argument("--model", metavar="NAME", help="the preset, where IN does not say which it is")


def run(args: argparse.Namespace) -> int:
    """Convert a checkpoint and print the map of keys."""
    from ...checkpoints.convert import convert
    from .output import note, print_table

    done = convert(args.source, args.target, args.to, args.model, args.overwrite, args.adapter)
    titles = (str(args.source), f"in {args.target}")
    print_table(titles, list(done.key_map.items()), yields=titles[1])
    for sentence in done.notes:
        note(sentence)
    note(f"{len(done.key_map)} tensors of {done.preset}: {args.source} is now {args.target}")
    return 0
