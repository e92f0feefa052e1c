"""Architecture search with reinforcement learning: a recurrent controller that is trained by REINFORCE.

B. Zoph, Q. V. Le, Neural architecture search with reinforcement learning, ICLR 2017, section 3.2.
<https://arxiv.org/abs/1611.01578> R. J. Williams, Simple statistical gradient-following algorithms for connectionist
reinforcement learning, Machine Learning, 1992.

    P(a; θ) = ∏ₜ P(aₜ | a₁ … aₜ₋₁; θ)              the controller, an LSTM with a softmax for each part t of the space
    J(θ) = Σₐ P(a; θ) R(a)                         the expected reward, R: the validation metric of the trained network
    ∇J ≈ Σₜ ∇ log P(aₜ | a₁ … aₜ₋₁; θ) (R(a) − b)  from one sample a

    b ← λ b + (1 − λ) R                            the baseline, an exponential moving average of previous rewards

The baseline does not change the expectation of the estimate, only its variance, because it does not depend on a.

      start ─► LSTM ─► LSTM ─► LSTM ─► …
                │  ▲    │  ▲    │
                ▼  │    ▼  │    ▼
           softmax │ softmax  softmax
                │  │    │  │    │
                a₁─┘    a₂─┘    a₃           edge 0→1, edge 0→2, edge 1→2, …

No state is stored. The controller of a trial follows from the seed of the search and the finished trials before it,
with one step of Adam for each. A search that was killed therefore continues with the same draws. If several processes
share a search, a sample may come from a controller that has not seen the trials that the others still train, as in the
paper.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import optuna
import torch
from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
from optuna.trial import FrozenTrial, TrialState
from torch import Tensor, nn

from ...training.batches import mix_seeds

HIDDEN_DIM, INIT = 35, 0.08  # units of the LSTM, and the bound of its uniform initial weights (section 4.1)


Sample = tuple[tuple[int, ...], float]  # the index of each chosen option, and the reward


class Controller(nn.Module):
    """A policy over sequences of choices.

    Args:
        sizes: Number of options of each choice.
    """

    def __init__(self, sizes: Sequence[int]) -> None:
        super().__init__()
        self.start = nn.Parameter(torch.empty(1, HIDDEN_DIM))  # input of the first step
        self.cell = nn.LSTMCell(HIDDEN_DIM, HIDDEN_DIM)
        self.embeddings = nn.ModuleList(nn.Embedding(size, HIDDEN_DIM) for size in sizes)  # of the previous choice
        self.heads = nn.ModuleList(nn.Linear(HIDDEN_DIM, size) for size in sizes)
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -INIT, INIT)

    def sample(self, generator: torch.Generator) -> list[int]:
        """Draw the index of an option for each choice, one after the other."""
        drawn: list[int] = []
        with torch.no_grad():
            for _ in self.heads:
                probabilities = self.log_probabilities(drawn)[-1].exp()
                drawn.append(int(torch.multinomial(probabilities, 1, generator=generator)))
        return drawn

    def log_probabilities(self, chosen: Sequence[int]) -> list[Tensor]:
        """Return log P(· | chosen before) of each choice up to the first that is not made, each of shape (options,)."""
        x, state, found = self.start, None, []
        for t, head in enumerate(list(self.heads)[: len(chosen) + 1]):
            state = self.cell(x, state)
            found.append(head(state[0])[0].log_softmax(0))  # (options,)
            if t < len(chosen):
                x = self.embeddings[t](torch.tensor([chosen[t]]))  # (1, HIDDEN_DIM)
        return found

    def log_prob(self, chosen: Sequence[int]) -> Tensor:
        """Return log P(chosen), shape ()."""
        return torch.stack([row[i] for row, i in zip(self.log_probabilities(chosen), chosen)]).sum()


def policy_loss(controller: Controller, chosen: Sequence[int], reward: float, baseline: float) -> Tensor:
    """Return the loss, shape (), whose gradient is the negative estimate of ∇J from one sample."""
    return -(reward - baseline) * controller.log_prob(chosen)


class ControllerTrainer:
    """A controller, its optimizer and its baseline, after one step for each of `samples`.

    Args:
        sizes: Number of options of each choice.
        lr: Learning rate of Adam.
        decay: λ of the baseline.
        seed: Seed of the initial weights.
    """

    def __init__(self, sizes: Sequence[int], lr: float, decay: float, seed: int) -> None:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.controller = Controller(sizes)
        self.optimizer = torch.optim.Adam(self.controller.parameters(), lr=lr)
        self.decay, self.baseline = decay, 0.0
        self.samples: list[Sample] = []

    def step(self, sample: Sample) -> None:
        """Make one step with the chosen options and the reward of a finished trial, and update the baseline."""
        chosen, reward = sample
        if not self.samples:  # there is nothing to compare the first reward with, and it changes nothing
            self.baseline = reward
        self.optimizer.zero_grad()
        policy_loss(self.controller, chosen, reward, self.baseline).backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        self.baseline = self.decay * self.baseline + (1 - self.decay) * reward
        self.samples.append(sample)


_last: dict[tuple[tuple[int, ...], float, float, int], ControllerTrainer] = {}


def train_controller(
    sizes: Sequence[int], samples: Sequence[Sample], lr: float, decay: float, seed: int
) -> ControllerTrainer:
    """Return a trainer after one step for each sample, in order.

    With the same arguments the controller is the same, bit for bit. A process keeps the last one, so that it makes one
    step for each new trial.
    """
    key = (tuple(sizes), lr, decay, seed)
    trainer = _last.get(key)
    if trainer is None or trainer.samples != list(samples[: len(trainer.samples)]):
        _last.clear()
        trainer = _last[key] = ControllerTrainer(sizes, lr, decay, seed)
    for sample in samples[len(trainer.samples) :]:
        trainer.step(sample)
    return trainer


class Reinforce(optuna.samplers.BaseSampler):
    """Sampler that draws from a controller which has learned from the finished trials."""

    def __init__(
        self, space: Mapping[str, BaseDistribution], lr: float, decay: float, search_seed: int, seed: int
    ) -> None:
        self.space, self.lr, self.decay, self.search_seed = dict(space), lr, decay, search_seed
        self.options = {name: list_options(one) for name, one in self.space.items()}
        self.generator = torch.Generator().manual_seed(seed % 2**63)

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Return the whole space, because each choice depends on those before it."""
        return self.space

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Return a sample of the controller."""
        sign = 1 if study.direction == optuna.study.StudyDirection.MAXIMIZE else -1
        samples = [
            (
                tuple(options.index(one.params[name]) for name, options in self.options.items()),
                sign * float(one.value or 0.0),
            )
            for one in study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        ]
        sizes = [len(options) for options in self.options.values()]
        seed = mix_seeds(self.search_seed, len(sizes))
        drawn = train_controller(sizes, samples, self.lr, self.decay, seed).controller.sample(self.generator)
        return {name: options[i] for (name, options), i in zip(self.options.items(), drawn)}

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Refuse to draw a single value, because all are drawn together."""
        raise NotImplementedError(f"{param_name} is drawn with all other settings.")


def list_options(one: BaseDistribution) -> list[Any]:
    """Return the options of a choice or of a range of integers."""
    if isinstance(one, CategoricalDistribution):
        return list(one.choices)
    assert isinstance(one, IntDistribution), "ranges of floats are rejected before the search"
    return list(range(one.low, one.high + 1))
