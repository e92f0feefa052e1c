"""The list of all presets, from the registry: each leads to its architecture's card."""

from __future__ import annotations

import importlib.util
import re
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

from cutaway.draw.number_format import count
from cutaway.models.registry import presets

DOCS = Path(__file__).parents[2]
HEAD = """# Models

{presets} presets of {families} architectures. Each architecture is one file, held by `cutaway verify` to its paper's
counts and to an independent implementation, outputs and gradients. A name leads to its card: equation, paper, picture,
counts, settings, and where the paper, this file and common implementations differ.

```{{raw}} html
<div class="filter" data-filter="article tbody tr" data-kind="2" data-family="3" hidden></div>
```

| preset | takes | family | parameters | paper |
| --- | --- | --- | ---: | --- |
"""


def pages() -> dict[str, str]:
    """One page."""
    rows = []
    for name, preset in presets().items():
        card = preset.card.card
        link = f"[`{name}`]({address(preset.module)})"
        paper = f"[{card.title.rstrip('.')}]({card.link}), {card.year}".replace("|", "\\|")
        parameters = preset.card.published_parameters or made().counted(preset).parameters
        cells = (link, ", ".join(preset.takes), card.family, count(parameters), paper)
        rows.append(f"| {' | '.join(cells)} |")
    families = len({preset.module for preset in presets().values()})
    return {"reference/models.md": HEAD.format(presets=len(rows), families=families) + "\n".join(rows) + "\n"}


@cache
def made() -> ModuleType:
    """docs/make.py, which writes the pages of the architectures."""
    spec = importlib.util.spec_from_file_location("docs_make", DOCS / "make.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["docs_make"] = module
    spec.loader.exec_module(module)
    return module


@cache
def address(module: ModuleType, above: str = "../") -> str:
    """Where an architecture's card stands, from a page one folder down."""
    for page in made().PAGES:
        of_family = made().families(page).get(module)
        if of_family:
            title = (module.__doc__ or "").strip().partition("\n\n")[0].strip().rstrip(".")
            slug = re.sub(r"[^\w\- ]", "", " ".join(title.split()).lower()).replace(" ", "-")
            return f"{above}{page.name}.md#{slug}"
    raise LookupError(module.__name__)


@cache
def picture(module: ModuleType) -> str:
    """The picture of an architecture, by its path in docs/."""
    name = module.__name__.rpartition(".")[2]
    return (
        next(page.pictures / f"{name}.svg" for page in made().PAGES if module in made().families(page))
        .relative_to(DOCS)
        .as_posix()
    )
