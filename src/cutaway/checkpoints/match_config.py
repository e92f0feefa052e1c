"""Which preset a config is, or is nearest to, and what it has otherwise: how a model that nobody named is called."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from ..core.config import as_text
from ..models.registry import Preset

NAMED = 4  # settings that a phrase names; of more it says how many


def differing(config: Any, other: Any, free: Collection[str] = ()) -> dict[str, Any]:
    """The settings in which a config is not another of its class, with its own values; those in `free` left out. A
    hidden size that is left open is 4 · dim."""

    def differ(field: str) -> bool:
        mine, theirs = getattr(config, field), getattr(other, field)
        if field == "ffn_dim" and mine != theirs and None in (mine, theirs):
            mine, theirs = (4 * c.dim if x is None else x for x, c in ((mine, config), (theirs, other)))
        return bool(mine != theirs)

    names = [f.name for f in dataclasses.fields(config) if f.name not in free and differ(f.name)]
    return {name: getattr(config, name) for name in names}


def nearest(config: Any, candidates: Iterable[Preset], free: Collection[str] = ()) -> Preset:
    """The candidate whose config is this one, or is told from it by the fewest settings.

    A setting that tells files of models apart (what makes RoBERTa no BERT) weighs more than any that presets of one
    file differ by (how many layers); where as many differ, the smaller difference in numbers decides. `free` are
    settings by which no preset is told.
    """
    candidates = list(candidates)
    telling = _telling(candidates, free)

    def distance(candidate: Preset) -> tuple[int, int, float]:
        fields = differing(config, candidate.config, free)
        own = sum(name in telling for name in fields)
        return own, len(fields), sum(_apart(value, getattr(candidate.config, name)) for name, value in fields.items())

    return min(candidates, key=distance)


def with_settings(settings: Mapping[str, Any]) -> str:
    """` with layers=2 and dim=64`: the settings by which a model is not its preset; empty where there are none. The
    first few are named. JSON's lists are settings' tuples."""
    said = [f"{name}={as_text(tuple(x) if isinstance(x, list) else x)}" for name, x in settings.items()]
    if len(said) > NAMED:
        said = [*said[: NAMED - 1], f"{len(said) - NAMED + 1} more settings of its own"]
    return f" with {', '.join(said[:-1])}{' and ' if said[1:] else ''}{said[-1]}" if said else ""


def _telling(candidates: Sequence[Preset], free: Collection[str]) -> set[str]:
    """The fields that all presets of each file have alike, and not all files."""
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


def _apart(one: Any, other: Any) -> float:
    """How far two values of a setting are from each other, in their own size; 1 where they are no numbers."""
    ones, others = (x if isinstance(x, tuple) else (x,) for x in (one, other))
    pairs = list(zip(ones, others))
    if len(ones) != len(others) or any(isinstance(x, bool) or not isinstance(x, int | float) for p in pairs for x in p):
        return 1.0
    total: float = sum(abs(a - b) / max(abs(a), abs(b), 1) for a, b in pairs)
    return total / max(len(pairs), 1)
