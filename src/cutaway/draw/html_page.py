"""A page: descriptions of drawings and the modules that draw them, in one HTML file that opens offline.

The modules of draw/ that the page needs go in without their comments, and with other names to import each other by: an
import map leads each name to a `data:` URL. The page may run nothing but these (a Content-Security-Policy says so) and
load nothing at all.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import html
import json
import re
from collections.abc import Iterator
from importlib import resources
from urllib.parse import quote

from .description import Drawing, Page, View

# What a URL carries as it is. A `#` would end it, a `<` is longer in a script element.
PLAIN = "".join(chr(code) for code in range(32, 127) if chr(code) not in "%#<")

HEIGHT = 760  # pixels of a page in a notebook; it scrolls within
START = """
import { drawPage } from "cutaway/page.js";
drawPage(document.querySelector("main"), JSON.parse(document.querySelector("#page").textContent));
"""
# One view alone, within a page of other things, which it tells how high it is.
ALONE = """
import { drawView } from "cutaway/view.js";
const main = document.querySelector("main");
main.className = "alone";
main.append(drawView(JSON.parse(document.querySelector("#page").textContent)));
new ResizeObserver(() => parent.postMessage({ cutaway: "height", height: main.offsetHeight }, "*")).observe(main);
"""
GROW = """addEventListener("message", ({ data, source }) => {
const frame = document.getElementById("%s");
if (frame && source === frame.contentWindow && data?.cutaway === "height") frame.style.height = `${data.height}px`;
});"""

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title} · Cutaway</title>
<link rel="icon" href="data:,">
<style>{style}</style>
<script type="importmap">{imports}</script>
</head>
<body>
<main></main>
<noscript>This page is drawn by its own script, which is turned off here. The same figures stand, as plain text,
in evaluation.json, metrics.csv and run.json beside it.</noscript>
<script type="application/json" id="page">{description}</script>
<script type="module">{start}</script>
</body>
</html>
"""


def page(description: Page) -> str:
    """The page as one HTML document."""
    drawings = [drawing for view in description["views"] for drawing in view["drawings"]]
    return _document(description["title"], description, START, _imports("page.js", drawings))


def embedded(view: View, height: int) -> str:
    """One view, as HTML, in a frame of its own for a page of other things: `height` pixels, and as many as it needs
    once it is drawn. Like `framed` it can do nothing else."""
    document = _document(view["title"], view, ALONE, _imports("view.js", view["drawings"]))
    name = f"cutaway-{hashlib.sha256(document.encode()).hexdigest()[:12]}"
    return (
        f'<iframe id="{name}" title="{html.escape(view["title"])}" sandbox="allow-scripts" '
        f'style="width: 100%; height: {height}px; border: 0" srcdoc="{html.escape(document)}"></iframe>'
        f"<script>{GROW % name}</script>"
    )


def _document(title: str, description: Page | View, start: str, modules: dict[str, str]) -> str:
    style, imports = _drawing("style.css"), _embedded(json.dumps({"imports": modules}))
    policy = (
        f"default-src 'none'; script-src data: {_hash(imports)} {_hash(start)}; style-src {_hash(style)}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    return PAGE.format(
        policy=policy,
        title=html.escape(title),
        style=style,
        imports=imports,
        description=_embedded(json.dumps(description, ensure_ascii=False, allow_nan=False)),
        start=start,
    )


def framed(title: str, document: str) -> str:
    """A page, as HTML, in a frame of its own for a notebook, which can do nothing but draw: it has no network and no
    access to the notebook."""
    return (
        f'<iframe title="{html.escape(title)}" sandbox="allow-scripts" '
        f'style="width: 100%; height: {HEIGHT}px; border: 0; resize: vertical" '
        f'srcdoc="{html.escape(document)}"></iframe>'
    )


def _imports(first: str, drawings: list[Drawing]) -> dict[str, str]:
    """The import map: `cutaway/scale.js` → the module as a data: URL, with "./scale.js" in it renamed likewise.

    It has what the module `first` and these drawings need and no more, without comments and indents.
    """
    kinds = set(_kinds(drawings))
    found: dict[str, str] = {}
    wanted = [first]
    while wanted:
        name = wanted.pop()
        if name in found:
            continue
        text = _drawing(name)
        if name == "kinds.js":
            lines = text.splitlines()
            text = "\n".join(line for line in lines if (m := re.match(r"export \{ (\w+) ", line)) and m[1] in kinds)
        found[name] = re.sub(r'(\bfrom )"\./', r'\1"cutaway/', _bare(text))
        wanted += re.findall(r'\bfrom "\./([^"]+)"', text)
    return {
        f"cutaway/{name}": f"data:text/javascript;charset=utf-8,{_url(text)}" for name, text in sorted(found.items())
    }


def _kinds(drawings: list[Drawing]) -> Iterator[str]:
    """The kinds of some drawings and of all within them."""
    for drawing in drawings:
        yield drawing["kind"]
        for option in drawing.get("options", ()) if drawing["kind"] == "choice" else ():
            yield from _kinds(option["drawings"])


@functools.cache
def _bare(text: str) -> str:
    """A module without its comments, which have lines of their own or follow a statement's end, and without indents: a
    third less to carry."""
    text = re.sub(r"^\s*/\*\*.*?\*/\n", "", text, flags=re.MULTILINE | re.DOTALL)
    lines = (re.sub(r"(?<=[;,{]) // .*", "", line.strip()) for line in text.splitlines())
    return "\n".join(line for line in lines if line and not line.startswith("//"))


@functools.cache
def _url(text: str) -> str:
    """Text as a data: URL carries it: escaped where that has a meaning, and else as it is."""
    return quote(text, safe=PLAIN)


@functools.cache
def _drawing(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def _embedded(text: str) -> str:
    """JSON that can stand in a script element: with no `<` in it, nothing can end the element."""
    return text.replace("<", "\\u003c")


def _hash(text: str) -> str:
    """A script or style as the policy names it."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
