"""Origin of a model's weights, with settings of its Hugging Face folder that our Config lacks.

Such settings are special tokens, class names and generation settings. The origin is saved and exported with the model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import nn


@dataclass(frozen=True)
class Origin:
    """Settings of a Hugging Face folder that the model's Config does not contain."""

    config: Mapping[str, Any]  # its complete config.json
    settings: Mapping[str, Any] = field(default_factory=dict)  # settings that describe the network as it was read
    generation: Mapping[str, Any] | None = None  # its generation_config.json, if it has one
    tokens: Mapping[str, Any] = field(default_factory=dict)  # defaults of its family for special tokens
    new: tuple[str, ...] = ()  # our tensors of a head that it lacked: random and untrained

    @property
    def ends(self) -> tuple[int, ...]:
        """Return the tokens that end a text. Generation settings have priority over those of the network."""
        said = {**self.tokens, **self.config} if self.generation is None else self.generation
        end = said.get("eos_token_id")
        return tuple(end) if isinstance(end, list) else () if end is None else (end,)

    @property
    def notes(self) -> tuple[str, ...]:
        """Return notes that are shown each time the model is opened."""
        if not self.new:
            return ()
        named = ", ".join(self.new[:3]) + (f" and {len(self.new) - 3} more" if len(self.new) > 3 else "")
        return (
            f"Drawn at random, since the folder that the weights came from has none: {named}. Train before you trust "
            "its answers.",
        )


def get_origin(model: nn.Module) -> Origin | None:
    """Return the origin of a model, or None if it is unknown."""
    found: Origin | None = getattr(model, "origin", None)
    return found


def origin_from_json(document: Mapping[str, Any]) -> Origin:
    """Return the origin from `dataclasses.asdict` after JSON."""
    return Origin(**{**document, "new": tuple(document["new"])})
