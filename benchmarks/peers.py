"""The libraries that ours is measured beside."""

from __future__ import annotations

from types import ModuleType


def torchvision() -> ModuleType:
    """torchvision, importable beside a PyTorch built for the CPU alone (see tests/verify/conftest.py)."""
    import tests.verify.conftest  # noqa: F401
    import torchvision

    return torchvision
