"""A page that is a notebook can be taken along as one: `notebooks/NAME.ipynb`, without outputs, linked at its top."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

LINK = re.compile(r"\[([^\[\]]*)\]\((?!https?:)[^)\s]+\)")  # to another page, or to a file of the repository


def setup(app: Any) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("config-inited", _create_cache)
    app.connect("html-page-context", _link)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _create_cache(app: Any, config: Any) -> None:
    """Create the database of the outputs before pages are read in parallel: two processes that both create it fail."""
    if config.nb_execution_mode != "off":
        from jupyter_cache import get_cache

        get_cache(config.nb_execution_cache_path).list_cache_records()


def to_notebook(text: str) -> Any:
    """Convert a page to a notebook that stands alone: folded where the page is, of links to other pages the words."""
    import jupytext

    notebook = jupytext.reads(text, fmt="md:myst")
    for cell in notebook.cells:
        if {"hide-input", "hide-cell"} & set(cell.metadata.get("tags", ())):
            cell.metadata["jupyter"] = {"source_hidden": True}  # as JupyterLab folds a cell
        elif cell.cell_type == "markdown":
            cell.source = LINK.sub(r"\1", cell.source)
    return notebook


def _link(app: Any, pagename: str, templatename: str, context: dict[str, Any], doctree: Any) -> None:
    if doctree is None:
        return
    source = Path(app.env.doc2path(pagename))
    text = source.read_text(encoding="utf-8") if source.suffix == ".md" else ""
    if not (text.startswith("---") and "format_name: myst" in text.partition("\n---")[0]):
        return
    import jupytext

    notebook = to_notebook(text)
    path = Path(app.outdir, "notebooks", f"{pagename.replace('/', '-')}.ipynb")
    path.parent.mkdir(exist_ok=True)
    jupytext.write(notebook, path, fmt="ipynb")
    href = f"{'../' * pagename.count('/')}notebooks/{path.name}"
    note = f'<p class="take-along"><a href="{href}" download>Download this page as a notebook</a></p>'
    head, end, rest = context["body"].partition("</h1>")
    context["body"] = f"{head}{end}{note}{rest}"
