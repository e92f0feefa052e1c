"""Entry points by which another package adds models, data sets and views. The package is real: files and metadata."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

MODEL = '''
"""A network of one hidden layer of four units."""
from dataclasses import dataclass, replace

from torch import nn

from cutaway.models import mlp
from cutaway.models.mlp import CARD, Config, Model

PRESETS = {"my-tiny": replace(mlp.PRESETS["mlp"], hidden_dims=(4,))}
'''
DATA = '''
"""The even and the odd digits."""
import dataclasses

from cutaway.data.datasets import toy_data

NAMED = {"my-digits": dataclasses.replace(toy_data.NAMED["digits"], title="my own digits")}
OPENERS = {"my-digits": toy_data.open_digits}
'''
VIEW = """
from cutaway.views.registry import RegisteredView

VIEW = RegisteredView("my_plugin.view:draw", says="the layers again", read="As network.", misleads="It repeats.")


def draw(subject):
    from cutaway.views.network import draw_network

    return {**draw_network(subject), "id": "my-view", "title": "My view"}
"""
ENTRIES = """[cutaway.models]
tiny = my_plugin.tiny
broken = my_plugin.broken
double = my_plugin.double
[cutaway.datasets]
digits = my_plugin.data
empty = my_plugin.broken_data
[cutaway.views]
my-view = my_plugin.view:VIEW
gone = my_plugin.view:GONE
"""
COMMANDS = """
import warnings
from cutaway.apps.cli import main

with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for words in (
        ["show", "my-tiny"],
        ["train", "my-tiny", "my-digits", "max_steps=2", "threads=1", "--out", "run"],
        ["inspect", "run", "--view", "my-view", "--out", "page.html"],
        ["data", "my-digits"],
        ["show", "mlp"],
    ):
        assert main(words) == 0, words
for one in caught:
    print("warning:", one.message)
"""


@pytest.fixture
def plugin(tmp_path: Path) -> Path:
    """Write a package with entry points, of which some are wrong, as pip would install it."""
    site = tmp_path / "site"
    package = site / "my_plugin"
    package.mkdir(parents=True)
    files = {
        "__init__": "",
        "tiny": MODEL,
        "data": DATA,
        "view": VIEW,
        "broken": "raise ValueError('of no use')",
        "double": "from cutaway.models.mlp import *\nfrom cutaway.models.mlp import CARD, PRESETS",
        "broken_data": "NAMED = {'gone': 1}\nOPENERS = {}",
    }
    for name, text in files.items():
        (package / f"{name}.py").write_text(text, encoding="utf-8")
    about = site / "my_plugin-1.2.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: my-plugin\nVersion: 1.2\n", encoding="utf-8")
    (about / "entry_points.txt").write_text(ENTRIES, encoding="utf-8")
    return site


@pytest.mark.slow
def test_a_package_adds_a_model_a_data_set_and_a_view(plugin: Path, tmp_path: Path) -> None:
    """And its errors name it, and break nothing else."""
    code = f"import sys; sys.path.insert(0, {str(plugin)!r})\n{COMMANDS}"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run" / "run.json").is_file()
    assert "My view" in (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "my own digits" in done.stdout
    warned = {line.removeprefix("warning: ") for line in done.stdout.splitlines() if "warning: The plugin" in line}
    of = "of my-plugin 1.2"
    assert warned == {
        f"The plugin broken {of} (cutaway.models: my_plugin.broken) is left out: ValueError: of no use",
        f"The plugin double {of} (cutaway.models: my_plugin.double) is left out: there is a model 'mlp' already. "
        "Rename it.",
        f"The plugin empty {of} (cutaway.datasets: my_plugin.broken_data) is left out: gone needs a NamedSet in NAMED "
        "and a function in OPENERS.",
        f"The plugin gone {of} (cutaway.views: my_plugin.view:GONE) is left out: AttributeError: module "
        "'my_plugin.view' has no attribute 'GONE'",
    }
