"""Imports of the independent libraries, which are test dependencies: torchvision, transformers and diffusers.

torchvision's wheel may be built for CUDA and PyTorch's for the CPU, because their indexes can be mixed. Its compiled
operators then do not load, and its Python code refers to operators that do not exist. They are declared here without
kernels. Importing works, and calling one of them (no network here does) is an error. Packages that only need to import
torchvision, such as transformers, work too.
"""

from __future__ import annotations

import functools
import importlib.util
import sys
from typing import Any

import torch
from torch import nn

from ..checkpoints.torchvision import torchvision_key
from . import OracleMissing

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


def torchvision_models(name: str) -> Any:
    """Import the module torchvision.models.NAME. Raises OracleMissing, with the reason, if it cannot be imported."""
    return _import(f"torchvision.models.{name}")


def transformers_library() -> Any:
    """Import transformers. Raises OracleMissing, with the reason, if it cannot be imported."""
    return _import("transformers")


def diffusers_library() -> Any:
    """Import diffusers. Raises OracleMissing, with the reason, if it cannot be imported."""
    return _import("diffusers")


def snntorch_library() -> Any:
    """Import snnTorch, with its surrogates. Raises OracleMissing, with the reason, if it cannot be imported."""
    _import("snntorch.surrogate")
    return _import("snntorch")


def _import(module: str) -> Any:
    make_torchvision_importable()
    try:
        return importlib.import_module(module)
    except (ImportError, RuntimeError) as error:
        library, reason = module.partition(".")[0], str(error).splitlines()[0]
        raise OracleMissing(f"{library} cannot be imported here ({reason}).") from error


def torchvision_key_map(name: str, model: type[nn.Module], config: Any, prefix: str = "") -> dict[str, str]:
    """Return the map from the state-dict keys of one of our models to torchvision's of the preset `name`."""
    with torch.device("meta"):  # only the names are needed
        return {key: prefix + torchvision_key(name, key) for key in model(config).state_dict()}
