"""`llms.txt`, for programs that read the site, and the pages above this version's folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from docutils import nodes

ABOUT = """# Cutaway {version}

> Neural networks you can see into: one Python package on PyTorch. Each architecture is one readable file held to an
> independent implementation; training, evaluation with intervals, reports and views of the inside are one command each.

Each page is given with its Markdown.
"""
FORWARD = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Cutaway</title>
<meta http-equiv="refresh" content="0; url={version}/index.html"><link rel="icon" href="data:,"></head>
<body><p><a href="{version}/index.html">Cutaway {version}</a></p></body></html>
"""


def setup(app: Any) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("build-finished", _write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _write(app: Any, error: Exception | None) -> None:
    if error or app.builder.name != "html":
        return
    lines = [ABOUT.format(version=app.config.version)]
    for docname in sorted(app.env.found_docs, key=lambda name: (name.count("/"), name)):
        title = app.env.titles[docname].astext()
        lines.append(f"- [{title}](_sources/{docname}.md): {_first(app.env.get_doctree(docname))}")
    out = Path(app.outdir)
    (out / "llms.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    versions = sorted((one.name for one in out.parent.iterdir() if (one / "objects.inv").is_file()), reverse=True)
    (out.parent / "versions.json").write_text(json.dumps(versions), encoding="utf-8")
    (out.parent / "index.html").write_text(FORWARD.format(version=app.config.version), encoding="utf-8")


def _first(tree: nodes.document) -> str:
    """The first sentence of a page."""
    for paragraph in tree.findall(nodes.paragraph):
        words = " ".join(paragraph.astext().split())
        if len(words) > 20:
            return words.partition(". ")[0].rstrip(".") + "."
    return ""
