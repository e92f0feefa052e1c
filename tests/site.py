"""Hold the site to what it promises: python -m tests.site [FOLDER].

Every page is opened in Chromium, from its folder: no error in its console, nothing asked of another host, drawn within
a second. Links lead somewhere, to the very heading. No page is heavier than 1.5 MB, with what it loads at once, all of
them than 60 MB. Wide and narrow, in light and dark, axe-core finds no serious barrier, and nothing is wider than the
window.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import cutaway

ROOT = Path(__file__).parents[1]
CHROMIUM = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
PAGE, ALL = 1.5e6, 60e6  # bytes
SECONDS = 1.0  # until a page can be used, at the median
VIEWPORTS = ((1280, "light"), (390, "dark"))
SERIOUS = ("serious", "critical")
PER_FAMILY = 6  # pages of one folder that axe-core looks through: pages of a folder are made by one hand


class Seen(HTMLParser):
    """What a page links to and loads, and the names that others can link to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.loads_at_once: list[str] = []  # not only when it is scrolled to
        self.names: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what one element says."""
        found = dict(attrs)
        self.names |= {name for name in (found.get("id"), found.get("name") if tag == "a" else None) if name}
        if tag == "a" and found.get("href"):
            self.links.append(str(found["href"]))
        elif found.get("src") or (tag == "link" and found.get("rel") in ("stylesheet", "icon")):
            load = str(found.get("src") or found.get("href"))
            self.loads.append(load)
            if found.get("loading") != "lazy":
                self.loads_at_once.append(load)


def main(folder: str = "") -> int:
    """Check the site of this version, say what is wrong, and how much there is."""
    site = Path(folder or ROOT / "site" / cutaway.__version__).resolve()
    pages = sorted(site.rglob("*.html"))
    if not pages:
        print(f"{site} has no pages: make site", file=sys.stderr)
        return 2
    wrong = [*links(site, pages), *sizes(site, pages), *needed(site), *options(pages)]
    seconds: list[float] = []
    wrong += opened(site, pages, seconds)
    middle = sorted(seconds)[len(seconds) // 2] if seconds else 0.0
    if middle > SECONDS:
        wrong.append(f"a page takes {middle:.2f} s at the median")
    print("\n".join(wrong))
    total = sum(path.stat().st_size for path in site.rglob("*") if path.is_file())
    print(f"{len(pages)} pages, {total / 1e6:.1f} MB, {middle:.2f} s at the median; {len(wrong)} things are wrong.")
    return int(bool(wrong))


@cache
def seen(page: Path) -> Seen:
    """A page, read once."""
    return Seen(page.read_text(encoding="utf-8"))


def local(page: Path, link: str) -> tuple[Path, str] | None:
    """The file and the name in it that a link leads to; None where it leads away from the site."""
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return None
    path = page.parent / unquote(parts.path) if parts.path else page
    return (path / "index.html" if path.is_dir() else path).resolve(), unquote(parts.fragment)


def links(site: Path, pages: list[Path]) -> Iterator[str]:
    """Links that lead nowhere, and what is loaded from elsewhere."""
    for page in pages:
        name = page.relative_to(site)
        for link in seen(page).links:
            found = local(page, link)
            if found is None:
                continue
            path, place = found
            if not path.is_file() or not path.is_relative_to(site.parent):
                yield f"{name}: {link} leads nowhere"
            elif place and path.suffix == ".html" and place not in seen(path).names:
                yield f"{name}: {link} leads to no such place"
        for load in seen(page).loads:
            if not load.startswith("data:") and local(page, load) is None:
                yield f"{name}: loads {load}"


def loaded(page: Path) -> Iterator[Path]:
    """The files of the site that a page loads when it is opened."""
    for load in seen(page).loads_at_once:
        if found := local(page, load):
            yield found[0]


def sizes(site: Path, pages: list[Path]) -> Iterator[str]:
    """Pages that are too heavy with all that they show, and the whole."""
    for page in pages:
        heavy = sum(path.stat().st_size for path in {page, *loaded(page)})
        if heavy > PAGE:
            yield f"{page.relative_to(site)}: {heavy / 1e6:.2f} MB"
    if (site / "search-index.js").stat().st_size > PAGE:
        yield "search-index.js, which the page of the search loads once it is drawn, is too heavy"
    whole = sum(path.stat().st_size for path in site.rglob("*") if path.is_file())
    if whole > ALL:
        yield f"the site has {whole / 1e6:.1f} MB"


def needed(site: Path) -> Iterator[str]:
    """Files for other programs that are missing."""
    for name in ("objects.inv", "llms.txt", "search-index.js", "schemas/run.json"):
        if not (site / name).is_file():
            yield f"{name} is missing"


def options(pages: list[Path]) -> Iterator[str]:
    """Yield options whose two hyphens became a dash, so that what is copied does not work."""
    for page in pages:
        for found in re.findall(r"(?<![\w‹])–[a-z][\w-]+", page.read_text(encoding="utf-8")):
            yield f"{page.name}: {found} where an option has two hyphens"


def opened(site: Path, pages: list[Path], seconds: list[float]) -> Iterator[str]:
    """What Chromium says of each page."""
    from playwright.sync_api import sync_playwright

    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    axe = axe_core()
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=found, args=CHROMIUM)
        for width, scheme in VIEWPORTS:
            context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, offline=True)
            count = Counter[Path]()
            for k, page in enumerate(pages):
                if sys.stderr.isatty():
                    print(f"{width} pixels, {scheme}: {k} of {len(pages)} pages", end="\r", file=sys.stderr, flush=True)
                count[page.parent] += 1
                rest = count[page.parent] > PER_FAMILY
                if rest and (width, scheme) != VIEWPORTS[0]:
                    continue
                said, took = looked_at(context, site, page, "" if rest else axe)
                seconds.append(took)
                yield from (f"{page.relative_to(site)} at {width}, {scheme}: {one}" for one in said)
            context.close()
        if sys.stderr.isatty():
            print(" " * 50, end="\r", file=sys.stderr)
        browser.close()


def looked_at(context: Any, site: Path, page: Path, axe: str) -> tuple[list[str], float]:
    """What is wrong with one page in one window, and how long it took to be usable."""
    said: list[str] = []
    tab = context.new_page()
    tab.on("console", lambda message: said.append(message.text) if message.type == "error" else None)
    tab.on("pageerror", lambda error: said.append(str(error)))
    tab.on("request", lambda request: said.append(f"asks {request.url}") if not at_home(request.url) else None)
    begin = time.perf_counter()
    tab.goto(page.as_uri(), wait_until="domcontentloaded")
    took = time.perf_counter() - begin
    tab.wait_for_load_state("load")  # styles may come later than the text, and are what makes it fit
    wide = tab.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    if wide > 1:
        said.append(f"is {wide} pixels wider than the window")
    if axe:
        tab.evaluate(axe)
        result = tab.evaluate("axe.run(document, {iframes: false, preload: false, resultTypes: ['violations']})")
        for one in result["violations"]:
            if one["impact"] in SERIOUS:
                where = one["nodes"][0]["target"]
                said.append(f"{one['id']}, {one['help']}: {len(one['nodes'])}, as {where}")
    tab.close()
    return said, took


def at_home(url: str) -> bool:
    """Whether an address is the site's own, or what a page carries in itself."""
    return re.match(r"(file|data|blob|about):", url) is not None


def axe_core() -> str:
    """The script of axe-core, empty where its package is not installed, which is said."""
    spec = importlib.util.find_spec("axe_playwright_python")
    if spec is None or spec.origin is None:
        print(
            "axe-core is not here, so barriers are not looked for: pip install axe-playwright-python", file=sys.stderr
        )
        return ""
    return (Path(spec.origin).parent / "axe.min.js").read_text(encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
