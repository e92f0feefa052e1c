"""Operations on fake tensors whose output shapes PyTorch cannot derive from input shapes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily

from ...inspect.costs import op_name

INDEXING_OPERATIONS = ("index", "index_put", "_unsafe_index", "_index_put_impl")


def run_operation(op: OpOverload, args: Any, kwargs: Any) -> Any:
    """Run the operation, with corrections for what `FakeTensor` does not support."""
    name = op_name(op)
    result = op(*(_masks_to_indices(args) if name in INDEXING_OPERATIONS else args), **kwargs)
    if name == "mkldnn_rnn_layer" and isinstance(result[0], FakeTensor):
        return (*result[:3], result[3].new_empty(_workspace(op, args)))
    return result


def internal_bytes(op: OpOverload, args: Any) -> int:
    """Return the bytes that a kernel allocates internally, if they are many.

    The backward pass of a recurrent layer holds the gradients of all gates at all steps, (T, N, 4 · hidden).
    """
    if op_name(op) != "mkldnn_rnn_layer_backward":
        return 0
    x, weight = args[:2]  # (T, N, F), (4 · hidden, F)
    return int(x.shape[0] * x.shape[1] * weight.shape[0] * x.element_size())


def _masks_to_indices(args: Any) -> Any:
    """Return the arguments with index tensors in place of masks.

    The number of True values in a mask is known from the real batch, but not from a fake tensor.
    """
    indices: list[Tensor | None] = []
    for index in args[1]:
        mask = index is not None and index.dtype is torch.bool and not isinstance(index, FakeTensor)
        with unset_fake_temporarily():
            indices += index.nonzero(as_tuple=True) if mask else [index]
    return (args[0], indices, *args[2:])


def _workspace(op: OpOverload, args: Any) -> int:
    """Return the bytes that oneDNN keeps of a recurrent layer for its backward pass.

    They are linear in the number of steps, and are measured with sequences of one and two steps.
    """
    x, *held = args[:7]  # (T, N, F); weights and states
    held = [torch.zeros(h.shape) for h in held]

    def workspace_bytes(steps: int) -> int:
        return int(op(torch.zeros(steps, *x.shape[1:]), *held, *args[7:])[3].nbytes)

    one, two = workspace_bytes(1), workspace_bytes(2)
    return int((one + (len(x) - 1) * (two - one)) * x.element_size() // torch.float32.itemsize)
