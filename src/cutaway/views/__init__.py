"""What can be seen inside a model: views by name, each a pure function from a Subject to a plain JSON description.

Every view is a module here, of its name, with

    SAYS                    one line: what it shows, for `cutaway inspect --help`
    READ, MISLEADS          how to read it, and where it misleads: a few sentences each
    OPTIONS                 what can be asked of it: {"head": "which head, counted from 0"}
    suits(subject)          whether there is anything to show
    view(subject) -> View   its description

A view computes what it needs within probes that leave the model as it was.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

from ..core.errors import UnknownName

if TYPE_CHECKING:  # the names of views are asked for where torch is not
    from .subject import Subject

# In the order in which they are read.
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


def module_of(name: str) -> ModuleType:
    """The module of a view. Raises UnknownName with the nearest names."""
    if name not in VIEWS:
        raise UnknownName("view", name, VIEWS, "`cutaway inspect --help` lists them.")
    return import_module(f"{__package__}.{name}")


def suitable(subject: Subject) -> list[str]:
    """The views that have something to show of it."""
    return [name for name in VIEWS if module_of(name).suits(subject)]
