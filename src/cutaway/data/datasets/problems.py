"""Generated problem sets: sums, Countdown, and the game of 24.

Validation and test problems never occur in training, in any order of their numbers and for any target: the split is by
multisets of numbers. The test of `game24` has the numbers 901 to 1 000 of the list of 4nums.com, sorted by human
difficulty, as in S. Yao et al., Tree of thoughts, 2023 <https://arxiv.org/abs/2305.10601>. No other data set trains on
them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from itertools import combinations_with_replacement
from random import Random

from ...core.errors import ModelError, SettingError
from ...core.spec import NextToken, Solution, TextSpec
from .. import problems
from ..build import DataSource, build_dataset
from ..dataset_base import DataSet
from ..modalities import reject_changed
from ..problems import LARGEST, PROBLEMS, State, format_countdown, reachable_numbers
from ..text.problems import FIRST, ProblemPreprocessing, ProblemSplit
from .catalog import NamedSet, Request

HARD = """
456a 1247 258b 344d 6789 1bbd 18ab 2369 1359 337c 4579 128d 4669 1448 15ab 346b 2489 145d 227c 3367
159d 567d 558a 246c 678b 799d 369c 69cd 479d 568c 2467 25aa 667c 699b 58bc 568a 6bcd 2288 27cd 268c
349d 45ac 127b 4568 6acd 1399 144b 239a 123d 1666 1229 136b 5acd 2366 67ac 788c 3468 179b 236d 225c
268d 88ac 138d 447a 17ad 19ad 334b 2577 39ad 2347 448c 126a 15cc 5668 778b 137a 339c 357a 4acd 23ac
3466 5888 688c 2349 267b 59cc 127c 2456 558d 233a 348c 246b 2289 1567 58ab 449c 2566 249c 48bd 49ad
"""
SCORED = ("val", "test")
HELD_OUT = 100  # validation multisets, in addition to those of the test
TARGETS = range(1, 101)  # of Countdown
SUMS = {"train": 10_000, "val": 500, "test": 1_000}
LOOKED_AT = 200  # solutions per form that are sampled to determine the longest
ROOM = 8  # tokens allowed beyond the longest solution, because a model's steps can be longer
NOT_THESE = (
    *("val", "test", "fold", "split_seed", "target", "text", "missing", "group"),
    *("tokenizer", "vocab_size", "length"),
)

_OURS = "none needed: it is computed here"


def _set(title: str, sizes: str, citation: str) -> NamedSet:
    return NamedSet(title, "text", "problem solving", sizes, _OURS, citation, target="solution")


NAMED = {
    "addition": _set(
        "Sums of two numbers of three digits, plain, from the last digit on, or with a scratchpad",
        "10 000 training, 500 validation and 1 000 test sums",
        "after N. Lee et al., Teaching arithmetic to small transformers, 2023",
    ),
    "countdown": _set(
        "Countdown: four numbers from 1 to 13 that make a target, by steps",
        "some 77 000 training, 1 000 validation and 1 000 test problems; test numbers are never trained on",
        "ours, after the television game",
    ),
    "game24": _set(
        "The game of 24: four numbers from 1 to 13 that make 24, by steps",
        "1 135 training, 100 validation and 100 test problems, the test those of the tree of thoughts",
        "S. Yao et al., Tree of thoughts, 2023; the list of 4nums.com",
    ),
}


def evaluation_multisets() -> dict[str, list[State]]:
    """Return the validation and test multisets of four numbers of Countdown and the game of 24."""
    test = [tuple(int(digit, 14) for digit in word) for word in HARD.split()]
    rest = [state for state in _all_multisets() if 24 in reachable_numbers(state) and state not in set(test)]
    return {"val": sorted(Random(24).sample(rest, HELD_OUT)), "test": test}


def generate_sums() -> dict[str, Sequence[str]]:
    """Generate distinct sums for each split."""
    size, total = 10**problems.DIGITS, sum(SUMS.values())
    drawn = iter(Random(0).sample(range(size * size), total))
    return {
        split: [problems.format_addition(*divmod(next(drawn), size)) for _ in range(n)] for split, n in SUMS.items()
    }


def generate_countdowns() -> dict[str, Sequence[str]]:
    """Return all targets up to 100 that four numbers can make; training excludes held-out numbers."""
    found = {
        split: [
            format_countdown(state, target)
            for state in of
            for target in sorted(reachable_numbers(state))
            if target in TARGETS
        ]
        for split, of in _states().items()
    }
    Random(2).shuffle(found["train"])
    return {"train": found["train"], **{split: Random(k).sample(found[split], 1_000) for k, split in enumerate(SCORED)}}


def generate_games() -> dict[str, Sequence[str]]:
    """Return the problems with the target 24."""
    found = {
        split: [format_countdown(s, 24) for s in of if 24 in reachable_numbers(s)] for split, of in _states().items()
    }
    Random(2).shuffle(found["train"])
    return {**found}


def open_problems(request: Request) -> DataSet:
    """Load the problems of the data set in the requested forms."""
    settings, (kind, made) = request.settings, SETS[request.name]
    if NextToken not in request.targets and request.targets:
        raise ModelError(f"{request.name} is for models that predict the next token, such as gpt2 and lstm.")
    reject_changed(settings, NOT_THESE, f"would change nothing: {request.name} is generated")
    problem = PROBLEMS[kind]
    forms = settings.form or problem.usual
    for form in forms:
        if form not in problem.forms:
            raise SettingError(f"form={form} cannot be of {request.name}: choose from {', '.join(problem.forms)}.")
    problems: Mapping[str, Sequence[str]] = made()
    digest = hashlib.sha256(repr(problems).encode()).hexdigest()
    train = problems["train"][: settings.max_samples]
    vocab_size = len(problem.vocabulary) + FIRST
    target = Solution(vocab_size, problem=kind, forms=tuple(forms))
    preprocessing = ProblemPreprocessing(TextSpec(vocab_size, 1, target))
    longest = max(
        sum(len(preprocessing.encode(text)) for text in split.example(i))
        for split in (ProblemSplit(preprocessing, train, [form]) for form in forms)
        for i in range(min(len(train), LOOKED_AT))
    )
    preprocessing = ProblemPreprocessing(TextSpec(vocab_size, longest + ROOM, target))
    splits = {
        split: ProblemSplit(
            preprocessing, train if split == "train" else found, forms if split == "train" else forms[:1]
        )
        for split, found in problems.items()
    }
    notes = [f"Which of a problem's solutions is learned from is drawn anew in every epoch; forms: {', '.join(forms)}."]
    return build_dataset(DataSource(request.name, request.name, digest, notes), settings, digest, preprocessing, splits)


def _states() -> dict[str, list[State]]:
    """Return the multisets of four numbers of each split; training has all that are not held out."""
    held = evaluation_multisets()
    out = {state for of_split in held.values() for state in of_split}
    return {"train": [state for state in _all_multisets() if state not in out], **held}


def _all_multisets() -> list[State]:
    """Return all multisets of four numbers."""
    return list(combinations_with_replacement(range(1, LARGEST + 1), 4))


SETS = {
    "addition": ("addition", generate_sums),
    "countdown": ("countdown", generate_countdowns),
    "game24": ("countdown", generate_games),
}
OPENERS = dict.fromkeys(SETS, open_problems)
