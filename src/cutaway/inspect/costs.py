"""Cost of operations: the multiply-adds of convolutions and matrix products.

One multiply-add counts 1, as in published tables of networks. Biases, norms, activations and pooling are not counted
there and cost 0 here. An operation in neither table is unknown: `None`, not 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload


def op_name(op: OpOverload) -> str:
    """Return PyTorch's name of an operation, without the suffix of in-place variants: `add`, `convolution`."""
    name: str = op.overloadpacket.__name__
    return name.rstrip("_") if op.namespace == "aten" else str(op)


def multiply_adds(op: OpOverload, args: Sequence[Any], result: Any) -> int | None:
    """Return the multiply-adds of one call, or None if unknown."""
    name = op_name(op)
    if name in FORMULAS:
        return FORMULAS[name](args, result)
    if name.startswith("_scaled_dot_product_"):
        return _attention(args)
    free = name in FREE and not str(op).endswith("reduce")  # scatter with a reduction is a sparse product
    return 0 if torch.Tag.pointwise in op.tags or op.is_view or free else None


def _convolution(args: Sequence[Any], result: Tensor) -> int:
    """Every output is a sum over C_in/groups × kernel products, including padded zeros."""
    x, weight, transposed = args[0], args[1], args[6]
    each: int = math.prod(weight.shape[1:])  # (C_out, C_in/groups, *kernel); transposed (C_in, C_out/groups, *kernel)
    return each * int(x.numel() if transposed else result.numel())


def _product(left: int, right: int) -> Callable[[Sequence[Any], Tensor], int | None]:
    """Return the formula of (…, n, m) times (…, m, p) or (…, m): n·m·p for each.

    `left` and `right` are the indices of the arguments. A sparse matrix on the left costs its number of entries. One on
    the right is not counted.
    """

    def formula(args: Sequence[Any], result: Tensor) -> int | None:
        a, b = args[left], args[right]
        if b.layout is not torch.strided:
            return None
        entries = a.numel() if a.layout is torch.strided else a.values().numel()
        return int(entries * (b.shape[-1] if b.ndim > 1 else 1))

    return formula


def _linear(args: Sequence[Any], result: Tensor) -> int:
    """Return the cost of x Wᵀ: every output is a sum over the inputs."""
    return int(result.numel() * args[1].shape[-1])


def _attention(args: Sequence[Any]) -> int:
    """Return the cost of q kᵀ and weights · v: (N, h, T, d), (N, h, S, d), (N, h, S, d_v). Masks save nothing."""
    q, k, v = args[:3]
    return int(q.numel() // q.shape[-1] * k.shape[-2] * (q.shape[-1] + v.shape[-1]))


def _recurrent(args: Sequence[Any], result: Any) -> int:
    """Return the cost of all steps of fused recurrent layers: each weight is used once per step.

    Steps are (T, N, F), or (Σ T, F) of packed sequences, which have no padding. cuDNN's weights are a list.
    """
    x, weights = args[0], args[1] if isinstance(args[1], list | tuple) else args[1:3]
    return int(x.numel() // x.shape[-1] * sum(w.numel() for w in weights if w.ndim == 2))


def _index_put(args: Sequence[Any], result: Tensor) -> int | None:
    """Return 0 for copies, and None for accumulation, which is a sparse product and not counted."""
    return None if len(args) > 3 and args[3] else 0


FORMULAS: dict[str, Callable[[Sequence[Any], Any], int | None]] = {
    "convolution": _convolution,
    "mm": _product(0, 1),
    "bmm": _product(0, 1),
    "mv": _product(0, 1),
    "dot": _product(0, 1),
    "addmm": _product(1, 2),
    "baddbmm": _product(1, 2),
    "addmv": _product(1, 2),
    "linear": _linear,
    "mkldnn_rnn_layer": _recurrent,
    "_cudnn_rnn": _recurrent,
    "miopen_rnn": _recurrent,
    "index_put": _index_put,
}

# In addition to pointwise operations and views, which PyTorch marks itself.
FREE = {
    # norms
    "native_batch_norm",
    "_native_batch_norm_legit",
    "_native_batch_norm_legit_no_training",
    "_batch_norm_no_update",
    "native_layer_norm",
    "native_group_norm",
    # pools
    "max_pool2d_with_indices",
    "max_pool3d_with_indices",
    "avg_pool2d",
    "avg_pool3d",
    "adaptive_max_pool2d",
    "adaptive_max_pool3d",
    "_adaptive_avg_pool2d",
    "_adaptive_avg_pool3d",
    # sums and choices along an axis
    "sum",
    "mean",
    "var_mean",
    "prod",
    "max",
    "min",
    "amax",
    "amin",
    "argmax",
    "argmin",
    "topk",
    "sort",
    "any",
    "all",
    "_softmax",
    "_safe_softmax",
    "_log_softmax",
    "logsumexp",
    # copies, and choosing what to copy
    "_to_copy",
    "_unsafe_view",
    "copy",
    "lift_fresh",
    "cat",
    "stack",
    "split_with_sizes_copy",
    "unsafe_split",
    "constant_pad_nd",
    "reflection_pad1d",
    "reflection_pad2d",
    "replication_pad1d",
    "replication_pad2d",
    "repeat",
    "flip",
    "roll",
    "tril",
    "triu",
    "embedding",
    "gather",
    "index",
    "index_select",
    "masked_fill",  # in place
    "masked_select",
    "nonzero",
    "transpose",  # in place, where it is no view of something else
    "scatter",
    "_pack_padded_sequence",
    # counting and laying out; sums of the weights of edges, which stand below a softmax
    "bincount",
    "count_nonzero",
    "cumsum",
    "floor_divide",
    "promote_types",
    "repeat_interleave",
    "segment_reduce",
    "_to_sparse_csr",
    "sparse_compressed_tensor",
    "upsample_nearest1d",
    "upsample_nearest2d",
    "upsample_bilinear2d",
    "upsample_bicubic2d",
    "pixel_shuffle",
    # what stands after the products of a recurrent step, on GPUs
    "_thnn_fused_lstm_cell",
    "_thnn_fused_gru_cell",
    # new tensors
    "arange",
    "empty",
    "empty_like",
    "eye",
    "full",
    "full_like",
    "new_empty",
    "new_full",
    "new_ones",
    "new_zeros",
    "ones",
    "ones_like",
    "scalar_tensor",
    "zeros",
    "zeros_like",
    "native_dropout",
    "bernoulli",
    "detach",
    "_local_scalar_dense",
}
