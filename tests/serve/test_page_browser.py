"""The page in a browser: drawn from the document, it asks nothing of other hosts, and a request can be sent."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from cutaway.apps.serve import server as serving
from cutaway.apps.serve.server import serve
from cutaway.runs.run import Run

pytestmark = [pytest.mark.browser, pytest.mark.waits]
TOKEN = "0123456789abcdef"


@pytest.fixture
def address(run_of: Callable[[str], Run], monkeypatch: pytest.MonkeyPatch) -> Any:
    """Where a server in another thread of this process answers."""
    found: list[str] = []
    servers: list[serving.Server] = []
    original = serving.Server.__init__

    def kept(self: serving.Server, *given: Any) -> None:
        original(self, *given)
        servers.append(self)

    monkeypatch.setattr(serving.Server, "__init__", kept)
    words = (run_of("words").folder, "127.0.0.1", 0, TOKEN)
    thread = threading.Thread(target=lambda: serve(*words, on_start=found.append))
    thread.start()
    while not found:
        time.sleep(0.01)
    yield found[0]
    servers[0].should_exit = True
    thread.join()


def test_what_can_be_asked_is_asked(address: str, browser: Any) -> None:
    page = browser.new_page(viewport={"width": 380, "height": 800})
    said: list[str] = []
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda asked: said.append(asked.url) if not asked.url.startswith((address, "data:")) else None)
    page.goto(address)
    page.wait_for_selector("#token:not([hidden])")  # before it, nothing of the run is shown
    assert "token" in page.inner_text("#about")
    page.fill("#token input", TOKEN)
    page.click("#token button")
    page.wait_for_selector(".door")
    assert page.inner_text("h1") == "words"
    assert page.evaluate("document.documentElement.scrollWidth") <= 380
    door = page.locator(".door", has=page.locator("code:text-is('/generate')"))
    door.locator("summary").click()
    door.locator("textarea").fill('{"prompt": "the", "count": 5, "stream": true}')
    door.locator("button").click()
    door.locator("pre", has_text='"finish":"length"').wait_for()
    door.locator("textarea").fill('{"count": 0}')
    door.locator("button").click()
    door.locator("pre.bad", has_text="Invalid count=0: must be").wait_for()
    assert said == []
    page.close()
