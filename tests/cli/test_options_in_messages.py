"""Messages name options of the command that prints them, and a command that was killed can be run again."""

from __future__ import annotations

import ast
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import cutaway
from cutaway.apps.cli import COMMANDS
from cutaway.core.files import read_json
from cutaway.training.run_folder import LOCK, UNFINISHED, lock_run

from .conftest import Answer, foreign_options, options_of

Cli = Callable[..., Answer]
SOURCES = Path(cutaway.__file__).parent
QUICK: dict[str, Any] = {"epochs": 2, "tensorboard": False, "threads": 1, "model.hidden_dims": (8,)}


def test_options_are_found_by_the_command_that_they_belong_to() -> None:
    assert foreign_options("quantize", "Give another folder, or add --overwrite.") == ["quantize --overwrite"]
    assert foreign_options("export", "Give another name, or add --overwrite.") == []
    assert foreign_options("quantize", "Go on: cutaway train --resume r, or add --overwrite.") == []
    assert foreign_options("quantize", "Go on: cutaway train --resume r; or --overwrite.") == ["quantize --overwrite"]
    assert foreign_options("prune", "Or `cutaway prune --resume r`.") == ["prune --resume"]
    assert foreign_options("train", "Fetch it, as by `hf download x --local-dir DIR`.") == []


def texts(source: str) -> list[str]:
    """The strings of a module, those with values in them with a word in place of each."""
    tree = ast.parse(source)
    parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            found.append("".join(str(p.value) if isinstance(p, ast.Constant) else "X" for p in node.values))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts:
            found.append(node.value)
    return found


def test_every_text_that_names_a_command_with_an_option_is_right() -> None:
    wrong, seen = [], 0
    for path in SOURCES.rglob("*.py"):
        written = path.read_text(encoding="utf-8")
        for text in texts(written) if "cutaway " in written and "--" in written else ():
            lines = " ".join(text.split())
            if "cutaway " in lines and "--" in lines:
                seen += 1
                here = [name for name, command in COMMANDS.items() if command.module == path.stem]
                wrong += [
                    f"{path.name}: {one}"
                    for own in (here if path.parent.name == "cli" and here else ["train"])
                    for one in foreign_options(own, lines)
                    if one.partition(" ")[0] in COMMANDS and f"cutaway {one.partition(' ')[0]}" in lines
                ]
    assert seen > 30
    assert wrong == []


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of some digits."""
    folder = tmp_path_factory.mktemp("trained") / "r"
    return cutaway.train("mlp", "digits", out=folder, max_samples=60, **QUICK).folder


@pytest.fixture
def run(cli: Cli, trained: Path) -> Path:
    """A copy of it, r."""
    return Path(shutil.copytree(trained, "r"))


# What stands where a command is to write, and the words of each command; SPOT is the place.
def put(what: str, place: Path) -> None:
    """Put a run, a folder, a file, a link to nothing, or what a killed command leaves at a place."""
    if what in ("a run", "half a run"):
        shutil.copytree("r", place)
        if what == "half a run":
            (place / UNFINISHED).touch()
    elif what == "a file":
        place.write_text("years")
    elif what == "a link":
        place.symlink_to("nowhere/at/all")
    else:
        place.mkdir()
        (place / "thesis.tex").touch()


AT = ("a run", "a folder", "a file", "a link", "half a run")
SPOT = "spot"
WRITES: dict[str, tuple[str, ...]] = {
    "train": ("mlp", "digits", "--out", SPOT),
    "compare": ("mlp", "digits", "--out", SPOT),
    "search": ("mlp", "digits", "lr=1e-3..1e-2", "--out", SPOT),
    "prune": ("r", SPOT, "sparsity=0.5"),
    "quantize": ("r", SPOT),
    "export": ("r", SPOT),
    "convert": ("r", SPOT, "--to", "huggingface"),
    "prepare": ("r", SPOT),
    "predict": ("r", "digits", "--out", SPOT),
    "generate": ("r", "--prompt", "a", "--out", SPOT),
    "inspect": ("mlp", "--out", SPOT),
    "examples": ("wine.csv", "--out", SPOT),
}
READS: dict[str, tuple[str, ...]] = {
    "show": (SPOT,), "data": (SPOT,), "check": ("mlp", SPOT), "plan": ("mlp", SPOT), "train": ("--resume", SPOT),
    "compare": ("--resume", SPOT), "search": ("--resume", SPOT), "evaluate": (SPOT,), "predict": (SPOT, "digits"),
    "generate": (SPOT,), "serve": (SPOT,), "report": (SPOT,), "inspect": (SPOT,), "course": ("check", SPOT),
    "prune": (SPOT, "new", "sparsity=0.5"), "quantize": (SPOT, "new"), "export": (SPOT, "new.onnx"),
    "convert": (SPOT, "new", "--to", "cutaway"), "prepare": (SPOT, "new"), "verify": (SPOT,), "list": (SPOT,),
    "studio": ("mlp", SPOT),
}  # fmt: skip


def test_every_command_is_asked() -> None:
    assert {*WRITES, *READS} == {*COMMANDS}


def state(place: Path) -> list[tuple[str, int]]:
    """The files at a place, and when they were written."""
    return sorted(
        (str(path), path.lstat().st_mtime_ns) for path in (place, *place.rglob("*")) if path != place / ".lock"
    )


@pytest.mark.parametrize("what", AT)
def test_existing_outputs_are_kept_and_the_suggested_option_exists(cli: Cli, run: Path, what: str) -> None:
    """`cli` checks the options that each message names."""
    del run
    for command, words in WRITES.items():
        place = Path(SPOT)
        put(what, place)
        before = state(place)
        answer = cli(command, *words)
        if (what, command) != ("half a run", "quantize") and (command != "examples" or what in ("a file", "a link")):
            assert answer.status == 2, (command, answer)
            assert [name for name, _ in state(place)] == [name for name, _ in before], command
            assert state(place)[1:] == before[1:], command
        (shutil.rmtree if place.is_dir() and not place.is_symlink() else Path.unlink)(place)


@pytest.mark.parametrize("what", AT[1:])
def test_what_is_no_input_is_told_with_a_way_out_that_exists(cli: Cli, run: Path, what: str) -> None:
    del run
    put(what, Path(SPOT))
    for command, words in READS.items():
        answer = cli(command, *words)
        assert answer.status == 2, (command, answer)


@pytest.mark.parametrize("option", ["out", "overwrite", "resume", "open", "json"])
@pytest.mark.parametrize("command", ["train", "compare", "search", "check", "plan", "prune", "quantize"])
def test_options_typed_as_settings(cli: Cli, run: Path, command: str, option: str) -> None:
    del run
    words = ("r", "new") if command in ("prune", "quantize") else ("mlp", "digits")
    answer = cli(command, *words, f"{option}=x")
    assert answer.status == 2
    if command in ("train", "compare", "search") and f"--{option}" in options_of(command):
        assert f"{option}=x is an option, not a setting" in answer.said


def test_a_killed_quantization_starts_again(cli: Cli, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    del run

    def killed(ready: object, folder: Path) -> None:
        shutil.copytree(folder, "small", ignore=lambda *_: [LOCK])  # what stands there at this moment

    with monkeypatch.context() as once:
        once.setattr("cutaway.deploy.quantize.write_run_evaluation", killed)
        assert cli("quantize", "r", "other", "method=weight-only").status == 0
    assert Path("small/run.json").is_file()
    assert "small is not a complete run" in cli("evaluate", "small").said
    assert "Run that command again" in cli("report", "small").said
    assert "holds the incomplete result" in cli("train", "mlp", "digits", "--out", "small").said
    with lock_run(Path("small")):
        assert "small is in use" in cli("quantize", "r", "small", "method=weight-only").said
    assert cli("quantize", "r", "small", "method=weight-only").status == 0
    assert cli("evaluate", "small").status == 0
    assert "nothing in it is overwritten. Give another folder." in cli("quantize", "r", "small").said


def test_an_interrupted_quantization_offers_no_run_that_is_gone(
    cli: Cli, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del run
    monkeypatch.setattr("cutaway.training.callbacks.StopSignal.requested", True, raising=False)
    monkeypatch.setattr("cutaway.training.callbacks.StopSignal.__init__", lambda self: None)
    answer = cli("quantize", "r", "small", "qat=1")
    assert answer.status == 130
    assert answer.said.endswith("Interrupted.")
    assert not Path("small").exists()


def test_a_pruning_that_was_stopped_is_resumed(cli: Cli, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    del run
    words = ("prune", "r", "small", "sparsity=0.5", "prune_channels=0.25", "epochs=2")
    with monkeypatch.context() as once:
        once.setattr("cutaway.training.callbacks.StopSignal.requested", True, raising=False)
        once.setattr("cutaway.training.callbacks.StopSignal.__init__", lambda self: None)
        assert cli(*words).status == 130
    assert "go on with the run: `cutaway train --resume small`" in cli(*words).said
    assert cli("train", "--resume", "small").status == 0
    assert read_json("small/run.json")["status"] == "finished"
    assert (sum(p.count_nonzero() for p in cutaway.Run("small").model.parameters() if p.ndim > 1)) < 0.55 * sum(
        p.numel() for p in cutaway.Run("small").model.parameters() if p.ndim > 1
    )
