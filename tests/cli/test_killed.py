"""Commands that are killed at any moment: the same command again completes, or says how, and no half is left."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import signal
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest

import cutaway
from cutaway.apps.cli import main
from cutaway.core.errors import FileError
from cutaway.core.files import is_temp_file
from cutaway.experiments.experiment import create_experiment_folder

from ..training.test_kills import PROCESSES

WRITES = ("os.rename", "os.mkdir", "os.remove", "os.rmdir", "shutil.rmtree")
COMMANDS = {  # and the moments of a kill: writes from the first, or from the last
    "export onnx": (("export", "run", "out.onnx"), (1, 3, -2)),
    "export pt2": (("export", "run", "out.pt2"), (2, -1)),
    "export with its tokenizer": (("export", "gpt", "out.onnx"), (4, 6, -3)),
    "convert": (("convert", "gpt", "out", "--to", "huggingface"), (2, 6, -1)),
}


def run_in(folder: Path, words: Sequence[str], kill_at: int, answer: Path) -> None:
    """Run a command in that folder, and end without a word just before its write of that number; write down its status,
    what it said and how many writes it made."""
    os.chdir(folder)
    root, count = str(folder.resolve()), 0

    def hook(event: str, given: tuple[Any, ...]) -> None:
        nonlocal count
        changes = event in WRITES or (event == "open" and isinstance(given[2], int) and given[2] & os.O_ACCMODE)
        if not changes or not isinstance(given[0], str | os.PathLike):
            return
        if not os.path.abspath(given[0]).startswith(root):
            return
        if count == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        count += 1

    sys.addaudithook(hook)
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        status = main(list(words))
    answer.write_text(json.dumps([status, " ".join(err.getvalue().split()), count]))


def outcome(folder: Path, words: Sequence[str], kill_at: int = -1) -> tuple[int, str, int] | None:
    """Status, what was said and the number of writes of a command in a process of its own; None where it was killed."""
    answer = folder.with_name("answer.json")
    answer.unlink(missing_ok=True)
    child = PROCESSES.Process(target=run_in, args=(folder, [*words], kill_at, answer))
    child.start()
    child.join(120)
    if child.is_alive():
        child.kill()
        pytest.fail(f"{words} does not end")
    if not answer.exists():
        assert child.exitcode == -signal.SIGKILL
        return None
    status, said, count = json.loads(answer.read_text())
    return status, said, count


def files_of(folder: Path) -> dict[str, int]:
    """Every file that a command has left under its final name, and its size."""
    found = {}
    for path in folder.rglob("*"):
        parts = path.relative_to(folder).parts
        if path.is_file() and not any(is_temp_file(Path(part)) for part in parts):
            found["/".join(parts)] = path.stat().st_size
    return found


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two runs and a text."""
    folder = tmp_path_factory.mktemp("begun")
    (folder / "poem.txt").write_text("Tiger, tiger, burning bright\nIn the forests of the night,\n" * 300)
    quiet: dict[str, Any] = {"tensorboard": False}
    cutaway.train("mlp", "iris", out=folder / "run", epochs=1, **quiet)
    small = {"model.layers": 1, "model.heads": 1, "model.dim": 8, "length": 16, "max_steps": 2}
    cutaway.train("gpt2", str(folder / "poem.txt"), out=folder / "gpt", **small, **quiet)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_the_same_command_completes_or_says_how(tmp_path: Path, begun: Path, name: str) -> None:
    words, moments = COMMANDS[name]
    folder = tmp_path / "work"

    def anew() -> None:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(begun, folder)

    anew()
    whole = outcome(folder, words)
    assert whole is not None
    assert whole[0] == 0, whole[1]
    wanted = files_of(folder)
    for moment in moments:
        anew()
        assert outcome(folder, words, moment % whole[2]) is None
        once = outcome(folder, words)
        assert once is not None
        if once[0]:  # the file was there already, and whole
            said = r"already exists. Choose another name, or (add --overwrite|move it away)\. "
            assert re.search(said + r"CUT-303: `cutaway help CUT-303` explains it\.$", once[1])
            if "--overwrite" in once[1]:
                once = outcome(folder, [*words, "--overwrite"])
            else:
                (folder / "out").rename(folder / "aside")
                once = outcome(folder, words)
                assert {f"aside{key[3:]}": size for key, size in wanted.items() if key.startswith("out/")}.items() <= (
                    files_of(folder).items()
                )
                shutil.rmtree(folder / "aside")
            assert once is not None
        assert once[0] == 0, (moment, once[1])
        assert files_of(folder).keys() == wanted.keys(), moment
        made = [key for key in wanted if key.startswith("out") and not key.endswith((".json", ".pt2"))]
        assert {key: files_of(folder)[key] for key in made} == {key: wanted[key] for key in made}


COMPARE = (
    "compare", "softmax,perceptron", "iris", "epochs=1", "seeds=1", "baselines=false", "threads=1", "jobs=1",
    "tensorboard=false", "--out", "compared",
)  # fmt: skip


def compared(folder: Path) -> dict[str, tuple[list[float], float | None, float | None]]:
    """The scores of the models of a comparison, and the interval of each."""
    document = json.loads((folder / "compared" / "compare.json").read_text())
    assert document["status"] == "finished"
    (result,) = document["results"]
    return {row["name"]: (row["scores"], row["low"], row["high"]) for row in result["models"]}


@pytest.mark.slow
def test_a_comparison_that_was_killed_is_resumed_to_the_same_scores(tmp_path: Path) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    whole = outcome(folder, COMPARE)
    assert whole is not None
    assert whole[0] == 0, whole[1]
    wanted, files = compared(folder), files_of(folder).keys()
    assert wanted.keys() == {"softmax", "perceptron"}
    resumed = 0
    # Before anything is written; in the first and in the second training; before the results, and before the page.
    for moment in (0, 4, whole[2] // 3, 2 * whole[2] // 3, whole[2] - 18, whole[2] - 4):
        shutil.rmtree(folder)
        folder.mkdir()
        assert outcome(folder, COMPARE, moment) is None
        before = {path: path.stat().st_mtime_ns for path in folder.rglob("seed-0/cost.json")}
        begun = (folder / "compared" / "compare.json").is_file()
        resumed += begun
        again = outcome(folder, ("compare", "--resume", "compared") if begun else COMPARE)
        assert again is not None
        assert again[0] == 0, (moment, again[1])
        assert compared(folder) == wanted, moment
        assert files_of(folder).keys() == files, moment
        assert {path: path.stat().st_mtime_ns for path in before} == before, "what had ended was trained again"
    assert resumed >= 4


@pytest.mark.parametrize("command", ["search", "compare"])
def test_what_a_kill_before_the_first_file_leaves_is_no_other_work(tmp_path: Path, command: str) -> None:
    out = tmp_path / "out"
    (out / f".{command}.json.123.part").mkdir(parents=True)
    assert create_experiment_folder(out, command, "mlp-iris", f"{command}.json", ()) == out
    (out / "thesis.tex").write_text("years")
    with pytest.raises(FileError, match="nothing in it is overwritten"):
        create_experiment_folder(out, command, "mlp-iris", f"{command}.json", ())
