"""Take screenshots of the views, the studio and a report for docs/images: python docs/draw_inspect.py [NAME ...].

The runs are trained first, in a few minutes on two cores. Chromium must be on the path, and playwright, which the tests
install. docs/inspect.md and the README show the pictures.
"""

from __future__ import annotations

import io
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sklearn.datasets
from PIL import Image

FOLDER = Path(__file__).parent / "images" / "inspect"
CUTAWAY = (sys.executable, "-m", "cutaway")
WIDTH, SCALE = 1180, 1.5  # of the page in its pixels, and how many of the picture's each has
COLOURS = 256  # of a picture: what tells the shades apart, at a third of the size

# What is trained, by name; the data with a dot or a slash in its name is written by `cutaway examples`.
PLANE = ("epochs=60", "lr=0.02", "model.hidden_dims=8,8", "model.activation=tanh", "model.dropout=0", "snapshots=12")
BOOK = ("max_steps=2000", "batch_size=16", "length=64", "lr=3e-3", "model.layers=2", "model.heads=4", "model.dim=64")
PUZZLES = (
    "form=steps,tree",
    "epochs=36",
    "lr=4e-3",
    "model.layers=2",
    "model.heads=4",
    "model.dim=96",
    "model.dropout=0",
)
RUNS = {
    "spirals": ("mlp", "spirals", *PLANE),
    "wave": ("mlp", "wave", "epochs=60", "lr=0.05", "batch_size=32", "model.hidden_dims=16", *PLANE[3:5]),
    "digits": ("lenet5-modern", "digits", "epochs=8"),
    "book": ("gpt2", "help.txt", *BOOK),
    "sounds": ("lstm", "sounds/", "epochs=15"),
    "spiking": ("spiking-mlp", "digits"),
    "karate": ("gat", "karate", "epochs=60"),
    "puzzles": ("gpt2", "game24", "batch_size=64", *PUZZLES),
}
# What is quantized of those, by name.
QUANTIZED = {"digits-int4": ("digits", "bits=4")}
# What is photographed of each view: a run or a preset, and what is asked of it.
PICTURES: dict[str, tuple[str, ...]] = {
    "network": ("resnet18",),
    "curves": ("digits",),
    "results": ("digits",),
    "boundary": ("spirals",),
    "function": ("wave",),
    "backprop": ("spirals",),
    "filters": ("digits",),
    "features": ("digits",),
    "field": ("resnet20",),
    "arithmetic": ("digits",),
    "normalization": ("resnet20",),
    "attention": ("book", "Return the number of nodes of the graph, and the number of edges of the graph."),
    "thoughts": ("puzzles", "3 3 8 13"),
    "positions": ("book",),
    "embeddings": ("digits",),
    "gates": ("sounds",),
    "spikes": ("spiking",),
    "graph": ("karate",),
    "attribution": ("digits",),
    "gradients": ("resnet20",),
    "quantization": ("digits-int4",),
    "time": ("spirals",),
}
# Pictures of a part of a view.
PARTS = {"attention-head": ("attention", "figure.matrix svg"), "boundary-neurons": ("boundary", "figure.boundary svg")}
PHOTO = "photo"  # scikit-learn's china.jpg, filtered with Sobel's kernels
STUDIO = "studio"  # which plays spirals for a while
REPORT = "report"  # the first screen of a report, images/report.png
REPORT_OF = "digits"


def main(names: list[str]) -> None:
    """Train the runs, open their pages and save the screenshots."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    wanted = {name: PICTURES[name] for name in names or PICTURES if name not in (STUDIO, PHOTO, REPORT)}
    with tempfile.TemporaryDirectory() as folder, _browser() as browser:
        here = Path(folder)
        _call(here, *CUTAWAY, "examples")
        of = [QUANTIZED.get(subject, (subject,))[0] for subject, *_ in wanted.values()]
        if REPORT in (names or [REPORT]):
            of.append(REPORT_OF)
        for run in dict.fromkeys(subject for subject in of if subject in RUNS):
            model, data, *settings = RUNS[run]
            _call(here, *CUTAWAY, "train", model, data, *settings, "tensorboard=false", "--out", f"runs/{run}")
        for name, (subject, *words) in wanted.items():
            page = here / f"{name}.html"
            if subject in QUANTIZED:
                run, *settings = QUANTIZED[subject]
                _call(here, *CUTAWAY, "quantize", f"runs/{run}", f"runs/{subject}", *settings)
            opened = f"runs/{subject}" if subject in (*RUNS, *QUANTIZED) else subject
            _call(here, *CUTAWAY, "inspect", opened, *words, "--view", name, "--out", str(page))
            _photograph(browser, page.as_uri(), name, f"#{name}")
            for part, (view, place) in PARTS.items():
                if view == name:
                    _photograph(browser, page.as_uri(), part, f"#{view} {place}")
        if PHOTO in (names or [PHOTO]):
            page, china = here / "photo.html", Path(sklearn.datasets.__file__).parent / "images" / "china.jpg"
            _call(here, *CUTAWAY, "inspect", str(china), "--view", "filters", "kernel=sobel", "--out", str(page))
            _photograph(browser, page.as_uri(), PHOTO, "#filters figure.tiles svg")
        if REPORT in (names or [REPORT]):
            tab = browser.new_page(viewport={"width": WIDTH, "height": 1100})
            tab.goto((here / "runs" / REPORT_OF / "report.html").as_uri())
            tab.wait_for_timeout(800)
            _keep(tab.screenshot(), f"../{REPORT}")
            tab.close()
        if STUDIO in (names or [STUDIO]):
            _photograph_studio(browser)


def _call(folder: Path, *words: str) -> None:
    """Run a command in a folder; its error output is shown."""
    subprocess.run(words, cwd=folder, check=True, stdout=subprocess.DEVNULL)


@contextmanager
def _browser() -> Iterator[Any]:
    """Yield a headless Chromium."""
    from playwright.sync_api import sync_playwright

    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
    with sync_playwright() as started:
        chromium = started.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        yield chromium
        chromium.close()


def _photograph(browser: Any, url: str, name: str, place: str) -> None:
    """Save a screenshot of an element of a page."""
    tab = browser.new_page(viewport={"width": WIDTH, "height": 900}, device_scale_factor=SCALE)
    tab.goto(url)
    tab.wait_for_timeout(800)
    _keep(tab.locator(place).first.screenshot(), name)
    tab.close()


def _photograph_studio(browser: Any) -> None:
    """Save a screenshot of the studio after some seconds of training."""
    server = subprocess.Popen((*CUTAWAY, "studio"), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert server.stdout is not None
        tab = browser.new_page(viewport={"width": 1440, "height": 900}, device_scale_factor=SCALE)
        tab.goto(server.stdout.readline().strip())
        tab.locator("figure.boundary svg").first.wait_for(timeout=60_000)
        tab.keyboard.press("Space")
        tab.wait_for_timeout(15_000)
        tab.keyboard.press("Space")
        tab.wait_for_timeout(2_000)
        _keep(tab.screenshot(), STUDIO)
        tab.close()
    finally:
        server.send_signal(signal.SIGINT)
        server.wait()


def _keep(picture: bytes, name: str) -> None:
    """Save a picture with a palette of few colors."""
    image = Image.open(io.BytesIO(picture)).convert("RGB")
    image.quantize(COLOURS, dither=Image.Dither.NONE).save(FOLDER / f"{name}.png", optimize=True)


if __name__ == "__main__":
    main(sys.argv[1:])
