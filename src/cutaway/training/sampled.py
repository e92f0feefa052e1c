"""Texts that a run draws of what each source becomes: of pairs of sequences, and captions of images."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from ..data.sets import Split
from ..errors import SettingError, require
from ..generation.decoding import sample
from ..generation.text import NONE
from ..tasks.sequences import SequenceToSequence
from .evaluation import batches_in_order
from .placement import Placement

AT_ONCE = 64  # sources that are read together


def texts_of(
    model: nn.Module,
    split: Split,
    place: Placement,
    task: SequenceToSequence,
    samples: int,
    seed: int,
    longest: int | None,
    settings: Any,
) -> list[list[str]]:
    """`samples` texts of each example of the split; sample k is drawn by a generator of its own with the seed `seed` +
    k, so that it is the same whatever is drawn beside it. `settings` are those of `generation.sampling`."""
    require(samples >= 1, "samples", samples, "at least 1", SettingError)
    require(0 <= seed < 2**63 - samples, "seed", seed, "at least 0, and below 2**63", SettingError)
    found: list[list[str]] = [[] for _ in range(len(split))]
    plan = batches_in_order(split, AT_ONCE)
    for index, batch in zip(plan, split.batches(plan)):
        inputs, _ = place.batch(batch)
        source, *mask = inputs[:-1]  # the last is the target so far
        for k in range(samples):
            generators = [torch.Generator().manual_seed(seed + k) for _ in index]
            with place.autocast():
                ids = sample(
                    model, source, mask[0] if mask else None, task.target, longest, generator=generators, **settings
                )
            for i, row in zip(index.tolist(), ids.tolist()):
                found[i].append(task.words([token for token in row if token != NONE]))
    for i in getattr(split, "empty", ()):
        found[i] = [""] * samples
    return found
