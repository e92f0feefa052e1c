"""Random inputs for sequence-to-sequence networks."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

LENGTHS = (9, 4, 7, 1)  # tokens of each source: a ragged batch with right padding
STEPS = 8  # tokens of each target


def ragged_pairs(
    vocab_size: int, target: int | None = None, *, lengths: tuple[int, ...] = LENGTHS, steps: int = STEPS
) -> Callable[[torch.Generator], tuple[Tensor, ...]]:
    """Return a function that draws source ids (N, T), their mask, and target ids (N, S).

    Target ids are below `target`, or below the vocabulary of the source.
    """

    def draw(generator: torch.Generator) -> tuple[Tensor, ...]:
        mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]  # (N, T)
        source = torch.randint(2, vocab_size, mask.shape, generator=generator).where(mask, 0)
        return source, mask, torch.randint(2, target or vocab_size, (len(lengths), steps), generator=generator)

    return draw
