"""Fisher information: the importance of each weight for the network's predictions.

    F_i = E_x E_{y ~ p(y|x)} [ (∂ log p(y|x) / ∂θ_i)² ]

This is the diagonal of the Fisher information matrix, as in J. Martens, New insights and perspectives on the natural
gradient method, 2014, section 5 <https://arxiv.org/abs/1412.1193>. The expectation over y uses the network's own
predictions and is computed exactly, over all classes. Labels are not used (with them it would be the "empirical"
Fisher).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

NUMBERS = 1 << 25  # largest number of elements in gradients of several classes at a time


def diagonal_fisher(
    logits: Callable[[Any], Tensor], parameters: Sequence[Tensor], examples: Iterable[Any]
) -> list[Tensor]:
    """Return the mean diagonal Fisher information over the examples, with the shapes of the parameters.

    `logits` maps one example to (1, K), or to (1, 1), the logit of class 1 against class 0.
    """
    sums, count = [torch.zeros_like(p) for p in parameters], 0
    at_once = max(1, NUMBERS // max(1, sum(p.numel() for p in parameters)))
    for example in examples:
        z = logits(example)
        log_p = (F.logsigmoid(torch.cat([-z, z], 1)) if z.shape[1] == 1 else z.log_softmax(1))[0]  # (K,)
        # The square of its gradient is p (∂ log p)²: the weight is not differentiated.
        weighed = log_p.detach().div(2).exp() * log_p
        chosen = torch.eye(len(log_p), dtype=z.dtype, device=z.device)
        for some in torch.split(chosen, at_once):
            slopes = torch.autograd.grad(
                weighed, parameters, some, retain_graph=True, allow_unused=True, is_grads_batched=True
            )
            for total, slope in zip(sums, slopes):
                if slope is not None:
                    total += slope.square().sum(0)
        count += 1
    return [total / max(1, count) for total in sums]
