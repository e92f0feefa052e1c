"""The browser in which pages are looked at."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import pytest

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Headless Chromium; the tests are skipped by name where there is none."""
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found is None:
        pytest.skip("needs Chromium to look at the page")
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright to look at the page")
    with playwright.sync_playwright() as started:
        chromium = started.chromium.launch(executable_path=found, args=ARGUMENTS)
        yield chromium
        chromium.close()
