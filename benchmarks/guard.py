"""Leaks put by seed into real sets, and how many of them are found: python -m benchmarks.guard [SEEDS [SET ...]].

Of duplicates, near duplicates and wrong labels every example counts; of all else every set that the leak is put into.
What is said of the sets as they are is printed in full: an alarm may be true, and somebody has to look at it. Times
are of the processor, in one process of one thread.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from cutaway.data.dataset_base import DataSet
from cutaway.data.findings import Finding
from cutaway.data.quality import validation
from cutaway.data.quality.near_duplicates import extract_features
from cutaway.data.quality.validation import validate_dataset

from .leaks import LEAKS, Leak, Raw, harmless, number, raw

USED = ("wine", "breast_cancer", "penguins.csv", "digits", "mnist1d", "sms_spam", "fsdd")  # as the guard was written
UNSEEN = ("california_housing", "diabetes", "mpg.csv", "diamonds.csv", "titanic", "mnist", "cifar10", "sst2")
SIGNS = {
    "duplicates": "Duplicates straddle",
    "near duplicates": "Near duplicates",
    "wrong labels": "Labels are probably wrong",
    "leaking column": "Column leak alone",
    "set after the event": "Column leak",
    "ids": "Column leak",
    "groups": "Column leak names groups",
    "times": "Rows near in time, by column leak",
    "drift": "The test split is not like training",
    "drift of the target": "The test split is not like training",
}


@dataclass
class Score:
    """Of one kind of leak in one set."""

    put: int = 0
    found: int = 0
    named: int = 0  # examples that were named, of which `found` rightly

    def __add__(self, other: Score) -> Score:
        return Score(self.put + other.put, self.found + other.found, self.named + other.named)

    def __str__(self) -> str:
        return f"{self.found} of {self.put}" + (f", {self.named} named" if self.named else "")


def judged(kind: str, leak: Leak, data: DataSet) -> Score:
    """How much of a leak is found in what is said of the data."""
    said = [note for note in data.notes if note.startswith(SIGNS[kind]) and leak.named in note]
    rows = {number(e[0], leak.raw.kind) for note in said if isinstance(note, Finding) for e in note.examples}
    if leak.wrong is not None:
        right = sum(bool(leak.wrong[i]) for i in rows)
        seen = {split: one for split, s in data.splits.items() if (one := extract_features(s, leak.raw.kind))}
        looked = [number(seen[split].name(i), leak.raw.kind) for split, i in validation.sample_examples(seen)]
        return Score(int(leak.wrong[looked].sum()), right, len(rows))
    if leak.pairs:
        split = {number(s.name(i), leak.raw.kind): k for k, s in data.splits.items() for i in range(len(s))}
        apart = [(a, b) for a, b in leak.pairs if split[a] != split[b]]
        return Score(len(apart), sum(a in rows or b in rows for a, b in apart), len(rows))
    return Score(1, bool(said))


def measured(whole: Raw, seeds: int, say: Callable[[str], None]) -> tuple[dict[str, Score], float]:
    """Every kind of leak in one set, and the seconds that the guard took of it as it is."""
    scores: dict[str, Score] = {}
    seconds = []
    for seed in range(seeds):
        for kind, put in {"": None, **LEAKS}.items():
            rng = np.random.default_rng([seed, *kind.encode()])
            with tempfile.TemporaryDirectory() as folder:
                if put is None:
                    data = harmless(whole, rng).opened(Path(folder), seed)
                    begin = time.process_time()
                    validate_dataset(data)
                    seconds.append(time.process_time() - begin)
                    say(f"{whole.name}, seed {seed}, as it is: {seconds[-1]:.2f} s")
                    for finding in data.findings:
                        say(f"    {finding}")
                elif leak := put(whole, rng):
                    score = judged(kind, leak, leak.raw.opened(Path(folder), seed))
                    scores[kind] = scores.get(kind, Score()) + score
    return scores, max(seconds)


def main(seeds: int = 3, only: tuple[str, ...] = (), say: Callable[[str], None] = print) -> dict[str, dict[str, Score]]:
    """Put every kind of leak into every set that can have it; print what was found, by set and by kind."""
    torch.set_num_threads(1)
    found: dict[str, dict[str, Score]] = {}
    for name in only or (*USED, *UNSEEN):
        found[name], seconds = measured(raw(name), seeds, say)
        say(f"{name}: {seconds:.2f} s; " + "; ".join(f"{kind} {score}" for kind, score in found[name].items()))
    say("\n| leak | sets | put in | found | |\n| --- | ---: | ---: | ---: | ---: |")
    for kind in LEAKS:
        own = [scores[kind] for scores in found.values() if kind in scores and scores[kind].put]
        put, right = sum(s.put for s in own), sum(s.found for s in own)
        say(f"| {kind} | {len(own)} | {put} | {right} | {right / max(put, 1):.1%} |")
    return found


if __name__ == "__main__":
    main(int((sys.argv[1:] or ["3"])[0]), tuple(sys.argv[2:]), lambda text: print(text, flush=True))
