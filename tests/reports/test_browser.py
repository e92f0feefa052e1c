"""The page in a browser: it opens offline, complains of nothing, and can be used by eye, by ear and by keyboard."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from cutaway.reports.run_report import write_report

from . import samples
from .opened import Opened

pytestmark = [pytest.mark.browser, pytest.mark.waits]

HOSTILE = ("</script><script>alert(1)</script>", "<img src=x onerror=alert(1)>", "owl")
RUNS: dict[str, tuple[dict[str, Any] | None, str]] = {
    "classes": (samples.classification(), "image"),
    "values": (samples.regression(), "table"),
    "hostile": (samples.classification(HOSTILE), "image"),
    "unfinished": (None, "image"),
}
# The colour of the first shaded cell, and that of the page.
COLOURS = """
[document.querySelector("figure.heat .tint"), document.body]
  .map((element, i) => getComputedStyle(element)[i ? "backgroundColor" : "fill"])
"""


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A report of each kind."""
    folder = tmp_path_factory.mktemp("runs")
    return {name: write_report(samples.write(folder / name, *documents)) for name, documents in RUNS.items()}


@pytest.mark.parametrize("width", [400, 1280, 2560])
@pytest.mark.parametrize("name", RUNS)
def test_it_opens_without_request_or_complaint_at_any_width(
    browser: Any, reports: dict[str, Path], name: str, width: int
) -> None:
    page = Opened(browser, reports[name], width)
    assert page.wrong() == []
    assert page.wider_than_window() == 0
    page.tab.set_viewport_size({"width": width // 2 + 300, "height": 900})  # drawn again at another width
    page.until_drawn()
    assert page.wrong() == []
    assert page.wider_than_window() == 0
    page.tab.close()


@pytest.mark.parametrize("name", RUNS)
def test_every_view_has_title_sentence_and_numbers(browser: Any, reports: dict[str, Path], name: str) -> None:
    page = Opened(browser, reports[name])
    views = page.tab.locator("section.view").all()
    assert len(views) >= 6
    for view in views:
        assert view.locator("h1, h2").inner_text()
        assert view.locator(".says").inner_text().endswith(".")
        assert view.locator(".summary").text_content().endswith(".")
        view.locator(".body > details > summary").click()
        assert view.locator(".body > details table tbody tr").first.is_visible()
        for stage in view.locator(".stage").all():
            described = stage.get_attribute("aria-describedby")
            assert page.tab.locator(f"#{described}").text_content()
    links = page.tab.locator("nav a").all()
    assert len(links) == len(views) - 1
    for link in links:
        assert page.tab.locator(link.get_attribute("href")).count() == 1
    assert page.tab.locator("h1").count() == 1
    page.tab.close()


def test_names_that_are_markup_are_shown_as_text(browser: Any, reports: dict[str, Path]) -> None:
    page = Opened(browser, reports["hostile"])
    dialogs: list[str] = []
    page.tab.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))
    text = page.tab.locator("main").text_content()
    assert HOSTILE[0] in text
    assert HOSTILE[1] in text
    assert page.tab.locator("img").count() == 0
    assert page.tab.locator("script").count() == 3
    page.tab.locator("figure.heat .stage").focus()
    page.tab.keyboard.press("ArrowRight")
    assert HOSTILE[1] in page.tab.locator(".tip").inner_text()
    assert dialogs == []
    assert page.wrong() == []
    page.tab.close()


def test_the_keyboard_reaches_every_drawing_and_moves_within_it(browser: Any, reports: dict[str, Path]) -> None:
    page = Opened(browser, reports["classes"])
    stages = page.tab.locator(".stage").count()
    reached: list[str] = []
    for _ in range(200):
        page.tab.keyboard.press("Tab")
        at = page.tab.evaluate("document.activeElement.matches('.stage') && document.activeElement.ariaLabel")
        if at:
            reached.append(at)
            assert page.tab.locator(".tip").is_visible()
        if len(reached) == stages:
            break
    assert len(set(reached)) == stages

    page.tab.locator("figure.heat .stage").focus()
    tip = page.tab.locator(".tip")
    for key, said in (
        ("Home", "cat, correct"),
        ("ArrowRight", "cat predicted as dog"),
        ("ArrowDown", "dog, correct"),
        ("ArrowLeft", "dog predicted as cat"),
        ("ArrowUp", "cat, correct"),
        ("ArrowUp", "cat, correct"),
        ("End", "owl, correct"),
    ):
        page.tab.keyboard.press(key)
        assert tip.locator("strong").inner_text() == said
    assert tip.get_attribute("role") == "status"
    page.tab.keyboard.press("Escape")
    assert not tip.is_visible()
    assert page.wrong() == []
    page.tab.close()


def test_a_drawing_can_be_saved_as_svg_and_as_png(browser: Any, reports: dict[str, Path], tmp_path: Path) -> None:
    page = Opened(browser, reports["classes"])
    shown = page.tab.locator("figure.heat svg").bounding_box()
    for kind in ("SVG", "PNG"):
        with page.tab.expect_download() as download:
            page.tab.get_by_role("button", name=f"Save Actual and predicted as {kind}").click()
        assert download.value.suggested_filename == f"actual-and-predicted.{kind.lower()}"
        download.value.save_as(tmp_path / f"saved.{kind.lower()}")
    drawing = (tmp_path / "saved.svg").read_text(encoding="utf-8")
    assert "var(" not in drawing
    assert "class=" not in drawing
    assert "dog" in drawing
    with Image.open(tmp_path / "saved.png") as picture:
        assert picture.width == pytest.approx(2 * (shown["width"] + 32), abs=2)
        assert len(picture.convert("RGB").getcolors(1 << 20)) > 10  # it is not blank
    assert page.wrong() == []
    page.tab.close()


def test_colours_follow_the_page_and_paper_is_always_light(browser: Any, reports: dict[str, Path]) -> None:
    page = Opened(browser, reports["classes"])
    light = page.tab.evaluate(COLOURS)
    page.tab.emulate_media(color_scheme="dark")
    dark = page.tab.evaluate(COLOURS)
    assert light[0] != dark[0]
    assert light[1] != dark[1]
    page.tab.emulate_media(color_scheme="dark", media="print")
    assert page.tab.evaluate(COLOURS) == [light[0], "rgb(255, 255, 255)"]
    assert not page.tab.locator(".exports").first.is_visible()
    page.tab.close()


def test_nothing_moves_for_those_who_asked_for_less_motion(browser: Any, reports: dict[str, Path]) -> None:
    page = Opened(browser, reports["classes"], reduced_motion="reduce")
    assert page.tab.evaluate("getComputedStyle(document.documentElement).scrollBehavior") == "auto"
    assert page.tab.evaluate("document.getAnimations().length") == 0
    page.tab.close()


def test_without_scripts_it_says_where_the_figures_are(browser: Any, reports: dict[str, Path]) -> None:
    tab = browser.new_page(java_script_enabled=False)
    tab.goto(reports["classes"].as_uri())
    assert "evaluation.json" in tab.locator("body").inner_text()
    tab.close()


def test_the_command_can_be_copied(browser: Any, reports: dict[str, Path]) -> None:
    page = Opened(browser, reports["classes"])
    page.tab.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.tab.locator("#repeat").get_by_role("button", name="Copy").click()
    page.tab.get_by_role("button", name="Copied").wait_for()
    assert page.tab.evaluate("navigator.clipboard.readText()") == samples.run()["command"]
    assert page.wrong() == []
    page.tab.close()
