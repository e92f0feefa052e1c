"""The layers of a model that views draw, found by kind, and hooks that read their outputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..checkpoints.custom import CustomPreset
from ..models.base import Dense, SupportsAdditiveScores, SupportsDenseKernel, TokenGrid, as_base_model
from ..nn.attention import MultiHeadAttention
from ..nn.graphs import MessagePassing
from ..nn.modules import eval_mode
from ..nn.position import RelativeBias
from .subject import Subject

ACTIVATION_OF: dict[type[nn.Module], str] = {  # names of nn/activations.py for the modules of a Sequential
    nn.ReLU: "relu", nn.Tanh: "tanh", nn.Sigmoid: "sigmoid", nn.SiLU: "silu", nn.Identity: "identity",
}  # fmt: skip
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
    """Return a module as a `Convolution`, or None for other modules."""
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


def attention_modules(model: nn.Module) -> dict[str, nn.Module]:
    """Return the attention modules by name."""
    return {name: module for name, module in model.named_modules() if _attends(module)}


def _attends(module: nn.Module) -> bool:
    return isinstance(module, MultiHeadAttention | SupportsAdditiveScores)


def find_recurrent_layers(model: nn.Module) -> dict[str, nn.Module]:
    """Return the recurrent layers and cells without a projection by name."""
    found = {name: m for name, m in model.named_modules() if isinstance(m, nn.RNNBase | nn.RNNCellBase)}
    return {name: m for name, m in found.items() if not getattr(m, "proj_size", 0)}


NORMALIZATIONS: dict[str, tuple[type[nn.Module], ...]] = {
    "batch": (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d),
    "layer": (nn.LayerNorm,),
    "RMS": (nn.RMSNorm,),
    "group": (nn.GroupNorm,),
    "local response": (nn.LocalResponseNorm,),
}


def find_normalizations(model: nn.Module) -> dict[str, str]:
    """Return the kind of each normalization layer of a model by its name."""
    kinds = {name: _normalization_kind(module) for name, module in model.named_modules()}
    return {name: kind for name, kind in kinds.items() if kind is not None}


def _normalization_kind(module: nn.Module) -> str | None:
    return next((kind for kind, types in NORMALIZATIONS.items() if isinstance(module, types)), None)


def find_message_layers(model: nn.Module) -> list[str]:
    """Return the names of the message-passing layers."""
    return [name for name, module in model.named_modules() if name and isinstance(module, MessagePassing)]


def flat_convolutions(model: nn.Module) -> dict[str, Convolution]:
    """Return the convolutions over one or two axes; a window over three axes cannot be drawn as a grid."""
    return {name: layer for name, layer in convolutions(model).items() if len(layer.kernel) <= 2}


class Pool(NamedTuple):
    """A max or average pooling layer."""

    name: str
    what: str  # max or mean
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    counts_padding: bool = True  # whether a mean counts the zeros of the padding


def flat_pools(model: nn.Module) -> dict[str, Pool]:
    """Return the 1-D and 2-D pooling layers that can be drawn: without dilation, ceil_mode or divisor_override."""
    found = {}
    for name, module in model.named_modules():
        if not isinstance(module, nn.MaxPool2d | nn.AvgPool2d | nn.MaxPool1d | nn.AvgPool1d):
            continue
        axes = 2 if isinstance(module, nn.MaxPool2d | nn.AvgPool2d) else 1
        dilation = _per_axis(getattr(module, "dilation", 1), axes)
        if max(dilation) != 1 or module.ceil_mode or getattr(module, "divisor_override", None):
            continue
        what = "max" if isinstance(module, nn.MaxPool2d | nn.MaxPool1d) else "mean"
        kernel, stride, padding = (_per_axis(v, axes) for v in (module.kernel_size, module.stride, module.padding))
        found[name] = Pool(name, what, kernel, stride, padding, getattr(module, "count_include_pad", True))
    return found


def _per_axis(value: Any, axes: int) -> tuple[int, ...]:
    """Return one number for each axis."""
    return (value,) * axes if isinstance(value, int) else tuple(value) * (axes // len(value))


def find_input_layer(subject: Subject) -> tuple[str, Tensor, tuple[int, ...]] | None:
    """Return the name, weights (O, F) and input shape of a first dense layer over an image or a signal."""
    layers = list(find_dense_layers(subject.model).values())
    if not layers or subject.kind not in ("image", "series") or subject.inputs[0].ndim < 3:
        return None
    return layers[0].linear, find_linear(subject.model, layers[0]).weight.detach(), tuple(subject.inputs[0].shape[1:])


def find_relative_biases(model: nn.Module) -> dict[str, RelativeBias]:
    """Return the relative position biases by the name of their module."""
    return {name: module for name, module in model.named_modules() if isinstance(module, RelativeBias)}


def find_rotary_attention(model: nn.Module) -> dict[str, MultiHeadAttention]:
    """Return the attention modules with rotary position embeddings by name."""
    found = {k: m for k, m in model.named_modules() if isinstance(m, MultiHeadAttention)}
    return {name: module for name, module in found.items() if module.rotates}


def find_embedding_table(model: nn.Module) -> nn.Embedding | None:
    """Return the embedding table of the model, or None."""
    found = getattr(model, "embedding", None)
    return found if isinstance(found, nn.Embedding) and found.num_embeddings > 2 else None


def has_enough_examples(subject: Subject) -> bool:
    """Return whether there are at least three examples; in a single graph the examples are its nodes."""
    if subject.preset.card.card.family == "words" or head_input_function(subject) is None:
        return False
    return len(subject.inputs[0]) >= 3


def find_image_attention(model: nn.Module) -> list[str]:
    """Return the names of the attention modules of a captioning model that attend from words to the image."""
    found = attention_modules(model)
    return [k for k, m in found.items() if getattr(m, "cross_attends", False) or not getattr(m, "heads", 0)]
