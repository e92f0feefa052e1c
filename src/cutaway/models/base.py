"""The base class of all models, and protocols for optional capabilities.

A model file defines a `Config`, a network class under the name `Model`, `PRESETS` and a `CARD`. The registry discovers
the file by these names. Training, generation and inspection check for a capability by its type, so a misspelt hook is a
type error and not a method that is never called.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fnmatch import fnmatch
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from ..core.errors import InputShapeError, ModelError
from ..core.spec import (
    AudioSpec,
    Classes,
    GraphSpec,
    Horizon,
    NextToken,
    PairSpec,
    SeriesSpec,
    Spec,
    Tags,
    Target,
    TextSpec,
    Tokens,
    Value,
)
from ..nn.graphs import NodeLinear, decode_links, global_pool, index_nodes, link_decoder
from ..nn.kv_cache import Cache
from ..nn.masks import attention_mask, last_token, normalize_padding_mask
from ..nn.recurrent import (
    VariableLengthRNN,
    pool_states,
    run_layers,
    run_packed,
    sequence_lengths,
    to_state_tuple,
    to_torch_state,
)
from .config import NODE_TARGETS, RecurrentConfig


class Dense(NamedTuple):
    """A layer of a fully connected network, given by the names of its modules."""

    linear: str
    gives: str  # the module whose output is the input of the next layer
    norm: str = ""  # the normalization between the linear map and the activation, if any
    activation: str = "identity"  # one of nn/activations.py

    @property
    def sums(self) -> str:
        """The name of the module whose output is the input of the activation."""
        return self.norm or self.linear


class TokenGrid(NamedTuple):
    """The layout of an image's tokens: row by row, after the first `before` tokens."""

    rows: int
    columns: int
    before: int = 0


class SeriesPatches(NamedTuple):
    """The time steps that each token of a series covers, with channels independent or mixed."""

    variables: int  # number of leading variables that are read independently; 1 if all are read together
    spans: list[tuple[int, int]]  # the first and the last step of each token
    seen: int | None = None  # steps of the input window, if further tokens for the forecast steps follow it


class BaseModel(nn.Module):
    """The base class of all models.

    `Model(config)` stores its `config`. `forward` takes plain tensors and returns the raw outputs of the head. A
    Config is a `ValidatedConfig` dataclass with `for_spec(preset, spec)`, which fits the preset to a data set.
    """

    takes: ClassVar[tuple[type[Spec], ...]]  # data specs that the model accepts
    targets: ClassVar[tuple[type[Target], ...]] = (Classes, Value)  # targets that the model can learn
    features: Callable[..., Tensor]  # same arguments as `forward`; returns the input of the head

    # Used by training.
    loss: ClassVar[str] = ""  # classification loss, if the paper uses another one than cross-entropy
    decayed: ClassVar[tuple[str, ...]] = (
        "*",
    )  # name patterns of the parameters with weight decay; only those with two or more dimensions
    auxiliary_weight: ClassVar[float] = 0.0  # weight of the loss of each auxiliary head, which is used in training only

    # Used for pretrained weights: the name of the child that is another network without its head, with that network's
    # Config as its `config`, and the class of that network, whose weights can be loaded too.
    built_on: ClassVar[tuple[str, type[BaseModel]] | None] = None

    # Default settings of the data.
    special_tokens: ClassVar[bool] = False  # add [CLS] before and [SEP] after each text
    joint_vocab: ClassVar[bool] = False  # one vocabulary for source and target
    edge_attr: ClassVar[bool] = False  # use the features of edges as well as those of nodes

    def output_frames(self, frames: Tensor) -> Tensor:
        """Return the number of output frames for recordings of `frames` frames, both of shape (n,); fewer if the model
        strides.
        """
        return frames

    # Used by attribution.
    def explained(self, outputs: Tensor) -> Tensor:
        """Return the outputs to explain, (N, …), with one number for each class or value.

        A model with outputs at every position of an image returns one number for each class.
        """
        return outputs

    # Used by views.
    block_passes: int = 1  # number of times that `forward` runs each of `blocks`
    over_frames: ClassVar[tuple[str, ...]] = ()  # name patterns of temporal attention in video models

    def dense_layers(self) -> list[Dense]:
        """Return the layers of a fully connected network, first to last; an empty list for other networks."""
        return []

    def token_grid(self, height: int, width: int) -> TokenGrid | None:
        """Return the layout of the tokens of an image, or of one frame of a video; None if there are none.

        If the network has `blocks`, these are the tokens that they return.
        """
        return None

    def series_patches(self) -> SeriesPatches | None:
        """Return the patches in which the network reads a series, with each variable a row of its batches; None if it
        has none.

        """
        return None

    def is_temporal_attention(self, name: str) -> bool:
        """Return whether the attention layer of that name is temporal: from frame to frame, at each position
        separately.

        """
        return any(fnmatch(name, pattern) for pattern in self.over_frames)

    def position_tables(self, num_positions: int) -> dict[str, Tensor]:
        """Return the position embeddings, (num_positions, dim) from the first position on, by the name of their table.

        Learned tables are returned whole; computed ones have `num_positions` rows.
        """
        embeddings = ((name, module) for name, module in self.named_modules() if isinstance(module, nn.Embedding))
        return {name: module.weight for name, module in embeddings if name.endswith("positions")}

    def position_slopes(self) -> Tensor | None:
        """Return ALiBi's slope of each head, (heads,), or None for a model without linear biases."""
        return None

    def initialize_from(self, images: Tensor) -> None:
        """Initialize data-dependent weights from training images (N, C, H, W), before the first step."""

    def constrain(self) -> None:
        """Project the weights onto their allowed range, after each optimizer step."""

    def adapt_state(self, tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Return the tensors of a file, by name, in this network's shapes, e.g. with position embeddings resized."""
        return tensors


class CausalLanguageModel(BaseModel):
    """The base class of causal language models: `extend`, which continues from a cache.

    A subclass has a `config` with `context_length` and `layers`, the layer `head`, and `hidden`. Right padding is never
    attended to, because attention is causal. Other padding is masked, and positions count real tokens only. Either way
    padding does not change the result.
    """

    takes: ClassVar[tuple[type[Spec], ...]] = (TextSpec,)
    targets: ClassVar[tuple[type[Target], ...]] = (NextToken, Classes, Value)

    config: Any
    head: nn.Module

    def hidden(self, tokens: Tensor, mask: Tensor | None = None, cache: Cache | None = None) -> Tensor:
        """Return the normalized output of the last block, (N, T, dim).

        `mask` (N, T) is True where a token is real. With a `cache` the tokens continue after its end. Raises ModelError
        if the context is exceeded.
        """
        raise NotImplementedError

    def extend(
        self, tokens: Tensor, mask: Tensor | None = None, cache: Cache | None = None, *, every: bool = False
    ) -> tuple[Tensor, Cache]:
        """Return the logits of the next token and the updated cache.

        Args:
            tokens: Token ids, shape (N, T). With a cache they continue after its end, else they are the beginning.
            mask: True where a token is real, shape (N, T); None if all are.
            cache: The keys and values of earlier tokens.
            every: Return logits after every token and not only after the last real one.

        Returns:
            Logits, shape (N, vocab_size), or (N, T, vocab_size) with `every`, and the cache.
        """
        mask = normalize_padding_mask(mask, tokens.shape)
        if cache is None:
            cache = Cache(self.config.layers, self.config.context_length)
        z = self.hidden(tokens, mask, cache)
        return self.head(z if every else last_token(z, mask)), cache


class EncoderDecoder(BaseModel):
    """A network that maps source ids (N, T) and the target so far (N, S) to next-token logits (N, S, vocab_size).

    A subclass has `decoder`, a list of blocks with `cross_attention`, and `head`; it implements `encode` and `decode`.
    The source mask (N, T) is True where a token is real; None means that all are. For a source without real tokens,
    cross-attention returns 0.
    """

    takes: ClassVar[tuple[type[Spec], ...]] = (PairSpec,)
    targets: ClassVar[tuple[type[Target], ...]] = (Tokens,)
    joint_vocab = True  # one vocabulary for source and target by default
    decoder: nn.ModuleList
    head: nn.Module

    def encode(self, source: Tensor, mask: Tensor | None) -> Tensor:
        """Return the encoder output (N, T, dim) of source ids (N, T); `mask` (N, 1, 1, T) is True where a token is
        real.

        """
        raise NotImplementedError

    def decode(self, target: Tensor, read: Tensor | None, mask: Tensor | None, cache: Cache | None = None) -> Tensor:
        """Return the input of the head for target ids (N, S), (N, S, dim).

        `read` (N, T, dim) is the encoder output of a source with that `mask` (N, 1, 1, T). With a `cache`, which holds
        the source, the ids continue after its end.
        """
        raise NotImplementedError

    def begin(self, source: Tensor, source_mask: Tensor | None = None) -> Cache:
        """Encode source ids (N, T) and return the state for `step`: the keys and values of every cross-attention.

        Raises ModelError for a source without a real token, because its answer would be made up.
        """
        source_mask = normalize_padding_mask(source_mask, source.shape)
        if not source.shape[1] or (source_mask is not None and not bool(source_mask.any(1).all())):
            raise InputShapeError("A source without a single token cannot be read: give at least one.")
        cache = Cache(len(self.decoder), cross_attends=True)
        cache.source_mask = attention_mask(source_mask, causal=False, length=source.shape[1])
        read = self.encode(source, cache.source_mask)  # (N, T, dim)
        for block, kept in zip(self.decoder, cache.cross_layers):
            look: Any = block.cross_attention
            look.project_qkv(read[:, :1], read, kept)  # it keeps the keys and values; the query is not used
        return cache

    def step(self, token: Tensor, state: Cache) -> tuple[Tensor, Cache]:
        """Return the logits of the next token, (N, vocab_size), and the state after `token` (N,)."""
        y = self.decode(token[:, None], None, state.source_mask, state)  # (N, 1, dim)
        return self.head(y[:, 0]), state


class RecurrentModel(BaseModel):
    """The base class of recurrent networks: token ids (N, T) or numbers (N, T, F) to outputs of sequences or steps.

    A subclass builds its layers in `build_layers`, and its `forward` runs them. The input of the head depends on the
    task:

        whole sequences   r = last, mean or max over the real steps of h_t, or all of them (flat); outputs W r + b
        every step        outputs W h_t + b: tags, and the next token of a language model
        forecasts         the next H steps of C variables, in one of three ways

            direct          all H · C numbers at once from r
            known future    a decoder, layers of the same kind, starts in the final states, reads the K variables that
                            are known in advance at each of the H forecast steps, and predicts C numbers there
            recursive       C numbers for the next step, which are fed back as the next input, and so on

    The mask (N, T) is True where a step is real, with padding on the right. "last" is the last state of each direction
    over real steps: for the backward direction the state after the first step.

    A forecaster reads x (N, T, F), of which the first C variables are forecast, and known future values (N, H, K); a
    recursive one has exactly the K known variables after the C. It reads the differences of each variable from its last
    value, and predicts such differences, because a level outside the training range misleads other models (A. Zeng,
    M. Chen, L. Zhang, Q. Xu, Are transformers effective for time series forecasting?, 2022, NLinear,
    <https://arxiv.org/abs/2205.13504>). With `relative=false` it reads and forecasts the values themselves.

    With `tie_weights` the embedding of a language model is also its output matrix (O. Press, L. Wolf, Using the output
    embedding to improve language models, 2016, <https://arxiv.org/abs/1608.05859>). The matrix is initialized uniformly
    between −0.1 and 0.1 (W. Zaremba, I. Sutskever, O. Vinyals, Recurrent neural network regularization, 2014,
    <https://arxiv.org/abs/1409.2329>), because PyTorch's normal initialization would give large logits. Everything else
    is initialized as in PyTorch.
    """

    takes = (TextSpec, SeriesSpec, AudioSpec)
    targets: ClassVar[tuple[type[Target], ...]] = (Classes, Value, Tags, NextToken, Horizon)
    config: RecurrentConfig
    embedding: nn.Embedding | None

    def __init__(self, config: RecurrentConfig) -> None:
        super().__init__()
        config.check()
        self.config = config
        self.embedding = nn.Embedding(config.vocab_size, config.input_dim) if config.vocab_size else None
        self.rnn = self.build_layers(config.input_dim, config.bidirectional)
        if config.known_future and not config.recursive:
            self.decoder = self.build_layers(config.known_future, bidirectional=False)
        self.drop = nn.Dropout(config.dropout)
        steps = config.steps if config.pooling == "flat" else 1
        outputs = config.columns if config.forecasts_step_by_step else config.num_classes
        self.head = nn.Linear(config.hidden_dim * self.directions * steps, outputs)
        if config.tie_weights and self.embedding is not None:
            nn.init.uniform_(self.embedding.weight, -0.1, 0.1)
            self.head.weight = self.embedding.weight

    @property
    def directions(self) -> int:
        """D, 2 for a bidirectional network, else 1."""
        return 1 + self.config.bidirectional

    def build_layers(self, inputs: int, bidirectional: bool) -> VariableLengthRNN:
        """Build the recurrent layers, batch first."""
        raise NotImplementedError

    def layer_settings(self, inputs: int, bidirectional: bool) -> dict[str, Any]:
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

    def textbook(self, x: Tensor) -> Tensor:
        """Compute `forward` by the equations, one step after another, without padding and without dropout."""
        raise NotImplementedError

    def embed(self, x: Tensor) -> Tensor:
        """Return the input of the first recurrent layer. Raises ModelError if x has another shape."""
        if self.embedding is not None:
            if x.ndim != 2 or x.is_floating_point():
                raise InputShapeError(
                    f"This network takes token ids, whole numbers of shape (N, T), and these are "
                    f"{str(x.dtype).removeprefix('torch.')} of shape {tuple(x.shape)}."
                )
            embedded: Tensor = self.embedding(x)
            return embedded  # (N, T, embedding_dim)
        if x.ndim != 3 or x.shape[2] != self.config.in_features:
            raise InputShapeError(
                f"This network takes sequences of shape (N, T, {self.config.in_features}), steps and the numbers at "
                f"each, and these are {tuple(x.shape)}: build one with other in_features."
            )
        return x

    def pool(self, states: Tensor, last: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Return the input of the head, given the states (N, T, D · hidden) and the last (layers · D, N, hidden)."""
        pooling = "last" if self.config.pooling == "auto" else self.config.pooling
        return pool_states(states, last, lengths, pooling, directions=self.directions, steps=self.config.steps)

    def advance(
        self, x: Tensor, mask: Tensor | None = None, state: tuple[Tensor, ...] | None = None
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Return the outputs at each step, (N, T, tokens), and the state after the last real step.

        Consecutive windows of a long text, with the state passed on, give the same outputs as the whole text. The state
        is h, and c for an LSTM, each (layers, N, hidden); None is a state of zeros. Raises ModelError for a network
        that is not a language model or tagger, or that is bidirectional.
        """
        config = self.config
        if config.pooling != "every" or config.bidirectional:
            pooling = "last" if config.pooling == "auto" else config.pooling
            raise ModelError(
                "Only a unidirectional network with an output at each step can continue from a state: this one has "
                f"pooling={pooling} and bidirectional={str(config.bidirectional).lower()}."
            )
        steps = self.embed(x)
        lengths = sequence_lengths(normalize_padding_mask(mask, steps.shape), steps.shape[1])
        if lengths is None:
            outputs, after = self.rnn(steps, to_torch_state(state))
            state = to_state_tuple(after)
        else:
            outputs, state = run_packed(self.rnn, steps, lengths, state)
        return self.head(self.drop(outputs)), state

    def forecast(self, x: Tensor, future: Tensor | None = None) -> Tensor:
        """Return the forecasts (N, H · C), step after step, from x (N, T, F) and known future values (N, H, K).

        Raises ModelError if shapes do not fit.
        """
        config = self.config
        if config.recursive:
            answers = self._recursive_forecast(x, future)[1]
        else:
            answers = self.head(self.drop(self.forecast_features(x, future))).flatten(1)  # (N, H · C)
        if config.relative is not False:
            answers = answers + x[:, -1, : config.columns].repeat(1, config.horizon)
        return answers

    def forecast_features(self, x: Tensor, future: Tensor | None = None) -> Tensor:
        """Return the input of the head of a forecaster: (N, H, hidden) for step-by-step forecasts, else r.

        Raises ModelError for inputs that the forecaster was not built for.
        """
        if self.config.recursive:
            return self._recursive_forecast(x, future)[0]
        if self.config.known_future:
            known = self._check_future(x, future)
            _, state = self.rnn(self._relative_steps(x))
            states: Tensor = self.decoder(known, state)[0]
            return states  # (N, H, hidden)
        if future is not None:
            raise InputShapeError(
                "This forecaster takes one argument, the observed steps, which are all real. It was built without "
                "variables that are known in advance."
            )
        return self.pool(*run_layers(self.rnn, self._relative_steps(x)))

    def _recursive_forecast(self, x: Tensor, future: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return states (N, H, hidden) and forecasts (N, H · C).

        The known values of a step are concatenated with the values of the step before it, so that its forecast can use
        them.
        """
        config = self.config
        values, ahead = self._relative_steps(x)[..., : config.columns], None
        inputs = values
        if config.known_future:
            ahead = torch.cat([x[:, 1:, config.columns :], self._check_future(x, future)], dim=1)  # (N, T + H − 1, K)
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

    def _check_future(self, x: Tensor, future: Tensor | None) -> Tensor:
        """Return the known future values. Raises ModelError if they are missing or have another shape."""
        expected = (x.shape[0], self.config.horizon, self.config.known_future)
        if future is None or future.shape != expected:
            found = "nothing" if future is None else str(tuple(future.shape))
            raise InputShapeError(
                f"This forecaster needs the known values of the steps to forecast, of shape {expected}, as its second "
                f"argument, and was given {found}."
            )
        return future


class GraphModel(BaseModel):
    """The base class of graph networks, which answer for nodes, for pairs of nodes, or for whole graphs.

    A subclass has a `config` with `in_features`, and a `head` for all answers that its last layer does not give. Its
    `forward` takes nodes x (V, F), edges `edge_index` (2, E), the nodes `rows` (n,) or pairs of nodes (n, 2) to answer
    for, all nodes by default, and with `config.graph_level` the graph of each node, `batch` (V,).
    """

    takes = (GraphSpec,)
    targets: ClassVar[tuple[type[Target], ...]] = NODE_TARGETS

    config: Any
    head: nn.Module

    @property
    def decodes_links(self) -> bool:
        """True if the head is a link decoder."""
        return getattr(self.config, "decoder", "none") != "none"

    def build_head(self, dim: int) -> None:
        """Build the head of a network whose last layer gives the logits of nodes.

        For whole graphs it is a linear layer, (n, dim) to (n, classes), for links a decoder. Nodes need none.
        """
        if self.config.graph_level:
            self.head = NodeLinear(dim, self.config.num_classes, dropout=self.config.dropout)
        elif self.decodes_links:
            self.head = link_decoder(self.config.decoder, dim)

    def read_out(self, h: Tensor, rows: Tensor | None, batch: Tensor | None) -> Tensor:
        """Return the nodes `rows` of h (V, F), or each graph, pooled: (n, F)."""
        return global_pool(h, batch, self.config.pooling) if self.config.graph_level else index_nodes(h, rows)

    def answer(self, h: Tensor, rows: Tensor | None, batch: Tensor | None) -> Tensor:
        """Return the outputs of a network with `build_head`, given the outputs h of its last layer.

        They are the logits of each graph, of pairs of nodes, or of the nodes `rows`, (n, classes). With a link decoder
        and without pairs they are the embeddings of the nodes.
        """
        if self.config.graph_level:
            logits: Tensor = self.head(global_pool(h, batch, self.config.pooling))
            return logits
        return decode_links(h, rows, self.head) if self.decodes_links else index_nodes(h, rows)


def validate_node_features(name: str, x: Tensor, in_features: int) -> None:
    """Raise ModelError if the nodes `x` do not have `in_features` features each, (V, in_features)."""
    if x.ndim != 2 or x.shape[1] != in_features:
        raise InputShapeError(
            f"This {name} takes nodes of {in_features} features, (V, {in_features}), and these are {tuple(x.shape)}: "
            "build one with other in_features."
        )


def parse_forward_args(
    src: Tensor, tgt: Tensor | None, src_mask: Tensor | None
) -> tuple[Tensor, Tensor | None, Tensor]:
    """Return the source, its mask and the target so far from the arguments of `forward`.

    Accepts both `model(src, tgt, src_mask)` and the order of a batch of pairs: source, mask or None, target. Token ids
    are integers, so a mask is recognized by its dtype. Raises ModelError without a target.
    """
    if tgt is None or tgt.dtype == torch.bool or tgt.is_floating_point():
        src_mask, tgt = tgt, src_mask
    if tgt is None:
        raise ModelError("The target so far is missing: call model(src, tgt), where tgt starts with the begin token.")
    return src, src_mask, tgt


def target_positions(target: Tensor, cache: Cache | None) -> tuple[Tensor, Tensor | None, bool]:
    """Return the positions (S,) of target ids (N, S), their attention mask or None, and whether attention is causal.

    With a `cache` the ids continue after its end.
    """
    if cache is None:
        return torch.arange(target.shape[1], device=target.device), None, True
    return cache.read(target)


def require_joint_vocab(name: str, spec: PairSpec) -> None:
    """Raise ModelError for data with separate vocabularies for source and target."""
    if not spec.joint_vocab:
        raise ModelError(
            f"{name} needs one vocabulary for source and target, and the two sides of this data are tokenized "
            "separately. Add tokenizer=bpe, which tokenizes both alike, and leave out joint_vocab=false."
        )


@runtime_checkable
class SupportsKVCache(Protocol):
    """A language model that continues from a KV cache."""

    def extend(
        self, tokens: Tensor, mask: Tensor | None = None, cache: Cache | None = None, *, every: bool = False
    ) -> tuple[Tensor, Cache]:
        """Return the logits after the last of `tokens` (N, T) and the updated cache.

        The logits have shape (N, vocab_size), or (N, T, vocab_size) with `every`, after each token.
        """


@runtime_checkable
class SupportsState(Protocol):
    """A network with a state that is carried from step to step, for truncated back-propagation through time."""

    def advance(
        self, x: Tensor, mask: Tensor | None = None, state: tuple[Tensor, ...] | None = None
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Return the outputs at each step of x (N, T), and the state after the last step."""


@runtime_checkable
class SupportsDecoding(Protocol):
    """An encoder–decoder, which generates a target token by token."""

    def begin(self, source: Tensor, source_mask: Tensor | None = None) -> Any:
        """Encode the source and return the state before the first token.

        The source is token ids (N, T) with a mask, or images (N, C, H, W). `forward` takes the source, its mask if it
        has one, and the target so far.
        """

    def step(self, token: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Return the logits after the token (N,), and the next state."""


@runtime_checkable
class SupportsImageGeneration(Protocol):
    """A network that generates images from noise."""

    def draw(self, noise: Tensor, **process: Any) -> Tensor:
        """Return images (N, C, H, W), from −1 to 1, generated from `noise` of that shape.

        `process` holds settings of the sampling process, for models that generate step by step.
        """


@runtime_checkable
class SupportsEncoding(Protocol):
    """A network that encodes an image as a low-dimensional code, each number with a normal distribution."""

    def encode(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the mean and the log variance of the codes of images (N, C, H, W), (N, d) each."""

    def decode(self, z: Tensor) -> Tensor:
        """Return the images (N, C, H, W) of codes (N, d), usually from −1 to 1."""


@runtime_checkable
class SupportsPatchSubset(Protocol):
    """An image network that can compute a subset of the patches only, for masked autoencoding."""

    def encode_patches(self, x: Tensor, kept: Tensor) -> Tensor:
        """Return the normalized output of the last block for a subset of the patches, (N, K, D).

        `x` are images (N, C, H, W), and `kept` (N, K) are indices of patches in the token grid. Tokens that precede the
        patches, e.g. [CLS], come first in the output.
        """


@runtime_checkable
class SupportsResidualBlocks(Protocol):
    """A network of residual blocks, which add their output to their input."""

    def reduced(self, fraction: float) -> Any:
        """Return a new network with that fraction of the blocks, narrow, for small RGB images of ten classes."""

    def residual_blocks(self) -> list[nn.Module]:
        """Return the blocks in execution order. Each adds to its output its input after its module `downsample`."""


@runtime_checkable
class SupportsDenseKernel(Protocol):
    """A convolution module with stride 1 and no padding that stores its kernel in its own form."""

    def dense_kernel(self) -> Tensor:
        """Return the kernel (O, C, *size), with zeros where there are no weights."""


@runtime_checkable
class SupportsAdditiveScores(Protocol):
    """Additive attention, with scores vᵀ tanh(q + k) and one query per call."""

    def compared(self, *args: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Return q (N, d), k (N, S, d), the values (N, S, d_v), the mask (N, S) and v (d,) from the arguments of
        `forward`.
        """


def as_base_model(model: nn.Module) -> BaseModel:
    """Return the model if it is a Network; for any other module return a Network with the defaults."""
    return model if isinstance(model, BaseModel) else BaseModel()


def validate_image_size(x: Tensor, least: int, name: str) -> None:
    """Raise ModelError if a side of the images (N, C, H, W) has fewer than `least` pixels: no feature map would be
    left.

    """
    height, width = x.shape[2:]
    if min(height, width) < least:
        raise InputShapeError(
            f"{name} needs images of at least {least}×{least} pixels, and these are {height}×{width}: "
            f"bring them to image_size={least} or more; `cutaway show` lists a model's settings for small images."
        )


def as_output_tuple(outputs: Tensor | tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Return a model's outputs as a tuple: (N, …) of the head, and in training those of auxiliary heads after it."""
    return outputs if isinstance(outputs, tuple) else (outputs,)
