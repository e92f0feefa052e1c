"""cutaway generate for runs that solve problems: the thoughts of a search, and the solution."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from ..errors import SettingError
from .images import flag
from .options import method_of

if TYPE_CHECKING:
    from ..generation.thoughts import Found, Thought
    from ..training.run import Run

OTHERS = ("prompts", "count", "stop", "window", "top_k", "top_p", "min_p", "repetition_penalty", "num_beams")
SHOWN = 12  # thoughts of each depth of a tree


def think(run: Run, args: argparse.Namespace) -> int:
    """Look for a solution and print it, with the thoughts that led there and what they cost."""
    from ..data.text.problems import ProblemPreprocessing
    from ..generation.thinker import form_of
    from ..generation.thoughts import CHAINS, GREEDY
    from .output import emit_json, write

    for key in OTHERS:
        if getattr(args, key) is not None:
            raise SettingError(f"{flag(key)} is not for problems, which this run solves: leave it out.")
    if not args.prompt:
        raise SettingError("This run solves problems: give one with --prompt, as 4 9 10 13 or 128+367.")
    method = method_of(args) or GREEDY
    (found,) = run.think([args.prompt], method)
    assert isinstance(run.preprocessing, ProblemPreprocessing)
    preprocessing = run.preprocessing.in_form(form_of(run.preprocessing, method))
    verdict = preprocessing.kind.judge(found.root.text, preprocessing.form, found.solution)
    spent = found.root.held.spent
    if args.json:
        emit_json(
            {
                "problem": found.root.text,
                "solution": found.solution,
                "solved": verdict.solved,
                "first_wrong_step": verdict.wrong,
                "why": verdict.why,
                "tokens": spent.tokens,
                "thoughts": _documents(found.thoughts),
            }
        )
        return 0
    write(f"{found.root.text}\n")
    if method.method not in CHAINS:
        write("\n".join(_tree(found)) + "\n")
    text = found.solution.strip("\n") or "no solution was finished"
    write("".join(f"  {line}\n" for line in text.split("\n")))
    said = "solved" if verdict.solved else "not solved"
    if verdict.why:  # which nothing is that is solved
        said += f": step {verdict.wrong}: {verdict.why}"
    write(f"{said}; {len(found.thoughts):,} thoughts, {spent.tokens:,} tokens\n")
    return 0


def _documents(thoughts: list[Thought]) -> list[dict[str, Any]]:
    """Each with the number of the one that it follows; None where that is the problem."""
    numbers = {id(thought): k for k, thought in enumerate(thoughts)}
    return [
        {
            "text": thought.text.strip("\n"),
            "parent": numbers.get(id(thought.parent)),
            "log_p": thought.log_p,
            "value": thought.value,
            "kept": thought.kept,
        }
        for thought in thoughts
    ]


def _tree(found: Found) -> list[str]:
    """A line for each thought, under the one that it follows; those that were kept first."""
    children: dict[int, list[Thought]] = {}
    for thought in found.thoughts:
        children.setdefault(id(thought.parent), []).append(thought)
    lines: list[str] = []

    def grow(thought: Thought, indent: str) -> None:
        own = sorted(children.get(id(thought), []), key=lambda t: (not t.kept, -(t.value or 0.0)))
        for k, child in enumerate(own[:SHOWN]):
            last = k == len(own) - 1
            mark = "" if child.kept else "  pruned"
            lines.append(f"{indent}{'└' if last else '├'} {child.text.strip()}  {child.value or 0:.2f}{mark}")
            grow(child, indent + ("  " if last else "│ "))
        if len(own) > SHOWN:
            lines.append(f"{indent}└ and {len(own) - SHOWN} more")

    grow(found.root, "  ")
    return lines
