"""Imports that every process of the studio needs. They take seconds, and are done once before the processes are forked.

Nothing runs here: no thread may start before the fork.
"""

from importlib import import_module

from ...models.registry import presets
from ...views.registry import VIEWS, view_function
from . import learner, viewer

presets()
for name in VIEWS:
    view_function(name)
import_module("torch._dynamo")  # imported by the first optimizer and the first table of layers

__all__ = ["learner", "viewer"]
