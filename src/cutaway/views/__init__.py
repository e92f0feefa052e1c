"""Views of a model's internals, by name; each is a pure function from a Subject to a plain JSON description.

Every view is a module of this package with

    SAYS                    one line: the content of the view, for `cutaway inspect --help`
    READ, MISLEADS          how to read it, and its limitations: a few sentences each
    OPTIONS                 its options: {"head": "which head, counted from 0"}
    suits(subject)          return whether there is anything to show
    view(subject) -> View   return its description

A view computes its numbers within probes that leave the model unchanged.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

from ..core.errors import UnknownName

if TYPE_CHECKING:  # the names of views are used without importing torch
    from .subject import Subject

# In reading order.
VIEWS = (
    "network",
    "curves",
    "results",
    "boundary",
    "function",
    "backprop",
    "filters",
    "features",
    "field",
    "arithmetic",
    "normalization",
    "attention",
    "caption",
    "thoughts",
    "positions",
    "embeddings",
    "gates",
    "alignment",
    "denoising",
    "latent",
    "graph",
    "attribution",
    "adversarial",
    "gradients",
    "quantization",
    "time",
)


def view_module(name: str) -> ModuleType:
    """Return the module of a view.

    Raises:
        UnknownName: If there is no such view; the message has the nearest names.
    """
    if name not in VIEWS:
        raise UnknownName("view", name, VIEWS, "`cutaway inspect --help` lists them.")
    return import_module(f"{__package__}.{name}")


def suitable_views(subject: Subject) -> list[str]:
    """Return the names of the views that apply to the subject."""
    return [name for name in VIEWS if view_module(name).suits(subject)]
