"""Entry points of torch.hub: presets and trained runs of Cutaway in other projects.

    model = torch.hub.load("cutaway-nn/cutaway", "create_model", "resnet18", num_classes=10)
    model = torch.hub.load("path/to/clone", "create_model", "resnet18", source="local")

torch.hub adds the clone to the import path but installs nothing: `dependencies` lists what must be installed already.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from torch import nn

dependencies = [
    "torch", "numpy", "safetensors", "PIL", "sklearn", "polars", "rich", "tokenizers", "huggingface_hub", "networkx",
]  # fmt: skip

sys.path.insert(0, str(Path(__file__).resolve().parent / "src"))

import cutaway  # noqa: E402


def create_model(name: str = "resnet18", **settings: Any) -> nn.Module:
    """Create a preset with freshly initialized weights, or with those of a checkpoint: `cutaway.create_model`.

    Args:
        name: Name of the preset, as in `list_models`.
        **settings: Fields of the preset's Config to change, such as num_classes=10.

    Returns:
        The model, in training mode.
    """
    return cutaway.create_model(name, **settings)


def load(run: str, **options: Any) -> Any:
    """Load a trained run or a checkpoint for predictions: `cutaway.load`.

    Args:
        run: Folder of a run, a checkpoint, or hub:ORG/NAME.
        **options: Arguments of `cutaway.load`.

    Returns:
        The trained run, as from `cutaway.load`.
    """
    return cutaway.load(run, **options)


def list_models(family: str | None = None, takes: str | None = None) -> list[str]:
    """List the names of the presets: `cutaway.list_models`.

    Args:
        family: Only models of this family (`dense`, `cnn`, …).
        takes: Only models that accept this kind of data (`table`, `image`, …).

    Returns:
        The names.
    """
    return cutaway.list_models(family, takes)
