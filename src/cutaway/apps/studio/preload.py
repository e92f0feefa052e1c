"""What every process of the studio needs, imported once: it takes seconds, and is the same for all of them.

Nothing is run here: no thread may be started before processes are forked from the one that imports this.
"""

from importlib import import_module

from ...models.registry import presets
from ...views import VIEWS, module_of
from . import learner, viewer

presets()
for name in VIEWS:
    module_of(name)
import_module("torch._dynamo")  # which the first optimizer asks for, and the first table of layers

__all__ = ["learner", "viewer"]
