"""Which data settings mean something for which kind of data: the others are rejected by name, never ignored."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from ..errors import SettingError
from ..settings import as_text, short
from .kinds import KINDS
from .settings import DataSettings


def reject_settings_for_others(settings: DataSettings, kind: str) -> None:
    """Raise SettingError for a setting that was changed and means nothing for this kind of data."""
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        whose = [other.plural for other in KINDS.values() if field.name in other.settings]
        if whose and field.name not in KINDS[kind].settings and value != field.default:
            raise SettingError(
                f"{field.name}={short(as_text(value))} is for {_listed(whose)}, and this is {kind} data: leave it out."
            )


def reject_changed(settings: DataSettings, keys: Iterable[str], why: str) -> None:
    """Raise SettingError for the first of these settings that was changed; `why` follows its name and value."""
    usual = DataSettings()
    for key in keys:
        value = getattr(settings, key)
        if value != getattr(usual, key):
            raise SettingError(f"{key}={short(as_text(value))} {why}: leave it out.")


def _listed(words: list[str]) -> str:
    """images; tables and graphs; tables, text and graphs."""
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last
