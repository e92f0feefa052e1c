"""cutaway convert: checkpoints to and from other formats."""

from __future__ import annotations

import argparse
from pathlib import Path

SUMMARY = "convert checkpoints and word vectors between formats"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    sources = "run or model folder, Hugging Face or diffusers folder, hub:ORG/NAME, or torchvision file"
    parser.add_argument("source", metavar="IN", type=Path, help=sources)
    parser.add_argument("target", metavar="OUT", type=Path, help="output path; a folder must not exist")
    formats = ("torchvision", "huggingface", "diffusers", "cutaway", "word2vec")
    parser.add_argument("--to", required=True, choices=formats, help="format of OUT")
    parser.add_argument("--overwrite", action="store_true", help="overwrite OUT if it exists")
    parser.add_argument(
        "--adapter", metavar="DIR", type=Path, help="LoRA: merge this PEFT adapter into the weights of IN"
    )
    parser.add_argument("--model", metavar="NAME", help="preset of IN, if it is not stored there")


def run(args: argparse.Namespace) -> int:
    """Convert a checkpoint and print the map of keys."""
    from ...checkpoints.convert import convert
    from .output import note, print_table

    done = convert(args.source, args.target, args.to, args.model, args.overwrite, args.adapter)
    titles = (str(args.source), f"in {args.target}")
    print_table(titles, list(done.key_map.items()), yields=titles[1])
    for sentence in done.notes:
        note(sentence)
    note(f"{len(done.key_map)} tensors of {done.preset}: {args.source} converted to {args.target}")
    return 0
