"""Recurrent forecasters: the next H steps of C variables, in one of three ways.

    direct          all H · C numbers at once from r, as in `recurrent.py`
    known future    a decoder, layers of the same kind, starts in the final states, reads the K variables that are known
                    in advance at each of the H forecast steps, and predicts C numbers there
    recursive       C numbers for the next step, which are fed back as the next input, and so on

Shapes: x (N, T, F), of which the first C variables are forecast; known future values (N, H, K), the second argument of
`forward`; forecasts (N, H · C). A recursive forecaster has exactly the K known variables after the C.

A forecaster reads the differences of each variable from its last value, and predicts such differences, because a level
outside the training range misleads other models (A. Zeng, M. Chen, L. Zhang, Q. Xu, Are transformers effective for time
series forecasting?, 2022, NLinear, <https://arxiv.org/abs/2205.13504>). With `relative=false` it reads and forecasts
the values themselves.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor, nn

from ..core.errors import ModelError, check_value
from ..core.spec import AudioSpec, Horizon, SeriesSpec, TextSpec
from . import recurrent
from .config import min_value
from .recurrent import Recurrent


@dataclass(frozen=True)
class Config(recurrent.Config):
    """Configuration of the network: all of `recurrent.Config`, and settings of the forecast."""

    horizon: int = min_value(0, 0)  # H, number of steps to forecast; 0 for no forecast
    known_future: int = min_value(0, 0)  # K, number of variables that are known for the steps to forecast
    recursive: bool = False  # forecast one step at a time and feed each forecast back as input
    relative: bool | None = None  # read and forecast differences from the last observed value; auto does

    def __post_init__(self) -> None:
        super().__post_init__()
        words = "false where recursive forecasts one step at a time, for what is to be predicted would have been read"
        check_value(not (self.recursive and self.bidirectional), "bidirectional", True, words)

    @classmethod
    def for_spec(cls, preset: Self, spec: TextSpec | SeriesSpec | AudioSpec) -> Self:
        """Return the preset fitted to `spec`. Raises ModelError if it cannot learn the target."""
        horizon = spec.target.steps if isinstance(spec.target, Horizon) else 0
        known = spec.known_future if horizon and isinstance(spec, SeriesSpec) else 0
        return super().for_spec(dataclasses.replace(preset, horizon=horizon, known_future=known), spec)

    def check(self) -> None:
        """Raise ModelError if settings contradict each other. This cannot be checked before the data is known."""
        super().check()
        if not self.horizon:
            for name in ("recursive", "relative", "known_future"):
                check_value(not getattr(self, name), name, getattr(self, name), "left out where nothing is forecast")
            return
        words = "last, mean, max or flat where the whole is answered by a forecast"
        check_value(self.pooling != "every", "pooling", self.pooling, words)
        check_value(not self.vocab_size, "vocab_size", self.vocab_size, "0 in a forecaster, which takes numbers")
        words = f"a multiple of the {self.horizon} steps of horizon"
        check_value(self.num_classes % self.horizon == 0, "num_classes", self.num_classes, words)
        words = f"at most horizon times in_features, {self.horizon} · {self.in_features}"
        check_value(self.columns <= self.in_features, "num_classes", self.num_classes, words)
        if self.by_step:
            words = "left as it is where forecasts go on from the last state"
            check_value(not self.bidirectional, "bidirectional", True, words)
            check_value(self.pooling in ("auto", "last"), "pooling", self.pooling, words)
        if self.recursive:
            words = (
                f"false here: to go on, it must know every variable of the next step, and of {self.in_features} "
                f"{self.columns} are forecast and {self.known_future} known in advance"
            )
            check_value(self.in_features == self.columns + self.known_future, "recursive", True, words)

    @property
    def columns(self) -> int:
        """C, the number of variables to forecast."""
        return self.num_classes // max(self.horizon, 1)

    @property
    def by_step(self) -> bool:
        """True if a forecast is made step by step, with C outputs at each."""
        return bool(self.horizon and (self.known_future or self.recursive))


class Forecasting(Recurrent):
    """A recurrent network that forecasts if its config has a horizon: numbers (N, T, F) to (N, H · C)."""

    targets = (*Recurrent.targets, Horizon)
    config: Config

    def build_head(self, seen: int) -> None:
        """Build the head, and the decoder if there are known future variables."""
        config = self.config
        if config.known_future and not config.recursive:
            self.decoder = self.layer(config.known_future, bidirectional=False)
        self.drop = nn.Dropout(config.dropout)
        self.head = nn.Linear(seen, config.columns if config.by_step else config.num_classes)

    def forward(self, x: Tensor, beside: Tensor | None = None) -> Tensor:
        """Return the forecasts (N, H · C), step after step.

        `beside` holds the known future values, (N, H, K). Without a horizon this is `Recurrent.forward`, and `beside`
        is the mask. Raises ModelError if shapes do not fit.
        """
        config = self.config
        if not config.horizon:
            return super().forward(x, beside)
        if config.recursive:
            answers = self._recursive(x, beside)[1]
        else:
            answers = self.head(self.drop(self.features(x, beside))).flatten(1)  # (N, H · C)
        if config.relative is not False:
            answers = answers + x[:, -1, : config.columns].repeat(1, config.horizon)
        return answers

    def features(self, x: Tensor, beside: Tensor | None = None) -> Tensor:
        """Return the input of the head: (N, H, hidden) for step-by-step forecasts, else as in `Recurrent`."""
        config = self.config
        if not config.horizon:
            return super().features(x, beside)
        if config.recursive:
            return self._recursive(x, beside)[0]
        if config.known_future:
            known = self._check_known(x, beside)
            _, state = self.rnn(self._relative_steps(x))
            states: Tensor = self.decoder(known, state)[0]
            return states  # (N, H, hidden)
        if beside is not None:
            raise ModelError(
                "This forecaster takes one argument, the steps that were seen, all of them real; it was built for "
                "nothing that is known in advance."
            )
        return super().features(self._relative_steps(x))

    def _recursive(self, x: Tensor, beside: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return states (N, H, hidden) and forecasts (N, H · C).

        The known values of a step are concatenated with the values of the step before it, so that its forecast can use
        them.
        """
        config = self.config
        values, ahead = self._relative_steps(x)[..., : config.columns], None
        inputs = values
        if config.known_future:
            ahead = torch.cat([x[:, 1:, config.columns :], self._check_known(x, beside)], dim=1)  # (N, T + H − 1, K)
            inputs = torch.cat([values, ahead[:, : x.shape[1]]], dim=2)  # (N, T, C + K)
        states, answers = [], []
        value, state = values[:, -1], None  # the last observed value, then the last forecast
        for step in range(config.horizon):
            outputs, state = self.rnn(inputs, state)
            states.append(outputs[:, -1])
            answer = self.head(self.drop(outputs[:, -1]))
            value = value + answer if config.relative is not False else answer
            answers.append(value)
            inputs = value[:, None]  # (N, 1, C)
            if ahead is not None and step + 1 < config.horizon:
                t = x.shape[1] + step
                inputs = torch.cat([inputs, ahead[:, t : t + 1]], dim=2)  # (N, 1, C + K)
        return torch.stack(states, dim=1), torch.cat(answers, dim=1)

    def _relative_steps(self, x: Tensor) -> Tensor:
        """Return x (N, T, F) with the last value of each variable subtracted, known future variables excepted.

        Without `relative`, x is returned unchanged. Raises ModelError if x has another shape.
        """
        steps = self.embed(x)
        if self.config.relative is False:
            return steps
        own = self.config.in_features - self.config.known_future
        return torch.cat([steps[..., :own] - steps[:, -1:, :own], steps[..., own:]], dim=2)

    def _check_known(self, x: Tensor, beside: Tensor | None) -> Tensor:
        """Return the known future values. Raises ModelError if they are missing or have another shape."""
        expected = (x.shape[0], self.config.horizon, self.config.known_future)
        if beside is None or beside.shape != expected:
            found = "nothing" if beside is None else str(tuple(beside.shape))
            raise ModelError(
                f"This forecaster needs what is known in advance of the steps to come, of shape {expected}, as its "
                f"second argument, and was given {found}."
            )
        return beside
