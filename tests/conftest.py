"""What all tests share: where the real data is, a browser, the same threads and random state whatever ran before."""

from __future__ import annotations

import gc
import itertools
import os
import random
import shutil
import signal
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

# One thread, so that figures repeat and two workers share two cores. What is claimed holds at other counts and at other
# seeds too: CUTAWAY_TEST_THREADS=4 CUTAWAY_TEST_SEED=7 make test. Set before NumPy is there, for its threads and those
# of the commands that tests run: waiting for one another they would take the other worker's core.
THREADS = os.environ.get("CUTAWAY_TEST_THREADS", "1")
if not os.environ.get("CUTAWAY_TEST_GPU"):
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # what is claimed of exact numbers holds on a CPU
os.environ |= {"OMP_NUM_THREADS": THREADS, "OPENBLAS_NUM_THREADS": THREADS, "MKL_NUM_THREADS": THREADS}

import hypothesis  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402

torch.set_num_threads(int(THREADS))
hypothesis.settings.register_profile("cutaway", deadline=None)  # no test depends on the speed of the machine
hypothesis.settings.load_profile("cutaway")
# A shell ignores Ctrl-C in what it starts in the background, and so would the commands that tests interrupt.
if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
SEED = int(os.environ.get("CUTAWAY_TEST_SEED", "0"))
QUICK = 2  # cases of each test function in `make test`
CHROMIUM = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]


@pytest.fixture(autouse=True)
def random_state() -> None:
    """Every test begins with a random state of its own: none depends on which tests ran before it."""
    random.seed(SEED)
    np.random.seed(SEED)  # noqa: NPY002 - the state that libraries draw from where they are given no generator
    torch.default_generator.manual_seed(SEED)  # torch.manual_seed notes where it was called from: a millisecond a test


@pytest.fixture(scope="session", autouse=True)
def working_folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Iterator[Path]]:
    """Leave the folder that pytest was started in, so that nothing there is read or written, and number new ones."""
    before, base = Path.cwd(), tmp_path_factory.mktemp("working")
    os.chdir(base)
    yield (base / str(number) for number in itertools.count())
    os.chdir(before)


@pytest.fixture(autouse=True)
def working_folder(working_folders: Iterator[Path]) -> Path:
    """Run each test in an empty folder of its own."""
    folder = next(working_folders)
    folder.mkdir()
    os.chdir(folder)
    return folder


@pytest.fixture
def shared_data(monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of real data sets, where named sets are looked for; the test is skipped by name where it is absent."""
    folder = Path(os.environ.get("CUTAWAY_DATA") or Path(__file__).parents[2] / "shared" / "data")
    if not folder.is_dir():
        pytest.skip("needs the real data sets: set CUTAWAY_DATA to their folder")
    monkeypatch.setenv("CUTAWAY_DATA", str(folder))
    return folder


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Headless Chromium; the tests are skipped by name where there is none."""
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found is None:
        pytest.skip("needs Chromium to look at the page")
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright to look at the page")
    with playwright.sync_playwright() as started:
        chromium = started.chromium.launch(executable_path=found, args=CHROMIUM)
        yield chromium
        chromium.close()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--part",
        choices=("all", "quick", "rest"),
        default="all",
        help=f"quick: at most {QUICK} cases of each test function, and none that is slow; rest: the others",
    )


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the part that is asked for. Tests that wait or are slow come first, so that no worker is left with them."""
    part = config.getoption("part")
    if part != "all":
        quick = _quick(items)
        config.hook.pytest_deselected(items=[item for item in items if (item in quick) != (part == "quick")])
        items[:] = [item for item in items if (item in quick) == (part == "quick")]
    items.sort(key=lambda item: ("waits" not in item.keywords, "slow" not in item.keywords))


def _quick(items: list[pytest.Item]) -> set[pytest.Item]:
    """Return the tests that `make test` runs: of each function some cases, which differ from function to function."""
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        if not {"slow", "waits", "browser"} & {*item.keywords, *getattr(item, "fixturenames", ())}:
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    quick = set()
    for name, those in cases.items():
        first = zlib.crc32(name.encode())
        quick |= {those[(first + k * len(those) // QUICK) % len(those)] for k in range(QUICK)}
    return quick


def pytest_collectstart() -> None:
    """Whatever is imported and collected stays to the end: looking for garbage meanwhile finds none."""
    gc.disable()


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """The garbage collector need not look through what stays again and again, which took a tenth of the time of all
    tests."""
    gc.collect()
    gc.freeze()
    gc.enable()
