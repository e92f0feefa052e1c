"""Low-precision models: the scheme of quantized layers, and their file format.

A *scheme* describes the quantization, in JSON, in the model's config.json. A layer is one of

    static    int8 weights and int8 inputs with a known input range (nn.quantized.QuantizedConv2d)
    dynamic   int8 weights, and inputs that are quantized on the fly (nn.quantized.QuantizedLinear)
    half      weights and inputs in bfloat16 or float16, whichever is the method (nn.mixed_precision)
    stored    weights with `bits` bits in the file, as integers or as 16-bit floats of the method; the layer itself is
              unchanged, with rounded weights

Embeddings are stored with 8 bits even if other layers have fewer. A matrix that is also used as an embedding counts as
one. Biases, norms and all other one-dimensional tensors stay in 32 bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ..core.errors import FileError
from .mixed_precision import HALF, HALF_DTYPES, Half
from .quantized import (
    CONVS,
    LINEAR,
    Quantized,
    dequantize_groups,
    dequantize_rows,
    is_quantizable_conv,
    quantize_groups,
    quantize_rows,
)
from .transformer import Unembedding

Scheme = Mapping[str, Any]
SCALE = ".scale"  # suffix that turns the name of a stored weight into the name of its scales
EMBEDDINGS = (nn.Embedding, nn.EmbeddingBag)
# Number of weights from which on a linear layer is faster with integers; below it the overhead takes longer.
WORTH = 1 << 16
# Layers whose matrices and kernels can be stored: no norms, and no parameters outside of layers.
STORED = (
    nn.Linear, nn.modules.conv._ConvNd, nn.RNNBase, nn.RNNCellBase, nn.MultiheadAttention, nn.Bilinear, Unembedding,
    *EMBEDDINGS,
)  # fmt: skip


def quantization_scheme(model: nn.Module) -> Scheme | None:
    """Return the quantization scheme of a model, or None if it is not quantized."""
    found: Scheme | None = getattr(model, "quantized", None)
    return found


def layers_for(model: nn.Module, method: str) -> dict[str, str]:
    """Return the kind of each layer with weights under a method: static, dynamic, weight-only, bfloat16 or float16.

    Embeddings and layers without another form are stored, and so are small linear layers under `static`.
    """
    found = {}
    for name, module in model.named_modules():
        if method == "static" and is_quantizable_conv(module):
            found[name] = "static"
        elif type(module) in LINEAR and (method == "dynamic" or (method == "static" and is_worth_quantizing(module))):
            found[name] = "dynamic"
        elif method in HALF_DTYPES and type(module) in HALF and (type(module) in LINEAR or is_quantizable_conv(module)):
            found[name] = "half"
        elif isinstance(module, STORED) and matrices(module):
            found[name] = "stored"
    return found


def is_worth_quantizing(layer: nn.Module) -> bool:
    """Return whether a linear layer is large enough to be faster with integers."""
    return isinstance(layer, nn.Linear) and layer.in_features * layer.out_features >= WORTH


def insert_quantized_layers(model: nn.Module, scheme: Scheme) -> None:
    """Replace layers by empty quantized layers according to the scheme, and attach the scheme to the model."""
    for name in scheme["folded"]:
        _put(model, name, nn.Identity())
    for name in scheme["biased"]:
        layer = model.get_submodule(name)
        assert isinstance(layer.weight, Tensor)
        outputs = layer.weight.shape[0]
        layer.register_parameter("bias", nn.Parameter(layer.weight.new_zeros(outputs)))
    for name, kind in scheme["layers"].items():
        if kind != "stored":
            layer = model.get_submodule(name)
            _put(model, name, empty_quantized_layer(layer, kind, scheme["method"]))
    model.quantized = dict(scheme)  # type: ignore[assignment]  # no module or tensor


def empty_quantized_layer(layer: nn.Module, kind: str, method: str) -> Quantized:
    """Return an empty quantized layer for a layer of the network."""
    if kind == "half":
        half: Half = HALF[type(layer)].like(layer).as_format(method)
        return half
    made: Quantized = (CONVS[type(layer)] if kind == "static" else LINEAR[type(layer)]).like(layer)
    return made


def quantize_layers(model: nn.Module, scheme: Scheme, ranges: Mapping[str, tuple[float, float]]) -> None:
    """Quantize a model in place whose normalization layers are already folded.

    `ranges` are the input ranges of its static layers. Stored weights are rounded as they will be when they are loaded.
    """
    floats = {name: model.get_submodule(name) for name, kind in scheme["layers"].items() if kind != "stored"}
    insert_quantized_layers(model, {**scheme, "folded": (), "biased": ()})
    for name, layer in floats.items():
        made = model.get_submodule(name)
        assert isinstance(made, Quantized)
        made.take(layer)
        if name in ranges:
            made.observe(*ranges[name])  # type: ignore[operator]  # a convolution
    model.quantized = dict(scheme)  # type: ignore[assignment]  # no module or tensor
    model.load_state_dict(to_state_dict(to_file_tensors(model), model))


def to_file_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Return the tensors of a model in file format: its state dict, with integers where the scheme stores them."""
    state, scheme = model.state_dict(), quantization_scheme(model)
    for key, bits in stored_bits(model, scheme).items():
        weight = state[key].detach().float()
        if bits == 16:
            state[key] = weight.to(HALF_DTYPES[scheme["method"]])  # type: ignore[index]
        elif bits == 8:
            state[key], state[key + SCALE] = quantize_rows(weight)
        else:
            state[key], state[key + SCALE] = quantize_groups(weight, scheme["group"])  # type: ignore[index]
    return state


def to_state_dict(tensors: Mapping[str, Tensor], model: nn.Module) -> dict[str, Tensor]:
    """Return the tensors of a file as a state dict of the model, which already has its scheme."""
    state, scheme = dict(tensors), quantization_scheme(model)
    shapes = {key: parameter.shape for key, parameter in model.state_dict().items()}
    for key, bits in stored_bits(model, scheme).items():
        if bits == 16 and key in state:
            state[key] = state[key].float()
        elif key in state and key + SCALE in state:  # missing tensors are reported when the state is loaded
            q, scale = state[key], state.pop(key + SCALE)
            if bits == 8:
                state[key] = dequantize_rows(q, scale)
            else:
                state[key] = dequantize_groups(q, scale, scheme["group"], shapes[key])  # type: ignore[index]
    return state


def quantized_integers(model: nn.Module, name: str, key: str) -> Tensor | None:
    """Return the integers of a quantized layer's weight, of its shape, or None if the scheme has none."""
    scheme = quantization_scheme(model)
    module = model.get_submodule(name)
    if isinstance(module, Half):
        return None
    if isinstance(module, Quantized):
        return module.q
    bits = stored_bits(model, scheme).get(f"{name}.{key}".lstrip("."))
    weight = getattr(module, key).detach().float()
    if bits == 8:
        return quantize_rows(weight)[0]
    if bits == 4:
        packed, scale = quantize_groups(weight, scheme["group"])  # type: ignore[index]
        return dequantize_groups(packed, torch.ones_like(scale), scheme["group"], weight.shape)  # type: ignore[index]
    return None


def reject_integers(model: nn.Module, source: object) -> None:
    """Raise FileError if a model has layers with integer arithmetic, which another format cannot represent."""
    if any(isinstance(module, Quantized) for module in model.modules()):
        raise FileError(
            f"{source} holds a quantized model, whose layers compute in few bits and have no form elsewhere: give the "
            "run that it was made of, or one that was quantized with method=weight-only."
        )


def stored_bits(model: nn.Module, scheme: Scheme | None) -> dict[str, int]:
    """Return the number of bits of each parameter that the scheme stores in fewer bits, by its name in the state."""
    found: dict[str, int] = {}
    embedded = {id(m.weight) for m in model.modules() if isinstance(m, EMBEDDINGS)}
    for name, kind in scheme["layers"].items() if scheme else ():
        module = model.get_submodule(name)
        for key, parameter in matrices(module).items() if kind == "stored" else ():
            bits = scheme["bits"]  # type: ignore[index]
            found[f"{name}.{key}".lstrip(".")] = 8 if id(parameter) in embedded and bits < 8 else bits
    return found


def matrices(module: nn.Module) -> dict[str, nn.Parameter]:
    """Return the module's own parameters with two or more dimensions."""
    return {key: p for key, p in module.named_parameters(recurse=False, remove_duplicate=False) if p.ndim > 1}


def _put(model: nn.Module, name: str, layer: nn.Module) -> None:
    parent, _, key = name.rpartition(".")
    setattr(model.get_submodule(parent), key, layer)
