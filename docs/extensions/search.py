"""The search of the site: `search-index.js`, which `_static/search.js` ranks in the browser, without a server.

The index has one entry for each heading of a page, each setting of docs/reference/settings.md and each name of the
Python reference. It is read from the Markdown, so that tests can rank questions without building the site; `make site`
checks every anchor. Synonyms are in docs/search_words.txt.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

DOCS = Path(__file__).parents[1]
WORDS = DOCS / "search_words.txt"
EXCLUDED = ("extensions/", "cluster/", "gallery/notebooks/", "comparison.md", "_")
# Pages that mention many topics and explain few rank below those that explain one.
WEIGHTS = {
    "changelog": 0.25,
    "contributing": 0.5,
    "extending": 0.6,
    "reference/errors": 0.5,
    "reference/documents": 0.6,
    "reference/command-line": 0.7,
    "reference/settings": 0.85,
    "reference/python": 0.7,
    "gallery": 0.6,
    "results": 0.6,
    "published_results": 0.6,
    "benchmarks": 0.6,
    "errata": 0.7,
    "notation": 0.7,
    "policy": 0.7,
    "course": 0.8,
}
LONGEST = 2500  # characters of an entry, except of the lists of error messages, which people search for word by word
HEADING = re.compile(r"(#{1,6}) +(.+?)\s*#*$")
OBJECT = re.compile(r":{3,}\{py:(function|class|method|property|exception|attribute|data)\} *(?:async )?([\w.]+)")
SETTING = re.compile(r"\| \[`([^`]+)`\]\{#([\w-]+)\}")
INCLUDE = re.compile(r"^```\{include\} (\S+)\n(?:.*\n)*?```$", re.MULTILINE)
FENCE = re.compile(r" *(`{3,}|~{3,})(.*)$")
MARKUP = (
    (re.compile(r"<!--.*?-->", re.DOTALL), " "),
    (re.compile(r"!?\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\([^)\s]*(?: \"[^\"]*\")?\)"), r"\1"),
    (re.compile(r"\[([^\[\]]*)\]\{#[\w-]+\}"), r"\1"),
    (re.compile(r"\{#[\w-]+\}|</?[a-zA-Z][^<>]*>"), " "),
    (re.compile(r"\\([^\w\s])"), r"\1"),
    (re.compile(r"[`*]+|(?<!\w)_+|_+(?!\w)"), ""),
    (re.compile(r"\|(?:\s*:?-+:?\s*\|)+"), " "),
    (re.compile(r"\s*\|\s*|\s+"), " "),
)

MATH = re.compile(r"(?<![\\$\w])\$(?=\S)([^$]+?)(?<=[^\s\\])\$(?![\d$])")
SYMBOLS = {
    "approx": "≈", "cdot": "·", "dots": "…", "ge": "≥", "in": "∈", "infty": "∞", "ldots": "…", "le": "≤", "lVert": "‖",
    "mid": "|", "odot": "⊙", "partial": "∂", "rVert": "‖", "sqrt": "√", "sum": "Σ", "times": "×", "to": "→", "top": "ᵀ",
}  # fmt: skip
FONTS = (
    "bar",
    "boldsymbol",
    "hat",
    "left",
    "mathbb",
    "mathbf",
    "mathcal",
    "mathrm",
    "operatorname",
    "right",
    "text",
    "tfrac",
)


class Entry(NamedTuple):
    """One part of a page that a search can find: its page, anchor, headings from the page's title down, and text."""

    page: str
    anchor: str
    titles: tuple[str, ...]
    text: str


def setup(app: Any) -> dict[str, bool]:
    """Replace the search of Sphinx."""
    app.connect("builder-inited", _replace)
    app.connect("build-finished", _write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _replace(app: Any) -> None:
    app.builder.search = False  # whose index and page are not written; docs/_templates/search.html is ours
    app.config.html_additional_pages["search"] = "search.html"


def _write(app: Any, error: Exception | None) -> None:
    if error or app.builder.name != "html":
        return
    from docutils import nodes
    from sphinx.util.logging import getLogger

    pages = {name: Path(app.env.doc2path(name)).read_text(encoding="utf-8") for name in sorted(app.env.found_docs)}
    found = []
    for name, text in pages.items():
        tree = app.env.get_doctree(name)
        ids = {one for node in tree.findall(nodes.Element) for one in node.get("ids", ())}
        for entry in entries(name, text):
            if entry.anchor and entry.anchor not in ids:
                getLogger(__name__).warning(
                    "the search index links to #%s, which is not there", entry.anchor, location=name
                )
            found.append(entry)
    Path(app.outdir, "search-index.js").write_text(script(found), encoding="utf-8")


def script(found: Iterable[Entry]) -> str:
    """Return the index as JavaScript, which a page can load from disk, where it may not fetch JSON."""
    pages: dict[str, list[Any]] = {}
    for entry in found:
        page = pages.setdefault(entry.page, [entry.page, entry.titles[0], weight(entry.page), []])
        page[3].append([entry.anchor, len(entry.titles), entry.titles[-1] if entry.titles[1:] else "", entry.text])
    index = {"pages": list(pages.values()), "words": words()}
    return f"globalThis.searchIndex = {json.dumps(index, ensure_ascii=False, separators=(',', ':'))};\n"


def weight(page: str) -> float:
    """Return the factor of a page's scores: that of its longest prefix in WEIGHTS."""
    prefixes = [prefix for prefix in WEIGHTS if page == prefix or page.startswith(f"{prefix}/")]
    return WEIGHTS[max(prefixes, key=len)] if prefixes else 1.0


def words() -> list[list[list[str]]]:
    """Return the synonyms of docs/search_words.txt: what is typed, and what is searched for as well."""
    found = []
    for line in WORDS.read_text(encoding="utf-8").splitlines():
        if line.strip() and not line.startswith("#"):
            left, arrow, right = line.partition("->")
            typed = [word.strip() for word in left.split(",")]
            found.append([typed, [word.strip() for word in right.split(",")] if arrow else typed])
    return found


def sources(reference: dict[str, str]) -> dict[str, str]:
    """Return the Markdown of each page by its name, with the generated pages from `reference`, by path in docs/."""
    found = {path.relative_to(DOCS).as_posix(): path.read_text(encoding="utf-8") for path in DOCS.rglob("*.md")}
    found = {path: text for path, text in found.items() if not path.startswith(("reference/", "gallery/"))}
    found |= reference
    return {path.removesuffix(".md"): text for path, text in sorted(found.items()) if not path.startswith(EXCLUDED)}


def entries(page: str, source: str) -> Iterator[Entry]:
    """Yield the entries of a page in order. A part without text, such as a heading above others, has an entry too."""
    source = INCLUDE.sub(lambda found: (DOCS / page).parent.joinpath(found[1]).read_text(encoding="utf-8"), source)
    source = re.sub(r"\A---\n.*?\n---\n", "", source, flags=re.DOTALL)
    titles: list[str] = []
    anchors: set[str] = set()
    module, anchor, lines, fence, kept = "", "", list[str](), "", True
    parts: list[tuple[str, tuple[str, ...], list[str]]] = []
    classes: list[str] = []
    displayed = False  # between the two $$ of an equation, which is left out
    for line in source.splitlines():
        if marks := FENCE.match(line):
            if not fence:
                fence, kept = marks[1], not marks[2].startswith(("{code-cell", "{raw", "{toctree", "{py:module"))
                if marks[2].startswith("{py:module}"):
                    module = marks[2].split()[1]
            elif line.strip().startswith(fence) and not marks[2].strip():
                fence, kept = "", True
            continue
        if fence:
            if kept and not line.startswith(":"):
                lines.append(line)
            continue
        if displayed or line.lstrip().startswith("$$"):
            displayed ^= line.count("$$") == 1
            continue
        if heading := HEADING.match(line):
            level, title = len(heading[1]), plain(heading[2])
            titles = [*titles[: level - 1], title]
            anchor = slug(title) if level > 1 and slug(title) not in anchors else ""
            anchors.add(anchor)
            lines = []
            parts.append((anchor, tuple(titles), lines))
        elif thing := OBJECT.match(line):
            name = thing[2]
            if thing[1] in ("class", "exception"):
                classes = [name]
            elif thing[1] in ("method", "property", "attribute") and "." not in name:
                name = ".".join([*classes, name])
            lines = [line.partition("}")[2]]
            parts.append((f"{module}.{name}" if module else name, (*titles[:1], name), lines))
        elif row := SETTING.match(line):
            parts.append((slug(row[2]), (*titles, row[1]), [line]))
        elif not re.match(r":{3,}|:[\w-]+:|\+\+\+$|\(\S+\)=$", line):
            lines.append(MATH.sub(lambda math: tex_to_text(math[1]), line))
    for anchor, headings, those in parts:
        text = plain("\n".join(those).replace("([source](source:", "([]("))
        yield Entry(page, anchor, headings, text if page.startswith("reference/errors") else text[:LONGEST])


def plain(text: str) -> str:
    """Return Markdown without its marks."""
    for pattern, new in MARKUP:
        text = pattern.sub(new, text)
    return text.strip()


def tex_to_text(tex: str) -> str:
    """Return inline mathematics as it can be read in one line."""

    def symbol(command: re.Match[str]) -> str:
        name = command[1]
        if name in FONTS:
            return ""
        size = "CAPITAL" if name[0].isupper() else "SMALL"
        try:
            return SYMBOLS.get(name) or unicodedata.lookup(f"GREEK {size} LETTER {name.upper()}")
        except KeyError:
            return f" {name} "

    text = re.sub(r"\\[,;:! ]", " ", tex)
    text = re.sub(r"\\([a-zA-Z]+)\*? ?", symbol, text)
    return " ".join(re.sub(r"[{}\\]", "", text).split())


def slug(title: str) -> str:
    """Return the id that docutils makes of a heading."""
    text = unicodedata.normalize("NFKD", title.lower()).encode("ascii", "ignore").decode()
    return re.sub(r"^[-0-9]+|-+$", "", re.sub(r"[^a-z0-9]+", "-", text))
