"""Running text as documents: told apart, and split with each left whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np

from ...errors import DataError
from ..settings import DataSettings
from ..splits import SPLITS, fractions_left
from ..tables.reading import counted
from .running_files import Read, parted

Documents = dict[str, list[Read]]


def documents_of(read: Mapping[str, Sequence[Read]]) -> tuple[Documents, str]:
    """The documents of each split, and a sentence on what they are: the files, where a split has several; else what
    stands between the blank lines of each file."""
    by_file = any(len(of_split) > 1 for of_split in read.values())
    found = {split: list(of_split) if by_file else parted(of_split[0]) for split, of_split in read.items()}
    what = "each file is one" if by_file else "what stands between blank lines is one"
    count = sum(map(len, found.values()))
    return found, f"No step reaches from one document into another; {what} ({count:,} in all)."


def split_documents(documents: Mapping[str, Sequence[Read]], settings: DataSettings) -> tuple[Documents, list[str]]:
    """The documents of each split, none of them cut: splits that are not given are taken from the end of the train
    split, by their fractions of its characters as nearly as whole documents allow; and a sentence on it.

    Raises SettingError or DataError where nothing would be left to train on, or nothing for another split.
    """
    val, test = fractions_left(settings, documents)
    whole = documents["train"]
    fractions = {"train": 1 - val - test, "val": val, "test": test}
    cut = [split for split in SPLITS if fractions[split]]
    if len(whole) < len(cut):
        raise DataError(
            f"documents=true leaves each document whole, and there {'is' if len(whole) == 1 else 'are'} "
            f"{counted(len(whole), 'document')} for the splits {', '.join(cut)}.",
            fix="Give more files, or more blank lines between the documents of one; or val=0 test=0.",
        )
    ends = np.cumsum([len(read.text) for read in whole])
    places = [0]
    for k, split in enumerate(cut):
        wanted = ends[-1] * sum(fractions[p] for p in cut[: k + 1])
        place = int(np.abs(ends - wanted).argmin()) + 1
        left = len(cut) - k - 1  # splits that are yet to get one
        places.append(len(whole) if split == cut[-1] else min(max(place, places[-1] + 1), len(whole) - left))
    splits = {split: list(whole[begin:end]) for split, (begin, end) in zip(cut, pairwise(places))}
    splits |= {split: list(read) for split, read in documents.items() if split != "train"}
    if len(cut) == 1:
        return splits, []
    said = ", ".join(f"{split} {len(splits[split]):,}" for split in cut)
    return splits, [f"The documents are split by position, those of the training split first ({said})."]
