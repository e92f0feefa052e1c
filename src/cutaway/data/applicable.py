"""Which data settings mean something for which kind of data: the others are refused by name, never ignored."""

from __future__ import annotations

import dataclasses

from ..errors import SettingError
from ..settings import as_text
from .settings import DataSettings

OF_TABLES = ("target", "ignore", "types", "group", "missing", "scale")
OF_IMAGES = (
    *("image_size", "fit", "color", "memory", "workers"),
    *("flip", "crop", "color_jitter", "cutout"),
)


def refuse_settings_for_others(settings: DataSettings, kind: str) -> None:
    """Raise SettingError for a setting that was changed and is not for this kind of data: table, image or series."""
    foreign = {
        "tables": OF_TABLES if kind != "table" else (),
        "images": OF_IMAGES if kind != "image" else (),
    }
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        for whose, keys in foreign.items():
            if field.name in keys and value != field.default:
                raise SettingError(
                    f"{field.name}={as_text(value)} is for {whose}, and this is {kind} data: leave it out."
                )
