"""A reader's file: run by itself, whatever it does, and told of in their own terms."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from cutaway.apps.cli import main
from cutaway.apps.course import check
from cutaway.apps.course.answer_check import SECONDS, Result, check_file
from cutaway.apps.course.exercises import RULES, NotYet, as_array, chapter, check_answer, format_numbers, pair, same
from cutaway.core.errors import FileError, SettingError

RIGHT = """
import numpy as np
print("what a file prints is no answer")

def fires(w, b, x):
    return int(w @ x + b > 0)
"""


def written(folder: Path, text: str) -> Path:
    """A file of answers."""
    path = folder / "answers.py"
    path.write_text(text, encoding="utf-8")
    return path


def by_name(found: list[Result]) -> dict[str, Result]:
    """The results by the names of the exercises."""
    return {one.name: one for one in found}


def test_a_file_is_told_what_is_right_wrong_and_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, RIGHT + "\ndef distance(w, b, x):\n    return w @ x + b\n")
    assert main(["course", "check", "1", str(path)]) == 1  # unfinished, and not misuse
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["right", "fires"]
    assert "divide by the length of w" in lines[1]
    assert lines[2].split() == ["missing", "correct", "define", "correct(w,", "b,", "x,", "t)"]
    assert lines[-1] == "1 of 6 are correct."


def test_unfinished_answers_are_told_from_misuse(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    assert main(["course", "start", "18", str(path)]) == 0
    assert main(["course", "check", "18", str(path)]) == 1
    path.write_text("x = (\n", encoding="utf-8")
    assert main(["course", "check", "18", str(path)]) == 2
    assert main(["course", "check", "18", str(tmp_path / "absent.py")]) == 2
    assert main(["course", "check", "99", str(path)]) == 2


def test_an_answer_must_not_change_its_arguments() -> None:
    def prune(w, fraction):  # type: ignore[no-untyped-def]
        w.reshape(-1)[np.argsort(np.abs(w), axis=None)[: round(fraction * w.size)]] = 0
        return w

    def keep(thoughts, propose, value, breadth):  # type: ignore[no-untyped-def]
        new = sorted((one for thought in thoughts for one in propose(thought)), key=value, reverse=True)[:breadth]
        thoughts.append(0)
        return new

    for number, name, answer in ((19, "prune", prune), (18, "next_level", keep)):
        exercise = next(one for one in chapter(number).exercises if one.name == name)
        with pytest.raises(NotYet, match=r"changes the .* given"):
            check_answer(exercise, answer)


def test_the_rules_are_shown_before_an_answer_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["course", "18"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    path = tmp_path / "mine.py"
    assert main(["course", "start", "18", str(path)]) == 0
    stubs = " ".join(path.read_text(encoding="utf-8").split())
    for text in (shown, stubs):
        for one in chapter(18).exercises:
            assert one.gives in text
            assert one.level in text
        for rule in ("must not be changed", "tolerance of 1e-6", "within 20 seconds", "returned as a tuple"):
            assert rule in text
    assert f"{SECONDS:g} seconds" in RULES


def test_what_never_ends_or_ends_too_soon_is_one_answer_of_several(tmp_path: Path) -> None:
    text = RIGHT + "\ndef distance(w, b, x):\n    while True: pass\n\ndef correct(w, b, x, t):\n    exit()\n"
    text += "\ndef novikoff(xs, ts):\n    return 1\n\ndef xor_network():\n    import os\n    os._exit(3)\n"
    found = by_name(check_file(1, written(tmp_path, text), seconds=1.0))
    assert found["fires"].right
    assert "without a result" in found["distance"].words
    assert "ended Python" in found["correct"].words
    assert found["train"].state == "missing"
    assert "novikoff(xs, ts, w, b)" in found["novikoff"].words
    assert "ended Python" in found["xor_network"].words


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_check_that_is_killed_leaves_no_process(tmp_path: Path, number: int) -> None:
    text = "import os, sys\nprint(os.getpid(), file=sys.stderr, flush=True)\nwhile True: pass\n"
    words = [sys.executable, "-m", "cutaway", "course", "check", "1", str(written(tmp_path, text))]
    check = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    assert check.stderr is not None
    child = int(check.stderr.readline())
    check.send_signal(number)
    try:
        check.communicate(timeout=60)  # until nobody holds its standard error, which the child does
    except subprocess.TimeoutExpired:
        os.kill(child, signal.SIGKILL)
        raise


def test_a_file_that_reads_what_is_typed_finds_nothing(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="line 1: EOFError"):
        check_file(1, written(tmp_path, "input()\n"))


def test_an_error_is_named_with_its_line(tmp_path: Path) -> None:
    text = "def fires(w, b, x):\n    y = w @ x\n    return y / nothing\n"
    words = by_name(check_file(1, written(tmp_path, text)))["fires"].words
    assert words == "it raises NameError: name 'nothing' is not defined (line 3)."


@pytest.mark.parametrize(
    ("text", "said"),
    [("def f(:\n", "line 1: invalid syntax"), ("x = 1\ny = z\n", "line 2: NameError: name 'z' is not defined")],
)
def test_a_file_that_does_not_run_is_told_where(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(FileError, match="cannot be run") as raised:
        check_file(1, written(tmp_path, text))
    assert said in str(raised.value)


def test_a_file_that_hangs_or_is_none(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"ran for 0\.5 seconds"):
        check_file(1, written(tmp_path, "while True: pass\n"), opening=0.5)
    with pytest.raises(FileError, match="cutaway course start 01"):
        check_file(1, tmp_path / "absent.py")
    with pytest.raises(SettingError, match="not a Python file"):
        check_file(1, tmp_path)


def test_a_file_is_begun_and_never_written_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mine.py"
    assert main(["course", "start", "01", str(path)]) == 0
    text = path.read_text(encoding="utf-8")
    assert "def novikoff(xs, ts, w, b):" in text
    compile(text, "mine.py", "exec")
    assert main(["course", "start", "01", str(path)]) == 2
    assert "already exists" in " ".join(capsys.readouterr().err.split())
    assert path.read_text(encoding="utf-8") == text


def test_what_is_typed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["course"]) == 0
    assert capsys.readouterr().out.startswith("01  The neuron")
    assert main(["course", "01", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["exercises"][0]["signature"] == "fires(w, b, x)"
    for words in (["20"], ["check"], ["01", "answers.py"], ["check", "01", "a.py", "b.py"], ["check", "²", "a.py"]):
        assert main(["course", *words]) == 2
    assert "Did you mean `course check` or `course start`?" in " ".join(capsys.readouterr().err.split())


def test_in_a_notebook_a_function_is_checked_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    def fires(w, b, x):  # type: ignore[no-untyped-def]
        return w @ x + b > 0

    check(1, fires)
    assert capsys.readouterr().out == "fires: correct.\n"
    with pytest.raises(SettingError, match="has no exercise main"):
        check(1, main)


def test_the_words_of_a_check() -> None:
    assert format_numbers([1.0, 0.25]) == "(1, 0.25)"
    assert format_numbers(np.arange(9.0)) == "(0, 1, 2, 3, 4, 5, …)"
    same([1, 2], np.array([1.0, 2.0 + 1e-9]), "here")
    for given, words in (
        ("x", "str 'x'"),
        ([1, 2, 3], "shape \\(3,\\)"),
        (1, "one number, 1"),
        ([1, 3], "expected"),
    ):
        with pytest.raises(NotYet, match=words):
            same(given, [1, 2], "here")
    with pytest.raises(NotYet, match="a `return`"):
        as_array(None, "here")
    with pytest.raises(NotYet, match="must return 2 values"):
        pair((1, 2, 3), ("w", "b"), "here")
