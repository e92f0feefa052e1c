"""Training on a network's own verified solutions of problems: expert iteration (STaR) and policy gradients (GRPO).

The attempts are sampled as chains in `inference.thought_search`, with one row and a count for equal ones. The
seed depends on the position in training alone, so that a resumed run samples the same solutions.

Expert iteration: a network is trained on those of its own solutions that are right.

After E. Zelikman, Y. Wu, J. Mu, N. D. Goodman, STaR: bootstrapping reasoning with reasoning, 2022
<https://arxiv.org/abs/2203.14465>:

    D = {(x, y) : y ~ p_θ(· | x), y solves x},   θ ← θ − η ∇ −(1/n) Σ_{D} ln p_θ(token of y | x, those before it)

The paper alternates between sampling solutions of all problems and training the initial network on the right ones. Here
the solutions of each batch are sampled from the current network and used at once. Distinct solutions of a problem have
equal weight, however often they were sampled, so that rare ones are not forgotten. Problems without a right solution do
not contribute. There is no rationalization, which shows the answer.

GRPO: policy gradients with verified rewards, relative to a group of attempts at the same problem.

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
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from ...core.errors import IncompatibleSettingError, ModelError
from ...data.dataset_base import IGNORED, DataSet, Split
from ...data.text.puzzles import PuzzleSplit, pad_puzzles
from ...inference.language_model_thinker import LanguageThinker, solve_problems, thought_tokens
from ...inference.thought_search import GREEDY
from ...models.base import SupportsKVCache
from ...nn.modules import eval_mode
from ...tasks.task import Task
from ..config import TrainSettings
from ..device import DeviceContext
from .supervised import BatchLoss, Supervised

MAX_VALIDATION_PROBLEMS = 200  # most validation problems that are solved after each epoch


class Attempts(NamedTuple):
    """Distinct solutions of some problems, M in total."""

    ids: Tensor  # (M, T), the problem and the solution but for its last token
    mask: Tensor  # (M, T), True where a token is real
    target: Tensor  # (M, T), the solution's tokens at the places before them, IGNORED elsewhere
    problem: Tensor  # (M,), the problem of each
    times: Tensor  # (M,), how many tries wrote it
    reward: Tensor  # (M,), 1 where it is right, else 0


class SelfTraining(Supervised):
    """Base class of objectives that learn from a network's own solutions.

    The loss that is reported, in training and validation, is the fraction of wrong attempts.
    """

    @classmethod
    def reject(cls, settings: TrainSettings, data: DataSet) -> None:
        """Raise SettingError if solutions cannot be verified, or the network has not been trained to write any."""
        if not isinstance(data.splits["train"], PuzzleSplit):
            raise IncompatibleSettingError(
                f"objective={settings.objective} learns from solutions that are verified by computing, and "
                f"{data.source} is {data.spec.kind} data without a verifier: take addition, countdown or game24."
            )
        if settings.weights is None:
            raise IncompatibleSettingError(
                f"objective={settings.objective} learns from the right ones of a network's own solutions, and one that "
                "has learned nothing writes none: begin with a run that has, weights=RUN."
            )
        if settings.compile:
            raise IncompatibleSettingError(
                f"compile=true is not supported with objective={settings.objective}, which runs the model token by "
                "token: leave it out."
            )

    def __init__(self, model: nn.Module, task: Task, settings: TrainSettings, train: Split, data: DataSet) -> None:
        super().__init__(model, task, settings, train, data)
        if not isinstance(model, SupportsKVCache):
            raise ModelError(
                f"objective={settings.objective} draws solutions from a cache, and {type(model).__name__} keeps none: "
                "take gpt2."
            )
        assert isinstance(train, PuzzleSplit)
        self.problems, self.group = train, settings.group_size
        self.temperature = settings.temperature or 1.0
        self.chunked_head = None
        self.scores = self._scores

    def tries(self, index: Tensor, random: Generator) -> Attempts:
        """Sample `group_size` solutions of the problem of each example in `index` (N,)."""
        seed = int(torch.randint(1 << 62, (), generator=random, device=random.device))
        preprocessing, problems = self.problems.preprocessing, [self.problems.problem(i) for i in index.tolist()]
        thinker = LanguageThinker(self.model, preprocessing, temperature=self.temperature, seed=seed)
        rows, told = [], []
        for k, thoughts in enumerate(thinker.propose(thinker.roots(problems), self.group, whole=True)):
            asked = preprocessing.encode(preprocessing.kind.ask(problems[k], preprocessing.form))
            for thought in thoughts:
                rows.append((asked, thought_tokens(thought, preprocessing)))
                right = preprocessing.kind.judge(problems[k], preprocessing.form, thought.text).solved
                told.append((k, thought.held.count, right))
        (ids, mask), target = pad_puzzles(rows)
        of, times, reward = torch.tensor(told, device=thinker.device).unbind(1)
        ids, mask, target = (x.to(thinker.device) for x in (ids, mask, target))
        return Attempts(ids, mask, target, of, times.float(), reward.float())

    def failed(self, tries: Attempts, target: Tensor) -> Tensor:
        """Return the fraction of wrong attempts, scaled to a sum like the loss of `target`, ()."""
        return (1 - (tries.reward * tries.times).sum() / tries.times.sum()) * self.task.loss_denominator(target)

    def _scores(self, split: Split, place: DeviceContext) -> dict[str, float]:
        """Return the fraction of problems that a greedy chain does not solve."""
        assert isinstance(split, PuzzleSplit)
        problems = list(dict.fromkeys(split.problems))[:MAX_VALIDATION_PROBLEMS]
        _, _, verdicts = solve_problems(self.model, split.preprocessing, problems, GREEDY)
        return {"loss": 1 - sum(verdict.solved for verdict in verdicts) / len(verdicts)}


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
        return BatchLoss(failed, loss * self.task.loss_denominator(target))


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
        return BatchLoss(self.failed(tries, target), loss * self.task.loss_denominator(target))

    def state(self) -> dict[str, Tensor]:
        """Return p_ref, for the checkpoint."""
        return dict(self.reference.state_dict())

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
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
