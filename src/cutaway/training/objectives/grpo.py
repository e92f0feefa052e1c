"""GRPO: policy gradients with verified rewards, relative to a group of attempts at the same problem.

After Z. Shao et al., DeepSeekMath: pushing the limits of mathematical reasoning in open language models, 2024, section
4.1 <https://arxiv.org/abs/2402.03300>. Of G attempts at a problem, attempt i has the reward r_i, 1 if it is right, else
0:

    A_i = (r_i − mean(r)) / std(r)
    loss = −(1/G) Σ_i (1/|y_i|) Σ_t [ ρ_it A_i − β D_it ],   ρ_it = p_θ(y_it) / [p_θ(y_it)]
    D_it = p_ref(y_it) / p_θ(y_it) − ln(p_ref(y_it) / p_θ(y_it)) − 1

[·] is a constant: attempts are sampled from the current network, and each is used once, so that ρ is 1 and is never
clipped. p_ref is the network at the start of training. β is `kl_weight`. A group whose attempts are all right or all
wrong has A = 0 and only keeps the network near p_ref.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping

import torch
from torch import Generator, Tensor, nn

from ...data.dataset_base import IGNORED, DataSet, Split
from ...nn.eval_mode import eval_mode
from ...tasks.task import Task
from ..config import TrainSettings
from .sampled_solutions import Attempts, SelfTraining
from .supervised import BatchLoss


class GRPO(SelfTraining):
    """Policy gradient that makes attempts better than the mean of their group more likely, others less likely."""

    def __init__(self, model: nn.Module, task: Task, settings: TrainSettings, train: Split, data: DataSet) -> None:
        super().__init__(model, task, settings, train, data)
        self.beta = settings.kl_weight
        self.reference = copy.deepcopy(model).requires_grad_(False)

    def loss(self, inputs: tuple[Tensor, ...], target: Tensor, index: Tensor | None, random: Generator) -> BatchLoss:
        """Return the losses of a batch of problems. Their given solutions are not used."""
        assert index is not None
        tries = self.tries(index, random)
        real = tries.target != IGNORED  # (M, T)
        log_p = _log_p(self.forward(tries.ids, tries.mask), tries.target)  # (M, T)
        with torch.no_grad(), eval_mode(self.reference):
            other = _log_p(self.reference(tries.ids, tries.mask), tries.target) - log_p.detach()
        ratio = (log_p - log_p.detach()).exp()
        gain = ratio * advantages(tries)[:, None]
        if self.beta:
            apart = other + log_p.detach() - log_p  # ln(p_ref / p_θ), with the gradient of ln p_θ
            gain = gain - self.beta * (apart.exp() - apart - 1)
        each = (gain * real).sum(1) / real.sum(1)  # (M,)
        loss = -(each * tries.times).sum() / tries.times.sum()
        return BatchLoss(self.failed(tries, target), loss * self.task.count(target))

    def remembered(self) -> dict[str, Tensor]:
        """Return p_ref, for the checkpoint."""
        return dict(self.reference.state_dict())

    def remember(self, tensors: Mapping[str, Tensor]) -> None:
        """Load the state from a checkpoint."""
        if tensors:
            self.reference.load_state_dict(tensors)


def advantages(tries: Attempts) -> Tensor:
    """Return the advantage A of each attempt, (M,): 0 in groups whose attempts are all right or all wrong."""
    groups = int(tries.problem.max()) + 1
    zeros = tries.reward.new_zeros(groups)
    total = zeros.index_add(0, tries.problem, tries.times)
    mean = zeros.index_add(0, tries.problem, tries.times * tries.reward) / total  # (N,)
    std = (mean * (1 - mean) * total / (total - 1).clamp(min=1)).sqrt()  # of rewards that are 0 or 1
    mean, std = mean[tries.problem], std[tries.problem]
    return torch.where(std > 0, (tries.reward - mean) / std.clamp(min=1e-6), 0.0)


def _log_p(outputs: Tensor, target: Tensor) -> Tensor:
    """Return ln p of each target token (M, T) from logits (M, T, V); 0 where the target is IGNORED."""
    real = target != IGNORED
    precise = outputs.to(torch.promote_types(outputs.dtype, torch.float32))
    found = precise.log_softmax(2).gather(2, target.where(real, 0)[:, :, None])[:, :, 0]
    return found * real
