"""The base class of recurrent networks, which use the layers of `rnn.py`, `lstm.py` and `gru.py`.

A sequence is read step by step. The input of the head depends on the task:

    whole sequences   r = last, mean or max over the real steps of h_t, or all of them (flat); outputs W r + b
    every step        outputs W h_t + b: tags, and the next token of a language model
    forecasts         in `forecasting.py`

Shapes, with D = 2 for a bidirectional network, else 1:
    token ids (N, T) through an embedding, or numbers      (N, T, F)
    states                                                 (N, T, D · hidden)
    r                                                      (N, D · hidden)
    outputs                                                (N, classes), or (N, T, tags or tokens)

The mask (N, T) is True where a step is real, with padding on the right. "last" is the last state of each direction over
real steps: for the backward direction the state after the first step.

With `tie_weights` the embedding of a language model is also its output matrix (O. Press, L. Wolf, Using the output
embedding to improve language models, 2016, <https://arxiv.org/abs/1608.05859>). Then the embedding dimension equals the
hidden dimension. The matrix is initialized uniformly between −0.1 and 0.1 (W. Zaremba, I. Sutskever, O. Vinyals,
Recurrent neural network regularization, 2014, <https://arxiv.org/abs/1409.2329>), because PyTorch's normal
initialization would give large logits. Everything else is initialized as in PyTorch.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from ..core.errors import ModelError, check_value
from ..core.spec import AudioSpec, Classes, Horizon, NextToken, SeriesSpec, Tags, Target, TextSpec, Value
from ..nn.masks import normalize_padding_mask
from ..nn.recurrent import State, VariableLengthRNN, run_packed, sequence_lengths, to_state_tuple, to_torch_state
from .base import BaseModel
from .config import ValidatedConfig, choice, fraction, min_value, positive

POOLING = ("auto", "last", "mean", "max", "flat", "every")


@dataclass(frozen=True)
class Config(ValidatedConfig):
    """Configuration of the network."""

    vocab_size: int = min_value(0, 0)  # size of the vocabulary; 0 for numeric input
    in_features: int = positive(1)  # F, features at each step of numeric input
    embedding_dim: int = min_value(0, 0)  # dimension of the embedding; 0 for `hidden_dim`
    hidden_dim: int = positive(128)  # dimension of the hidden state
    layers: int = positive(1)  # number of stacked layers
    bidirectional: bool = False  # also read backwards and concatenate both states
    dropout: float = fraction(0.0)  # dropout rate between layers and before the head
    pooling: str = choice("auto", POOLING)  # input of the head: last, mean, max, flat (all), every (each); auto fits
    steps: int = min_value(0, 0)  # T, for pooling=flat; otherwise sequences may have any length
    tie_weights: bool = False  # use the embedding of a language model as its output matrix
    num_classes: int = positive(10)  # size of the output: classes, tags, tokens, or horizon times columns

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.tie_weights:
            one = (
                f"{self.hidden_dim}, as hidden_dim is, or 0, where tie_weights makes one matrix of embedding and output"
            )
            check_value(self.embedding_dim in (0, self.hidden_dim), "embedding_dim", self.embedding_dim, one)
            self.reject_bidirectional("tie_weights makes a language model")

    def reject_bidirectional(self, where: str) -> None:
        """Raise ModelError for a bidirectional network, whose input would contain its target."""
        way_out = f"false where {where}, for what is to be predicted would have been read"
        check_value(not self.bidirectional, "bidirectional", True, way_out)

    @classmethod
    def for_spec(cls, preset: Self, spec: TextSpec | SeriesSpec | AudioSpec) -> Self:
        """Return the preset fitted to `spec`. Raises ModelError if it cannot learn the target."""
        target = spec.target
        fitted: dict[str, Any] = {"vocab_size": 0, "num_classes": target.outputs}
        if isinstance(spec, TextSpec):
            fitted["vocab_size"] = spec.vocab_size
        else:
            fitted["in_features"] = spec.features if isinstance(spec, SeriesSpec) else spec.n_mels
        if isinstance(target, Tags | NextToken):
            fitted["pooling"] = "every"
            words = "every, or auto, where each token has an answer of its own"
            check_value(preset.pooling in ("auto", "every"), "pooling", preset.pooling, words)
            words = "false in a language model: reading backwards it would see the token that it is to predict"
            check_value(not (isinstance(target, NextToken) and preset.bidirectional), "bidirectional", True, words)
        elif not isinstance(target, Classes | Value | Horizon):
            raise ModelError(
                f"A recurrent network by itself does not learn the {target.column} of a token: it answers once for a "
                "sequence, at each token, or with a forecast. `cutaway list` shows what other models take."
            )
        if preset.pooling == "flat":
            check_value(isinstance(spec, SeriesSpec), "pooling", "flat", "last, mean or max where lengths differ")
            fitted["steps"] = spec.steps if isinstance(spec, SeriesSpec) else 0
        config = dataclasses.replace(preset, **fitted)
        config.check()
        return config

    def check(self) -> None:
        """Raise ModelError if settings contradict each other; this needs the data."""
        if self.tie_weights:
            predicts = self.pooling == "every" and self.vocab_size == self.num_classes
            words = "false in all but a language model, which answers with a token at each token"
            check_value(predicts, "tie_weights", True, words)
        long = self.pooling != "flat" or self.steps >= 1
        check_value(long, "steps", self.steps, "the length of a sequence, for pooling=flat")

    @property
    def embedded(self) -> int:
        """The input size of the first recurrent layer."""
        return (self.embedding_dim or self.hidden_dim) if self.vocab_size else self.in_features


class Recurrent(BaseModel):
    """A network that maps token ids (N, T) or numbers (N, T, F) to one output for each sequence or each step."""

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

    def layer(self, inputs: int, bidirectional: bool) -> VariableLengthRNN:
        """Build the recurrent layers, batch first."""
        raise NotImplementedError

    def settings(self, inputs: int, bidirectional: bool) -> dict[str, Any]:
        """Return the arguments of PyTorch's recurrent layers."""
        config = self.config
        return {
            "input_size": inputs,
            "hidden_size": config.hidden_dim,
            "num_layers": config.layers,
            "batch_first": True,
            "bidirectional": bidirectional,
            "dropout": config.dropout if config.layers > 1 else 0.0,  # PyTorch applies dropout between layers only
        }

    def build_head(self, seen: int) -> None:
        """Build the head: dropout and a linear layer with `seen` inputs."""
        self.drop = nn.Dropout(self.config.dropout)
        self.head = nn.Linear(seen, self.config.num_classes)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the outputs of the head: (N, classes), or (N, T, tags or tokens) with one output for each step.

        Raises ModelError if shapes do not fit, or if the mask has padding elsewhere than on the right.
        """
        answers: Tensor = self.head(self.drop(self.features(x, mask)))
        return answers

    def features(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the input of the head: r, (N, D · hidden), or states (N, T, D · hidden) for outputs at each step."""
        steps = self.embed(x)  # (N, T, numbers)
        lengths = sequence_lengths(normalize_padding_mask(mask, steps.shape), steps.shape[1])
        if lengths is None:
            outputs, after = self.rnn(steps)
            last = to_state_tuple(after)[0]
        else:
            outputs, last = self.rnn(steps, lengths=lengths)
        return self.pool(outputs, last, lengths)

    def embed(self, x: Tensor) -> Tensor:
        """Return the input of the first recurrent layer. Raises ModelError if x has another shape."""
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
        """Return the input of the head, given the states (N, T, D · hidden), zero beyond `lengths`, and the last ones.

        `last` has shape (layers · D, N, hidden).
        """
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
        """Return the outputs at each step, (N, T, tokens), and the state after the last real step.

        Consecutive windows of a long text, with the state passed on, give the same outputs as the whole text. The state
        is h, and c for an LSTM, each (layers, N, hidden); None is a state of zeros. Raises ModelError for a network
        that is not a language model or tagger, or that is bidirectional.
        """
        config = self.config
        if config.pooling != "every" or config.bidirectional:
            pooling = "last" if config.pooling == "auto" else config.pooling
            raise ModelError(
                "Only a network that answers at each step and reads forwards alone can go on from a state: this one "
                f"has pooling={pooling} and bidirectional={str(config.bidirectional).lower()}."
            )
        steps = self.embed(x)
        lengths = sequence_lengths(normalize_padding_mask(mask, steps.shape), steps.shape[1])
        if lengths is None:
            outputs, after = self.rnn(steps, to_torch_state(state))
            state = to_state_tuple(after)
        else:
            outputs, state = run_packed(self.rnn, steps, lengths, state)
        return self.head(self.drop(outputs)), state
