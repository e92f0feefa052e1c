"""Links from a page to a file of the repository lead, on the site, to a page with that file's text.

On GitHub `[nn/attention.py](../src/cutaway/nn/attention.py)` opens the file. Here it becomes `source:src/cutaway/…`
while the page is read, and the file is written, highlighted and with a number for each line, under `source/`.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

from docutils import nodes
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_for_filename
from pygments.util import ClassNotFound

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"\]\(((?:\.\./)+[^)#\s]*)(#[^)\s]*)?\)")
PAGES = {"README.md": "/index.md", "CHANGELOG.md": "/changelog.md", "CONTRIBUTING.md": "/contributing.md"}


def setup(app: Any) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("source-read", _read)
    app.connect("env-purge-doc", lambda app, env, docname: _linked(env).pop(docname, None))
    app.connect("env-merge-info", lambda app, env, docnames, other: _linked(env).update(_linked(other)))
    app.connect("doctree-resolved", _resolve)
    app.connect("html-collect-pages", _pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _linked(env: Any) -> dict[str, set[str]]:
    """The files that each page links to."""
    if not hasattr(env, "cutaway_sources"):
        env.cutaway_sources = {}
    found: dict[str, set[str]] = env.cutaway_sources
    return found


def _read(app: Any, docname: str, source: list[str]) -> None:
    """Turn links that leave docs/ into links of the site."""
    found: set[str] = set()

    def turned(link: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(docname), link[1]))
        if path.startswith("docs/"):
            return link[0]
        if path in PAGES:
            return f"]({PAGES[path]})"
        if not (ROOT / path).exists():
            return link[0]  # Sphinx says that it leads nowhere
        found.add(path)
        return f"](source:{path})"

    source[0] = LINK.sub(turned, source[0])
    found |= set(re.findall(r"\]\(source:([^)\s#]+)", source[0]))
    _linked(app.env)[docname] = found


def _resolve(app: Any, tree: nodes.document, docname: str) -> None:
    for link in tree.findall(nodes.reference):
        if link.get("refuri", "").startswith("source:"):
            path, _, at = link["refuri"].removeprefix("source:").partition("#")
            link["refuri"] = app.builder.get_relative_uri(docname, f"source/{path}") + (f"#{at}" if at else "")


def _pages(app: Any) -> Iterator[tuple[str, dict[str, Any], str]]:
    """A page for each file or folder that is linked to, and for the files of those folders."""
    paths = {path for found in _linked(app.env).values() for path in found}
    for path in sorted(paths):
        if (ROOT / path).is_dir():
            paths |= {f"{path}/{one.name}" for one in (ROOT / path).iterdir() if one.suffix in (".py", ".toml", ".js")}
    for path in sorted(paths):
        yield f"source/{path}", {"title": path, "body": _body(path), "parents": []}, "page.html"


def _body(path: str) -> str:
    """The page of a file, or of a folder."""
    head = f"<section><h1>{escape(path)}</h1>"
    if (ROOT / path).is_dir():
        name = posixpath.basename(path)
        files = sorted(one.name for one in (ROOT / path).iterdir() if one.suffix in (".py", ".toml", ".js"))
        rows = "".join(f'<li><a href="{name}/{escape(one)}.html">{escape(one)}</a></li>' for one in files)
        return f"{head}<ul>{rows}</ul></section>"
    try:
        lexer = get_lexer_for_filename(path)
    except ClassNotFound:
        lexer = get_lexer_for_filename("a.txt")
    shape = HtmlFormatter(linenos="inline", linespans="L", anchorlinenos=False, wrapcode=True)
    text = (ROOT / path).read_text(encoding="utf-8")
    code = highlight(text, lexer, shape)
    return f'{head}<div class="source" tabindex="0" role="region" aria-label="source">{code}</div></section>'
