"""Sampling of a network's own solutions of problems, which are verified and used for training.

The attempts are sampled as chains in `inference.language_model_thinker`, with one row and a count for equal ones. The
seed depends on the position in training alone, so that a resumed run samples the same solutions.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Generator, Tensor, nn

from ...core.errors import ModelError, SettingError
from ...data.dataset_base import DataSet, Split
from ...data.text.problems import ProblemSplit, pad_problems
from ...inference.language_model_thinker import LanguageThinker, solve_problems, thought_tokens
from ...inference.thought_search import GREEDY
from ...models.base import SupportsKVCache
from ...tasks.task import Task
from ..config import TrainSettings
from ..device import DeviceContext
from .supervised import Supervised

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
        if not isinstance(data.splits["train"], ProblemSplit):
            raise SettingError(
                f"objective={settings.objective} learns from solutions that are verified by computing, and "
                f"{data.source} is {data.spec.kind} data without a verifier: take addition, countdown or game24."
            )
        if settings.weights is None:
            raise SettingError(
                f"objective={settings.objective} learns from the right ones of a network's own solutions, and one that "
                "has learned nothing writes none: begin with a run that has, weights=RUN."
            )
        if settings.compile:
            raise SettingError(
                f"compile=true compiles the whole model, and objective={settings.objective} asks it token by token: "
                "leave it out."
            )

    def __init__(self, model: nn.Module, task: Task, settings: TrainSettings, train: Split, data: DataSet) -> None:
        super().__init__(model, task, settings, train, data)
        if not isinstance(model, SupportsKVCache):
            raise ModelError(
                f"objective={settings.objective} draws solutions from a cache, and {type(model).__name__} keeps none: "
                "take gpt2."
            )
        assert isinstance(train, ProblemSplit)
        self.problems, self.group = train, settings.group_size
        self.temperature = settings.temperature or 1.0
        self.words = None
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
        (ids, mask), target = pad_problems(rows)
        of, times, reward = torch.tensor(told, device=thinker.device).unbind(1)
        ids, mask, target = (x.to(thinker.device) for x in (ids, mask, target))
        return Attempts(ids, mask, target, of, times.float(), reward.float())

    def failed(self, tries: Attempts, target: Tensor) -> Tensor:
        """Return the fraction of wrong attempts, scaled to a sum like the loss of `target`, ()."""
        return (1 - (tries.reward * tries.times).sum() / tries.times.sum()) * self.task.count(target)

    def _scores(self, split: Split, place: DeviceContext) -> dict[str, float]:
        """Return the fraction of problems that a greedy chain does not solve."""
        assert isinstance(split, ProblemSplit)
        problems = list(dict.fromkeys(split.problems))[:MAX_VALIDATION_PROBLEMS]
        _, _, verdicts = solve_problems(self.model, split.preprocessing, problems, GREEDY)
        return {"loss": 1 - sum(verdict.solved for verdict in verdicts) / len(verdicts)}
