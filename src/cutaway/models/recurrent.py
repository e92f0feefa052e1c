"""What the recurrent networks share: the network around the cell. The cells are in `rnn.py`, `lstm.py` and `gru.py`.

A sequence is read step after step; what the head sees of it depends on what is asked.

    whole sequences   r = last, mean or max over the real steps of h_t, or all of them (flat); answers W r + b
    every step        answers W h_t + b: tags, and the next token of a language model
    forecasts         the next H steps of C columns, step after step, in one of three ways:
      direct            all H · C at once from r
      with known        a second network of the same kind begins in the final states of the first, reads what is known
                        in advance of the H steps to come, and answers C numbers at each of them
      recursive         C numbers for the next step, which are then read as if they had been seen, and so on

Shapes: token ids (N, T) through an embedding, or numbers (N, T, F); states (N, T, ways · hidden); r (N, ways · hidden).
The second argument of `forward` is a mask (N, T), True where a step is real, padding on the right; of a forecaster
with variables known in advance it is what is known of the steps to come, (N, H, K). "last" is each direction's last
state over real steps: for the backward one that is the state after the first step. Of the F variables the first C are
taken to be the ones to forecast; a recursive forecaster has the K known ones, and no others, behind them. A
forecaster reads how far each variable was from its last value, and answers how far it will be, because a level that is
new leads others astray (A. Zeng, M. Chen, L. Zhang, Q. Xu, Are transformers effective for time series forecasting?,
2022, NLinear, <https://arxiv.org/abs/2205.13504>); `relative=false` reads and forecasts the values themselves.

Tied: a language model whose embedding and output matrix are one (O. Press, L. Wolf, Using the output embedding to
improve language models, 2016, <https://arxiv.org/abs/1608.05859>). It has as many numbers for a token as in a state,
and begins between −0.1 and 0.1 (W. Zaremba, I. Sutskever, O. Vinyals, Recurrent neural network regularization, 2014,
<https://arxiv.org/abs/1409.2329>), because rows of PyTorch's normal embedding would make large logits. All else begins
as PyTorch's layers do.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor, nn

from ..errors import ModelError, require
from ..nn.masks import real_places
from ..nn.recurrent import Ragged, State, as_given, as_state, lengths_of, packed
from ..spec import AudioSpec, Classes, Horizon, NextToken, SeriesSpec, Tags, TextSpec, Value
from .contract import Network

READ = ("auto", "last", "mean", "max", "flat", "every")


@dataclass(frozen=True)
class Config:
    """What can be set in the network."""

    vocab_size: int = 0  # tokens that are told apart; 0 takes numbers
    in_features: int = 1  # F, the numbers at each step, where it takes numbers
    embedding_dim: int = 0  # numbers for each token; 0 takes as many as `hidden_dim`
    hidden_dim: int = 128  # numbers in a state
    layers: int = 1  # one above the other
    bidirectional: bool = False  # read backwards too; the head sees both
    dropout: float = 0.0  # share of numbers that is dropped between layers and before the head
    pooling: str = (
        "auto"  # what the head sees: last, mean, max, flat (all steps), every (an answer at each); auto suits
    )
    steps: int = 0  # T, where pooling is flat; else sequences of any length will do
    tie_weights: bool = False  # a language model's embedding is its output matrix too
    horizon: int = 0  # H, the steps to forecast; 0 forecasts nothing
    known_future: int = 0  # K, the variables known in advance of the steps to forecast
    recursive: bool = False  # forecast one step at a time, from the forecasts before it
    relative: bool | None = None  # read and forecast how far values are from the last one seen; auto does
    num_classes: int = 10  # values that the head gives: classes, tags, tokens, or horizon times columns

    def __post_init__(self) -> None:
        for name in ("in_features", "hidden_dim", "layers", "num_classes"):
            require(getattr(self, name) >= 1, name, getattr(self, name), "at least 1")
        for name in ("vocab_size", "embedding_dim", "steps", "horizon", "known_future"):
            require(getattr(self, name) >= 0, name, getattr(self, name), "at least 0")
        require(0 <= self.dropout < 1, "dropout", self.dropout, "at least 0 and below 1")
        require(self.pooling in READ, "pooling", self.pooling, " or ".join(READ))
        require(
            not self.tie_weights or self.embedding_dim in (0, self.hidden_dim),
            "embedding_dim",
            self.embedding_dim,
            f"{self.hidden_dim}, as hidden_dim is, or 0, where tie_weights makes one matrix of embedding and output",
        )
        if self.bidirectional:
            way_out = "false where {}, for what is to be foretold would have been read"
            require(not self.tie_weights, "bidirectional", True, way_out.format("tie_weights makes a language model"))
            require(not self.recursive, "bidirectional", True, way_out.format("recursive forecasts one step at a time"))

    @classmethod
    def for_spec(cls, preset: Self, spec: TextSpec | SeriesSpec | AudioSpec) -> Self:
        """The preset fitted to what `spec` has and asks for. Raises ModelError where it cannot answer that."""
        target = spec.target
        fitted: dict[str, Any] = {"num_classes": target.outputs, "horizon": 0, "known_future": 0}
        if isinstance(spec, TextSpec):
            fitted["vocab_size"] = spec.vocab_size
        else:
            fitted["vocab_size"] = 0
            fitted["in_features"] = spec.features if isinstance(spec, SeriesSpec) else spec.n_mels

        if isinstance(target, Tags | NextToken):
            fitted["pooling"] = "every"
            require(
                preset.pooling in ("auto", "every"),
                "pooling",
                preset.pooling,
                "every, or auto, where each token has an answer of its own",
            )
            require(
                not (isinstance(target, NextToken) and preset.bidirectional),
                "bidirectional",
                True,
                "false in a language model: reading backwards it would see the token that it is to foretell",
            )
        elif isinstance(target, Horizon):
            fitted |= {
                "horizon": target.steps,
                "known_future": spec.known_future if isinstance(spec, SeriesSpec) else 0,
            }
        elif not isinstance(target, Classes | Value):
            raise ModelError(
                f"A recurrent network by itself does not learn the {target.column} of a token: it answers once for a "
                "sequence, at each token, or with a forecast. `cutaway list` shows what other models take."
            )
        if preset.pooling == "flat":
            require(isinstance(spec, SeriesSpec), "pooling", "flat", "last, mean or max where lengths differ")
            fitted["steps"] = spec.steps if isinstance(spec, SeriesSpec) else 0
        config = dataclasses.replace(preset, **fitted)
        config.check()
        return config

    def check(self) -> None:
        """Raise ModelError where settings contradict each other; before the data is known they cannot be judged."""
        each = self.pooling == "every"
        if self.tie_weights:
            fit = each and self.vocab_size == self.num_classes
            require(
                fit, "tie_weights", True, "false in all but a language model, which answers with a token at each token"
            )
        require(
            self.pooling != "flat" or self.steps >= 1, "steps", self.steps, "the length of a sequence, for pooling=flat"
        )
        if self.horizon:
            require(
                not each, "pooling", self.pooling, "last, mean, max or flat where the whole is answered by a forecast"
            )
            require(not self.vocab_size, "vocab_size", self.vocab_size, "0 in a forecaster, which takes numbers")
            require(
                self.num_classes % self.horizon == 0,
                "num_classes",
                self.num_classes,
                f"a multiple of the {self.horizon} steps of horizon",
            )
            require(
                self.columns <= self.in_features,
                "num_classes",
                self.num_classes,
                f"at most horizon times in_features, {self.horizon} · {self.in_features}",
            )
            if self.by_step:
                require(
                    not self.bidirectional and self.pooling in ("auto", "last"),
                    "bidirectional" if self.bidirectional else "pooling",
                    self.bidirectional or self.pooling,
                    "left as it is where forecasts go on from the last state",
                )
            if self.recursive:
                require(
                    self.in_features == self.columns + self.known_future,
                    "recursive",
                    True,
                    f"false here: to go on, it must know every variable of the next step, and of {self.in_features} "
                    f"{self.columns} are forecast and {self.known_future} known in advance",
                )
        else:
            for name in ("recursive", "relative", "known_future"):
                require(not getattr(self, name), name, getattr(self, name), "left out where nothing is forecast")

    @property
    def embedded(self) -> int:
        """The numbers at each step that the first layer reads."""
        return (self.embedding_dim or self.hidden_dim) if self.vocab_size else self.in_features

    @property
    def reads(self) -> str:
        """What the head sees of a sequence, where `pooling` may be auto."""
        return "last" if self.pooling == "auto" else self.pooling

    @property
    def columns(self) -> int:
        """C, the variables to forecast."""
        return self.num_classes // max(self.horizon, 1)

    @property
    def goes_on(self) -> bool:
        """Whether forecasts go on from the last value."""
        return bool(self.horizon) if self.relative is None else self.relative

    @property
    def by_step(self) -> bool:
        """Whether a forecast is made step by step, with C answers at each."""
        return bool(self.horizon and (self.known_future or self.recursive))


class Recurrent(Network):
    """(N, T) token ids or (N, T, F) numbers to what the head gives."""

    takes = (TextSpec, SeriesSpec, AudioSpec)
    targets = (Classes, Value, Tags, NextToken, Horizon)
    embedding: nn.Embedding | None

    def __init__(self, config: Config) -> None:
        super().__init__()
        config.check()
        self.config = config
        ways = 2 if config.bidirectional else 1
        self.embedding = nn.Embedding(config.vocab_size, config.embedded) if config.vocab_size else None
        self.rnn = self.layer(config.embedded, ways)
        if config.known_future and not config.recursive:
            self.decoder = self.layer(config.known_future, 1)
        seen = config.hidden_dim * ways * (config.steps if config.reads == "flat" else 1)
        self.drop = nn.Dropout(config.dropout)
        self.head = nn.Linear(seen, config.columns if config.by_step else config.num_classes)
        if config.tie_weights and self.embedding is not None:
            nn.init.uniform_(self.embedding.weight, -0.1, 0.1)
            self.head.weight = self.embedding.weight

    def layer(self, inputs: int, ways: int) -> Ragged:
        """The layers of the cell, batch first."""
        raise NotImplementedError

    def settings(self, ways: int) -> dict[str, Any]:
        """What PyTorch's recurrent layers are built with."""
        config = self.config
        dropout = config.dropout if config.layers > 1 else 0.0  # PyTorch has dropout between layers alone
        return {"num_layers": config.layers, "batch_first": True, "bidirectional": ways == 2, "dropout": dropout}

    def forward(self, x: Tensor, beside: Tensor | None = None) -> Tensor:
        """What the head gives: (N, classes); (N, T, tags or tokens) where each step is answered; forecasts (N, H · C).

        `beside` is the mask (N, T), or, with `known_future`, what is known of the steps to come, (N, H, K).
        Raises ModelError where shapes do not fit, and where a mask has padding elsewhere than on the right.
        """
        if self.config.recursive:
            answers = self._rolled(x, beside)[1]
        else:
            answers = self.head(self.drop(self.features(x, beside)))
        if self.config.horizon:
            answers = answers.flatten(1)  # (N, H · C), step after step
            if self.config.goes_on:
                answers = answers + x[:, -1, : self.config.columns].repeat(1, self.config.horizon)
        return answers

    def features(self, x: Tensor, beside: Tensor | None = None) -> Tensor:
        """What the head sees: r, (N, ways · hidden); states (N, T, ways · hidden) where each step is answered, and
        (N, H, hidden) where forecasts are made step by step."""
        config = self.config
        if config.recursive:
            return self._rolled(x, beside)[0]
        if config.known_future:
            future = self._future(x, beside)
            _, state = self.rnn(self._from_last(self._steps(x)))
            states: Tensor = self.decoder(future, state)[0]
            return states  # (N, H, hidden)
        if config.horizon and beside is not None:
            raise ModelError(
                "This forecaster takes one argument, the steps that were seen, all of them real; it was built for "
                "nothing that is known in advance."
            )
        steps = self._from_last(self._steps(x))  # (N, T, numbers)
        lengths = lengths_of(real_places(beside, steps.shape), steps.shape[1])
        if lengths is None:
            outputs, after = self.rnn(steps)
            last = as_state(after)[0]
        else:
            outputs, last = self.rnn(steps, lengths=lengths)
        return self._read(outputs, last, lengths)

    def _read(self, outputs: Tensor, last: Tensor, lengths: Tensor | None) -> Tensor:
        """What the head sees of the states (N, T, ways · hidden), zeros beyond `lengths`, and of the last ones, (layers
        · ways, N, hidden)."""
        config = self.config
        if config.reads == "every":
            return outputs
        if config.reads == "last":
            ways = 2 if config.bidirectional else 1
            return last[-ways:].transpose(0, 1).flatten(1)  # (N, ways · hidden)
        if config.reads == "flat":
            if lengths is not None or outputs.shape[1] != config.steps:
                raise ModelError(
                    f"pooling=flat has weights for each of {config.steps} steps, and these sequences have others: "
                    "cut or resample them, or choose pooling=last, mean or max."
                )
            return outputs.flatten(1)  # (N, T · ways · hidden)
        if lengths is None:
            return outputs.mean(1) if config.reads == "mean" else outputs.amax(1)
        own = lengths.to(outputs.device)[:, None]  # (N, 1)
        if config.reads == "mean":
            return outputs.sum(1) / own
        real = torch.arange(outputs.shape[1], device=outputs.device) < own  # (N, T)
        return outputs.masked_fill(~real[..., None], -torch.inf).amax(1)  # (N, ways · hidden)

    def advance(self, x: Tensor, mask: Tensor | None = None, state: State | None = None) -> tuple[Tensor, State]:
        """Answers at each step, (N, T, tokens), and the state behind the last real one: windows of a long text, read
        one after the other with the state handed on, are answered as the whole would be.

        The state is h, and c for an LSTM, each (layers, N, hidden); None begins with zeros. Raises ModelError for a
        network that is no language model or tagger, or that reads backwards.
        """
        config = self.config
        if config.reads != "every" or config.bidirectional:
            raise ModelError(
                "Only a network that answers at each step and reads forwards alone can go on from a state: this one "
                f"has pooling={config.reads} and bidirectional={str(config.bidirectional).lower()}."
            )
        steps = self._steps(x)
        lengths = lengths_of(real_places(mask, steps.shape), steps.shape[1])
        if lengths is None:
            outputs, after = self.rnn(steps, as_given(state))
            state = as_state(after)
        else:
            outputs, state = packed(self.rnn, steps, lengths, state)
        return self.head(self.drop(outputs)), state

    def _rolled(self, x: Tensor, beside: Tensor | None) -> tuple[Tensor, Tensor]:
        """Recursive forecasts: states (N, H, hidden) and answers (N, H · C).

        What is known of a step stands beside the values of the step before it, so that a forecast sees it.
        """
        config = self.config
        values, ahead = self._from_last(self._steps(x))[..., : config.columns], None
        inputs = values
        if config.known_future:
            future = self._future(x, beside)
            ahead = torch.cat([x[:, 1:, config.columns :], future], dim=1)  # (N, T + H − 1, K)
            inputs = torch.cat([values, ahead[:, : x.shape[1]]], dim=2)  # (N, T, C + K)
        states, answers = [], []
        value, state = values[:, -1], None  # the last one seen, then the last one forecast
        for step in range(config.horizon):
            outputs, state = self.rnn(inputs, state)
            states.append(outputs[:, -1])
            answer = self.head(self.drop(outputs[:, -1]))
            value = value + answer if config.goes_on else answer
            answers.append(value)
            inputs = value[:, None]  # (N, 1, C)
            if ahead is not None and step + 1 < config.horizon:
                t = x.shape[1] + step
                inputs = torch.cat([inputs, ahead[:, t : t + 1]], dim=2)  # (N, 1, C + K)
        return torch.stack(states, dim=1), torch.cat(answers, dim=1)

    def _from_last(self, steps: Tensor) -> Tensor:
        """Where forecasts are relative: the variables (N, T, F) less their last values, but for those that are known in
        advance. Else the steps as they are."""
        if not self.config.goes_on:
            return steps
        own = self.config.in_features - self.config.known_future
        return torch.cat([steps[..., :own] - steps[:, -1:, :own], steps[..., own:]], dim=2)

    def _steps(self, x: Tensor) -> Tensor:
        """The numbers at each step that the first layer reads. Raises ModelError where x has another shape."""
        if self.embedding is not None:
            if x.ndim != 2 or x.is_floating_point():
                raise ModelError(
                    f"This network takes token ids, whole numbers of shape (N, T), and these are "
                    f"{str(x.dtype).removeprefix('torch.')} of shape {tuple(x.shape)}."
                )
            embedded: Tensor = self.embedding(x)
            return embedded  # (N, T, embedding_dim)
        if x.ndim != 3 or x.shape[2] != self.config.in_features:
            raise ModelError(
                f"This network takes sequences of shape (N, T, {self.config.in_features}), steps and the numbers at "
                f"each, and these are {tuple(x.shape)}: build one with other in_features."
            )
        return x

    def _future(self, x: Tensor, beside: Tensor | None) -> Tensor:
        """What is known in advance. Raises ModelError where it is missing or has another shape."""
        expected = (len(x), self.config.horizon, self.config.known_future)
        if beside is None or beside.shape != expected:
            found = "nothing" if beside is None else str(tuple(beside.shape))
            raise ModelError(
                f"This forecaster needs what is known in advance of the steps to come, of shape {expected}, as its "
                f"second argument, and was given {found}."
            )
        return beside
