"""A network whose weights are integers of few bits: which layers, in what way, and how their file is read.

A *scheme* says it, in JSON, and stands in the model's config.json. A layer is one of

    static    its weights and inputs are int8, the range of its inputs is known (nn.quantized.QuantizedConv2d)
    dynamic   its weights are int8, and so are its inputs as they come (nn.quantized.QuantizedLinear)
    half      its weights, and its inputs as they come, are bfloat16 or float16, which is the method (nn.half)
    stored    its weights have so many `bits` in the file, integers or the method's floats of 16; the layer is the one
              that it was, and its numbers rounded

Embeddings are stored with 8 bits whatever the others have, and a matrix that is an embedding too is one. Biases, norms
and what else has one dimension stay in 32 bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ..core.errors import FileError
from .mixed_precision import HALF, HALVES, Half
from .quantized import (
    CONVS,
    LINEAR,
    Quantized,
    convolves,
    dequantize_groups,
    dequantize_rows,
    quantize_groups,
    quantize_rows,
)
from .transformer import Unembedding

Scheme = Mapping[str, Any]
SCALE = ".scale"  # after the name of a stored weight, the name of its scales
EMBEDDINGS = (nn.Embedding, nn.EmbeddingBag)
# Of a linear layer, from which on integers are faster than floats; below it what is done around them takes longer.
WORTH = 1 << 16
# Whose matrices and kernels can be stored: no norms, and no parameters that stand by themselves.
STORED = (
    nn.Linear, nn.modules.conv._ConvNd, nn.RNNBase, nn.RNNCellBase, nn.MultiheadAttention, nn.Bilinear, Unembedding,
    *EMBEDDINGS,
)  # fmt: skip


def scheme_of(model: nn.Module) -> Scheme | None:
    """The scheme that a model is quantized by; None for one that is not."""
    found: Scheme | None = getattr(model, "quantized", None)
    return found


def layers_for(model: nn.Module, method: str) -> dict[str, str]:
    """What becomes of each layer with weights by a method: static, dynamic, weight-only, bfloat16, float16. Embeddings
    and layers that have no other form are stored, and small linear layers beside static ones."""
    found = {}
    for name, module in model.named_modules():
        if method == "static" and convolves(module):
            found[name] = "static"
        elif type(module) in LINEAR and (method == "dynamic" or (method == "static" and is_worth(module))):
            found[name] = "dynamic"
        elif method in HALVES and type(module) in HALF and (type(module) in LINEAR or convolves(module)):
            found[name] = "half"
        elif isinstance(module, STORED) and matrices(module):
            found[name] = "stored"
    return found


def is_worth(layer: nn.Module) -> bool:
    """Whether a linear layer is large enough to be faster as integers."""
    return isinstance(layer, nn.Linear) and layer.in_features * layer.out_features >= WORTH


def make_room(model: nn.Module, scheme: Scheme) -> None:
    """Put quantized layers, with nothing in them yet, where the scheme has them, and have the model know the scheme."""
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
            _put(model, name, room_for(layer, kind, scheme["method"]))
    model.quantized = dict(scheme)  # type: ignore[assignment]  # no module or tensor


def room_for(layer: nn.Module, kind: str, method: str) -> Quantized:
    """A quantized layer, with nothing in it yet, for one of the network's."""
    if kind == "half":
        half: Half = HALF[type(layer)].like(layer).as_format(method)
        return half
    made: Quantized = (CONVS[type(layer)] if kind == "static" else LINEAR[type(layer)]).like(layer)
    return made


def quantize_layers(model: nn.Module, scheme: Scheme, ranges: Mapping[str, tuple[float, float]]) -> None:
    """Quantize a model in place, whose normalizations are folded already; `ranges` are those of the inputs of its
    static layers. What is stored is rounded as it will be when it is read."""
    floats = {name: model.get_submodule(name) for name, kind in scheme["layers"].items() if kind != "stored"}
    make_room(model, {**scheme, "folded": (), "biased": ()})
    for name, layer in floats.items():
        made = model.get_submodule(name)
        assert isinstance(made, Quantized)
        made.take(layer)
        if name in ranges:
            made.observe(*ranges[name])  # type: ignore[operator]  # a convolution
    model.quantized = dict(scheme)  # type: ignore[assignment]  # no module or tensor
    model.load_state_dict(restored(stored(model), model))


def stored(model: nn.Module) -> dict[str, Tensor]:
    """The tensors of a model as they stand in its file: its state, with what its scheme stores as integers."""
    state, scheme = model.state_dict(), scheme_of(model)
    for key, bits in stored_bits(model, scheme).items():
        weight = state[key].detach().float()
        if bits == 16:
            state[key] = weight.to(HALVES[scheme["method"]])  # type: ignore[index]
        elif bits == 8:
            state[key], state[key + SCALE] = quantize_rows(weight)
        else:
            state[key], state[key + SCALE] = quantize_groups(weight, scheme["group"])  # type: ignore[index]
    return state


def restored(tensors: Mapping[str, Tensor], model: nn.Module) -> dict[str, Tensor]:
    """The tensors of a file as the state of the model, which knows its scheme by now."""
    state, scheme = dict(tensors), scheme_of(model)
    shapes = {key: parameter.shape for key, parameter in model.state_dict().items()}
    for key, bits in stored_bits(model, scheme).items():
        if bits == 16 and key in state:
            state[key] = state[key].float()
        elif key in state and key + SCALE in state:  # what is missing is said by who puts them into the model
            q, scale = state[key], state.pop(key + SCALE)
            if bits == 8:
                state[key] = dequantize_rows(q, scale)
            else:
                state[key] = dequantize_groups(q, scale, scheme["group"], shapes[key])  # type: ignore[index]
    return state


def integers_of(model: nn.Module, name: str, key: str) -> Tensor | None:
    """The integers that a weight of a quantized layer stands as, of its shape; None where the scheme has none."""
    scheme = scheme_of(model)
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
    """Raise FileError where a model has layers that compute in few bits, for which another format has no form."""
    if any(isinstance(module, Quantized) for module in model.modules()):
        raise FileError(
            f"{source} holds a quantized model, whose layers compute in few bits and have no form elsewhere: give the "
            "run that it was made of, or one that was quantized with method=weight-only."
        )


def stored_bits(model: nn.Module, scheme: Scheme | None) -> dict[str, int]:
    """The parameters that a scheme stores in fewer bits, by their names in the state, and how many."""
    found: dict[str, int] = {}
    embedded = {id(m.weight) for m in model.modules() if isinstance(m, EMBEDDINGS)}
    for name, kind in scheme["layers"].items() if scheme else ():
        module = model.get_submodule(name)
        for key, parameter in matrices(module).items() if kind == "stored" else ():
            bits = scheme["bits"]  # type: ignore[index]
            found[f"{name}.{key}".lstrip(".")] = 8 if id(parameter) in embedded and bits < 8 else bits
    return found


def matrices(module: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters of a module itself that have two dimensions or more."""
    return {key: p for key, p in module.named_parameters(recurse=False, remove_duplicate=False) if p.ndim > 1}


def _put(model: nn.Module, name: str, layer: nn.Module) -> None:
    parent, _, key = name.rpartition(".")
    setattr(model.get_submodule(parent), key, layer)
