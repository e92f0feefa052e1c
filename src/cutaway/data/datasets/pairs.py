"""Built-in sequence pairs: spelling to pronunciation, German to English."""

from __future__ import annotations

import dataclasses
import re

import numpy as np

from ...core.errors import DataError, Problem
from ..dataset_base import DataSet
from ..pairs.dataset import Tokenization, pairs_dataset
from ..pairs.pair_files import Pairs, read_lines
from ..settings import DataSettings
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
    lines, _ = read_lines(request.place / file)
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
        raise DataError(f"{request.place / file} is not the dictionary:", problems, "Take it from its source again.")
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
        german, english = (read_lines(request.place / f"{stem}.{language}.gz")[0] for language in ("de", "en"))
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


NAMED = {
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
OPENERS = {"cmudict": open_cmudict, "multi30k": open_multi30k}
