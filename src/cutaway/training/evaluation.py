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
    flip: bool = False,
) -> Tensor:
    """The raw outputs for every example of the part, in its order: (n, outputs), on the CPU.

    With `flip` they are the means of those for each image (N, C, H, W) and for its mirror image. `ticked` is told how
    many examples each batch held. The model is left in the mode that it was in.
    """
    training = model.training
    model.eval()
    found = []
    try:
        for batch in part.batches(torch.split(torch.arange(len(part)), batch_size)):
            inputs, _ = place.batch(batch)
            with place.autocast():
                outputs = _precise(model(*inputs))
                if flip:
                    outputs = (outputs + _precise(model(inputs[0].flip(3), *inputs[1:]))) / 2
            found.append(outputs.cpu())
            ticked(len(found[-1]))
    finally:
        model.train(training)
    return torch.cat(found)


def _precise(outputs: Tensor) -> Tensor:
    """bfloat16 holds too few digits to add up scores in."""
    return outputs.float() if outputs.dtype == torch.bfloat16 else outputs
