"""Import of torchvision if its wheel is built for CUDA and PyTorch's for the CPU, which their indexes can mix.

Its compiled operators then do not load, and its Python code refers to operators that do not exist. They are declared
here without kernels. Importing works, and calling one of them (no network here does) is an error. Packages that only
need to import torchvision, such as transformers, work too.
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
    """Declare missing operators once. None if none is missing. The declarations live as long as the returned object."""
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
