"""Drawings of notebooks as files of their own: a page stays light, and each is drawn when it is scrolled to.

What `cutaway.look` shows in a notebook is a frame that holds its whole document. On the site the document stands in
`drawings/`, once however often it is shown, and works from a folder as from a server.
"""

from __future__ import annotations

import hashlib
import html
import re
from pathlib import Path
from typing import Any

FRAME = re.compile(r'<iframe ([^>]*?)srcdoc="([^"]*)"([^>]*)></iframe>')


def setup(app: Any) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("html-page-context", _apart)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _apart(app: Any, pagename: str, templatename: str, context: dict[str, Any], doctree: Any) -> None:
    body = context.get("body")
    if not body or "srcdoc=" not in body:
        return
    up = "../" * pagename.count("/")

    def apart(frame: re.Match[str]) -> str:
        document = html.unescape(frame[2])
        name = hashlib.sha256(document.encode()).hexdigest()[:16] + ".html"
        path = Path(app.outdir, "drawings", name)
        path.parent.mkdir(exist_ok=True)
        path.write_text(document, encoding="utf-8")
        return f'<iframe {frame[1]}src="{up}drawings/{name}" loading="lazy"{frame[3]}></iframe>'

    context["body"] = FRAME.sub(apart, body)
