"""Expert iteration: a network is trained on those of its own solutions that are right.

After E. Zelikman, Y. Wu, J. Mu, N. D. Goodman, STaR: bootstrapping reasoning with reasoning, 2022
<https://arxiv.org/abs/2203.14465>:

    D = {(x, y) : y ~ p_θ(· | x), y solves x},   θ ← θ − η ∇ −(1/n) Σ_{D} ln p_θ(token of y | x, those before it)

The paper alternates between sampling solutions of all problems and training the initial network on the right ones. Here
the solutions of each batch are sampled from the current network and used at once. Distinct solutions of a problem have
equal weight, however often they were sampled, so that rare ones are not forgotten. Problems without a right solution do
not contribute. There is no rationalization, which shows the answer.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Generator, Tensor

from ...data.dataset_base import IGNORED
from .sampled_solutions import SelfTraining
from .supervised import BatchLoss


class ExpertIteration(SelfTraining):
    """Cross-entropy of the network's own right solutions."""

    def loss(self, inputs: tuple[Tensor, ...], target: Tensor, index: Tensor | None, random: Generator) -> BatchLoss:
        """Return the losses of a batch of problems. Their given solutions are not used."""
        assert index is not None
        tries = self.tries(index, random)
        right = tries.reward > 0
        failed = self.failed(tries, target)
        if not right.any():
            return BatchLoss(failed, 0.0 * self.forward(*inputs).sum())
        outputs = self.forward(tries.ids[right], tries.mask[right])  # (R, T, V)
        loss = F.cross_entropy(outputs.flatten(0, 1), tries.target[right].flatten(), ignore_index=IGNORED)
        return BatchLoss(failed, loss * self.task.count(target))
