"""The fixed settings of torchvision's layers beside those of ours: strides, paddings, ε, momentum, of the whole network
as torchvision builds it by itself."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from ..checkpoints.names import torchvision_key, torchvision_names
from . import torchvision_models

# What is compared of a layer, where both have it. Sizes are told by the weights already.
SETTINGS = ("kernel_size", "stride", "padding", "dilation", "groups", "padding_mode", "eps", "momentum", "affine")
INITIALIZED = ("googlenet", "inception", "vgg")  # builders that can be told to draw no weights, which takes long
# Builders that would fetch weights for the backbone.
SEGMENTING, DETECTORS = ("fcn", "deeplabv3"), ("fcos",)
STRIDED = "-v1"  # presets whose weights are torchvision's, and whose strides are the paper's


def unlike_torchvision(name: str, ours: nn.Module) -> tuple[int, list[str]]:
    """How many settings of layers are compared, and those that differ, a clause each. `ours` is the preset whole, at
    best on the meta device. Raises OracleMissing where torchvision cannot be imported here."""
    builder = torchvision_names()[name].rpartition(".")[2]
    with torch.device("meta"):
        arguments: dict[str, Any] = {"init_weights": False} if builder.startswith(INITIALIZED) else {}
        if builder.startswith((*SEGMENTING, *DETECTORS)):
            arguments = {"weights_backbone": None}
        if builder.startswith(SEGMENTING):
            arguments["aux_loss"] = True
        theirs = torchvision_models("_api").get_model_builder(builder)(**arguments)
    layers, count, found = dict(theirs.named_modules()), 0, []
    for prefix, module in ours.named_modules():
        own = next(iter(dict(module.named_parameters(recurse=False))), None)
        if own is None:
            continue
        there: Any = layers.get(torchvision_key(name, f"{prefix}.{own}").rpartition(".")[0])
        for setting in SETTINGS:
            if hasattr(module, setting) and hasattr(there, setting):
                mine, other = getattr(module, setting), getattr(there, setting)
                count += 1
                if mine != other:
                    found.append(f"{prefix} has {setting}={mine}, torchvision {other}")
    return count, found
