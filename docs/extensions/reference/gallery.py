"""The gallery: every recipe that has a result, and every view, as cards."""

from __future__ import annotations

import json
import tomllib
from html import escape
from pathlib import Path
from typing import Any

from PIL import Image
from recipes import minilm
from recipes.__main__ import figure, interval, machine

from cutaway.core.metric_names import metric as words_of
from cutaway.models.registry import preset
from cutaway.views.registry import VIEWS

from .models import address, picture

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
WIDEST, COLOURS = 480, 64  # pixels and colours of a view's picture on its card
RECIPES = """# Recipes

Each score was obtained by the command of its card. The 95 % confidence interval is for the score on further examples;
for several runs it is that of their mean. [One table](../results.md) has all results, with the published scores.

```{raw} html
<div class="filter" data-filter=".recipe" hidden></div>
```

"""
LOOKS = """# Views

All views of the inside of a model. [Each view in detail](../inspect.md): how to read it, and where it misleads.

"""


def pages() -> dict[str, str]:
    """Two pages."""
    return {"gallery/recipes.md": _recipes(), "gallery/views.md": _views()}


def _recipes() -> str:
    """A card for each recipe that was trained."""
    results = json.loads((DOCS / "results.json").read_text(encoding="utf-8"))
    cards = []
    for path in sorted((ROOT / "recipes").glob("*.toml")):
        recipe, row = tomllib.loads(path.read_text(encoding="utf-8")), results.get(path.stem)
        if row:
            cards.append(_card(path.stem, recipe, row))
    return RECIPES + "::::{grid} 1 2 2 3\n:gutter: 3\n\n" + "\n".join(cards) + "\n::::\n"


def _card(name: str, recipe: dict[str, Any], row: dict[str, Any]) -> str:
    """One recipe."""
    found = preset(recipe["model"])
    kinds = " ".join(f"kind-{kind}" for kind in found.takes)
    links = [f"[{recipe['model']}]({address(found.module)})"]
    if not recipe.get("kind") and minilm.NAME not in recipe["settings"].values():
        links.append(f"{{download}}`notebook <{_notebook(name, recipe)}>`")
    metric = recipe["metric"]
    value = f"{words_of(metric)[0]} {figure(metric, row['value'])}"
    return (
        f":::{{grid-item-card}} {recipe['title']}\n:class-item: recipe {kinds} family-{found.card.card.family}\n"
        f":img-top: ../{picture(found.module)}\n:img-alt: The blocks of {recipe['model']}\n\n"
        f"**{value}** ({interval(metric, row)})\n\n`{row['command']}`\n\n"
        f"{_time(row['seconds'])}{machine(row)}. {' · '.join(links)}\n:::\n"
    )


def _time(seconds: float | None) -> str:
    """Return how long a recipe took, before the machine; nothing for one that was not timed."""
    if seconds is None:
        return ""
    if seconds < 90:
        return f"{seconds:.0f} s, "
    return f"{seconds / 60:.0f} min, " if seconds < 5400 else f"{seconds / 3600:.1f} h, "


def _notebook(name: str, recipe: dict[str, Any]) -> str:
    """A notebook that trains the recipe, evaluates and looks inside; its path from the gallery."""
    import nbformat  # comes with the site's extra, and tests read this file without it
    from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

    settings = "".join(f",\n    {_keyword(key, value)}" for key, value in _flat(recipe["settings"]).items())
    over = recipe.get("over", {})
    words = [f"# {recipe['title']}"]
    if over:
        ((key, values),) = over.items()
        words.append(f"The score of the gallery is the mean over `{key}` from {values[0]} to {values[-1]}.")
        settings += f",\n    {_keyword(key, values[0])}"
    cells = [
        new_markdown_cell("\n\n".join(words)),
        new_code_cell(
            f'import cutaway\n\nrun = cutaway.train(\n    "{recipe["model"]}",\n    "{recipe["data"]}"{settings},\n)'
        ),
        new_code_cell("run.evaluate()"),
        new_code_cell("cutaway.look(run.folder)"),
    ]
    for i, cell in enumerate(cells):
        cell["id"] = str(i)
    path = DOCS / "gallery" / "notebooks" / f"{name}.ipynb"
    path.parent.mkdir(parents=True, exist_ok=True)
    text = nbformat.writes(new_notebook(cells=cells)) + "\n"
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")
    return f"notebooks/{path.name}"


def _flat(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings with a model's own as model.KEY."""
    own = settings.get("model", {})
    return {key: value for key, value in settings.items() if key != "model"} | {f"model.{k}": v for k, v in own.items()}


def _keyword(key: str, value: Any) -> str:
    return f"{key}={value!r}" if key.isidentifier() else f'**{{"{key}": {value!r}}}'


def _views() -> str:
    """A card for each view."""
    cards = []
    for name, view in VIEWS.items():
        drawn = DOCS / "images" / "inspect" / f"{name}.png"
        image = f":img-top: {_small(drawn)}\n:img-alt: The view {name}\n" if drawn.is_file() else ""
        cards.append(
            f":::{{grid-item-card}} {name}\n:link: ../inspect.html#{name}\n{image}\n"
            f"{escape(view.says)}.\n\n"
            f"`--view {name}`\n:::\n"
        )
    return LOOKS + "::::{grid} 1 2 2 3\n:gutter: 3\n\n" + "\n".join(cards) + "\n::::\n"


def _small(drawn: Path) -> str:
    """A picture for a card, as wide as two cards' pixels: its path beside the pages of the gallery."""
    path = DOCS / "gallery" / "pictures" / drawn.name
    if not path.is_file() or path.stat().st_mtime < drawn.stat().st_mtime:
        path.parent.mkdir(parents=True, exist_ok=True)
        image = Image.open(drawn).convert("RGB")
        image.thumbnail((WIDEST, image.height), Image.Resampling.LANCZOS)
        image.quantize(COLOURS, dither=Image.Dither.NONE).save(path, optimize=True)
    return f"pictures/{path.name}"
