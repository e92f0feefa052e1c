"""What reaches the terminal: no sequence out of a person's file that it would obey, and no sentence cut short."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from cutaway import __version__
from cutaway.apps.cli import main, output
from cutaway.apps.cli.output import print_table
from cutaway.core.errors import DataError, printable, shorten

EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202egnp.exe\r"
HARMLESS = r"\x1b]0;owned\x07\x1b[2J\x9b31m\u202egnp.exe\r"


@pytest.fixture(autouse=True)
def fresh_console(monkeypatch: pytest.MonkeyPatch) -> None:
    """The console is made when it is first asked for, on the standard output of that moment."""
    monkeypatch.setattr(output, "console", output.console.__wrapped__)


def test_what_a_terminal_would_obey_is_written_out() -> None:
    assert printable(EVIL) == HARMLESS
    assert printable("Zürich\t→ 東京\n") == "Zürich\t→ 東京\n"


@pytest.mark.parametrize("terminal", [True, False])
def test_nothing_obeyed_comes_out_of_the_console(
    terminal: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if terminal:
        monkeypatch.setenv("FORCE_COLOR", "1")
        monkeypatch.setenv("COLUMNS", "200")
    output.console().print(f"[bold]{EVIL}[/]")
    print_table(["label"], [[EVIL]])
    output.note(EVIL)
    output.write(EVIL)
    said = capsys.readouterr()
    assert said.out.count(HARMLESS.removesuffix(r"\r")) == 3
    assert said.err == f"{HARMLESS}\n"
    own = {"\x1b[1m", "\x1b[2m", "\x1b[0m"}  # rich's bold and dim, where there is a terminal
    rest = said.out
    for sequence in own:
        rest = rest.replace(sequence, "")
    assert "\x1b" not in rest
    assert ("\x1b[1m" in said.out) == terminal


def test_json_says_the_same_in_characters_that_no_terminal_obeys(capsys: pytest.CaptureFixture[str]) -> None:
    output.emit_json({EVIL: [EVIL, "Zürich"]})
    said = capsys.readouterr().out
    assert json.loads(said) == {EVIL: [EVIL, "Zürich"]}
    assert printable(said) == said
    assert "Zürich" in said


def test_an_error_and_a_fault_steer_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "t.csv").write_text(f"a,b{EVIL[:-1]}\n1,2\n", encoding="utf-8")
    assert main(["check", "mlp", str(tmp_path / "t.csv"), "target=c"]) == 2
    assert "\x1b" not in capsys.readouterr().err

    from cutaway.apps.cli import runs

    for error, status in ((DataError(EVIL), 2), (RuntimeError(EVIL), 1)):

        def fail(args: object, error: Exception = error) -> int:
            raise error

        monkeypatch.setattr(runs, "run_report", fail)
        assert main(["report", "x"]) == status
        assert "\x1b" not in capsys.readouterr().err


class PanicException(BaseException):
    """As pyo3 has it, by which Rust's panics come to Python."""


@pytest.mark.parametrize(("error", "needed"), [
    (MemoryError(), ""),
    (RuntimeError("[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried "
                  "to allocate 40000000000 bytes. Error code 12 (Cannot allocate memory)"), "40000000000 bytes"),
    (MemoryError("Unable to allocate 7.45 GiB for an array with shape (1000000000,)"), "7.45 GiB"),
    (RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity"), "2.00 GiB"),
    (PanicException("memory allocation of 8589934592 bytes failed"), "8589934592 bytes"),
    (RuntimeError("std::bad_alloc"), ""),
    (ImportError("libopenblas.so: failed to map segment from shared object"), ""),
    (OSError(12, "Cannot allocate memory"), ""),
])  # fmt: skip
def test_running_out_of_memory_gives_one_sentence(
    error: BaseException, needed: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from cutaway.apps.cli import runs

    def fail(args: object) -> int:
        raise error

    monkeypatch.setattr(runs, "run_report", fail)
    assert main(["report", "x"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert said.startswith(f"cutaway: Out of memory{f': {needed} more could not be allocated' * bool(needed)}. Use")
    assert "Traceback" not in said


def test_a_memory_limit_below_the_libraries_is_rejected(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = {resource.RLIMIT_AS: 3 * 2**29, resource.RLIMIT_DATA: resource.RLIM_INFINITY}
    monkeypatch.setattr(resource, "getrlimit", lambda limit: (limits[limit], resource.RLIM_INFINITY))
    assert main(["check", "mlp", "xor"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert said.startswith(
        "cutaway: The memory limit of this process is 1.5 GiB (ulimit -v), and `cutaway check` needs 2.5 GiB"
    )
    assert main(["check", "--help"]) == 0
    limits[resource.RLIMIT_AS] = 2**40
    assert main(["check", "mlp", "xor"]) == 0


def test_another_panic_is_a_fault(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from cutaway.apps.cli import runs

    def fail(args: object) -> int:
        raise PanicException("index out of bounds")

    monkeypatch.setattr(runs, "run_report", fail)
    assert main(["report", "x"]) == 1
    assert "index out of bounds" in capsys.readouterr().err


def test_a_name_with_brackets_is_no_markup(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """rich would leave [out] out, and end in an error on [/]."""
    folder = tmp_path / "a[out]b"
    folder.mkdir()
    file = folder / "t[red].csv"
    file.write_text("x[/],y\n" + "".join(f"{i % 7}.5,{'ab'[i % 2]}\n" for i in range(60)), encoding="utf-8")
    run = tmp_path / "run[out]"
    assert main(["check", "mlp", str(file), "target=y", "model.hidden_dims=2"]) == 0
    assert main(["train", "mlp", str(file), "target=y", "model.hidden_dims=2", "epochs=1", "--out", str(run)]) == 0
    said = capsys.readouterr().out.replace("\n", "")
    assert str(file) in said
    assert "x[/]" in said
    assert str(run) in said


def test_long_values_are_shortened_in_the_middle() -> None:
    assert shorten("x" * 60) == "x" * 60
    assert shorten("a" * 5000 + "b" * 5000) == "a" * 40 + "…" + "b" * 19
    assert shorten(10**5000) == "a number of thousands of digits"


@pytest.mark.parametrize(
    "words",
    [
        ["lr=" + "9" * 5000],
        ["epochs=" + "9" * 5000],
        ["optimizer=" + "x" * 5000],
        ["x" * 5000 + "=1"],
        ["model." + "x" * 5000 + "=1"],
        ["model.hidden_dims=" + "9" * 5000],
        ["model.activation=" + "x" * 5000],
        ["out=" + "x" * 5000],
        ["x" * 5000],
        ["freeze=" + "x" * 5000],
        ["device=" + "x" * 5000],
        ["target=" + "x" * 5000],
        ["weights=" + "x" * 5000],
        ["vectors=" + "x" * 5000],
        ["tokenizer=" + "x" * 5000],
        ["forecast=" + "x" * 5000],
        ["ignore=" + "x" * 5000],
        ["types=" + "x" * 5000],
    ],
    ids=lambda words: words[0][:14],
)
def test_no_message_repeats_a_long_setting_whole(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "mlp", "xor", *words]) == 2
    said = capsys.readouterr().err
    assert len(said) < 1200
    assert "Traceback" not in said
    assert max(map(len, said.split())) < 120


def test_a_narrow_table_continues_below(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "40")
    rows = [["a", "words that have no room beside the others"], ["東京", "few"]]
    print_table(["name", "what"], rows, yields="what")
    lines = capsys.readouterr().out.splitlines()
    assert lines[1:] == [
        "a     words that have no room beside the",
        "      others",
        "東京  few",
    ]


def test_a_narrow_table_moves_only_wide_columns_below(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "30")
    rows = [["conv1", "Conv2d", "9408"], ["avgpool", "AdaptiveAvgPool2dIndeed", ""]]
    print_table(["layer", "type", "output"], rows, right=["output"], yields="type")
    lines = capsys.readouterr().out.splitlines()
    assert lines[1:] == ["conv1    Conv2d           9408", "avgpool", "    AdaptiveAvgPool2dIndeed"]


def test_a_sentence_wraps_with_indentation_between_words(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "20")
    output.say("paper:  a sentence of the paper", indent=8)
    assert capsys.readouterr().out.splitlines() == ["paper:  a sentence", "        of the paper"]
    monkeypatch.setattr(output.sys.stderr, "isatty", lambda: True, raising=False)
    output.note("note: /a/path/that/is/wider/than/it here")
    assert capsys.readouterr().err.splitlines() == ["note:", "  /a/path/that/is/wider/than/it", "  here"]


def test_a_command_in_a_message_is_not_broken_so_that_it_can_be_copied(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("COLUMNS", "50")
    (tmp_path / "t.json").write_text("[]")
    assert main(["check", "mlp", str(tmp_path / "t.json"), "target=y"]) == 2
    lines = capsys.readouterr().err.splitlines()
    (command,) = (line for line in lines if "python -c" in line)
    assert command.endswith("write_csv('data.csv')\"")
    assert len(lines) > 2


# --- files of settings ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = " + "[" * 10_000, "is the only table"),
        ("a." * 8_000 + "b = 1", "is the only table"),
        ("a." * 50_000 + "b = 1", "more than the limit of 16,384"),
        ("lr = " + "9" * 5000, "not TOML"),
        ("lr = 0.1 # " + "x" * 2**20, "more than the limit of 16,384"),
        ("lr = true", "Invalid lr=True: must be a number"),
        ("lr = inf", "a finite number"),
        ("target = ['a']", "Invalid target=('a',): must be text"),
        ("target = 1979-05-27", "must be text"),
        ("epochs = [3]", "Invalid epochs=(3,): must be an integer"),
        ("[epochs]\nx = 1", "There is no setting 'epochs.x'"),
        ("seed = 18446744073709551616", "an integer"),
    ],
    ids=[
        "nested",
        "dotted",
        "long-dotted",
        "digits",
        "huge",
        "bool",
        "inf",
        "list",
        "date",
        "list-int",
        "table",
        "seed",
    ],
)
def test_files_of_settings_are_rejected_by_name(
    text: str, said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "s.toml").write_text(text, encoding="utf-8")
    assert main(["train", "mlp", "xor", f"@{tmp_path / 's.toml'}"]) == 2
    error = " ".join(capsys.readouterr().err.split())
    assert said in error
    assert len(error) < 700


@pytest.mark.parametrize("path", ["/dev/zero", "."])
def test_what_is_no_file_of_settings_is_not_waited_for(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "mlp", "xor", f"@{path}"]) == 2
    assert "not a regular file" in capsys.readouterr().err


def test_progress_is_printed_during_long_work(capsys: pytest.CaptureFixture[str]) -> None:
    with output.note_if_slow("Still at work.", seconds=0.0):
        time.sleep(0.05)
    with output.note_if_slow("Never said.", seconds=60.0):
        pass
    assert capsys.readouterr().err == "Still at work.\n"


def test_check_shows_layers_that_are_alike_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "book.txt").write_text("the cat sat on the mat and the dog ran on. " * 20)
    tiny = "model.layers=5 model.dim=8 model.heads=1 length=8 tokenizer=characters device=cpu"
    assert main(["check", "gpt2", "book.txt", *tiny.split()]) == 0
    said = capsys.readouterr().out
    assert "blocks.0.mlp.fc1" in said
    assert "blocks.1 to 4" in said
    assert "blocks.1.mlp" not in said


def started(*words: str, **how: Any) -> subprocess.CompletedProcess[str]:
    """The command line in a process of its own, with its standard error in one line."""
    command = [sys.executable, "-m", "cutaway", *words]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False, **how)
    done.stderr = " ".join(done.stderr.split())
    return done


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full, a disk without space")
@pytest.mark.parametrize("words", [("--version",), ("list",), ("list", "--help")])
def test_an_output_without_space_is_one_sentence(words: tuple[str, ...]) -> None:
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        done = started(*words, stdout=full)
    assert done.returncode == 2
    said = "cutaway: Cannot write to standard output: No space left on device. Redirect it to another file."
    assert done.stderr == f"{said} CUT-302: `cutaway help CUT-302` explains it."


def test_an_output_that_is_closed_is_one_sentence() -> None:
    done = started("list", preexec_fn=lambda: os.close(1))
    assert done.returncode == 2
    assert done.stderr.startswith("cutaway: Cannot write to standard output: it is closed. ")


def test_a_reader_that_has_seen_enough_is_told_nothing() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = started("list", "--json", stdout=writer)
    os.close(writer)
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("module", "package", "words"),
    [
        ("torch", "torch", ("list",)),
        ("rich", "rich", ("data",)),
        ("sklearn", "scikit-learn", ("train", "mlp", "iris", "--out", "run")),
        ("polars", "polars", ("check", "mlp", "wine")),
    ],
)
def test_a_package_that_is_missing_is_named_with_its_command(
    module: str, package: str, words: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text(f"""
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == {module!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Missing())
""")
    paths = os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH"))))
    done = started(*words, stdout=subprocess.DEVNULL, env=os.environ | {"PYTHONPATH": paths}, cwd=tmp_path)
    assert done.returncode == 2
    install = f"{sys.executable} -m pip install {package}"
    said = done.stderr.removeprefix("Reading the data, building the model and timing a few training steps ...").lstrip()
    code = "CUT-105: `cutaway help CUT-105` explains it."
    assert said == f"cutaway: The package {package} is not installed. Install it: {install} {code}"


def test_an_internal_error_says_what_to_report(capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    def broken(*_: Any) -> None:
        raise RuntimeError("of our own")

    monkeypatch.setattr("cutaway.apps.cli.data.run_data", broken)
    assert main(["data"]) == 1
    said = " ".join(capsys.readouterr().err.split())
    assert "RuntimeError: of our own Internal error. Please report it in the issue tracker of Cutaway" in said
    assert f"Cutaway {__version__}, Python 3" in said
