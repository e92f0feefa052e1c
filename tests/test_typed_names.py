"""The types of names and settings: current, complete, and taken as they are meant by type checkers."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
import typing
from pathlib import Path

import pytest

import cutaway
from cutaway.core import typed_names
from cutaway.core.config import field_names
from cutaway.data.settings import DataSettings
from cutaway.models.registry import presets
from cutaway.training.config import TrainSettings
from cutaway.views.registry import VIEWS

ROOT = Path(__file__).parents[1]
CONSUMER = ROOT / "tests" / "consumer.py"


def test_the_file_is_what_its_command_writes() -> None:
    spec = importlib.util.spec_from_file_location("make_types", ROOT / "docs" / "make_types.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    assert made.text() == made.PATH.read_text(encoding="utf-8"), "run: python docs/make_types.py"


def test_every_name_and_setting_is_among_them() -> None:
    assert set(typing.get_args(typed_names.PresetName)) == set(presets())
    assert set(typing.get_args(typed_names.ViewName)) == set(VIEWS)
    keys = set(typed_names.TrainOptions.__annotations__)
    assert keys == set(field_names(TrainSettings, DataSettings)) - {"val", "test"}


def test_a_name_of_run_time_is_a_plain_name(tmp_path: Path) -> None:
    name = cutaway.AnyName("softmax")
    run = cutaway.train(name, "iris", epochs=1, out=tmp_path / "run", tensorboard=False, verbose=False)
    assert run.about["model"] == "softmax"
    with pytest.raises(cutaway.CutawayError, match="Similar: mlp"):
        cutaway.create_model(cutaway.AnyName("mpl"))


@pytest.mark.slow
def test_mypy_finds_each_typo_of_a_script(tmp_path: Path) -> None:
    """In tests/consumer.py, each mistake is marked; without the marks mypy reports exactly these lines."""
    assert marked_lines() == reported_lines([sys.executable, "-m", "mypy", "--strict", "--no-pretty"], tmp_path)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("pyright") is None, reason="pyright is not installed")
def test_pyright_finds_each_typo_of_a_script(tmp_path: Path) -> None:
    found = reported_lines(["pyright", "--pythonpath", sys.executable], tmp_path)
    lines = enumerate(CONSUMER.read_text().splitlines(), 1)
    typos = {k for k, line in lines if re.search('"mpl"|epoch=|netwrk|"adm"', line)}
    assert typos
    assert typos <= found <= marked_lines()


def marked_lines() -> set[int]:
    """The lines of the program that are wrong."""
    return {k for k, line in enumerate(CONSUMER.read_text().splitlines(), 1) if "# type: ignore" in line}


def reported_lines(command: list[str], folder: Path) -> set[int]:
    """The lines in which a type checker finds errors, if none is marked."""
    script = folder / "script.py"
    script.write_text(re.sub(r"  # type: ignore.*", "", CONSUMER.read_text()))
    said = subprocess.run([*command, str(script)], capture_output=True, text=True, cwd=ROOT)
    return {int(line) for line in re.findall(r"script\.py:(\d+):(?:\d+)?(?: -)? error", said.stdout)}
