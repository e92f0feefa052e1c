"""Let torchvision's wheel be imported where it is built for CUDA and PyTorch for the CPU alone, as their indexes mix.

Its compiled operators do not load there, and its Python side then describes operators that do not exist. They are
declared here, without kernels: importing works, and calling one of them (no network here does) is an error. What needs
torchvision merely to be importable, as transformers does, works then too.
"""

from __future__ import annotations

import functools
import importlib.util
import sys

import torch

OPERATORS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)


@functools.cache
def make_torchvision_importable() -> torch.library.Library | None:
    """Declare what is missing, once; None where nothing is. The declarations live as long as what is returned."""
    if "torchvision" in sys.modules or importlib.util.find_spec("torchvision") is None:
        return None
    try:
        import torchvision  # noqa: F401
    except RuntimeError:  # operator torchvision::nms does not exist
        library = torch.library.Library("torchvision", "FRAGMENT")  # type: ignore[no-untyped-call]
        for operator in OPERATORS:
            library.define(operator)  # type: ignore[no-untyped-call]
        return library
    return None
