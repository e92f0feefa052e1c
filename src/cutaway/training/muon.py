"""Muon: momentum whose matrices are orthogonalized before each step, for matrices and convolution kernels.

K. Jordan et al., Muon: an optimizer for hidden layers in neural networks, 2024.
<https://kellerjordan.github.io/posts/muon/>

    M ← M + (1 − μ)(G − M),   N = G + μ (M − G)          Nesterov's momentum
    X₀ = N/‖N‖,   X ← a X + (b A + c A²) X,  A = X Xᵀ      five times: singular values become about 1
    W ← (1 − η λ) W − η · 0.2 √max(rows, columns) · X

The factor gives steps of the size of AdamW's, so that both share one rate: J. Liu et al., Muon is scalable for LLM
training, 2025 <https://arxiv.org/abs/2502.16982>. A convolution kernel (out, in, k, k) is treated as the matrix (out,
in·k·k) that maps patches to channels, as in K. Jordan's CIFAR-10 scripts. PyTorch's `torch.optim.Muon`, which gives
bit-identical results on matrices, rejects kernels.

If weights are sharded, each process keeps the momentum of its shard. The matrices are gathered one after another in all
processes, and each process updates its shard.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ..distributed.dtensors import from_local, full_tensor, local_part, shard_like

A, B, C = 3.4445, -4.7750, 2.0315  # chosen by the author for the steepest rise at 0, not to end at 1 exactly
ITERATIONS = 5
LEAST_NORM = 1e-7
ADAMW_STEP = 0.2  # root mean square of AdamW's steps, in units of the rate


class Muon(Optimizer):
    """Muon optimizer for weights with two or more dimensions."""

    def __init__(
        self,
        params: Iterable[nn.Parameter] | Iterable[dict[str, Any]],
        lr: float,
        momentum: float,
        weight_decay: float,
    ) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]  # no closure is needed here
        """Update every weight that has a gradient."""
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is None:
                    continue
                state = self.state[weight]
                if not state:
                    state["momentum_buffer"] = torch.zeros_like(weight)
                average = local_part(state["momentum_buffer"]).lerp_(local_part(weight.grad), 1 - group["momentum"])
                ahead = local_part(weight.grad).lerp(average, group["momentum"])
                matrix = full_tensor(from_local(weight, ahead)).flatten(1)  # (out, in·k·k)
                size = ADAMW_STEP * math.sqrt(max(matrix.shape))
                own = local_part(weight)
                own.mul_(1 - group["lr"] * group["weight_decay"])
                step = shard_like(orthogonalize(matrix).view(weight.shape).to(weight.dtype), weight)
                own.add_(local_part(step), alpha=-group["lr"] * size)


def orthogonalize(matrix: Tensor) -> Tensor:
    """Return approximately U Vᵀ of the singular value decomposition U S Vᵀ of a matrix (m, n), in bfloat16.

    The singular values of the result are between about 0.7 and 1.2. It is computed by Newton–Schulz iteration, which
    needs only matrix products.
    """
    x = matrix.bfloat16()
    tall = len(x) > x.shape[1]
    x = x.T if tall else x  # (the smaller of m and n, the larger): A is as small as can be
    x = x / x.norm().clamp(min=LEAST_NORM)
    for _ in range(ITERATIONS):
        a = x @ x.T
        x = torch.addmm(x, torch.addmm(a, a, a, beta=B, alpha=C), x, beta=A)
    return x.T if tall else x
