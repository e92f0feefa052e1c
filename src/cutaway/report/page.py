"""report.html: the description of a run and the modules that draw it, in one file that opens offline.

The modules of draw/ go in unchanged but for the names they import each other by: an import map leads each name to a
`data:` URL. The page may run nothing but these (a Content-Security-Policy says so) and load nothing at all.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from importlib import resources
from pathlib import Path
from urllib.parse import quote

from ..files import write_text
from .description import Page
from .documents import read_documents
from .views import describe

START = """
import { drawPage } from "cutaway/page.js";
drawPage(document.querySelector("main"), JSON.parse(document.querySelector("#page").textContent));
"""

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


def write_report(run_folder: Path) -> Path:
    """Write report.html into a run's folder, from the documents there, and give its path.

    Raises FileError where a document is damaged or the page cannot be written.
    """
    path = run_folder / "report.html"
    write_text(path, page(describe(read_documents(run_folder))))
    return path


def page(description: Page) -> str:
    """The page as one HTML document."""
    style, imports = _drawing("style.css"), _embedded(json.dumps({"imports": _imports()}))
    policy = (
        f"default-src 'none'; script-src data: {_hash(imports)} {_hash(START)}; style-src {_hash(style)}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    return PAGE.format(
        policy=policy,
        title=html.escape(description["title"]),
        style=style,
        imports=imports,
        description=_embedded(json.dumps(description, ensure_ascii=False, allow_nan=False)),
        start=START,
    )


def _imports() -> dict[str, str]:
    """The import map: `cutaway/scale.js` → the module as a data: URL, with "./scale.js" in it renamed likewise."""
    modules = sorted(f.name for f in resources.files(__package__).joinpath("draw").iterdir() if f.name.endswith(".js"))
    named = {name: re.sub(r'(\bfrom )"\./', r'\1"cutaway/', _drawing(name)) for name in modules}
    return {f"cutaway/{name}": f"data:text/javascript;charset=utf-8,{quote(text)}" for name, text in named.items()}


def _drawing(name: str) -> str:
    return resources.files(__package__).joinpath("draw", name).read_text(encoding="utf-8")


def _embedded(text: str) -> str:
    """JSON that can stand in a script element: with no `<` in it, nothing can end the element."""
    return text.replace("<", "\\u003c")


def _hash(text: str) -> str:
    """A script or style as the policy names it."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
