"""Module outputs: a tensor, a tensor with states, or packed sequences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence

from ..core.errors import ModelError
from ..nn.recurrent import to_state_tuple
from .gates import sequence_lengths_argument


def reject_compiled(model: nn.Module) -> None:
    """Raise ModelError for a model compiled by torch.compile, whose code bypasses hooks without an error."""
    for module in model.modules():
        if "_orig_mod" in dict(module.named_children()) or getattr(module, "_compiled_call_impl", None) is not None:
            raise ModelError(
                "This model is compiled, and compiled code runs past what is put in to look at it: give the model "
                "as it was before torch.compile (of what that gave, `._orig_mod`)."
            )


def first_tensor(module: nn.Module, output: Any) -> Tensor | None:
    """Return the first tensor of a module's output; packed sequences are padded in the module's layout."""
    first = output[0] if isinstance(output, tuple) and not isinstance(output, PackedSequence) else output
    if isinstance(first, PackedSequence):
        return padded(module, first)
    return first if isinstance(first, Tensor) else None


def output_carriers(
    module: nn.Module, args: Any, kwargs: Any, output: Any
) -> list[tuple[Tensor, Callable[[Tensor], Tensor]]]:
    """Return the tensors that carry a module's output onward, each with a map from its gradient to the whole output's.

    A recurrent layer returns its last states twice, within its outputs and separately, and either can be used.
    """
    first = output[0] if isinstance(output, tuple) and not isinstance(output, PackedSequence) else output
    bundle = first if isinstance(first, PackedSequence) else None
    data = first if bundle is None else bundle.data
    if not isinstance(data, Tensor):
        return []
    whole = (lambda g: g) if bundle is None else (lambda g: padded(module, bundle._replace(data=g)))
    found: list[tuple[Tensor, Callable[[Tensor], Tensor]]] = [(data, whole)]
    if isinstance(module, nn.RNNBase):
        shape = padded(module, first).shape if bundle is not None else data.shape
        lengths = sequence_lengths_argument(args, kwargs)
        found.append((to_state_tuple(output[1])[0], lambda g: scatter_last_state_gradient(module, g, shape, lengths)))
    return found


def scatter_last_state_gradient(
    layer: nn.RNNBase, gradient: Tensor, shape: torch.Size, lengths: Tensor | None
) -> Tensor:
    """Scatter the gradient of the last states, (layers · directions, N, hidden), to the outputs of the top layer."""
    if len(shape) == 2:  # one sequence without a batch
        return scatter_last_state_gradient(layer, gradient[:, None], torch.Size((1, *shape)), None)[0]
    hidden = gradient.shape[2]
    found = gradient.new_zeros(shape)
    steps = found if layer.batch_first else found.transpose(0, 1)  # (N, T, ways · hidden)
    ends = lengths.to(found.device) - 1 if lengths is not None else found.new_full((len(steps),), steps.shape[1] - 1)
    rows = torch.arange(len(steps), device=found.device)
    if layer.bidirectional:
        steps[rows, ends.long(), :hidden] = gradient[-2]
        steps[:, 0, hidden:] = gradient[-1]
    else:
        steps[rows, ends.long()] = gradient[-1]
    return found


def padded(module: nn.Module, bundle: PackedSequence) -> Tensor:
    """Return packed sequences padded, in the module's order of batch and steps."""
    return pad_packed_sequence(bundle, batch_first=getattr(module, "batch_first", True))[0]
