"""What a person should know of how recordings were prepared."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ..folders import NAMED_AT_MOST
from .reading import Look
from .spectrogram import FLOOR


def loudest(frames: Tensor, lengths: Tensor) -> Tensor:
    """The largest number of each recording's log-mel frames, (n,), which stand one after another, (Σ lengths, F)."""
    return torch.stack([piece.max() for piece in torch.split(frames, lengths.tolist())])


def preparation_notes(
    seen: Sequence[Look], names: Sequence[str], rate: int, seconds: float | None, peaks: Tensor
) -> list[str]:
    """What was done to the recordings that a person should know: they were cut to `seconds`, where that is not None;
    `peaks` (n,) are the loudest of each."""
    total = f"{len(seen):} recordings"
    other = [f"{n} ({look.rate:,})" for n, look in zip(names, seen) if look.rate != rate]
    several = [n for n, look in zip(names, seen) if look.channels > 1]
    long = [n for n, look in zip(names, seen) if seconds is not None and look.samples > seconds * look.rate]
    silent = [n for n, peak in zip(names, peaks) if peak <= math.log(FLOOR) + 1e-4]
    notes = []
    if other:
        notes.append(
            f"Brought to {rate:,} samples a second by a polyphase filter: {len(other):,} of {total}, {_some(other)}."
        )
        if lower := sum(look.rate < rate for look in seen):
            notes[0] += f" The rate of {lower:,} was lower, and nothing sounds there above half of it."
    if several:
        notes.append(f"Channels averaged to one: {len(several):,} of {total}, {_some(several)}.")
    if long:
        notes.append(f"Cut at {seconds:g} s: {len(long):,} of {total}, {_some(long)}.")
    if silent:
        notes.append(f"Silent throughout: {len(silent):,} of {total}, {_some(silent)}.")
    return notes


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED_AT_MOST:,} more" if len(names) > NAMED_AT_MOST else ""
    return ", ".join(names[:NAMED_AT_MOST]) + more
