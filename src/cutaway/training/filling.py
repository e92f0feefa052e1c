"""Gaps in texts filled by a model that learned masked tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from ..data.text.masked import GAP, MaskedPreprocessing
from ..errors import DataError

if TYPE_CHECKING:
    from .run import Run

FILLED = 5  # tokens that are named for a gap


@torch.no_grad()
def filled(run: Run, texts: Sequence[Any]) -> list[dict[str, Any]]:
    """One row a text: for each of its gaps the likeliest tokens, with their probabilities.

    Raises DataError for a text without a gap among others that have one.
    """
    text = run.preprocessing
    assert isinstance(text, MaskedPreprocessing)
    if whole := [given for given in texts if GAP not in str(given)]:
        raise DataError(f"{str(whole[0])!r} has no gap ({GAP}).", fix="Fill gaps and score texts apart.")
    model, others = run.place.model(run.model, learns=False), torch.from_numpy(text.masking.others)
    rows = []
    for given in texts:
        ids = text.with_gaps(str(given))
        outputs = model(ids[None].to(run.place.device), None)[0].float().cpu()  # (T, V)
        p, best = outputs[ids == text.masking.mask].softmax(1)[:, others].topk(min(FILLED, len(others)), 1)
        gaps = [
            ", ".join(f"{text.tokenizer.tokens[others[i]]} {p:.3f}" for i, p in zip(*gap))
            for gap in zip(best.tolist(), p.tolist())
        ]
        rows.append({"input": str(given), "filled": "; ".join(gaps)})
    return rows
