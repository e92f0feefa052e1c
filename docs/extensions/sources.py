"""Links from a page to a file of the repository lead, on the site, to a page with that file's text.

On GitHub ``[`nn/attention.py`](../src/cutaway/nn/attention.py)`` opens the file. Here it becomes `source:src/cutaway/…`
while the page is read, and the file is written, highlighted and with a number for each line, under `source/`.

The pages under reference/ are generated from the code and are not in the repository. A link in words to a file that one
of them is generated from leads to that page on the site, and to the file on GitHub:
`[settings of the loss](../src/cutaway/training/config.py#training-loss)`.
"""

from __future__ import annotations

import posixpath
import re
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_for_filename
from pygments.util import ClassNotFound

if TYPE_CHECKING:
    from docutils import nodes

ROOT = Path(__file__).parents[2]
TEMPLATE = Path(__file__).parents[1] / "_templates" / "source.html"
LINK = re.compile(r"(?P<quote>`?)\]\((?P<path>(?:\.\./)+[^)#\s]*)(?P<anchor>#[^)\s]*)?\)")
PAGES = {"README.md": "/index.md", "CHANGELOG.md": "/changelog.md", "CONTRIBUTING.md": "/contributing.md"}
GENERATED = {
    "src/cutaway/__init__.py": "/reference/python.md",
    "src/cutaway/data/settings.py": "/reference/settings.md",
    "src/cutaway/models": "/reference/models.md",
    "src/cutaway/training/config.py": "/reference/settings.md",
    "src/cutaway/training/run_folder.py": "/reference/documents.md",
}


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
    """Replace links that leave docs/ by links of the site."""
    found: set[str] = set()

    def replacement(link: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(docname), link["path"]))
        anchor = link["anchor"] or ""
        if path.startswith("docs/"):
            return link[0]
        if path in PAGES:
            return f"{link['quote']}]({PAGES[path]}{anchor})"
        if path in GENERATED and not link["quote"]:
            return f"]({GENERATED[path]}{anchor})"
        if not (ROOT / path).exists():
            return link[0]  # Sphinx reports it
        found.add(path)
        return f"{link['quote']}](source:{path})"

    source[0] = LINK.sub(replacement, source[0])
    found |= set(re.findall(r"\]\(source:([^)\s#]+)", source[0]))
    _linked(app.env)[docname] = found


def _resolve(app: Any, tree: nodes.document, docname: str) -> None:
    from docutils.nodes import reference

    for link in tree.findall(reference):
        if link.get("refuri", "").startswith("source:"):
            path, _, at = link["refuri"].removeprefix("source:").partition("#")
            link["refuri"] = app.builder.get_relative_uri(docname, f"source/{path}") + (f"#{at}" if at else "")


def _pages(app: Any) -> list[Any]:
    """Write a page for each file or folder that is linked to, and for the files of those folders, where there is none
    that is as new. None is left for Sphinx to write, which would make all menus for each."""
    paths = {path for found in _linked(app.env).values() for path in found}
    for path in sorted(paths):
        if (ROOT / path).is_dir():
            paths |= {f"{path}/{one.name}" for one in (ROOT / path).iterdir() if one.suffix in (".py", ".toml", ".js")}
    makes = max(one.stat().st_mtime for one in (Path(__file__), TEMPLATE))
    for path in sorted(paths):
        page = Path(app.outdir) / "source" / f"{path}.html"
        if page.is_file() and page.stat().st_mtime > max(makes, (ROOT / path).stat().st_mtime):
            continue
        above = "../" * (path.count("/") + 1)
        words = {"title": path, "body": _body(path), "version": app.config.version, "above": above}
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(app.builder.templates.render(TEMPLATE.name, words), encoding="utf-8")
    return []


class Plain(HtmlFormatter):  # type: ignore[type-arg]
    """Words in the colours of source.css, each line after its number; what has no colour there has no mark."""

    MARKED = ("k", "kn", "kc", "ow", "nf", "nc", "nd", "nt", "s", "s1", "s2", "sd", "sa", "si", "se", "c", "c1", "ch")

    def _get_css_classes(self, ttype: Any) -> str:
        name = super()._get_css_classes(ttype)
        return name if name in self.MARKED else ""


def _body(path: str) -> str:
    """The text of a file, or the list of a folder's."""
    if (ROOT / path).is_dir():
        name = posixpath.basename(path)
        files = sorted(one.name for one in (ROOT / path).iterdir() if one.suffix in (".py", ".toml", ".js"))
        return "".join(f'<p><a href="{name}/{escape(one)}.html">{escape(one)}</a></p>' for one in files)
    try:
        lexer = get_lexer_for_filename(path)
    except ClassNotFound:
        lexer = get_lexer_for_filename("a.txt")
    text = highlight((ROOT / path).read_text(encoding="utf-8"), lexer, Plain(nowrap=True))
    lines = text.rstrip("\n").split("\n")
    return "<pre>" + "\n".join(f'<a class="l" id="L-{i}">{i}</a>{line}' for i, line in enumerate(lines, 1)) + "</pre>"
