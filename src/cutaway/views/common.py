"""Helpers that several views share: hooks on modules, a model's convolutions, and parsed options."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from ..checkpoints.custom import CustomPreset
from ..core.errors import SettingError, UnknownName
from ..core.spec import Target
from ..draw.number_format import count, plural
from ..models.base import Dense, SupportsDenseKernel, TokenGrid, as_base_model
from ..nn.eval_mode import eval_mode
from .subject import Subject

NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
ACTIVATION_OF: dict[type[nn.Module], str] = {  # names of nn/activations.py for the modules of a Sequential
    nn.ReLU: "relu", nn.Tanh: "tanh", nn.Sigmoid: "sigmoid", nn.SiLU: "silu", nn.Identity: "identity",
}  # fmt: skip
Item = TypeVar("Item")
OutputHook = Callable[[str, nn.Module, tuple[Any, ...], Any], None]


@contextmanager
def hook_outputs(model: nn.Module, see: OutputHook, names: Sequence[str] | None = None) -> Iterator[None]:
    """Call `see(name, module, inputs, output)` after each submodule inside the block.

    With `names`, only these modules call it; "" is the model itself. `see` must copy the tensors that it keeps, because
    later layers may write over them in place. All hooks are removed at the end.
    """
    wanted = None if names is None else set(names)
    handles = [
        module.register_forward_hook(partial(see, name))
        for name, module in model.named_modules()
        if (name if wanted is None else name in wanted)
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def examples_text(subject: Subject) -> str:
    """Return the opened examples in words: 8 examples, a graph of 34 nodes, 8 graphs of 165 nodes."""
    if subject.kind != "graph":
        return plural(subject.count, "example" if subject.given or subject.split is not None else "random example")
    nodes = plural(len(subject.inputs[0]), "node")
    batch = graph_index(subject.inputs)
    graphs = int(batch.max()) + 1 if batch is not None and len(batch) else 1
    return f"a graph of {nodes}" if graphs == 1 else f"{count(graphs)} graphs of {nodes} together"


def graph_index(inputs: Sequence[Tensor]) -> Tensor | None:
    """Return the graph index of each node, (V,), if the inputs are whole graphs; else None."""
    return inputs[3] if len(inputs) > 3 and len(inputs[3]) else None


def node_labels(subject: Subject) -> list[str]:
    """Return the names of the nodes of batched graphs, such as atoms; an empty list if they have no names."""
    called = getattr(subject.split, "node_names", None)
    names: list[str] = called(subject.rows) if called is not None and subject.rows else []
    return names if len(names) == len(subject.inputs[0]) else []


def run_example(subject: Subject, i: int) -> None:
    """Run the model on example i alone, in evaluation mode and without gradients.

    The padding of a text or a video is removed.
    """
    inputs = [x[i : i + 1] for x in subject.inputs]
    if subject.kind in ("text", "video") and len(inputs) > 1 and inputs[1].dtype == torch.bool:
        last = int(inputs[1][0].nonzero().max()) + 1 if inputs[1].any() else 1
        inputs = [x[:, :last] for x in inputs]
    with eval_mode(subject.model), torch.no_grad():
        subject.model(*inputs)


@dataclass(frozen=True)
class Convolution:
    """A layer that slides a window over its input: y = Σ w·x + b, over 1 to 3 axes."""

    name: str
    weight: Tensor  # (O, C / groups, *kernel)
    bias: Tensor | None  # (O,)
    stride: tuple[int, ...]
    padding: tuple[int, ...]  # zeros before and after the input along each axis
    dilation: tuple[int, ...]
    groups: int = 1

    @property
    def kernel(self) -> tuple[int, ...]:
        """Return the size of the window along each axis."""
        return tuple(self.weight.shape[2:])

    @property
    def span(self) -> tuple[int, ...]:
        """Return the extent of the window along each axis, dilation included."""
        return tuple(d * (k - 1) + 1 for k, d in zip(self.kernel, self.dilation))


def convolutions(model: nn.Module) -> dict[str, Convolution]:
    """Return the convolutions of a model by name, in model order, with detached weights."""
    found = (_convolution(name, module) for name, module in model.named_modules())
    return {c.name: c for c in found if c is not None}


def _convolution(name: str, module: nn.Module) -> Convolution | None:
    bias = getattr(module, "bias", None)
    bias = bias.detach() if isinstance(bias, Tensor) else None
    if isinstance(module, SupportsDenseKernel):
        return Convolution(name, module.dense_kernel().detach(), bias, (1, 1), (0, 0), (1, 1))
    if not isinstance(module, nn.Conv1d | nn.Conv2d | nn.Conv3d):
        return None
    padding = module.padding
    if isinstance(padding, str):
        padding = tuple(
            d * (k - 1) // 2 if padding == "same" else 0 for k, d in zip(module.kernel_size, module.dilation)
        )
    return Convolution(name, module.weight.detach(), bias, module.stride, padding, module.dilation, module.groups)


def find_dense_layers(model: nn.Module) -> dict[str, Dense]:
    """Return the layers of a fully connected network by their titles, first to last; empty for other networks."""
    layers = as_base_model(model).dense_layers() or _sequential_layers(model)
    return {f"hidden {i}" if i < len(layers) else "output": layer for i, layer in enumerate(layers, 1)}


def _sequential_layers(model: nn.Module) -> list[Dense]:
    """Return the layers of a Sequential of linear maps with optional activations; an empty list for other modules."""
    if isinstance(model, nn.Linear):
        return [Dense("", "")]
    layers: list[Dense] = []
    for name, module in model.named_children() if isinstance(model, nn.Sequential) else ():
        known = ACTIVATION_OF.get(type(module))
        if isinstance(module, nn.Linear):
            layers.append(Dense(name, name))
        elif known is not None and layers and layers[-1].gives == layers[-1].linear:
            layers[-1] = layers[-1]._replace(gives=name, activation=known)
        elif not isinstance(module, nn.Dropout) and not (isinstance(module, nn.Flatten) and not layers):
            return []
    return layers


def find_linear(model: nn.Module, layer: Dense) -> nn.Linear:
    """Return the linear module of a layer."""
    linear = model.get_submodule(layer.linear)
    assert isinstance(linear, nn.Linear), "layers of a fully connected network are linear"
    return linear


def patch_blocks(subject: Subject) -> list[str]:
    """Return the names of the blocks that give a token for each patch of an image; an empty list for other models."""
    if subject.inputs[0].ndim != 4 or find_token_grid(subject) is None:
        return []
    return [name for name, _ in subject.model.named_modules() if name.startswith("blocks.") and name.count(".") == 1]


def find_token_grid(subject: Subject) -> TokenGrid | None:
    """Return the layout of the tokens of an image, or None if the model does not make tokens of images."""
    height, width = subject.inputs[0].shape[-2:]
    return as_base_model(subject.model).token_grid(int(height), int(width))


def head_input_function(subject: Subject) -> Callable[..., Tensor] | None:
    """Return a function from the arguments of `forward` to the input of the head, or None for a model without a head.

    It is the model's `features`. For a custom module, it records the input of the last linear layer.
    """
    model = subject.model
    if not isinstance(subject.preset, CustomPreset):
        return getattr(model, "features", None)
    last = [module for module in model.modules() if isinstance(module, nn.Linear)]
    if not last:
        return None

    def features(*inputs: Tensor) -> Tensor:
        seen: list[Tensor] = []
        handle = last[-1].register_forward_pre_hook(lambda _, args: seen.append(args[0]))
        try:
            model(*inputs)
        finally:
            handle.remove()
        return seen[-1]

    return features


def get_target(subject: Subject) -> Target | None:
    """Return the target that the model was trained to predict, or None for a model without data."""
    return subject.spec.target if subject.spec is not None else None


def parse_choice(options: Mapping[str, str], key: str, known: Sequence[str], kind: str) -> str | None:
    """Return the option `key`, one of `known`, or None without the option.

    Raises:
        UnknownName: If the value is not in `known`; the message has the nearest names.
    """
    value = options.get(key)
    if value is not None and value not in known:
        raise UnknownName(kind, value, known)
    return value


def parse_index(options: Mapping[str, str], key: str, default: int, below: int) -> int:
    """Return the option `key` as an integer from 0 to `below` − 1.

    Raises:
        SettingError: If the option is not such an integer.
    """
    value = options.get(key)
    if value is None:
        return default
    number = int(value) if value.strip().isdecimal() else -1
    if not 0 <= number < below:
        raise SettingError(f"Invalid {key}={value}: must be an integer from 0 to {below - 1}.")
    return number


def evenly_spaced(those: Sequence[Item], most: int) -> list[Item]:
    """Return at most `most` items, evenly spaced, including the first and the last."""
    if len(those) <= most:
        return list(those)
    return [those[i] for i in sorted({round(i * (len(those) - 1) / (most - 1)) for i in range(most)})]


@contextmanager
def batch_norm_mode(model: nn.Module, of_the_batch: bool = True) -> Iterator[None]:
    """Set batch normalization to training mode if `of_the_batch`, and all other layers to eval mode, inside the block.

    Buffers and modes are restored at the end.
    """
    modes = {module: module.training for module in model.modules()}
    buffers = {buffer: buffer.detach().clone() for buffer in model.buffers()}
    try:
        for module in model.modules():
            module.training = isinstance(module, NORMS) and of_the_batch
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode
        with torch.no_grad():
            for buffer, before in buffers.items():
                buffer.copy_(before)
