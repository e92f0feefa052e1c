"""Inspection of a model's internals: layers, costs, receptive fields, feature maps, attributions and interventions."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .ablation import Noise, Replace, Scale, Transplant, Zero, ablate, intervene, patch
    from .attribution import attribute
    from .captures import capture
    from .concepts import concept
    from .gradient_flow import flow

_FROM = {
    "capture": "captures",
    "flow": "gradient_flow",
    "ablate": "ablation",
    "patch": "ablation",
    "attribute": "attribution",
    "concept": "concepts",
} | dict.fromkeys(("Noise", "Replace", "Scale", "Transplant", "Zero", "intervene"), "ablation")
__all__ = [
    "Noise",
    "Replace",
    "Scale",
    "Transplant",
    "Zero",
    "ablate",
    "attribute",
    "capture",
    "concept",
    "flow",
    "intervene",
    "patch",
]


def __getattr__(name: str) -> Any:
    if name in _FROM:  # torch is imported lazily
        return getattr(import_module(f".{_FROM[name]}", __package__), name)
    raise AttributeError(f"module 'cutaway.inspect' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
