"""The base class of all models, and protocols for optional capabilities.

A model file defines a `Config`, a network class under the name `Model`, `PRESETS` and a `CARD`. The registry discovers
the file by these names. The network is a `BaseModel`, whose attributes and methods have defaults.

A further capability is a protocol: a model has it if it has the protocol's methods. Training, generation and inspection
ask by `isinstance(model, SupportsKVCache)`, which compares names only, not signatures.
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
    """A layer of a fully connected network, given by the names of its modules, as `BaseModel.dense_layers` lists them.

    Names are those of `named_modules`, such as "layers.0".

    Attributes:
        linear: Name of the `nn.Linear`.
        gives: Name of the module whose output is the input of the next layer, or the outputs of the last one.
        norm: Name of the normalization between the linear map and the activation; "" for none.
        activation: Name of the activation, one of `cutaway.nn.activations.ACTIVATIONS`; "identity" for none.

    Example:
        >>> net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU())
        >>> Dense(linear="0", gives="2", norm="1", activation="relu").sums
        '1'
    """

    linear: str
    gives: str
    norm: str = ""
    activation: str = "identity"

    @property
    def sums(self) -> str:
        """Name of the module whose output is the input of the activation: `norm`, or `linear` without one."""
        return self.norm or self.linear


class TokenGrid(NamedTuple):
    """The layout of an image's tokens, as `BaseModel.token_grid` returns it: row by row from the top left.

    Attributes:
        rows: Rows of tokens.
        columns: Tokens in each row.
        before: Number of tokens before those of the image, such as 1 for a class token.

    Example:
        >>> grid = TokenGrid(rows=4, columns=4, before=1)
        >>> tokens = torch.randn(2, grid.before + grid.rows * grid.columns, 8)  # (N, T, dim)
        >>> tokens[:, grid.before :].unflatten(1, (grid.rows, grid.columns)).shape
        torch.Size([2, 4, 4, 8])
    """

    rows: int
    columns: int
    before: int = 0


class SeriesPatches(NamedTuple):
    """The time steps that each token of a series covers, as `BaseModel.series_patches` returns them.

    Attributes:
        variables: Number of leading variables that are read independently, each as a row of its own in the batch of the
            Transformer; 1 if all variables are read together.
        spans: The first and the last step of each token, both included, counted from 0.
        seen: Number of steps of the input window, if further tokens for the steps to forecast follow it; None if all
            tokens are of the input.

    Example:
        >>> SeriesPatches(variables=7, spans=[(first, first + 15) for first in range(0, 48, 16)]).spans
        [(0, 15), (16, 31), (32, 47)]
    """

    variables: int
    spans: list[tuple[int, int]]
    seen: int | None = None


class BaseModel(nn.Module):
    """The base class of all models.

    A subclass sets `takes`, and `targets` if they differ from the default. It implements `forward` and `features`. All
    other attributes and methods have defaults that fit most networks.

    The network of a preset is created by `Model(config)`, which stores its `config`. A Config is a frozen dataclass, a
    `ValidatedConfig` of `cutaway.models.config`. Its class method `for_spec(preset, spec)` returns the Config of a
    preset for the data: with their channels, vocabulary, classes and so on. For images, its property `least_size` is
    the smallest height and width, and `size_step` the number that both must be divisible by.

    The output layer is the child `head`, or else the last linear layer or convolution. It is replaced when weights are
    loaded for other classes. Auxiliary heads are children whose names begin with "aux".

    `forward` takes the tensors of a batch by position and returns the raw outputs of the head, without softmax. In
    training mode, a network with auxiliary heads returns a tuple with their outputs after those of the head.

        data               arguments of forward                                   outputs
        table              x (N, F)                                               (N, K)
        image              x (N, C, H, W)                                         (N, K), or (N, K, H, W) for masks
        text               tokens (N, T), mask (N, T)                             (N, K), or (N, T, K) at each token
        pairs              source (N, T), mask (N, T), target so far (N, S)       (N, S, K)
        series             x (N, T, F); forecasts also known_future (N, H, K')    (N, K), or (N, H · C)
        audio, video       x (N, T, …), mask (N, T)                               (N, K), or (N, T', K) for transcripts
        graph              x (V, F), edge_index (2, E), rows (n,), batch (V,),    (n, K)
                           with `edge_attr` also edge_attr (E, D)

    K is the number of classes, values or tokens. A mask is True where a step is real.

    `__init__` must not read values of tensors, because models are also built on PyTorch's meta device.

    Attributes:
        takes: Specifications of the data that the model accepts, classes of `cutaway.core.spec` such as `ImageSpec`.
        targets: Specifications of the targets that it can learn, classes of `cutaway.core.spec`. Default: a class or a
            number for each example.
        features: Method with the arguments of `forward` that returns the input of the head, (N, …).
        loss: Loss of a classifier if training sets none, such as "perceptron"; "" for cross-entropy.
        decayed: Patterns of the names of parameters with weight decay. Of these, only parameters with two or more
            dimensions decay. Default: all.
        auxiliary_weight: Weight of the loss of each auxiliary head in the gradient.
        built_on: Name of the child that is another network without its head, which has a `config` of that network, and
            the class of that network. Its pretrained weights can be loaded into the child. None for no such child.
        special_tokens: Whether data are prepared with [CLS] before and [SEP] after each text, if the setting
            `special_tokens` is left open.
        joint_vocab: Whether source and target share one vocabulary, if the setting `joint_vocab` is left open.
        edge_attr: Whether `forward` takes the features of edges. Data are prepared with them unless the setting
            `edge_attr` is false.
        block_passes: Number of times that `forward` runs each of the modules `blocks`, more than 1 if layers share
            their weights.
        over_frames: Patterns of the names of attention layers over the frames of a video.

    Example:
        >>> from cutaway.core.spec import TableSpec
        >>> class Network(BaseModel):
        ...     takes = (TableSpec,)
        ...     def __init__(self, features, classes):
        ...         super().__init__()
        ...         self.hidden, self.head = nn.Linear(features, 16), nn.Linear(16, classes)
        ...     def features(self, x):  # (N, F) to (N, 16)
        ...         return self.hidden(x).relu()
        ...     def forward(self, x):  # (N, F) to (N, K)
        ...         return self.head(self.features(x))
        ...     def dense_layers(self):  # for views
        ...         return [Dense("hidden", "hidden", activation="relu"), Dense("head", "head")]
        >>> Network(features=4, classes=3)(torch.randn(2, 4)).shape
        torch.Size([2, 3])
    """

    takes: ClassVar[tuple[type[Spec], ...]]
    targets: ClassVar[tuple[type[Target], ...]] = (Classes, Value)
    features: Callable[..., Tensor]

    # Used by training.
    loss: ClassVar[str] = ""
    decayed: ClassVar[tuple[str, ...]] = ("*",)
    auxiliary_weight: ClassVar[float] = 0.0

    # Used for pretrained weights.
    built_on: ClassVar[tuple[str, type[BaseModel]] | None] = None

    # Default settings of the data.
    special_tokens: ClassVar[bool] = False
    joint_vocab: ClassVar[bool] = False
    edge_attr: ClassVar[bool] = False

    def output_frames(self, frames: Tensor) -> Tensor:
        """Return the number of output frames of recordings.

        A network whose outputs have fewer frames than its inputs, because of strides, overrides it.

        Args:
            frames: Number of input frames of each recording, shape (n,), int64.

        Returns:
            Number of output frames of each, shape (n,), int64. Default: that of the input.
        """
        return frames

    # Used by attribution.
    def explained(self, outputs: Tensor) -> Tensor:
        """Return the outputs to explain, with one number for each class or value.

        A network with classes at each of a list of positions, such as a detector, overrides it.

        Args:
            outputs: What `forward` returns, without auxiliary heads, shape (N, …).

        Returns:
            The outputs to explain, shape (N, …, K). Default: `outputs` themselves.
        """
        return outputs

    # Used by views.
    block_passes: int = 1
    over_frames: ClassVar[tuple[str, ...]] = ()

    def dense_layers(self) -> list[Dense]:
        """Return the layers of a fully connected network, first to last; an empty list, the default, for others.

        A model with such layers is shown by the views of fully connected networks.
        """
        return []

    def token_grid(self, height: int, width: int) -> TokenGrid | None:
        """Return the layout of the tokens of an image, or of one frame of a video.

        If the network has `blocks`, these are the tokens that they return.

        Args:
            height: Height of the image in pixels.
            width: Width of the image in pixels.

        Returns:
            The layout, or None, the default, for a network without tokens.
        """
        return None

    def series_patches(self) -> SeriesPatches | None:
        """Return the steps that each token of a series covers; None, the default, for a network without such tokens."""
        return None

    def is_temporal_attention(self, name: str) -> bool:
        """Return whether an attention layer attends from frame to frame of a video, at each position separately.

        Args:
            name: Name of the layer, as in `named_modules`.

        Returns:
            Whether one of the patterns in `over_frames` matches the name.
        """
        return any(fnmatch(name, pattern) for pattern in self.over_frames)

    def position_tables(self, num_positions: int) -> dict[str, Tensor]:
        """Return the position embeddings by name, from the first position on.

        A network with computed positions, or with learned ones that are no `nn.Embedding`, overrides it.

        Args:
            num_positions: Number of positions of computed embeddings, such as sinusoids. Learned ones are returned
                whole.

        Returns:
            Tables, shape (positions, dim). Default: the weights of each `nn.Embedding` whose name ends with
            "positions", under the name of that module.
        """
        embeddings = ((name, module) for name, module in self.named_modules() if isinstance(module, nn.Embedding))
        return {name: module.weight for name, module in embeddings if name.endswith("positions")}

    def position_slopes(self) -> Tensor | None:
        """Return ALiBi's slope of each head, (heads,), or None, the default, for a model without linear biases."""
        return None

    def initialize_from(self, images: Tensor) -> None:
        """Initialize weights that depend on the data, before the first step of training.

        Training calls it once, without gradients, unless the model begins with pretrained weights. By default it does
        nothing.

        Args:
            images: Training images, preprocessed but not augmented, shape (N, C, H, W), up to 5,000.
        """

    def constrain(self) -> None:
        """Project the weights onto their allowed range, after each step of the optimizer. By default do nothing."""

    def adapt_state(self, tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Return the tensors of pretrained weights in this network's shapes, e.g. with position embeddings resized.

        Args:
            tensors: Tensors of the file, by their names in the state dict.

        Returns:
            The tensors to load, by the same names. Default: `tensors` themselves.
        """
        return tensors


class CausalLanguageModel(BaseModel):
    """The base class of causal language models with a key-value cache.

    A subclass implements `hidden`, `features` and `forward`, and gets `extend` from `hidden` and `head`. `forward` maps
    token ids (N, T) and an optional mask (N, T) to logits (N, T, vocab_size), or (N, K) for classes of texts.

    Right padding is never attended to, because attention is causal. Other padding must be masked, and positions count
    real tokens only (`cutaway.nn.kv_cache.position_ids_and_mask`), so that padding does not change the outputs.

    Attributes:
        config: The Config, with `layers`, the number of blocks, and `context_length`, the largest number of tokens.
        head: The output layer, from hidden states (…, dim) to logits.

    Example:
        >>> model = cutaway.create_model("gpt2", vocab_size=30, context_length=16, dim=8, heads=2, layers=1).eval()
        >>> isinstance(model, CausalLanguageModel)
        True
        >>> tokens = torch.tensor([[5, 6, 7, 8]])
        >>> _, cache = model.extend(tokens[:, :3])
        >>> logits, cache = model.extend(tokens[:, 3:], cache=cache)  # the fourth token only
        >>> torch.allclose(logits, model(tokens)[:, -1], atol=1e-5)
        True
    """

    takes: ClassVar[tuple[type[Spec], ...]] = (TextSpec,)
    targets: ClassVar[tuple[type[Target], ...]] = (NextToken, Classes, Value)

    config: Any
    head: nn.Module

    def hidden(self, tokens: Tensor, mask: Tensor | None = None, cache: Cache | None = None) -> Tensor:
        """Return the normalized output of the last block. Every subclass implements it.

        Args:
            tokens: Token ids, shape (N, T). With a cache they continue after its end.
            mask: True where a token is real, shape (N, T), bool; None if all are.
            cache: The keys and values of earlier tokens, to which those of `tokens` are added; None without earlier
                tokens. Block i uses `cache.layers[i]`.

        Returns:
            The input of the head at each token, shape (N, T, dim).

        Raises:
            InputShapeError: If the tokens and those of the cache exceed the context of the model.
            NotImplementedError: If the subclass does not implement it.
        """
        raise NotImplementedError

    def extend(
        self, tokens: Tensor, mask: Tensor | None = None, cache: Cache | None = None, *, every: bool = False
    ) -> tuple[Tensor, Cache]:
        """Return the logits of the next token and the updated cache.

        Args:
            tokens: Token ids, shape (N, T). With a cache they continue after its end, else they are the beginning.
            mask: True (or 1) where a token is real, shape (N, T); None if all are.
            cache: The keys and values of earlier tokens, from the call before; it is updated in place. None for a new
                text.
            every: Return logits after every token and not only after the last real one.

        Returns:
            Logits, shape (N, vocab_size), or (N, T, vocab_size) with `every`, and the cache.

        Raises:
            InputShapeError: If the context is exceeded, or if the mask does not fit the tokens.
        """
        mask = normalize_padding_mask(mask, tokens.shape)
        if cache is None:
            cache = Cache(self.config.layers, self.config.context_length)
        z = self.hidden(tokens, mask, cache)
        return self.head(z if every else last_token(z, mask)), cache


class EncoderDecoder(BaseModel):
    """The base class of encoder–decoders with attention, which generate a target token by token.

    A subclass implements `encode`, `decode`, `features` and `forward`, and gets `begin` and `step` from them. `forward`
    maps a source, its mask and the target so far, token ids (N, S) that start with the begin token, to the logits of
    the token after each of them, (N, S, vocab_size). A source is token ids (N, T), frames (N, T, F), or images (N, C,
    H, W), which have no mask.

    Attributes:
        decoder: The blocks of the decoder, each with a `cutaway.nn.attention.MultiHeadAttention` named
            `cross_attention`.
        head: The output layer, from hidden states (…, dim) to logits.

    Example:
        >>> model = cutaway.create_model("transformer-tiny", vocab_size=20, layers=1).eval()
        >>> isinstance(model, EncoderDecoder)
        True
        >>> source, target = torch.tensor([[5, 6, 7]]), torch.tensor([[2, 9]])
        >>> state = model.begin(source)
        >>> for token in target.unbind(1):
        ...     logits, state = model.step(token, state)
        >>> torch.allclose(logits, model(source, target)[:, -1], atol=1e-5)
        True
    """

    takes: ClassVar[tuple[type[Spec], ...]] = (PairSpec,)
    targets: ClassVar[tuple[type[Target], ...]] = (Tokens,)
    joint_vocab = True  # one vocabulary for source and target by default
    decoder: nn.ModuleList
    head: nn.Module

    def encode(self, source: Tensor, mask: Tensor | None) -> Tensor:
        """Return the output of the encoder. Every subclass implements it.

        Args:
            source: The source, such as token ids (N, T).
            mask: True where a position is real, shape (N, 1, 1, T), bool; None if all are.

        Returns:
            The encoder output, shape (N, T, dim), possibly with another number of positions than the source.

        Raises:
            NotImplementedError: If the subclass does not implement it.
        """
        raise NotImplementedError

    def decode(self, target: Tensor, read: Tensor | None, mask: Tensor | None, cache: Cache | None = None) -> Tensor:
        """Return the input of the head at each token of the target. Every subclass implements it.

        Args:
            target: Token ids of the target so far, shape (N, S). With a cache they continue after its end.
            read: The encoder output, shape (N, T, dim); None with a cache, which holds its keys and values.
            mask: True where a position of the source is real, shape (N, 1, 1, T), bool; None if all are.
            cache: State from `begin`, to which the keys and values of `target` are added: block i uses
                `cache.layers[i]` and `cache.cross_layers[i]`. None to compute everything, as in training.

        Returns:
            The input of the head, shape (N, S, dim).

        Raises:
            NotImplementedError: If the subclass does not implement it.
        """
        raise NotImplementedError

    def begin(self, source: Tensor, source_mask: Tensor | None = None) -> Cache:
        """Encode the source and return the state before the first token, for `step`.

        Args:
            source: The source, such as token ids (N, T).
            source_mask: True (or 1) where a position is real, shape (N, T); None if all are.

        Returns:
            The cache, with the keys and values of the source for each cross-attention.

        Raises:
            InputShapeError: If a source has no real position, or if the mask does not fit it.
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
        """Add a token to the target, and return the logits of the next one.

        Args:
            token: The last token of the target so far, shape (N,), int64; at first the begin token.
            state: The state before it, from `begin` or the step before. It is updated in place.

        Returns:
            Logits, shape (N, vocab_size), and the state after the token.
        """
        y = self.decode(token[:, None], None, state.source_mask, state)  # (N, 1, dim)
        return self.head(y[:, 0]), state


class RecurrentModel(BaseModel):
    """The base class of recurrent networks: token ids (N, T) or numbers (N, T, F) to outputs of sequences or steps.

    A subclass implements `build_layers`, `features`, `forward` and `textbook`. The input of the head depends on the
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

    Args:
        config: The Config, a `RecurrentConfig` of `cutaway.models.config` with the sizes and the pooling.

    Attributes:
        config: The Config.
        embedding: The embedding of token ids; None for a network that reads numbers.
        rnn: The recurrent layers, from `build_layers`.
        decoder: The layers that read known future values; only in a forecaster that has them and is not recursive.
        drop: Dropout before the head.
        head: The output layer, an `nn.Linear`.

    Raises:
        ConfigError: If settings contradict each other.

    Example:
        >>> model = cutaway.create_model("lstm", vocab_size=20, num_classes=3, hidden_dim=8)
        >>> isinstance(model, RecurrentModel)
        True
        >>> tokens = torch.tensor([[5, 6, 7], [8, 9, 0]])
        >>> mask = torch.tensor([[True, True, True], [True, True, False]])
        >>> model(tokens, mask).shape, model.features(tokens, mask).shape
        (torch.Size([2, 3]), torch.Size([2, 8]))
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
        """D, the number of directions: 2 for a bidirectional network, else 1."""
        return 1 + self.config.bidirectional

    def build_layers(self, inputs: int, bidirectional: bool) -> VariableLengthRNN:
        """Build the recurrent layers. Every subclass implements it, usually with `layer_settings`.

        Args:
            inputs: Features of the inputs at each step.
            bidirectional: Whether the layers also read backwards.

        Returns:
            The layers, with `batch_first=True`.

        Raises:
            NotImplementedError: If the subclass does not implement it.
        """
        raise NotImplementedError

    def layer_settings(self, inputs: int, bidirectional: bool) -> dict[str, Any]:
        """Return the keyword arguments of PyTorch's recurrent layers that follow from the config.

        Args:
            inputs: Features of the inputs at each step.
            bidirectional: Whether the layers also read backwards.

        Returns:
            Arguments by name, as in `LSTM(**self.layer_settings(inputs, bidirectional))`.
        """
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
        """Compute `forward` by the equations, one step after another, without dropout. Every subclass implements it.

        `cutaway verify` and the tests compare it with `forward`. It does not compute forecasts.

        Args:
            x: Token ids, shape (N, T), or numbers, shape (N, T, F), without padding.

        Returns:
            The outputs of the head, (N, K), or (N, T, K) with an output at each step.

        Raises:
            NotImplementedError: If the subclass does not implement it.
        """
        raise NotImplementedError

    def embed(self, x: Tensor) -> Tensor:
        """Return the input of the first recurrent layer.

        Args:
            x: Token ids, shape (N, T), or numbers, shape (N, T, in_features).

        Returns:
            The embeddings of the token ids, shape (N, T, embedding_dim), or `x` itself, if the network reads numbers.

        Raises:
            InputShapeError: If `x` has another shape, or if token ids are no integers.
        """
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
        """Return the input of the head for whole sequences or for every step, by the setting `pooling`.

        Args:
            states: States of the last layer at each step, shape (N, T, D · hidden), 0 beyond the lengths.
            last: Last h of each layer and direction, shape (layers · D, N, hidden).
            lengths: Number of real steps of each sequence, shape (N,); None if all steps are real.

        Returns:
            The pooled states, (N, D · hidden), (N, T · D · hidden) for pooling=flat, or (N, T, D · hidden) for
            pooling=every.

        Raises:
            InputShapeError: If pooling=flat gets padded sequences, or another number of steps.
        """
        pooling = "last" if self.config.pooling == "auto" else self.config.pooling
        return pool_states(states, last, lengths, pooling, directions=self.directions, steps=self.config.steps)

    def advance(
        self, x: Tensor, mask: Tensor | None = None, state: tuple[Tensor, ...] | None = None
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Continue from a state: return the outputs at each step, and the state after the last real step.

        Consecutive windows of a long text, with the state passed on, give the same outputs as the whole text.

        Args:
            x: The next steps, token ids (N, T) or numbers (N, T, F).
            mask: True where a step is real, shape (N, T), with padding on the right; None if all are.
            state: The state from the call before: h, and c for an LSTM, each (layers, N, hidden). None for zeros.

        Returns:
            Outputs, shape (N, T, K), and the state, in the same form.

        Raises:
            ModelError: If the network is bidirectional, or does not have an output at each step.
            InputShapeError: If `x` or the mask has another shape, or if padding is not on the right.
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
        """Forecast the next H steps of C variables.

        Args:
            x: Observed steps, shape (N, T, F), all real. The first C variables are forecast.
            future: Known values of the steps to forecast, shape (N, H, K); None for a network without `known_future`.

        Returns:
            Forecasts, shape (N, H · C): the C variables of the first step, then those of the second, and so on.

        Raises:
            InputShapeError: If `x` or `future` has another shape, or if `future` is missing or not expected.
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
        """Return the input of the head of a forecaster.

        Args:
            x: Observed steps, shape (N, T, F), all real.
            future: Known values of the steps to forecast, shape (N, H, K); None for a network without `known_future`.

        Returns:
            The states of the H steps, shape (N, H, hidden), for forecasts step by step; else the pooled states r, as
            from `pool`.

        Raises:
            InputShapeError: If `x` or `future` has another shape, or if `future` is missing or not expected.
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

        Without `relative`, x is returned unchanged. Raises InputShapeError if x has another shape.
        """
        steps = self.embed(x)
        if self.config.relative is False:
            return steps
        own = self.config.in_features - self.config.known_future
        return torch.cat([steps[..., :own] - steps[:, -1:, :own], steps[..., own:]], dim=2)

    def _check_future(self, x: Tensor, future: Tensor | None) -> Tensor:
        """Return the known future values. Raises InputShapeError if they are missing or have another shape."""
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

    A subclass implements `features` and `forward`. Both take nodes x (V, F), edges `edge_index` (2, E) from sources to
    targets, the nodes `rows` (n,) or pairs of nodes (n, 2) to answer for, all nodes by default, and with
    `config.graph_level` the graph of each node, `batch` (V,). A subclass with `edge_attr = True` takes the features of
    edges (E, D) after these.

    `features` usually ends with `read_out`. In some networks, such as GCN, the last layer gives the logits of nodes
    without a head: their `__init__` calls `build_head` for graphs and links, and their `forward` ends with `answer`.

    Attributes:
        config: The Config, with `in_features` F and `graph_level`; networks with `build_head` also need `num_classes`,
            `dropout`, `pooling` and, for links, `decoder`.
        head: The output layer for all answers that the last layer does not give.

    Example:
        >>> model = cutaway.create_model("gcn", in_features=4, hidden_dim=8, num_classes=3)
        >>> isinstance(model, GraphModel)
        True
        >>> x, edge_index = torch.randn(5, 4), torch.tensor([[0, 1, 2, 3], [1, 2, 3, 4]])
        >>> model(x, edge_index).shape, model(x, edge_index, rows=torch.tensor([0, 4])).shape
        (torch.Size([5, 3]), torch.Size([2, 3]))
    """

    takes = (GraphSpec,)
    targets: ClassVar[tuple[type[Target], ...]] = NODE_TARGETS

    config: Any
    head: nn.Module

    @property
    def decodes_links(self) -> bool:
        """True if the head is a link decoder: the config has a `decoder` other than "none"."""
        return getattr(self.config, "decoder", "none") != "none"

    def build_head(self, dim: int) -> None:
        """Build the head of a network whose last layer gives the logits of nodes.

        For whole graphs it is a linear layer, (n, dim) to (n, num_classes), for links a decoder, (n, 2, dim) to (n, 1).
        For nodes it builds none.

        Args:
            dim: Features of each node that the head reads.
        """
        if self.config.graph_level:
            self.head = NodeLinear(dim, self.config.num_classes, dropout=self.config.dropout)
        elif self.decodes_links:
            self.head = link_decoder(self.config.decoder, dim)

    def read_out(self, h: Tensor, rows: Tensor | None, batch: Tensor | None) -> Tensor:
        """Return the features of the nodes, pairs or graphs to answer for.

        Args:
            h: Features of all nodes, shape (V, F).
            rows: Nodes (n,) or pairs of nodes (n, 2); None for all nodes. Not used for whole graphs.
            batch: Graph of each node, shape (V,), with `config.graph_level`; None if all nodes are of one graph.

        Returns:
            Features, shape (n, F) of nodes or pooled graphs, or (n, 2, F) of pairs of nodes.
        """
        return global_pool(h, batch, self.config.pooling) if self.config.graph_level else index_nodes(h, rows)

    def answer(self, h: Tensor, rows: Tensor | None, batch: Tensor | None) -> Tensor:
        """Return the outputs of a network with `build_head`.

        Args:
            h: Outputs of its last layer, shape (V, F).
            rows: Nodes (n,) or pairs of nodes (n, 2); None for all nodes. Not used for whole graphs.
            batch: Graph of each node, shape (V,), with `config.graph_level`; None if all nodes are of one graph.

        Returns:
            Logits of each graph or of the nodes, shape (n, num_classes). With a link decoder the logits of pairs, (n,
            1), or without pairs the embeddings of the nodes, (n, F).
        """
        if self.config.graph_level:
            logits: Tensor = self.head(global_pool(h, batch, self.config.pooling))
            return logits
        return decode_links(h, rows, self.head) if self.decodes_links else index_nodes(h, rows)


def validate_node_features(name: str, x: Tensor, in_features: int) -> None:
    """Check that nodes have the shape (V, in_features).

    Args:
        name: Name of the model, for the message.
        x: The nodes.
        in_features: Number of features that the model was built for.

    Raises:
        InputShapeError: If `x` has another shape.

    Example:
        >>> validate_node_features("gcn", torch.zeros(5, 4), in_features=4)
        >>> validate_node_features("gcn", torch.zeros(5, 3), in_features=4)
        Traceback (most recent call last):
        cutaway.core.errors.InputShapeError: This gcn takes nodes of 4 features, (V, 4), and these are (5, 3): ...
    """
    if x.ndim != 2 or x.shape[1] != in_features:
        raise InputShapeError(
            f"This {name} takes nodes of {in_features} features, (V, {in_features}), and these are {tuple(x.shape)}: "
            "build one with other in_features."
        )


def parse_forward_args(
    src: Tensor, tgt: Tensor | None, src_mask: Tensor | None
) -> tuple[Tensor, Tensor | None, Tensor]:
    """Return the source, its mask and the target so far from the arguments of `forward`, in either order.

    It accepts `model(src, tgt, src_mask)` and the order of a batch of pairs: source, mask or None, target. A mask is
    recognized by its type, bool or floating point.

    Args:
        src: The source, such as token ids (N, T).
        tgt: The target so far, token ids (N, S), or the mask.
        src_mask: The mask of the source, shape (N, T), bool or floating point, or the target so far. None for no mask.

    Returns:
        The source, its mask or None, and the target so far.

    Raises:
        ModelError: If neither is a target.

    Example:
        >>> src, mask, tgt = torch.tensor([[5, 6, 0]]), torch.tensor([[True, True, False]]), torch.tensor([[2]])
        >>> [part.shape for part in parse_forward_args(src, mask, tgt)]  # source, mask, target
        [torch.Size([1, 3]), torch.Size([1, 3]), torch.Size([1, 1])]
        >>> parse_forward_args(src, tgt, mask)[1] is mask
        True
    """
    if tgt is None or tgt.dtype == torch.bool or tgt.is_floating_point():
        src_mask, tgt = tgt, src_mask
    if tgt is None:
        raise ModelError("The target so far is missing: call model(src, tgt), where tgt starts with the begin token.")
    return src, src_mask, tgt


def target_positions(target: Tensor, cache: Cache | None) -> tuple[Tensor, Tensor | None, bool]:
    """Return the positions of a decoder's tokens, and what they may attend to.

    Args:
        target: Token ids of the target so far, shape (N, S), without padding before a token.
        cache: The keys and values of earlier tokens, after which the ids continue: the new tokens are counted in it.
            None if there are none.

    Returns:
        The positions, shape (S,); the mask of self-attention, (1, 1, S, keys), or None for no mask; and whether causal
        attention must be applied in addition.

    Example:
        >>> positions, mask, causal = target_positions(torch.tensor([[2, 9, 7]]), None)
        >>> positions, mask, causal
        (tensor([0, 1, 2]), None, True)
        >>> cache = Cache(layers=1)
        >>> target_positions(torch.tensor([[2]]), cache)[0], target_positions(torch.tensor([[9]]), cache)[0]
        (tensor([0]), tensor([1]))
    """
    if cache is None:
        return torch.arange(target.shape[1], device=target.device), None, True
    return cache.read(target)


def require_joint_vocab(name: str, spec: PairSpec) -> None:
    """Check that source and target share one vocabulary, for a model with a single embedding.

    Args:
        name: Name of the model, for the message.
        spec: Specification of the data.

    Raises:
        ModelError: If source and target have separate vocabularies.

    Example:
        >>> spec = PairSpec(30, 8, Tokens(30, begin=2, end=3, longest=9), joint_vocab=True)
        >>> require_joint_vocab("t5", spec)
    """
    if not spec.joint_vocab:
        raise ModelError(
            f"{name} needs one vocabulary for source and target, and the two sides of this data are tokenized "
            "separately. Add tokenizer=bpe, which tokenizes both alike, and leave out joint_vocab=false."
        )


@runtime_checkable
class SupportsKVCache(Protocol):
    """A language model that continues from a key-value cache, so that each token is processed once in generation.

    Example:
        >>> gpt2 = cutaway.create_model("gpt2", vocab_size=30, context_length=16, dim=8, heads=2, layers=1)
        >>> isinstance(gpt2, SupportsKVCache), isinstance(nn.Linear(2, 2), SupportsKVCache)
        (True, False)
        >>> logits, cache = gpt2.extend(torch.tensor([[5, 6, 7]]))
        >>> logits.shape, gpt2.extend(torch.tensor([[8]]), cache=cache)[0].shape
        (torch.Size([1, 30]), torch.Size([1, 30]))
    """

    def extend(
        self, tokens: Tensor, mask: Tensor | None = None, cache: Cache | None = None, *, every: bool = False
    ) -> tuple[Tensor, Cache]:
        """Return the logits of the next token and the updated cache.

        Args:
            tokens: Token ids, shape (N, T). With a cache they continue after its end, else they are the beginning.
            mask: True where a token is real, shape (N, T); None if all are.
            cache: The keys and values of earlier tokens, from the call before; None for a new text.
            every: Return logits after every token and not only after the last real one.

        Returns:
            Logits, shape (N, vocab_size), or (N, T, vocab_size) with `every`, and the cache for the next call.
        """


@runtime_checkable
class SupportsState(Protocol):
    """A network with a state that is carried from step to step.

    Generation carries the state from token to token, and training from batch to batch (truncated back-propagation
    through time).

    Example:
        >>> lstm = cutaway.create_model("lstm", vocab_size=30, num_classes=30, pooling="every", hidden_dim=8)
        >>> isinstance(lstm, SupportsState)
        True
        >>> outputs, state = lstm.advance(torch.tensor([[5, 6, 7]]))
        >>> outputs.shape, [part.shape for part in state]  # h and c
        (torch.Size([1, 3, 30]), [torch.Size([1, 1, 8]), torch.Size([1, 1, 8])])
    """

    def advance(
        self, x: Tensor, mask: Tensor | None = None, state: tuple[Tensor, ...] | None = None
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Continue from a state: return the outputs at each step, and the state after the last real step.

        Args:
            x: Token ids of the next steps, shape (N, T).
            mask: True where a step is real, shape (N, T), with padding on the right; None if all are.
            state: The state from the call before; None for the initial state.

        Returns:
            Outputs, shape (N, T, vocab_size), and the state: tensors with the N sequences in their second axis.
        """


@runtime_checkable
class SupportsDecoding(Protocol):
    """A network that generates a target token by token from a source: text, speech or an image.

    `forward` takes the source, its mask if it has one, and the target so far, (N, S), and returns logits (N, S,
    vocab_size). `begin` and `step` compute the same without processing any token twice.

    Example:
        >>> model = cutaway.create_model("seq2seq-gru", vocab_size=20, target_vocab_size=20).eval()
        >>> isinstance(model, SupportsDecoding)
        True
        >>> state, token = model.begin(torch.tensor([[5, 6, 7]])), torch.tensor([2])  # 2 begins a target
        >>> for _ in range(3):
        ...     logits, state = model.step(token, state)
        ...     token = logits.argmax(1)
        >>> logits.shape
        torch.Size([1, 20])
    """

    def begin(self, source: Tensor, source_mask: Tensor | None = None) -> Any:
        """Encode the source and return the state before the first token.

        Args:
            source: The source: token ids (N, T), frames of speech (N, T, F), or images (N, C, H, W).
            source_mask: True where a position of the source is real, shape (N, T); None if all are, and for images.

        Returns:
            The state: a `Cache`, or a tensor or tuple of tensors with N rows.
        """

    def step(self, token: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Add a token to the target, and return the logits of the next one.

        Args:
            token: The last token of the target so far, shape (N,), int64; at first the begin token.
            state: The state before it. It may be updated in place.

        Returns:
            Logits, shape (N, vocab_size), and the state after the token.
        """


@runtime_checkable
class SupportsImageGeneration(Protocol):
    """A network that generates images from noise.

    Example:
        >>> vae = cutaway.create_model("vae", in_channels=1, sides=(8, 8), latent_dim=2, hidden_dim=16)
        >>> isinstance(vae, SupportsImageGeneration)
        True
        >>> vae.draw(torch.randn(3, 1, 8, 8)).shape
        torch.Size([3, 1, 8, 8])
    """

    def draw(self, noise: Tensor, **process: Any) -> Tensor:
        """Generate images.

        Args:
            noise: Standard normal numbers, of the shape of the images, (N, C, H, W).
            **process: Settings of the sampling process, such as `steps`, for models with the target `Noise`, which
                generate step by step. Others get none.

        Returns:
            Images, shape (N, C, H, W), with values from −1 (black) to 1.
        """


@runtime_checkable
class SupportsEncoding(Protocol):
    """A network that encodes an image as a low-dimensional code, each number with a normal distribution.

    Example:
        >>> vae = cutaway.create_model("vae", in_channels=1, sides=(8, 8), latent_dim=2, hidden_dim=16)
        >>> isinstance(vae, SupportsEncoding)
        True
        >>> mean, log_variance = vae.encode(torch.zeros(3, 1, 8, 8))
        >>> mean.shape, vae.decode(mean).shape
        (torch.Size([3, 2]), torch.Size([3, 1, 8, 8]))
    """

    def encode(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the distribution of the codes of images.

        Args:
            x: Images, shape (N, C, H, W).

        Returns:
            The mean and the natural logarithm of the variance of each number of the codes, shape (N, d) each.
        """

    def decode(self, z: Tensor) -> Tensor:
        """Return the images of codes.

        Args:
            z: Codes, shape (N, d).

        Returns:
            Images, shape (N, C, H, W), usually from −1 to 1.
        """


@runtime_checkable
class SupportsPatchSubset(Protocol):
    """An image network that can compute a subset of the patches only, for masked autoencoding (`objective=mae`).

    It must also return its patches as a `token_grid`, and have an `nn.Linear` as `head`.

    Example:
        >>> vit = cutaway.create_model("vit-tiny/16", image_size=32, patch_size=8, dim=16, heads=2, layers=1)
        >>> isinstance(vit, SupportsPatchSubset)
        True
        >>> kept = torch.tensor([[0, 5, 10]])  # 3 of the 4 · 4 patches
        >>> vit.encode_patches(torch.randn(1, 3, 32, 32), kept).shape  # after the class token
        torch.Size([1, 4, 16])
    """

    def encode_patches(self, x: Tensor, kept: Tensor) -> Tensor:
        """Return the normalized output of the last block for a subset of the patches.

        Args:
            x: Images, shape (N, C, H, W).
            kept: Indices of K patches of each image in the token grid, row by row, shape (N, K), int64.

        Returns:
            The tokens before the patches, such as a class token, and the K patches in the order of `kept`, shape (N,
            before + K, dim).
        """


@runtime_checkable
class SupportsResidualBlocks(Protocol):
    """A network of residual blocks, which add their output to their input, for the view of gradients.

    Example:
        >>> resnet = cutaway.create_model("resnet20")
        >>> isinstance(resnet, SupportsResidualBlocks)
        True
        >>> len(resnet.residual_blocks()), len(resnet.reduced(0.34).residual_blocks())
        (9, 3)
    """

    def reduced(self, fraction: float) -> Any:
        """Return a new, narrow network of the same blocks, with shortcuts, for small RGB images of ten classes.

        Args:
            fraction: Number of blocks in the new network, as a fraction of those in this one, above 0 and at most 1.

        Returns:
            The network, which supports this protocol too.
        """

    def residual_blocks(self) -> list[nn.Module]:
        """Return the blocks in execution order. Each adds its input, passed through its module `downsample`."""


@runtime_checkable
class SupportsDenseKernel(Protocol):
    """A convolution with stride 1 and no padding that stores its kernel in its own form, for the views of kernels.

    It is a module with these weights, not necessarily an `nn.Conv2d`. A `bias` (O,) is optional.

    Example:
        >>> lenet5 = cutaway.create_model("lenet5")
        >>> [name for name, module in lenet5.named_modules() if isinstance(module, SupportsDenseKernel)]
        ['c3']
        >>> lenet5.c3.dense_kernel().shape  # each map reads only some of the 6 maps before it
        torch.Size([16, 6, 5, 5])
    """

    def dense_kernel(self) -> Tensor:
        """Return the kernel, (O, C, *size) for O output and C input channels, with zeros where there are no weights."""


@runtime_checkable
class SupportsAdditiveScores(Protocol):
    """Additive attention, with scores vᵀ tanh(q + k) and one query per call, for the view of attention.

    `forward` returns the context (N, d_v) and the weights (N, S).

    Example:
        >>> model = cutaway.create_model("seq2seq-gru", vocab_size=20, target_vocab_size=20)
        >>> [name for name, module in model.named_modules() if isinstance(module, SupportsAdditiveScores)]
        ['attention']
    """

    def compared(self, *args: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Return what the scores of a call are computed from.

        Args:
            *args: The arguments of `forward`.

        Returns:
            The query q (N, d), the keys k (N, S, d), the values (N, S, d_v), the mask (N, S), True where a position is
            real, and v (d,).
        """


def as_base_model(model: nn.Module) -> BaseModel:
    """Return the model if it is a `BaseModel`; for any other module return a `BaseModel` with the defaults."""
    return model if isinstance(model, BaseModel) else BaseModel()


def validate_image_size(x: Tensor, least: int, name: str) -> None:
    """Check that images are large enough for a network that reduces them.

    Args:
        x: Images, shape (N, C, H, W).
        least: Smallest height and width in pixels, usually `config.least_size`.
        name: Name of the model, for the message.

    Raises:
        InputShapeError: If the height or the width is smaller.

    Example:
        >>> validate_image_size(torch.zeros(1, 3, 8, 8), least=8, name="simplecnn")
        >>> validate_image_size(torch.zeros(1, 3, 8, 7), least=8, name="simplecnn")
        Traceback (most recent call last):
        cutaway.core.errors.InputShapeError: simplecnn needs images of at least 8×8 pixels, and these are 8×7: ...
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
