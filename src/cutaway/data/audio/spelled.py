"""One split of recordings whose transcripts are written token after token."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
import torch.nn.functional as F

from ..sets import IGNORED, Batch, SequenceSplit

END = 0  # the token before each transcript and after it


class SpelledSplit(SequenceSplit):
    """Recordings with the transcript so far beside them; the target of each of its places is the token after it.

    What is kept of a transcript are its characters, (n, S), as of one that is not spelled.
    """

    def batches(self, order: Iterable[torch.Tensor], seed: int | None = None) -> Iterator[Batch]:
        """Inputs: frames (N, T, F), their mask (N, T) and the transcript so far (N, S), which begins with the end's
        token. Target (N, S): what comes next, IGNORED after the end. Without transcripts S is 1 and the target is
        empty."""
        for inputs, target in super().batches(order, seed):
            if self.target is None:
                yield Batch((*inputs, torch.full((len(target), 1), END)), target)
                continue
            lengths = (target != IGNORED).sum(1)
            target = target[:, : int(lengths.max())]  # (N, S − 1): as long as the longest of these
            so_far = F.pad(target.where(target != IGNORED, END), (1, 0), value=END)  # (N, S)
            ended = F.pad(target, (0, 1), value=IGNORED).scatter(1, lengths[:, None], END)  # (N, S)
            yield Batch((*inputs, so_far), ended)
