"""Recurrent networks that forecast: the next H steps of C variables, step after step, in one of three ways.

    direct          all H · C numbers at once from r, as `recurrent.py` answers once for a sequence
    known future    a decoder, layers of the same kind, begins in the final states, reads the K variables that are known
                    in advance at each of the H steps to come, and answers C numbers there
    recursive       C numbers for the next step, which are then read as if they had been seen, and so on

Shapes: x (N, T, F), the first C of whose variables are forecast; what is known in advance (N, H, K), the second
argument of `forward`; answers (N, H · C). A recursive forecaster has the K known variables, and no others, after the C.

A forecaster reads how far each variable was from its last value, and answers how far it will be, because a level that
is new leads others astray (A. Zeng, M. Chen, L. Zhang, Q. Xu, Are transformers effective for time series forecasting?,
2022, NLinear, <https://arxiv.org/abs/2205.13504>); `relative=false` reads and forecasts the values themselves.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor, nn

from ..core.errors import ModelError, require
from ..core.spec import AudioSpec, Horizon, SeriesSpec, TextSpec
from . import recurrent
from .fields import at_least
from .recurrent import Recurrent


@dataclass(frozen=True)
class Config(recurrent.Config):
    """What can be set in the network: all of `recurrent.Config`, and what is forecast, and how."""

    horizon: int = at_least(0, 0)  # H, the steps to forecast; 0 forecasts nothing
    known_future: int = at_least(0, 0)  # K, the variables known in advance of the steps to forecast
    recursive: bool = False  # forecast one step at a time, from the forecasts before it
    relative: bool | None = None  # read and forecast how far values are from the last one seen; auto does

    def __post_init__(self) -> None:
        super().__post_init__()
        words = "false where recursive forecasts one step at a time, for what is to be predicted would have been read"
        require(not (self.recursive and self.bidirectional), "bidirectional", True, words)

    @classmethod
    def for_spec(cls, preset: Self, spec: TextSpec | SeriesSpec | AudioSpec) -> Self:
        """The preset fitted to what `spec` has and asks for. Raises ModelError where it cannot answer that."""
        horizon = spec.target.steps if isinstance(spec.target, Horizon) else 0
        known = spec.known_future if horizon and isinstance(spec, SeriesSpec) else 0
        return super().for_spec(dataclasses.replace(preset, horizon=horizon, known_future=known), spec)

    def check(self) -> None:
        """Raise ModelError where settings contradict each other; before the data is known they cannot be judged."""
        super().check()
        if not self.horizon:
            for name in ("recursive", "relative", "known_future"):
                require(not getattr(self, name), name, getattr(self, name), "left out where nothing is forecast")
            return
        words = "last, mean, max or flat where the whole is answered by a forecast"
        require(self.pooling != "every", "pooling", self.pooling, words)
        require(not self.vocab_size, "vocab_size", self.vocab_size, "0 in a forecaster, which takes numbers")
        words = f"a multiple of the {self.horizon} steps of horizon"
        require(self.num_classes % self.horizon == 0, "num_classes", self.num_classes, words)
        words = f"at most horizon times in_features, {self.horizon} · {self.in_features}"
        require(self.columns <= self.in_features, "num_classes", self.num_classes, words)
        if self.by_step:
            words = "left as it is where forecasts go on from the last state"
            require(not self.bidirectional, "bidirectional", True, words)
            require(self.pooling in ("auto", "last"), "pooling", self.pooling, words)
        if self.recursive:
            words = (
                f"false here: to go on, it must know every variable of the next step, and of {self.in_features} "
                f"{self.columns} are forecast and {self.known_future} known in advance"
            )
            require(self.in_features == self.columns + self.known_future, "recursive", True, words)

    @property
    def columns(self) -> int:
        """C, the variables to forecast."""
        return self.num_classes // max(self.horizon, 1)

    @property
    def by_step(self) -> bool:
        """Whether a forecast is made step by step, with C answers at each."""
        return bool(self.horizon and (self.known_future or self.recursive))


class Forecasting(Recurrent):
    """A recurrent network that forecasts where its config has a horizon: (N, T, F) numbers to (N, H · C)."""

    targets = (*Recurrent.targets, Horizon)
    config: Config

    def build_head(self, seen: int) -> None:
        """Build what answers, after the decoder where one reads what is known in advance."""
        config = self.config
        if config.known_future and not config.recursive:
            self.decoder = self.layer(config.known_future, bidirectional=False)
        self.drop = nn.Dropout(config.dropout)
        self.head = nn.Linear(seen, config.columns if config.by_step else config.num_classes)

    def forward(self, x: Tensor, beside: Tensor | None = None) -> Tensor:
        """Forecasts (N, H · C), step after step; `beside` is what is known of the steps to come, (N, H, K). Without a
        horizon what `Recurrent` gives, and `beside` is the mask. Raises ModelError where shapes do not fit."""
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
        """What the head sees: (N, H, hidden) where forecasts are made step by step, else as in `Recurrent`."""
        config = self.config
        if not config.horizon:
            return super().features(x, beside)
        if config.recursive:
            return self._recursive(x, beside)[0]
        if config.known_future:
            known = self._known(x, beside)
            _, state = self.rnn(self._from_last(x))
            states: Tensor = self.decoder(known, state)[0]
            return states  # (N, H, hidden)
        if beside is not None:
            raise ModelError(
                "This forecaster takes one argument, the steps that were seen, all of them real; it was built for "
                "nothing that is known in advance."
            )
        return super().features(self._from_last(x))

    def _recursive(self, x: Tensor, beside: Tensor | None) -> tuple[Tensor, Tensor]:
        """States (N, H, hidden) and answers (N, H · C).

        What is known of a step stands beside the values of the step before it, so that a forecast sees it.
        """
        config = self.config
        values, ahead = self._from_last(x)[..., : config.columns], None
        inputs = values
        if config.known_future:
            ahead = torch.cat([x[:, 1:, config.columns :], self._known(x, beside)], dim=1)  # (N, T + H − 1, K)
            inputs = torch.cat([values, ahead[:, : x.shape[1]]], dim=2)  # (N, T, C + K)
        states, answers = [], []
        value, state = values[:, -1], None  # the last one seen, then the last one forecast
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

    def _from_last(self, x: Tensor) -> Tensor:
        """Where forecasts are relative: the variables (N, T, F) less their last values, but for those that are known in
        advance. Else x as it is. Raises ModelError where x has another shape."""
        steps = self.embed(x)
        if self.config.relative is False:
            return steps
        own = self.config.in_features - self.config.known_future
        return torch.cat([steps[..., :own] - steps[:, -1:, :own], steps[..., own:]], dim=2)

    def _known(self, x: Tensor, beside: Tensor | None) -> Tensor:
        """What is known in advance. Raises ModelError where it is missing or has another shape."""
        expected = (x.shape[0], self.config.horizon, self.config.known_future)
        if beside is None or beside.shape != expected:
            found = "nothing" if beside is None else str(tuple(beside.shape))
            raise ModelError(
                f"This forecaster needs what is known in advance of the steps to come, of shape {expected}, as its "
                f"second argument, and was given {found}."
            )
        return beside
