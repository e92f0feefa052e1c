"""Pictures of a page wait until they are scrolled to, and keep their place until then; the first is there at once."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from PIL import Image

PICTURE = re.compile(r'<img ([^>]*?)src="([^":]+\.png)"([^>]*?) ?/?>')


def setup(app: Any) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("html-page-context", _wait)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _wait(app: Any, pagename: str, templatename: str, context: dict[str, Any], doctree: Any) -> None:
    first = PICTURE.search(context.get("body") or "")
    if doctree is None or first is None:
        return
    sources = {name: Path(app.srcdir, source) for source, name in app.builder.images.items()}

    def waiting(picture: re.Match[str]) -> str:
        source = sources.get(Path(picture[2]).name)
        if source is None or picture.start() == first.start():
            return picture[0]
        width, height = Image.open(source).size
        return f'<img {picture[1]}src="{picture[2]}"{picture[3]} width="{width}" height="{height}" loading="lazy">'

    context["body"] = PICTURE.sub(waiting, context["body"])
