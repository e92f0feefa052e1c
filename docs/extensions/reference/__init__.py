"""What is made from the code each time the site is: docs/reference/ and docs/gallery/ hold nothing that anybody wrote.

Each module here gives pages, by their path in docs/. A page is written where its text has changed, so that
Sphinx reads again only that.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from . import command_line, documents, errors, gallery, models, python, settings

PARTS = (python, command_line, settings, documents, models, errors, gallery)


def setup(app: Any) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("config-inited", lambda app, config: write(Path(app.srcdir)))
    app.connect("build-finished", documents.publish)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def write(folder: Path) -> None:
    """Write into docs/ all pages, and take away what is none of them."""
    wanted = {folder / name: text for part in PARTS for name, text in part.pages().items()}
    for path, text in wanted.items():
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    for path in (*(folder / "reference").rglob("*.md"), *(folder / "gallery").rglob("*.md")):
        if path not in wanted:
            path.unlink()
