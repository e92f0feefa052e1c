"""What can be seen inside a model: its layers, what they cost and see, and the maps between them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .probes import capture

__all__ = ["capture"]


def __getattr__(name: str) -> Any:
    if name == "capture":  # torch is imported when it is asked for
        from .probes import capture

        return capture
    raise AttributeError(f"module 'cutaway.inspect' has no attribute {name!r}")
