"""Detection of transcripts that are too long for the network's output on their recordings.

Connectionist temporal classification needs a frame for each character, and one more between two equal characters. A
longer text has probability 0 and infinite loss. A network that spells has a maximum number of characters plus an end
token. The check needs the network, which determines the number of output frames or characters.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import nn

from ..core.errors import DataError, Problem
from ..core.spec import Transcript
from ..data.dataset_base import IGNORED, DataSet, SequenceSplit, Split
from ..models.base import SupportsDecoding, as_base_model
from ..nn.ctc import frames_needed

MAX_LISTED = 3  # recordings listed in a note


def drop_too_long_transcripts(model: nn.Module, data: DataSet, missing: str) -> None:
    """Reject recordings whose transcripts are too long, by name; with `missing` drop, remove them from their splits.

    Removed recordings are listed in the notes of the data. The hash of the splits stays that of the data, which does
    not depend on the network. Raises DataError, also if a split would be left empty.
    """
    if not isinstance(data.spec.target, Transcript):
        return
    named: list[Problem] = []
    for name, split in data.splits.items():
        crowded = too_long_transcripts(model, split)
        named += crowded.values()
        if crowded and missing == "drop":
            left = [i for i in range(len(split)) if i not in crowded]
            if not left:
                raise DataError(f"missing=drop would leave the {name} split empty:", named, fix="Fix some of them.")
            assert isinstance(split, SequenceSplit), "recordings are in memory"
            data.splits[name] = split.part(torch.tensor(left))
    if named and missing != "drop":
        raise _length_error(model, named, "; or missing=drop leaves out what is named")
    if named:
        more = f"; and {len(named) - MAX_LISTED:,} more" if len(named) > MAX_LISTED else ""
        count = "one recording" if len(named) == 1 else f"{len(named):,} recordings"
        data.notes.append(f"missing=drop left out {count}: {'; '.join(map(str, named[:MAX_LISTED]))}{more}.")


def reject_too_long_transcripts(model: nn.Module, split: Split) -> None:
    """Raise DataError for labelled recordings whose transcripts are too long."""
    if crowded := too_long_transcripts(model, split):
        raise _length_error(model, list(crowded.values()), "")


def too_long_transcripts(model: nn.Module, split: Split) -> dict[int, Problem]:
    """Return the problem of each recording whose transcript is too long for the network, by example index."""
    assert isinstance(split, SequenceSplit), "recordings are in memory"
    assert split.target is not None, "with their transcripts"
    texts = [text[text != IGNORED] for text in split.target]
    if isinstance(model, SupportsDecoding):
        most = int(cast(Any, model).config.context_length) - 1  # one position is the end token
        what = "its transcript has {:,} characters, and the network writes at most {:,}"
        long = {i: len(text) for i, text in enumerate(texts) if len(text) > most}
        return {i: Problem(split.name(i), what.format(n, most)) for i, n in long.items()}
    found = {}
    for i, (frames, text) in enumerate(zip(as_base_model(model).output_frames(split.lengths).tolist(), texts)):
        if (needed := frames_needed(text)) > frames:
            what = f"its transcript needs {needed:,} frames, and the network leaves {frames:,} of it"
            found[i] = Problem(split.name(i), what)
    return found


def _length_error(model: nn.Module, named: list[Problem], way_out: str) -> DataError:
    count = "One transcript does" if len(named) == 1 else f"{len(named):,} transcripts do"
    look, where = "Look whether it belongs to that recording", "the recording"
    if isinstance(model, SupportsDecoding):
        fix, where = f"{look}; a larger model.context_length takes longer ones{way_out}.", "what the network can write"
    else:
        fix = (
            f"{look} (a character takes a frame, and one more where it is doubled); smaller model.strides leave more "
            f"frames{way_out}."
        )
    return DataError(f"{count} not fit into {where}:", named, fix=fix)
