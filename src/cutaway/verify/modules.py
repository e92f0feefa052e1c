"""Comparison of fixed layer settings with torchvision: strides, paddings, ε and momentum of the complete network."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from ..checkpoints.torchvision import torchvision_key, torchvision_names
from . import torchvision_models

# Settings that are compared if both layers have them. The weights already compare sizes.
SETTINGS = ("kernel_size", "stride", "padding", "dilation", "groups", "padding_mode", "eps", "momentum", "affine")
INITIALIZED = ("googlenet", "inception", "vgg")  # builders that can skip the slow initialization of weights
# Builders that would download weights of the backbone.
SEGMENTING, DETECTORS = ("fcn", "deeplabv3"), ("fcos",)
STRIDED = "-v1"  # presets with torchvision's weights and the paper's strides


def unlike_torchvision(name: str, ours: nn.Module) -> tuple[int, list[str]]:
    """Return the number of compared settings of layers, and those that differ, one clause each.

    `ours` is the complete preset, preferably on the meta device. Raises OracleMissing if torchvision cannot be
    imported.
    """
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
