"""Running text as documents: told apart, and split with each left whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np

from ...errors import DataError, SettingError
from ..settings import DataSettings
from ..splits import PARTS
from ..tables.reading import counted
from .running_files import Read, parted

Documents = dict[str, list[Read]]


def documents_of(read: Mapping[str, Sequence[Read]]) -> tuple[Documents, str]:
    """The documents of each part, and a sentence on what they are: the files, where a part has several; else what
    stands between the blank lines of each file."""
    by_file = any(len(of_part) > 1 for of_part in read.values())
    found = {part: list(of_part) if by_file else parted(of_part[0]) for part, of_part in read.items()}
    what = "each file is one" if by_file else "what stands between blank lines is one"
    count = sum(map(len, found.values()))
    return found, f"No step reaches from one document into another; {what} ({count:,} in all)."


def split_documents(documents: Mapping[str, Sequence[Read]], settings: DataSettings) -> tuple[Documents, list[str]]:
    """The documents of each part, none of them cut: parts that are not given are taken from the end of the train part,
    by their shares of its characters as nearly as whole documents allow; and a sentence on it.

    Raises SettingError or DataError where nothing would be left to train on, or nothing for another part.
    """
    val = 0.0 if "val" in documents else settings.val
    test = 0.0 if "test" in documents else settings.test
    if val + test >= 1:
        raise SettingError(f"val={val:g} and test={test:g} leave nothing to train on: together they must be below 1.")
    whole = documents["train"]
    shares = {"train": 1 - val - test, "val": val, "test": test}
    cut = [part for part in PARTS if shares[part]]
    if len(whole) < len(cut):
        raise DataError(
            f"documents=true leaves each document whole, and there {'is' if len(whole) == 1 else 'are'} "
            f"{counted(len(whole), 'document')} for the parts {', '.join(cut)}.",
            mend="Give more files, or more blank lines between the documents of one; or val=0 test=0.",
        )
    ends = np.cumsum([len(read.text) for read in whole])
    places = [0]
    for k, part in enumerate(cut):
        wanted = ends[-1] * sum(shares[p] for p in cut[: k + 1])
        place = int(np.abs(ends - wanted).argmin()) + 1
        left = len(cut) - k - 1  # parts that are yet to get one
        places.append(len(whole) if part == cut[-1] else min(max(place, places[-1] + 1), len(whole) - left))
    parts = {part: list(whole[begin:end]) for part, (begin, end) in zip(cut, pairwise(places))}
    parts |= {part: list(read) for part, read in documents.items() if part != "train"}
    if len(cut) == 1:
        return parts, []
    said = ", ".join(f"{part} {len(parts[part]):,}" for part in cut)
    return parts, [f"The documents are split by position, those of the training part first ({said})."]
