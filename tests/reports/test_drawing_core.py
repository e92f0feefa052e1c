"""The drawings that look inside, in a browser: by pointer, by keyboard, over time, at any width and on any ground."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from cutaway.draw.html_page import render_page

from . import drawings
from .opened import Opened

pytestmark = [pytest.mark.browser, pytest.mark.waits]

MARKED = "stage => stage.querySelectorAll('svg rect.chosen').length"
# Every frame of half a second in which a view is drawn anew thirty times: does its drawing lack a picture, ever?
UPDATES = """
async ([name, versions]) => {
  const { updateView } = await import("cutaway/view.js");
  const section = document.getElementById(name);
  const blank = [];
  for (let i = 0; i < 30; i++) {
    updateView(section, versions[i % versions.length]);
    await new Promise(requestAnimationFrame);
    const images = [...section.querySelectorAll("svg image")];
    blank.push(images.length === 0);
  }
  await new Promise((done) => setTimeout(done, 200));
  return blank.filter(Boolean).length;
}
"""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page with all of them, as a file."""
    found = tmp_path_factory.mktemp("inside") / "inside.html"
    found.write_text(render_page(drawings.everything()), encoding="utf-8")
    return found


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1280, 2560])
def test_they_open_without_request_or_complaint_at_any_width(browser: Any, path: Path, width: int, scheme: str) -> None:
    opened = Opened(browser, path, width, color_scheme=scheme)
    assert opened.wrong() == []
    assert opened.wider_than_window() == 0
    wide = opened.tab.evaluate(
        "[...document.querySelectorAll('.stage svg')].flatMap(svg => [...svg.querySelectorAll('text,rect,image')]"
        ".filter(e => getComputedStyle(e).visibility === 'visible')"
        ".filter(e => e.getBoundingClientRect().right > svg.getBoundingClientRect().right + 1).map(e => e.outerHTML))"
    )
    assert wide == []
    assert opened.tab.locator("main img").count() == 0  # names stay names
    assert opened.tab.locator("#equation figcaption").is_visible() == (width == 400)
    opened.tab.set_viewport_size({"width": width // 2 + 300, "height": 900})
    opened.until_drawn()
    assert opened.wrong() == []
    assert opened.wider_than_window() == 0
    opened.tab.close()


def test_pointing_at_a_value_marks_its_row_and_column_and_leaving_unmarks_them(browser: Any, path: Path) -> None:
    opened = Opened(browser, path)
    stage = opened.tab.locator("#matrix .stage").first
    stage.scroll_into_view_if_needed()
    box = stage.locator("svg").bounding_box()
    opened.tab.mouse.move(box["x"] + 160, box["y"] + 160)
    opened.until(f"({MARKED})(document.querySelector('#matrix .stage')) === 2")
    assert "query: " in opened.tab.locator(".tip").inner_text()
    opened.tab.mouse.move(5, 5)
    opened.until(f"({MARKED})(document.querySelector('#matrix .stage')) === 0")
    assert not opened.tab.locator(".tip").is_visible()

    stage.focus()
    opened.tab.keyboard.press("Home")
    opened.tab.keyboard.press("ArrowDown")
    opened.until(f"({MARKED})(document.querySelector('#matrix .stage')) === 2")
    assert opened.tab.locator(".tip").inner_text().split("\n")[1:] == ["query: quick", "key: The"]
    assert opened.tab.evaluate("document.activeElement.matches('#matrix .stage')")
    opened.tab.keyboard.press("Escape")
    opened.until(f"({MARKED})(document.querySelector('#matrix .stage')) === 0")
    assert opened.wrong() == []
    opened.tab.close()


def test_a_number_of_a_product_marks_what_it_is_made_of(browser: Any, path: Path) -> None:
    opened = Opened(browser, path)
    opened.tab.locator("#equation .stage").focus()
    opened.tab.keyboard.press("End")
    tip = opened.tab.locator(".tip").inner_text()
    assert tip.split("\n") == ["1", "C: row 3, column 3", "= 0 · 2 + 1 · 1"]
    opened.until(f"({MARKED})(document.querySelector('#equation .stage')) === 3")
    opened.tab.close()


def test_a_map_opens_to_its_values_and_closes_again_by_keyboard(browser: Any, path: Path) -> None:
    opened = Opened(browser, path)
    stage = opened.tab.locator("#tiles .stage")
    before = stage.bounding_box()["height"]
    stage.focus()
    opened.tab.keyboard.press("Home")
    tip = opened.tab.locator(".tip")
    assert tip.inner_text().split("\n") == ["conv1, 0", "from −0.1586 to 0.1666"]
    opened.tab.keyboard.press("Enter")
    opened.until(f"document.querySelector('#tiles .stage').clientHeight > {before} + 100")
    assert opened.tab.evaluate("document.activeElement.matches('#tiles .stage')")
    opened.tab.keyboard.press("ArrowDown")
    opened.tab.keyboard.press("ArrowRight")
    assert tip.inner_text().split("\n") == ["no value", "conv1, 0", "row 1, column 2"]
    opened.tab.keyboard.press("ArrowDown")
    assert tip.inner_text().split("\n")[-1] == "row 2, column 2"
    opened.tab.keyboard.press("Enter")
    opened.until(f"document.querySelector('#tiles .stage').clientHeight === {before}")
    assert opened.wrong() == []
    opened.tab.close()


def test_whoever_looks_chooses_what_the_strongest_colour_means(browser: Any, path: Path) -> None:
    opened = Opened(browser, path)
    field = opened.tab.get_by_label("Colours span the values")
    pictures = "[...document.querySelectorAll('#tiles image')].map(i => i.getAttribute('href')).join()"
    keys = "document.querySelectorAll('#tiles g.key').length"
    before = opened.tab.evaluate(pictures)
    assert opened.tab.evaluate(keys) == 2  # one for each group
    field.focus()
    opened.tab.keyboard.press("ArrowDown")
    opened.until(f"{keys} === 1")
    assert field.input_value() == "2"
    assert opened.tab.evaluate("document.activeElement.tagName") == "SELECT"
    assert opened.tab.evaluate(pictures) != before
    opened.tab.close()


def test_a_choice_shows_the_chosen_one_alone_and_remembers(browser: Any, path: Path) -> None:
    opened = Opened(browser, path)
    attention = opened.tab.locator("#attention")
    assert attention.locator("figure").count() == 1
    assert attention.locator(".prose").inner_text() == "Head 1."
    attention.get_by_label("head", exact=True).focus()
    opened.tab.keyboard.press("ArrowRight")
    assert attention.get_by_label("head", exact=True).get_attribute("aria-valuetext") == "head 2"
    assert attention.locator(".prose").inner_text() == "Head 2."
    attention.get_by_label("layer", exact=True).focus()
    opened.tab.keyboard.press("ArrowDown")
    assert attention.get_by_label("layer", exact=True).input_value() == "1"
    assert attention.locator(".prose").inner_text() == "Head 2."  # chosen by name in the other layer too
    assert attention.locator("figure").count() == 1
    assert opened.tab.evaluate("document.activeElement.tagName") == "SELECT"
    opened.until_drawn()
    assert opened.wrong() == []
    opened.tab.close()


@pytest.mark.parametrize("motion", ["no-preference", "reduce"])
def test_a_slider_plays_to_its_end_only_when_asked(browser: Any, path: Path, motion: str) -> None:
    opened = Opened(browser, path, reduced_motion=motion)
    attention = opened.tab.locator("#attention")
    slider = attention.get_by_label("head", exact=True)
    opened.tab.wait_for_timeout(1100)
    assert slider.input_value() == "1"
    button = attention.get_by_role("button", name="Play")
    button.focus()
    opened.tab.keyboard.press("Enter")
    assert attention.get_by_role("button", name="Pause").count() == 1
    opened.until("document.querySelector('#attention input').value === '3'")
    button.wait_for()  # it has stopped
    assert opened.tab.evaluate("document.activeElement.className") == "play"
    assert opened.tab.evaluate("document.getAnimations().length") == 0
    assert opened.wrong() == []
    opened.tab.close()


def test_a_map_that_fails_its_check_says_so_on_the_picture_and_lets_it_through(browser: Any, path: Path) -> None:
    opened = Opened(browser, path)
    ribbon = " ".join(opened.tab.locator("#overlay svg .ribbon text").all_text_contents())
    assert ribbon.startswith("fails its check: the parts sum to 3.1")
    slider = opened.tab.get_by_label("Opacity of the map")
    slider.focus()
    opened.tab.keyboard.press("Home")
    opened.until("document.querySelector('#overlay image[opacity]').getAttribute('opacity') === '0'")
    assert slider.get_attribute("aria-valuetext") == "0 %"
    assert opened.wrong() == []
    opened.tab.close()


def test_a_view_is_drawn_anew_in_place_without_a_blank_and_keeps_focus_and_words(browser: Any, path: Path) -> None:
    opened = Opened(browser, path)
    versions = [drawings.view("tiles", drawings.tiles(phase)) for phase in (0.0, 0.3, 0.6, 0.9)]
    for version in versions:
        version["summary"] = "It moves."
    stage = opened.tab.locator("#tiles .stage")
    stage.focus()
    opened.tab.keyboard.press("Home")
    opened.tab.keyboard.press("ArrowRight")
    nodes = opened.tab.evaluate("document.querySelectorAll('*').length")
    first = opened.tab.evaluate("document.querySelector('#tiles image').getAttribute('href')")
    assert opened.tab.evaluate(UPDATES, ["tiles", versions]) == 0
    assert opened.tab.evaluate("document.querySelector('#tiles image').getAttribute('href')") != first
    assert opened.tab.evaluate("document.querySelectorAll('*').length") == nodes
    assert opened.tab.locator("#tiles .summary").text_content() == "It moves."
    assert opened.tab.evaluate("document.activeElement.matches('#tiles .stage')")
    assert opened.tab.locator("#tiles .ring").count() == 1
    assert opened.tab.locator(".tip strong").inner_text() == "conv1, 1"
    assert opened.wrong() == []
    opened.tab.close()


def test_two_drawings_can_point_at_the_same_thing(browser: Any, path: Path) -> None:
    opened = Opened(browser, path)
    opened.tab.evaluate("window.keys = []; addEventListener('hovering', event => keys.push(event.detail.key))")
    opened.tab.locator("#matrix .stage").first.focus()
    opened.tab.keyboard.press("End")
    opened.tab.evaluate("document.activeElement.blur()")
    assert opened.tab.evaluate("keys") == ["0,0", "5,5", None]
    opened.tab.evaluate("document.querySelector('#attention .stage').point('2,1')")
    opened.until(f"({MARKED})(document.querySelector('#attention .stage')) === 2")
    assert opened.tab.locator("#attention .ring").count() == 1
    assert not opened.tab.locator(".tip").is_visible()
    assert len(opened.tab.evaluate("keys")) == 3  # it told no one
    opened.tab.evaluate("document.querySelector('#attention .stage').point(null)")
    opened.until(f"({MARKED})(document.querySelector('#attention .stage')) === 0")
    opened.tab.close()


def test_pictures_of_numbers_follow_the_ground_and_are_light_on_paper(browser: Any, path: Path) -> None:
    opened = Opened(browser, path)
    picture = "document.querySelector('#tiles image').getAttribute('href')"
    light = opened.tab.evaluate(picture)
    opened.tab.emulate_media(color_scheme="dark")
    opened.until(f"{picture} !== '{light}'")
    opened.tab.emulate_media(color_scheme="dark", media="print")
    opened.until(f"{picture} === '{light}'")
    assert not opened.tab.locator(".play").is_visible()
    assert opened.tab.locator("#attention output").is_visible()  # which of them is shown
    opened.tab.close()


def test_pictures_of_numbers_are_in_what_is_saved(browser: Any, path: Path, tmp_path: Path) -> None:
    opened = Opened(browser, path)
    for kind in ("SVG", "PNG"):
        with opened.tab.expect_download() as download:
            opened.tab.get_by_role("button", name=f"Save Filters as {kind}").click()
        download.value.save_as(tmp_path / f"saved.{kind.lower()}")
    text = (tmp_path / "saved.svg").read_text(encoding="utf-8")
    assert text.count("data:image/png;base64,") == 6
    assert "pixelated" in text
    assert ">Filters<" in text
    with Image.open(tmp_path / "saved.png") as saved:
        colours = saved.convert("RGB").getcolors(1 << 22)
    assert sum(1 for _, (r, g, b) in colours if g > r + 40 and g > b + 40) > 5  # greens
    assert sum(1 for _, (r, g, b) in colours if b > g + 40 and r > g + 40) > 5  # purples
    assert opened.wrong() == []
    opened.tab.close()


def test_how_it_is_read_and_where_it_misleads_is_folded_under_the_summary(browser: Any, path: Path) -> None:
    opened = Opened(browser, path)
    words = opened.tab.get_by_text("Where it misleads.").last
    assert not words.is_visible()
    opened.tab.get_by_text("How to read it, where it misleads").click()
    assert words.is_visible()
    assert opened.tab.locator("#matrix .guidance").count() == 0
    opened.tab.close()


def test_the_keyboard_reaches_every_control_and_drawing(browser: Any, path: Path) -> None:
    opened = Opened(browser, path)
    wanted = opened.tab.locator(".stage, select, input, .play").count()
    seen = set()
    for _ in range(120):
        opened.tab.keyboard.press("Tab")
        seen.add(
            opened.tab.evaluate(
                "[...document.querySelectorAll('.stage, select, input, .play')].indexOf(document.activeElement)"
            )
        )
    assert len(seen - {-1}) == wanted
    names = opened.tab.evaluate(
        "[...document.querySelectorAll('select, input')].every(field => field.labels.length === 1)"
    )
    assert names
    opened.tab.close()


def test_a_page_carries_little_beside_its_numbers() -> None:
    import json

    description = drawings.everything()
    assert len(render_page(description)) - len(json.dumps(description)) < 110_000
