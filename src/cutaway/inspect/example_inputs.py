"""Random example inputs of a model without a data set, and the tensors in a module's output."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence

from ..core.errors import ModelError
from ..core.spec import (
    OF_TOKENS,
    AudioSpec,
    GraphSpec,
    ImageSpec,
    ImageTokens,
    PairSpec,
    SeriesSpec,
    Spec,
    Spelled,
    TextSpec,
    Tokens,
    VideoSpec,
)
from ..models.registry import Preset
from ..nn.recurrent import to_state_tuple
from .gates import sequence_lengths_argument

CAPTION = 8  # tokens of a partial caption or transcript
NODES = 100  # nodes of a graph of unspecified size: a ring, each node with two neighbors
Device = torch.device | str


def example_shape(preset: Preset, config: Any) -> tuple[int, ...]:
    """Return the shape of one example, without the batch.

    It is the shape for which the published counts are given, with the channels, image size or number of features of
    `config`. Raises ModelError if neither specifies it.
    """
    at, kind = preset.card.published.at, input_modality(preset, config)
    if kind in OF_TOKENS:
        length = at[0] if at else 32
        return (min(length, getattr(config, "context_length", None) or length),)
    if kind == "graph":
        return (at[0] if at else NODES, config.in_features)
    if kind == "video":
        side = getattr(config, "image_size", None)
        frames = getattr(config, "frames", None) or (at[0] if at else 16)
        return (frames, config.in_channels, *((side, side) if side else at[2:] or (64, 64)))
    if hasattr(config, "in_features"):
        steps = int(getattr(config, "steps", 0) or (at[0] if len(at) == 2 else 32))
        return (config.in_features,) if kind == "table" else (steps, config.in_features)
    channels = getattr(config, "in_channels", at[0] if at else None)
    side = getattr(config, "image_size", None)
    size = getattr(config, "sides", None) or ((side, side) if side else at[1:])
    if channels is None or not size:
        raise ModelError(f"{preset.name} has no fixed input size: set input=SHAPE, e.g. input=3x64x64.")
    return (channels, *size)


def input_modality(preset: Preset, config: Any) -> str:
    """Return the kind of data for a model with this `config`, where its family supports several.

    It is text with a vocabulary, else the first that is not text.
    """
    kinds = preset.takes
    if "text" in kinds and not getattr(config, "vocab_size", 0):
        kinds = tuple(kind for kind in kinds if kind != "text") or kinds
    return kinds[0]


def example_inputs(
    preset: Preset,
    config: Any,
    shape: tuple[int, ...] | None = None,
    count: int = 1,
    device: Device = "cpu",
    generator: torch.Generator | None = None,
) -> tuple[Tensor, ...]:
    """Return the arguments of `forward` for `count` random examples of `shape`, or of the default shape.

    On the meta device they have no values. A graph is a single input, whose nodes are the examples.
    """
    kind = input_modality(preset, config)
    shape = shape or example_shape(preset, config)
    draw = _Drawing(count, device, generator)
    if kind == "text":
        return draw.tokens(shape[0], config.vocab_size)
    if kind == "seq2seq":
        answers = getattr(config, "target_vocab_size", None) or config.vocab_size
        return (*draw.tokens(shape[0], config.vocab_size), draw.tokens(shape[0], answers)[0])
    if kind == "image" and ImageTokens in preset.targets:
        return draw.tokens(getattr(config, "caption", 0) + math.prod(shape[1:]), config.vocab_size)[:1]
    if kind == "image" and Tokens in preset.targets:
        return draw.numbers(shape), draw.tokens(CAPTION, config.target_vocab_size)[0]
    if kind == "audio" and Spelled in preset.targets:
        return *draw.masked(kind, shape), draw.tokens(CAPTION, config.target_vocab_size)[0]
    if kind == "series" and getattr(config, "known_future", False):
        return draw.numbers(shape), draw.numbers((config.horizon, config.known_future))
    return draw.graph(shape, getattr(config, "edge_features", 0)) if kind == "graph" else draw.masked(kind, shape)


def inputs_like(spec: Spec, device: Device = "cpu", generator: torch.Generator | None = None) -> tuple[Tensor, ...]:
    """Return the arguments of `forward` for one random example of that specification."""
    draw = _Drawing(1, device, generator)
    if isinstance(spec, TextSpec):
        return draw.tokens(spec.longest, spec.vocab_size)
    if isinstance(spec, PairSpec):
        return (*draw.tokens(spec.longest, spec.vocab_size), draw.tokens(spec.longest, spec.target.vocab_size)[0])
    if isinstance(spec, ImageSpec) and isinstance(spec.target, ImageTokens):
        return draw.tokens(spec.target.caption + spec.height * spec.width, spec.target.vocab_size)[:1]
    if isinstance(spec.target, Tokens):  # of images
        return draw.numbers(spec.shape), draw.tokens(spec.target.longest, spec.target.vocab_size)[0]
    if isinstance(spec.target, Spelled):
        return *draw.masked(spec.kind, spec.shape), draw.tokens(spec.target.longest, spec.target.outputs)[0]
    if isinstance(spec, SeriesSpec) and spec.known_future:
        return draw.numbers(spec.shape), draw.numbers((getattr(spec.target, "steps", 1), spec.known_future))
    if isinstance(spec, GraphSpec):
        return draw.graph((NODES, spec.features), spec.edge_features)
    return draw.masked(spec.kind, spec.shape)


def inputs_for(model: nn.Module, spec: Spec, generator: torch.Generator | None = None) -> tuple[Tensor, ...]:
    """Return random arguments of the model's `forward` for that specification, on its device and in its precision."""
    one = next(model.parameters())
    inputs = (x.to(one.device) for x in inputs_like(spec, generator=generator))
    return tuple(x.to(one.dtype) if x.is_floating_point() else x for x in inputs)


MASKED = (AudioSpec.kind, VideoSpec.kind)  # kinds of data with a mask


class _Drawing:
    """Random inputs for a number of examples."""

    def __init__(self, count: int, device: Device, generator: torch.Generator | None) -> None:
        self.count, self.device, self.generator = count, torch.device(device), generator

    def numbers(self, shape: tuple[int, ...]) -> Tensor:
        return torch.randn(self.count, *shape, generator=self.generator, device=self.device)

    def masked(self, kind: str, shape: tuple[int, ...]) -> tuple[Tensor, ...]:
        mask = torch.ones(self.count, shape[0], dtype=torch.bool, device=self.device)
        return (self.numbers(shape), mask) if kind in MASKED else (self.numbers(shape),)

    def tokens(self, length: int, vocab_size: int) -> tuple[Tensor, Tensor]:
        size = (self.count, length)
        tokens = torch.randint(1, vocab_size, size, generator=self.generator, device=self.device)  # 0 is padding
        return tokens, torch.ones(size, dtype=torch.bool, device=self.device)

    def graph(self, shape: tuple[int, ...], edge_features: int = 0) -> tuple[Tensor, ...]:
        nodes = torch.arange(shape[0], device=self.device)
        ring = torch.stack([nodes, nodes.roll(1)])  # (2, V)
        x = torch.randn(shape, generator=self.generator, device=self.device)
        edges = torch.cat([ring, ring.flip(0)], 1)  # (2, 2V)
        if not edge_features:
            return x, edges
        edge_attr = torch.randn(2 * shape[0], edge_features, generator=self.generator, device=self.device)
        none = torch.empty(0, dtype=torch.int64, device=self.device)
        return x, edges, none, nodes.new_zeros(shape[0]), edge_attr  # one graph


def reject_compiled(model: nn.Module) -> None:
    """Raise ModelError for a model compiled by torch.compile, whose code bypasses hooks without an error."""
    for module in model.modules():
        if "_orig_mod" in dict(module.named_children()) or getattr(module, "_compiled_call_impl", None) is not None:
            raise ModelError(
                "This model is compiled, and hooks do not run in compiled code: pass the original model, "
                "`compiled._orig_mod`."
            )


def first_tensor(module: nn.Module, output: Any) -> Tensor | None:
    """Return the first tensor of a module's output; packed sequences are padded in the module's layout."""
    first = output[0] if isinstance(output, tuple) and not isinstance(output, PackedSequence) else output
    if isinstance(first, PackedSequence):
        return padded(module, first)
    return first if isinstance(first, Tensor) else None


def output_carriers(
    module: nn.Module, args: Any, kwargs: Any, output: Any
) -> list[tuple[Tensor, Callable[[Tensor], Tensor]]]:
    """Return the tensors that carry a module's output onward, each with a map from its gradient to the whole output's.

    A recurrent layer returns its last states twice, within its outputs and separately, and either can be used.
    """
    first = output[0] if isinstance(output, tuple) and not isinstance(output, PackedSequence) else output
    bundle = first if isinstance(first, PackedSequence) else None
    data = first if bundle is None else bundle.data
    if not isinstance(data, Tensor):
        return []
    whole = (lambda g: g) if bundle is None else (lambda g: padded(module, bundle._replace(data=g)))
    found: list[tuple[Tensor, Callable[[Tensor], Tensor]]] = [(data, whole)]
    if isinstance(module, nn.RNNBase):
        shape = padded(module, first).shape if bundle is not None else data.shape
        lengths = sequence_lengths_argument(args, kwargs)
        found.append((to_state_tuple(output[1])[0], lambda g: scatter_last_state_gradient(module, g, shape, lengths)))
    return found


def scatter_last_state_gradient(
    layer: nn.RNNBase, gradient: Tensor, shape: torch.Size, lengths: Tensor | None
) -> Tensor:
    """Scatter the gradient of the last states, (layers · directions, N, hidden), to the outputs of the top layer."""
    if len(shape) == 2:  # one sequence without a batch
        return scatter_last_state_gradient(layer, gradient[:, None], torch.Size((1, *shape)), None)[0]
    hidden = gradient.shape[2]
    found = gradient.new_zeros(shape)
    steps = found if layer.batch_first else found.transpose(0, 1)  # (N, T, ways · hidden)
    ends = lengths.to(found.device) - 1 if lengths is not None else found.new_full((len(steps),), steps.shape[1] - 1)
    rows = torch.arange(len(steps), device=found.device)
    if layer.bidirectional:
        steps[rows, ends.long(), :hidden] = gradient[-2]
        steps[:, 0, hidden:] = gradient[-1]
    else:
        steps[rows, ends.long()] = gradient[-1]
    return found


def padded(module: nn.Module, bundle: PackedSequence) -> Tensor:
    """Return packed sequences padded, in the module's order of batch and steps."""
    return pad_packed_sequence(bundle, batch_first=getattr(module, "batch_first", True))[0]
