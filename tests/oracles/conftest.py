"""Let torchvision's wheel, which is built for CUDA, be imported beside a PyTorch built for the CPU alone.

Its compiled operators do not load there, and its Python side then describes operators that do not exist. They are
declared here, without kernels: importing works, and calling one of them (no model here does) is an error.
"""

from __future__ import annotations

import importlib.util

import torch

LIBRARY = torch.library.Library("torchvision", "FRAGMENT")  # its declarations live as long as this object
OPERATORS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)

if importlib.util.find_spec("torchvision"):
    try:
        import torchvision  # noqa: F401
    except RuntimeError:  # operator torchvision::nms does not exist
        for operator in OPERATORS:
            LIBRARY.define(operator)
