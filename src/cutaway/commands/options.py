"""Options that several commands have."""

from __future__ import annotations

import argparse

from ..generation.thoughts import METHODS, Method


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


THINKING = ("method", "form", "breadth", "proposals", "depth", "threshold", "budget")  # of problems alone
DRAWING = ("samples", "temperature", "seed")  # of problems too


def thinking(parser: argparse.ArgumentParser) -> None:
    """How solutions of problems are looked for; as `generation.thoughts.Method` has it unless given."""
    parser.add_argument(
        "--method",
        metavar="METHOD",
        choices=METHODS,
        help="problems: how a solution is looked for. A chain of thought: greedy (usual) or sample; of --samples "
        "chains consistency (the answer that most give), likelihood, or verifier (the first that is right); a tree of "
        "thoughts: tree (breadth first) or depth-first (with backtracking)",
    )
    parser.add_argument(
        "--form", metavar="FORM", help="problems: how solutions are written, where a run learned several forms"
    )
    for key, kind, what in (
        ("breadth", int, "tree: thoughts that are kept at each depth (5)"),
        ("proposals", int, "tree, depth-first: tries for thoughts after each (8)"),
        ("depth", int, "tree, depth-first: steps (3)"),
        ("threshold", float, "depth-first: a thought of less value is not gone on from (0.1)"),
        ("budget", int, "depth-first: thoughts that are gone on from, at most (100)"),
    ):
        parser.add_argument(f"--{key}", metavar="N" if kind is int else "V", type=kind, help=what)


def method_of(args: argparse.Namespace) -> Method | None:
    """The method that was asked for; None where nothing was."""
    asked = {key: getattr(args, key) for key in (*THINKING, *DRAWING) if getattr(args, key) is not None}
    return Method(**asked) if asked else None
