"""Where a model's weights came from, and what is said of them there beside sizes: the tokens that begin and end, the
names of classes, how to generate. It goes along with the model, is saved with it, and is written back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import nn


@dataclass(frozen=True)
class Origin:
    """A Hugging Face folder, as far as the model's Config does not say it."""

    config: Mapping[str, Any]  # its config.json, whole
    settings: Mapping[str, Any] = field(default_factory=dict)  # what would be written of the network as it was read
    generation: Mapping[str, Any] | None = None  # its generation_config.json, where it has one
    tokens: Mapping[str, Any] = field(default_factory=dict)  # what its family says where config.json is silent
    new: tuple[str, ...] = ()  # our tensors of a head that it had not: drawn at random, and not learned since

    @property
    def ends(self) -> tuple[int, ...]:
        """The tokens that end a text. What is said of generating counts before what is said of the network."""
        said = {**self.tokens, **self.config} if self.generation is None else self.generation
        end = said.get("eos_token_id")
        return tuple(end) if isinstance(end, list) else () if end is None else (end,)

    @property
    def notes(self) -> tuple[str, ...]:
        """What a person should know of it each time that the model is opened."""
        if not self.new:
            return ()
        named = ", ".join(self.new[:3]) + (f" and {len(self.new) - 3} more" if len(self.new) > 3 else "")
        return (
            f"Drawn at random, since the folder that the weights came from has none: {named}. Train before you trust "
            "its answers.",
        )


def origin_of(model: nn.Module) -> Origin | None:
    """Where the model came from, where that is known."""
    found: Origin | None = getattr(model, "origin", None)
    return found


def origin_from_json(document: Mapping[str, Any]) -> Origin:
    """As `dataclasses.asdict` and JSON give it."""
    return Origin(**{**document, "new": tuple(document["new"])})
