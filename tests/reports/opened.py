"""A page opened in a browser, with an ear for all that goes wrong in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

# What goes wrong in a page without a word on its console: errors of observers, and what the policy turned away.
LISTEN = """
window.wrong = [];
addEventListener("error", (event) => wrong.push(event.message));
addEventListener("unhandledrejection", (event) => wrong.push(String(event.reason)));
addEventListener("securitypolicyviolation", (event) => wrong.push(`${event.violatedDirective} ${event.blockedURI}`));
"""
DRAWN = """
[...document.querySelectorAll(".stage")].every((stage) => {
  const svg = stage.querySelector("svg");
  return svg && Number(svg.getAttribute("width")) === stage.clientWidth;
})
"""


class Opened:
    """A page that is open, and all that it asked for or complained of."""

    def __init__(self, browser: Any, path: Path, width: int = 1280, **options: Any) -> None:
        self.tab = browser.new_page(viewport={"width": width, "height": 900}, **options)
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self.tab.on("request", lambda request: self.requests.append(request.url))
        self.tab.on("console", lambda message: self.complaints.append(message.text))
        self.tab.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.tab.add_init_script(LISTEN)
        self.tab.goto(path.as_uri())
        self.until_drawn()

    def until_drawn(self) -> None:
        """Wait until every drawing fills its place: they follow a change of width in the next frame."""
        for _ in range(100):
            if self.tab.evaluate(DRAWN):
                return
            self.tab.wait_for_timeout(20)
        raise AssertionError("a drawing does not fill its place")

    def until(self, expression: str) -> None:
        """Wait until that is so in the page. (Playwright's own waiting asks for `eval`, which the page turns away.)"""
        for _ in range(200):
            if self.tab.evaluate(expression):
                return
            self.tab.wait_for_timeout(20)
        raise AssertionError(f"never so: {expression}")

    def wrong(self) -> list[str]:
        """Requests other than for the page itself, and every complaint."""
        beyond = [url for url in self.requests if not url.startswith(("data:", "blob:", self.tab.url.split("#")[0]))]
        return beyond + self.complaints + self.tab.evaluate("wrong")

    def wider_than_window(self) -> int:
        """By how many pixels the page has to be scrolled sideways."""
        return int(self.tab.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth"))
