"""The studio's page in a browser, with the real server: it trains while it is watched, and is used by hand and key."""

from __future__ import annotations

import json
import re
import signal
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ..reports.opened import LISTEN
from .served import Served

pytestmark = [pytest.mark.browser, pytest.mark.waits]

PATIENCE = 90.0  # seconds; where a whole suite runs beside it, two processes that import torch take their time
SMALL = "model=mlp&model.hidden_dims=3&model.activation=tanh&model.dropout=0&batch_size=64"
MOONS = f"data=moons&count=120&{SMALL}&speed=0"
DRAWN = "[...document.querySelectorAll('#learned .stage')].some((stage) => stage.querySelector('svg'))"
STEP = "Number((document.querySelector('.far').textContent.match(/step ([^(]*)/) ?? [0, '0'])[1].replace(/\\D/g, ''))"
PICTURE = "[...document.querySelectorAll('#learned svg image')].map((image) => image.getAttribute('href')).join()"
# An EventSource that nothing comes through but what a test sends.
DEAF = """
window.sources = [];
window.EventSource = class extends EventTarget {
  constructor(url) { super(); this.url = url; sources.push(this); }
  close() {}
};
"""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A studio that runs, and where it is found."""
    studio = Served("--port", "0", folder=tmp_path_factory.mktemp("studio"))
    said: list[str] = []
    listening = threading.Thread(target=lambda: said.extend(studio.process.stderr or []), daemon=True)
    listening.start()
    assert studio.url.startswith("http://127.0.0.1:"), "".join(said)
    yield studio.url
    studio.process.send_signal(signal.SIGINT)
    assert studio.process.wait(timeout=30) == 0
    assert not (studio.work / "ran").exists(), (studio.work / "ran").read_text()
    listening.join(timeout=5)
    assert not [line for line in said if "Traceback" in line], "".join(said)


class Page:
    """The page, open at a state, and all that it asked for or complained of."""

    def __init__(self, browser: Any, url: str, state: str = "", width: int = 1280, script: str = "", **options: Any):
        self.tab = browser.new_page(viewport={"width": width, "height": 900}, **options)
        self.url = url
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self.tab.on("request", lambda request: self.requests.append(request.url))
        self.tab.on("console", lambda message: self.complaints.append(message.text))
        self.tab.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.tab.add_init_script(LISTEN + script)
        self.tab.set_default_timeout(PATIENCE * 1000)
        self.tab.goto(f"{url}#{state}" if state else url)

    def until(self, so: str | Callable[[], bool], what: str = "") -> None:
        """Wait until that is so. (Playwright's own waiting asks for `eval`, which the page turns away.)"""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            if self.tab.evaluate(so) if isinstance(so, str) else so():
                return
            self.tab.wait_for_timeout(50)
        raise AssertionError(f"never so: {what or so}; {self.tab.url} {self.text('.status')} {self.text('#lost')}")

    def until_drawn(self) -> None:
        """Wait until what the URL asks for is there and drawn."""
        wanted = self.state().get("steps", "0")
        there = f"({DRAWN}) && {STEP} >= {wanted}"
        self.until(f"{there} && !document.querySelector('.status').textContent.includes('Opening')")

    def text(self, selector: str) -> str:
        """The words of an element."""
        return str(self.tab.locator(selector).first.text_content())

    def state(self) -> dict[str, str]:
        """What stands in the URL."""
        pairs = self.tab.evaluate("location.hash.slice(1)").split("&")
        return {key: value for key, _, value in (pair.partition("=") for pair in pairs) if key}

    def press(self, name: str) -> None:
        """Press a button."""
        self.tab.get_by_role("button", name=name, exact=True).first.click()  # the player is above all

    def wrong(self) -> list[str]:
        """Requests beyond this server, and every complaint."""
        beyond = [url for url in self.requests if not url.startswith(("data:", "blob:", self.url))]
        return beyond + self.complaints + self.tab.evaluate("wrong")

    def wider_than_window(self) -> int:
        """By how many pixels the page has to be scrolled sideways."""
        return int(self.tab.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth"))

    def close(self) -> None:
        """See that nothing went wrong, and close it."""
        assert self.wrong() == []
        self.tab.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 400, 1280, 2560])
def test_it_opens_at_any_width_without_request_beyond_or_complaint(
    browser: Any, address: str, width: int, scheme: str
) -> None:
    page = Page(browser, address, f"{MOONS}&sides=2&b.seed=2", width, color_scheme=scheme)
    page.until_drawn()
    page.until("document.querySelectorAll('.pair.two').length > 0")
    assert page.wider_than_window() == 0
    for fold in page.tab.locator("#data > summary, #model > summary").all():
        if width < 900:
            fold.click()
    assert page.tab.get_by_label("Architecture").is_visible()
    assert page.wider_than_window() == 0
    lines = """[...document.querySelectorAll(".measures dd, h1")].map((e) =>
      e.offsetHeight / parseFloat(getComputedStyle(e).lineHeight))"""
    assert max(page.tab.evaluate(lines)) < 1.5, "a number, or the name, stands on two lines"
    assert all(request.startswith(address) for request in page.requests if request.startswith("http"))
    page.close()


def test_something_is_drawn_before_the_page_is_connected(browser: Any, address: str) -> None:
    page = Page(browser, address, MOONS)
    page.until_drawn()
    page.close()
    page = Page(browser, address, script=DEAF)
    page.until(DRAWN)
    assert page.text("#learned article h3")
    page.close()


def test_training_advances_while_it_is_watched(browser: Any, address: str) -> None:
    page = Page(browser, address, MOONS)
    page.until_drawn()
    before = page.tab.evaluate(PICTURE)
    page.press("Play")
    page.until(f"{STEP} > 20")
    page.until("document.querySelector('.curve-of-loss path') !== null", "the loss is drawn as it falls")
    seen = page.tab.evaluate(STEP)
    page.until(f"{STEP} > {seen}")
    assert page.tab.evaluate(PICTURE) != before
    page.until("/steps? per second/.test(document.querySelector('.fast').textContent)")
    page.press("Pause")
    page.until("document.querySelector('.fast').textContent === 'Paused'")
    resting = page.tab.evaluate(STEP)
    assert int(page.state()["steps"]) == resting
    assert re.search(r"step .* paused\. Training loss [\d.]+", page.text("#heard"))
    page.tab.wait_for_timeout(400)
    assert page.tab.evaluate(STEP) == resting

    page.press("Step")
    page.until(f"{STEP} === {resting + 1}")
    back = page.tab.locator("#back")
    back.focus()
    page.tab.keyboard.press("Home")
    page.until("document.querySelector('.where').textContent === 'at step 0'")
    page.until(f"{STEP} === {resting + 1}", "looking back takes no step away")
    page.tab.keyboard.press("End")
    page.until("document.querySelector('.where').textContent === 'now'")
    page.press("Reset")
    page.until(f"{STEP} === 0")
    page.close()


def test_the_state_returns_from_its_url(browser: Any, address: str) -> None:
    page = Page(browser, address, f"{MOONS}&noise=0.2&lr=0.02&seed=5")
    page.until_drawn()
    page.press("Epoch")
    page.until(f"{STEP} > 0")
    rate = page.tab.get_by_label("Learning rate", exact=True)
    rate.fill("0.05")
    rate.press("Enter")
    page.until("location.hash.includes(':lr=0.05')")
    page.press("Step")
    page.until("location.hash.includes('steps=3') || Number(location.hash.match(/steps=(\\d+)/)[1]) > 2")
    page.until("/^Epoch/.test(document.querySelector('.far').textContent)")
    page.tab.wait_for_timeout(500)
    link, figures = page.tab.url, page.text(".measures")
    page.press("Share")
    assert page.tab.get_by_label("Link", exact=True).input_value() == link
    page.tab.get_by_role("checkbox", name="Learning rate").check()
    assert "hide=lr" in page.tab.get_by_label("Link", exact=True).input_value()
    page.tab.keyboard.press("Escape")
    page.close()

    other = Page(browser, address, f"data=circles&{SMALL}")
    other.until_drawn()
    other.close()
    page = Page(browser, address, link.split("#")[1])
    page.until_drawn()
    page.until(f"document.querySelector('.measures').textContent === {json.dumps(figures)}", figures)
    assert page.tab.url == link
    assert page.tab.get_by_label("Learning rate", exact=True).input_value() == "0.05"
    assert page.tab.get_by_label("Seed", exact=True).input_value() == "5"
    assert page.tab.get_by_role("radio", name="moons").is_checked()
    page.close()


def test_a_link_that_names_no_view_shows_what_is_usual(browser: Any, address: str) -> None:
    page = Page(browser, address, f"{MOONS}&views=zzz&temperature=x&tour=99")
    page.until_drawn()
    page.close()


def test_the_browsers_back_button_leads_to_what_was_open(browser: Any, address: str) -> None:
    page = Page(browser, address, MOONS)
    page.until_drawn()
    page.tab.get_by_role("radio", name="circles").check(force=True)
    page.until("location.hash.includes('data=circles')")
    page.tab.go_back()
    page.until("document.querySelector('[value=moons]').checked")
    page.until("location.hash.includes('data=moons')")
    page.close()


def test_a_link_can_hide_controls(browser: Any, address: str) -> None:
    page = Page(browser, address, f"{MOONS}&hide=lr,data,model.hidden_dims,compare,weights,views")
    page.until_drawn()
    for hidden in ("[data-control=lr]", "#data", "[data-control='model.hidden_dims']", "[data-control=views]"):
        assert page.tab.locator(hidden).count() == 1
        assert not page.tab.locator(hidden).is_visible(), hidden
    assert not page.tab.get_by_role("button", name="Compare").is_visible()
    assert page.tab.get_by_label("Architecture").is_visible()
    assert page.tab.get_by_label("Optimizer").is_visible()
    assert page.state()["hide"] == "lr,data,model.hidden_dims,compare,weights,views"
    page.close()


def test_two_models_stand_side_by_side_and_what_is_pointed_at_is_shown_in_both(browser: Any, address: str) -> None:
    page = Page(browser, address, MOONS)
    page.until_drawn()
    page.press("Epoch")
    page.until(f"{STEP} > 0")
    page.press("Compare")
    page.until("document.querySelectorAll('.pair.two .cell').length >= 2")
    page.until("document.querySelector('.measures dd:nth-of-type(2)')?.textContent === 'B'")
    assert page.tab.get_by_role("radio", name="Model B").is_checked()
    page.tab.get_by_label("Activation").select_option("relu")
    page.until("location.hash.includes('activation=relu')")
    page.until(
        "[...document.querySelectorAll('.of')].some((of) => of.textContent.startsWith('B: mlp, activation relu'))"
    )
    page.press("Play")
    page.until("document.querySelectorAll('.curve-of-loss path').length >= 2")
    page.press("Pause")
    page.until("document.querySelector('.fast').textContent === 'Paused'")
    page.until("document.querySelectorAll('[data-view=boundary] .stage svg').length === 2")
    page.tab.locator("[data-view=boundary] [data-side=a] .stage").focus()
    for _ in range(30):
        page.tab.keyboard.press("ArrowRight")
        if page.tab.locator("[data-view=boundary] [data-side=b] .ring").count():
            break
    else:
        raise AssertionError("nothing is shown on the other side")
    page.press("One model")
    page.until("document.querySelectorAll('.pair.two').length === 0")
    assert "sides" not in page.state()
    page.close()


def test_a_weight_is_set_by_hand_in_the_drawing_and_by_its_name(browser: Any, address: str) -> None:
    page = Page(browser, address, f"{MOONS}&views=boundary")
    page.until_drawn()
    stage = page.tab.locator("[data-view=boundary] .stage")
    stage.focus()
    dialog = page.tab.locator("dialog.weight")
    for _ in range(80):
        page.tab.keyboard.press("ArrowRight")
        page.tab.keyboard.press("Enter")
        if dialog.is_visible():
            break
    assert dialog.is_visible(), "no edge opens the editor"
    page.tab.get_by_label("Value", exact=True).fill("2.5")
    page.tab.keyboard.press("Enter")
    page.until("/\\b\\d+:weight:[\\w.]+\\[[\\d,]*\\]=2.5/.test(location.hash)")
    page.tab.keyboard.press("Escape")
    assert not dialog.is_visible()
    assert page.tab.evaluate("document.activeElement.matches('[data-view=boundary] .stage')")

    page.tab.get_by_text("Edit a weight").click()
    page.tab.get_by_label("Weight or bias").select_option("hidden.0.linear.bias")
    page.tab.get_by_label("unit, 0 to 2").fill("1")
    page.press("Edit")
    dialog.wait_for()
    assert page.text("#weight-title") == "hidden.0.linear.bias [1]"
    assert page.tab.get_by_label("Value", exact=True).input_value() != ""
    page.tab.get_by_label("Value, slider").press("ArrowRight")
    page.until("location.hash.includes('weight:hidden.0.linear.bias[1]=')")
    page.press("Done")
    page.close()


def test_what_is_rejected_is_said_beside_the_control_that_asked(browser: Any, address: str) -> None:
    page = Page(browser, address, MOONS)
    page.until_drawn()
    rate = page.tab.get_by_label("Learning rate", exact=True)
    rate.fill("-3")
    rate.press("Enter")
    page.until("document.querySelector('[data-control=lr] .failed').textContent.includes('lr')")
    assert rate.get_attribute("aria-invalid") == "true"
    assert page.tab.locator("[data-control=lr] .failed").get_attribute("role") == "alert"
    rate.fill("0.1")
    rate.press("Enter")
    page.until("document.querySelector('[data-control=lr] .failed').textContent === ''")
    rejections = [line for line in page.complaints if "422" in line]
    page.complaints = [line for line in page.complaints if line not in rejections]
    assert len(rejections) == 1
    page.close()


def test_a_lost_connection_is_reported_and_can_be_restored(browser: Any, address: str) -> None:
    first = Page(browser, address, MOONS)  # whatever was open before may have nothing drawn
    first.until_drawn()
    first.close()
    page = Page(browser, address, script=DEAF)
    page.until(DRAWN)
    page.tab.evaluate("sources[0].dispatchEvent(new Event('error'))")
    assert "connection" in page.tab.locator("#lost").inner_text()
    assert page.tab.locator("#learned .stage svg").first.is_visible(), "what was there stays"
    page.press("Try again")
    assert page.tab.evaluate("sources.length") == 2
    page.tab.evaluate("sources[1].dispatchEvent(new Event('open'))")
    assert not page.tab.locator("#lost").is_visible()
    page.close()


def test_a_file_of_ones_own_is_asked_what_to_predict(browser: Any, address: str, tmp_path: Path) -> None:
    rows = [f"{x % 7},{x % 5},{'yes' if x % 7 > x % 5 else 'no'},{x}" for x in range(80)]
    table = tmp_path / "<b>own<i>.csv"
    table.write_text("\n".join(["left,right,more,id", *rows]), encoding="utf-8")
    page = Page(browser, address, MOONS)
    page.until_drawn()
    page.tab.get_by_label("Your own file").set_input_files(table)
    target = page.tab.get_by_label("Column to predict")
    target.wait_for()
    target.select_option("more")
    page.until("/data=b-own-i.csv&target=more/.test(location.hash)")
    page.until("/Splits: training/.test(document.querySelector('#data').textContent)")
    assert page.state()["model"] == "mlp"
    assert "<b>own<i>.csv was read." in page.text("#data .drop .hint")
    page.press("Step")
    page.until(f"{STEP} === 1")
    page.tab.get_by_label("Your own file").set_input_files(
        {"name": "own.exe", "mimeType": "application/octet-stream", "buffer": b"MZ"}
    )
    page.until("document.querySelector('.drop .failed').textContent !== ''")
    page.complaints = [line for line in page.complaints if "422" not in line]
    page.close()


def test_a_text_of_ones_own_is_learned_by_a_language_model_and_digits_then_begin_as_suits_them(
    browser: Any, address: str
) -> None:
    page = Page(browser, address, f"{MOONS}&lr=0.3")
    page.until_drawn()
    book = {
        "name": "My book.txt",
        "mimeType": "text/plain",
        "buffer": b"To be, or not to be: that is the question. " * 90,
    }
    page.tab.get_by_label("Your own file").set_input_files(book)
    page.until("/data=My-book.txt&model=gpt2&/.test(location.hash)")
    page.until("document.querySelector('.status').textContent.includes('Press play')")
    page.press("Step")
    page.until(f"{STEP} === 1")
    assert page.state()["lr"] == "0.004"
    offered = page.tab.get_by_label("Architecture").locator("option").all_text_contents()
    assert {"lstm", "bert-base-uncased"} <= {*offered}
    assert not {"textcnn", "mlp", "collobert-window"} & {*offered}

    wrong = {"name": "own.exe", "mimeType": "application/octet-stream", "buffer": b"MZ"}
    page.tab.get_by_label("Your own file").set_input_files(wrong)
    page.until("document.querySelector('.drop .failed').textContent !== ''")
    page.complaints = [line for line in page.complaints if "422" not in line]
    page.tab.get_by_label("Data sets").select_option("digits")
    page.until("/data=digits&model=lenet5-modern/.test(location.hash)")
    page.until("document.querySelector('.status').textContent.includes('Press play')")
    assert "lr" not in page.state()
    assert page.tab.get_by_label("Learning rate", exact=True).input_value() == "0.002"
    assert page.text(".drop .failed") == "", "what was wrong is no matter any more"
    page.close()


def test_the_keyboard_reaches_everything_and_space_plays(browser: Any, address: str) -> None:
    page = Page(browser, address, f"{MOONS}&sides=2&b.seed=3")
    page.until_drawn()
    page.until("document.querySelectorAll('.pair.two').length > 0")
    page.tab.evaluate(
        """() => {
          const all = document.querySelectorAll("button, input, select, summary, [tabindex='0']");
          const chosen = (e) => document.querySelector(`[name=${e.name}]:checked`);
          const alone = (e) => e.type === "radio" && !e.checked && chosen(e);
          const seen = (e) => e.checkVisibility({ visibilityProperty: true }) && !e.disabled && !alone(e);
          window.wanted = new Set([...all].filter(seen));
        }"""
    )
    assert page.tab.evaluate("wanted.size") > 40
    page.tab.locator("h1").click()
    reached = 0
    for _ in range(300):
        page.tab.keyboard.press("Tab")
        if not page.tab.evaluate("document.activeElement === document.body"):
            reached += 1
            assert page.tab.evaluate(
                """() => {
                  wanted.delete(document.activeElement);
                  const at = document.activeElement;
                  const ring = [at, at.closest("label") ?? at].map((e) => getComputedStyle(e).outlineStyle);
                  return ring.some((style) => style !== "none") || at.matches(".panel");
                }"""
            ), page.tab.evaluate("document.activeElement.outerHTML.slice(0, 200)")
        if page.tab.evaluate("wanted.size") == 0:
            break
    assert page.tab.evaluate("[...wanted].map((e) => e.outerHTML.slice(0, 120))") == []
    assert reached > 40
    unnamed = """[...document.querySelectorAll("input, select")].filter((e) =>
      !(e.labels?.length || e.ariaLabel)).map((e) => e.outerHTML)"""
    assert page.tab.evaluate(unnamed) == []

    page.tab.evaluate("document.activeElement.blur()")
    page.tab.keyboard.press("Space")
    page.until(f"{STEP} > 0")
    page.tab.get_by_role("button", name="Pause", exact=True).focus()
    page.tab.keyboard.press("Space")  # the button's own meaning, once
    page.until("document.querySelector('.fast').textContent === 'Paused'")
    page.close()


def test_nothing_moves_by_itself_for_those_who_asked_for_less_motion(browser: Any, address: str) -> None:
    page = Page(browser, address, MOONS, reduced_motion="reduce")
    page.until_drawn()
    assert page.tab.evaluate("document.getAnimations().length") == 0
    assert page.tab.evaluate("getComputedStyle(document.documentElement).scrollBehavior") == "auto"
    page.press("Step")
    page.until(f"{STEP} === 1")
    page.close()


def test_a_thousand_frames_leave_no_more_behind_than_a_few(browser: Any, address: str) -> None:
    page = Page(browser, address, f"{MOONS}&views=boundary,gradients")
    page.until_drawn()
    page.until("document.querySelectorAll('#learned article').length === 2")
    page.close()
    with urllib.request.urlopen(address, timeout=PATIENCE) as answer:
        text = answer.read().decode()
    first = json.loads(re.search(r'id="first">(.*?)</script>', text, re.DOTALL)[1])  # type: ignore[index]
    frame = first["frames"]["a"]
    assert [view["id"] for view in frame["views"]] == ["boundary", "gradients"]

    page = Page(browser, address, script=DEAF)
    page.until(DRAWN)
    devtools = page.tab.context.new_cdp_session(page.tab)
    devtools.send("Performance.enable")
    page.tab.evaluate("(frame) => { window.frame = frame; window.step = 0; }", frame)
    # Each frame has numbers and images of its own; four come for each that the screen shows, as from a fast server.
    play = """async (count) => {
      for (let i = 0; i < count; i++) {
        step++;
        const history = { step: [], train: [], val: [] };
        for (let k = Math.max(0, step - 300); k < step; k++) {
          history.step.push(k); history.train.push(1 / (1 + k)); history.val.push(k % 11 ? null : 1.1 / (1 + k));
        }
        const views = structuredClone(frame.views);
        for (const view of views) for (const drawing of view.drawings) {
          const { answer } = drawing;
          if (answer) answer.bytes = answer.bytes.slice(4 * (step % 99)) + answer.bytes.slice(0, 4 * (step % 99));
        }
        const next = { ...frame, views, step, at: step, epoch: step / 9, playing: true, rate: 60, history };
        sources[0].dispatchEvent(new MessageEvent("frame", { data: JSON.stringify(next) }));
        if (i % 4 === 3) await new Promise((done) => requestAnimationFrame(done));
      }
    }"""

    def held() -> tuple[float, float]:
        for _ in range(3):
            devtools.send("HeapProfiler.collectGarbage")
        metrics = {m["name"]: m["value"] for m in devtools.send("Performance.getMetrics")["metrics"]}
        return metrics["JSHeapUsedSize"] / 2**20, metrics["Nodes"]

    page.tab.evaluate(play, 200)
    heap, nodes = held()
    page.tab.evaluate(play, 1000)
    later, more = held()
    assert page.tab.evaluate(STEP) == 1200
    assert later < heap + 2, f"{heap:.1f} MiB, then {later:.1f}"
    assert more < 1.2 * nodes + 200, f"{nodes} nodes, then {more}"
    page.close()


# --- something of one's own, and what is kept ----------------------------------------------------------------------

DIGITS = "data=digits&model=mlp&model.hidden_dims=16&max_samples=200&speed=0"
FLAWS = """() => {
  const named = (e) => e.labels?.length || e.ariaLabel || e.getAttribute("aria-labelledby") || e.textContent.trim();
  const all = [...document.querySelectorAll("button, input, select, textarea, [role=img]")];
  const ids = [...document.querySelectorAll("[id]")].map((e) => e.id);
  return [
    ...all.filter((e) => e.checkVisibility() && !named(e)).map((e) => e.outerHTML.slice(0, 120)),
    ...ids.filter((id, i) => ids.indexOf(id) !== i && id !== "modules"),
  ];
}"""


def test_prediction_of_a_drawn_digit_is_updated_during_training(browser: Any, address: str) -> None:
    page = Page(browser, address, DIGITS)
    canvas = page.tab.locator(".drawing canvas")
    canvas.wait_for()
    box = canvas.bounding_box()
    assert box is not None
    page.tab.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 0.15 * box["height"])
    page.tab.mouse.down()
    page.tab.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 0.85 * box["height"], steps=5)
    page.tab.mouse.up()
    page.until("document.querySelectorAll('.tried .bars li').length === 10")
    page.until("document.querySelector('.tried img').naturalWidth === 8")
    before = page.text(".tried .bars")
    page.press("Epoch")
    page.until(f"document.querySelector('.tried .bars').textContent !== {json.dumps(before)}")
    page.tab.locator("#try-file").set_input_files({"name": "no.png", "mimeType": "image/png", "buffer": b"no image"})
    page.until("document.querySelector('.try .failed').textContent.includes('not a readable image')")
    page.tab.locator(".drawing").get_by_role("button", name="Clear").click()
    page.until("document.querySelectorAll('.tried .bars').length === 0")
    assert page.tab.evaluate(FLAWS) == []
    page.complaints = [line for line in page.complaints if "422" not in line]
    page.close()


def test_the_answer_to_an_earlier_request_keeps_a_later_error(browser: Any, address: str) -> None:
    page = Page(browser, address, DIGITS)
    page.tab.locator(".drawing canvas").wait_for()
    delayed: list[Any] = []
    page.tab.route("**/control", lambda route: delayed.append(route))
    page.press("Epoch")
    page.until(lambda: len(delayed) == 1)
    page.tab.locator("#try-file").set_input_files({"name": "no.png", "mimeType": "image/png", "buffer": b"no image"})
    refused = "document.querySelector('.try .failed').textContent.includes('not a readable image')"
    page.until(refused)
    with page.tab.expect_response("**/control") as answered:
        delayed[0].continue_()
    assert answered.value.ok
    page.until(lambda: page.text(".status").startswith("Epoch 1"))
    page.tab.wait_for_timeout(300)  # for what the page does with the answer
    assert page.tab.evaluate(refused)
    page.complaints = [line for line in page.complaints if "422" not in line]
    page.close()


def test_a_language_model_continues_a_prompt_during_training(browser: Any, address: str) -> None:
    page = Page(browser, address, MOONS)
    page.until_drawn()
    assert not page.tab.locator(".try").is_visible(), "of points in the plane nothing can be typed"
    book = {"name": "song.txt", "mimeType": "text/plain", "buffer": b"row, row, row your boat, gently down. " * 60}
    page.tab.get_by_label("Your own file").set_input_files(book)
    page.until("document.querySelectorAll('.tried blockquote').length === 3")
    page.tab.get_by_label("Type a prompt to continue").fill("row, r")
    page.until("document.querySelector('.tried .prompt')?.textContent === 'row, r'")
    samples = page.text(".tried blockquote")
    page.tab.get_by_label("Temperature").fill("0")
    page.until("document.querySelectorAll('.tried blockquote').length === 1")
    page.until("/try=row%2C%20r|try=row,%20r/.test(location.hash) && /temperature=0/.test(location.hash)")
    page.tab.get_by_label("Temperature").fill("1")
    page.until("document.querySelectorAll('.tried blockquote').length === 3")
    page.press("Step")
    page.until(f"{STEP} === 1")
    page.until(f"document.querySelector('.tried blockquote').textContent !== {json.dumps(samples)}")
    assert page.tab.evaluate(FLAWS) == []
    page.close()


def test_a_trained_model_is_saved_as_a_run_with_its_command(browser: Any, address: str) -> None:
    page = Page(browser, address, MOONS)
    page.until_drawn()
    page.press("Save")
    page.until("document.querySelector('[aria-label=\"Command\"]').value.includes('cutaway train mlp moons')")
    page.press("Save as a run")
    page.until("document.querySelector('.keep .failed').textContent.includes('The model is not trained yet')")
    page.press("Done")
    page.press("Epoch")
    page.until(f"{STEP} > 0")
    page.press("Save")
    page.press("Save as a run")
    page.until("document.querySelector('.saved strong') !== null")
    folder = page.text(".saved strong")
    assert re.fullmatch(r"runs/mlp-moons-\d+", folder)
    assert " max_steps=" in page.tab.get_by_label("Command", exact=True).input_value()
    assert page.tab.evaluate(FLAWS) == []
    page.complaints = [line for line in page.complaints if "422" not in line]
    page.close()


def test_the_tour_is_offered_once_and_walked_by_key(browser: Any, address: str) -> None:
    page = Page(browser, address, MOONS)
    page.until_drawn()
    page.close()
    page = Page(browser, address)
    page.until(DRAWN)
    page.press("Take the tour (1 minute)")
    for step in range(1, 7):
        assert page.state()["tour"] == str(step)
        assert page.tab.locator(".toured").count() == 1
        assert page.tab.evaluate("document.activeElement.closest('.tour') !== null")
        page.tab.keyboard.press("ArrowRight")
    page.until("!document.querySelector('.tour').open")
    assert "tour" not in page.state()
    page.tab.goto(address)
    page.until(DRAWN)
    page.press("Tour")
    page.tab.keyboard.press("Escape")
    assert not page.tab.locator(".tour").is_visible()
    assert page.tab.evaluate("document.activeElement.textContent") == "Tour"
    page.close()
