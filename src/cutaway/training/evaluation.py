"""Running a model over a part without learning from it."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from ..data.sets import Part
from .place import Place


@torch.no_grad()
def outputs_of(
    model: nn.Module,
    part: Part,
    place: Place,
    batch_size: int,
    ticked: Callable[[int], None] = lambda n: None,
) -> Tensor:
    """The raw outputs for every example of the part, in its order: (n, outputs), on the CPU.

    `ticked` is told how many examples each batch held. The model is left in the mode that it was in.
    """
    training = model.training
    model.eval()
    found = []
    try:
        for batch in part.batches(torch.split(torch.arange(len(part)), batch_size)):
            inputs, _ = place.batch(batch)
            with place.autocast():
                outputs = model(*inputs)
            # bfloat16 holds too few digits to add up scores in.
            found.append((outputs.float() if outputs.dtype == torch.bfloat16 else outputs).cpu())
            ticked(len(found[-1]))
    finally:
        model.train(training)
    return torch.cat(found)
