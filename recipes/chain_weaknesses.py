"""Weaknesses of chains of thought, measured on a run of countdown3: python -m recipes.chain_weaknesses RUN.

Each row is a number on the unseen test problems of the run: how far errors accumulate by step, whether the answer
follows from the steps, how confident wrong chains are, and what the order of the numbers, a larger target, and a
problem of another length change.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import combinations_with_replacement
from random import Random
from typing import NamedTuple

import torch

import cutaway
from cutaway.data.text.puzzles import (
    END,
    Countdown,
    PuzzlePreprocessing,
    PuzzleSplit,
    format_countdown,
    parse_countdown,
    possible_steps,
    reachable_numbers,
)
from cutaway.runs.run import Run

FORM = "steps"
LONGEST = 40  # tokens that are written at most
OTHERS = 200  # problems of another length or with other targets
CONFIDENT = 0.9


class Chain(NamedTuple):
    """What the network writes, and the probability of the least certain token."""

    text: str
    confidence: float


def write_chains(run: Run, prompts: Sequence[str]) -> list[Chain]:
    """Continue each prompt greedily, up to the end of the solution."""
    preprocessing = run.preprocessing
    assert isinstance(preprocessing, PuzzlePreprocessing)
    banned = torch.tensor(preprocessing.never)
    longest = preprocessing.spec.longest
    chains: list[Chain] = []
    with torch.no_grad():
        for prompt in prompts:
            asked = preprocessing.encode(prompt)
            ids, confidence = list(asked), 1.0
            while len(ids) < min(longest, len(asked) + LONGEST):
                logits = run.model(torch.tensor([ids]))[0, -1]
                logits[banned] = -torch.inf
                p, token = logits.softmax(0).max(0)
                confidence = min(confidence, p.item())
                if token == END:
                    break
                ids.append(int(token))
            chains.append(Chain(preprocessing.words(ids[len(asked) :]), confidence))
    return chains


def measure(run: Run) -> list[tuple[str, float, int]]:
    """Return the rows: what is measured, a fraction, and of how many problems."""
    split = run.data().splits["test"]
    assert isinstance(split, PuzzleSplit)
    assert isinstance(split.kind, Countdown)
    kind, problems, random = split.kind, list(split.problems), Random(0)
    chains = write_chains(run, [kind.ask(problem, FORM) for problem in problems])
    verdicts = [kind.judge(problem, FORM, chain.text) for problem, chain in zip(problems, chains)]
    firsts = [kind.so_far(problem, chain.text.split("\n")[0]) for problem, chain in zip(problems, chains)]
    valid, leads = [first.wrong is None for first in firsts], [first.leads for first in firsts]
    solved = [verdict.solved for verdict in verdicts]
    wrong = [k for k in range(len(problems)) if not solved[k]]
    rows = [
        row("problems solved", solved),
        row("error accumulation: the first step is valid", valid),
        row("error accumulation: the target can still be reached after the first step", leads),
        row("error accumulation: the second step is right, if it can", [s for s, lead in zip(solved, leads) if lead]),
        row("unfaithful conclusion: failed chains that end with the target", [verdicts[k].right for k in wrong]),
        row(
            f"confident errors: failed chains whose every token has a probability above {CONFIDENT:.0%}",
            [chains[k].confidence > CONFIDENT for k in wrong],
        ),
    ]
    prompts = []
    for problem in problems:  # a valid first step after which the target cannot be reached, in place of its own
        state, target = parse_countdown(problem)
        lost = [step for step in possible_steps(state) if target not in reachable_numbers(step.left)]
        if lost:
            prompts.append((problem, f"{random.choice(lost)}\n"))
    forced = write_chains(run, [kind.ask(problem, FORM) + step for problem, step in prompts])
    ends = [kind.judge(problem, FORM, step + chain.text).right for (problem, step), chain in zip(prompts, forced)]
    rows.append(
        row("unfaithful conclusion: a first step is forced that loses, and the chain ends with the target", ends)
    )
    turned = []
    for problem in problems:
        state, target = parse_countdown(problem)
        turned.append(kind.ask(f"{' '.join(map(str, reversed(state)))} => {target}", FORM))
    rows.append(row("order: solved with the numbers in descending order", judged(run, kind, problems, turned)))
    states = sorted({parse_countdown(problem)[0] for problem in problems})
    larger = [format_countdown(s, t) for s in states for t in sorted(reachable_numbers(s)) if 30 < t <= 60]
    larger = random.sample(larger, min(OTHERS, len(larger)))
    rows.append(row("range: targets from 31 to 60, trained on up to 30", judged(run, kind, larger)))
    shorter = [format_countdown(s, t) for s in combinations_with_replacement(range(1, 14), 2) for t in targets(s)]
    rows.append(row("length: two numbers, one step", judged(run, kind, random.sample(shorter, OTHERS))))
    return rows


def targets(state: tuple[int, ...]) -> list[int]:
    """Return the targets up to 30 that the numbers can make."""
    return [target for target in sorted(reachable_numbers(state)) if 1 <= target <= 30]


def judged(run: Run, kind: Countdown, problems: Sequence[str], prompts: Sequence[str] | None = None) -> list[bool]:
    """Return whether each problem is solved."""
    chains = write_chains(run, prompts or [kind.ask(problem, FORM) for problem in problems])
    return [kind.judge(problem, FORM, chain.text).solved for problem, chain in zip(problems, chains)]


def row(what: str, held: Sequence[bool]) -> tuple[str, float, int]:
    """Return the fraction of problems for which it holds."""
    return what, sum(held) / max(len(held), 1), len(held)


if __name__ == "__main__":
    for what, value, count in measure(cutaway.load(sys.argv[1])):
        print(f"{value:6.1%} of {count:3}  {what}")
