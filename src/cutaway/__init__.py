"""Cutaway: neural networks you can see into.

    import cutaway

    model = cutaway.create_model("resnet18", num_classes=10)
    run = cutaway.train("lenet5", "digits", epochs=5)
    run.evaluate()["accuracy"]
    cutaway.load("runs/lenet5-digits-1").predict(["seven.png"])

Importing this package imports neither torch nor anything else that is slow, until a name needs it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .core.errors import CutawayError, CutawayWarning
from .core.version import __version__ as __version__

if TYPE_CHECKING:
    from . import estimators, inspect
    from .api import check, compare, describe, export, load, look, plan, prepare, prune, quantize, search, train
    from .checkpoints.word_vectors import Vectors
    from .core.typed_names import AnyName
    from .models.registry import card, create_model, list_models
    from .runs.run import Run
    from .training.callbacks import Callback

_LAZY = {
    "AnyName": "core.typed_names",
    "Callback": "training.callbacks",
    "card": "models.registry",
    "check": "api",
    "compare": "api",
    "create_model": "models.registry",
    "describe": "api",
    "export": "api",
    "list_models": "models.registry",
    "load": "api",
    "look": "api",
    "plan": "api",
    "prepare": "api",
    "prune": "api",
    "quantize": "api",
    "Run": "runs.run",
    "search": "api",
    "train": "api",
    "Vectors": "checkpoints.word_vectors",
}

__all__ = [
    "AnyName", "Callback", "CutawayError", "CutawayWarning", "Run", "Vectors", "card", "check", "compare",
    "create_model", "describe", "estimators", "export", "inspect", "list_models", "load", "look", "plan", "prepare",
    "prune", "quantize", "search", "train",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(f".{_LAZY[name]}", __name__), name)
    if name in ("estimators", "inspect"):
        return import_module(f".{name}", __name__)
    raise AttributeError(f"module 'cutaway' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({"__version__", *__all__})
