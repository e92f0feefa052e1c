"""Every recipe asks for settings that there are: whoever renames one sees here what asked for it."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cutaway.core.config import build, field_names
from cutaway.data.settings import DataSettings
from cutaway.models.registry import preset
from cutaway.training.config import TrainSettings

RECIPES = sorted((Path(__file__).parents[1] / "recipes").glob("*.toml"))


def asked(table: Any) -> Iterator[dict[str, Any]]:
    """Every table of settings in a recipe, however deep it stands."""
    for key, value in table.items() if isinstance(table, dict) else ():
        if key == "settings":
            yield value
        else:
            yield from asked(value)


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_asks_for_settings_that_there_are(path: Path) -> None:
    recipe = tomllib.loads(path.read_text(encoding="utf-8"))
    found = preset(recipe["model"])
    for settings in asked(recipe):
        own = {key: value for key, value in settings.items() if key != "model"}
        build(TrainSettings, {key: value for key, value in own.items() if key not in field_names(DataSettings)})
        build(DataSettings, {key: value for key, value in own.items() if key in field_names(DataSettings)})
        found.configure(settings=settings.get("model", {}))
