"""HTML pages that open offline: descriptions of drawings together with the modules that draw them.

The page contains the modules of draw/ that it needs, without their comments. They import each other by new names: an
import map leads each name to a `data:` URL. A Content-Security-Policy allows only these scripts to run and allows no
network requests.
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

# Characters that a URL carries unescaped. A `#` would end it, a `<` is longer in a script element.
PLAIN = "".join(chr(code) for code in range(32, 127) if chr(code) not in "%#<")

HEIGHT = 760  # pixels, height of a page in a notebook; its content scrolls
START = """
import { drawPage } from "cutaway/page.js";
drawPage(document.querySelector("main"), JSON.parse(document.querySelector("#page").textContent));
"""
# One view inside another page; it reports its height to that page.
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
<noscript>This page needs JavaScript, which is disabled. The same figures are available as text in
evaluation.json, metrics.csv and run.json in the same folder.</noscript>
<script type="application/json" id="page">{description}</script>
<script type="module">{start}</script>
</body>
</html>
"""


def render_page(description: Page) -> str:
    """Return the page as one HTML document."""
    drawings = [drawing for view in description["views"] for drawing in view["drawings"]]
    return _document(description["title"], description, START, _imports("page.js", drawings))


def render_view(view: View, height: int) -> str:
    """Return one view as HTML in an iframe, for use inside another page.

    The frame starts with a height of `height` pixels and grows to the height of the drawn view. Like `framed`, it has
    no network access and no access to the page around it.
    """
    document = _document(view["title"], view, ALONE, _imports("view.js", view["drawings"]))
    name = f"cutaway-{hashlib.sha256(document.encode()).hexdigest()[:12]}"
    return (
        f'<iframe id="{name}" title="{html.escape(view["title"])}" sandbox="allow-scripts" '
        f'style="width: 100%; height: {height}px; border: 0" srcdoc="{html.escape(document)}"></iframe>'
        f"<script>{GROW % name}</script>"
    )


def _document(title: str, description: Page | View, start: str, modules: dict[str, str]) -> str:
    style, imports = _drawing("style.css"), _escape_json(json.dumps({"imports": modules}))
    policy = (
        f"default-src 'none'; script-src data: {_hash(imports)} {_hash(start)}; style-src {_hash(style)}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    return PAGE.format(
        policy=policy,
        title=html.escape(title),
        style=style,
        imports=imports,
        description=_escape_json(json.dumps(description, ensure_ascii=False, allow_nan=False)),
        start=start,
    )


def render_iframe(title: str, document: str) -> str:
    """Return a page as HTML in an iframe for a notebook.

    The frame can only draw: it has no network access and no access to the notebook.
    """
    return (
        f'<iframe title="{html.escape(title)}" sandbox="allow-scripts" '
        f'style="width: 100%; height: {HEIGHT}px; border: 0; resize: vertical" '
        f'srcdoc="{html.escape(document)}"></iframe>'
    )


def _imports(first: str, drawings: list[Drawing]) -> dict[str, str]:
    """Return the import map: `cutaway/scale.js` → the module as a data: URL, with "./scale.js" in it renamed to match.

    It contains `first`, the modules of these drawings and their dependencies, without comments and indentation.
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
        found[name] = re.sub(r'(\bfrom )"\./', r'\1"cutaway/', _minify(text))
        wanted += re.findall(r'\bfrom "\./([^"]+)"', text)
    return {
        f"cutaway/{name}": f"data:text/javascript;charset=utf-8,{_escape_for_data_url(text)}"
        for name, text in sorted(found.items())
    }


def _kinds(drawings: list[Drawing]) -> Iterator[str]:
    """Yield the kinds of the drawings and of all drawings nested in them."""
    for drawing in drawings:
        yield drawing["kind"]
        for option in drawing.get("options", ()) if drawing["kind"] == "choice" else ():
            yield from _kinds(option["drawings"])


@functools.cache
def _minify(text: str) -> str:
    """Return a module without comments and indentation, and with fewer line breaks: a third smaller.

    Comments have lines of their own or follow the end of a statement. A line break after a semicolon, a comma or an
    opening bracket has no meaning; in a URL it takes three characters.
    """
    text = re.sub(r"^\s*/\*\*.*?\*/\n", "", text, flags=re.MULTILINE | re.DOTALL)
    lines = (re.sub(r"(?<=[;,{]) // .*", "", line.strip()) for line in text.splitlines())
    kept = (line for line in lines if line and not line.startswith("//"))
    return "".join(line if line[-1] in ",;([{" and " // " not in line else f"{line}\n" for line in kept)


@functools.cache
def _escape_for_data_url(text: str) -> str:
    """Return text percent-encoded for a data: URL; printable ASCII stays as it is, except %, # and <."""
    return quote(text, safe=PLAIN)


@functools.cache
def _drawing(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def _escape_json(text: str) -> str:
    """Return JSON that is safe inside a script element: without `<`, nothing can end the element."""
    return text.replace("<", "\\u003c")


def _hash(text: str) -> str:
    """Return the hash of a script or style as the Content-Security-Policy writes it."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
