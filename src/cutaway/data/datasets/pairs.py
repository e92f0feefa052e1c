"""Built-in sequence pairs, and problems with solutions.

Pairs: spelling to pronunciation, German to English. Generated problems: sums, Countdown with three and with four
numbers, and the game of 24.

Validation and test problems never occur in training, in any order of their numbers and for any target: the split is by
multisets of numbers. The test of `game24` has the numbers 901 to 1 000 of the list of 4nums.com, sorted by human
difficulty, as in S. Yao et al., Tree of thoughts, 2023 <https://arxiv.org/abs/2305.10601>. No other data set trains on
them.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Mapping, Sequence
from itertools import combinations_with_replacement
from random import Random

import numpy as np

from ...core.errors import DataError, ModelError, Problem, SettingError
from ...core.spec import NextToken, Solution, TextSpec
from ..build import DataSource, build_dataset
from ..dataset_base import DataSet
from ..modalities import reject_changed
from ..pairs.dataset import Tokenization, pairs_dataset
from ..settings import DataSettings
from ..text import puzzles
from ..text.puzzles import (
    FIRST,
    LARGEST,
    PUZZLES,
    PuzzlePreprocessing,
    PuzzleSplit,
    State,
    format_countdown,
    reachable_numbers,
)
from ..text.text_files import Pairs, read_lines
from .catalog import NamedSet, Request, remote_files
from .published import published_source

WORD = re.compile(r"(?P<word>.+?)(\(\d+\))?")  # read(2) is another pronunciation of read
SPELLED = re.compile(r"[a-z']+")  # has at least one letter: words with a spelling
MULTI30K_SPLITS = {"train": "train", "val": "val", "test": "test_2016_flickr"}
MULTI30K_LEAST = 2  # words that occur once are unknown, as in published translation models of this data set
MULTI30K_SUBWORDS = 10_000  # of both languages, if they share a tokenizer


def open_cmudict(request: Request) -> DataSet:
    """Load the CMU Pronouncing Dictionary: the letters of a word to its phonemes, without stress.

    As in published error rates, phonemes have no stress digits, and an answer is compared with the closest
    pronunciation of a word. Raises DataError for malformed lines.
    """
    (file,) = request.named.needed
    lines, _ = read_lines(request.place / file, nonempty=True)
    entries: dict[tuple[str, str], None] = {}  # (word, phonemes) in file order
    problems: list[Problem] = []
    others = repeated = 0
    for number, line in enumerate(lines, 1):
        head, *phonemes = line.partition("#")[0].split() or [""]
        found = WORD.fullmatch(head)
        if found is None or not phonemes:
            problems.append(Problem(f"{file}, line {number}", "it has no word with phonemes after it"))
            continue
        word = found["word"].lower()
        if not SPELLED.fullmatch(word) or not word.strip("'"):
            others += 1
            continue
        entry = word, " ".join(phoneme.rstrip("012") for phoneme in phonemes)
        repeated += entry in entries
        entries[entry] = None
    if problems or not entries:
        raise DataError(f"{request.place / file} is not the dictionary:", problems, "Copy or download it again.")
    words, pronunciations = map(list, zip(*entries))
    notes = [
        f"Left out of {len(lines):,} entries: {others:,} whose word has other signs than letters and apostrophes "
        f"(a.m., x-ray), and {repeated:,} that differ from another one in nothing but stress. Stress is taken off all "
        "phonemes, as for published scores.",
        "There is no published division of this version into splits: scores compare with published ones roughly.",
    ]
    return pairs_dataset(
        Words("the dictionary", words, pronunciations),
        published_source(request, notes),
        request.settings,
        column=request.named.target,
        cuts=(Tokenization("characters"), Tokenization("words", blanks=True)),
        sentences=False,
    )


class Words(Pairs):
    """Pairs that are named by their source."""

    def place(self, i: int) -> str:
        """Return the word."""
        return self.sources[i]


def open_multi30k(request: Request) -> DataSet:
    """Load Multi30k's captions, German to English, in its three splits, in lower case.

    Tokens are words, or subwords if the languages share a tokenizer. Raises DataError if the two languages of a split
    have different numbers of lines.
    """
    settings = request.settings
    sources: list[str] = []
    targets: list[str] = []
    splits = {}
    for split, stem in MULTI30K_SPLITS.items():
        german, english = (
            read_lines(request.place / f"{stem}.{language}.gz", nonempty=True)[0] for language in ("de", "en")
        )
        if len(german) != len(english):
            raise DataError(f"{stem} has {len(german):,} lines of German and {len(english):,} of English.")
        splits[split] = np.arange(len(sources), len(sources) + len(german))
        sources += german
        targets += english
    notes = []
    subwords = settings.joint_vocab is True and settings.tokenizer == "auto"
    if subwords and settings.vocab_size == DataSettings.vocab_size:
        settings = dataclasses.replace(settings, vocab_size=MULTI30K_SUBWORDS)
        notes = [f"The subwords that both languages share are at most vocab_size={MULTI30K_SUBWORDS} for this set."]
    elif not subwords and settings.tokenizer in ("auto", "words") and settings.min_count < MULTI30K_LEAST:
        settings = dataclasses.replace(settings, min_count=MULTI30K_LEAST)
        notes = [f"Words that occur once in the training split are unknown: min_count={MULTI30K_LEAST} for this set."]
    return pairs_dataset(
        Captions("captions", sources, targets),
        published_source(request, notes),
        settings,
        column=request.named.target,
        lower=True,
        cuts=(Tokenization("bpe"), Tokenization("bpe")) if subwords else (Tokenization("words"), Tokenization("words")),
        sentences=True,
        splits=splits,
    )


class Captions(Pairs):
    """Pairs that are named by their number, counted over all splits."""

    def place(self, i: int) -> str:
        """Return the number, from 1 on."""
        return f"caption {i + 1}"


PAIRS = {
    "cmudict": NamedSet(
        title="CMU Pronouncing Dictionary: how English words sound",
        kind="seq2seq",
        task="sequence-to-sequence",
        sizes="135 166 entries of 126 052 words; letters to phonemes",
        licence="BSD 2-clause, the dictionary's own",
        citation="Carnegie Mellon University, The CMU Pronouncing Dictionary, https://github.com/cmusphinx/cmudict",
        target="pronunciation",
        folder="cmudict",
        files=remote_files(
            "https://raw.githubusercontent.com/cmusphinx/cmudict/0f8072f814306c5ee4fbf992ed853601b12c01f9/",
            ("cmudict.dict", 3_618_488, "81917843c7f44ce2b094ac63873c2c7a4cf802040792c455ba3ca406891c3d22"),
        ),
    ),
    "multi30k": NamedSet(
        title="Multi30k: captions of photographs, German to English",
        kind="seq2seq",
        task="sequence-to-sequence",
        sizes="29 000 training, 1 014 validation and 1 000 test sentences",
        licence="for non-commercial research and education, as Flickr30K, which it comes from",
        citation="D. Elliott et al., Multi30K: multilingual English-German image descriptions, VL workshop 2016",
        target="English",
        folder="multi30k",
        files=remote_files(
            "https://raw.githubusercontent.com/multi30k/dataset/a3d2e0d26b56f3846f66a952536ffed4e401d05a/data/task1/raw/",
            ("train.de.gz", 637_044, "726e39b2fa9eb9ffb6dc763fb35a179f80fae06ffc5d28b6ace5faa883de28a6"),
            ("train.en.gz", 568_929, "d79cfa999dd4c51d2cb42499b6796d5a882c3a8a961923c25a898c90f8bbd56f"),
            ("val.de.gz", 24_681, "f0cba2f995189cf5770f29a8a9a537a3ad3f51657ad873405082ff6863a5e75a"),
            ("val.en.gz", 21_650, "14f7d25ddd868909a9213e361768460edcacdd6ab9d1e77b92560dc10c10dc28"),
            ("test_2016_flickr.de.gz", 22_890, "9204244e408ccb38d2a55cfcd344df15005fc42a07a6e55ca6c52b6ababb8cc8"),
            ("test_2016_flickr.en.gz", 21_077, "611d361c6334bc7246101d48097c13cf5c4413c5befc793cc629934359d532d9"),
        ),
    ),
}
PAIR_OPENERS = {"cmudict": open_cmudict, "multi30k": open_multi30k}


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
SHORT_TARGETS = range(1, 31)  # of Countdown with three numbers
SHORT_HELD_OUT = 40  # multisets of three numbers in validation and in test
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


PROBLEM_SETS = {
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
    "countdown3": _set(
        "Countdown with three numbers from 1 to 13 and a target up to 30: two steps, learned in minutes",
        "3 060 training, 366 validation and 311 test problems; test numbers are never trained on",
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
    size, total = 10**puzzles.DIGITS, sum(SUMS.values())
    drawn = iter(Random(0).sample(range(size * size), total))
    return {split: [puzzles.format_addition(*divmod(next(drawn), size)) for _ in range(n)] for split, n in SUMS.items()}


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


def generate_short_countdowns() -> dict[str, Sequence[str]]:
    """Return all targets up to 30 that three numbers can make; no numbers occur in two splits."""
    states = list(combinations_with_replacement(range(1, LARGEST + 1), 3))
    Random(3).shuffle(states)
    parts = {"val": slice(SHORT_HELD_OUT), "test": slice(SHORT_HELD_OUT, 2 * SHORT_HELD_OUT)}
    found: dict[str, Sequence[str]] = {}
    for split, part in {"train": slice(2 * SHORT_HELD_OUT, None), **parts}.items():
        made = [(state, target) for state in states[part] for target in sorted(reachable_numbers(state))]
        problems = [format_countdown(state, target) for state, target in made if target in SHORT_TARGETS]
        Random(2).shuffle(problems)
        found[split] = problems
    return found


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
    problem = PUZZLES[kind]
    forms = settings.form or problem.usual
    for form in forms:
        if form not in problem.forms:
            raise SettingError(f"Invalid form={form} for {request.name}: must be one of {', '.join(problem.forms)}.")
    problems: Mapping[str, Sequence[str]] = made()
    digest = hashlib.sha256(repr(problems).encode()).hexdigest()
    train = problems["train"][: settings.max_samples]
    vocab_size = len(problem.vocabulary) + FIRST
    target = Solution(vocab_size, problem=kind, forms=tuple(forms))
    preprocessing = PuzzlePreprocessing(TextSpec(vocab_size, 1, target))
    longest = max(
        sum(len(preprocessing.encode(text)) for text in split.example(i))
        for split in (PuzzleSplit(preprocessing, train, [form]) for form in forms)
        for i in range(min(len(train), LOOKED_AT))
    )
    preprocessing = PuzzlePreprocessing(TextSpec(vocab_size, longest + ROOM, target))
    splits = {
        split: PuzzleSplit(
            preprocessing, train if split == "train" else found, forms if split == "train" else forms[:1]
        )
        for split, found in problems.items()
    }
    notes = [f"A solution of each problem is sampled in every epoch; forms: {', '.join(forms)}."]
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
    "countdown3": ("countdown", generate_short_countdowns),
    "game24": ("countdown", generate_games),
}
PROBLEM_OPENERS = dict.fromkeys(SETS, open_problems)
NAMED = PAIRS | PROBLEM_SETS
OPENERS = PAIR_OPENERS | PROBLEM_OPENERS
