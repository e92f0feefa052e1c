"""Gaps in texts filled by a model that learned masked tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from ..data.text.masked import GAP, MaskedPreprocessing
from ..errors import DataError
from .placement import Placement

FILLED = 5  # tokens that are named for a gap


@torch.no_grad()
def filled(model: nn.Module, place: Placement, text: MaskedPreprocessing, texts: Sequence[Any]) -> list[dict[str, Any]]:
    """One row a text: for each of its gaps the likeliest tokens, with their probabilities, by a model at its place.

    Raises DataError for a text without a gap among others that have one.
    """
    if whole := [given for given in texts if GAP not in str(given)]:
        raise DataError(f"{str(whole[0])!r} has no gap ({GAP}).", fix="Fill gaps and score texts apart.")
    others = torch.from_numpy(text.masking.others)
    rows = []
    for given in texts:
        ids = text.with_gaps(str(given))
        tokens = ids[None].to(place.device)
        real = torch.ones_like(tokens, dtype=torch.bool)  # an exported graph takes no call without a mask
        outputs = model(tokens, real)[0].float().cpu()  # (T, V)
        p, best = outputs[ids == text.masking.mask].softmax(1)[:, others].topk(min(FILLED, len(others)), 1)
        gaps = [
            ", ".join(f"{text.tokenizer.tokens[others[i]]} {p:.3f}" for i, p in zip(*gap))
            for gap in zip(best.tolist(), p.tolist())
        ]
        rows.append({"input": str(given), "filled": "; ".join(gaps)})
    return rows
