"""Options that several commands have."""

from __future__ import annotations

import argparse


def beam_search(parser: argparse.ArgumentParser) -> None:
    """What runs that learned pairs of sequences decode with; as in training unless given."""
    parser.add_argument(
        "--num-beams",
        metavar="N",
        type=int,
        help="beam search, of pairs and of speech: hypotheses that are kept; as in training",
    )
    parser.add_argument(
        "--length-penalty",
        metavar="A",
        type=float,
        help="length penalty of beam search: a larger one prefers longer answers",
    )
