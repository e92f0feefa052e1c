"""`processes=N`: started, stopped, killed and gone on with, as a person sees it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cutaway.apps.cli import main
from cutaway.core.files import read_json

from .ranks import PATIENCE, tensors, together

pytestmark = pytest.mark.slow  # processes, or runs that are trained

GIVEN = ["max_samples=200", "batch_size=20", "epochs=4", "threads=1", "tensorboard=false", "seed=5", "save_minutes=0"]


def cutaway(*words: object, torchrun: int = 0) -> subprocess.Popen[str]:
    """The command, at work; under torchrun with so many processes."""
    python = [sys.executable, "-m"]
    runner = [*python, "torch.distributed.run", "--standalone", f"--nproc-per-node={torchrun}", "-m"]
    return subprocess.Popen(
        [*(runner if torchrun else python), "cutaway", *map(str, words)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "80"},
    )  # fmt: skip


def said(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Its exit status, and what it printed."""
    out, err = process.communicate(timeout=PATIENCE)
    return process.returncode, out, err


def workers(process: subprocess.Popen[str]) -> list[int]:
    """The processes that train, in the order of their start."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return [pid for pid in map(int, children) if "worker" in Path(f"/proc/{pid}/cmdline").read_text()]


def wait_for(path: Path, process: subprocess.Popen[str]) -> None:
    """Until the file is there."""
    while not path.exists() and process.poll() is None:
        time.sleep(0.02)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of two processes that nobody stopped, nor torchrun started."""
    base = tmp_path_factory.mktemp("whole")
    words = ["train", "lenet5-modern", "digits", *GIVEN, "--out", str(base / "run")]
    assert together(_typed, words, base, count=2) == [0, 0], told(base)
    return base / "run"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_a_worker_that_is_killed_is_started_again_and_the_run_ends_bit_for_bit_as_without(
    whole: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    training = cutaway("train", "lenet5-modern", "digits", *GIVEN, "processes=2", "max_restarts=1", "--out", run)
    wait_for(run / "checkpoints" / "last.safetensors", training)
    os.kill(workers(training)[-1], signal.SIGKILL)
    status, out, err = said(training)
    assert status == 0, err
    assert "test accuracy" in out
    assert (run / "report.html").exists()
    about = read_json(run / "run.json")
    assert about["resumed"] == 1
    assert about["settings"]["processes"] == 2
    ours, theirs = (tensors(folder / "model" / "model.safetensors") for folder in (run, whole))
    assert all(ours[key].equal(value) for key, value in theirs.items())


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_a_worker_that_is_lost_is_told_once_and_the_run_goes_on_with_another_number(
    whole: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    training = cutaway("train", "lenet5-modern", "digits", *GIVEN, "processes=2", "--out", run)
    wait_for(run / "checkpoints" / "last.safetensors", training)
    os.kill(workers(training)[-1], signal.SIGKILL)
    status, _, err = said(training)
    assert status == 2
    assert err.count("cutaway:") == 1
    assert f"cutaway train --resume {run}" in " ".join(err.split())
    assert "Traceback" not in err
    assert main(["train", "--resume", str(run), "processes=1"]) == 0
    about, expected = read_json(run / "run.json"), read_json(whole / "run.json")
    assert about["settings"]["processes"] == 1
    steps, whole_steps = ((folder / "metrics.csv").read_text().splitlines() for folder in (run, whole))
    assert [row.split(",")[:3] for row in steps] == [row.split(",")[:3] for row in whole_steps]
    assert about["best"]["value"] == pytest.approx(expected["best"]["value"], abs=0.15)


def test_ctrl_c_leaves_a_checkpoint_and_says_how_to_go_on(tmp_path: Path) -> None:
    run = tmp_path / "run"
    given = [word for word in GIVEN if not word.startswith("epochs")]
    training = cutaway("train", "lenet5-modern", "digits", *given, "epochs=5000", "processes=2", "--out", run)
    wait_for(run / "checkpoints" / "last.safetensors", training)
    os.killpg(training.pid, signal.SIGINT)
    status, _, err = said(training)
    assert status == 130
    assert err.strip().splitlines()[-1] == f"Interrupted. Continue with: cutaway train --resume {run}"
    assert read_json(run / "run.json")["status"] == "interrupted"


def test_torchrun_is_the_same(whole: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    status, out, err = said(cutaway("train", "lenet5-modern", "digits", *GIVEN, "--out", run, "--json", torchrun=2))
    assert status == 0, err
    assert json.loads(out)["run"] == str(run)  # one document: the first process alone speaks
    assert "Warning" not in err
    ours, theirs = (tensors(folder / "model" / "model.safetensors") for folder in (run, whole))
    assert all(ours[key].equal(value) for key, value in theirs.items())


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["digits", "lr=fast", "processes=2"], "lr=fast"),
        (["nowhere.csv", "processes=2"], "nowhere.csv"),
        (["digits", "processes=0"], "processes=0"),
        (["digits", "batch_size=2", "processes=3"], "Give batch_size=3 or more, or fewer processes."),
        (["digits", "processes=1024"], "before any of them has a model"),
        (["processes=2"], "Missing data"),
    ],
)
def test_what_is_typed_wrong_is_told_before_processes_are_started(
    words: list[str], expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cutaway.runs.train.launch", None)
    monkeypatch.setattr("cutaway.training.parallel.free_memory", lambda: 1 << 34)
    assert main(["train", "lenet5-modern", *words, "--out", str(tmp_path / "run")]) == 2
    assert expected in " ".join(capsys.readouterr().err.split())


def test_what_processes_cannot_do_is_told_once(tmp_path: Path) -> None:
    words = ["train", "lenet5-modern", "digits", "objective=simclr", "processes=2", "--out", tmp_path / "run"]
    status, out, err = said(cutaway(*words))
    assert status == 2
    assert err.count("cutaway:") == 1
    assert "objective=simclr" in err
    assert "Traceback" not in err
    assert not out


def test_under_torchrun_one_process_speaks(tmp_path: Path) -> None:
    _, out, err = said(cutaway("train", "lenet5-modern", "nowhere.csv", "--out", tmp_path / "run", torchrun=2))
    lines = [line for line in err.splitlines() if line.startswith("cutaway:")]
    assert len(lines) == 1
    assert "nowhere.csv" in lines[0]
    assert not out


def test_what_torchrun_decides_is_not_decided_again(tmp_path: Path) -> None:
    words = ["train", "lenet5-modern", "digits", "processes=3", "--out", str(tmp_path / "run")]
    assert together(_typed, words, tmp_path, count=2) == [2, 2]
    assert told(tmp_path).count("cutaway:") == 1
    assert "torchrun has started 2" in " ".join(told(tmp_path).split())


def _typed(words: list[str], folder: Path) -> None:
    """Type a command in one of the processes; what it says is kept by the process's number."""
    with (folder / f"{os.environ['RANK']}.err").open("w") as file, contextlib.redirect_stderr(file):
        status = main(words)
    sys.exit(status)


def told(folder: Path) -> str:
    """What the processes that typed in this folder told."""
    return "".join(path.read_text() for path in sorted(folder.glob("*.err")))
