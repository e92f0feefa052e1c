"""The libraries that ours is measured beside."""

from __future__ import annotations

from types import ModuleType


def torchvision() -> ModuleType:
    """torchvision, importable beside a PyTorch built for the CPU alone (see tests/oracles/conftest.py)."""
    import tests.oracles.conftest  # noqa: F401
    import torchvision

    return torchvision
