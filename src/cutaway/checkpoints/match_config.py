"""Matching of a config to presets: the closest preset and the settings that differ from it.

Origin of a model's weights, with settings of its Hugging Face folder that our Config lacks.

Such settings are special tokens, class names and generation settings. The origin is saved and exported with the model.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from ..core.config import as_text
from ..models.registry import Preset

MAX_SETTINGS = 4  # maximum settings in a phrase


def diff(config: Any, other: Any, free: Collection[str] = ()) -> dict[str, Any]:
    """Return the settings of a config that differ from another of its class, without those in `free`.

    An unset ffn_dim counts as 4 · dim.
    """

    def differ(field: str) -> bool:
        mine, theirs = getattr(config, field), getattr(other, field)
        if field == "ffn_dim" and mine != theirs and None in (mine, theirs):
            mine, theirs = (4 * c.dim if x is None else x for x, c in ((mine, config), (theirs, other)))
        return bool(mine != theirs)

    names = [f.name for f in dataclasses.fields(config) if f.name not in free and differ(f.name)]
    return {name: getattr(config, name) for name in names}


def closest_preset(config: Any, candidates: Iterable[Preset], free: Collection[str] = ()) -> Preset:
    """Return the candidate with the same config, or with the fewest different settings.

    A setting that distinguishes model files (RoBERTa from BERT) has more weight than one that differs between presets
    of one file (the number of layers). Ties are resolved by the smaller numerical difference. Settings in `free` are
    ignored.
    """
    candidates = list(candidates)
    telling = _distinctive_fields(candidates, free)

    def distance(candidate: Preset) -> tuple[int, int, float]:
        fields = diff(config, candidate.config, free)
        own = sum(name in telling for name in fields)
        return (
            own,
            len(fields),
            sum(_relative_difference(value, getattr(candidate.config, name)) for name, value in fields.items()),
        )

    return min(candidates, key=distance)


def settings_phrase(settings: Mapping[str, Any]) -> str:
    """Return a phrase with the settings that differ from a preset, ` with layers=2 and dim=64`; empty without settings.

    Only the first few are named. Lists of JSON count as tuples.
    """
    said = [f"{name}={as_text(tuple(x) if isinstance(x, list) else x)}" for name, x in settings.items()]
    if len(said) > MAX_SETTINGS:
        said = [*said[: MAX_SETTINGS - 1], f"{len(said) - MAX_SETTINGS + 1} more settings of its own"]
    return f" with {', '.join(said[:-1])}{' and ' if said[1:] else ''}{said[-1]}" if said else ""


def _distinctive_fields(candidates: Sequence[Preset], free: Collection[str]) -> set[str]:
    """Return the fields that are equal in all presets of each file but differ between files."""
    of_file: dict[str, list[Any]] = {}
    for candidate in candidates:
        of_file.setdefault(candidate.module.__name__, []).append(candidate.config)
    first = candidates[0].config
    return {
        name
        for name in (f.name for f in dataclasses.fields(first) if f.name not in free)
        if all(len({repr(getattr(c, name)) for c in configs}) == 1 for configs in of_file.values())
        and len({repr(getattr(c, name)) for configs in of_file.values() for c in configs}) > 1
    }


def _relative_difference(one: Any, other: Any) -> float:
    """Return the relative difference of two values of a setting; 1 if they are not numbers."""
    ones, others = (x if isinstance(x, tuple) else (x,) for x in (one, other))
    pairs = list(zip(ones, others))
    if len(ones) != len(others) or any(isinstance(x, bool) or not isinstance(x, int | float) for p in pairs for x in p):
        return 1.0
    total: float = sum(abs(a - b) / max(abs(a), abs(b), 1) for a, b in pairs)
    return total / max(len(pairs), 1)


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
