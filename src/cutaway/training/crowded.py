"""Transcripts that do not fit into the frames that a network leaves of their recordings.

Connectionist temporal classification needs a frame for each character and one more between two that are equal: a text
that needs more than there are has the probability 0, and an infinite loss. Data alone cannot tell: the network says how
many frames it answers at.
"""

from __future__ import annotations

import torch
from torch import nn

from ..data.sets import IGNORED, DataSet, SequenceSplit, Split
from ..errors import DataError, Problem
from ..models.contract import contract_of
from ..nn.ctc import frames_needed
from ..spec import Transcript

NAMED_AT_MOST = 3  # recordings that a note names


def leave_out_crowded(model: nn.Module, data: DataSet, missing: str) -> None:
    """Reject recordings of too few frames, each by its name; with `missing` drop leave them out of their splits, and
    say so in the data's notes. The splits' hash stays that of the data, which knows no network.

    Raises DataError, also where a split is left without examples.
    """
    if not isinstance(data.spec.target, Transcript):
        return
    named: list[Problem] = []
    for name, split in data.splits.items():
        crowded = crowded_in(model, split)
        named += crowded.values()
        if crowded and missing == "drop":
            left = [i for i in range(len(split)) if i not in crowded]
            if not left:
                raise DataError(f"missing=drop would leave the {name} split empty:", named, fix="Fix some of them.")
            assert isinstance(split, SequenceSplit), "recordings are in memory"
            data.splits[name] = split.part(torch.tensor(left))
    if named and missing != "drop":
        raise _too_few(named, "; or missing=drop leaves out what is named")
    if named:
        more = f"; and {len(named) - NAMED_AT_MOST:,} more" if len(named) > NAMED_AT_MOST else ""
        count = "one recording" if len(named) == 1 else f"{len(named):,} recordings"
        data.notes.append(f"missing=drop left out {count}: {'; '.join(map(str, named[:NAMED_AT_MOST]))}{more}.")


def reject_crowded(model: nn.Module, split: Split) -> None:
    """Raise DataError for labelled recordings of too few frames."""
    if crowded := crowded_in(model, split):
        raise _too_few(list(crowded.values()), "")


def crowded_in(model: nn.Module, split: Split) -> dict[int, Problem]:
    """What is wrong with each recording that the network leaves too few frames of for its transcript."""
    assert isinstance(split, SequenceSplit), "recordings are in memory"
    assert split.target is not None, "with their transcripts"
    found = {}
    for i, (frames, text) in enumerate(zip(contract_of(model).output_frames(split.lengths).tolist(), split.target)):
        needed = frames_needed(text[text != IGNORED])
        if needed > frames:
            what = f"its transcript needs {needed:,} frames, and the network leaves {frames:,} of it"
            found[i] = Problem(split.name(i), what)
    return found


def _too_few(named: list[Problem], way_out: str) -> DataError:
    count = "One transcript does" if len(named) == 1 else f"{len(named):,} transcripts do"
    return DataError(
        f"{count} not fit into the recording:",
        named,
        fix="Look whether it belongs to that recording (a character takes a frame, and one more where it is doubled); "
        f"smaller model.strides leave more frames{way_out}.",
    )
