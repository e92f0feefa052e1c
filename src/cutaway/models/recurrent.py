"""What the recurrent networks share: the network around the layers of `rnn.py`, `lstm.py` and `gru.py`.

A sequence is read step after step; what the head sees of the states h_t depends on what is asked.

    whole sequences   r = last, mean or max over the real steps of h_t, or all of them (flat); answers W r + b
    every step        answers W h_t + b: tags, and the next token of a language model
    forecasts         in `forecasting.py`

Shapes, D = 2 where it reads in both directions, else 1:
    token ids (N, T) through an embedding, or numbers      (N, T, F)
    states                                                 (N, T, D · hidden)
    r                                                      (N, D · hidden)
    answers                                                (N, classes), or (N, T, tags or tokens)

The mask (N, T) is True where a step is real, with padding on the right. "last" is each direction's last state over real
steps: for the backward one that is the state after the first step.

With `tie_weights` the embedding of a language model is its output matrix too (O. Press, L. Wolf, Using the output
embedding to improve language models, 2016, <https://arxiv.org/abs/1608.05859>). It has as many numbers for a token as
in a state, and begins between −0.1 and 0.1 (W. Zaremba, I. Sutskever, O. Vinyals, Recurrent neural network
regularization, 2014, <https://arxiv.org/abs/1409.2329>), because rows of PyTorch's normal embedding would make large
logits. All else begins as PyTorch's layers do.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from ..core.errors import ModelError, require
from ..core.spec import AudioSpec, Classes, Horizon, NextToken, SeriesSpec, Tags, Target, TextSpec, Value
from ..nn.masks import real_places
from ..nn.recurrent import Ragged, State, as_given, as_state, lengths_of, packed
from .base import Network
from .fields import Checked, at_least, fraction, one_of, positive

POOLING = ("auto", "last", "mean", "max", "flat", "every")


@dataclass(frozen=True)
class Config(Checked):
    """What can be set in the network."""

    vocab_size: int = at_least(0, 0)  # tokens that are told apart; 0 takes numbers
    in_features: int = positive(1)  # F, the numbers at each step, where it takes numbers
    embedding_dim: int = at_least(0, 0)  # numbers for each token; 0 takes as many as `hidden_dim`
    hidden_dim: int = positive(128)  # numbers in a state
    layers: int = positive(1)  # one above the other
    bidirectional: bool = False  # read backwards too; the head sees both
    dropout: float = fraction(0.0)  # fraction of numbers dropped between layers and before the head
    pooling: str = one_of("auto", POOLING)  # what the head sees: last, mean, max, flat (all), every (each); auto suits
    steps: int = at_least(0, 0)  # T, where pooling is flat; else sequences of any length will do
    tie_weights: bool = False  # a language model's embedding is its output matrix too
    num_classes: int = positive(10)  # values that the head gives: classes, tags, tokens, or horizon times columns

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.tie_weights:
            one = (
                f"{self.hidden_dim}, as hidden_dim is, or 0, where tie_weights makes one matrix of embedding and output"
            )
            require(self.embedding_dim in (0, self.hidden_dim), "embedding_dim", self.embedding_dim, one)
            self.reject_backwards("tie_weights makes a language model")

    def reject_backwards(self, where: str) -> None:
        """Raise ModelError for a network that would read what it is to predict."""
        way_out = f"false where {where}, for what is to be predicted would have been read"
        require(not self.bidirectional, "bidirectional", True, way_out)

    @classmethod
    def for_spec(cls, preset: Self, spec: TextSpec | SeriesSpec | AudioSpec) -> Self:
        """The preset fitted to what `spec` has and asks for. Raises ModelError where it cannot answer that."""
        target = spec.target
        fitted: dict[str, Any] = {"vocab_size": 0, "num_classes": target.outputs}
        if isinstance(spec, TextSpec):
            fitted["vocab_size"] = spec.vocab_size
        else:
            fitted["in_features"] = spec.features if isinstance(spec, SeriesSpec) else spec.n_mels
        if isinstance(target, Tags | NextToken):
            fitted["pooling"] = "every"
            words = "every, or auto, where each token has an answer of its own"
            require(preset.pooling in ("auto", "every"), "pooling", preset.pooling, words)
            words = "false in a language model: reading backwards it would see the token that it is to predict"
            require(not (isinstance(target, NextToken) and preset.bidirectional), "bidirectional", True, words)
        elif not isinstance(target, Classes | Value | Horizon):
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
        if self.tie_weights:
            predicts = self.pooling == "every" and self.vocab_size == self.num_classes
            words = "false in all but a language model, which answers with a token at each token"
            require(predicts, "tie_weights", True, words)
        long = self.pooling != "flat" or self.steps >= 1
        require(long, "steps", self.steps, "the length of a sequence, for pooling=flat")

    @property
    def embedded(self) -> int:
        """The numbers at each step that the first layer reads."""
        return (self.embedding_dim or self.hidden_dim) if self.vocab_size else self.in_features


class Recurrent(Network):
    """(N, T) token ids or (N, T, F) numbers to one answer for each sequence, or one at each step."""

    takes = (TextSpec, SeriesSpec, AudioSpec)
    targets: ClassVar[tuple[type[Target], ...]] = (Classes, Value, Tags, NextToken)
    embedding: nn.Embedding | None

    def __init__(self, config: Config) -> None:
        super().__init__()
        config.check()
        self.config = config
        self.embedding = nn.Embedding(config.vocab_size, config.embedded) if config.vocab_size else None
        self.rnn = self.layer(config.embedded, config.bidirectional)
        directions, steps = 1 + config.bidirectional, config.steps if config.pooling == "flat" else 1
        self.build_head(config.hidden_dim * directions * steps)
        if config.tie_weights and self.embedding is not None:
            nn.init.uniform_(self.embedding.weight, -0.1, 0.1)
            self.head.weight = self.embedding.weight

    def layer(self, inputs: int, bidirectional: bool) -> Ragged:
        """The recurrent layers, batch first."""
        raise NotImplementedError

    def settings(self, inputs: int, bidirectional: bool) -> dict[str, Any]:
        """What PyTorch's recurrent layers are built with."""
        config = self.config
        return {
            "input_size": inputs,
            "hidden_size": config.hidden_dim,
            "num_layers": config.layers,
            "batch_first": True,
            "bidirectional": bidirectional,
            "dropout": config.dropout if config.layers > 1 else 0.0,  # PyTorch has dropout between layers alone
        }

    def build_head(self, seen: int) -> None:
        """Build what answers: dropout and a linear layer, which sees so many numbers."""
        self.drop = nn.Dropout(self.config.dropout)
        self.head = nn.Linear(seen, self.config.num_classes)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """What the head gives: (N, classes), or (N, T, tags or tokens) where each step is answered.

        Raises ModelError where shapes do not fit, and where a mask has padding elsewhere than on the right.
        """
        answers: Tensor = self.head(self.drop(self.features(x, mask)))
        return answers

    def features(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """What the head sees: r, (N, D · hidden), or states (N, T, D · hidden) where each step is answered."""
        steps = self.embed(x)  # (N, T, numbers)
        lengths = lengths_of(real_places(mask, steps.shape), steps.shape[1])
        if lengths is None:
            outputs, after = self.rnn(steps)
            last = as_state(after)[0]
        else:
            outputs, last = self.rnn(steps, lengths=lengths)
        return self.pool(outputs, last, lengths)

    def embed(self, x: Tensor) -> Tensor:
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

    def pool(self, outputs: Tensor, last: Tensor, lengths: Tensor | None) -> Tensor:
        """What the head sees of the states (N, T, D · hidden), zeros beyond `lengths`, and of the last ones, (layers ·
        D, N, hidden)."""
        config = self.config
        if config.pooling == "every":
            return outputs
        if config.pooling in ("auto", "last"):
            return last[-1 - config.bidirectional :].transpose(0, 1).flatten(1)  # (N, D · hidden)
        if config.pooling == "flat":
            if lengths is not None or outputs.shape[1] != config.steps:
                raise ModelError(
                    f"pooling=flat has weights for each of {config.steps} steps, and these sequences have others: "
                    "cut or resample them, or choose pooling=last, mean or max."
                )
            return outputs.flatten(1)  # (N, T · D · hidden)
        if lengths is None:
            return outputs.mean(1) if config.pooling == "mean" else outputs.amax(1)
        own = lengths.to(outputs.device)[:, None]  # (N, 1)
        if config.pooling == "mean":
            return outputs.sum(1) / own
        real = torch.arange(outputs.shape[1], device=outputs.device) < own  # (N, T)
        return outputs.masked_fill(~real[..., None], -torch.inf).amax(1)  # (N, D · hidden)

    def advance(self, x: Tensor, mask: Tensor | None = None, state: State | None = None) -> tuple[Tensor, State]:
        """Answers at each step, (N, T, tokens), and the state after the last real one: windows of a long text, read
        one after the other with the state handed on, are answered as the whole would be.

        The state is h, and c for an LSTM, each (layers, N, hidden); None begins with zeros. Raises ModelError for a
        network that is no language model or tagger, or that reads backwards.
        """
        config = self.config
        if config.pooling != "every" or config.bidirectional:
            pooling = "last" if config.pooling == "auto" else config.pooling
            raise ModelError(
                "Only a network that answers at each step and reads forwards alone can go on from a state: this one "
                f"has pooling={pooling} and bidirectional={str(config.bidirectional).lower()}."
            )
        steps = self.embed(x)
        lengths = lengths_of(real_places(mask, steps.shape), steps.shape[1])
        if lengths is None:
            outputs, after = self.rnn(steps, as_given(state))
            state = as_state(after)
        else:
            outputs, state = packed(self.rnn, steps, lengths, state)
        return self.head(self.drop(outputs)), state
