"""Prefix beam search over many recordings at once; beside the plain loop over one beginning after another."""

from __future__ import annotations

import math
from collections import defaultdict

import torch
from torch import Tensor

from cutaway.inference.sequence_decoding import prefix_beam

from .pairs import Pair, race

RECORDINGS, FRAMES, TOKENS, BEAMS = 32, 60, 28, 8
LONGEST = 0.2  # of the plain loop's time, at most
Text = tuple[int, ...]


def frames() -> Tensor:
    """Log probabilities (N, T, K) of recordings."""
    z = 3 * torch.randn(RECORDINGS, FRAMES, TOKENS, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return z.log_softmax(2)


def log_sum(*values: float) -> float:
    """log Σ e^v."""
    most = max(values)
    return most if most == -math.inf else most + math.log(sum(math.exp(v - most) for v in values))


def plain_prefix_beam(y: list[list[float]], beams: int) -> tuple[Text, float]:
    """One recording, one beginning after another, in a dictionary: text → log p_b and log p_n."""
    found: dict[Text, tuple[float, float]] = {(): (0.0, -math.inf)}
    for said in y:
        new: dict[Text, tuple[float, float]] = defaultdict(lambda: (-math.inf, -math.inf))
        for text, (blank, spoken) in found.items():
            b, s = new[text]
            new[text] = (log_sum(b, blank + said[0], spoken + said[0]), s)
            for k in range(1, len(said)):
                if text and text[-1] == k:
                    b, s = new[text]
                    new[text] = (b, log_sum(s, spoken + said[k]))
                before = blank if text and text[-1] == k else log_sum(blank, spoken)
                b, s = new[*text, k]
                new[*text, k] = (b, log_sum(s, before + said[k]))
        best = sorted(new, key=lambda text: -log_sum(*new[text]))[:beams]
        found = {text: new[text] for text in best}
    text = max(found, key=lambda text: log_sum(*found[text]))
    return text, log_sum(*found[text])


def rows() -> list[tuple[Pair, float]]:
    """The one case: as many recordings on either side."""
    y = frames()
    lists = y.tolist()
    texts, _ = prefix_beam(y[:2], BEAMS)
    plain = [plain_prefix_beam(row, BEAMS)[0] for row in lists[:2]]
    assert [tuple(k for k in row if k >= 0) for row in texts.tolist()] == plain  # both do the same work
    name = f"prefix beam search: {RECORDINGS} × {FRAMES} frames, {TOKENS} tokens, {BEAMS} beams"
    pair = race(
        name, lambda: prefix_beam(y, BEAMS), lambda: [plain_prefix_beam(row, BEAMS) for row in lists], runs=3, warm_up=1
    )
    return [(pair, LONGEST)]
