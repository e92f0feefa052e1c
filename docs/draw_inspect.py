"""Photograph the views and the studio as images/inspect/NAME.png: python docs/draw_inspect.py [NAME ...].

Every picture is of a real run that is trained here first, in a few minutes on two cores; each needs Chromium, found on
the path, and playwright, which the tests install. docs/inspect.md shows them.
"""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from PIL import Image

FOLDER = Path(__file__).parent / "images" / "inspect"
CUTAWAY = (sys.executable, "-m", "cutaway")
WIDTH, SCALE = 1180, 1.5  # of the page in its pixels, and how many of the picture's each has
COLOURS = 192  # of a picture: what tells the shades apart, at a third of the size

# What is trained, by name.
RUNS = {
    "spirals": (
        "mlp",
        "spirals",
        "epochs=60",
        "model.hidden=8,8",
        "model.activation=tanh",
        "model.dropout=0",
        "lr=0.02",
    ),
    "digits": ("lenet5-modern", "digits", "epochs=8"),
    "book": (
        "gpt2",
        "examples",
        "minutes=1.5",
        "length=64",
        "lr=3e-3",
        "model.layers=2",
        "model.heads=4",
        "model.dim=64",
    ),
    "signals": ("gru", "sounds", "epochs=20"),
    "karate": ("gat", "karate", "epochs=60"),
}
# The views that are photographed: of which run or preset, and what is asked of it.
PICTURES: dict[str, tuple[str, ...]] = {
    "network": ("resnet18",),
    "curves": ("digits",),
    "results": ("digits",),
    "boundary": ("spirals",),
    "backprop": ("spirals",),
    "filters": ("digits",),
    "features": ("digits",),
    "field": ("resnet20",),
    "arithmetic": ("digits",),
    "normalization": ("resnet20",),
    "attention": ("book",),
    "positions": ("book",),
    "embeddings": ("digits",),
    "gates": ("signals",),
    "graph": ("karate",),
    "attribution": ("digits",),
    "gradients": ("resnet20",),
    "time": ("spirals",),
}


def main(names: list[str]) -> None:
    """Train, open and photograph."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    wanted = {name: PICTURES[name] for name in names or PICTURES if name != "studio"}
    with tempfile.TemporaryDirectory() as folder, _browser() as browser:
        here = Path(folder)
        _call(here, sys.executable, str(Path(__file__).parents[1] / "examples" / "make.py"))
        for run in dict.fromkeys(subject for subject, *_ in wanted.values() if subject in RUNS):
            model, data, *settings = RUNS[run]
            _call(here, *CUTAWAY, "train", model, data, *settings, "tensorboard=false", "--out", run)
        for name, (subject, *words) in wanted.items():
            page = here / f"{name}.html"
            _call(here, *CUTAWAY, "inspect", subject, *words, "--view", name, "--out", str(page))
            _photograph(browser, page.as_uri(), f"#{name}", name)


def _call(folder: Path, *words: str) -> None:
    """Run a command there; its own words where it fails."""
    subprocess.run(words, cwd=folder, check=True, stdout=subprocess.DEVNULL)


@contextmanager
def _browser() -> Iterator[Any]:
    """Headless Chromium."""
    from playwright.sync_api import sync_playwright

    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
    with sync_playwright() as started:
        chromium = started.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        yield chromium
        chromium.close()


def _photograph(browser: Any, url: str, place: str, name: str) -> None:
    """The element at `place` of that page, once everything is drawn, with few colours."""
    tab = browser.new_page(viewport={"width": WIDTH, "height": 900}, device_scale_factor=SCALE)
    tab.goto(url)
    tab.wait_for_timeout(800)
    picture = Image.open(io.BytesIO(tab.locator(place).screenshot())).convert("RGB")
    picture.quantize(COLOURS, dither=Image.Dither.NONE).save(FOLDER / f"{name}.png", optimize=True)
    tab.close()


if __name__ == "__main__":
    main(sys.argv[1:])
